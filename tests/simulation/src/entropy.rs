//! The source of all chance in the process: the seed.
//!
//! Hash maps of the standard library, the branches of `tokio::select!` and the jitter of back-offs
//! take their seeds from the operating system. Here they get them from the simulation's seed, so
//! that a run repeats itself exactly.
#![expect(unsafe_code, reason = "to stand in for the C library's function is to export its symbol")]

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering},
};

/// The seed; zero asks the operating system.
static SEED: AtomicU64 = AtomicU64::new(0);

thread_local!(static SOURCE: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) });

/// From now on whatever asks for entropy gets it from this seed. Called once, before anything asks.
pub fn fix(seed: u64) {
    // Zero stands for none.
    SEED.store(seed.wrapping_add(1).max(1), Ordering::SeqCst);
    fastrand::seed(seed);
}

/// Stands in for the C library's function of that name, which the standard library and `getrandom`
/// call.
///
/// # Safety
/// As that one: `buffer` has to be valid for writes of `length` bytes.
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
