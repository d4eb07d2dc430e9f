//! One process of the manager, composed as in `skysail run`: it stands by, leads, and ends when it
//! loses the lease.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use prometheus_client::registry::Registry;
use skysail_controllers::{
    Clients, ControllerMetrics, ControllerSettings, DeletionPolicy, Ending, Ledger, Manager, ProviderAddresses,
    ProviderEntry, Providers,
};
use skysail_dev::api::ApiServer;
use skysail_election::{Clock, ElectionConfig, ElectionMetrics, Elector, ElectorOptions, Timing, fenced};
use skysail_slot::{Refusal, RefusalReason, SlotStatus};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    Plan, Referee,
    chance::Chance,
    client::{of_controllers, of_process},
    cloud::Cloud,
    deletions::Deletions,
    feeder::{Feeder, Source},
    folder::Folder,
    link::{Link, Requests},
    operator::Ownership,
    release::{Maker, Settings},
    slot::Slot,
    slot_provider::SlotProvider,
    story::Story,
};

const LEASE: &str = "cloud-controller-manager";
/// The API path of the lease.
pub(crate) const LEASE_PATH: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";
/// The class of the second cloud's Services; the first one is the default.
pub(crate) const CLASS: &str = "example.com/second";
/// The label of the second cloud's nodes.
pub(crate) const CLOUD_LABEL: &str = "example.com/cloud";

/// The label of a node that people joined by hand, without a provider ID, beside [`CLOUD_LABEL`].
pub(crate) const BY_HAND: &str = "example.com-by-hand";
pub(crate) const BY_HAND_MARK: &str = "/metadata/labels/example.com-by-hand";

