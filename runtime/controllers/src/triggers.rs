//! From a change of the world to keys in queues: what upstream's informer handlers decide. Nothing
//! here waits, calls or writes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{EventKind, ObjectReference};

use crate::{
    context::Context,
    convert,
    findings::Finding,
    lane::Lane,
    metrics::ProviderLabels,
    names::{controllers, reasons},
    nodes::NodeView,
    ownership::{LaneId, Owner},
    report::{Voice, cluster},
    route,
    service::{predicates::is_relevant, unclaimed},
    service_spec::{class, convert, has_finalizer, named_class, named_holder},
    watch::{Change, ObjectKey, Version},
};

/// After a swap, objects follow each other at this distance while that fits into
/// [`crate::ControllerSettings::swap_spread_max`].
const SWAP_PACE: Duration = Duration::from_millis(100);

/// A Service appeared, changed or went.
pub(crate) fn service_changed(context: &Context, change: &Change<core::Service>) {
    let Change { key, old, new } = change;
    context.cluster_ips.follow(change);
    if !context.settings.controllers.service {
        // Another manager's work; what is given to nodes is judged by the cluster IPs all the same.
        return;
    }
    let lost = new.as_ref().is_some_and(|new| context.ledger.with(key, |entry| entry.lost_status(new)) == Some(true));
    if let (Some(old), Some(new)) = (old, new)
        && !lost
        && !is_relevant(old, new)
    {
        return;
    }
    if let Some(new) = new {
        let owner = context.service_owner(new);
        let before = old.as_ref().map(|old| context.service_owner(old));
        if before != Some(owner) {
            report_verdict(context, controllers::SERVICE, &convert::service_reference(new), owner);
        }
        if before != Some(owner) {
            hear_holder(context, key, old.as_deref(), new);
        }
        report_unclaimed(context, key, new);
    }
    match context.route_service(key) {
        Some(lane) => lane.services.add(key.clone()),
        None if new.is_none() => forget(context, key),
        None => {}
    }
}

/// What a Service says about who made its load balancer, or who owned it until now: after a start
/// nothing else tells it. Where that is its owner, the claims say the same.
fn hear_holder(context: &Context, key: &ObjectKey, old: Option<&core::Service>, object: &core::Service) {
    let owner = |object| context.lanes.get(context.service_owner(object).provider()?).map(|lane| lane.name.clone());
    let former = || old.filter(|old| has_finalizer(old)).and_then(owner);
    let holder = named_holder(object).map(str::to_owned).or_else(former);
    if let Some(holder) = holder.filter(|holder| has_finalizer(object) && owner(object).as_ref() != Some(holder)) {
        let mut service = convert(object).service;
        // As it was when the load balancer was made: whether the user changed it since, or only the
        // claims did, decides whether that has to go.
        let class_then = match old {
            Some(old) if named_holder(object).is_none() => class(old),
            // An object that does not say it wants what it wanted.
            Some(_) | None => named_class(object).unwrap_or_else(|| class(object)),
        };
        service.load_balancer_class = class_then.map(str::to_owned);
        context.ledger.hear(key, &holder, Arc::new(service));
    }
}

/// A Service is gone, and with it the last that reminded of a load balancer whose provider left
/// before.
fn forget(context: &Context, key: &ObjectKey) {
    if let Some(entry) = context.ledger.remove(key) {
        tracing::warn!(
            provider.name = &*entry.provider,
            object.kind = "Service",
            object.namespace = key.namespace,
            object.name = key.name,
            "the Service is gone, and so is the provider that made its load balancer: delete that by hand"
        );
    }
}

/// A load balancer that nobody looks after is said at the first sight and when its Service changes.
fn report_unclaimed(context: &Context, key: &ObjectKey, object: &core::Service) {
    let Some(text) = unclaimed::text(context, key, object) else { return };
    tracing::warn!(object.kind = "Service", object.namespace = key.namespace, object.name = key.name, "{text}");
    let voice = Voice { controller: controllers::SERVICE, provider: String::new() };
    let reference = convert::service_reference(object);
    context.reporter.event(&voice, &reference, (EventKind::Warning, reasons::UNCLAIMED_LOAD_BALANCER), text);
}

