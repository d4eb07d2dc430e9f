//! Runs one day: faults and operations, then calm, then the checks of the end state.

mod epilogue;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use skysail_controllers::SLOW_RESYNC;
use skysail_dev::api::{ApiOptions, ApiServer};
use tokio::time::Instant;

use crate::{
    Plan, Referee,
    chance::Chance,
    clock::wait,
    cloud::{Cloud, Outage},
    end_state::{differences, node_differences},
    folder::Folder,
    link::{Link, Requests},
    operations::People,
    operator::Operator,
    plan::DAY_MAX,
    referee::LOOK_EVERY,
    replica::{Replica, Site},
    rival::Rival,
    slot::COMPILING_MAX_MS,
    story::Story,
    vendor::Vendor,
    weather::Weather,
};

/// The time after the last fault in which the desired state has to be reached. Retries after a
/// denial of the cloud are up to five minutes apart.
const CALM_MAX: Duration = Duration::from_mins(16);
/// Longer than a trial and the time before it in which a call that breaks is remembered.
const FORGIVEN: Duration = Duration::from_secs(40);
// Otherwise the slow resync could hide a lost wake-up.
const _: () = assert!(DAY_MAX.as_secs() + 2 * FORGIVEN.as_secs() + CALM_MAX.as_secs() < SLOW_RESYNC.as_secs());
/// The time between two checks.
const LOOK: Duration = Duration::from_secs(10);
/// The time without any write that has to follow the desired state.
const QUIET: Duration = Duration::from_mins(12);

/// How often a cloud that is out of order is so in each way.
const OUTAGES: [(u32, Outage); 4] = [(2, Outage::Fails), (1, Outage::Hangs), (2, Outage::Denies), (1, Outage::Starves)];
/// The same in a busy cluster: without calls enough to be compared, no release is suspected because
/// of calls that fail, and not trap.
const OUTAGES_BUSY: [(u32, Outage); 3] = [(1, Outage::Fails), (1, Outage::Hangs), (1, Outage::Starves)];
/// The shortest time for which calls do not end: such calls are few.
const HANGS_MIN: Duration = Duration::from_secs(90);

/// Share of the events at which people also let a deletion through, where there is a budget.
const LET_THROUGH: f64 = 0.1;

/// The result of a day.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Failed checks; empty if the day ended well.
    pub failures: Vec<String>,
    /// The log of the day.
    pub story: Vec<String>,
}

/// An event of processes and the cluster, in addition to the operations of people.
#[derive(Clone, Copy, Debug)]
enum Event {
    People,
    Crash,
    Stop,
    Partition,
    Release,
    Settings,
    Source,
    Token,
    Outage,
    Compaction,
    Tampering,
    LostConnections,
    Freeze,
    Ownership,
    LostPool,
    Rival,
    MassLie,
}

/// Runs the day of this plan. The clock of the runtime has to be paused.
///
/// `told` receives the story at the start, so that its lines are available after a panic or if the
/// day never ends.
pub async fn run(plan: Plan, told: &OnceLock<Story>) -> Outcome {
    let mut day = Day::begin(plan);
    // Cannot fail: each day has its own empty cell.
    drop(told.set(day.site.story.clone()));
    day.people.populate(day.plan.population).await;
    for _ in 0..day.plan.operations {
        let pause = day.chance.milliseconds(0..=u64::try_from(day.plan.pause_max.as_millis()).unwrap_or_default());
        day.pass(pause).await;
        day.event().await;
    }
    day.clear_up().await;
    let mut wrong = day.nodes_are_well_without_services().await;
    if wrong.is_empty() {
        wrong = day.becomes_well(CALM_MAX, Day::differences).await;
    }
    if wrong.is_empty() {
        day.site.story.tell("calm", "all is well");
        wrong = day.stays_quiet().await;
    }
    if wrong.is_empty() {
        wrong = day.epilogue().await;
    }
    let story = &day.site.story;
    for line in &wrong {
        story.tell("WRONG", line);
    }
    let failures = story.violations().into_iter().chain(wrong).collect();
    Outcome { failures, story: story.lines() }
}

