//! Runs all controllers for all providers: watches, queues, periods, shutdown.
//!
//! # Guarantees
//! - No controller acts before the first lists are complete.
//! - Each provider has its own queues and tasks: a provider that hangs delays only its own objects.
//! - A shutdown starts nothing new, waits for running calls
//!   ([`ControllerSettings::shutdown_grace`]), then writes the queued Events.
//! - If a task ends unexpectedly, the whole manager ends and names the task.

use std::{future::pending, sync::Arc, time::Duration};

use futures::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
};
use k8s_openapi::api::core::v1 as core;
use kube::{
    Api,
    runtime::{WatchStreamExt as _, watcher},
};
use skysail_provider::Fence;
use tokio::{
    sync::{Notify, broadcast, mpsc, watch::Receiver},
    task::JoinSet,
    time::{timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clients::Clients,
    context::Context,
    error::chain,
    events::{Events, Recorder, Waiting},
    explain::Explainer,
    lane::Lane,
    lanes::Changes,
    ledger::Ledger,
    metrics::ControllerMetrics,
    names::{RETAINED_CONFIG_MAP, controllers},
    node, node_lifecycle,
    progress::{Progress, Work},
    providers::Providers,
    report::{Activity, Reporter},
    route, service,
    settings::ControllerSettings,
    starts::{Starts, after},
    triggers, trim, watch,
    watch_backoff::WatchBackoff,
};

/// Objects of one page of a list; client-go asks for 500. A whole node is some tens of KiB, of
/// which the cache keeps a fraction; the freed memory of a page stays fragmented in the heap for
/// the life of the process.
const LIST_PAGE: u32 = 100;
/// How long the node controller waits for the first list of Services: lists of large clusters take
/// seconds.
const CLUSTER_IPS_PATIENCE: Duration = Duration::from_secs(10);
/// Pause before another read of the ConfigMap of retained load balancers.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// How long a shutdown waits for queued Events. The lease is released after that: the next leader
/// must not wait for best-effort Events.
const EVENTS_GRACE: Duration = Duration::from_millis(500);

/// All controllers for all providers.
pub struct Manager {
    context: Context,
    providers: Receiver<Providers>,
    notices: mpsc::Receiver<Waiting>,
    explainer: Explainer,
}

/// Why the manager ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// A task that runs for ever ended.
    #[error("the task {0:?} ended although it was not stopped; this is a bug in Skysail")]
    TaskEnded(String),
    /// A task panicked.
    #[error("a task panicked; this is a bug in Skysail: report it with the log")]
    Panicked(#[source] tokio::task::JoinError),
}

/// How a manager ended after it was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All calls ended.
    Clean,
    /// Running calls were cancelled. Their requests may still reach a cloud, so no other replica
    /// may become leader before the lease expires.
    CutOff,
}

impl Manager {
    /// Creates the controllers without starting them. The controllers follow the providers: an edit
    /// updates them in place and restarts nothing. A manager that follows another one in the same
    /// process receives its predecessor's ledger and starts after its predecessor ended.
    #[must_use]
    pub fn new(
        clients: impl Into<Clients>,
        providers: Receiver<Providers>,
        settings: ControllerSettings,
        metrics: ControllerMetrics,
        ledger: Ledger,
    ) -> Self {
        let (events, notices) = Events::new(metrics.clone());
        let reporter = Reporter::new(events, metrics);
        let context = Context::new(clients.into(), settings, reporter, ledger);
        Self { context, providers, notices, explainer: Explainer::default() }
    }

