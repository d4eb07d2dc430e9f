//! What a seed decides before anything happens: how many replicas, which settings, and how bad the
//! weather is.

use std::time::Duration;

use skysail_controllers::{ControllerSettings, Rate};

use crate::{chance::Chance, deletions::DeletionLimit};

/// Highest shares and weights of the kinds of faults.
mod most {
    /// Of API requests: never answered, and not carried out or carried out. Each costs its sender
    /// half a minute, so that more of them leave nothing else to happen.
    pub(super) const NEVER_ANSWERED: f64 = 0.02;
    /// Of watches: changes arrive minutes later.
    pub(super) const STALLED_WATCH: f64 = 0.1;
    /// Of cloud requests: never answered. The host ends the call at its deadline.
    pub(super) const HANGS: f64 = 0.02;
    /// Of calls: each kind of lie.
    pub(super) const LIES: f64 = 0.2;
    /// A vendor offers a release.
    pub(super) const RELEASE: usize = 10;
    /// An operator edits the settings of a provider's slot.
    pub(super) const SETTINGS: usize = 6;
    /// A source fails, works again, or is replaced.
    pub(super) const SOURCE: usize = 4;
    /// Established connections are lost without a sign.
    pub(super) const LOST_CONNECTIONS: usize = 6;
    /// A process is frozen for a while.
    pub(super) const FREEZE: usize = 6;
    /// An operator edits, adds or removes a provider.
    pub(super) const OWNERSHIP: usize = 6;
    /// A user of the cloud deletes the backend pool of a load balancer.
    pub(super) const LOST_POOL: usize = 5;
    /// Another controller empties each status that is written, for a while.
    pub(super) const RIVAL: usize = 3;
    /// Share of the events at which people also pause a Service or end its pause.
    pub(super) const PAUSE: f64 = 0.1;
    /// Share of the events at which people also create a Service whose load balancer outlives it,
    /// or one that asks for such a load balancer.
    pub(super) const RETENTION: f64 = 0.15;
    /// Days on which a provider retains the load balancers of Services without a policy.
    pub(super) const RETAINING: f64 = 0.1;
    /// Days on which providers have a budget of deletions.
    pub(super) const DELETION_BUDGET: f64 = 0.3;
    /// A cloud fails or denies every request for a while, or hangs, which begins while a new
    /// release is loaded or on trial.
    pub(super) const OUTAGE: usize = 5;
    /// A provider says of all its machines that they do not exist, for a while.
    pub(super) const MASS_LIE: usize = 3;
    /// Days on which the account may not list Services for a while.
    pub(super) const FORBIDDEN: f64 = 0.2;
    /// Days on which an operator edits one provider after all is well, which must cost the others
    /// nothing.
    pub(super) const QUIET_EDIT: f64 = 0.3;
    /// Days on which releases are offered after the last fault, and so every object is reconciled.
    pub(super) const LATE_OFFERS: f64 = 0.3;
}

/// Shares of requests, 0 to 1, that meet each fault of the Kubernetes API.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiWeather {
    pub(crate) conflict: f64,
    /// Of patches of Services and nodes: another controller writes the object just before.
    pub(crate) overtaken: f64,
    pub(crate) too_many: f64,
    pub(crate) internal: f64,
    /// Carried out, and answered with a timeout.
    pub(crate) lost_answer: f64,
    pub(crate) slow: f64,
    /// Carried out at once, and answered later.
    pub(crate) late_answer: f64,
    /// Of watches: ends after a few events.
    pub(crate) dropped_watch: f64,
    /// Of watches: the client has to list again.
    pub(crate) expired_watch: f64,
    /// Of watches: lags behind.
    pub(crate) delayed_watch: f64,
    /// Of lists: shows the past.
    pub(crate) stale_list: f64,
    /// Not carried out, and never answered.
    pub(crate) swallowed: f64,
    /// Carried out, and never answered.
    pub(crate) done_and_swallowed: f64,
    /// Of watches: lags minutes behind.
    pub(crate) stalled_watch: f64,
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
    /// Of loads of releases: the machine has no memory for the compiler.
    pub(crate) unlucky: f64,
    /// Never answers. The host ends the call at its deadline.
    pub(crate) hangs: f64,
    /// Of look-ups: one machine that exists is called missing.
    pub(crate) lies_missing: f64,
    /// Of look-ups: the addresses are no addresses.
    pub(crate) lies_junk: f64,
    /// Of look-ups: the answers are in another order.
    pub(crate) lies_swapped: f64,
    /// Of look-ups: an answer is missing.
    pub(crate) lies_short: f64,
    /// Of `get` and `update`: a load balancer that exists is called absent.
    pub(crate) lies_absent: f64,
    /// Of `ensure`: the status is no status.
    pub(crate) lies_status: f64,
    /// Of `ensure-deleted`: nothing is deleted.
    pub(crate) lies_deleted: f64,
    /// Of lists of load balancers and of routes: an entry is missing.
    pub(crate) lies_unlisted: f64,
}

