//! Settings of glibc's allocator; the allocators of other C libraries need none.

/// Buffers of at least this many bytes get their own memory mapping: a component, its machine code,
/// a cluster's list of nodes.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 256 << 10;

/// Makes the allocator return large buffers to the system as soon as they are freed. Call it at the
/// start of a program.
///
/// By default glibc raises this threshold to the largest buffer that was freed, and then keeps
/// freed buffers in its heap: a manager would grow by some KiB with each swap.
pub fn give_back_large_buffers() {
    #[cfg(target_env = "gnu")]
    set(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
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
