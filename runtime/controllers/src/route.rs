//! The route controller: maintains one route in the cloud for each pod CIDR of each node, and
//! reports in a node condition whether the node's routes exist.
//!
//! # Flow, one pass over a provider's routes
//! 1. list (provider): every route of the cluster; a failure ends the pass.
//! 2. observe (pure): the provider's nodes, read after the list, so that no listed route is newer
//!    than the known state of its node.
//! 3. plan (pure): `route/plan.rs` over `route/pod_cidrs.rs`. An invalid pod CIDR of a node becomes
//!    an Event.
//! 4. delete, then create (provider): `route/calls.rs`, page by page. A CIDR that moves to another
//!    node is free before it is assigned again.
//! 5. condition (client): `NetworkUnavailable` of the nodes whose routes are ours, if it differs.
//!
//! # Guarantees
//! - A route is deleted only if it lies in the cluster CIDRs and is a blackhole, or certainly leads
//!   to no node, or to a node of this provider that does not need the route. While no node is known
//!   at all, no route is deleted.
//! - Routes and conditions of nodes of another provider, or of no provider, stay unchanged.
//! - While the provider is paused, no route is created or deleted. The condition of each node says
//!   whether the node has its routes.
//! - A failure of one route is an Event on its node and does not delay other routes.
//!
//! `route/serve.rs` decides when a pass begins, and reports the failures of a pass with the time of
//! the next one.

mod calls;
mod cluster_cidr;
mod condition;
mod held;
mod plan;
mod pod_cidrs;
mod serve;
mod targets;

use std::{collections::HashMap, sync::Arc};

use futures::{StreamExt as _, stream};
use k8s_openapi::{api::core::v1 as core, jiff::Timestamp};
use kube::api::{Api, Patch};
use serde_json::json;
use skysail_provider::{Code, Error as ProviderError, EventKind, Interface, NewRoute, Node, ObjectReference, Route};
use tokio_util::sync::CancellationToken;

pub use self::cluster_cidr::{ClusterCidrError, parse_cluster_cidr};
pub(crate) use self::serve::{node_changed, release_changed, serve};
use self::{
    calls::{CallResults, Calls},
    plan::{Creation, Observed, Plan},
    pod_cidrs::network,
};
use crate::{
    backoff::retry,
    context::Context,
    error::{Error, api_status, chain},
    lane::Lane,
    names::{controllers, reasons},
    nodes::NodeView,
    patch::{guarded, params},
    progress,
    report::{Actor, cluster, is_expected},
};

/// Concurrent writes of conditions; bounded to protect the API server after a start with many new
/// nodes.
const CONDITION_WRITES: usize = 8;

/// How a pass ended.
pub(crate) enum Ended {
    /// The provider needs no routes.
    Idle,
    /// All routes are correct.
    Settled {
        /// Whether the pass changed a route.
        changed: bool,
    },
    /// The provider rejects all calls for now, with this error.
    Refused(Error, Vec<Failure>),
    /// Steps failed; never empty.
    Failed(Vec<Failure>),
}

/// A step that failed, and the object that it was about.
pub(crate) type Failure = (ObjectReference, Error);

/// Reports that are not repeated with every pass.
#[derive(Default)]
pub(crate) struct ReportedRoutes {
    idle: Option<&'static str>,
    /// The last report of each node, by its UID.
    complaints: HashMap<String, String>,
}

/// The state of a running pass.
struct Pass<'a> {
    context: &'a Context,
    actor: Actor,
    failures: Vec<Failure>,
    refused: Option<ProviderError>,
    changed: bool,
}

