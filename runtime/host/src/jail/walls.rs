//! The walls that the kernel puts up around the child: Landlock against files, TCP and signals,
//! seccomp against every system call that compiling does not need. Each holds without the other
//! where it can; what the kernel does not have is said and not silently left out.
//!
//! Limits on time, memory and files are in `child`; they need nothing of the kernel that an old one
//! lacks.

use std::error::Error;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr as _, RulesetCreated, RulesetError,
    Scope,
};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod filter;

/// How the child's only line on standard error begins that is no reason for anything.
pub(super) const WITHOUT: &str = "compile jail: without ";

/// Puts up both walls around the calling thread and all that it starts. What could not be put up
/// comes back, with what that means.
///
/// Nothing may be opened, started or limited afterwards.
pub(super) fn put_up() -> Vec<String> {
    // Landlock first: its system calls are not among those that the filter allows.
    let landlock = landlock();
    let seccomp = seccomp();
    let covered = match (&landlock, &seccomp) {
        (Ok(()), Ok(())) => return Vec::new(),
        (Err(_), Ok(())) => "seccomp refuses the child files, sockets, processes and signals all the same",
        (Ok(()), Err(_)) => {
            "hostile input that takes the child over is kept from files, TCP and signals by Landlock, not from other sockets and from new processes"
        }
        (Err(_), Err(_)) => {
            "hostile input that takes the child over may do what these would refuse it and the manager's user may"
        }
    };
    let missing = [landlock.err(), seccomp.err()].into_iter().flatten();
    missing.chain([covered.to_owned()]).collect()
}

/// No file may be opened, run, made or changed, TCP is closed, and nobody outside can be sent a
/// signal. There is no exception: whatever the child reads is open already.
pub(super) fn landlock() -> Result<(), String> {
    /// The newest that the library knows. With no rule at all a newer one can only take away more.
    const NEWEST: ABI = ABI::V10;
    /// The first with everything that the sentence above promises: Linux 6.12.
    const WHOLE: ABI = ABI::V6;
    let restricted = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self)
        .map_err(|error: RulesetError| format!("Landlock ({})", chain(&error)))?;
    match restricted.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= WHOLE => Ok(()),
        LandlockStatus::Available { effective_abi, .. } => Err(format!(
            "all of Landlock (the kernel has its version {}, which keeps files{} but not signals; {} has all)",
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
    filter::apply().map_err(|error| format!("seccomp ({})", chain(&error)))
}

/// Which system calls compiling needs was found out for two architectures.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn seccomp() -> Result<(), String> {
    Err(format!("seccomp (there is no filter for {})", std::env::consts::ARCH))
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some errors repeat their cause.
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
