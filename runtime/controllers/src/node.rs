//! The node controller: writes the provider ID, labels and addresses of its machine to each node,
//! then removes the node's taint.
//!
//! # Flow, for all nodes that wait at one moment
//! 1. observe (pure): the nodes of this provider that still have the taint.
//! 2. describe (provider): one call for each page of nodes.
//! 3. initialize (pure): `node/initialize.rs`, node by node.
//! 4. write (client): addresses first, then provider ID, labels and taints in one guarded patch.
//!    Upstream writes them in the opposite order, so that a node is schedulable for a moment
//!    without its addresses.
//! 5. report; a node that failed is requeued alone, with the delay of `backoff.rs`.
//!
//! The periodic pass of `node/status.rs` runs as well. The controller also keeps the newer labels
//! equal to the older ones, and names on each node without provider ID the provider that holds it
//! (`ownership.rs`).

mod addresses;
mod initialize;
mod status;

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt as _, stream};
use k8s_openapi::{api::core::v1 as core, jiff::Timestamp};
use kube::api::{Api, Patch};
use serde_json::{Value, json};
use skysail_provider::{
    Code, Detail, EventKind, Instance, Interface, NodeAddress, NodeSet, Provider, Result as ProviderResult,
};
use tokio::time::Instant;

use self::initialize::Initialization;
pub(crate) use self::status::update_all;
use crate::{
    backoff::retry_counted,
    context::Context,
    convert,
    describe::describe,
    error::{Error, api_status, chain},
    labels,
    lane::Lane,
    names::{self, controllers, reasons},
    nodes::NodeView,
    patch::{guarded, params},
    progress,
    queue::Next,
    report::{Actor, is_expected},
};

/// Initialises the queued nodes that have the taint, and completes the metadata of the others.
pub(crate) async fn run(context: &Context, lane: &Arc<Lane>, names: Vec<String>) {
    let actor = Actor { controller: controllers::CLOUD_NODE, provider: lane.name.clone() };
    let cloud = &*lane.provider;
    let queue = &lane.nodes;
    // observe (pure)
    let has_no_schemes_yet = cloud.info().is_some() && !context.nodes.is_settled(lane.id);
    let (now, off) = (Instant::now(), lane.off_for(Interface::Instances));
    let mut waiting = Vec::new();
    let mut initialized = Vec::new();
    for name in names {
        match context.nodes.get(&name).filter(|view| view.owner.provider() == Some(lane.id)) {
            // As upstream: a provider without instances initialises no node. A release that
            // supports instances requeues the node, and a node is also requeued when it is decided
            // which provider-ID schemes belong to the provider.
            Some(view) if view.uninitialized && (has_no_instances(cloud) || has_no_schemes_yet) => {
                queue.done(name, Next::OnChange);
            }
            // The cloud-config switched `instances` off: wait until the manager asks the provider
            // again.
            Some(view) if view.uninitialized && off.is_some() => {
                queue.done(name, off.map_or(Next::OnChange, Next::Within));
            }
            Some(view) if view.wanting() && !view.writes.wait(now).is_zero() => {
                queue.done(name, Next::Within(view.writes.wait(now)));
            }
            Some(view) if view.uninitialized => waiting.push(view),
            Some(view) => initialized.push(view),
            None => {
                queue.forget(&name);
                queue.done(name, Next::OnChange);
            }
        }
    }
    // describe (provider)
    let set = NodeSet::new(waiting.iter().map(|view| Arc::clone(&view.node)));
    let described = describe(context, lane, &set, Detail::Metadata).await;
    if let Some(off) = lane.off_for(Interface::Instances) {
        for view in waiting.drain(..) {
            queue.forget(&view.node.name);
            queue.done(view.node.name.clone(), Next::Within(off));
        }
    }
    let answers: BTreeMap<&str, ProviderResult<Instance>> =
        set.as_slice().iter().map(|node| node.name.as_str()).zip(described).collect();
    // initialize (pure), write (client), report
    let writes = context.settings.concurrent_node_syncs.max(1);
    let actor = &actor;
    stream::iter(&waiting)
        .for_each_concurrent(writes, |view| {
            let answer = answers.get(view.node.name.as_str());
            async move {
                let Some(view) = &afresh(context, view) else {
                    // The new owner's queue has the node.
                    lane.nodes.forget(&view.node.name);
                    lane.nodes.done(view.node.name.clone(), Next::OnChange);
                    return;
                };
                let result = initialize_one(context, lane, view, answer).await;
                count_write(context, actor, view, &result);
                finish(context, lane, (actor, view), result, reasons::INITIALIZING_NODE_FAILED);
            }
        })
        .await;
    stream::iter(&initialized)
        .for_each_concurrent(writes, |view| async move {
            let result = complete_metadata(context, lane, view).await;
            count_write(context, actor, view, &result);
            finish(context, lane, (actor, view), result.map(|_| false), reasons::INITIALIZING_NODE_FAILED);
        })
        .await;
}

