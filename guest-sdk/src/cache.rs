//! Small values that outlive the call, as JSON. Anything may be forgotten at any time; nothing here
//! can fail.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use crate::{Result, bindings::imports::skysail::provider::cache, native::host_only};

/// The value, where it is there, its time is not over, and it still has the shape of `T`.
#[must_use]
#[track_caller]
pub fn get<T: DeserializeOwned>(key: &str) -> Option<T> {
    host_only("cache::get");
    serde_json::from_slice(&cache::get(key)?).ok()
}

/// Keeps a value for at most `ttl`; false where it did not fit.
#[track_caller]
pub fn set<T: Serialize>(key: &str, value: &T, ttl: Duration) -> bool {
    host_only("cache::set");
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    serde_json::to_vec(value).is_ok_and(|bytes| cache::set(key, &bytes, ttl_ms))
}

/// Forgets a value; an absent key is fine.
#[track_caller]
pub fn delete(key: &str) {
    host_only("cache::delete");
    cache::delete(key);
}

/// The kept value, or the answer of `fetch`, which is then kept for at most `ttl`.
///
/// # Errors
///
/// Those of `fetch`; a failure is not kept.
#[track_caller]
pub fn get_or<T: Serialize + DeserializeOwned>(
    key: &str,
    ttl: Duration,
    fetch: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if let Some(value) = get(key) {
        return Ok(value);
    }
    let value = fetch()?;
    set(key, &value, ttl);
    Ok(value)
}