/// A node appeared, changed or went.
pub(crate) fn node_changed(context: &Context, change: Change<core::Node, Version>) {
    let Some(object) = change.new else {
        let old = context.nodes.remove(&change.key.name);
        report_contested(context, old.as_ref().map(|old| old.owner));
        route::node_changed(context, old.as_ref(), None);
        return;
    };
    let (old, view) = context.nodes.put(&object);
    route::node_changed(context, old.as_ref(), Some(&view));
    let before = old.as_ref().map(|old| old.owner);
    if before != Some(view.owner) {
        report_verdict(context, controllers::CLOUD_NODE, &view.reference(), view.owner);
        report_contested(context, before.into_iter().chain([view.owner]));
    }
    // A heartbeat of a node that waits for its backoff is no reason to ask again.
    let unchanged = old.is_some_and(|old| old.owner == view.owner && Arc::ptr_eq(&old.node, &view.node) && old.wanting);
    if !unchanged {
        enqueue_node(context, &view);
    }
}

/// Another release of this provider became active.
pub(crate) fn release_changed(context: &Context, lane: &Lane) {
    claims_changed(context);
    ensure_again(context, lane);
    let waiting = context.nodes.owned(lane.id).into_iter().filter(|view| view.uninitialized);
    for view in waiting {
        // They share one call, so there is nothing to spread.
        lane.nodes.add_after(view.node.name.clone(), Duration::ZERO);
    }
    lane.passes.notify_one();
    route::release_changed(context, lane);
}

/// Each of the provider's load balancers, spread over a time. Those that wait for a backoff too:
/// what the last release could not do, this one may.
fn ensure_again(context: &Context, lane: &Lane) {
    let mut services = context.ledger.held_by(&lane.name);
    services.extend(lane.services.delayed());
    services.sort();
    services.dedup();
    for (after, key) in spread(services, context.settings.swap_spread_max) {
        lane.services.add_after(key, after);
    }
}

/// Who owns each Service, and in whose queue it belongs.
pub(crate) fn service_owners(context: &Context) -> HashMap<ObjectKey, (Owner, Option<LaneId>)> {
    let of = |object: &Arc<core::Service>| {
        let key = ObjectKey::of(&**object);
        let lane = context.route_service(&key).map(|lane| lane.id);
        (key, (context.service_owner(object), lane))
    };
    context.services.all().iter().map(of).collect()
}

/// There are other providers, or they claim something else: what that concerns is looked at again,
/// and nothing else. `before` is what [`service_owners`] gave then.
pub(crate) fn providers_changed(
    context: &Context,
    readdressed: &[Arc<Lane>],
    before: &HashMap<ObjectKey, (Owner, Option<LaneId>)>,
) {
    claims_changed(context);
    report_claims(context);
    for lane in readdressed {
        ensure_again(context, lane);
        lane.passes.notify_one();
    }
    for (key, after) in service_owners(context) {
        let Some(object) = context.services.get(&key).filter(|_| before.get(&key) != Some(&after)) else { continue };
        report_verdict(context, controllers::SERVICE, &convert::service_reference(&object), after.0);
        hear_holder(context, &key, None, &object);
        report_unclaimed(context, &key, &object);
        if let Some(lane) = context.route_service(&key) {
            lane.services.add(key);
        }
    }
}

/// The credentials of this provider changed: what was denied is tried again, and nothing else. The
/// rest waits for what the cloud or the failure asked for.
pub(crate) fn credentials_rotated(context: &Context, lane: &Lane) {
    let services = &lane.services;
    for (after, key) in spread(services.denied(), context.settings.swap_spread_max) {
        services.add_after(key, after);
    }
    let nodes = &lane.nodes;
    for name in nodes.denied() {
        // They share one call, so there is nothing to spread.
        nodes.add_after(name, Duration::ZERO);
    }
    let routes = &lane.routes;
    for key in routes.denied() {
        routes.add(key);
    }
}

/// Decides again which provider owns each node, where the providers' claims have changed.
///
/// Sets are published at once: a release that has just become active says which schemes are its
/// own, and a Service that was told of its nodes as they were before would lose all its backends.
pub(crate) fn claims_changed(context: &Context) {
    let moved = context.nodes.reassign(|claims| context.lanes.claims(claims));
    if moved.is_empty() {
        return;
    }
    write_contested(context);
    for view in moved {
        report_verdict(context, controllers::CLOUD_NODE, &view.reference(), view.owner);
        enqueue_node(context, &view);
    }
    for lane in context.lanes.all().iter() {
        if *lane.published.borrow() && context.nodes.publish(lane.id) {
            node_set_published(context, lane);
        }
    }
}

