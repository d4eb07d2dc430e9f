//! Simulates an old kernel for a program: with a seccomp filter that hides Landlock, or Landlock
//! and seccomp.
//!
//! usage: `old-kernel landlock|both PROGRAM`

use std::{collections::BTreeMap, env, error::Error, os::unix::process::CommandExt as _, process::Command};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

fn main() -> Result<(), Box<dyn Error>> {
    let (lacks, program) = (env::args().nth(1), env::args_os().nth(2));
    let lacks = match lacks.as_deref() {
        Some("landlock") => vec![libc::SYS_landlock_create_ruleset],
        Some("both") => vec![libc::SYS_landlock_create_ruleset, libc::SYS_seccomp],
        _ => return Err("usage: old-kernel landlock|both PROGRAM".into()),
    };
    let rules: BTreeMap<_, _> = lacks.into_iter().map(|call| (call, Vec::new())).collect();
    let without = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, without, env::consts::ARCH.try_into()?)?;
    let filter: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&filter)?;
    Err(Command::new(program.ok_or("PROGRAM is missing; usage: old-kernel landlock|both PROGRAM")?).exec().into())
}
