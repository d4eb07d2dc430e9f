//! The machine code of the last few components, in memory, where no other process can change it: it
//! needs no authentication.

use std::{collections::VecDeque, sync::Arc};

use super::{CompileCost, CompileLimits};
use crate::CompiledComponent;

/// The maximum number of entries: the active components of a few slots and their predecessors.
const ENTRIES_MAX: usize = 16;
/// Total bytes. A component whose machine code exceeds the limit is not cached; a provider of
/// 300 KiB has about 1 MiB.
const BYTES_MAX: usize = 64 << 20;

/// Identifies machine code: the component and the compatible engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) digest: [u8; 32],
    pub(super) compatibility: u64,
}

struct Entry {
    key: Key,
    code: Arc<CompiledComponent>,
    /// Bytes of machine code, read once before the component is shared: reading the size takes a
    /// lock that is held during a load.
    size: usize,
    cost: Option<CompileCost>,
}

/// Evicts the least recently used entry first.
#[derive(Default)]
pub(super) struct Cache {
    /// Most recently used last.
    entries: VecDeque<Entry>,
}

impl Cache {
    /// The machine code, if its compilation was within `limits`: a lowered limit also applies to
    /// earlier compilations.
    pub(super) fn get(
        &mut self,
        key: &Key,
        limits: CompileLimits,
    ) -> Option<(Arc<CompiledComponent>, Option<CompileCost>)> {
        let at = self.entries.iter().position(|entry| entry.key == *key)?;
        let entry = self.entries.remove(at)?;
        let found = (Arc::clone(&entry.code), entry.cost);
        self.entries.push_back(entry);
        let affordable = found.1.is_none_or(|cost| cost.is_within(limits));
        affordable.then_some(found)
    }

    pub(super) fn put(&mut self, key: Key, code: Arc<CompiledComponent>, cost: Option<CompileCost>) {
        self.entries.retain(|entry| entry.key != key);
        let size = code.size();
        if size > BYTES_MAX {
            return;
        }
        self.entries.push_back(Entry { key, code, size, cost });
        while self.entries.len() > ENTRIES_MAX || self.bytes() > BYTES_MAX {
            self.entries.pop_front();
        }
    }

    fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.size).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::{BYTES_MAX, Cache, CompileCost, CompileLimits, ENTRIES_MAX, Key};
    use crate::CompiledComponent;

    const LIMITS: CompileLimits =
        CompileLimits { component_bytes: 1 << 20, time: Duration::from_secs(1), memory_bytes: 1 << 20 };

    fn key(n: u8) -> Key {
        Key { digest: [n; 32], compatibility: 7 }
    }

    fn put(cache: &mut Cache, n: u8, len: usize) {
        let cost = CompileCost { cpu: Duration::from_millis(500), memory_bytes: 1 << 19 };
        cache.put(key(n), Arc::new(CompiledComponent::from_jail(vec![n; len])), Some(cost));
    }

    #[test]
    fn the_least_recently_used_code_is_evicted_first_and_the_number_is_bounded() {
        let mut cache = Cache::default();
        let entries = u8::try_from(ENTRIES_MAX).unwrap();
        for n in 0..entries {
            put(&mut cache, n, 10);
        }
        assert!(cache.get(&key(0), LIMITS).is_some());
        put(&mut cache, entries, 10);
        assert!(cache.get(&key(1), LIMITS).is_none(), "the least recently used");
        assert!(cache.get(&key(0), LIMITS).is_some());
        assert_eq!(cache.entries.len(), ENTRIES_MAX);
    }

    #[test]
    fn the_bytes_are_bounded_and_machine_code_that_is_too_large_is_not_cached() {
        let mut cache = Cache::default();
        put(&mut cache, 1, BYTES_MAX / 2);
        put(&mut cache, 2, BYTES_MAX / 2);
        put(&mut cache, 3, BYTES_MAX / 2);
        assert!(cache.get(&key(1), LIMITS).is_none());
        assert!(cache.get(&key(3), LIMITS).is_some());
        put(&mut cache, 4, BYTES_MAX + 1);
        assert!(cache.get(&key(4), LIMITS).is_none());
        assert!(cache.bytes() <= BYTES_MAX);
    }

    /// A load holds the lock of one component for as long as it takes.
    #[test]
    fn a_component_that_is_being_loaded_delays_no_other() {
        let mut cache = Cache::default();
        put(&mut cache, 1, 10);
        let (loading, _) = cache.get(&key(1), LIMITS).unwrap();
        let _held = loading.hold();
        let (sender, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            put(&mut cache, 2, 20);
            let found = cache.get(&key(2), LIMITS).is_some();
            sender.send((found, cache.bytes()))
        });
        let answer = done.recv_timeout(Duration::from_mins(1));
        assert_eq!(answer.expect("the cache waits for the lock of a component"), (true, 30));
    }

    #[test]
    fn code_of_another_engine_or_above_a_lowered_limit_is_not_used() {
        let mut cache = Cache::default();
        put(&mut cache, 1, 10);
        assert!(cache.get(&Key { compatibility: 8, ..key(1) }, LIMITS).is_none());
        let lowered = CompileLimits { time: Duration::from_millis(499), ..LIMITS };
        assert!(cache.get(&key(1), lowered).is_none());
        let lowered = CompileLimits { memory_bytes: 1000, ..LIMITS };
        assert!(cache.get(&key(1), lowered).is_none());
        assert!(cache.get(&key(1), LIMITS).is_some());
    }
}
