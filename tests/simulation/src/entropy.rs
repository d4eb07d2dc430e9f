//! Makes the seed the source of all randomness in the process.
//!
//! Hash maps of the standard library, the branches of `tokio::select!` and the jitter of back-offs
//! take their seeds from the operating system. Here they receive them from the simulation's seed,
//! so that a run is reproducible.
#![expect(unsafe_code, reason = "to stand in for the C library's function is to export its symbol")]

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering},
};

/// The seed; zero means the operating system's entropy.
static SEED: AtomicU64 = AtomicU64::new(0);

thread_local!(static SOURCE: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) });

/// Derives all entropy from this seed. Call it once, before any code requests entropy.
pub fn fix(seed: u64) {
    // Zero means that no seed is set.
    SEED.store(seed.wrapping_add(1).max(1), Ordering::SeqCst);
    fastrand::seed(seed);
}

/// Replaces the C library's function of the same name, which the standard library and `getrandom`
/// call.
///
/// # Safety
/// `buffer` has to be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, flags: u32) -> isize {
    // SAFETY: the caller promises it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    let seed = SEED.load(Ordering::SeqCst);
    if seed == 0 {
        let flags = rustix::rand::GetRandomFlags::from_bits_retain(flags);
        return rustix::rand::getrandom(bytes, flags).map_or(-1, |written| isize::try_from(written).unwrap_or(-1));
    }
    SOURCE.with_borrow_mut(|source| source.get_or_insert_with(|| fastrand::Rng::with_seed(seed)).fill(bytes));
    isize::try_from(length).unwrap_or(-1)
}
