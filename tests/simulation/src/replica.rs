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
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    Plan, Referee,
    chance::Chance,
    client::of_process,
    clock::wait,
    cloud::Cloud,
    link::{Link, Requests},
    operator::Ownership,
    provider::CloudProvider,
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

/// State that all processes share.
pub(crate) struct Site {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) clouds: Vec<Arc<Cloud>>,
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
    slots: Vec<Slot>,
    tasks: JoinSet<String>,
}

/// One provider of a process.
#[derive(Clone)]
struct Slot {
    provider: Arc<CloudProvider>,
    generation: watch::Sender<u64>,
}

impl Slot {
    fn become_active(&self) {
        self.provider.serve(true);
        self.generation.send_modify(|generation| *generation += 1);
    }
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
        let process = || (name.as_str(), Arc::clone(&link));
        let slot = |cloud: &Arc<Cloud>| Slot {
            provider: Arc::new(CloudProvider::new(Arc::clone(cloud), process(), Arc::clone(&site.referee))),
            generation: watch::Sender::new(0),
        };
        let slots: Vec<Slot> = site.clouds.iter().map(slot).collect();
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
        let mut tasks = JoinSet::new();
        for slot in slots.clone() {
            let compiling = chance.milliseconds(0..=5_000);
            tasks.spawn(async move {
                wait(compiling).await;
                slot.become_active();
                std::future::pending().await
            });
        }
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

    /// A new release of each provider becomes active.
    pub(crate) fn swap(&self) {
        self.slots.iter().for_each(Slot::become_active);
    }

    /// No release serves for a while.
    pub(crate) fn withdraw_release(&mut self, cloud: usize, time: Duration) {
        let Some(slot) = self.slots.get(cloud).cloned() else { return };
        slot.provider.serve(false);
        self.tasks.spawn(async move {
            wait(time).await;
            slot.become_active();
            std::future::pending().await
        });
    }
}

/// The name of the provider of this cloud, by its place in [`Site::clouds`].
pub(crate) fn provider_name(cloud: usize) -> String {
    format!("p{cloud}")
}

/// The current providers, oldest first.
fn providers(slots: &[Slot], ownership: Ownership) -> Providers {
    let there = [true, ownership.second, ownership.younger];
    let entry = |(index, (slot, _)): (usize, (&Slot, bool))| ProviderEntry {
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
    slots: Vec<Slot>,
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
