//! Whose fault a failure is: the release's, the machine's, the cloud's or the operator's.
//!
//! This module decides it for calls, and `fault` in `skysail-host` for components that are refused
//! before they serve. Nothing else decides it.
//!
//! # Rule
//! - Only a fault of the release counts in probation and for a canary, and only it quarantines a
//!   digest. A fault of the operator refuses an offer until the settings change.
//! - A call in which the cloud failed a request (no answer, an answer whose head exceeds the
//!   limits, 408, 429, 5xx), or the issuer of its credential did, is the cloud's fault, and a call
//!   in which a request was denied (by the operator's rules or credentials, by the issuer of a
//!   credential, or with 401 or 403) is the operator's fault, whatever the guest returns.
//!   The price: a trial does not find a bug that shows only in such calls, for example a trap after
//!   a status of 500 that the release itself provoked. Log, metrics and `skysail status` show it.
//! - A missed deadline is the release's fault only where the guest used CPU time for at least half
//!   of the deadline. A guest that waited for the cloud, or that the machine gave no CPU time, is
//!   not to blame.
//! - An offer that failed because of the machine or the cloud is offered again; see
//!   [`Fault::is_lasting`].

use skysail_provider::{Code, Limit};

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
    pub const fn is_lasting(self) -> bool {
        match self {
            Self::Release | Self::Operator => true,
            Self::Machine | Self::Cloud => false,
        }
    }
}

/// What the host saw of a call beside the outcome. The default is a call that the host did not
/// watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallObservation {
    /// The cloud, or the issuer of a credential, did not answer a request, or answered it with 408,
    /// 429, 5xx or too many or too long headers.
    pub cloud_failed: bool,
    /// The operator's rules or credentials did not allow a request, the issuer of a credential
    /// refused the login, or the cloud answered a request with 401 or 403.
    pub denied: bool,
    /// For at least half of the call a request was under way.
    pub waited_for_cloud: bool,
    /// The guest used CPU time for at least half of the deadline.
    pub computed: bool,
}

/// The fault of a failed call; none where the failure needs no action.
pub const fn of_call(code: Code, limit: Option<Limit>, seen: CallObservation) -> Option<Fault> {
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

#[cfg(test)]
mod tests {
    use skysail_provider::{Code, Limit};

    use super::{CallObservation, Fault, of_call};

    const UNWATCHED: CallObservation =
        CallObservation { cloud_failed: false, denied: false, waited_for_cloud: false, computed: false };
    const COMPUTED: CallObservation = CallObservation { computed: true, ..UNWATCHED };

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
            (CallObservation { cloud_failed: true, ..COMPUTED }, Fault::Cloud),
            (CallObservation { denied: true, ..COMPUTED }, Fault::Operator),
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
        assert_eq!(of_deadline(CallObservation { waited_for_cloud: true, ..UNWATCHED }), Some(Fault::Cloud));
        assert_eq!(of_deadline(UNWATCHED), Some(Fault::Machine), "the guest had no CPU time");
    }
}
