//! Whose fault a failure is: the release's, the machine's, the cloud's or the operator's. This
//! module is the only place that decides it.
//!
//! # Rule
//! - Only a fault of the release counts in probation and for a canary, and only it quarantines a
//!   digest.
//! - A call in which the cloud failed a request (no answer, 408, 429, 5xx) is the cloud's fault,
//!   and a call in which a request was denied (by the operator's rules or credentials, or with 401
//!   or 403) is the operator's fault, whatever the guest returns.
//! - A missed deadline is the release's fault only where the guest used CPU time for at least half
//!   of the deadline. A guest that waited for the cloud, or that the machine gave no CPU time, is
//!   not to blame.
//! - An offer that failed because of the machine or the cloud is offered again; see
//!   [`Fault::is_lasting`].

use std::io;

use skysail_provider::{Code, Limit};

use crate::{ReleaseError, jail::CompileError};

/// Who has to act on a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The author: the component is wrong.
    Release,
    /// The host: no memory, no CPU time, no place, no compile jail.
    Machine,
    /// The cloud or the way to it.
    Cloud,
    /// The operator or a user of the cluster: an object, a setting, a credential or a permission.
    Operator,
}

impl Fault {
    /// Whether the same bytes with the same settings will fail again.
    pub(crate) const fn is_lasting(self) -> bool {
        match self {
            Self::Release | Self::Operator => true,
            Self::Machine | Self::Cloud => false,
        }
    }
}

/// What the host saw of a call beside the outcome. The default is a call that the host did not
/// watch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The cloud did not answer a request, or answered it with 408, 429 or 5xx.
    pub(crate) cloud_failed: bool,
    /// The operator's rules or credentials did not allow a request, or the cloud answered it with
    /// 401 or 403.
    pub(crate) denied: bool,
    /// For at least half of the call a request was under way.
    pub(crate) waited_for_cloud: bool,
    /// The guest used CPU time for at least half of the deadline.
    pub(crate) computed: bool,
}

/// Of a call that failed; none where nobody has to act.
pub(crate) const fn of_call(code: Code, limit: Option<Limit>, seen: Seen) -> Option<Fault> {
    Some(match (code, limit) {
        (Code::NotFound | Code::ImplementedElsewhere | Code::RetryAfter | Code::NotLeading, _) => return None,
        (Code::Unsupported | Code::Invalid | Code::Denied | Code::NotServing, _) => Fault::Operator,
        (Code::Exhausted | Code::Unavailable, _) => Fault::Cloud,
        (Code::LimitExceeded, Some(Limit::ConcurrentCalls)) => Fault::Machine,
        (Code::LimitExceeded, Some(Limit::HttpRate)) => Fault::Operator,
        (Code::Internal | Code::Trapped | Code::LimitExceeded | Code::DeadlineExceeded, _) => {
            if seen.cloud_failed {
                Fault::Cloud
            } else if seen.denied {
                Fault::Operator
            } else if !matches!(code, Code::DeadlineExceeded) || seen.computed {
                Fault::Release
            } else if seen.waited_for_cloud {
                Fault::Cloud
            } else {
                Fault::Machine
            }
        }
    })
}

/// Of an answer that differs from the predecessor's, which answered the same question before and
/// after: what lasts is the release's.
pub(crate) const fn of_compared(code: Code, limit: Option<Limit>) -> Option<Fault> {
    match code {
        Code::NotFound | Code::ImplementedElsewhere | Code::Unsupported | Code::Invalid | Code::Denied => {
            Some(Fault::Release)
        }
        _ => of_call(code, limit, UNWATCHED),
    }
}

const UNWATCHED: Seen = Seen { cloud_failed: false, denied: false, waited_for_cloud: false, computed: false };

/// Of a component that was not compiled.
pub(crate) const fn of_compilation(error: &CompileError) -> Fault {
    if error.is_of_the_component() { Fault::Release } else { Fault::Machine }
}

/// Of a component that was compiled and not linked.
pub(crate) const fn of_linking(error: &ReleaseError) -> Fault {
    match error {
        // The machine code comes from this process: what fails is mmap or memfd.
        ReleaseError::Load(_) => Fault::Machine,
        ReleaseError::Precompiled
        | ReleaseError::Compile(_)
        | ReleaseError::Memories { .. }
        | ReleaseError::Tables { .. }
        | ReleaseError::MemoryBytes { .. }
        | ReleaseError::TableElements { .. }
        | ReleaseError::ImportsModules
        | ReleaseError::Link(_)
        | ReleaseError::NoIdentity
        | ReleaseError::Export { .. } => Fault::Release,
    }
}

/// Whether a guest did not run because of the operating system: mmap, for example, had no memory.
/// No function of a guest fails like this.
pub(crate) fn is_of_the_machine(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| cause.is::<io::Error>() || cause.is::<rustix::io::Errno>())
}

#[cfg(test)]
mod tests {
    use std::io;

    use skysail_provider::{Code, Limit};

    use super::{Fault, Seen, UNWATCHED, is_of_the_machine, of_call, of_linking};
    use crate::ReleaseError;

    const COMPUTED: Seen = Seen { computed: true, ..UNWATCHED };

    #[test]
    fn only_a_bug_a_trap_or_a_limit_of_the_guest_is_the_releases_fault() {
        let of_release = |code: &Code| of_call(*code, None, UNWATCHED) == Some(Fault::Release);
        let codes: Vec<_> = Code::ALL.into_iter().filter(of_release).collect();
        assert_eq!(codes, [Code::Internal, Code::Trapped, Code::LimitExceeded]);
        for limit in Limit::ALL {
            let fault = of_call(Code::LimitExceeded, Some(limit), UNWATCHED);
            let of_release = !matches!(limit, Limit::ConcurrentCalls | Limit::HttpRate);
            assert_eq!(fault == Some(Fault::Release), of_release, "{limit:?}");
        }
    }

    #[test]
    fn nothing_that_a_guest_makes_of_a_failing_cloud_is_the_releases_fault() {
        for (seen, fault) in [
            (Seen { cloud_failed: true, ..COMPUTED }, Fault::Cloud),
            (Seen { denied: true, ..COMPUTED }, Fault::Operator),
        ] {
            for code in [Code::Internal, Code::Trapped, Code::LimitExceeded, Code::DeadlineExceeded] {
                assert_eq!(of_call(code, None, seen), Some(fault), "{code:?}");
            }
        }
    }

    #[test]
    fn a_missed_deadline_is_the_releases_fault_only_where_the_guest_computed() {
        let of_deadline = |seen| of_call(Code::DeadlineExceeded, None, seen);
        assert_eq!(of_deadline(COMPUTED), Some(Fault::Release));
        assert_eq!(of_deadline(Seen { waited_for_cloud: true, ..UNWATCHED }), Some(Fault::Cloud));
        assert_eq!(of_deadline(UNWATCHED), Some(Fault::Machine), "the guest had no CPU time");
    }

    #[test]
    fn a_component_that_the_machine_cannot_map_is_the_machines_fault() {
        let no_memory = wasmtime::Error::new(io::Error::from(io::ErrorKind::OutOfMemory));
        assert!(is_of_the_machine(&no_memory.context("cannot map the memory")));
        assert!(!is_of_the_machine(&wasmtime::Error::new(wasmtime::Trap::MemoryOutOfBounds)));
        let no_memory = wasmtime::Error::new(rustix::io::Errno::NOMEM);
        assert_eq!(of_linking(&ReleaseError::Load(no_memory)), Fault::Machine);
        assert_eq!(of_linking(&ReleaseError::NoIdentity), Fault::Release);
    }
}
