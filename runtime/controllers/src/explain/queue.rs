//! The place of a Service in the queue of its provider, and what ends its wait.

use tokio::time::Instant;

use super::view::{QueuePlace, QueueStatus, milliseconds};
use crate::{
    lane::Lane,
    queue::{Ends, KeyState, Place},
    watch::ObjectKey,
};

pub(super) fn status(lane: &Lane, key: &ObjectKey) -> QueueStatus {
    let KeyState { place, failures, failures_at_api, denied } = lane.services.state(key);
    let since = |since: Instant| Some(milliseconds(since.elapsed()));
    let (place, since_ms, due_in_ms, explanation) = match place {
        Place::Absent => (
            QueuePlace::Absent,
            None,
            None,
            "a change of the Service, of the nodes or of the release begins the next run".to_owned(),
        ),
        Place::Ready { since: ready, before } => {
            (QueuePlace::Ready, since(ready), None, waits_for_worker(lane, before))
        }
        Place::Running { since: began, again } => {
            let again = if again { "; the Service has changed meanwhile and runs once more" } else { "" };
            (QueuePlace::Running, since(began), None, format!("a run is in progress{again}"))
        }
        Place::Delayed { until, ends } => {
            let due = milliseconds(until.saturating_duration_since(Instant::now()));
            (QueuePlace::Waiting, None, Some(due), ends_of(ends, denied))
        }
    };
    QueueStatus { place, since_ms, due_in_ms, explanation, failures, api_failures: failures_at_api, denied }
}

/// Why a ready Service does not run yet.
fn waits_for_worker(lane: &Lane, before: usize) -> String {
    if !*lane.published.borrow() {
        return "the manager has not listed all nodes and Services yet".to_owned();
    }
    let serial = lane.provider.info().is_some_and(|info| info.serial_load_balancers);
    let serial = if serial { "; the provider changes one load balancer at a time" } else { "" };
    format!("all workers are busy, and {before} Services wait before this one{serial}")
}

fn ends_of(ends: Ends, denied: bool) -> String {
    let ends = match ends {
        Ends::ByNudge => "a change of the Service, of the nodes or of the release",
        Ends::ByAdd => "a change of the Service or of the release",
        Ends::AtTime => {
            return "nothing ends this wait earlier: writes to the Kubernetes API failed several times in a row"
                .to_owned();
        }
    };
    let rotation = if denied { ", or at a rotation of the credentials" } else { "" };
    format!("the wait ends earlier at {ends}{rotation}")
}
