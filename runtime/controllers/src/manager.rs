//! Runs all controllers for all providers: watches, queues, periods, shutdown.
//!
//! # Guarantees
//! - Nothing acts before the first lists are complete.
//! - Each provider has its own queues and tasks: one that hangs holds up its own objects only.
//! - A shutdown starts nothing new, waits for what runs ([`ControllerSettings::shutdown_grace`]), then writes the Events that wait.
//! - When a task ends that should not, the whole manager ends and says which.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1 as core;
use kube::{
    Api,
    runtime::{WatchStreamExt as _, watcher},
};
use skysail_provider::Fence;
use tokio::{
    sync::{broadcast, mpsc},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clients::Clients,
    context::Context,
    events::{Events, Recorder, Waiting},
    metrics::ControllerMetrics,
    node, node_lifecycle,
    providers::Providers,
    report::{Activity, Reporter},
    route,
    service::{self, ledger::Ledger},
    settings::ControllerSettings,
    starts::{Starts, after},
    triggers, trim, watch,
};

/// Objects of one page of a list. A whole node is some tens of KiB, of which a fraction is kept: what a page leaves behind, holes in the heap, stays for the
/// life of the process. client-go asks for 500.
const LIST_PAGE: u32 = 100;
/// How long the node controller waits for the first list of Services: lists of large clusters take seconds.
const CLUSTER_IPS_PATIENCE: Duration = Duration::from_secs(10);
/// How long a shutdown waits for the Events that are still to be written. The lease is given back after it: the next one must not wait for a courtesy.
const EVENTS_GRACE: Duration = Duration::from_millis(500);

/// All controllers for all providers.
pub struct Manager {
    context: Context,
    notices: mpsc::Receiver<Waiting>,
}

/// Why the manager ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// A task that runs for ever ended.
    #[error("the task {0:?} ended although nobody stopped it")]
    TaskEnded(String),
    /// A task panicked.
    #[error("a task panicked")]
    Panicked(#[source] tokio::task::JoinError),
}

/// How a manager ended that was told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing of it is under way any more.
    Clean,
    /// Calls were cancelled: what they sent to a cloud may still arrive, so that nobody else may begin before the lease has run out.
    CutOff,
}

impl Manager {
    /// Puts the controllers together; nothing runs yet. A manager that follows another in the same process gets that one's ledger, and does not
    /// begin before that one has ended.
    #[must_use]
    pub fn new(
        clients: impl Into<Clients>,
        providers: Providers,
        settings: ControllerSettings,
        metrics: ControllerMetrics,
        ledger: Ledger,
    ) -> Self {
        let (events, notices) = Events::new(metrics.clone());
        let reporter = Reporter::new(events, metrics);
        Self { context: Context::new(clients.into(), providers, settings, reporter, ledger), notices }
    }

    /// Lets providers be called only while this fence is open; the client's own writes are fenced by whoever made it.
    #[must_use]
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.context.fence = fence;
        self
    }

    /// What is done to which object, live. A reader that is slow misses lines.
    #[must_use]
    pub fn activity(&self) -> broadcast::Receiver<Activity> {
        self.context.reporter.activity()
    }

    /// Runs until `stop`, then ends what is in flight, and says whether it had to be cut off.
    ///
    /// # Errors
    /// A task panicked or ended by itself. What the API or a provider answers is never an error here.
    pub async fn run(self, stop: CancellationToken) -> Result<Ending, ManagerError> {
        let Self { context, notices } = self;
        let context = Arc::new(context);
        let grace = context.settings.shutdown_grace;
        let recorder = Recorder::new(context.clients.clone(), context.reporter.metrics.clone());
        let events_stop = CancellationToken::new();
        let mut recording = JoinSet::new();
        recording.spawn(recorder.run(notices, events_stop.clone()));

        let mut tasks = JoinSet::new();
        spawn_all(&mut tasks, &context, &stop);
        let result = tokio::select! {
            result = all_ended(&mut tasks, &stop) => result.map(|()| Ending::Clean),
            () = stop.cancelled() => match timeout(grace, all_ended(&mut tasks, &stop)).await {
                Ok(result) => result.map(|()| Ending::Clean),
                Err(_elapsed) => {
                    tracing::warn!(grace_ms = grace.as_millis(), "calls still in flight are cancelled");
                    Ok(Ending::CutOff)
                }
            },
        };
        // Dropped, the tasks are aborted, and with them their calls.
        drop(tasks);
        events_stop.cancel();
        if timeout(EVENTS_GRACE, recording.join_all()).await.is_err() {
            tracing::warn!("some Events were not written before the end");
        }
        result
    }
}