/// How likely each thing is that befalls a process or a whole cluster, relative to the operations
/// of people.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mishaps {
    pub(crate) crash: u32,
    pub(crate) stop: u32,
    pub(crate) partition: u32,
    pub(crate) release: u32,
    pub(crate) settings: u32,
    pub(crate) source: u32,
    pub(crate) token: u32,
    pub(crate) outage: u32,
    pub(crate) compaction: u32,
    pub(crate) tampering: u32,
    pub(crate) lost_connections: u32,
    pub(crate) freeze: u32,
    pub(crate) ownership: u32,
    pub(crate) lost_pool: u32,
    pub(crate) rival: u32,
    pub(crate) mass_lie: u32,
}

/// Names of Services and of machines on most days: few, so that names come again.
const NAMES: usize = 9;
/// The same on some days.
const NAMES_LARGE: usize = 60;
/// Days on which a cluster begins full, of a hundred.
const FULL: usize = 3;
/// Services and machines of a full cluster, at most: names come seldom again.
const FULL_MAX: (usize, usize) = (150, 60);
/// The same of a busy cluster, in which releases have enough calls to be compared. Every third
/// cluster is busy on days on which clouds fail.
const BUSY_MAX: (usize, usize) = (40, 12);
/// The most operations of a day, and the longest pause before each in milliseconds: on a usual day,
/// and on a large one.
const OPERATIONS_MAX: [(usize, u64); 2] = [(60, 12_000), (120, 6_000)];
/// The longest day, until its last fault.
pub(crate) const DAY_MAX: Duration = {
    let [(usual, pause), (large, short)] = OPERATIONS_MAX;
    let (usual, large) = (usual as u64 * pause, large as u64 * short);
    Duration::from_millis(if usual > large { usual } else { large })
};
/// Thousandths. The lease has room for 200: its holder stops after 10 s and the next one begins
/// after 15 s.
pub(crate) const CLOCK_SKEW: usize = 30;
/// Of the nodes, how many the breaker lets go.
const BREAKER_PERCENT: u8 = 20;

/// What happens after all is well, to show that nothing waits for a period: no fault delays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Epilogue {
    /// Nothing.
    None,
    /// A few operations of people, one after the other.
    Operations,
    /// A cloud refuses a credential until an operator rotates it.
    Rotation,
    /// Machines go that the breaker lets go.
    ScaleIn,
    /// More machines go than the breaker lets go, one after the other, and the API server loses the
    /// answer to each deletion of a node.
    LostDeletions,
    /// Another controller writes each new Service and node just before our patches, for minutes.
    Conflicts,
    /// People pause Services, or an operator pauses a provider, and nothing of them changes in the
    /// cloud, whatever asks for it, until the pause ends.
    Pauses,
    /// All processes start again, and no release of the first provider can be loaded for a while.
    /// The younger provider, whose component describes the same scheme, takes nothing.
    LateProvider,
}

