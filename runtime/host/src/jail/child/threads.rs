//! The threads that compile: a component's functions can be compiled in parallel, which shortens
//! the time of an offer.

use std::{
    panic,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::jail::STACK_BYTES;

/// The maximum number of threads of one child. With more threads the sequential part dominates, and
/// the manager needs cores, too.
const MAX: usize = 4;

/// Number of threads: one for each core that this process may use. Call it before the process is
/// confined, because it reads the container's limits from files.
pub(super) fn count() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX)
}

/// Memory of the stacks of `count` threads, in bytes. It does not count against the component's
/// limit, which must not depend on the machine.
pub(super) fn stacks(count: usize) -> u64 {
    (count * STACK_BYTES) as u64
}

/// Starts the threads; call it once, after the process is confined, because a thread inherits the
/// confinement when it starts. If the system allows no more threads (the process limit of a
/// container counts threads), the calling thread compiles alone. Returns the memory of their
/// stacks, in bytes.
pub(super) fn start(count: usize) -> Result<(ThreadPool, u64), ThreadPoolBuildError> {
    let pool = ThreadPoolBuilder::new().num_threads(count).stack_size(STACK_BYTES).build();
    pool.map(|pool| (pool, stacks(count)))
        .or_else(|_| Ok((ThreadPoolBuilder::new().num_threads(1).use_current_thread().build()?, 0)))
}

/// Runs `work` on a thread with [`STACK_BYTES`] of stack, whose overflow is reported: the size of
/// the main thread's stack depends on the starting process. Adds the size of the stack to `apart`.
/// If the system allows no more threads, the main thread runs `work`.
pub(super) fn on_a_stack_of_its_own<T: Send>(apart: &AtomicU64, work: impl Fn() -> T + Sync) -> T {
    let stack = stacks(1);
    apart.fetch_add(stack, Ordering::Relaxed);
    thread::scope(|scope| match thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, &work) {
        Ok(thread) => thread.join().unwrap_or_else(|payload| panic::resume_unwind(payload)),
        Err(_) => {
            apart.fetch_sub(stack, Ordering::Relaxed);
            work()
        }
    })
}
