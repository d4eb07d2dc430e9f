//! Tests of the controllers in the process: an edit or a removal of the providers, a shutdown right
//! after it, and a worker that makes no progress.

use std::{
    iter,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use kube::{Api, api::PostParams};
use prometheus_client::registry::Registry;
use serde_json::json;
use skysail_controllers::{Clients, ControllerMetrics, ControllerSettings, Explainer, ProviderEntry, Providers};
use skysail_dev::api::{ApiOptions, ApiServer};
use skysail_provider::{Fence, fake::FakeProvider};
use skysail_serving::HealthChecks;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Beats, Health, Manage};
use crate::leadership::LeaseControllers;

/// The grace of a shutdown.
const GRACE: Duration = Duration::from_secs(10);
/// How long a worker may take for one step, without the time of a call.
const STEP: Duration = Duration::from_mins(3);

/// A manager whose cloud needs a time for each `ensure`, and one Service.
struct World {
    fake: Arc<FakeProvider>,
    /// Number of calls of `ensure` that ended.
    ended: Arc<AtomicU64>,
    edits: mpsc::Sender<Providers>,
    livez: HealthChecks,
    stop: CancellationToken,
    /// The manager, which runs while it is polled.
    running: Pin<Box<dyn Future<Output = anyhow::Result<()>>>>,
}

fn providers(provider: &Arc<FakeProvider>, class: &str) -> Providers {
    let entry = ProviderEntry {
        default: true,
        load_balancer_classes: vec![class.to_owned()],
        ..ProviderEntry::new("sim", Arc::clone(provider) as _)
    };
    Providers::new(vec![entry]).unwrap()
}

impl World {
    /// Starts the manager, and returns while the first `ensure` runs, which takes this time.
    async fn start(takes: Duration) -> Self {
        let server = ApiServer::new(&ApiOptions::default());
        let (fake, ended) = (Arc::new(FakeProvider::new("sim")), Arc::<AtomicU64>::default());
        let count = Arc::clone(&ended);
        fake.on_call(move |line| {
            let (count, is_ensure) = (Arc::clone(&count), line.starts_with("ensure "));
            Box::pin(async move {
                if is_ensure {
                    sleep(takes).await;
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        let (mut registry, beats) = (Registry::default(), Beats::new());
        let (claims, _) = watch::channel(providers(&fake, "one"));
        let stop = CancellationToken::new();
        let settings = ControllerSettings { shutdown_grace: GRACE, ..ControllerSettings::default() };
        let share = LeaseControllers::new(settings.controllers, watch::channel(Some(Fence::default())).1, None);
        let manage = Manage {
            clients: Clients::from(server.client()),
            settings,
            shares: vec![share],
            metrics: ControllerMetrics::register(&mut registry),
            health: Health::register(&mut registry, Vec::new(), watch::channel(None).1, beats.clone()),
            explainer: Explainer::default(),
            claims,
            stop: stop.clone(),
        };
        manage.health.serve(iter::empty(), &watch::channel(Vec::new()).1, None);
        let livez = manage.health.livez.clone();
        let (edits, mut edited) = mpsc::channel(1);
        let running = Box::pin(async move {
            let next = async || Ok(edited.recv().await.unwrap());
            let mut none = JoinSet::new();
            tokio::select! {
                ended = manage.control(&mut none, next) => ended,
                () = beats.run() => unreachable!("the heartbeat does not end"),
            }
        });
        let services: Api<Service> = Api::namespaced(server.client(), "default");
        let object =
            json!({ "metadata": { "name": "web" }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
        services.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let mut world = Self { fake, ended, edits, livez, stop, running };
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(world.calls(), (1, 0));
        world
    }

    /// Lets the manager run for this time.
    async fn pass(&mut self, time: Duration) {
        assert!(timeout(time, &mut self.running).await.is_err(), "the manager ended");
    }

    /// An operator changes the claims of the provider.
    async fn edit(&mut self) {
        self.edits.send(providers(&self.fake, "two")).await.unwrap();
        self.pass(Duration::from_millis(100)).await;
    }

    /// An operator removes the provider.
    async fn remove(&mut self) {
        self.edits.send(Providers::new(Vec::new()).unwrap()).await.unwrap();
        self.pass(Duration::from_millis(100)).await;
    }

    /// Number of calls of `ensure` that began, and of those that ended.
    fn calls(&self) -> (usize, u64) {
        let begun = self.fake.calls().iter().filter(|call| call.starts_with("ensure ")).count();
        (begun, self.ended.load(Ordering::SeqCst))
    }

    /// Stops the manager; returns how it ended, and after which time.
    async fn shut_down(&mut self) -> (anyhow::Result<()>, Duration) {
        let stopped = Instant::now();
        self.stop.cancel();
        let ended = (&mut self.running).await;
        (ended, stopped.elapsed())
    }
}

/// Regression: an edit restarted the controllers, which aborted an `ensure` of more than ten
/// seconds and began it again.
#[tokio::test(start_paused = true)]
async fn an_edit_of_the_claims_neither_aborts_nor_repeats_a_long_call() {
    let mut world = World::start(3 * GRACE).await;
    world.edit().await;
    world.pass(6 * GRACE).await;
    assert_eq!(world.calls(), (1, 1));
    world.shut_down().await.0.unwrap();
}

/// The Lease is released only after an end without an error.
#[tokio::test(start_paused = true)]
async fn a_shutdown_right_after_an_edit_waits_for_the_grace_and_reports_a_call_that_was_cut_off() {
    let mut world = World::start(9 * GRACE).await;
    world.edit().await;
    let (ended, after) = world.shut_down().await;
    assert_eq!(after, GRACE);
    assert!(ended.unwrap_err().to_string().contains("the Lease is not released and expires"));
    assert_eq!(world.calls(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_right_after_an_edit_waits_for_a_call_that_ends_within_the_grace() {
    let mut world = World::start(Duration::from_secs(8)).await;
    world.edit().await;
    let (ended, after) = world.shut_down().await;
    ended.unwrap();
    assert!(after < GRACE, "{after:?}");
    assert_eq!(world.calls(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_call_of_a_removed_provider_and_reports_one_that_was_cut_off() {
    let mut world = World::start(Duration::from_secs(8)).await;
    world.remove().await;
    let (ended, after) = world.shut_down().await;
    ended.unwrap();
    assert!(after < GRACE, "{after:?}");
    assert_eq!(world.calls(), (1, 1));
    let mut world = World::start(9 * GRACE).await;
    world.remove().await;
    let (ended, after) = world.shut_down().await;
    assert_eq!(after, GRACE);
    assert!(ended.unwrap_err().to_string().contains("the Lease is not released and expires"));
    assert_eq!(world.calls(), (1, 0));
}

/// Regression: no test failed where the controllers recorded no progress, or `/livez` did not look
/// at it.
#[tokio::test(start_paused = true)]
async fn livez_fails_and_names_the_service_whose_call_does_not_end() {
    let mut world = World::start(100 * STEP).await;
    let second = Duration::from_secs(1);
    world.pass(STEP - 2 * second).await;
    assert_eq!(world.livez.failures(), Vec::<String>::new());
    world.pass(2 * second).await;
    let told = "controllers: the Service default/web of the provider sim has made no progress for 181 s";
    assert_eq!(world.livez.failures(), [told]);
    world.stop.cancel();
}
