//! Drift repair: each load balancer is ensured once in a period although its Service did not
//! change, which restores a load balancer that was changed or deleted in the cloud. Disabled
//! unless the operator sets a period; upstream has no drift repair.
//!
//! A Service's turns are at the multiples of the period, plus a phase that the hash of its UID
//! gives: the load is even, no state has to be stored, and a restart causes no burst. Due turns
//! begin in order, within [`crate::ControllerSettings::drift_repairs_per_minute`]; if there are
//! more Services than the rate allows in a period, each waits longer and none is skipped.
//!
//! This module does not call a provider. It marks the Service and nudges its queue, which does not
//! shorten a backoff.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{context::Context, lane::Lane, ledger::Entry, metrics::ProviderLabels, watch::ObjectKey};

/// Interval of checks for new Services while no turn is due. A Service whose turn falls between two
/// checks was ensured just before, when it was created.
const LOOK: Duration = Duration::from_mins(1);
const MINUTE: Duration = Duration::from_mins(1);

/// Triggers the turns of one provider's Services until `stop`.
pub(crate) async fn run(context: &Context, lane: &Arc<Lane>, stop: &CancellationToken) {
    let period = context.settings.drift_repair_period;
    let pace = MINUTE / context.settings.drift_repairs_per_minute.max(1);
    let begun = Instant::now();
    // The turns up to this time are over.
    let mut over = Duration::ZERO;
    loop {
        let now = begun.elapsed();
        // If the rate is too low for all Services, skip whole periods, so that the order stays and
        // the same Services are not skipped each time.
        let late = nanos(now.saturating_sub(over)) / nanos(period).max(1);
        over += Duration::from_nanos(nanos(period).saturating_mul(late));
        let wait = match first_turn(context, lane, over) {
            Some((turn, key)) if turn <= now => {
                over = turn;
                if repair(context, lane, key) { pace } else { Duration::ZERO }
            }
            later => {
                over = now;
                later.map_or(LOOK, |(turn, _)| (turn - now).min(LOOK))
            }
        };
        if timeout(wait, stop.cancelled()).await.is_ok() {
            return;
        }
    }
}

/// The Service with the first turn after this moment.
fn first_turn(context: &Context, lane: &Arc<Lane>, after: Duration) -> Option<(Duration, ObjectKey)> {
    let period = context.settings.drift_repair_period;
    let services = context.ledger.services_of(&lane.name);
    services.into_iter().map(|(key, service)| (turn_after(after, phase(&service.uid, period), period), key)).min()
}

/// Returns false if the Service is about to be ensured anyway, or is paused; the rate then does not
/// count it.
fn repair(context: &Context, lane: &Arc<Lane>, key: ObjectKey) -> bool {
    if super::pause::is_paused(lane, context.services.get(&key).as_deref()) {
        return false;
    }
    let marked = context.ledger.with(&key, Entry::make_overdue) == Some(true);
    if marked {
        let labels = ProviderLabels { provider: lane.name.clone() };
        context.reporter.metrics.drift_repairs.get_or_create(&labels).inc();
        lane.services.nudge(key);
    }
    marked
}

/// From 0 to the period; equal for a UID in every process.
fn phase(uid: &str, period: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    Duration::from_nanos(hasher.finish() % nanos(period).max(1))
}

/// The first turn later than `after`.
fn turn_after(after: Duration, phase: Duration, period: Duration) -> Duration {
    match after.checked_sub(phase) {
        None => phase,
        Some(since) => {
            let turns = nanos(since) / nanos(period).max(1);
            phase + Duration::from_nanos(nanos(period).saturating_mul(turns.saturating_add(1)))
        }
    }
}

/// The time in nanoseconds; a `u64` holds 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{phase, turn_after};

    const PERIOD: Duration = Duration::from_mins(10);

    #[test]
    fn a_turn_comes_once_in_each_period() {
        let phase = Duration::from_secs(90);
        let turn = |after: u64| turn_after(Duration::from_secs(after), phase, PERIOD).as_secs();
        assert_eq!([turn(0), turn(89), turn(90), turn(91), turn(689), turn(690)], [90, 90, 690, 690, 690, 1290]);
    }

    #[test]
    fn turns_are_the_same_in_every_process_and_spread_over_the_period() {
        let phases: Vec<Duration> = (0..1000).map(|n| phase(&format!("uid-{n}"), PERIOD)).collect();
        assert_eq!(phases[7], phase("uid-7", PERIOD));
        assert!(phases.iter().all(|phase| *phase < PERIOD));
        // 60 s of 600 s hold about a tenth.
        for minute in 0..10 {
            let here = phases.iter().filter(|phase| phase.as_secs() / 60 == minute).count();
            assert!((60..=140).contains(&here), "minute {minute} has {here}");
        }
    }
}
