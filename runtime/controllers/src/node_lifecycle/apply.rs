//! Carries out the decisions of a pass (client): taints and deletions.

use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, DeleteParams, Preconditions};
use serde_json::json;
use skysail_provider::EventKind;

use super::plan::Action;
use crate::{
    context::Context,
    error::{Error, api_status, chain, may_be_carried_out},
    names::reasons,
    node::patch_node,
    nodes::NodeView,
    progress,
    report::Actor,
};

/// Carries out every action except a deletion.
pub(crate) async fn apply(context: &Context, actor: &Actor, view: &NodeView, action: Action) {
    let reference = view.reference();
    let result = match action {
        Action::Keep | Action::Gone => return,
        Action::Unknown(error) => Err(Error::provider("check whether the instance exists")(error)),
        Action::SetTaints(taints) => {
            let patch = json!({ "spec": { "taints": taints } });
            patch_node(context, &view.object(), patch).await.map_err(Error::api("write the shutdown taint"))
        }
    };
    let period = context.settings.node_monitor_period;
    context.reporter.reconciled(actor, &reference, result.as_ref().map(|_| ()), Some(period));
    if let Ok(Some(_)) = result {
        context.reporter.done(actor, &reference, "shutdown taint written");
    }
}

/// Whether this process deleted a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deleted {
    ByUs,
    /// The API server answered 404 Not Found: another client deleted the node.
    ByAnother,
    /// The API server's answer was lost or ambiguous; the node may be deleted.
    Perhaps,
}

/// Returns `None` if the node certainly still exists.
pub(crate) async fn delete(context: &Context, actor: &Actor, view: &NodeView) -> Option<Deleted> {
    let reference = view.reference();
    let text = "Deleting node because it does not exist in the cloud provider";
    context.reporter.event(actor, &reference, (EventKind::Normal, reasons::DELETING_NODE), text);
    let result = delete_object(context, &view.object()).await;
    if let Err(error) = &result
        && !error.is_conflict()
    {
        let kind = (EventKind::Warning, reasons::DELETING_NODE_FAILED);
        context.reporter.event(actor, &reference, kind, chain(error));
    }
    let period = context.settings.node_monitor_period;
    context.reporter.reconciled(actor, &reference, result.as_ref().map(|_| ()), Some(period));
    match result {
        Ok(deleted) => {
            context.reporter.done(actor, &reference, "deleted");
            Some(deleted)
        }
        Err(error) => may_be_carried_out(&error).then_some(Deleted::Perhaps),
    }
}

async fn delete_object(context: &Context, object: &core::Node) -> Result<Deleted, Error> {
    progress::step();
    let api: Api<core::Node> = Api::all(context.clients.node_controller.clone());
    let preconditions =
        Preconditions { uid: object.metadata.uid.clone(), resource_version: object.metadata.resource_version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(object.metadata.name.as_deref().unwrap_or_default(), &params).await {
        Ok(_) => Ok(Deleted::ByUs),
        Err(error) if api_status(&error) == Some(404) => Ok(Deleted::ByAnother),
        Err(error) => Err(Error::api("delete node")(error)),
    }
}