/// One pass over the routes of a provider.
pub(crate) async fn run(
    context: &Context,
    lane: &Arc<Lane>,
    reported: &mut ReportedRoutes,
    stop: &CancellationToken,
) -> Ended {
    let actor = Actor { controller: controllers::ROUTE, provider: lane.name.clone() };
    let mut pass = Pass { context, actor, failures: Vec::new(), refused: None, changed: false };
    if pass.is_idle(lane, reported) {
        return Ended::Idle;
    }
    let calls = Calls::new(context, lane, stop);
    // list (provider)
    let listed = calls.list().await;
    if !context.is_configured(lane, controllers::ROUTE, (Interface::Routes, &listed)) {
        return Ended::Idle;
    }
    let routes = match listed {
        Ok(routes) => routes,
        Err(source) => {
            let error = || Error::provider("list routes")(source.clone());
            return Ended::Refused(error(), vec![(cluster(), error())]);
        }
    };
    // observe (pure)
    let (views, others) = context.nodes.owned_and_others(lane.id);
    let nodes: Vec<Arc<Node>> = views.iter().map(|view| Arc::clone(&view.node)).collect();
    let cluster_cidrs = &context.settings.cluster_cidrs;
    let observed = Observed { routes: &routes, nodes: &nodes, others: &others, cluster: cluster_cidrs };
    // plan (pure)
    let plan = plan::plan(&observed);
    let plan = if lane.is_paused() { plan.paused() } else { plan };
    let Plan { deletions, creations, mut has_routes, complaints } = plan;
    pass.complain(reported, &views, &complaints);
    // delete (provider)
    let answers = calls.delete(&deletions).await;
    let held = pass.deleted(&deletions, answers);
    held::report(context, (lane, &pass.actor), (&observed, &views), &held);
    // create (provider)
    let new: Vec<NewRoute> = creations.iter().map(|creation| creation.route.clone()).collect();
    let answers = calls.create(&new).await;
    pass.report_created(&views, &creations, answers, &mut has_routes);
    // condition (client)
    if !stop.is_cancelled() {
        pass.write_conditions(lane, &views, &has_routes).await;
    }
    pass.end()
}