struct Day {
    plan: Plan,
    site: Site,
    weather: Arc<Weather>,
    people: People,
    /// For each replica the process that runs, or when the next one starts.
    places: Vec<Place>,
    /// The state folders of the replicas, where they have some.
    folders: Vec<Option<Folder>>,
    lives: usize,
    chance: Chance,
    /// Draws how clouds are out of order.
    outages: Chance,
    /// Draws which Services people pause.
    pauses: Chance,
    /// Draws which load balancers people keep, ask for and hand on.
    retention: Chance,
    /// Draws which deletions people let through the budget of deletions.
    deletions: Chance,
    /// When processes that were cut off reach the API again.
    reached_again: Vec<(Instant, String)>,
    /// When expired tokens are replaced, and of which cloud.
    rotations: Vec<(Instant, Arc<Cloud>)>,
    /// When frozen processes continue.
    frozen: Vec<(Instant, Arc<Link>, String)>,
    operator: Operator,
    vendor: Vendor,
    rival: Rival,
}

enum Place {
    Runs(Replica),
    Down(Instant),
}

impl Day {
    fn begin(plan: Plan) -> Self {
        let story = Story::begin();
        story.tell("plan", format_args!("{plan:?}"));
        let server = ApiServer::new(&ApiOptions { seed: plan.seed, ..ApiOptions::default() });
        let referee = Arc::new(Referee::new(Arc::clone(&server), &plan, story.clone()));
        let cloud = |(name, number)| Arc::new(Cloud::new(name, number, &plan, story.clone(), Arc::clone(&referee)));
        let clouds: Vec<Arc<Cloud>> = [("first", 1), ("second", 2), ("third", 3)].map(cloud).into();
        let (rival, written) = Rival::begin(&server, story.clone());
        let weather =
            Arc::new(Weather::new(&plan, &server, Arc::clone(&referee), clouds.clone(), (story.clone(), written)));
        server.set_faults(Some(Arc::clone(&weather) as Arc<_>));
        let operator = Operator::new(plan.seed, story.clone());
        let vendor = Vendor::new(&plan, clouds.len(), story.clone());
        let (ownership, sources) = (operator.ownership(), vendor.sources());
        let site = Site { server, clouds, sources, referee, story, ownership, requests: Requests::default() };
        let people = People::new(&site, &plan);
        let places = (0..plan.replicas).map(|_| Place::Down(Instant::now())).collect();
        let folders = (0..plan.replicas).map(|_| plan.state_folders.then(Folder::default)).collect();
        let chance = Chance::of(plan.seed, "day");
        let outages = Chance::of(plan.seed, "outages");
        let pauses = Chance::of(plan.seed, "paused Services");
        let retention = Chance::of(plan.seed, "retained load balancers");
        let deletions = Chance::of(plan.seed, "deletions let through");
        Self {
            plan,
            site,
            weather,
            people,
            places,
            folders,
            lives: 0,
            chance,
            outages,
            pauses,
            retention,
            deletions,
            reached_again: Vec::new(),
            rotations: Vec::new(),
            frozen: Vec::new(),
            operator,
            vendor,
            rival,
        }
    }

