//! The cache of a release: a bounded number of small values with a TTL that outlive a call.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use skysail_provider::{Limit, LimitHit};
use tokio::time::Instant;

use crate::Limits;

/// The cache of one release. It is dropped with the release, so the next release never reads values
/// in a format that it does not know, and a call that still runs on the old release after a swap
/// does not write into the new cache.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: u64,
    entries_max: u64,
    ttl_max: Duration,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Arc<str>, Entry>,
    /// The keys by their expiry, to find expired entries without scanning all entries.
    by_end: BTreeSet<(Instant, Arc<str>)>,
    /// The size of all keys and values.
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    ends: Instant,
}

impl Cache {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            bytes_max: limits.cache_bytes,
            entries_max: limits.cache_entries,
            ttl_max: Duration::from_millis(limits.cache_ttl_ms),
            entries: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let now = Instant::now();
        self.entries().by_key.get(key).filter(|entry| entry.ends > now).map(|entry| entry.value.clone())
    }

    /// Stores a value. An older value of the key is removed in any case, so that no caller reads an
    /// older value than it has set.
    ///
    /// # Errors
    /// The limit that the value would exceed. The value is not stored then.
    pub(crate) fn set(&self, key: String, value: Vec<u8>, ttl: Duration) -> Result<(), LimitHit> {
        let now = Instant::now();
        let size = size(&key, &value);
        let mut entries = self.entries();
        entries.remove(&key);
        if !self.fits(&entries, size) {
            entries.remove_ended(now);
        }
        if entries.by_key.len() as u64 >= self.entries_max {
            let used = entries.by_key.len() as u64 + 1;
            return Err(LimitHit { limit: Limit::CacheEntries, used, max: self.entries_max });
        }
        let used = entries.bytes.saturating_add(size);
        if used > self.bytes_max {
            return Err(LimitHit { limit: Limit::CacheBytes, used, max: self.bytes_max });
        }
        entries.bytes = used;
        let (key, ends): (Arc<str>, _) = (key.into(), now + ttl.min(self.ttl_max));
        entries.by_end.insert((ends, Arc::clone(&key)));
        entries.by_key.insert(key, Entry { value, ends });
        Ok(())
    }

    pub(crate) fn delete(&self, key: &str) {
        self.entries().remove(key);
    }

    fn fits(&self, entries: &Entries, size: u64) -> bool {
        (entries.by_key.len() as u64) < self.entries_max && entries.bytes.saturating_add(size) <= self.bytes_max
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn remove(&mut self, key: &str) {
        if let Some((key, entry)) = self.by_key.remove_entry(key) {
            self.bytes = self.bytes.saturating_sub(size(&key, &entry.value));
            self.by_end.remove(&(entry.ends, key));
        }
    }

    fn remove_ended(&mut self, now: Instant) {
        while let Some((_, key)) = self.by_end.first().filter(|(ends, _)| *ends <= now).cloned() {
            self.remove(&key);
        }
    }
}

const fn size(key: &str, value: &[u8]) -> u64 {
    key.len() as u64 + value.len() as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skysail_provider::{Limit, LimitHit};
    use tokio::time::advance;

    use super::Cache;
    use crate::Limits;

    const HOUR: Duration = Duration::from_secs(3600);

    fn cache() -> Cache {
        Cache::new(&Limits { cache_bytes: 1024, cache_entries: 2, cache_ttl_ms: 3_600_000, ..Limits::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_expires_after_its_ttl_and_never_later_than_the_limit() {
        let cache = cache();
        cache.set("a".to_owned(), vec![1], Duration::from_secs(1)).unwrap();
        cache.set("b".to_owned(), vec![2], Duration::MAX).unwrap();
        advance(Duration::from_secs(1)).await;
        assert_eq!((cache.get("a"), cache.get("b")), (None, Some(vec![2])));
        advance(HOUR).await;
        assert_eq!(cache.get("b"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_does_not_fit_is_refused_and_the_older_value_of_its_key_is_removed() {
        let cache = cache();
        cache.set("a".to_owned(), vec![0; 1000], HOUR).unwrap();
        let hit = cache.set("a".to_owned(), vec![0; 1024], HOUR).unwrap_err();
        assert_eq!(hit, LimitHit { limit: Limit::CacheBytes, used: 1025, max: 1024 });
        assert_eq!(cache.get("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_values_make_room() {
        let cache = cache();
        cache.set("a".to_owned(), vec![0; 500], Duration::from_secs(1)).unwrap();
        cache.set("b".to_owned(), vec![0; 500], HOUR).unwrap();
        let hit = cache.set("c".to_owned(), vec![], HOUR).unwrap_err();
        assert_eq!(hit, LimitHit { limit: Limit::CacheEntries, used: 3, max: 2 });
        advance(Duration::from_secs(2)).await;
        cache.set("c".to_owned(), vec![0; 500], HOUR).unwrap();
        cache.delete("b");
        cache.set("d".to_owned(), vec![0; 500], HOUR).unwrap();
        assert_eq!((cache.get("b"), cache.get("d")), (None, Some(vec![0; 500])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_is_set_again_expires_after_its_new_ttl() {
        let cache = cache();
        cache.set("a".to_owned(), vec![1], Duration::from_secs(1)).unwrap();
        cache.set("a".to_owned(), vec![2], HOUR).unwrap();
        cache.set("b".to_owned(), vec![3], HOUR).unwrap();
        advance(Duration::from_secs(2)).await;
        assert!(cache.set("c".to_owned(), vec![4], HOUR).is_err());
        assert_eq!(cache.get("a"), Some(vec![2]));
    }
}
