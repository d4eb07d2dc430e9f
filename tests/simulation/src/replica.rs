//! One process of the manager, composed as in `skysail run`: it stands by, leads, and ends when it
//! loses the lease.

use std::{pin::pin, sync::Arc, time::Duration};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use prometheus_client::registry::Registry;
use skysail_controllers::{
    ControllerMetrics, ControllerSettings, Ending, Findings, Ledger, Manager, ProviderAddresses, ProviderEntry,
    Providers,
};
use skysail_dev::api::ApiServer;
use skysail_election::{Clock, ElectionConfig, ElectionMetrics, Elector, ElectorOptions, Timing, fenced};
use skysail_slot::{Component, Offered, Request, SlotStatus};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Plan, Referee,
    chance::Chance,
    client::of_process,
    clock::wait,
    cloud::Cloud,
    link::{Link, Requests},
    operator::Ownership,
    release::{Conf, Maker, Settings, Source},
    slot::Slot,
    slot_provider::SlotProvider,
    story::Story,
};

/// The time between two retries of an offer.
const RETRY_PERIOD: Duration = Duration::from_secs(30);
const LEASE: &str = "cloud-controller-manager";
/// The API path of the lease.
pub(crate) const LEASE_PATH: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";
/// The class of the second cloud's Services; the first one is the default.
pub(crate) const CLASS: &str = "example.com/second";
/// The label of the second cloud's nodes.
pub(crate) const CLOUD_LABEL: &str = "example.com/cloud";

/// State that all processes share.
pub(crate) struct Site {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) clouds: Vec<Arc<Cloud>>,
    /// Of each cloud's provider.
    pub(crate) sources: Vec<Source>,
    pub(crate) referee: Arc<Referee>,
    pub(crate) story: Story,
    pub(crate) ownership: watch::Receiver<Ownership>,
    pub(crate) requests: Requests,
}

/// A running process. A drop is a crash.
pub(crate) struct Replica {
    /// The identity, and the user agent of the client.
    pub(crate) name: String,
    pub(crate) link: Arc<Link>,
    stop: CancellationToken,
    slots: Vec<Served>,
    tasks: JoinSet<String>,
}

/// One provider of a process.
#[derive(Clone)]
struct Served {
    slot: Arc<Slot>,
    provider: Arc<SlotProvider>,
    /// As in `skysail run`: the slot's generation, and nothing else of its status.
    generation: watch::Sender<u64>,
}

/// The clocks of the process's machine: they run a little faster or slower than virtual time, and
/// show different times of day.
struct ReplicaClock {
    began: Instant,
    rate: f64,
    time_of_day: Timestamp,
}

impl Clock for ReplicaClock {
    fn elapsed(&self) -> Duration {
        self.began.elapsed().mul_f64(self.rate)
    }

    fn now(&self) -> Timestamp {
        self.time_of_day + SignedDuration::try_from(self.began.elapsed()).unwrap_or_default()
    }
}

impl Replica {
    /// Starts the process.
    pub(crate) fn start(site: &Site, plan: &Plan, name: String, chance: &mut Chance) -> Self {
        site.story.tell(&name, "starts");
        let link = Link::new(site.requests.clone());
        let mut tasks = JoinSet::new();
        let mut slots = Vec::new();
        for (index, (cloud, source)) in site.clouds.iter().zip(&site.sources).enumerate() {
            let maker = Maker {
                cloud: Arc::clone(cloud),
                process: name.clone(),
                link: Arc::clone(&link),
                referee: Arc::clone(&site.referee),
                living: Arc::default(),
            };
            let called = format!("{name}/{}", provider_name(index));
            let chance = |what: &str| Chance::of(plan.seed, &format!("{what} of {called}"));
            let told = (site.story.clone(), chance("loads"));
            let settings = Settings::new(source.conf.borrow().clone());
            let (slot, task) = Slot::new(called.clone(), settings, maker, told);
            tasks.spawn(task);
            let generation = watch::Sender::new(0);
            tasks.spawn(follow_generation(slot.status(), generation.clone()));
            tasks.spawn(follow_offers(Arc::clone(&slot), source.offers.clone()));
            tasks.spawn(follow_settings(Arc::clone(&slot), source.conf.clone(), chance("settings")));
            let provider = Arc::new(SlotProvider::new(Arc::clone(&slot), cloud.has_routes));
            slots.push(Served { slot, provider, generation });
        }
        let stop = CancellationToken::new();
        let skew = i64::try_from(chance.number(0..=600)).unwrap_or_default();
        let time_of_day = Timestamp::constant(1_767_225_600 + skew, 0);
        let thousandths = 1_000 + chance.number(0..=2 * plan.clock_skew) - plan.clock_skew;
        let rate = f64::from(u32::try_from(thousandths).unwrap_or(1_000)) / 1_000.0;
        let life = Life {
            client: of_process(&site.server, &name, &link),
            slots: slots.clone(),
            ownership: site.ownership.clone(),
            settings: plan.settings.clone(),
            clock: ReplicaClock { began: Instant::now(), rate, time_of_day },
            name: name.clone(),
            stop: stop.clone(),
            story: site.story.clone(),
        };
        let runs = Arc::clone(&link);
        tasks.spawn(async move { runs.run(life.run()).await });
        Self { name, link, stop, slots, tasks }
    }