    /// Allows calls of providers only while this fence is open. The creator of the clients fences
    /// the clients' writes.
    #[must_use]
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.context.fence = fence;
        self
    }

    /// Records the work of each worker in `progress`.
    #[must_use]
    pub fn observed(mut self, progress: Progress) -> Self {
        self.context.progress = progress;
        self
    }

    /// Lets `explainer` explain objects while this manager runs the service controller.
    #[must_use]
    pub fn explained(mut self, explainer: Explainer) -> Self {
        self.explainer = explainer;
        self
    }

    /// A live feed of reconciles. A slow reader misses entries.
    #[must_use]
    pub fn activity(&self) -> broadcast::Receiver<Activity> {
        self.context.reporter.activity()
    }

    /// Runs until `stop`, then waits for running calls; returns whether calls had to be cancelled.
    ///
    /// # Errors
    /// A task panicked or ended by itself. An error from the API or from a provider never ends the
    /// manager.
    pub async fn run(self, stop: CancellationToken) -> Result<Ending, ManagerError> {
        let Self { context, mut providers, notices, explainer } = self;
        let context = Arc::new(context);
        if context.settings.controllers.service {
            explainer.attach(&context);
        }
        let grace = context.settings.shutdown_grace;
        let recorder = Recorder::new(context.clients.clone(), context.reporter.metrics.clone());
        let events_stop = CancellationToken::new();
        let mut recording = JoinSet::new();
        recording.spawn(recorder.run(notices, events_stop.clone()));

        let mut tasks = Tasks { context: Arc::clone(&context), running: JoinSet::new(), stop: stop.clone() };
        tasks.watch_all();
        let known = providers.borrow_and_update().clone();
        tasks.follow(&known, &Starts::new(&context.settings));
        let result = loop {
            tokio::select! {
                ended = tasks.running.join_next() => match ended.map(judge) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => break Err(error),
                    None => break Ok(Ending::Clean),
                },
                Ok(()) = providers.changed() => {
                    let known = providers.borrow_and_update().clone();
                    tasks.follow(&known, &Starts::default());
                }
                () = stop.cancelled() => break match timeout(grace, all_ended(&mut tasks.running)).await {
                    Ok(result) => result.map(|()| Ending::Clean),
                    Err(_elapsed) => {
                        tracing::warn!(grace_ms = grace.as_millis(), "calls still ran at the end of the shutdown grace period and are cancelled");
                        Ok(Ending::CutOff)
                    }
                },
            }
        };
        // Dropping the tasks aborts them and their calls.
        drop(tasks);
        events_stop.cancel();
        if timeout(EVENTS_GRACE, recording.join_all()).await.is_err() {
            tracing::warn!("the shutdown ended before all Events were written");
        }
        result
    }
}

/// A task that has ended.
struct Ended {
    name: String,
    /// Whether the task was stopped.
    expected: bool,
}

fn judge(ended: Result<Ended, tokio::task::JoinError>) -> Result<(), ManagerError> {
    match ended {
        Ok(Ended { expected: true, .. }) => Ok(()),
        Ok(Ended { name, .. }) => Err(ManagerError::TaskEnded(name)),
        Err(error) => Err(ManagerError::Panicked(error)),
    }
}

/// Waits for all tasks, or for the first one that ends by itself or panics.
async fn all_ended(running: &mut JoinSet<Ended>) -> Result<(), ManagerError> {
    while let Some(ended) = running.join_next().await {
        judge(ended)?;
    }
    Ok(())
}

/// The tasks of a manager: the watches, and those of each lane.
struct Tasks {
    context: Arc<Context>,
    running: JoinSet<Ended>,
    stop: CancellationToken,
}

impl Tasks {
    fn watch_all(&mut self) {
        let enabled = self.context.settings.controllers;
        let shared = || (Arc::clone(&self.context), self.stop.clone());
        let progress = &self.context.progress;
        // Without providers this watch alone keeps the manager running.
        progress.watches("nodes", self.context.nodes_synced.subscribe());
        let nodes = watch_nodes(shared());
        // The node controller checks node addresses against the cluster IPs.
        let services = (enabled.service || enabled.cloud_node).then(|| {
            progress.watches("Services", self.context.services.synced());
            watch_services(shared())
        });
        let retained = enabled.service.then(|| {
            progress.watches("the ConfigMap of retained load balancers", self.context.retained.synced());
            watch_retained(shared())
        });
        let stop = self.stop.clone();
        self.spawn("watch nodes".to_owned(), stop.clone(), nodes);
        if let Some(services) = services {
            self.spawn("watch services".to_owned(), stop.clone(), services);
        }
        if let Some(retained) = retained {
            self.spawn("watch retained load balancers".to_owned(), stop, retained);
        }
    }

