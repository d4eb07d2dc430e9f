//! The threads that compile: a component's functions are independent of each other, and an offer waits for all of them.

use std::thread;

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// Most threads of one child. Beyond these what is done by one of them alone takes the greater part, and the manager needs cores, too.
const MAX: usize = 4;
/// Stack of each: as much as the first thread of a process has, for what nests.
const STACK_BYTES: usize = 8 << 20;

/// How many: one for each core that this process may use. To be asked before the walls go up, because the limits of a container are in files.
pub(super) fn count() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX)
}

/// Memory that so many threads have for their stacks, in bytes. It is no part of what a component may use: that must not depend on the machine.
pub(super) fn stacks(count: usize) -> u64 {
    (count * STACK_BYTES) as u64
}

/// What those had that were started.
pub(super) fn stacks_of(pool: &ThreadPool) -> u64 {
    // One alone is the thread that was there, where no other could be started; where it is another, its stack is a small part of what a component may use.
    match pool.current_num_threads() {
        1 => 0,
        count => stacks(count),
    }
}

/// Starts them, behind the walls: a thread is confined by what held its parent when it was started. Where the system has no more of them (the limit on processes of a
/// container counts threads), this one compiles alone; to be called once.
pub(super) fn start(count: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    let pool = ThreadPoolBuilder::new().num_threads(count).stack_size(STACK_BYTES).build();
    pool.or_else(|_| ThreadPoolBuilder::new().num_threads(1).use_current_thread().build())
}
