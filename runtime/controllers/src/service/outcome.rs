//! What the outcome of a step says about the load balancer (pure): the ledger entry after it.

use std::sync::Arc;

use skysail_provider::{Code, LoadBalancerStatus};

use super::plan::{Observed, Plan};
use crate::ledger::{Backends, Entry, NextTry, Serving, State, Written};

/// What happened while a plan was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlanOutcome {
    /// The calls of the provider begin.
    Begun,
    /// The provider's answer to `ensure`.
    Ensured(LoadBalancerStatus),
    /// The provider that the annotation names has the load balancer.
    Found,
    /// All calls and writes succeeded.
    Done,
    /// A call or a write failed. An expected failure, such as a retry-after, says that the load
    /// balancer is busy, not that a part of it is missing: it is no reason for another call.
    Failed { code: Code, expected: bool },
    /// The failed step is retried.
    Waits(NextTry),
}

/// Whether this failure of the provider's call is an answer about the load balancer: another
/// controller manages it, or (for `update`) it does not exist, so that `ensure` is next.
pub(crate) const fn is_answer(plan: &Plan, code: Code) -> bool {
    match plan {
        Plan::Ensure { .. } => matches!(code, Code::ImplementedElsewhere),
        Plan::Update(_) => matches!(code, Code::ImplementedElsewhere | Code::NotFound),
        _ => false,
    }
}

/// The entry after this outcome; `None` if there is nothing left to remember. `entry` is the entry
/// of the planning provider at this moment: the observed one is older.
pub(crate) fn after(plan: &Plan, outcome: PlanOutcome, entry: Option<Entry>, observed: &Observed) -> Option<Entry> {
    let new = |service: &Arc<_>, state| {
        let entry = Entry::new(&observed.provider, Arc::clone(service), state);
        match observed.object.as_deref() {
            Some(object) => entry.of_object(object),
            None => entry,
        }
    };
    match (plan, outcome) {
        (Plan::Ensure { service, claims, .. }, PlanOutcome::Begun) => {
            let same = entry.filter(|entry| entry.object_uid == observed.object_uid(service));
            let mut former = same.unwrap_or_else(|| new(service, State::Unsettled { before: None }));
            // Users know the address of what was retained.
            former.was_shown |= *claims;
            Some(former.ensured(Arc::clone(service)))
        }
        (Plan::Cleanup { misnamed: false, service, .. }, PlanOutcome::Done) => Some(new(service, State::Deleted)),
        (
            Plan::Cleanup { misnamed: true, .. } | Plan::DeleteRemembered(_) | Plan::RetainRemembered(_),
            PlanOutcome::Done,
        )
        | (Plan::Release { .. } | Plan::Forget, PlanOutcome::Done) => None,
        (_, outcome) => entry.map(|entry| changed(plan, outcome, entry, observed)),
    }
}

fn changed(plan: &Plan, outcome: PlanOutcome, mut entry: Entry, observed: &Observed) -> Entry {
    let (membership, generation) = (observed.shared.membership, observed.generation);
    match (plan, outcome) {
        (Plan::Ensure { .. }, PlanOutcome::Ensured(status)) => {
            let (nodes, written) = (Backends::Known(membership), Written::No);
            entry.was_shown |= !status.ingress.is_empty();
            entry.state = State::Serving(Serving { nodes, generation, status, written, overdue: false });
        }
        // If the rest fails, no other provider has to be asked.
        (Plan::Confirm(_), PlanOutcome::Found) => {
            entry.was_shown = true;
            entry.state = State::Unsettled { before: None };
        }
        (Plan::Update(_), PlanOutcome::Begun) => entry.update_begins(),
        (Plan::Update(_), PlanOutcome::Done) => entry.updated(membership),
        (_, PlanOutcome::Failed { code, .. }) if is_answer(plan, code) => match code {
            Code::ImplementedElsewhere => entry.state = State::Elsewhere { generation },
            _ => entry.unsettle(),
        },
        (Plan::Update(_), PlanOutcome::Failed { expected: false, .. }) => entry.update_failed(),
        // If the Service is wanted again before the deletion succeeds, the load balancer may have
        // changed.
        (Plan::Cleanup { .. } | Plan::DeleteRemembered(_), PlanOutcome::Begun) => entry.unsettle(),
        (_, PlanOutcome::Waits(next)) => entry.failed(next),
        (
            _,
            PlanOutcome::Begun
            | PlanOutcome::Ensured(_)
            | PlanOutcome::Found
            | PlanOutcome::Done
            | PlanOutcome::Failed { .. },
        ) => {}
    }
    entry
}

#[cfg(test)]
mod tests;