/// The current state of the node after a call that may have taken long: kubelets write nodes every
/// few seconds, and a write based on an older state is rejected. Returns the earlier state if UID,
/// provider ID or taint changed: the write is then rejected, and the node's next turn calls the
/// provider again. Returns `None` if the node has another owner: an edit of claims does not change
/// the node, so the API server would accept the write.
pub(crate) fn afresh(context: &Context, before: &NodeView) -> Option<NodeView> {
    let Some(now) = context.nodes.get(&before.node.name) else { return Some(before.clone()) };
    if now.node.uid == before.node.uid && now.owner != before.owner {
        return None;
    }
    let asked = |view: &NodeView| (view.node.uid.clone(), view.node.provider_id.clone(), view.uninitialized);
    Some(if asked(&now) == asked(before) { now } else { before.clone() })
}

/// Whether a release serves that does not support instances.
fn has_no_instances(cloud: &dyn Provider) -> bool {
    cloud.info().is_some() && cloud.instances().is_none()
}

/// Counts the write, and emits one Event when another controller undoes each write.
fn count_write(context: &Context, actor: &Actor, view: &NodeView, written: &Result<bool, Error>) {
    if matches!(written, Ok(true)) && context.nodes.written(&view.node) {
        let text = format!(
            "Another controller undoes the labels, the annotation {} or the removed taint {} each time that Skysail writes this node. Skysail writes them again after growing pauses, \
             at most 5 minutes. Find that controller and stop it: kubectl get node {} --output yaml --show-managed-fields",
            names::NODE_PROVIDER_ANNOTATION,
            names::UNINITIALIZED_TAINT,
            view.node.name
        );
        context.reporter.event(actor, &view.reference(), (EventKind::Warning, reasons::NODE_WRITE_CONFLICT), text);
    }
}

/// Reports the result for one node and requeues the node after a failure.
fn finish(
    context: &Context,
    lane: &Arc<Lane>,
    (actor, view): (&Actor, &NodeView),
    result: Result<bool, Error>,
    failed: &'static str,
) {
    let queue = &lane.nodes;
    let name = &view.node.name;
    let reference = view.reference();
    let retry = result.as_ref().err().map(|error| retry_counted(queue, name, error).after);
    context.reporter.reconciled(actor, &reference, result.as_ref().map(|_| ()), retry);
    let next = match &result {
        Ok(initialized) => {
            queue.forget(name);
            if *initialized {
                let kind = (EventKind::Normal, reasons::SYNCED);
                context.reporter.event(actor, &reference, kind, "Node synced successfully");
            }
            Next::OnChange
        }
        Err(error) => {
            if !is_expected(error) {
                context.reporter.event(actor, &reference, (EventKind::Warning, failed), chain(error));
            }
            retry.map_or(Next::OnChange, Next::After)
        }
    };
    queue.done(name.clone(), next);
}