    /// Applies another set of providers. Calls of a removed provider run to their end.
    fn follow(&mut self, providers: &Providers, starts: &Starts) {
        let context = Arc::clone(&self.context);
        let before = triggers::service_owners(&context);
        let Changes { added, removed, edited } = context.lanes.follow(providers, |id, entry| {
            context.ledger.unsettle_all(&entry.name);
            Lane::new(id, entry, &context.settings, &context.reporter.metrics, self.stop.child_token())
        });
        for lane in removed {
            lane.stop.cancel();
            context.pauses.remove_all(&lane.name);
            context.held_deletions.remove_all(&lane.name);
        }
        triggers::providers_changed(&context, &edited, &before);
        for lane in added {
            self.serve(&lane, starts);
        }
    }

    /// Starts the tasks of a lane.
    fn serve(&mut self, lane: &Arc<Lane>, starts: &Starts) {
        let context = Arc::clone(&self.context);
        let (settings, enabled) = (&context.settings, context.settings.controllers);
        let shared = || (Arc::clone(&self.context), Arc::clone(lane));
        let mut spawn = |task: &str, start, future: BoxFuture<'static, ()>| {
            let stop = lane.stop.clone();
            self.running.spawn(ended(format!("{task} of {}", lane.name), stop.clone(), after(start, stop, future)));
        };
        spawn("releases", Duration::ZERO, follow_releases(shared()).boxed());
        if enabled.service {
            spawn("node set", Duration::ZERO, keep_node_set(shared()).boxed());
            spawn("services", starts.service, serve_services(shared()).boxed());
            if !settings.drift_repair_period.is_zero() {
                spawn("drift repair", starts.service, serve_drift(shared()).boxed());
            }
            if !settings.orphan_scan_period.is_zero() {
                spawn("orphans", Duration::ZERO, serve_orphans(shared()).boxed());
            }
        }
        if enabled.cloud_node {
            spawn("nodes", starts.cloud_node, serve_nodes(shared()).boxed());
            spawn("addresses", starts.cloud_node, serve_addresses(shared()).boxed());
        }
        if enabled.cloud_node_lifecycle {
            spawn("node lifecycle", starts.cloud_node_lifecycle, serve_lifecycle(shared()).boxed());
        }
        if settings.routes_enabled() {
            spawn("routes", starts.route, route::serve(shared()).boxed());
        }
    }

    fn spawn(&mut self, name: String, stop: CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(ended(name, stop, task));
    }
}

async fn ended(name: String, stop: CancellationToken, task: impl Future<Output = ()>) -> Ended {
    task.await;
    Ended { name, expected: stop.is_cancelled() }
}

type Shared = (Arc<Context>, Arc<Lane>);

async fn watch_nodes((context, stop): (Arc<Context>, CancellationToken)) {
    // `Nodes` holds the nodes; this cache holds their versions.
    let cache = watch::Cache::<core::Node, watch::Version>::new();
    let events = watcher(
        Api::<core::Node>::all(context.clients.shared_informers.clone()),
        watcher::Config::default().page_size(LIST_PAGE),
    )
    .backoff(WatchBackoff::default())
    .modify(trim::trim_node);
    let mut synced = cache.synced();
    let follow = cache.follow(events.boxed(), |change| triggers::node_changed(&context, change));
    let announce = async {
        // `cache` owns the sender and outlives this future.
        if synced.wait_for(|synced| *synced).await.is_ok() {
            context.nodes_synced.send_replace(true);
        }
        pending::<()>().await;
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = follow => {}
        () = announce => {}
    }
}

