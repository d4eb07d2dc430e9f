//! The periodic pass over all initialised nodes of a provider: their addresses, and their labels
//! where the operator wants that.
//!
//! # Flow
//! 1. observe (pure): the provider's nodes without the taint.
//! 2. describe (provider): one call for each page.
//! 3. compare (pure): `node/addresses.rs`, `labels.rs`.
//! 4. write (client): a patch of the status, and one of the labels, where they differ.
//! 5. report. A failure is looked at again in the next period, as upstream.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt as _, stream};
use serde_json::json;
use skysail_provider::{Detail, EventKind, Instance, NodeAddress, NodeSet, Result as ProviderResult};

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
    report::Voice,
};

/// What a node shall have that it has not.
struct Changes {
    addresses: Option<Update>,
    labels: BTreeMap<String, String>,
}

/// One pass: one call for each page, one patch for each node that differs.
pub(crate) async fn update_all(context: &Context, lane: &Arc<Lane>) {
    let voice = Voice { controller: controllers::CLOUD_NODE, provider: lane.name.clone() };
    let cloud = &*lane.provider;
    if cloud.instances().is_none() {
        return;
    }
    // observe (pure)
    let views: Vec<NodeView> = context.nodes.owned(lane.id).into_iter().filter(|view| !view.uninitialized).collect();
    // describe (provider)
    let set = NodeSet::new(views.iter().map(|view| Arc::clone(&view.node)));
    let described = describe(context, lane, &set, Detail::Metadata).await;
    // compare (pure), write (client), report; both are sorted by name
    let voice = &voice;
    stream::iter(views.iter().zip(described))
        .for_each_concurrent(context.settings.node_status_writes(), |(view, answer)| async move {
            update_one(context, voice, &afresh(context, view), answer).await;
        })
        .await;
}

async fn update_one(context: &Context, voice: &Voice, view: &NodeView, answer: ProviderResult<Instance>) {
    let reference = view.reference();
    let written = match answer.map_err(Error::provider("get instance metadata")) {
        Ok(instance) => match compare(context, view, &instance) {
            Ok(changes) => write(context, voice, view, changes).await,
            Err(error) => {
                // What was given cannot be used: a person has to look. That a cloud does not answer
                // is no word about this node.
                let error = Error::provider("use instance metadata")(error.into());
                let kind = (EventKind::Warning, reasons::UPDATING_NODE_FAILED);
                context.reporter.event(voice, &reference, kind, chain(&error));
                Err(error)
            }
        },
        Err(error) => Err(error),
    };
    match written {
        Ok(false) => {}
        result => {
            let period = context.settings.node_status_update_frequency;
            context.reporter.reconciled(voice, &reference, result.as_ref().map(|_| ()), Some(period));
        }
    }
}

/// All or nothing: an instance of which a part cannot be used is not used at all.
fn compare(context: &Context, view: &NodeView, instance: &Instance) -> Result<Changes, InitializeError> {
    let provided = view.node.annotations.get(names::PROVIDED_NODE_IP_ANNOTATION);
    let addresses = addresses::update(&view.node.addresses, &instance.addresses, provided)?;
    let labels = match context.settings.refresh_node_labels {
        true => labels::refreshed(&view.node.labels, instance)?,
        false => BTreeMap::new(),
    };
    Ok(Changes { addresses, labels })
}

/// Whether anything was written; a node that is gone is nothing to write to.
async fn write(context: &Context, voice: &Voice, view: &NodeView, changes: Changes) -> Result<bool, Error> {
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
            context.reporter.done(voice, &reference, format!("wrote {} addresses", addresses.len()));
            report_removed(context, voice, view, &removed);
        }
    }
    if let (Some(current), false) = (current, changes.labels.is_empty()) {
        let patch = json!({ "metadata": { "labels": changes.labels } });
        let node = patch_node(context, &current, patch).await.map_err(Error::api("refresh node labels"))?;
        if node.is_some() {
            written = true;
            context.reporter.done(voice, &reference, format!("refreshed {} labels", changes.labels.len()));
        }
    }
    Ok(written)
}

/// A list never shrinks in silence: it may be the cloud that forgot.
fn report_removed(context: &Context, voice: &Voice, view: &NodeView, removed: &[NodeAddress]) {
    if removed.is_empty() {
        return;
    }
    let removed: Vec<String> =
        convert::to_core_addresses(removed).into_iter().map(|a| format!("{} {}", a.type_, a.address)).collect();
    let text = format!("The cloud does not give these addresses any more: {}", removed.join(", "));
    let kind = (EventKind::Normal, reasons::NODE_ADDRESSES_REMOVED);
    context.reporter.event(voice, &view.reference(), kind, text);
}
