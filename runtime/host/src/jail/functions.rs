//! Machine code of single functions: a release is compiled as far as it differs from the one that was compiled before it.
//!
//! What a release has in common with its predecessor is most of it: the standard library, the SDK, whatever nobody touched. The compiler knows a function by the SHA-256 of
//! all that its machine code is made of, and takes the code of one that it knows: the very code that it would make, byte by byte (`tests/it`). What the functions are
//! is wasmtime's matter ([`wasmtime::Config::enable_incremental_compilation`]); here they are bytes under a key.
//!
//! # Why they may be believed
//! All that a child hands over is executed: hostile input that has taken over a child needs no detour by the functions. They are taken only together with machine code, are given
//! only to the next child of the same provider, and are gone with this process. So no vendor's bytes have a part in another's machine code. And they decide nothing: a child that fails with
//! them is followed by one without.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use wasmtime::CacheStore;

use super::Reuse;

/// Largest that are kept of one component, in bytes; of a larger one none are. They take a quarter more than its machine code.
pub(super) const BYTES_MAX: u64 = 32 << 20;
/// How many functions there are, and how many of them were not compiled.
const HEAD_BYTES: usize = 8;
const LENGTH_BYTES: usize = 4;

type Key = [u8; 32];

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
    places: HashMap<Key, Range<usize>>,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    reused: BTreeSet<Key>,
    made: BTreeMap<Key, Vec<u8>>,
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
            let (length, rest) = rest.split_first_chunk().ok_or_else(broken)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).map_err(io::Error::other)?;
            if length > rest.len() {
                return Err(broken());
            }
            at += key.len() + LENGTH_BYTES;
            places.insert(*key, at..at + length);
            at += length;
        }
        Ok(Self { before, places, now: Mutex::default() })
    }

    /// All functions of the component that was compiled; none where they would be too large.
    pub(super) fn written(&self) -> Vec<u8> {
        let now = self.now();
        let made = now.made.iter().map(|(key, code)| (key, code.as_slice()));
        let reused = now.reused.iter().filter_map(|key| Some((key, self.known(key)?)));
        let mut out = Vec::new();
        out.extend(now.asked.to_le_bytes());
        out.extend(now.found.to_le_bytes());
        for (key, code) in reused.chain(made) {
            let Ok(length) = u32::try_from(code.len()) else { continue };
            out.extend(key);
            out.extend(length.to_le_bytes());
            out.extend(code);
        }
        if out.len() as u64 > BYTES_MAX {
            out.truncate(HEAD_BYTES);
        }
        out
    }

    fn known(&self, key: &Key) -> Option<&[u8]> {
        self.before.get(self.places.get(key)?.clone())
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheStore for Functions {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let mut now = self.now();
        now.asked += 1;
        let key = key.try_into().ok()?;
        if let Some(code) = self.known(&key) {
            now.found += 1;
            now.reused.insert(key);
            return Some(Cow::Borrowed(code));
        }
        // Components have the same function several times.
        now.made.get(&key).cloned().map(Cow::Owned)
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        let Ok(key) = key.try_into() else { return false };
        self.now().made.insert(key, value);
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
    use wasmtime::CacheStore as _;

    use super::{BYTES_MAX, Functions, HEAD_BYTES, Reuse, reuse};

    fn key(n: u8) -> [u8; 32] {
        [n; 32]
    }

    fn with(functions: &[(u8, &[u8])]) -> Vec<u8> {
        let new = Functions::read(Vec::new()).unwrap();
        for (n, code) in functions {
            assert!(new.insert(&key(*n), code.to_vec()));
        }
        new.written()
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
        long[HEAD_BYTES + 32..HEAD_BYTES + 36].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Functions::read(long).is_err());
    }

    #[test]
    fn functions_that_are_too_large_are_not_kept() {
        let large = vec![0; usize::try_from(BYTES_MAX).unwrap()];
        let written = with(&[(1, &large)]);
        assert_eq!((written.len(), reuse(&written)), (HEAD_BYTES, Some(Reuse { functions: 0, of: 0 })));
        assert!(Functions::read(written).unwrap().places.is_empty());
    }
}
