//! The threads that compile: a component's functions are independent of each other, and an offer
//! waits for all of them.

use std::{
    panic,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::jail::STACK_BYTES;

/// Most threads of one child. Beyond these what is done by one of them alone takes the greater
/// part, and the manager needs cores, too.
const MAX: usize = 4;

/// How many: one for each core that this process may use. To be asked before the walls go up,
/// because the limits of a container are in files.
pub(super) fn count() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX)
}

/// Memory that so many threads have for their stacks, in bytes. It is no part of what a component
/// may use: that must not depend on the machine.
pub(super) fn stacks(count: usize) -> u64 {
    (count * STACK_BYTES) as u64
}

/// Starts them, behind the walls: a thread is confined by what held its parent when it was started.
/// Where the system has no more of them (the limit on processes of a container counts threads),
/// this one compiles alone; to be called once. Tells what their stacks have, in bytes.
pub(super) fn start(count: usize) -> Result<(ThreadPool, u64), ThreadPoolBuildError> {
    let pool = ThreadPoolBuilder::new().num_threads(count).stack_size(STACK_BYTES).build();
    pool.map(|pool| (pool, stacks(count)))
        .or_else(|_| Ok((ThreadPoolBuilder::new().num_threads(1).use_current_thread().build()?, 0)))
}

/// Runs it on a thread whose stack is as large as all others, and whose end is reported: the main
/// thread's is as large as the starting process process has it. What the stack has is added to
/// `apart`. Where the system has no more threads, the first one does it.
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
