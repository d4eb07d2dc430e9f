//! The seccomp filter: the system calls that a compiler in a process of its own needs, and no
//! other.
//!
//! It is a list of what is allowed, because the kernel grows new calls each year. The list holds
//! what glibc and musl do for memory, threads, locks, time, chance and an end by a signal. Nothing
//! in it takes a path, makes a descriptor or reaches another process.
//!
//! Everything else fails with `ENOSYS`, as on a kernel that does not have the call: that is the one
//! error for which a C library has a second way. `clone3`, whose flags a filter cannot see, becomes
//! `clone`, whose flags it can. A program for another architecture of the same processor (32-bit
//! calls) is killed by the filter; x32 is refused like anything unknown.

use std::{collections::BTreeMap, process};

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction,
    SeccompCmpArgLen::Dword,
    SeccompCmpArgLen::Qword,
    SeccompCmpOp::{Eq, MaskedEq},
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// Allowed whatever their arguments are.
const ALLOWED: [c_long; 26] = [
    // The pipes, and the process's own sizes.
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    // Memory; the two calls that can make it executable are below.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // The threads: the watch's, and those that compile; starting one is below.
    libc::SYS_futex,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    // Time where the vDSO has none, and CPU time always.
    libc::SYS_clock_gettime,
    // The seeds of hash maps.
    libc::SYS_getrandom,
    // The handler that says that a stack has overflowed, and the end: `abort` below needs to know
    // who it is.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
];

/// Puts the filter around the calling thread and all that it starts.
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

/// Allowed with some arguments only.
fn conditional() -> Result<[(c_long, Vec<SeccompCondition>); 6], BackendError> {
    /// A new thread of this process, in no namespace of its own.
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
        // `abort` signals the thread that calls it: glibc by process and thread, musl by thread.
        // Elsewhere than on the first thread, musl's ends by a trap.
        (libc::SYS_tgkill, vec![SeccompCondition::new(0, Dword, Eq, this)?]),
        (libc::SYS_tkill, vec![SeccompCondition::new(0, Dword, Eq, this)?]),
        // Its own limits, to be read: how large a stack is.
        (libc::SYS_prlimit64, vec![SeccompCondition::new(0, Dword, Eq, 0)?, SeccompCondition::new(2, Qword, Eq, 0)?]),
    ])
}
