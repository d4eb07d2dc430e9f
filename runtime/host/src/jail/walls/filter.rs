//! The seccomp filter: allows only the system calls that the compiling process needs.
//!
//! It is an allowlist, because the kernel gets new system calls each year. The list contains the
//! calls of glibc and musl for memory, threads, locks, time, random numbers and termination by a
//! signal. None of them takes a path, creates a file descriptor or affects another process.
//!
//! Every other call fails with `ENOSYS`, as on a kernel without the call, because C libraries have
//! a fallback for this error: they replace `clone3`, whose flags a filter cannot read, by `clone`,
//! whose flags it can. A call of another architecture of the same processor (32-bit calls) kills
//! the process; x32 calls fail like unknown calls.

use std::{collections::BTreeMap, process};

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction,
    SeccompCmpArgLen::Dword,
    SeccompCmpArgLen::Qword,
    SeccompCmpOp::{Eq, MaskedEq},
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// System calls that are allowed with any arguments.
const ALLOWED: [c_long; 26] = [
    // The pipes and `/proc/self/status`.
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    // Memory; the two calls that can make memory executable are below.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads; the call that starts one is below.
    libc::SYS_futex,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    // Wall time if the vDSO does not have it, and CPU time.
    libc::SYS_clock_gettime,
    // The seeds of hash maps.
    libc::SYS_getrandom,
    // The handler of stack overflows, and termination: `abort` needs the process ID.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
];

/// Applies the filter to the calling thread and all threads that it starts later.
pub(super) fn apply() -> Result<(), Error> {
    let program: BpfProgram = filter().and_then(TryInto::try_into).map_err(Error::Backend)?;
    seccompiler::apply_filter(&program)
}

fn filter() -> Result<SeccompFilter, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refused = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.into_iter().map(|call| (call, Vec::new())).collect();
    for (call, conditions) in conditional()? {
        rules.insert(call, vec![SeccompRule::new(conditions)?]);
    }
    SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)
}

/// System calls that are allowed only with certain arguments.
fn conditional() -> Result<[(c_long, Vec<SeccompCondition>); 6], BackendError> {
    /// A new thread of this process, without a new namespace.
    const THREAD: u64 = libc::CLONE_THREAD.unsigned_abs() as u64;
    const NAMESPACES: u64 = (libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET)
        .unsigned_abs() as u64;
    const EXECUTABLE: u64 = libc::PROT_EXEC.unsigned_abs() as u64;
    let this = u64::from(process::id());
    let not_executable = || SeccompCondition::new(2, Dword, MaskedEq(EXECUTABLE), 0);
    Ok([
        (libc::SYS_mmap, vec![not_executable()?]),
        (libc::SYS_mprotect, vec![not_executable()?]),
        (libc::SYS_clone, vec![SeccompCondition::new(0, Dword, MaskedEq(THREAD | NAMESPACES), THREAD)?]),
        // `abort` signals the thread that calls it: glibc by process and thread, musl by thread. On
        // another thread than the main thread, musl's `abort` ends with a trap.
        (libc::SYS_tgkill, vec![SeccompCondition::new(0, Dword, Eq, this)?]),
        (libc::SYS_tkill, vec![SeccompCondition::new(0, Dword, Eq, this)?]),
        // Reads the process's own limits, such as the size of a stack.
        (libc::SYS_prlimit64, vec![SeccompCondition::new(0, Dword, Eq, 0)?, SeccompCondition::new(2, Qword, Eq, 0)?]),
    ])
}
