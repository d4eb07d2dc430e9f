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

/// Replaces the value by `change` of it, for at most `ttl`, and loses no change of another call.
///
/// For counters and the state of rate limits. Returns the new value; none where the cache has no
/// space for it, or other calls changed the value [`TRIES_MAX`] times in between. `change` gets
/// none where the value is absent, expired, or does not have the shape of `T`, and may be called
/// several times.
#[track_caller]
pub fn update<T: Serialize + DeserializeOwned>(
    key: &str,
    ttl: Duration,
    change: impl FnMut(Option<T>) -> T,
) -> Option<T> {
    host_only("cache::update");
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    let exchange = |expected: Option<&[u8]>, value: &[u8]| cache::compare_and_set(key, expected, value, ttl_ms);
    exchanged(|| cache::get(key), exchange, change)
}

/// How often [`update`] tries to replace a value that other calls change.
pub const TRIES_MAX: usize = 16;

fn exchanged<T: Serialize + DeserializeOwned>(
    get: impl Fn() -> Option<Vec<u8>>,
    exchange: impl Fn(Option<&[u8]>, &[u8]) -> bool,
    mut change: impl FnMut(Option<T>) -> T,
) -> Option<T> {
    (0..TRIES_MAX).find_map(|_| {
        let present = get();
        let value = change(present.as_deref().and_then(|bytes| serde_json::from_slice(bytes).ok()));
        let bytes = serde_json::to_vec(&value).ok()?;
        exchange(present.as_deref(), &bytes).then_some(value)
    })
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::{TRIES_MAX, exchanged};

    #[test]
    fn a_change_that_another_call_makes_in_between_is_not_lost() {
        let (stored, others) = (RefCell::new(None::<Vec<u8>>), Cell::new(3_u32));
        let exchange = |expected: Option<&[u8]>, value: &[u8]| {
            if let Some(left) = others.get().checked_sub(1) {
                // Another call is faster.
                others.set(left);
                *stored.borrow_mut() = Some(format!("{}", 10 * (3 - left)).into_bytes());
            }
            let is_expected = stored.borrow().as_deref() == expected;
            if is_expected {
                *stored.borrow_mut() = Some(value.to_vec());
            }
            is_expected
        };
        let get = || stored.borrow().clone();
        assert_eq!(exchanged(get, exchange, |number: Option<u32>| number.unwrap_or(0) + 1), Some(31));
        assert_eq!(exchanged(get, exchange, |number: Option<u32>| number.unwrap_or(0) + 1), Some(32));
        *stored.borrow_mut() = Some(b"not JSON".to_vec());
        assert_eq!(exchanged(get, exchange, |number: Option<u32>| number.unwrap_or(7)), Some(7));
    }

    #[test]
    fn a_value_that_is_never_taken_ends_the_tries() {
        let tries = Cell::new(0);
        let exchange = |_: Option<&[u8]>, _: &[u8]| {
            tries.set(tries.get() + 1);
            false
        };
        assert_eq!(exchanged(|| None, exchange, |_: Option<u32>| 1), None);
        assert_eq!(tries.get(), TRIES_MAX);
    }
}