/// One bad day.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where all of it comes from.
    pub seed: u64,
    pub(crate) operations: usize,
    pub(crate) pause_max: Duration,
    pub(crate) replicas: usize,
    /// Names of Services, and of machines, that people use.
    pub(crate) names: usize,
    /// Services and machines at the begin of the day.
    pub(crate) population: (usize, usize),
    /// Of each client of a process: `--kube-api-qps` and `--kube-api-burst`.
    pub(crate) rate: Rate,
    /// How much faster or slower than time the clocks of elections run, at most, in thousandths.
    pub(crate) clock_skew: usize,
    /// After the faults the account may not list Services, and nodes have to be well all the same.
    pub(crate) forbidden: bool,
    /// After all is well an operator edits one provider.
    pub(crate) quiet_edit: bool,
    /// After the last fault the vendor offers releases of all providers. On other days only a
    /// provider whose newest release cannot stay gets one more.
    pub(crate) late_offers: bool,
    pub(crate) epilogue: Epilogue,
    /// Share of the events at which people also pause a Service or end its pause.
    pub(crate) pauses: f64,
    /// Share of the events at which people also create a Service whose load balancer outlives it,
    /// or one that asks for such a load balancer.
    pub(crate) retention: f64,
    /// The provider of this cloud retains load balancers, by the cloud's place: its
    /// `spec.deletionPolicy`.
    pub(crate) retaining: Option<usize>,
    /// The budget of deletions of each provider: `spec.deletionBudget`.
    pub(crate) deletions: Option<DeletionLimit>,
    /// Each replica has a state folder.
    pub(crate) state_folders: bool,
    pub(crate) settings: ControllerSettings,
    pub(crate) api: ApiWeather,
    pub(crate) cloud: CloudWeather,
    pub(crate) mishaps: Mishaps,
}

impl ApiWeather {
    fn random(chance: &mut Chance) -> Self {
        let mut share = |max: f64| if chance.once_in(0.5) { max * share_of(chance) } else { 0.0 };
        Self {
            conflict: share(0.2),
            overtaken: share(0.3),
            too_many: share(0.2),
            internal: share(0.2),
            lost_answer: share(0.2),
            slow: share(0.3),
            late_answer: share(0.3),
            dropped_watch: share(0.8),
            delayed_watch: share(0.8),
            expired_watch: share(0.4),
            stale_list: share(0.4),
            swallowed: share(most::NEVER_ANSWERED),
            done_and_swallowed: share(most::NEVER_ANSWERED),
            stalled_watch: share(most::STALLED_WATCH),
        }
    }
}

impl CloudWeather {
    fn random(chance: &mut Chance) -> Self {
        let mut share = |max: f64| if chance.once_in(0.5) { max * share_of(chance) } else { 0.0 };
        Self {
            error_before: share(0.2),
            error_after: share(0.2),
            slow: share(0.2),
            too_many: share(0.1),
            stale: share(0.5),
            guest: share(0.2),
            unlucky: share(0.3),
            hangs: share(most::HANGS),
            lies_missing: share(most::LIES),
            lies_junk: share(most::LIES),
            lies_swapped: share(most::LIES),
            lies_short: share(most::LIES),
            lies_absent: share(most::LIES),
            lies_status: share(most::LIES),
            lies_deleted: share(most::LIES),
            lies_unlisted: share(most::LIES),
        }
    }
}

impl Mishaps {
    fn random(chance: &mut Chance) -> Self {
        let mut weight = |max: usize| {
            if chance.once_in(0.5) { u32::try_from(chance.number(1..=max)).unwrap_or_default() } else { 0 }
        };
        Self {
            crash: weight(20),
            stop: weight(10),
            partition: weight(10),
            release: weight(most::RELEASE),
            settings: weight(most::SETTINGS),
            source: weight(most::SOURCE),
            token: weight(5),
            outage: weight(most::OUTAGE),
            compaction: weight(10),
            tampering: weight(5),
            lost_connections: weight(most::LOST_CONNECTIONS),
            freeze: weight(most::FREEZE),
            ownership: weight(most::OWNERSHIP),
            lost_pool: weight(most::LOST_POOL),
            rival: weight(most::RIVAL),
            mass_lie: weight(most::MASS_LIE),
        }
    }
}