async fn watch_services((context, stop): (Arc<Context>, CancellationToken)) {
    let events = watcher(
        Api::<core::Service>::all(context.clients.shared_informers.clone()),
        watcher::Config::default().page_size(LIST_PAGE),
    )
    .backoff(WatchBackoff::default())
    .modify(trim::trim_service);
    let follow = context.services.follow(events.boxed(), |change| triggers::service_changed(&context, &change));
    stop.run_until_cancelled(follow).await;
}

/// Follows the ConfigMap of retained load balancers, which may not exist. A list may be old, so the
/// first state, and that the ConfigMap is gone, come from a read.
async fn watch_retained((context, stop): (Arc<Context>, CancellationToken)) {
    let api = Api::<core::ConfigMap>::namespaced(context.clients.shared_informers.clone(), &context.settings.namespace);
    let named = watcher::Config::default().fields(&format!("metadata.name={RETAINED_CONFIG_MAP}"));
    let events = watcher(api.clone(), named).backoff(WatchBackoff::default());
    // `Retained` holds the records; this cache holds the version.
    let cache = watch::Cache::<core::ConfigMap, watch::Version>::new();
    let absent = Notify::new();
    let follow = cache.follow(events.boxed(), |change| match &change.new {
        Some(object) => context.retained.follow(Some(object)),
        None => absent.notify_one(),
    });
    let read = async {
        loop {
            match api.get_opt(RETAINED_CONFIG_MAP).await {
                Ok(object) => {
                    context.retained.follow(object.as_ref());
                    context.retained.listed();
                    absent.notified().await;
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(error, "cannot read the ConfigMap {RETAINED_CONFIG_MAP}; it is read again");
                    drop(timeout(READ_AGAIN, pending::<()>()).await);
                }
            }
        }
    };
    let wake = async {
        loop {
            let changed = context.retained.changed().await;
            triggers::records_changed(&context, &changed);
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = follow => {}
        () = read => {}
        () = wake => {}
    }
}

/// Waits until the first list of nodes is complete; false when stopped before.
async fn nodes_synced(context: &Context, stop: &CancellationToken) -> bool {
    let mut nodes = context.nodes_synced.subscribe();
    stop.run_until_cancelled(nodes.wait_for(|synced| *synced)).await.is_some_and(|synced| synced.is_ok())
}

/// Waits for the first lists of nodes, of Services and of retained load balancers; false when
/// stopped before.
async fn all_synced(context: &Context, stop: &CancellationToken) -> bool {
    let (mut services, mut retained) = (context.services.synced(), context.retained.synced());
    let lists = async { services.wait_for(|synced| *synced).await.is_ok() && retained.wait_for(|s| *s).await.is_ok() };
    nodes_synced(context, stop).await && stop.run_until_cancelled(lists).await == Some(true)
}

/// The node controller compares the addresses of nodes with the cluster IPs of Services. The wait
/// for the first list of Services is bounded: without the permission to list Services, new nodes
/// would keep their taint.
async fn nodes_synced_and_cluster_ips(context: &Context, stop: &CancellationToken) -> bool {
    let mut services = context.services.synced();
    let listed = async {
        drop(timeout(CLUSTER_IPS_PATIENCE, services.wait_for(|synced| *synced)).await);
    };
    nodes_synced(context, stop).await && stop.run_until_cancelled(listed).await.is_some()
}

/// The first node set is published before the first Service is reconciled, so that no Service
/// reports "no nodes" only because the manager has just started.
async fn keep_node_set((context, lane): Shared) {
    if !all_synced(&context, &lane.stop).await {
        return;
    }
    let published = || triggers::node_set_published(&context, &lane);
    context.nodes.publish(lane.id);
    published();
    lane.published.send_replace(true);
    context.nodes.keep_published(lane.id, &context.settings, &lane.stop, published).await;
}

async fn follow_releases((context, lane): Shared) {
    let (mut releases, mut rotations) = (lane.releases.clone(), lane.rotations.clone());
    triggers::report_claims(&context);
    triggers::report_component(&context, &lane);
    triggers::report_first_pause(&context, &lane);
    let mut is_awaited = true;
    loop {
        // A removed slot closes its channel; the pattern then does not match.
        tokio::select! {
            () = lane.stop.cancelled() => return,
            Ok(()) = releases.changed() => {
                triggers::report_claims(&context);
                triggers::report_component(&context, &lane);
                triggers::release_changed(&context, &lane);
            }
            Ok(()) = rotations.changed() => triggers::credentials_rotated(&context, &lane),
            _elapsed = timeout_at(lane.first_release_deadline(), pending::<()>()), if is_awaited => {
                is_awaited = false;
                triggers::report_claims(&context);
            }
        }
    }
}

async fn serve_services((context, lane): Shared) {
    let mut published = lane.published.subscribe();
    if lane.stop.run_until_cancelled(published.wait_for(|published| *published)).await.is_none() {
        return;
    }
    triggers::records_known(&context, &lane);
    let mut running = JoinSet::new();
    loop {
        let queue = &lane.services;
        // A provider that changes one Service at a time gets one at a time: the others wait in the
        // queue, and no worker waits in a call.
        let is_serial = lane.provider.info().is_some_and(|info| info.serial_load_balancers);
        let at_once = if is_serial { 1 } else { context.settings.concurrent_service_syncs.max(1) };
        tokio::select! {
            () = lane.stop.cancelled() => break,
            Some(ended) = running.join_next() => propagate(ended),
            key = queue.next(), if running.len() < at_once => {
                let (context, lane) = (Arc::clone(&context), Arc::clone(&lane));
                running.spawn(async move {
                    let turn = service::run(&context, &lane, &key);
                    let next = context.turn(&lane, Work::Service(&key), turn).await;
                    lane.services.done(key, next);
                });
            }
        }
    }
    while let Some(ended) = running.join_next().await {
        propagate(ended);
    }
}

async fn serve_drift((context, lane): Shared) {
    service::drift::run(&context, &lane, &lane.stop).await;
}

async fn serve_orphans((context, lane): Shared) {
    if all_synced(&context, &lane.stop).await {
        service::orphans::run(&context, &lane, &lane.stop).await;
    }
}

/// A panic is a bug in Skysail. The object would stay marked as running, so the process must not
/// continue.
fn propagate(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

async fn serve_nodes((context, lane): Shared) {
    if !nodes_synced_and_cluster_ips(&context, &lane.stop).await {
        return;
    }
    let queue = &lane.nodes;
    while lane.stop.run_until_cancelled(queue.ready()).await.is_some() {
        // Nodes that arrive within the window share a call.
        if timeout(context.settings.node_batch_window, lane.stop.cancelled()).await.is_ok() {
            return;
        }
        let names: Vec<String> = std::iter::from_fn(|| queue.try_next()).collect();
        let work = Work::Pass(controllers::CLOUD_NODE, "initialisation of nodes");
        context.turn(&lane, work, node::run(&context, &lane, names)).await;
    }
}

async fn serve_addresses((context, lane): Shared) {
    if !nodes_synced_and_cluster_ips(&context, &lane.stop).await {
        return;
    }
    let wake = &lane.passes;
    loop {
        let work = Work::Pass(controllers::CLOUD_NODE, "update of nodes' addresses");
        context.turn(&lane, work, node::update_all(&context, &lane)).await;
        let period = context.settings.node_status_update_frequency;
        // The next pass begins when the period ends or a trigger asks for it.
        if lane.stop.run_until_cancelled(timeout(period, wake.notified())).await.is_none() {
            return;
        }
    }
}

async fn serve_lifecycle((context, lane): Shared) {
    if !nodes_synced(&context, &lane.stop).await {
        return;
    }
    let mut state = node_lifecycle::LifecycleState::new();
    loop {
        let pass = node_lifecycle::run(&context, &lane, &mut state);
        context.turn(&lane, Work::Pass(controllers::CLOUD_NODE_LIFECYCLE, "node lifecycle"), pass).await;
        if timeout(context.settings.node_monitor_period, lane.stop.cancelled()).await.is_ok() {
            return;
        }
    }
}
