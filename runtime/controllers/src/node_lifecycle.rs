//! The node lifecycle controller: deletes nodes whose machine is gone, and taints those whose machine is off.
//!
//! # Flow, one pass over a provider's nodes that are not ready
//! 1. observe (pure): the troubled nodes; those that are ready again only lose their taint, and nobody is asked about them.
//! 2. describe (provider): one call for each page.
//! 3. plan (pure): `node_lifecycle/plan.rs`, over the whole pass at once, so that a rule about all deletions has one place.
//! 4. apply (client): DELETE with preconditions, or a guarded patch of the taints.
//!
//! # Guarantees
//! - Only an inner [`skysail_provider::Code::NotFound`] deletes. A refused credential, a failed call, a limit or an answer of the wrong length never does.
//! - The DELETE names UID and resource version. The UID keeps a node that was created anew under the name; the version keeps one whose
//!   kubelet came back while the cloud was asked: a node that is really gone has nobody who writes it, so this costs nothing, and where it
//!   does conflict the next pass looks again.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, DeleteParams, Preconditions};
use serde_json::json;
use skysail_provider::{Detail, EventKind, NodeSet};
use tokio::time::Instant;

use self::plan::{Action, Case};
use crate::{
    context::Context,
    convert,
    describe::describe,
    error::{Error, api_status, chain},
    names::{controllers, reasons},
    node::patch_node,
    report::Voice,
};

/// One pass over the nodes of a provider.
pub(crate) async fn run(context: &Context, provider: usize) {
    let voice =
        Voice { controller: controllers::CLOUD_NODE_LIFECYCLE, provider: context.provider(provider).name.clone() };
    // observe (pure)
    let views = context.nodes.troubled(provider);
    let (ready, not_ready): (Vec<_>, Vec<_>) = views.into_iter().partition(|view| view.node.ready);
    // As upstream: where the provider has no machines, nobody is judged.
    let cloud = &*context.provider(provider).provider;
    let not_ready = if cloud.instances().is_some() { not_ready } else { Vec::new() };
    // describe (provider)
    let set = NodeSet::new(not_ready.iter().map(|view| Arc::clone(&view.node)));
    let described = describe(context, provider, &set, Detail::State).await;
    // plan (pure); both lists are sorted by name
    let grace = context.settings.uninitialized_node_grace;
    let now = Instant::now();
    let recovered = ready.iter().map(|view| Case { object: &view.object, age: now - view.first_seen, answer: None });
    let asked = not_ready.iter().zip(described).map(|(view, answer)| Case {
        object: &view.object,
        age: now - view.first_seen,
        answer: Some(answer),
    });
    // apply (client)
    for (object, action) in plan::plan(recovered.chain(asked), grace) {
        apply(context, &voice, object, action).await;
    }
}

async fn apply(context: &Context, voice: &Voice, object: &core::Node, action: Action) {
    let reference = convert::node_reference(object);
    let result = match action {
        Action::Keep => return,
        Action::Unknown(error) => Err(Error::provider("check whether the instance exists")(error)),
        Action::Delete => {
            let text = "Deleting node because it does not exist in the cloud provider";
            context.reporter.event(voice, &reference, (EventKind::Normal, reasons::DELETING_NODE), text);
            let result = delete(context, object).await;
            if let Err(error) = &result
                && !error.is_conflict()
            {
                let kind = (EventKind::Warning, reasons::DELETING_NODE_FAILED);
                context.reporter.event(voice, &reference, kind, chain(error));
            }
            result.map(|()| Some("deleted"))
        }
        Action::SetTaints(taints) => {
            let patch = json!({ "spec": { "taints": taints } });
            let written = patch_node(context, object, patch).await.map_err(Error::api("write the shutdown taint"));
            written.map(|node| node.map(|_| "shutdown taint written"))
        }
    };
    context.reporter.reconciled(voice, &reference, result.as_ref().map(|_| ()));
    if let Ok(Some(text)) = result {
        context.reporter.done(voice, &reference, text);
    }
}

async fn delete(context: &Context, object: &core::Node) -> Result<(), Error> {
    let api: Api<core::Node> = Api::all(context.client.clone());
    let preconditions =
        Preconditions { uid: object.metadata.uid.clone(), resource_version: object.metadata.resource_version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(object.metadata.name.as_deref().unwrap_or_default(), &params).await {
        Ok(_) => Ok(()),
        Err(error) if api_status(&error) == Some(404) => Ok(()),
        Err(error) => Err(Error::api("delete node")(error)),
    }
}
