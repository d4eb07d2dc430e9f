//! Settings of the C library's allocator, where it is glibc's; others do by themselves what is
//! asked for here.

/// From this size on a buffer is memory of its own, in bytes: a component, its machine code, a
/// cluster's list of nodes.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 256 << 10;

/// Gives large buffers back to the system as soon as they are freed. To be called at the start of a
/// program.
///
/// By default glibc raises the size from which it does so to the largest that it has seen freed,
/// and keeps the rest among small ones that live on: with each release that is exchanged a manager
/// would be some KiB larger.
pub fn give_back_large_buffers() {
    #[cfg(target_env = "gnu")]
    set(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
}

#[cfg(target_env = "gnu")]
fn set(parameter: libc::c_int, value: libc::c_int) {
    #[expect(unsafe_code, reason = "the allocator's settings are a function of C")]
    // SAFETY: changes a setting of the allocator and touches no memory of this program. Where it is
    // refused the allocator does as it did.
    unsafe {
        libc::mallopt(parameter, value);
    }
}