/// Waits for all tasks, or for the first that ends by itself or panics.
async fn all_ended(tasks: &mut JoinSet<String>, stop: &CancellationToken) -> Result<(), ManagerError> {
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(_) if stop.is_cancelled() => {}
            Ok(name) => return Err(ManagerError::TaskEnded(name)),
            Err(error) => return Err(ManagerError::Panicked(error)),
        }
    }
    Ok(())
}

fn spawn_all(tasks: &mut JoinSet<String>, context: &Arc<Context>, stop: &CancellationToken) {
    let (enabled, starts) = (context.settings.controllers, Starts::new(&context.settings));
    // An API server's watch alone keeps a manager without providers alive.
    spawn(tasks, "watch nodes".to_owned(), watch_nodes(Arc::clone(context), stop.clone()));
    // Nodes' addresses are judged by the cluster IPs.
    if enabled.service || enabled.cloud_node {
        spawn(tasks, "watch services".to_owned(), watch_services(Arc::clone(context), stop.clone()));
    }
    for (index, entry) in context.providers.entries().iter().enumerate() {
        let name = |task: &str| format!("{task} of {}", entry.name);
        let shared = || (Arc::clone(context), index, stop.clone());
        spawn(tasks, name("releases"), follow_releases(shared()));
        if enabled.service {
            spawn(tasks, name("node set"), keep_node_set(shared()));
            spawn(tasks, name("services"), after(starts.service, stop.clone(), serve_services(shared())));
            if !context.settings.drift_repair_period.is_zero() {
                spawn(tasks, name("drift repair"), after(starts.service, stop.clone(), serve_drift(shared())));
            }
            if !context.settings.orphan_scan_period.is_zero() {
                spawn(tasks, name("orphans"), serve_orphans(shared()));
            }
        }
        if enabled.cloud_node {
            spawn(tasks, name("nodes"), after(starts.cloud_node, stop.clone(), serve_nodes(shared())));
            spawn(tasks, name("addresses"), after(starts.cloud_node, stop.clone(), serve_addresses(shared())));
        }
        if enabled.cloud_node_lifecycle {
            spawn(
                tasks,
                name("node lifecycle"),
                after(starts.cloud_node_lifecycle, stop.clone(), serve_lifecycle(shared())),
            );
        }
        if context.settings.routes_enabled() {
            spawn(tasks, name("routes"), after(starts.route, stop.clone(), route::serve(shared())));
        }
    }
}

fn spawn(tasks: &mut JoinSet<String>, name: String, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async move {
        task.await;
        name
    });
}

type Shared = (Arc<Context>, usize, CancellationToken);