/// State that all processes share.
pub(crate) struct Site {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) clouds: Vec<Arc<Cloud>>,
    /// The source of each cloud's provider.
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
    rotations: watch::Receiver<u64>,
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
    pub(crate) fn start(
        site: &Site,
        plan: &Plan,
        (name, folder): (String, Option<Folder>),
        chance: &mut Chance,
    ) -> Self {
        site.story.tell(&name, "starts");
        let link = Link::new(site.requests.clone());
        let (mut tasks, runs) = (JoinSet::new(), Arc::clone(&link));
        // Nothing of this happens while the process is frozen.
        let mut spawn = |task: BoxFuture<'static, String>| {
            let link = Arc::clone(&runs);
            tasks.spawn(async move { link.run(task).await });
        };
        let mut slots = Vec::new();
        for (index, (cloud, source)) in site.clouds.iter().zip(&site.sources).enumerate() {
            let maker = Maker {
                cloud: Arc::clone(cloud),
                process: name.clone(),
                link: Arc::clone(&link),
                referee: Arc::clone(&site.referee),
                deletions: Arc::new(Deletions::new(plan.deletions)),
                living: Arc::default(),
            };
            let called = format!("{name}/{}", provider_name(index));
            let chance = |what: &str| Chance::of(plan.seed, &format!("{what} of {called}"));
            let told = (site.story.clone(), chance("loads"));
            let conf = source.conf.borrow().clone();
            let settings = Settings::new(conf.clone());
            let (slot, task) = Slot::new(called.clone(), settings, maker, told);
            spawn(task.boxed());
            let generation = watch::Sender::new(0);
            spawn(follow_generation(slot.status(), generation.clone()).boxed());
            let kept = folder.clone().map(|folder| (provider_name(index), folder));
            let (source, link) = (source.clone(), Arc::clone(&link));
            let feeder = Feeder { slot: Arc::clone(&slot), source, conf, kept, link };
            spawn(feeder.follow_settings(chance("settings")).boxed());
            let provider = Arc::new(SlotProvider::new(Arc::clone(&slot), cloud.has_routes, Arc::clone(&site.referee)));
            slots.push(Served { slot, provider, generation, rotations: cloud.rotations() });
        }
        let stop = CancellationToken::new();
        let skew = i64::try_from(chance.number(0..=600)).unwrap_or_default();
        let time_of_day = Timestamp::constant(1_767_225_600 + skew, 0);
        let thousandths = 1_000 + chance.number(0..=2 * plan.clock_skew) - plan.clock_skew;
        let rate = f64::from(u32::try_from(thousandths).unwrap_or(1_000)) / 1_000.0;
        let life = Life {
            elections: of_process(&site.server, &name, (&link, plan.rate)),
            clients: of_controllers(&site.server, &name, (&link, plan.rate)),
            slots: slots.clone(),
            ownership: site.ownership.clone(),
            settings: plan.settings.clone(),
            retaining: plan.retaining,
            clock: ReplicaClock { began: Instant::now(), rate, time_of_day },
            name: name.clone(),
            stop: stop.clone(),
            story: site.story.clone(),
        };
        spawn(life.run().boxed());
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

    /// Whether the slot of this provider refuses this release for good, and not for the
    /// cloud-config, which [`Vendor::may_stay`](crate::vendor::Vendor::may_stay) compares.
    pub(crate) fn refuses(&self, provider: usize, digest: &str) -> bool {
        let status = self.slots.get(provider).map(|served| served.slot.status());
        status.is_some_and(|status| {
            let status = status.borrow();
            let serves = status.active.as_ref().is_some_and(|active| active.digest == digest);
            let refused = status.refused.as_ref().filter(|refusal| refusal.digest == digest);
            let for_good =
                |refusal: &Refusal| refusal.lasting && refusal.code != RefusalReason::ConfigRefused.category();
            !serves && refused.is_some_and(for_good)
        })
    }

    /// What is wrong with the slots after the last offers.
    pub(crate) fn wrong_slots(&self, sources: &[Source]) -> Vec<String> {
        let wrong = |(served, source): (&Served, &Source)| {
            let (status, name) = (served.slot.status().borrow().clone(), &served.slot.name);
            let Some(newest) = source.newest() else { return Some(format!("{name} has a source that fails")) };
            let serves = status.active.as_ref().map(|active| active.digest.as_str());
            if serves != Some(&*newest.digest) {
                let serves = status.active.map(|active| active.origin);
                return Some(format!("{name} serves {serves:?}, and the newest offer is {}", newest.offer.origin));
            }
            if status.canary.is_some() || status.candidate.is_some() || status.probation.is_some() {
                return Some(format!("{name} has not ended its rollout"));
            }
            if let Some(failure) = status.source_failure {
                return Some(format!("{name} says that {}", failure.reason));
            }
            if let Some(refusal) = status.refused.filter(|refusal| !refusal.lasting) {
                return Some(format!(
                    "{name} has not tried again what was not the release's fault: {}",
                    refusal.reason
                ));
            }
            if served.slot.keeps_questions() != source.conf.borrow().shadow.is_some() {
                return Some(format!("{name} keeps questions without need, or does not keep them"));
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

/// The name of the provider of this cloud, by its place in [`Site::clouds`].
pub(crate) fn provider_name(cloud: usize) -> String {
    format!("p{cloud}")
}

/// The current providers, oldest first.
fn providers(slots: &[Served], (ownership, retaining): (Ownership, Option<usize>)) -> Providers {
    let there = [true, ownership.second, ownership.younger];
    let entry = |(index, (slot, _)): (usize, (&Served, bool))| ProviderEntry {
        default: index == 0,
        node_selector: match index {
            1 if ownership.selector => [(CLOUD_LABEL.to_owned(), "second".to_owned())].into(),
            2 => [(BY_HAND.to_owned(), "yes".to_owned())].into(),
            _ => [].into(),
        },
        load_balancer_classes: match index {
            1 if ownership.class => vec![CLASS.to_owned()],
            2 => vec![CLASS.to_owned()],
            _ => Vec::new(),
        },
        provider_id_schemes: (index == 0 && ownership.pinned).then(|| vec!["first".to_owned()]),
        addresses: if index == 1 && !ownership.any_address {
            ProviderAddresses::new(&["100.65.0.0/16".to_owned()], &[]).unwrap()
        } else {
            ProviderAddresses::default()
        },
        paused: ownership.paused == Some(index),
        deletion_policy: if retaining == Some(index) { DeletionPolicy::Retain } else { DeletionPolicy::Delete },
        generation: slot.generation.subscribe(),
        rotations: slot.rotations.clone(),
        ..ProviderEntry::new(provider_name(index), Arc::clone(&slot.provider) as Arc<_>)
    };
    Providers::new(slots.iter().zip(there).enumerate().filter(|(_, (_, there))| *there).map(entry).collect()).unwrap()
}

/// The task of the process.
struct Life {
    elections: kube::Client,
    clients: Clients,
    slots: Vec<Served>,
    ownership: watch::Receiver<Ownership>,
    settings: ControllerSettings,
    /// See [`Plan::retaining`].
    retaining: Option<usize>,
    clock: ReplicaClock,
    name: String,
    stop: CancellationToken,
    story: Story,
}

impl Life {
    /// Runs the process; returns the reason of its end. Invariant: a process that cancelled calls
    /// after SIGTERM does not say that all ended.
    async fn run(self) -> String {
        let Self { elections, clients, slots, mut ownership, settings, retaining, clock, name, stop, story } = self;
        let config = ElectionConfig {
            namespace: "kube-system".to_owned(),
            lease: LEASE.to_owned(),
            identity: name.clone(),
            timing: Timing::default(),
        };
        let mut registry = Registry::default();
        let metrics = ElectionMetrics::register(&mut registry);
        let elector = Elector::new(ElectorOptions { client: elections, config, clock: Arc::new(clock), metrics });
        let Some(mut leader) = elector.acquire(&stop).await else { return "is stopped".to_owned() };
        story.tell(&name, "leads");
        let fence = leader.fence().clone();
        let metrics = ControllerMetrics::register(&mut registry);
        let clients = clients.map(|client| fenced(client, fence.clone()));
        let known = watch::Sender::new(providers(&slots, (*ownership.borrow_and_update(), retaining)));
        let manager = Manager::new(clients, known.subscribe(), settings, metrics, Ledger::default()).fenced(fence);
        let (mut running, mut stopped) = (pin!(manager.run(stop.clone())), None);
        let ending = loop {
            tokio::select! {
                biased;
                lost = leader.lost() => return lost.to_string(),
                () = stop.cancelled(), if stopped.is_none() => stopped = Some(Instant::now()),
                ending = &mut running => break ending,
                Ok(()) = ownership.changed() => {
                    story.tell(&name, "takes up other claims");
                    known.send_replace(providers(&slots, (*ownership.borrow_and_update(), retaining)));
                }
            }
        };
        let cancels = |served: &Served| stopped.is_some_and(|time| served.slot.has_cancelled_since(time));
        if matches!(ending, Ok(Ending::Clean)) && slots.iter().any(cancels) {
            story.violate(format_args!("{name} cancelled calls at its end, and says that all ended"));
        }
        match ending {
            Err(error) => panic!("{name}: {error}"),
            // As in `skysail run`: requests of cancelled calls may still arrive, so the process
            // does not release the lease but lets it expire.
            Ok(Ending::CutOff) => "is stopped, cut off".to_owned(),
            Ok(Ending::Clean) => format!("is stopped: {:?}", leader.release().await),
        }
    }
}