/// Returns true if the taint was removed, false if the node does not exist any more.
async fn initialize_one(
    context: &Context,
    lane: &Arc<Lane>,
    view: &NodeView,
    answer: Option<&ProviderResult<Instance>>,
) -> Result<bool, Error> {
    let missing = || skysail_provider::Error::new(Code::Internal, "the provider returned no result for the node");
    let instance =
        answer.cloned().unwrap_or_else(|| Err(missing())).map_err(Error::provider("get instance metadata"))?;
    let claims = context.nodes.claims();
    let object = view.object();
    let plan = initialize::initialize(&object, &instance, (&claims, lane.id))
        .map_err(|error| Error::provider("use instance metadata")(error.into()))?;

    let current = match &plan.addresses {
        Some(addresses) => patch_addresses(context, &object, addresses).await?,
        None => Some(object.clone()),
    };
    let Some(current) = current else { return Ok(false) };
    let patch = initialization_patch(&plan, &lane.name);
    let written = patch_node(context, &current, patch).await.map_err(Error::api("initialize node"))?;
    if written.is_some() {
        observe_delays(context, &object);
    }
    Ok(written.is_some())
}

fn initialization_patch(plan: &Initialization, provider: &str) -> Value {
    let mut spec = serde_json::Map::new();
    spec.insert("taints".to_owned(), json!(plan.taints));
    if let Some(provider_id) = &plan.provider_id {
        spec.insert("providerID".to_owned(), json!(provider_id));
    }
    json!({ "metadata": metadata(&plan.labels, plan.names_holder.then_some(provider)), "spec": spec })
}

/// Labels, and the name of the provider that holds a node without provider ID.
fn metadata(labels: &BTreeMap<String, String>, holder: Option<&str>) -> BTreeMap<&'static str, Value> {
    let mut metadata = BTreeMap::from([("labels", json!(labels))]);
    metadata.extend(holder.map(|name| ("annotations", json!({ names::NODE_PROVIDER_ANNOTATION: name }))));
    metadata
}

fn observe_delays(context: &Context, object: &core::Node) {
    let Some(created) = &object.metadata.creation_timestamp else { return };
    let delay = Timestamp::now().duration_since(created.0).as_secs_f64().max(0.0);
    context.reporter.metrics.taint_removal_delay.observe(delay);
    context.reporter.metrics.initial_sync_delay.observe(delay);
}

/// Writes the newer spellings of labels, and to a node without provider ID the name of the provider
/// that holds it. Returns whether anything was written.
async fn complete_metadata(context: &Context, lane: &Lane, view: &NodeView) -> Result<bool, Error> {
    let object = view.object();
    let (labels, holder) = (labels::to_mirror(&object), view.lacks_holder.then_some(&*lane.name));
    if labels.is_empty() && holder.is_none() {
        return Ok(false);
    }
    let patch = json!({ "metadata": metadata(&labels, holder) });
    let written = patch_node(context, &object, patch).await.map_err(Error::api("complete node metadata"))?;
    Ok(written.is_some())
}

/// A merge patch replaces the whole list; a strategic merge patch would merge it by type and
/// corrupt dual-stack lists. None if the node does not exist any more.
async fn patch_addresses(
    context: &Context,
    object: &core::Node,
    addresses: &[NodeAddress],
) -> Result<Option<core::Node>, Error> {
    let patch = json!({ "status": { "addresses": convert::to_core_addresses(addresses) } });
    progress::step();
    let patch = guarded(&object.metadata, patch);
    let api: Api<core::Node> = Api::all(context.clients.node_controller.clone());
    let name = object.metadata.name.as_deref().unwrap_or_default();
    present(api.patch_status(name, &params(), &Patch::Merge(&patch)).await).map_err(Error::api("write node addresses"))
}

/// A merge patch, guarded by the object's resource version; none if the node does not exist any
/// more. Shared with the lifecycle controller.
pub(crate) async fn patch_node(
    context: &Context,
    object: &core::Node,
    patch: Value,
) -> Result<Option<core::Node>, kube::Error> {
    progress::step();
    let patch = guarded(&object.metadata, patch);
    let api: Api<core::Node> = Api::all(context.clients.node_controller.clone());
    let name = object.metadata.name.as_deref().unwrap_or_default();
    present(api.patch(name, &params(), &Patch::Merge(&patch)).await)
}

/// 404 Not Found is no failure: the watch reports the deletion of the node.
fn present(written: Result<core::Node, kube::Error>) -> Result<Option<core::Node>, kube::Error> {
    match written {
        Err(error) if api_status(&error) == Some(404) => Ok(None),
        result => result.map(Some),
    }
}