    /// Lets time pass; restarts processes that ended, as a kubelet does.
    async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            self.look_after_processes();
            self.site.referee.settle();
            self.people.go_on().await;
            self.vendor.go_on();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let due = self.people.next_due().saturating_duration_since(Instant::now());
            wait(left.min(LOOK_EVERY).min(due)).await;
        }
    }

    fn look_after_processes(&mut self) {
        let now = Instant::now();
        let reached = self.reached_again.extract_if(.., |(until, _)| *until <= now);
        for (_, process) in reached {
            self.site.story.tell(&process, "reaches the API again");
            self.weather.cut_off(&process, false);
        }
        for (_, cloud) in self.rotations.extract_if(.., |(at, _)| *at <= now) {
            cloud.rotate_token();
        }
        let thawed = self.frozen.extract_if(.., |(until, ..)| *until <= now);
        for (_, link, process) in thawed {
            self.site.story.tell(&process, "goes on");
            link.freeze(false);
        }
        for (place, folder) in self.places.iter_mut().zip(&self.folders) {
            let ended = match place {
                Place::Runs(replica) => replica.ended().map(|reason| (replica.name.clone(), reason)),
                Place::Down(until) if *until <= now => {
                    self.lives += 1;
                    let name = format!("replica-{}", self.lives);
                    let identity = (name, folder.clone());
                    *place = Place::Runs(Replica::start(&self.site, &self.plan, identity, &mut self.chance));
                    None
                }
                Place::Down(_) => None,
            };
            if let Some((name, reason)) = ended {
                self.site.story.tell(&name, format_args!("ends: {reason}"));
                *place = Place::Down(now + self.chance.milliseconds(0..=10_000));
            }
        }
    }

    async fn event(&mut self) {
        let mishaps = &self.plan.mishaps;
        let weights = [
            (60, Event::People),
            (mishaps.crash, Event::Crash),
            (mishaps.stop, Event::Stop),
            (mishaps.partition, Event::Partition),
            (mishaps.release, Event::Release),
            (mishaps.settings, Event::Settings),
            (mishaps.source, Event::Source),
            (mishaps.token, Event::Token),
            (mishaps.outage, Event::Outage),
            (mishaps.compaction, Event::Compaction),
            (mishaps.tampering, Event::Tampering),
            (mishaps.lost_connections, Event::LostConnections),
            (mishaps.freeze, Event::Freeze),
            (mishaps.ownership, Event::Ownership),
            (mishaps.lost_pool, Event::LostPool),
            (mishaps.rival, Event::Rival),
            (mishaps.mass_lie, Event::MassLie),
        ];
        let time = self.chance.milliseconds(1_000..=60_000);
        self.site.referee.operation();
        self.site.referee.look();
        self.care_for_load_balancers().await;
        match self.chance.weighted(&weights).unwrap_or(Event::People) {
            Event::People => self.people.act().await,
            Event::Token => {
                if let Some(cloud) = self.chance.pick(&self.site.clouds) {
                    self.site.story.tell(cloud.name, format_args!("the token expires for {} ms", time.as_millis()));
                    cloud.expire_token(time);
                    if self.chance.once_in(0.5) {
                        self.rotations.push((Instant::now() + time / 2, Arc::clone(cloud)));
                    }
                }
            }
            Event::Outage => self.fail_some_cloud(2 * time).await,
            Event::MassLie => {
                if let Some(cloud) = self.chance.pick(&self.site.clouds) {
                    let story = &self.site.story;
                    story.tell(cloud.name, format_args!("calls all machines missing for {} ms", time.as_millis()));
                    cloud.call_all_missing(time);
                }
            }
            Event::Compaction => self.forget_history().await,
            Event::Tampering => self.people.tamper(),
            Event::LostPool => self.people.delete_some_pool(),
            Event::Ownership => {
                self.site.referee.claims_change();
                self.operator.edit();
                self.follow_claims().await;
            }
            Event::Release => self.vendor.offer(),
            Event::Settings => self.vendor.edit(),
            Event::Source => self.vendor.disturb_source(),
            Event::Rival => {
                self.site.story.tell("rival", format_args!("empties each status for {} ms", time.as_millis()));
                self.rival.act_until(Instant::now() + time);
            }
            event => self.befall_process(event, time),
        }
    }

    /// What people do with Services on some days beside the event.
    async fn care_for_load_balancers(&mut self) {
        if self.pauses.once_in(self.plan.pauses) {
            self.people.pause_some_service(&mut self.pauses).await;
        }
        if self.retention.once_in(self.plan.retention) {
            match self.retention.once_in(0.5) {
                true => self.people.keep_or_ask(&mut self.retention).await,
                false => self.people.begin_to_hand_on(&mut self.retention).await,
            }
        }
        if self.plan.deletions.is_some() && self.deletions.once_in(LET_THROUGH) {
            self.people.let_some_deletion_through(&mut self.deletions).await;
        }
    }

    /// The API server forgets its history while no process watches. No watch reports the node that
    /// goes meanwhile: only the next list lacks it.
    async fn forget_history(&mut self) {
        self.site.story.tell("api", "ends all watches and forgets its history");
        self.weather.refuse_watches(true);
        self.site.server.end_watches();
        self.people.scale_in().await;
        self.site.server.compact();
        self.weather.refuse_watches(false);
    }

    /// Some cloud is out of order for a while, which begins while a new release is loaded or on
    /// trial. Before it, the predecessor has calls to be compared with: another set of nodes
    /// updates every load balancer.
    async fn fail_some_cloud(&mut self, time: Duration) {
        // Without objects, the third cloud fails unnoticed.
        let index = self.chance.number(0..=self.site.clouds.len() - 1) % 2;
        let pause = self.chance.milliseconds(2_000..=10_000);
        self.people.exclude_some_node().await;
        let is_busy = self.plan.population.0 > 0;
        let outage = self.outages.weighted(if is_busy { &OUTAGES_BUSY[..] } else { &OUTAGES[..] });
        let outage = outage.unwrap_or(Outage::Fails);
        let time = if matches!(outage, Outage::Hangs | Outage::Starves) { time.max(HANGS_MIN) } else { time };
        if let Some(cloud) = self.site.clouds.get(index) {
            let (after, long) = (pause.as_millis(), time.as_millis());
            self.site.story.tell(cloud.name, format_args!("{outage:?} at every request for {long} ms, in {after} ms"));
            cloud.break_down(pause, time, outage);
            match outage {
                // Where a guest says that a request was denied, the release is not suspected.
                Outage::Denies => self.vendor.offer_careless(index),
                Outage::Fails | Outage::Hangs | Outage::Starves => self.vendor.offer_good(index),
            }
        }
    }

    /// While the claims of two providers overlap, there is a node that both claim.
    async fn follow_claims(&mut self) {
        let contests = self.site.ownership.borrow().contests();
        self.people.join_by_hand(contests).await;
    }

    fn befall_process(&mut self, event: Event, time: Duration) {
        match event {
            Event::Crash => self.crash(),
            Event::Stop => self.with_some_process(|_, replica, story| {
                story.tell(&replica.name, "gets SIGTERM");
                replica.stop();
            }),
            Event::Partition => self.with_some_process(|day, replica, story| {
                story.tell(&replica.name, "does not reach the API");
                day.weather.cut_off(&replica.name, true);
                day.reached_again.push((Instant::now() + time, replica.name.clone()));
            }),
            Event::LostConnections => self.with_some_process(|_, replica, story| {
                story.tell(&replica.name, "loses its established connections");
                replica.link.lose_connections();
            }),
            Event::Freeze => self.with_some_process(|day, replica, story| {
                story.tell(&replica.name, "is frozen");
                replica.link.freeze(true);
                day.frozen.push((Instant::now() + time / 2, Arc::clone(&replica.link), replica.name.clone()));
            }),
            Event::People
            | Event::Token
            | Event::Outage
            | Event::MassLie
            | Event::Compaction
            | Event::Tampering
            | Event::LostPool
            | Event::Release
            | Event::Settings
            | Event::Source
            | Event::Ownership
            | Event::Rival => {}
        }
    }

    /// SIGKILL.
    fn crash(&mut self) {
        let down = Instant::now() + self.chance.milliseconds(0..=20_000);
        let index = self.chance.number(0..=self.places.len() - 1);
        let Some(place) = self.places.get_mut(index) else { return };
        if let Place::Runs(replica) = place {
            self.site.story.tell(&replica.name, "is killed");
            *place = Place::Down(down);
        }
        if let Some(Some(folder)) = self.folders.get_mut(index)
            && self.chance.once_in(0.2)
        {
            self.site.story.tell("kubelet", "starts the next process on another machine, with an empty state folder");
            *folder = Folder::default();
        }
    }

    fn with_some_process(&mut self, act: impl FnOnce(&mut Self, &mut Replica, &Story)) {
        let index = self.chance.number(0..=self.places.len() - 1);
        let Some(place) = self.places.get_mut(index) else { return };
        let mut taken = std::mem::replace(place, Place::Down(Instant::now()));
        if let Place::Runs(replica) = &mut taken {
            let story = self.site.story.clone();
            act(self, replica, &story);
        }
        if let Some(place) = self.places.get_mut(index) {
            *place = taken;
        }
    }

    /// Ends all faults.
    async fn clear_up(&mut self) {
        self.site.story.tell("calm", "faults stop");
        self.weather.clear_up();
        self.reached_again.clear();
        for (_, link, _) in self.frozen.drain(..) {
            link.freeze(false);
        }
        self.rival.act_until(Instant::now());
        self.site.referee.claims_change();
        self.operator.restore();
        self.site.clouds.iter().for_each(|cloud| cloud.clear_up());
        self.vendor.clear_up();
        if self.plan.late_offers {
            // Calls that broke during the faults are too old to excuse this release.
            self.pass(FORGIVEN).await;
            self.vendor.offer_trapping();
            self.pass(FORGIVEN).await;
            self.vendor.offer_any();
            // The last offers come while these are loaded, or soon after.
            let soon = self.chance.milliseconds(0..=10_000);
            self.pass(soon).await;
            self.vendor.offer_last();
            // The settings come while some of these are loaded.
            let soon = self.chance.milliseconds(0..=COMPILING_MAX_MS);
            self.pass(soon).await;
            self.vendor.edit_last();
        }
        // At the quiet edit the younger provider goes, and the node would get an owner: a write.
        let contests = self.site.ownership.borrow().contests() && !self.plan.quiet_edit;
        self.people.join_by_hand(contests).await;
        self.people.bring_everything_up().await;
        if self.plan.mishaps.lost_pool > 0 && !self.plan.late_offers {
            // From now on an update fails; no fault and no swap brings an ensure.
            self.people.delete_some_pool();
            self.people.exclude_some_node().await;
        }
    }

    /// The vendor offers a good release for each provider whose newest release cannot stay. No
    /// other provider gets one: a swap reconciles every object, and would hide a lost wake-up.
    fn offer_where_needed(&mut self) {
        for cloud in 0..self.site.clouds.len() {
            let newest = self.vendor.newest(cloud);
            let refuses = |place: &Place| matches!(place, Place::Runs(replica) if replica.refuses(cloud, &newest));
            if !self.vendor.may_stay(cloud) || self.places.iter().any(refuses) {
                self.vendor.offer_good(cloud);
            }
        }
    }

    /// Waits until all checks pass; returns those that still fail after this time.
    async fn becomes_well(&mut self, max: Duration, look: impl Fn(&Self) -> Vec<String>) -> Vec<String> {
        let began = Instant::now();
        let mut wrong = look(self);
        while !wrong.is_empty() && began.elapsed() < max {
            self.offer_where_needed();
            // A process may act on a lie that was told before the faults stopped.
            if self.plan.cloud.lies_swapped > 0.0 {
                self.people.part_swapped_nodes().await;
            }
            self.pass(LOOK).await;
            wrong = look(self);
        }
        wrong
    }

    /// On some days new processes may not list Services at the end; nodes have to be handled
    /// without them.
    async fn nodes_are_well_without_services(&mut self) -> Vec<String> {
        if !self.plan.forbidden {
            return Vec::new();
        }
        self.site.story.tell("calm", "no process may list Services, and all start again");
        self.weather.forbid_services(true);
        self.restart_all();
        let wrong = self.becomes_well(CALM_MAX, |day| node_differences(&day.site)).await;
        self.weather.forbid_services(false);
        wrong.into_iter().map(|wrong| format!("without the right to list Services: {wrong}")).collect()
    }

    /// All processes die, and start again.
    fn restart_all(&mut self) {
        self.places.iter_mut().for_each(|place| *place = Place::Down(Instant::now()));
    }

    fn differences(&self) -> Vec<String> {
        let mut wrong = differences(&self.site, self.plan.settings.delete_orphans);
        for place in &self.places {
            match place {
                Place::Runs(replica) => wrong.extend(replica.wrong_slots(&self.site.sources)),
                Place::Down(_) => wrong.push("a replica is down".to_owned()),
            }
        }
        wrong
    }

    /// Checks that the desired state stays without further writes.
    async fn stays_quiet(&mut self) -> Vec<String> {
        // Retries of operations whose answer was lost are up to five minutes apart, and may still
        // come after the desired state is reached.
        self.pass(Duration::from_mins(6)).await;
        let told = self.site.story.lines().len();
        if self.plan.quiet_edit {
            self.operator.add_younger();
        }
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            self.pass(LOOK).await;
            let wrong = self.differences();
            if !wrong.is_empty() {
                return wrong.into_iter().map(|wrong| format!("after all was well: {wrong}")).collect();
            }
        }
        let lines = self.site.story.lines();
        let calls = self.plan.settings.drift_repair_period.is_zero();
        let busy = lines.iter().skip(told).filter(|line| is_write(line) || (calls && is_call_that_changes(line)));
        busy.take(10).map(|line| format!("all was well, and yet: {line}")).collect()
    }
}

/// Whether a line is a call that changes a load balancer.
fn is_call_that_changes(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(3).collect();
    matches!(words.as_slice(), [_, "call", "ensure" | "update" | "ensure-deleted"])
}

/// Whether a line is a write to the API.
fn is_write(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(3).collect();
    matches!(words.as_slice(), [_, "api", "create" | "update" | "patch" | "delete"])
}
