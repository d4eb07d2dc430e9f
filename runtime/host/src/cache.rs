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

    /// The cache of a replayed call, with the values that the recorded call found.
    pub(crate) fn with(limits: &Limits, values: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let cache = Self::new(limits);
        for (key, value) in values {
            // A value that does not fit is absent: the host may evict any value.
            let _too_large = cache.set(key, value, cache.ttl_max);
        }
        cache
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
        let mut entries = self.entries();
        entries.remove(&key);
        self.put(&mut entries, key, value, ttl)
    }

    /// Stores a value if the present one is `expected`; returns whether it was.
    ///
    /// # Errors
    /// The limit that the value would exceed. The present value stays then.
    pub(crate) fn compare_and_set(
        &self,
        key: String,
        expected: Option<&[u8]>,
        value: Vec<u8>,
        ttl: Duration,
    ) -> Result<bool, LimitHit> {
        let now = Instant::now();
        let mut entries = self.entries();
        let present = entries.by_key.get(&*key).filter(|entry| entry.ends > now);
        if present.map(|entry| entry.value.as_slice()) != expected {
            return Ok(false);
        }
        self.put(&mut entries, key, value, ttl).map(|()| true)
    }

    /// Stores a value in place of an older one, which stays if the new value does not fit.
    fn put(&self, entries: &mut Entries, key: String, value: Vec<u8>, ttl: Duration) -> Result<(), LimitHit> {
        let now = Instant::now();
        if self.fits(entries, &key, &value).is_err() {
            entries.remove_ended(now);
            self.fits(entries, &key, &value)?;
        }
        entries.remove(&key);
        entries.bytes = entries.bytes.saturating_add(size(&key, &value));
        let (key, ends): (Arc<str>, _) = (key.into(), now + ttl.min(self.ttl_max));
        entries.by_end.insert((ends, Arc::clone(&key)));
        entries.by_key.insert(key, Entry { value, ends });
        Ok(())
    }

    pub(crate) fn delete(&self, key: &str) {
        self.entries().remove(key);
    }

    /// Whether the value fits in place of an older one.
    fn fits(&self, entries: &Entries, key: &str, value: &[u8]) -> Result<(), LimitHit> {
        let older = entries.by_key.get(key).map(|entry| size(key, &entry.value));
        let count = entries.by_key.len() as u64 + u64::from(older.is_none());
        if count > self.entries_max {
            return Err(LimitHit { limit: Limit::CacheEntries, used: count, max: self.entries_max });
        }
        let used = entries.bytes.saturating_sub(older.unwrap_or(0)).saturating_add(size(key, value));
        if used > self.bytes_max {
            return Err(LimitHit { limit: Limit::CacheBytes, used, max: self.bytes_max });
        }
        Ok(())
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

    #[tokio::test(start_paused = true)]
    async fn a_value_is_exchanged_only_where_the_present_one_is_the_expected_one() {
        let cache = cache();
        let exchange = |expected: Option<&[u8]>, value: u8| {
            cache.compare_and_set("a".to_owned(), expected, vec![value], Duration::from_secs(1))
        };
        assert_eq!(exchange(Some(&[0]), 1), Ok(false), "the key is absent");
        assert_eq!((exchange(None, 1), exchange(None, 2)), (Ok(true), Ok(false)));
        assert_eq!((exchange(Some(&[2]), 3), cache.get("a")), (Ok(false), Some(vec![1])));
        assert_eq!((exchange(Some(&[1]), 3), cache.get("a")), (Ok(true), Some(vec![3])));
        advance(Duration::from_secs(1)).await;
        assert_eq!((exchange(Some(&[3]), 4), exchange(None, 5)), (Ok(false), Ok(true)), "the value has expired");
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_that_does_not_fit_changes_nothing() {
        let cache = cache();
        cache.set("a".to_owned(), vec![0; 500], HOUR).unwrap();
        let hit = cache.compare_and_set("a".to_owned(), Some(&[0; 500]), vec![1; 1024], HOUR).unwrap_err();
        assert_eq!(hit, LimitHit { limit: Limit::CacheBytes, used: 1025, max: 1024 });
        assert_eq!(cache.get("a"), Some(vec![0; 500]));
        // In place of the older value it fits.
        assert_eq!(cache.compare_and_set("a".to_owned(), Some(&[0; 500]), vec![1; 1023], HOUR), Ok(true));
        assert!(cache.compare_and_set("b".to_owned(), None, vec![1], HOUR).is_err());
    }

    /// The calls of a release run on several threads.
    #[test]
    fn exchanges_of_several_calls_lose_nothing() {
        const CALLS: u32 = 8;
        const EACH: u32 = 500;
        let cache = cache();
        let add = || loop {
            let present = cache.get("n");
            let number = present.as_deref().map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
            let next = (number + 1).to_le_bytes().to_vec();
            if cache.compare_and_set("n".to_owned(), present.as_deref(), next, HOUR).unwrap() {
                return;
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..CALLS {
                scope.spawn(|| (0..EACH).for_each(|_| add()));
            }
        });
        assert_eq!(cache.get("n"), Some((CALLS * EACH).to_le_bytes().to_vec()));
    }
}
