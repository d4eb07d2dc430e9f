//! Caches answers of the API server for a short time, without tokens in memory.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustls::crypto::ring;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

type Key = [u8; 32];

/// A bounded map whose entries expire. Its keys are hashes with a secret of this process, so that a
/// memory dump contains no token.
pub(crate) struct Cache<V> {
    secret: Key,
    entries: Mutex<HashMap<Key, (Instant, V)>>,
    max: usize,
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("max", &self.max).finish_non_exhaustive()
    }
}

impl<V: Clone> Cache<V> {
    /// Holds at most `max` answers.
    pub(crate) fn new(max: usize) -> Self {
        let mut secret = Key::default();
        // Without random bytes the keys are plain hashes; TLS would not work either.
        if ring::default_provider().secure_random.fill(&mut secret).is_err() {
            tracing::error!(
                "the system's random number generator failed: the cache of authenticated tokens keeps hashes without a secret; look at the node's kernel"
            );
        }
        Self { secret, entries: Mutex::default(), max }
    }

    /// The key of these parts; the boundaries between the parts are part of the hash.
    pub(crate) fn key<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Key {
        let mut hash = Sha256::new();
        hash.update(self.secret);
        for part in parts {
            hash.update(part.len().to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.finalize().into()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(until, _)| Instant::now() < *until).map(|(_, value)| value.clone())
    }

    /// Keeps an answer for this time; a `ttl` of zero keeps nothing.
    pub(crate) fn insert(&self, key: Key, value: V, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.max {
            entries.retain(|_, (until, _)| now < *until);
        }
        if entries.len() >= self.max {
            let first = entries.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| *key);
            first.map(|key| entries.remove(&key));
        }
        entries.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Cache;

    const S: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_answer_expires_after_its_ttl() {
        let cache = Cache::new(8);
        let key = cache.key(["a"]);
        cache.insert(key, 1, 10 * S);
        tokio::time::advance(9 * S).await;
        assert_eq!(cache.get(&key), Some(1));
        tokio::time::advance(S).await;
        assert_eq!(cache.get(&key), None);
        cache.insert(key, 2, Duration::ZERO);
        assert_eq!(cache.get(&key), None, "a TTL of zero keeps nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_cache_drops_the_entry_that_expires_first() {
        let cache = Cache::new(2);
        let [a, b, c] = ["a", "b", "c"].map(|part| cache.key([part]));
        cache.insert(a, "a", 2 * S);
        cache.insert(b, "b", S);
        cache.insert(c, "c", S);
        assert_eq!((cache.get(&a), cache.get(&b), cache.get(&c)), (Some("a"), None, Some("c")));
    }

    #[test]
    fn different_parts_have_different_keys_and_keys_differ_between_processes() {
        let cache = Cache::<()>::new(1);
        assert_ne!(cache.key(["ab", "c"]), cache.key(["a", "bc"]));
        assert_ne!(cache.key(["a"]), Cache::<()>::new(1).key(["a"]));
    }
}
