//! The periodic pass over all initialised nodes of a provider: updates their addresses and, if the
//! operator enabled it, their labels.
//!
//! # Flow
//! 1. observe (pure): the provider's nodes without the taint.
//! 2. describe (provider): one call for each page.
//! 3. compare (pure): `node/addresses.rs`, `labels.rs`.
//! 4. write (client): a patch of the status and a patch of the labels, if they differ.
//! 5. report. As upstream, the next period retries a failure.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use futures::{StreamExt as _, stream};
use serde_json::json;
use skysail_provider::{Code, Detail, EventKind, Instance, Interface, NodeAddress, NodeSet, Result as ProviderResult};

use super::{
    addresses::{self, Update},
    afresh,
    initialize::InitializeError,
    patch_addresses, patch_node,
};
use crate::{
    context::Context,
    convert,
    describe::describe,
    error::{Error, chain},
    labels,
    lane::Lane,
    names::{self, controllers, reasons},
    nodes::NodeView,
    report::Actor,
};

/// The differences between the node and its machine.
struct Changes {
    addresses: Option<Update>,
    labels: BTreeMap<String, String>,
}

/// One pass: one call for each page, one patch for each node that differs.
pub(crate) async fn update_all(context: &Context, lane: &Arc<Lane>) {
    let actor = Actor { controller: controllers::CLOUD_NODE, provider: lane.name.clone() };
    if lane.instances().is_none() {
        return;
    }
    // observe (pure)
    let views: Vec<NodeView> = context.nodes.owned(lane.id).into_iter().filter(|view| !view.uninitialized).collect();
    // describe (provider)
    let set = NodeSet::new(views.iter().map(|view| Arc::clone(&view.node)));
    lane.pass_denied.store(true, Ordering::Relaxed);
    let described = describe(context, lane, &set, Detail::Metadata).await;
    let is_denied = |answer: &ProviderResult<Instance>| answer.as_ref().is_err_and(|error| error.code == Code::Denied);
    lane.pass_denied.store(described.iter().any(is_denied), Ordering::Relaxed);
    if lane.off_for(Interface::Instances).is_some() {
        return;
    }
    // compare (pure), write (client), report; both are sorted by name
    let actor = &actor;
    stream::iter(views.iter().zip(described))
        .for_each_concurrent(context.settings.node_status_writes(), |(view, answer)| async move {
            if let Some(view) = afresh(context, view) {
                update_one(context, actor, &view, answer).await;
            }
        })
        .await;
}

async fn update_one(context: &Context, actor: &Actor, view: &NodeView, answer: ProviderResult<Instance>) {
    let reference = view.reference();
    let written = match answer.map_err(Error::provider("get instance metadata")) {
        Ok(instance) => match compare(context, view, &instance) {
            Ok(changes) => write(context, actor, view, changes).await,
            Err(error) => {
                // The provider's data is invalid, so a person has to look. A cloud that does not
                // answer is no Event on this node.
                let error = Error::provider("use instance metadata")(error.into());
                let kind = (EventKind::Warning, reasons::UPDATING_NODE_FAILED);
                context.reporter.event(actor, &reference, kind, chain(&error));
                Err(error)
            }
        },
        Err(error) => Err(error),
    };
    match written {
        Ok(false) => {}
        result => {
            let period = context.settings.node_status_update_frequency;
            context.reporter.reconciled(actor, &reference, result.as_ref().map(|_| ()), Some(period));
        }
    }
}

/// Rejects the whole instance if a part of it is invalid.
fn compare(context: &Context, view: &NodeView, instance: &Instance) -> Result<Changes, InitializeError> {
    let provided = view.node.annotations.get(names::PROVIDED_NODE_IP_ANNOTATION);
    let addresses = addresses::update(&view.node.addresses, &instance.addresses, provided)?;
    let labels = match context.settings.refresh_node_labels {
        true => labels::refreshed(&view.node.labels, instance)?,
        false => BTreeMap::new(),
    };
    Ok(Changes { addresses, labels })
}

/// Returns whether anything was written; false also if the node does not exist any more.
async fn write(context: &Context, actor: &Actor, view: &NodeView, changes: Changes) -> Result<bool, Error> {
    if changes.addresses.is_none() && changes.labels.is_empty() {
        return Ok(false);
    }
    let reference = view.reference();
    let mut current = Some(view.object());
    let mut written = false;
    if let (Some(object), Some(Update { addresses, removed })) = (&current, changes.addresses) {
        current = patch_addresses(context, object, &addresses).await?;
        if current.is_some() {
            written = true;
            context.reporter.done(actor, &reference, format!("wrote {} addresses", addresses.len()));
            report_removed(context, actor, view, &removed);
        }
    }
    if let (Some(current), false) = (current, changes.labels.is_empty()) {
        let patch = json!({ "metadata": { "labels": changes.labels } });
        let node = patch_node(context, &current, patch).await.map_err(Error::api("refresh node labels"))?;
        if node.is_some() {
            written = true;
            context.reporter.done(actor, &reference, format!("refreshed {} labels", changes.labels.len()));
        }
    }
    Ok(written)
}

/// Reports each removed address, because the cloud may have omitted it by mistake.
fn report_removed(context: &Context, actor: &Actor, view: &NodeView, removed: &[NodeAddress]) {
    if removed.is_empty() {
        return;
    }
    let removed: Vec<String> =
        convert::to_core_addresses(removed).into_iter().map(|a| format!("{} {}", a.type_, a.address)).collect();
    let text = format!(
        "The cloud does not return these addresses any more; Skysail removed them from the node: {}",
        removed.join(", ")
    );
    let kind = (EventKind::Normal, reasons::NODE_ADDRESSES_REMOVED);
    context.reporter.event(actor, &view.reference(), kind, text);
}
