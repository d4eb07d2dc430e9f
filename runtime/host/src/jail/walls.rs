//! Confines the child: Landlock denies files, TCP and signals, seccomp denies every system call
//! that compiling does not need. Each works without the other; features that the kernel lacks are
//! reported.
//!
//! Limits on time, memory and files are in `child`; every supported kernel has them.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr as _, RulesetCreated, RulesetError,
    Scope,
};
use skysail_provider::text::with_causes;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod filter;

/// Prefix of the line on the child's standard error that reports missing kernel features and is no
/// error.
pub(super) const WITHOUT: &str = "compile jail: without ";

/// Confines the calling thread and all threads that it starts later. Returns the features that the
/// kernel lacks and the consequence.
///
/// Afterwards the process can open no file, start no process and change no limit.
pub(super) fn apply() -> Vec<String> {
    // Landlock first: its system calls are not among those that the filter allows.
    let landlock = landlock();
    let seccomp = seccomp();
    let covered = match (&landlock, &seccomp) {
        (Ok(()), Ok(())) => return Vec::new(),
        (Err(_), Ok(())) => "seccomp still denies the child files, sockets, processes and signals",
        (Ok(()), Err(_)) => {
            "hostile input that takes over the child is denied files, TCP and signals by Landlock, but not other sockets and new processes"
        }
        (Err(_), Err(_)) => "hostile input that takes over the child can do everything that the manager's user may do",
    };
    let missing = [landlock.err(), seccomp.err()].into_iter().flatten();
    missing.chain([covered.to_owned()]).collect()
}

/// Denies opening, running, creating and changing files, TCP, and signals to other processes,
/// without exceptions: all files that the child reads are already open.
pub(super) fn landlock() -> Result<(), String> {
    /// The newest ABI that the library knows. Without rules a newer ABI can only deny more.
    const NEWEST: ABI = ABI::V10;
    /// The first ABI with all the restrictions above: Linux 6.12.
    const WHOLE: ABI = ABI::V6;
    let restricted = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self)
        .map_err(|error: RulesetError| format!("Landlock ({})", with_causes(&error)))?;
    match restricted.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= WHOLE => Ok(()),
        LandlockStatus::Available { effective_abi, .. } => Err(format!(
            "full Landlock (the kernel has Landlock ABI {}, which restricts file access{} but not signals; use Linux 6.12 or newer, which has ABI {})",
            effective_abi as i32,
            if effective_abi >= ABI::V4 { " and TCP" } else { "" },
            WHOLE as i32,
        )),
        LandlockStatus::NotEnabled => {
            Err("Landlock (the kernel has it, but it is not enabled: lsm=landlock,…)".to_owned())
        }
        LandlockStatus::NotImplemented => {
            Err("Landlock (the kernel has none, or the container's seccomp profile refuses it)".to_owned())
        }
    }
}

/// See `filter`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn seccomp() -> Result<(), String> {
    filter::apply().map_err(|error| format!("seccomp ({})", with_causes(&error)))
}

/// The list of required system calls exists only for two architectures.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn seccomp() -> Result<(), String> {
    Err(format!("seccomp (there is no filter for {})", std::env::consts::ARCH))
}