impl Pass<'_> {
    /// Whether the provider does not support routes or its settings switch them off, or
    /// `--cluster-cidr` is empty. Upstream's process ends with an empty `--cluster-cidr`; here one
    /// provider must not stop the others.
    fn is_idle(&self, lane: &Arc<Lane>, reported: &mut ReportedRoutes) -> bool {
        let Self { context, actor, .. } = self;
        if lane.off_for(Interface::Routes).is_some() {
            return true;
        }
        let cloud = &*lane.provider;
        let reason = if cloud.routes().is_none() {
            cloud.info().map(|_| "the provider does not support routes; its nodes get no routes")
        } else if context.settings.cluster_cidrs.is_empty() {
            Some(
                "The provider supports routes, but --cluster-cidr is not set, so no node gets a route. Set --cluster-cidr to the network of the pods, or disable routes with --configure-cloud-routes=false",
            )
        } else {
            reported.idle = None;
            return false;
        };
        if let Some(reason) = reason.filter(|reason| reported.idle.replace(reason) != Some(reason)) {
            tracing::warn!(
                controller.name = actor.controller,
                provider.name = actor.provider,
                reason,
                "the route controller creates no routes for this provider"
            );
            if cloud.routes().is_some() {
                let kind = (EventKind::Warning, reasons::ROUTES_NOT_CONFIGURED);
                context.reporter.event(actor, &cluster(), kind, format!("{}: {reason}", actor.provider));
            }
        }
        true
    }

    /// Emits an Event about an invalid pod CIDR if it is new.
    fn complain(&self, reported: &mut ReportedRoutes, views: &[NodeView], complaints: &[String]) {
        let said = std::mem::take(&mut reported.complaints);
        for (view, complaint) in views.iter().zip(complaints).filter(|(_, complaint)| !complaint.is_empty()) {
            if said.get(&view.node.uid) != Some(complaint) {
                let reference = view.reference();
                let kind = (EventKind::Warning, reasons::INVALID_POD_CIDR);
                self.context.reporter.event(&self.actor, &reference, kind, complaint);
            }
            reported.complaints.insert(view.node.uid.clone(), complaint.clone());
        }
    }

    /// As upstream, a failure is only logged: the next pass lists the route again. Returns the
    /// routes whose deletion the operator's budget holds back, and why.
    fn deleted<'r>(&mut self, deletions: &'r [Route], answers: CallResults) -> Vec<(&'r Route, String)> {
        let (reporter, mut held) = (&self.context.reporter, Vec::new());
        for (route, result) in deletions.iter().zip(answers.results) {
            let result = match result {
                Err(error) if error.code == Code::NotFound => Ok(()),
                Err(error) if error.holds_deletion => {
                    held.push((route, error.message.clone()));
                    Err(Error::provider("delete route")(error))
                }
                result => result.map_err(Error::provider("delete route")),
            };
            match result {
                Ok(()) => {
                    self.changed = true;
                    reporter.reconciled(&self.actor, &cluster(), Ok(()), None);
                    let Route { destination_cidr, target, .. } = route;
                    let text = format!("deleted the route {destination_cidr:?} to {target}");
                    reporter.done(&self.actor, &cluster(), text);
                }
                Err(error) => self.failures.push((cluster(), error)),
            }
        }
        // The budget refuses deletions, and no other call.
        let refused = answers.refused.filter(|error| !error.holds_deletion);
        self.refused = refused.or(self.refused.take());
        held
    }

    fn report_created(
        &mut self,
        views: &[NodeView],
        creations: &[Creation],
        answers: CallResults,
        has_routes: &mut [Option<bool>],
    ) {
        let reporter = &self.context.reporter;
        for (Creation { node, route }, result) in creations.iter().zip(answers.results) {
            let Some(view) = views.get(*node) else { continue };
            let reference = view.reference();
            let cidr = &route.destination_cidr;
            let reason = result.as_ref().err().map(|error| chain(error));
            let result = result.map_err(Error::provider("create route"));
            let Err(error) = result else {
                self.changed = true;
                reporter.reconciled(&self.actor, &reference, Ok(()), None);
                reporter.done(&self.actor, &reference, format!("created the route {cidr}"));
                continue;
            };
            if let Some(reason) = reason.filter(|_| !is_expected(&error)) {
                let text = format!("Could not create route {cidr} for node {}: {reason}", view.node.name);
                reporter.event(&self.actor, &reference, (EventKind::Warning, reasons::FAILED_TO_CREATE_ROUTE), text);
            }
            if let Some(has_routes) = has_routes.get_mut(*node) {
                *has_routes = Some(false);
            }
            self.failures.push((reference, error));
        }
        self.refused = answers.refused.or(self.refused.take());
    }

    async fn write_conditions(&mut self, lane: &Arc<Lane>, views: &[NodeView], has_routes: &[Option<bool>]) {
        let planned = views.iter().zip(has_routes).filter_map(|(view, has_routes)| Some((view, (*has_routes)?)));
        let wanted: Vec<_> = planned.filter_map(|(view, has_routes)| self.wanted(lane, view, has_routes)).collect();
        let this = &*self;
        let written: Vec<Result<(), Failure>> = stream::iter(wanted)
            .map(|(view, condition)| this.write_condition(view, condition))
            .buffer_unordered(CONDITION_WRITES)
            .collect()
            .await;
        self.failures.extend(written.into_iter().filter_map(Result::err));
    }

    /// Decides by the state of the node after the calls. A node that was created again under the
    /// same name, or has another owner now, waits for the next pass.
    fn wanted(
        &self,
        lane: &Arc<Lane>,
        planned: &NodeView,
        has_routes: bool,
    ) -> Option<(NodeView, core::NodeCondition)> {
        let view = self.context.nodes.still_owned(planned, lane.id)?;
        let condition = condition::changed(&view.object(), has_routes, Timestamp::now())?;
        Some((view, condition))
    }

    async fn write_condition(&self, view: NodeView, condition: core::NodeCondition) -> Result<(), Failure> {
        progress::step();
        let Self { context, actor, .. } = self;
        let text = format!("NetworkUnavailable is {}", condition.status);
        // A strategic merge patch merges by type: the kubelet's conditions stay.
        let patch = guarded(&view.object().metadata, json!({ "status": { "conditions": [condition] } }));
        let api: Api<core::Node> = Api::all(context.clients.route_controller.clone());
        let reference = view.reference();
        match api.patch_status(&view.node.name, &params(), &Patch::Strategic(&patch)).await {
            Ok(_) => {
                context.reporter.reconciled(actor, &reference, Ok(()), None);
                context.reporter.done(actor, &reference, text);
                Ok(())
            }
            // The node was deleted.
            Err(error) if api_status(&error) == Some(404) => Ok(()),
            Err(error) => Err((reference, Error::api("write node condition")(error))),
        }
    }

    fn end(self) -> Ended {
        match self.refused {
            Some(error) => Ended::Refused(Error::provider("change routes")(error), self.failures),
            None if self.failures.is_empty() => Ended::Settled { changed: self.changed },
            None => Ended::Failed(self.failures),
        }
    }
}

impl Ended {
    /// The failed steps, and the error that decides when they are retried: of several the one that
    /// may be retried first.
    pub(crate) fn failures(&self) -> Option<(&Error, &[Failure])> {
        match self {
            Self::Idle | Self::Settled { .. } => None,
            Self::Refused(error, failures) => Some((error, failures)),
            Self::Failed(failures) => {
                let errors = failures.iter().map(|(_, error)| error);
                Some((errors.min_by_key(|error| retry(error, 0).after)?, failures))
            }
        }
    }
}
