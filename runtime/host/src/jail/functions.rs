//! Machine code of single functions: a release is compiled as far as it differs from the one that was compiled before it.
//!
//! What a release has in common with its predecessor is most of it: the standard library, the SDK, whatever nobody touched. The compiler knows a function by the SHA-256 of
//! all that its machine code is made of, and takes the code of one that it knows: the very code that it would make, byte by byte (`tests/it`). What the functions are
//! is wasmtime's matter ([`wasmtime::Config::enable_incremental_compilation`]); here they are bytes under a key.
//!
//! # Why they may be believed
//! All that a child hands over is executed: hostile input that has taken over a child needs no detour by the functions. They are taken only together with machine code, are given
//! only to the next child of the same provider, and are dropped with a release that is refused or taken back and with its source ([`Compiler::forget`](super::Compiler::forget)), so that what
//! came of one that was not to be trusted ends with it. And they decide nothing: what they spared counts as if it had been spent, and a child that fails with them is followed by one without.
//!
//! # Caveats
//! - Machine code is kept by the digest of its component: two providers that have the same one share it, whichever of them had it compiled.
//! - Memory is what was used: a component whose functions are known may need less of it than at a first start.

use std::{
    borrow::Cow,
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use wasmtime::CacheStore;

use super::Reuse;

/// Largest that are kept of one component, in bytes; of a larger one none are. They take a quarter more than its machine code.
pub(super) const BYTES_MAX: u64 = 32 << 20;
/// How many functions there are, and how many of them were not compiled.
const HEAD_BYTES: usize = 8;
/// Of each function before its code: key, CPU microseconds that it took, length.
const RECORD_HEAD_BYTES: usize = 40;

type Key = [u8; 32];

thread_local! {
    /// CPU time of this thread when it was told that a function is not known: what follows is its compilation, up to where its code is handed over.
    static BEGUN: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// What the last compilation of one provider left: in the manager, which does not look into it.
#[derive(Default)]
pub(super) struct Kept(Mutex<Bytes>);

impl Kept {
    /// Empty where there are none.
    pub(super) fn get(&self) -> Bytes {
        self.bytes().clone()
    }

    pub(super) fn put(&self, functions: Bytes) {
        *self.bytes() = functions;
    }

    fn bytes(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a child says of the functions that it hands over; none where it is too short to say anything.
pub(super) fn reuse(functions: &[u8]) -> Option<Reuse> {
    let (of, rest) = functions.split_first_chunk()?;
    let (reused, _) = rest.split_first_chunk()?;
    Some(Reuse { functions: u32::from_le_bytes(*reused), of: u32::from_le_bytes(*of) })
}

/// In a child: those of the last compilation, and those of this one.
pub(super) struct Functions {
    before: Vec<u8>,
    places: HashMap<Key, Place>,
    now: Mutex<Now>,
}

/// Where the code of a function is, and the CPU microseconds that it took.
struct Place {
    code: Range<usize>,
    micros: u32,
}

struct Made {
    code: Vec<u8>,
    micros: u32,
}

#[derive(Default)]
struct Now {
    reused: BTreeSet<Key>,
    made: BTreeMap<Key, Made>,
    /// What [`Functions::written`] would have, without its head.
    bytes: usize,
    /// CPU time that the reused ones took when they were made.
    spared: Duration,
    /// Once for each function.
    asked: u32,
    /// Of these, how often it was there from before.
    found: u32,
}

impl Functions {
    /// `before` is what [`Self::written`] has made in an earlier child, or nothing.
    pub(super) fn read(before: Vec<u8>) -> io::Result<Self> {
        let broken =
            || io::Error::other("the functions of the last compilation are not what a compile jail has written");
        let mut places = HashMap::new();
        let mut at = HEAD_BYTES;
        while at < before.len() {
            let (key, rest) = before.get(at..).and_then(<[u8]>::split_first_chunk).ok_or_else(broken)?;
            let (micros, rest) = rest.split_first_chunk().ok_or_else(broken)?;
            let (length, rest) = rest.split_first_chunk().ok_or_else(broken)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).map_err(io::Error::other)?;
            if length > rest.len() {
                return Err(broken());
            }
            let code = at + RECORD_HEAD_BYTES;
            at = code + length;
            places.insert(*key, Place { code: code..at, micros: u32::from_le_bytes(*micros) });
        }
        Ok(Self { before, places, now: Mutex::default() })
    }

    /// All functions of the component that was compiled; none where they would be too large.
    pub(super) fn written(&self) -> Vec<u8> {
        let now = self.now();
        let reused = now.reused.iter().filter_map(|key| {
            let place = self.places.get(key)?;
            Some((key, place.micros, self.before.get(place.code.clone())?))
        });
        let made = now.made.iter().map(|(key, made)| (key, made.micros, made.code.as_slice()));
        let kept_bytes = if now.is_too_much() { 0 } else { now.bytes };
        let mut out = Vec::with_capacity(HEAD_BYTES + kept_bytes);
        out.extend(now.asked.to_le_bytes());
        out.extend(now.found.to_le_bytes());
        if kept_bytes == 0 {
            return out;
        }
        for (key, micros, code) in reused.chain(made) {
            let Ok(length) = u32::try_from(code.len()) else { continue };
            out.extend(key);
            out.extend(micros.to_le_bytes());
            out.extend(length.to_le_bytes());
            out.extend(code);
        }
        out
    }

    /// CPU time that was not spent, because functions were there.
    pub(super) fn spared(&self) -> Duration {
        self.now().spared
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    /// Then nothing more is kept.
    const fn is_too_much(&self) -> bool {
        self.bytes as u64 + HEAD_BYTES as u64 > BYTES_MAX
    }

    fn keep(&mut self, code_bytes: usize) {
        self.bytes = self.bytes.saturating_add(RECORD_HEAD_BYTES + code_bytes);
        if self.is_too_much() {
            self.made.clear();
        }
    }
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    reading(ClockId::ThreadCPUTime)
}

/// What a clock of CPU time says.
pub(super) fn reading(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

impl CacheStore for Functions {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let mut now = self.now();
        now.asked += 1;
        let key = key.try_into().ok()?;
        if let Some(place) = self.places.get(&key)
            && let Some(code) = self.before.get(place.code.clone())
        {
            now.found += 1;
            if now.reused.insert(key) {
                now.spared += Duration::from_micros(place.micros.into());
                now.keep(code.len());
            }
            return Some(Cow::Borrowed(code));
        }
        // Components have the same function several times.
        let made = now.made.get(&key).map(|made| Cow::Owned(made.code.clone()));
        if made.is_none() {
            BEGUN.set(Some(thread_time()));
        }
        made
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        let took = BEGUN.take().map_or(Duration::ZERO, |begun| thread_time().saturating_sub(begun));
        let mut now = self.now();
        let Ok(key) = key.try_into() else { return false };
        if now.is_too_much() || now.made.contains_key(&key) {
            return false;
        }
        let bytes = value.len();
        now.made.insert(key, Made { code: value, micros: u32::try_from(took.as_micros()).unwrap_or(u32::MAX) });
        now.keep(bytes);
        true
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Functions").field("before", &self.places.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wasmtime::CacheStore as _;

    use super::{BYTES_MAX, Functions, HEAD_BYTES, Reuse, reuse, thread_time};

    fn key(n: u8) -> [u8; 32] {
        [n; 32]
    }

    fn with(functions: &[(u8, &[u8])]) -> Vec<u8> {
        let new = Functions::read(Vec::new()).unwrap();
        for (n, code) in functions {
            assert_eq!(new.get(&key(*n)), None);
            assert!(new.insert(&key(*n), code.to_vec()));
        }
        let written = new.written();
        assert!(written.len() == written.capacity(), "it takes no more memory than it has to");
        written
    }

    #[test]
    fn what_is_asked_for_again_goes_on_and_what_is_not_goes() {
        let next = Functions::read(with(&[(1, b"one"), (2, b""), (3, b"three")])).unwrap();
        assert_eq!(next.get(&key(1)).as_deref(), Some(b"one".as_slice()));
        assert_eq!(next.get(&key(2)).as_deref(), Some(b"".as_slice()));
        assert_eq!(next.get(&key(4)), None);
        assert!(next.insert(&key(4), b"four".to_vec()));
        assert_eq!(next.get(&key(4)).as_deref(), Some(b"four".as_slice()), "twice in one component");
        let written = next.written();
        assert_eq!(reuse(&written), Some(Reuse { functions: 2, of: 4 }));
        let third = Functions::read(written).unwrap();
        let known: Vec<_> = (1..=4).filter(|n| third.get(&key(*n)).is_some()).collect();
        assert_eq!(known, [1, 2, 4]);
    }

    #[test]
    fn what_is_cut_off_anywhere_is_an_error_or_fewer_functions() {
        let whole = with(&[(1, b"one"), (2, b"two")]);
        for length in 0..whole.len() {
            let cut = Functions::read(whole[..length].to_vec());
            let record = (whole.len() - HEAD_BYTES) / 2;
            match length {
                0..=HEAD_BYTES => assert!(cut.unwrap().places.is_empty()),
                _ if length == HEAD_BYTES + record => assert_eq!(cut.unwrap().places.len(), 1),
                _ => assert!(cut.is_err(), "{length}"),
            }
        }
        assert_eq!(reuse(&whole[..HEAD_BYTES - 1]), None);
        let mut long = whole;
        long[HEAD_BYTES + 36..HEAD_BYTES + 40].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Functions::read(long).is_err());
    }

    #[test]
    fn functions_that_are_too_large_are_not_kept_and_take_no_memory() {
        let half = vec![0; usize::try_from(BYTES_MAX / 2).unwrap()];
        let functions = Functions::read(Vec::new()).unwrap();
        assert!(functions.insert(&key(1), half.clone()));
        assert!(functions.insert(&key(2), half));
        assert!(functions.now().made.is_empty());
        assert!(!functions.insert(&key(3), Vec::new()), "nothing more is kept");
        let written = functions.written();
        assert_eq!((written.len(), reuse(&written)), (HEAD_BYTES, Some(Reuse { functions: 0, of: 0 })));
        assert!(Functions::read(written).unwrap().places.is_empty());
    }

    #[test]
    fn what_was_spared_is_what_was_spent_on_it_once() {
        let first = Functions::read(Vec::new()).unwrap();
        assert_eq!(first.get(&key(1)), None);
        let begun = thread_time();
        while thread_time() - begun < Duration::from_millis(5) {}
        assert!(first.insert(&key(1), b"one".to_vec()));
        assert_eq!(first.spared(), Duration::ZERO);
        let second = Functions::read(first.written()).unwrap();
        assert!(second.get(&key(1)).is_some());
        let spared = second.spared();
        assert!(spared >= Duration::from_millis(5), "{spared:?}");
        assert!(second.get(&key(1)).is_some());
        assert_eq!(second.spared(), spared, "once, however often it is asked for");
        // And on it goes.
        let third = Functions::read(second.written()).unwrap();
        assert!(third.get(&key(1)).is_some());
        assert_eq!(third.spared(), spared);
    }
}
