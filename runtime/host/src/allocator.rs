//! Settings of glibc's allocator; the allocators of other C libraries need none.

/// Buffers of at least this many bytes get their own memory mapping: a component, its machine code,
/// a cluster's list of nodes, a request with all backends of a load balancer.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 64 << 10;

/// Makes the allocator hold little free memory. Call it at the start of a program.
///
/// - Large buffers return to the system as soon as they are freed. By default glibc raises the
///   threshold to the largest buffer that was freed, and then keeps freed buffers in its heap: a
///   manager would grow by some KiB with each swap.
/// - There are as many heaps as cores. By default glibc makes up to eight for each core, and the
///   threads that read files hold free memory in heaps of their own.
pub fn hold_little_free_memory() {
    #[cfg(target_env = "gnu")]
    {
        set(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        set(libc::M_ARENA_MAX, libc::c_int::try_from(cores).unwrap_or(libc::c_int::MAX));
    }
}

/// Returns the free memory of all threads' heaps to the system.
///
/// glibc returns only the free memory at the end of a heap by itself. After a burst of calls, free
/// memory lies between blocks that are still used, and each thread has a separate heap. With 2,000
/// nodes and 1,000 Services, 12 MiB of 30 MiB were free.
pub fn give_back_free_memory() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the allocator's functions are those of C")]
    // SAFETY: returns pages of free blocks, which no part of this program refers to. Other threads
    // wait for their heap meanwhile.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(target_env = "gnu")]
fn set(parameter: libc::c_int, value: libc::c_int) {
    #[expect(unsafe_code, reason = "the allocator's settings are a function of C")]
    // SAFETY: changes a setting of the allocator and touches no memory of this program. If the call
    // fails, the default stays.
    unsafe {
        libc::mallopt(parameter, value);
    }
}

#[cfg(test)]
mod tests {
    /// Resident memory of this process.
    #[cfg(target_env = "gnu")]
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn free_memory_between_used_blocks_goes_back_to_the_system() {
        let mut blocks: Vec<Vec<u8>> = (0..16_384).map(|_| vec![1; 4_000]).collect();
        let mut place = 0;
        // Each sixteenth block stays, so that no end of the heap is free.
        blocks.retain(|_| {
            place += 1;
            place % 16 == 0
        });
        let before = resident_kib();
        super::give_back_free_memory();
        let after = resident_kib();
        assert_eq!(blocks.len(), 1_024);
        // 60 MiB are free; other tests use memory at the same time.
        assert!(after + (30 << 10) < before, "{before} KiB before, {after} KiB after");
    }
}