async fn watch_nodes(context: Arc<Context>, stop: CancellationToken) {
    // The nodes themselves are in `Nodes`.
    let cache = watch::Cache::<core::Node, watch::Version>::new();
    let events = watcher(
        Api::<core::Node>::all(context.clients.shared_informers.clone()),
        watcher::Config::default().page_size(LIST_PAGE),
    )
    .default_backoff()
    .modify(trim::trim_node);
    let mut synced = cache.synced();
    let follow = cache.follow(events.boxed(), |change| triggers::node_changed(&context, change));
    let announce = async {
        // The sender lives in `cache`, which outlives this.
        if synced.wait_for(|synced| *synced).await.is_ok() {
            context.nodes_synced.send_replace(true);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = follow => {}
        () = announce => {}
    }
}

async fn watch_services(context: Arc<Context>, stop: CancellationToken) {
    let events = watcher(
        Api::<core::Service>::all(context.clients.shared_informers.clone()),
        watcher::Config::default().page_size(LIST_PAGE),
    )
    .default_backoff()
    .modify(trim::trim_service);
    let follow = context.services.follow(events.boxed(), |change| triggers::service_changed(&context, &change));
    stop.run_until_cancelled(follow).await;
}

/// Waits until the first list of nodes is complete; false when stopped before.
async fn nodes_synced(context: &Context, stop: &CancellationToken) -> bool {
    let mut nodes = context.nodes_synced.subscribe();
    stop.run_until_cancelled(nodes.wait_for(|synced| *synced)).await.is_some_and(|synced| synced.is_ok())
}

/// The same, and the first list of Services.
async fn all_synced(context: &Context, stop: &CancellationToken) -> bool {
    let mut services = context.services.synced();
    nodes_synced(context, stop).await
        && stop.run_until_cancelled(services.wait_for(|synced| *synced)).await.is_some_and(|synced| synced.is_ok())
}

/// The node controller compares the addresses of nodes with the cluster IPs of Services. It waits for the first list of Services, but not without a
/// bound: where this account may not list Services, new nodes would keep their taint.
async fn nodes_synced_and_cluster_ips(context: &Context, stop: &CancellationToken) -> bool {
    let mut services = context.services.synced();
    let listed = async {
        drop(timeout(CLUSTER_IPS_PATIENCE, services.wait_for(|synced| *synced)).await);
    };
    nodes_synced(context, stop).await && stop.run_until_cancelled(listed).await.is_some()
}

/// The first set is there before the first Service is reconciled: nobody is told "no nodes" only because we just started.
async fn keep_node_set((context, provider, stop): Shared) {
    if !all_synced(&context, &stop).await {
        return;
    }
    let published = || triggers::node_set_published(&context, provider);
    context.nodes.publish(provider);
    published();
    context.lane(provider).published.send_replace(true);
    context.nodes.keep_published(provider, &context.settings, &stop, published).await;
}

async fn follow_releases((context, provider, stop): Shared) {
    let entry = context.provider(provider);
    let (mut generation, mut rotations) = (entry.generation.clone(), entry.rotations.clone());
    triggers::report_claims(&context, provider);
    loop {
        // A slot that is gone sends nothing any more.
        tokio::select! {
            () = stop.cancelled() => return,
            Ok(()) = generation.changed() => {
                triggers::report_claims(&context, provider);
                triggers::release_changed(&context, provider);
            }
            Ok(()) = rotations.changed() => triggers::credentials_rotated(&context, provider),
        }
    }
}

async fn serve_services((context, provider, stop): Shared) {
    let mut published = context.lane(provider).published.subscribe();
    if stop.run_until_cancelled(published.wait_for(|published| *published)).await.is_none() {
        return;
    }
    let at_once = context.settings.concurrent_service_syncs.max(1);
    let mut running = JoinSet::new();
    loop {
        let queue = context.service_queue(provider);
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = running.join_next() => propagate(ended),
            key = queue.next(), if running.len() < at_once => {
                let context = Arc::clone(&context);
                running.spawn(async move {
                    let next = service::run(&context, provider, &key).await;
                    context.service_queue(provider).done(key, next);
                });
            }
        }
    }
    while let Some(ended) = running.join_next().await {
        propagate(ended);
    }
}

async fn serve_drift((context, provider, stop): Shared) {
    service::drift::run(&context, provider, &stop).await;
}

async fn serve_orphans((context, provider, stop): Shared) {
    if all_synced(&context, &stop).await {
        service::orphans::run(&context, provider, &stop).await;
    }
}

/// A panic is a bug of ours: the object stays marked as running, so the process must not go on as if nothing happened.
fn propagate(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

async fn serve_nodes((context, provider, stop): Shared) {
    if !nodes_synced_and_cluster_ips(&context, &stop).await {
        return;
    }
    let queue = &context.lane(provider).nodes;
    while stop.run_until_cancelled(queue.ready()).await.is_some() {
        // Nodes that come together share a call.
        if timeout(context.settings.node_batch_window, stop.cancelled()).await.is_ok() {
            return;
        }
        let names: Vec<String> = std::iter::from_fn(|| queue.try_next()).collect();
        node::run(&context, provider, names).await;
    }
}

async fn serve_addresses((context, provider, stop): Shared) {
    if !nodes_synced_and_cluster_ips(&context, &stop).await {
        return;
    }
    let wake = &context.lane(provider).addresses;
    loop {
        node::update_all(&context, provider).await;
        let period = context.settings.node_status_update_frequency;
        // Whether the period ended or somebody asked, the next pass begins.
        if stop.run_until_cancelled(timeout(period, wake.notified())).await.is_none() {
            return;
        }
    }
}

async fn serve_lifecycle((context, provider, stop): Shared) {
    if !nodes_synced(&context, &stop).await {
        return;
    }
    let mut memory = node_lifecycle::Memory::new();
    loop {
        node_lifecycle::run(&context, provider, &mut memory).await;
        if timeout(context.settings.node_monitor_period, stop.cancelled()).await.is_ok() {
            return;
        }
    }
}
