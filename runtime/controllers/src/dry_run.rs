//! A dry run: one turn of each controller over all objects of a cluster, in which nothing is
//! written, neither to a cloud nor to the Kubernetes API.
//!
//! The turns are those of a manager that has just started. The host holds back the requests of
//! providers (`skysail_provider::DryRun`), and `dry_run/api.rs` those to the Kubernetes API, which
//! it answers with the object as it would be.
//!
//! # Flow
//! 1. read (pure): the nodes and the Services of the snapshot; the claims assign them to providers.
//! 2. for each provider: services, nodes, node lifecycle, routes (provider, client).
//! 3. report (pure): one entry for each object that would change, or whose turn failed.
//!
//! # Differences from a manager
//! - A missing machine counts at once. A manager looks several times before it deletes a node.
//! - After the first request that is held back a provider usually gives up, so the further requests
//!   for the same object are unknown.

mod api;

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1 as core;
use kube::runtime::watcher::Event;
use tokio_util::sync::CancellationToken;

use crate::{
    clients::Clients,
    context::Context,
    convert,
    error::chain,
    events::Events,
    held::{DryRunObject, DryRuns},
    lane::Lane,
    ledger::Ledger,
    metrics::ControllerMetrics,
    node,
    node_lifecycle::{self, LifecycleState},
    ownership::Owner,
    providers::Providers,
    report::{Reporter, cluster},
    route, service, service_spec,
    settings::ControllerSettings,
    triggers, trim,
    watch::{Cache, ObjectKey, Version},
};

/// What the controllers see of a cluster.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// All nodes.
    pub nodes: Vec<core::Node>,
    /// The Services of all namespaces.
    pub services: Vec<core::Service>,
    /// The ConfigMap of retained load balancers, if it exists.
    pub retained: Option<core::ConfigMap>,
}

/// Runs all controllers once for all objects of the snapshot. `progress` receives the name of the
/// provider and what is done next.
///
/// The clients read what they are asked to; nothing is written through them. The providers' first
/// releases must be decided.
pub async fn dry_run(
    clients: &Clients,
    providers: &Providers,
    (settings, metrics): (ControllerSettings, ControllerMetrics),
    snapshot: Snapshot,
    progress: impl Fn(&str, &str),
) -> Vec<DryRunObject> {
    let dry_runs = DryRuns::default();
    // Nobody receives the Events.
    let (events, _) = Events::new(metrics.clone());
    let reporter = Reporter::new(events, metrics).recording(dry_runs.clone());
    let clients = clients.map(|client| api::holding(client, dry_runs.clone()));
    // A single pass has to confirm that a machine is missing.
    let settings = ControllerSettings { node_deletion_confirmations: 1, ..settings };
    let mut context = Context::new(clients, settings, reporter, Ledger::default());
    context.dry_runs = Some(dry_runs.clone());
    // read (pure)
    read(&context, providers, snapshot).await;
    report_unowned(&context, &dry_runs);
    // services, nodes, node lifecycle, routes (provider, client)
    for lane in context.lanes.all().iter() {
        dry_runs.records().provider.clone_from(&lane.name);
        run_lane(&context, lane, &dry_runs, |what| progress(&lane.name, what)).await;
    }
    // report (pure)
    dry_runs.entries()
}

async fn read(context: &Context, providers: &Providers, snapshot: Snapshot) {
    context.lanes.follow(providers, |id, entry| {
        Lane::new(id, entry, &context.settings, &context.reporter.metrics, CancellationToken::new())
    });
    triggers::report_claims(context);
    let Snapshot { mut nodes, mut services, retained } = snapshot;
    context.retained.follow(retained.as_ref());
    nodes.iter_mut().for_each(trim::trim_node);
    services.iter_mut().for_each(trim::trim_service);
    let versions = Cache::<core::Node, Version>::new();
    versions.follow(listed(nodes), |change| triggers::node_changed(context, change)).await;
    context.services.follow(listed(services), |change| triggers::service_changed(context, &change)).await;
    for lane in context.lanes.all().iter() {
        context.nodes.publish(lane.id);
    }
}

/// The events of a watch that listed these objects.
fn listed<K>(objects: Vec<K>) -> impl futures::Stream<Item = Result<Event<K>, kube::runtime::watcher::Error>> {
    let listed = objects.into_iter().map(Event::InitApply);
    stream::iter([Event::Init].into_iter().chain(listed).chain([Event::InitDone]).map(Ok))
}

/// Records the Services without a class that no provider, or more than one, has. A Service with a
/// class may belong to another controller.
fn report_unowned(context: &Context, dry_runs: &DryRuns) {
    for object in context.services.all() {
        let owner = context.service_owner(&object);
        let text = match owner {
            Owner::Unowned if service_spec::is_load_balancer(&object) && service_spec::class(&object).is_none() => {
                "no provider is the default provider, so no provider takes this Service; set spec.default of one Provider"
                    .to_owned()
            }
            owner => match triggers::verdict(context, owner) {
                Some((_, text)) => text,
                None => continue,
            },
        };
        dry_runs.failed("", &convert::service_reference(&object), text);
    }
}

async fn run_lane(context: &Context, lane: &Arc<Lane>, dry_runs: &DryRuns, progress: impl Fn(&str)) {
    let (settings, enabled) = (&context.settings, context.settings.controllers);
    if enabled.service {
        let keys = context.services.all().into_iter().map(|object| ObjectKey::of(&*object));
        let mut keys: Vec<ObjectKey> = keys.filter(|key| context.route_service(key).as_ref() == Some(lane)).collect();
        keys.sort();
        progress(&format!("{} Services", keys.len()));
        stream::iter(&keys)
            .for_each_concurrent(settings.concurrent_service_syncs.max(1), |key| async move {
                service::run(context, lane, key).await;
            })
            .await;
    }
    let owned = context.nodes.owned(lane.id);
    progress(&format!("{} nodes", owned.len()));
    if enabled.cloud_node {
        let wanting = owned.iter().filter(|view| view.wanting()).map(|view| view.node.name.clone()).collect();
        node::run(context, lane, wanting).await;
        node::update_all(context, lane).await;
    }
    if enabled.cloud_node_lifecycle {
        node_lifecycle::run(context, lane, &mut LifecycleState::new()).await;
    }
    if settings.routes_enabled() {
        progress("routes");
        let ended = route::run(context, lane, &mut route::ReportedRoutes::default(), &lane.stop).await;
        for (object, error) in ended.failures().into_iter().flat_map(|(_, failures)| failures) {
            // Beside the requests of the pass: a route that is held back fails, too.
            let about = if object.kind == "Node" { format!("Node {}: ", object.name) } else { String::new() };
            dry_runs.failed(&lane.name, &cluster(), about + &chain(error));
        }
    }
}

#[cfg(test)]
mod tests;