impl Plan {
    /// Draws the plan. Each kind of fault is there on some days only: a fault that is never alone
    /// can hide what it does alone.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::of(seed, "plan");
        let (api, cloud) = (ApiWeather::random(&mut chance), CloudWeather::random(&mut chance));
        let mut mishaps = Mishaps::random(&mut chance);
        let settings = settings(&mut chance);
        if settings.drift_repair_period.is_zero() {
            // Only the drift repair mends what others delete in the cloud.
            mishaps.tampering = 0;
        }
        let is_large = chance.once_in(0.1);
        let [usual, large] = OPERATIONS_MAX;
        let (operations_max, pause_max) = if is_large { large } else { usual };
        let is_full = chance.number(1..=100) <= FULL;
        let full = (chance.number(30..=FULL_MAX.0), chance.number(10..=FULL_MAX.1));
        let is_busy = mishaps.outage > 0 && chance.once_in(0.3);
        let busy = (chance.number(25..=BUSY_MAX.0), chance.number(5..=BUSY_MAX.1));
        let has_breaker = settings.node_deletion_percent_max < 100;
        let epilogues = [
            (2, Epilogue::None),
            (4, Epilogue::Operations),
            (2, Epilogue::Rotation),
            (if has_breaker { 2 } else { 0 }, Epilogue::ScaleIn),
            (if has_breaker { 2 } else { 0 }, Epilogue::LostDeletions),
            (2, Epilogue::Conflicts),
            (3, Epilogue::Pauses),
            (2, Epilogue::LateProvider),
        ];
        Self {
            seed,
            population: if is_full {
                full
            } else if is_busy {
                busy
            } else {
                (0, 0)
            },
            epilogue: chance.weighted(&epilogues).unwrap(),
            pauses: if Chance::of(seed, "pauses").once_in(0.5) { most::PAUSE } else { 0.0 },
            retaining: retaining(seed),
            deletions: deletions(seed, is_full || is_busy),
            retention: if Chance::of(seed, "retention").once_in(0.5) { most::RETENTION } else { 0.0 },
            operations: chance.number(if is_large { 60 } else { 10 }..=operations_max),
            names: if is_full {
                FULL_MAX.0
            } else if is_large || is_busy {
                NAMES_LARGE
            } else {
                NAMES
            },
            // The defaults, of the manager and of client-go.
            rate: if chance.once_in(0.8) { Rate::new(20.0, 30) } else { Rate::new(0.0, 0) }.unwrap(),
            clock_skew: if chance.once_in(0.5) { CLOCK_SKEW } else { 0 },
            forbidden: chance.once_in(most::FORBIDDEN),
            quiet_edit: chance.once_in(most::QUIET_EDIT),
            late_offers: chance.once_in(most::LATE_OFFERS),
            state_folders: chance.once_in(0.7),
            pause_max: chance.milliseconds(100..=pause_max),
            replicas: chance.number(1..=3),
            settings,
            api,
            cloud,
            mishaps,
        }
    }
}

fn retaining(seed: u64) -> Option<usize> {
    let mut chance = Chance::of(seed, "deletion policy");
    chance.once_in(most::RETAINING).then(|| chance.number(0..=1))
}

/// So many deletions in so short a window that what waits at the end of the day goes in the calm,
/// and the routes of an epilogue within its bound.
fn deletions(seed: u64, is_populated: bool) -> Option<DeletionLimit> {
    let mut chance = Chance::of(seed, "budget of deletions");
    let deletions = if is_populated { 20..=40 } else { 6..=12 };
    chance
        .once_in(most::DELETION_BUDGET)
        .then(|| DeletionLimit { deletions: chance.number(deletions), window: chance.milliseconds(15_000..=30_000) })
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
        // 100 is off: then every machine that goes is meant to go.
        node_deletion_percent_max: if chance.once_in(0.7) { BREAKER_PERCENT } else { 100 },
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