    /// The reason, if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.tasks.try_join_next().map(|ended| match ended {
            Ok(reason) => reason,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => "was cancelled".to_owned(),
        })
    }

    /// SIGTERM.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// What is wrong with the slots after the last offers.
    pub(crate) fn wrong_slots(&self, sources: &[Source]) -> Vec<String> {
        let wrong = |(served, source): (&Served, &Source)| {
            let (status, newest) = (served.slot.status().borrow().clone(), source.offers.borrow());
            let name = &served.slot.name;
            let serves = status.active.as_ref().map(|active| active.digest.as_str());
            if serves != Some(&*newest.digest) {
                let serves = status.active.map(|active| active.origin);
                return Some(format!("{name} serves {serves:?}, and the newest offer is {}", newest.offer.origin));
            }
            if status.canary.is_some() || status.candidate.is_some() || status.probation.is_some() {
                return Some(format!("{name} has not ended its rollout"));
            }
            let living = served.slot.living();
            (living != 1).then(|| format!("{name} holds {living} releases, and one serves"))
        };
        self.slots.iter().zip(sources).filter_map(wrong).collect()
    }
}

/// As `skysail run` connects a slot with the controllers.
async fn follow_generation(mut status: watch::Receiver<SlotStatus>, sender: watch::Sender<u64>) -> String {
    loop {
        let generation = status.borrow_and_update().generation;
        sender.send_if_modified(|known| std::mem::replace(known, generation) != generation);
        if status.changed().await.is_err() {
            return "its slot is gone".to_owned();
        }
    }
}

/// As the feeder of `skysail run`: offers what the source has, now and after each change, and
/// retries. Invariant: each offer is answered, and only a newer one overtakes it.
async fn follow_offers(slot: Arc<Slot>, mut offers: watch::Receiver<Component>) -> String {
    let mut retry = interval(RETRY_PERIOD);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    offers.mark_changed();
    loop {
        tokio::select! {
            biased;
            Ok(()) = offers.changed() => {
                let component = offers.borrow_and_update().clone();
                let (slot, newest) = (Arc::clone(&slot), offers.clone());
                under_way.spawn(async move {
                    let (digest, origin) = (Arc::clone(&component.digest), component.offer.origin.clone());
                    let answer = slot.request(|reply| Request::Offered { component, reply }).await;
                    let is_newest = newest.borrow().digest == digest;
                    if answer.is_none() || (is_newest && answer == Some(Ok(Offered::Overtaken))) {
                        slot.story.violate(format_args!("{}: the offer of {origin} is lost: {answer:?}", slot.name));
                    }
                });
            }
            Some(_) = under_way.join_next() => {}
            _ = retry.tick(), if under_way.is_empty() => {
                let slot = Arc::clone(&slot);
                under_way.spawn(async move {
                    drop(slot.request(|reply| Request::Retry { reply }).await);
                });
            }
        }
    }
}

