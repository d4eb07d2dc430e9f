//! Small JSON values that survive the call. The host may drop any value at any time; no function
//! here fails.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use crate::{Result, bindings::imports::skysail::provider::cache, native::host_only};

/// The value, unless it is absent, expired, or does not have the shape of `T`.
#[must_use]
#[track_caller]
pub fn get<T: DeserializeOwned>(key: &str) -> Option<T> {
    host_only("cache::get");
    serde_json::from_slice(&cache::get(key)?).ok()
}

/// Stores a value for at most `ttl`; false where the cache has no space for it.
#[track_caller]
pub fn set<T: Serialize>(key: &str, value: &T, ttl: Duration) -> bool {
    host_only("cache::set");
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    serde_json::to_vec(value).is_ok_and(|bytes| cache::set(key, &bytes, ttl_ms))
}

/// Deletes a value; an absent key is not an error.
#[track_caller]
pub fn delete(key: &str) {
    host_only("cache::delete");
    cache::delete(key);
}

/// The stored value, or else the value of `fetch`, which is then stored for at most `ttl`.
///
/// # Errors
///
/// Those of `fetch`; an error is not stored.
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
