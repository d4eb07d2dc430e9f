//! What a seed decides before anything happens: how many replicas, which settings, and how bad the weather is.

use std::time::Duration;

use skysail_controllers::ControllerSettings;

use crate::chance::Chance;

/// Shares of requests, 0 to 1, that meet each fault of the Kubernetes API.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiWeather {
    pub(crate) conflict: f64,
    pub(crate) too_many: f64,
    pub(crate) internal: f64,
    /// Carried out, and answered with a timeout.
    pub(crate) lost_answer: f64,
    pub(crate) slow: f64,
    /// Carried out at once, and answered later.
    pub(crate) late_answer: f64,
    /// Of watches: ends after a few events.
    pub(crate) dropped_watch: f64,
    /// Of watches: is told that it has to list again.
    pub(crate) expired_watch: f64,
    /// Of watches: lags behind.
    pub(crate) delayed_watch: f64,
    /// Of lists: shows the past.
    pub(crate) stale_list: f64,
}

/// Shares of requests, 0 to 1, that meet each fault of a cloud.
#[derive(Clone, Debug, Default)]
pub(crate) struct CloudWeather {
    /// Fails and does nothing.
    pub(crate) error_before: f64,
    /// Is carried out, and its answer is an error.
    pub(crate) error_after: f64,
    pub(crate) slow: f64,
    pub(crate) too_many: f64,
    /// Of reads: shows the past, up to two seconds ago.
    pub(crate) stale: f64,
    /// Of calls: the guest traps or meets a limit before some request.
    pub(crate) guest: f64,
}

/// How likely each thing is that befalls a process or a whole cluster, relative to the operations of people.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mishaps {
    pub(crate) crash: u32,
    pub(crate) stop: u32,
    pub(crate) partition: u32,
    pub(crate) swap: u32,
    pub(crate) token: u32,
    pub(crate) compaction: u32,
    pub(crate) tampering: u32,
}

/// One bad day.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where all of it comes from.
    pub seed: u64,
    pub(crate) operations: usize,
    pub(crate) pause_max: Duration,
    pub(crate) replicas: usize,
    pub(crate) settings: ControllerSettings,
    pub(crate) api: ApiWeather,
    pub(crate) cloud: CloudWeather,
    pub(crate) mishaps: Mishaps,
}

impl Plan {
    /// Draws the plan. Each kind of fault is there in some days only: what is never alone hides what it does alone.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::of(seed, "plan");
        let mut share = |max: f64| if chance.once_in(0.5) { max * share_of(&mut chance) } else { 0.0 };
        let api = ApiWeather {
            conflict: share(0.2),
            too_many: share(0.2),
            internal: share(0.2),
            lost_answer: share(0.2),
            slow: share(0.3),
            late_answer: share(0.3),
            dropped_watch: share(0.8),
            delayed_watch: share(0.8),
            expired_watch: share(0.4),
            stale_list: share(0.4),
        };
        let cloud = CloudWeather {
            error_before: share(0.2),
            error_after: share(0.2),
            slow: share(0.2),
            too_many: share(0.1),
            stale: share(0.5),
            guest: share(0.2),
        };
        let mut weight = |max: usize| {
            if chance.once_in(0.5) { u32::try_from(chance.number(1..=max)).unwrap_or_default() } else { 0 }
        };
        let mut mishaps = Mishaps {
            crash: weight(20),
            stop: weight(10),
            partition: weight(10),
            swap: weight(10),
            token: weight(5),
            compaction: weight(10),
            tampering: weight(5),
        };
        let settings = settings(&mut chance);
        if settings.drift_repair_period.is_zero() {
            // Nobody promises to mend what others break.
            mishaps.tampering = 0;
        }
        Self {
            seed,
            operations: chance.number(10..=60),
            pause_max: chance.milliseconds(100..=12_000),
            replicas: chance.number(1..=3),
            settings,
            api,
            cloud,
            mishaps,
        }
    }
}

fn share_of(chance: &mut Chance) -> f64 {
    let share = f64::from(u32::try_from(chance.number(1..=100)).unwrap_or_default());
    share / 100.0
}

fn settings(chance: &mut Chance) -> ControllerSettings {
    let mut settings = ControllerSettings {
        concurrent_service_syncs: chance.number(1..=4),
        concurrent_node_syncs: chance.number(1..=4),
        concurrent_node_lifecycle_syncs: chance.number(1..=4),
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        watch_based_routes: chance.once_in(0.3),
        refresh_node_labels: chance.once_in(0.3),
        // The breaker is for disasters: here every machine that goes is meant to go.
        node_deletion_percent_max: 100,
        orphan_scan_period: Duration::from_mins(1),
        delete_orphans: chance.once_in(0.3),
        ..ControllerSettings::default()
    };
    if chance.once_in(0.3) {
        settings.node_deletion_confirmations = 1;
    }
    if chance.once_in(0.3) {
        settings.drift_repair_period = Duration::from_mins(2);
    }
    settings
}