/// As an operator's edit reaches the fleet: the settings are judged, and committed after a while.
/// Sometimes another provider of the fleet refuses its own, so that these are dropped, and come
/// again.
async fn follow_settings(slot: Arc<Slot>, mut confs: watch::Receiver<Conf>, mut chance: Chance) -> String {
    let mut known = confs.borrow().clone();
    while confs.changed().await.is_ok() {
        let conf = confs.borrow_and_update().clone();
        if conf == known {
            continue;
        }
        let retry = conf.retry.clone();
        if (Conf { retry: known.retry.clone(), ..conf.clone() }) == known {
            // Nothing else has changed, so that nothing has to be judged.
            slot.ask_again(retry).await;
        } else {
            let after = chance.milliseconds(0..=3_000);
            if chance.once_in(0.3) {
                slot.reconfigure(Settings::new(conf.clone()), None).await;
                wait(after).await;
            }
            slot.reconfigure(Settings::new(conf.clone()), Some(after)).await;
        }
        known = conf;
    }
    "its operator is gone".to_owned()
}

/// The name of the provider of this cloud, by its place in [`Site::clouds`].
fn provider_name(cloud: usize) -> String {
    format!("p{cloud}")
}

/// The current providers, oldest first.
fn providers(slots: &[Served], ownership: Ownership) -> Providers {
    let there = [true, ownership.second, ownership.younger];
    let entry = |(index, (slot, _)): (usize, (&Served, bool))| ProviderEntry {
        name: provider_name(index),
        provider: Arc::clone(&slot.provider) as Arc<_>,
        default: index == 0,
        node_selector: if index == 1 && ownership.selector {
            [(CLOUD_LABEL.to_owned(), "second".to_owned())].into()
        } else {
            [].into()
        },
        load_balancer_classes: match index {
            1 if ownership.class => vec![CLASS.to_owned()],
            2 => vec![CLASS.to_owned()],
            _ => Vec::new(),
        },
        provider_id_schemes: (index == 0 && ownership.pinned).then(|| vec!["first".to_owned()]),
        addresses: if index == 1 && !ownership.any_address {
            ProviderAddresses::new(&["100.64.2.0/24".to_owned()], &[]).unwrap()
        } else {
            ProviderAddresses::default()
        },
        generation: slot.generation.subscribe(),
        // The simulated clouds have no credentials.
        rotations: watch::channel(0).1,
        findings: Findings::default(),
    };
    Providers::new(slots.iter().zip(there).enumerate().filter(|(_, (_, there))| *there).map(entry).collect()).unwrap()
}

/// The task of the process.
struct Life {
    client: kube::Client,
    slots: Vec<Served>,
    ownership: watch::Receiver<Ownership>,
    settings: ControllerSettings,
    clock: ReplicaClock,
    name: String,
    stop: CancellationToken,
    story: Story,
}

impl Life {
    /// Runs the process; returns the reason of its end.
    async fn run(self) -> String {
        let Self { client, slots, mut ownership, settings, clock, name, stop, story } = self;
        let config = ElectionConfig {
            namespace: "kube-system".to_owned(),
            lease: LEASE.to_owned(),
            identity: name.clone(),
            timing: Timing::default(),
        };
        let mut registry = Registry::default();
        let metrics = ElectionMetrics::register(&mut registry);
        let elector = Elector::new(ElectorOptions { client: client.clone(), config, clock: Arc::new(clock), metrics });
        let Some(mut leader) = elector.acquire(&stop).await else { return "is stopped".to_owned() };
        story.tell(&name, "leads");
        let fence = leader.fence().clone();
        let metrics = ControllerMetrics::register(&mut registry);
        let client = fenced(&client, fence.clone());
        let known = watch::Sender::new(providers(&slots, *ownership.borrow_and_update()));
        let manager = Manager::new(client, known.subscribe(), settings, metrics, Ledger::default()).fenced(fence);
        let mut running = pin!(manager.run(stop));
        let ending = loop {
            tokio::select! {
                biased;
                lost = leader.lost() => return lost.to_string(),
                ending = &mut running => break ending,
                Ok(()) = ownership.changed() => {
                    story.tell(&name, "takes up other claims");
                    known.send_replace(providers(&slots, *ownership.borrow_and_update()));
                }
            }
        };
        match ending {
            Err(error) => panic!("{name}: {error}"),
            // As in `skysail run`: requests of cancelled calls may still arrive, so the process
            // does not release the lease but lets it expire.
            Ok(Ending::CutOff) => "is stopped, cut off".to_owned(),
            Ok(Ending::Clean) => format!("is stopped: {:?}", leader.release().await),
        }
    }
}