/// The provider's nodes are others than they were: its Services have to hear of it.
pub(crate) fn node_set_published(context: &Context, lane: &Lane) {
    let size = i64::try_from(context.nodes.eligible_count(lane.id)).unwrap_or(i64::MAX);
    let labels = ProviderLabels { provider: lane.name.clone() };
    context.reporter.metrics.node_set_size.get_or_create(&labels).set(size);
    for key in context.ledger.held_by(&lane.name) {
        if context.ledger.waits(&key) {
            // Its `ensure` failed and waits; what serves until then must not be left with nodes
            // that are gone.
            lane.services.add(key);
        } else {
            lane.services.nudge(key);
        }
    }
}

/// Reports what each provider claims and does not get because an older provider has it.
pub(crate) fn report_claims(context: &Context) {
    claims_changed(context);
    let (lanes, claims) = (context.lanes.all(), context.nodes.claims());
    let name = |id| context.lanes.get(id).map(|lane| lane.name.clone());
    for lane in lanes.iter() {
        let older = claims.iter().position(|claim| claim.lane == lane.id).and_then(|place| claims.get(..place));
        let taken = older.and_then(|older| lane.settings().claims_taken(older, name));
        if lane.findings.set(Finding::ClaimTaken, taken.clone())
            && let Some(text) = taken
        {
            report_claim(context, lane, reasons::CLAIM_TAKEN, text);
        }
    }
}

/// Reports the schemes that the component describes and that the provider's own pins leave out.
pub(crate) fn report_ignored_schemes(context: &Context, lane: &Lane) {
    if let Some(text) = lane.settings().ignored_schemes() {
        report_claim(context, lane, reasons::FOREIGN_PROVIDER_ID_SCHEME, text);
    }
}

fn report_claim(context: &Context, lane: &Lane, reason: &'static str, text: String) {
    tracing::warn!(provider.name = lane.name, reason = text, "a claim of the provider is ignored");
    let voice = Voice { controller: controllers::CLOUD_NODE, provider: lane.name.clone() };
    context.reporter.event(&voice, &cluster(), (EventKind::Warning, reason), text);
}

/// Reports the nodes that more than one provider claims, where one of these verdicts is about such
/// a node.
fn report_contested(context: &Context, verdicts: impl IntoIterator<Item = Owner>) {
    if verdicts.into_iter().any(|owner| matches!(owner, Owner::Contested(..))) {
        write_contested(context);
    }
}

fn write_contested(context: &Context) {
    let contested = context.nodes.contested();
    for lane in context.lanes.all().iter() {
        let with = |((one, other), (count, first)): (&(LaneId, LaneId), &(usize, String))| {
            let other = context.lanes.get(*other).filter(|_| *one == lane.id)?;
            Some(format!("{count} with the provider {}, such as {first}", other.name))
        };
        let pairs: Vec<String> = contested.iter().filter_map(with).collect();
        let text = format!(
            "Nodes are selected by more than one provider, so none of them acts on these nodes: {}. Give each provider its own spec.nodeSelector",
            pairs.join("; ")
        );
        lane.findings.set(Finding::NodesContested, (!pairs.is_empty()).then_some(text));
    }
}

/// Evenly over a time that grows with their number.
fn spread(keys: Vec<ObjectKey>, max: Duration) -> impl Iterator<Item = (Duration, ObjectKey)> {
    let count = u32::try_from(keys.len()).unwrap_or(u32::MAX).max(1);
    let pace = SWAP_PACE.min(max / count);
    keys.into_iter().zip(0_u32..).map(move |(key, index)| (pace * index, key))
}

fn enqueue_node(context: &Context, view: &NodeView) {
    if view.wanting
        && let Some(lane) = view.owner.provider().and_then(|lane| context.lanes.get(lane))
    {
        lane.nodes.add(view.node.name.clone());
    }
}

/// An object that nobody may act on says so, once.
fn report_verdict(context: &Context, controller: &'static str, object: &ObjectReference, owner: Owner) {
    let voice = Voice { controller, provider: String::new() };
    let (reason, text) = match owner {
        Owner::Provider(_) | Owner::Nobody => return,
        Owner::Contested(one, other) => {
            let name = |lane| context.lanes.get(lane).map(|lane| lane.name.clone()).unwrap_or_default();
            let (one, other) = (name(one), name(other));
            let text = format!(
                "The providers {one} and {other} both claim this object, so neither acts. Give each classes, selectors and provider-ID schemes of its own"
            );
            (reasons::PROVIDER_CONFLICT, text)
        }
        Owner::Malformed => {
            let text =
                "spec.providerID does not have the form <scheme>://<rest>, so no provider owns this node".to_owned();
            (reasons::INVALID_PROVIDER_ID, text)
        }
    };
    context.reporter.event(&voice, object, (EventKind::Warning, reason), text);
}
