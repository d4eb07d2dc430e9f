//! Turns changes of objects, releases, claims and credentials into keys of queues, as upstream's
//! informer handlers do. This module does not wait, call or write.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{EventKind, ObjectReference};

use crate::{
    context::Context,
    convert,
    findings::Finding,
    lane::{Lane, LaneEdit},
    ledger::{Entry, State},
    metrics,
    names::{NODE_PROVIDER_ANNOTATION, PAUSED_ANNOTATION, controllers, reasons},
    nodes::NodeView,
    ownership::{LaneId, Owner},
    report::{Actor, cluster},
    route,
    service::{held, pause, predicates::is_relevant, retention, unclaimed},
    service_spec::{adopted, class, convert, deletion_policy, has_finalizer, is_whole, named_class, named_holder},
    watch::{Change, ObjectKey, Version},
};

/// After a swap, the reconciles of objects start at this interval, or at a shorter one if they
/// would not fit into [`crate::ControllerSettings::swap_spread_max`].
const SWAP_PACE: Duration = Duration::from_millis(100);

/// Handles an added, changed or deleted Service.
pub(crate) fn service_changed(context: &Context, change: &Change<core::Service>) {
    let Change { key, old, new } = change;
    context.cluster_ips.follow(change);
    if !context.settings.controllers.service {
        // Another manager runs the service controller; only the cluster IPs are needed here.
        return;
    }
    if let Some(new) = new {
        retention::report_unclear(context, old.as_deref(), new);
        context.ledger.with(key, |entry| entry.follow_policy(new));
    }
    let lost = new.as_ref().is_some_and(|new| context.ledger.with(key, |entry| entry.lost_status(new)) == Some(true));
    let misnamed = matches!((old, new), (Some(old), Some(new)) if is_misnamed(context, old, new));
    if let (Some(old), Some(new)) = (old, new)
        && !lost
        && !misnamed
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
        if before != Some(owner) || misnamed {
            record_named_provider(context, key, old.as_deref(), new);
        }
        report_unclaimed(context, key, new);
    }
    match context.route_service(key) {
        Some(lane) => lane.services.add(key.clone()),
        None if new.is_none() => forget(context, key),
        None => {}
    }
}

/// Whether the object names another provider than its owner since this change: a former leader
/// wrote the name, and the first list of this process did not show that write yet.
fn is_misnamed(context: &Context, old: &core::Service, new: &core::Service) -> bool {
    let holder = named_holder(new);
    holder.is_some() && holder != named_holder(old) && holder != owner_name(context, new).as_deref()
}

/// The name of the provider that the claims give the Service to.
fn owner_name(context: &Context, object: &core::Service) -> Option<String> {
    context.lanes.get(context.service_owner(object).provider()?).map(|lane| lane.name.clone())
}

/// Records in the ledger the provider that made the Service's load balancer, from the annotation or
/// from the previous owner, or from the record of an adoption: a Service that has adopted a load
/// balancer may have changed before it got the finalizer. Skipped if that provider is the current
/// owner, which the claims name anyway.
fn record_named_provider(context: &Context, key: &ObjectKey, old: Option<&core::Service>, object: &core::Service) {
    let owner = |object| owner_name(context, object);
    let former = || old.filter(|old| has_finalizer(old)).and_then(owner);
    let named = named_holder(object).map(str::to_owned).or_else(former).filter(|_| has_finalizer(object));
    let adopted_at = || context.retained.used_at(object.metadata.uid.as_deref().unwrap_or_default());
    let holder = named.or_else(adopted_at);
    if let Some(holder) = holder.filter(|holder| owner(object).as_ref() != Some(holder)) {
        let mut service = convert(object).service;
        // The class when the load balancer was made. If the user changed it since, the load
        // balancer is deleted; if only the claims changed, it stays.
        let class_then = match old {
            Some(old) if named_holder(object).is_none() => class(old),
            // Without the annotation the present class is assumed.
            Some(_) | None => named_class(object).unwrap_or_else(|| class(object)),
        };
        service.load_balancer_class = class_then.map(str::to_owned);
        if let Some((key, record)) = context.retained.of_service(&holder, &service.uid) {
            (service.uid, service.name) = (key.uid, record.made_for);
        }
        let mut entry = Entry::new(&holder, Arc::new(service), State::Unconfirmed).of_object(object);
        if !is_whole(object) {
            // Nothing is deleted before the annotation is known.
            let policy = |old| deletion_policy(old).map(str::to_owned);
            entry.deletion_policy = old.filter(|old| is_whole(old)).map_or_else(|| Some("Retain".to_owned()), policy);
        }
        context.ledger.record_named(key, entry);
    }
}

/// Handles changed records of retained load balancers: queues the Services that have one of these
/// UIDs, or ask for it. A Service may have changed while it adopted a load balancer.
pub(crate) fn records_changed(context: &Context, changed: &BTreeSet<String>) {
    context.lanes.all().iter().for_each(|lane| retention::count(context, lane));
    for object in context.services.all() {
        let is_concerned = |uid: &str| changed.contains(uid);
        if object.metadata.uid.as_deref().is_some_and(is_concerned) || adopted(&object).is_some_and(is_concerned) {
            let key = ObjectKey::of(&*object);
            if object.metadata.uid.as_deref().is_some_and(|uid| context.retained.used_at(uid).is_some()) {
                record_named_provider(context, &key, None, &object);
            }
            if let Some(lane) = context.route_service(&key) {
                lane.services.add(key);
            }
        }
    }
}

/// Handles a lane that begins: reports the retained load balancers of its provider, and looks for
/// adopted ones whose Service went or changed while no process ran. The first list of Services may
/// have come before the records, which alone say under which UID the provider finds a load
/// balancer.
pub(crate) fn records_known(context: &Context, lane: &Lane) {
    retention::count(context, lane);
    for (key, uid) in context.retained.users(&lane.name) {
        if let Some(object) = context.services.get(&key).filter(|object| object.metadata.uid.as_ref() == Some(&uid)) {
            record_named_provider(context, &key, None, &object);
        }
        lane.services.add(key);
    }
}

/// Handles a deleted Service whose provider was removed before.
fn forget(context: &Context, key: &ObjectKey) {
    context.last_outcomes.remove(key);
    pause::forget(context, key);
    held::forget(context, key);
    if let Some(entry) = context.ledger.remove(key) {
        tracing::warn!(
            provider.name = &*entry.provider,
            object.kind = "Service",
            object.namespace = key.namespace,
            object.name = key.name,
            "the load balancer of a deleted Service remains in the cloud, because the Provider was removed first; delete the load balancer by hand"
        );
    }
}

/// Reports a load balancer that no provider manages when its Service is first seen, and at each
/// change of the Service.
fn report_unclaimed(context: &Context, key: &ObjectKey, object: &core::Service) {
    let Some(text) = unclaimed::text(context, key, object) else { return };
    tracing::warn!(object.kind = "Service", object.namespace = key.namespace, object.name = key.name, "{text}");
    let actor = Actor { controller: controllers::SERVICE, provider: String::new() };
    let reference = convert::service_reference(object);
    context.reporter.event(&actor, &reference, (EventKind::Warning, reasons::UNCLAIMED_LOAD_BALANCER), text);
}

/// Handles an added, changed or deleted node.
pub(crate) fn node_changed(context: &Context, change: Change<core::Node, Version>) {
    let Some(object) = change.new else {
        let old = context.nodes.remove(&change.key.name);
        if old.as_ref().is_some_and(|old| old.disputed) {
            report_disputed(context);
        }
        route::node_changed(context, old.as_ref(), None);
        return;
    };
    let (old, view) = context.nodes.put(&object);
    route::node_changed(context, old.as_ref(), Some(&view));
    let before = old.as_ref().map(|old| old.owner);
    if before != Some(view.owner) {
        report_verdict(context, controllers::CLOUD_NODE, &view.reference(), view.owner);
    }
    if view.disputed || old.as_ref().is_some_and(|old| old.disputed) {
        report_disputed(context);
    }
    // A heartbeat of a node that waits for its backoff must not requeue the node.
    let unchanged =
        old.is_some_and(|old| old.owner == view.owner && Arc::ptr_eq(&old.node, &view.node) && old.wanting());
    if !unchanged {
        enqueue_node(context, &view);
    }
}

/// Handles another active release of this provider.
pub(crate) fn release_changed(context: &Context, lane: &Lane) {
    claims_changed(context);
    all_again(context, lane);
}

/// Queues all that the provider has to do, including what is in backoff.
fn all_again(context: &Context, lane: &Lane) {
    ensure_again(context, lane);
    describe_again(context, lane);
    route::release_changed(context, lane);
}

/// Queues each of the provider's nodes that waits for its initialisation, and a pass over the
/// addresses of the others.
fn describe_again(context: &Context, lane: &Lane) {
    let waiting = context.nodes.owned(lane.id).into_iter().filter(|view| view.uninitialized);
    for view in waiting {
        // The nodes share one call, so the manager does not spread them over a time.
        lane.nodes.add_after(view.node.name.clone(), Duration::ZERO);
    }
    lane.passes.notify_one();
}

/// Queues each of the provider's load balancers, spread over a time, including those in backoff:
/// another release may succeed.
fn ensure_again(context: &Context, lane: &Lane) {
    let mut services = context.ledger.held_by(&lane.name);
    services.extend(lane.services.delayed());
    services.sort();
    services.dedup();
    for (after, key) in spread(services, context.settings.swap_spread_max) {
        lane.services.add_after(key, after);
    }
}

/// The owner of each Service, and the lane whose queue gets it.
pub(crate) fn service_owners(context: &Context) -> HashMap<ObjectKey, (Owner, Option<LaneId>)> {
    let of = |object: &Arc<core::Service>| {
        let key = ObjectKey::of(&**object);
        let lane = context.route_service(&key).map(|lane| lane.id);
        (key, (context.service_owner(object), lane))
    };
    context.services.all().iter().map(of).collect()
}

/// Handles changed providers or claims: queues only the affected objects. `before` is the earlier
/// result of [`service_owners`].
pub(crate) fn providers_changed(
    context: &Context,
    edited: &[(Arc<Lane>, LaneEdit)],
    before: &HashMap<ObjectKey, (Owner, Option<LaneId>)>,
) {
    claims_changed(context);
    report_claims(context);
    context.lanes.all().iter().for_each(|lane| report_interfaces(context, lane));
    for (lane, LaneEdit { readdressed, pauses }) in edited {
        if readdressed.load_balancers {
            ensure_again(context, lane);
        }
        if readdressed.nodes {
            describe_again(context, lane);
        }
        if *pauses {
            pause_changed(context, lane);
        }
    }
    for (key, after) in service_owners(context) {
        let Some(object) = context.services.get(&key).filter(|_| before.get(&key) != Some(&after)) else { continue };
        report_verdict(context, controllers::SERVICE, &convert::service_reference(&object), after.0);
        record_named_provider(context, &key, None, &object);
        report_unclaimed(context, &key, &object);
        if let Some(lane) = context.route_service(&key) {
            lane.services.add(key);
        }
    }
}

/// Handles the begin or the end of a provider's pause: each of its Services finds out whether it is
/// paused, and continues with what has changed meanwhile.
fn pause_changed(context: &Context, lane: &Lane) {
    report_pause(context, lane);
    let mut keys = context.ledger.held_by(&lane.name);
    let of_lane = |key: &ObjectKey| context.route_service(key).is_some_and(|other| other.id == lane.id);
    keys.extend(context.services.all().iter().map(|object| ObjectKey::of(&**object)).filter(of_lane));
    keys.sort();
    keys.dedup();
    keys.into_iter().for_each(|key| lane.services.add(key));
    route::release_changed(context, lane);
}

/// Reports whether the operator has paused the provider.
fn report_pause(context: &Context, lane: &Lane) {
    let name = &lane.name;
    let (reason, text) = match lane.is_paused() {
        true => (
            reasons::PAUSED,
            format!(
                "The provider {name} is paused (spec.paused): Skysail changes no load balancer and no route of it and deletes none of its nodes. To let one Service through: \
                 kubectl annotate service NAME --namespace NAMESPACE {PAUSED_ANNOTATION}=false. To continue with all, set spec.paused of the Provider {name} to false"
            ),
        ),
        false => (
            reasons::RESUMED,
            format!("The pause of the provider {name} has ended. Skysail continues with what has changed meanwhile"),
        ),
    };
    tracing::info!(provider.name = name, reason = text, "a pause of the provider began or ended");
    let actor = Actor { controller: controllers::SERVICE, provider: name.clone() };
    context.reporter.event(&actor, &cluster(), (EventKind::Normal, reason), text);
}

/// Reports the pause of a provider that the controllers have just begun to serve.
pub(crate) fn report_first_pause(context: &Context, lane: &Lane) {
    pause::count(context, lane);
    context.count_held_deletions(lane);
    if lane.is_paused() {
        report_pause(context, lane);
    }
}

/// Handles rotated credentials of this provider: retries only what was denied. Other keys keep
/// their delays.
pub(crate) fn credentials_rotated(context: &Context, lane: &Lane) {
    let services = &lane.services;
    for (after, key) in spread(services.denied(), context.settings.swap_spread_max) {
        services.add_after(key, after);
    }
    let nodes = &lane.nodes;
    for name in nodes.denied() {
        // The nodes share one call, so the manager does not spread them over a time.
        nodes.add_after(name, Duration::ZERO);
    }
    if lane.pass_denied.load(Ordering::Relaxed) {
        lane.passes.notify_one();
    }
    let routes = &lane.routes;
    for key in routes.denied() {
        routes.add(key);
    }
}

/// Assigns each node again if the providers' claims changed.
///
/// Node sets are published at once: a release that just became active may declare new schemes, and
/// a Service with the earlier node set would lose all its backends.
pub(crate) fn claims_changed(context: &Context) {
    let (moved, settled) = context.nodes.reassign(|claims| context.lanes.claims(claims));
    for lane in settled.into_iter().filter_map(|lane| context.lanes.get(lane)) {
        if *lane.published.borrow() {
            node_set_published(context, &lane);
        }
        all_again(context, &lane);
    }
    report_disputed(context);
    if moved.is_empty() {
        return;
    }
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

/// Handles a changed node set: queues the provider's Services.
pub(crate) fn node_set_published(context: &Context, lane: &Lane) {
    let size = context.nodes.eligible_count(lane.id);
    metrics::set_count(&context.reporter.metrics.node_set_size, &lane.name, size);
    for key in context.ledger.held_by(&lane.name) {
        if context.ledger.waits(&key) {
            // The failed `ensure` waits for its retry; the earlier load balancer must not keep
            // deleted nodes.
            lane.services.add(key);
        } else {
            lane.services.nudge(key);
        }
    }
}

/// Reports the claims of each provider that an older provider has.
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

/// Reports the schemes that the component declares and the provider's spec does not list, and the
/// interfaces that the spec lists and the component does not export.
pub(crate) fn report_component(context: &Context, lane: &Lane) {
    if let Some(text) = lane.settings().ignored_schemes() {
        report_claim(context, lane, reasons::FOREIGN_PROVIDER_ID_SCHEME, text);
    }
    report_interfaces(context, lane);
}

fn report_interfaces(context: &Context, lane: &Lane) {
    let missing = lane.settings().missing_interfaces();
    if lane.findings.set(Finding::InterfaceNotExported, missing.clone())
        && let Some(text) = missing
    {
        report_claim(context, lane, reasons::INTERFACE_NOT_EXPORTED, text);
    }
}

fn report_claim(context: &Context, lane: &Lane, reason: &'static str, text: String) {
    tracing::warn!(provider.name = lane.name, reason = text, "a setting of the provider has no effect");
    let actor = Actor { controller: controllers::CLOUD_NODE, provider: lane.name.clone() };
    context.reporter.event(&actor, &cluster(), (EventKind::Warning, reason), text);
}

/// Reports to each provider the nodes on which it does not act, because another provider claims or
/// holds them.
fn report_disputed(context: &Context) {
    let disputed = context.nodes.disputed();
    for lane in context.lanes.all().iter() {
        let nodes = |held: bool| {
            let of_lane = disputed.iter().filter(move |((one, _, is_held), _)| *one == lane.id && *is_held == held);
            let shown = of_lane.filter_map(|((_, other, _), (count, first))| {
                Some(format!("{count} with the provider {}, such as {first}", context.lanes.get(*other)?.name))
            });
            shown.collect::<Vec<_>>().join("; ")
        };
        let contested = Some(nodes(false)).filter(|nodes| !nodes.is_empty()).map(|nodes| {
            format!(
                "More than one provider selects these nodes, so no provider acts on them: {nodes}. Give each provider its own spec.nodeSelector"
            )
        });
        let held = Some(nodes(true)).filter(|nodes| !nodes.is_empty()).map(|nodes| {
            format!(
                "Other providers hold nodes that the spec.nodeSelector selects, and keep them: {nodes}. Change the spec.nodeSelector; or, if the nodes are machines of {name}, give each to \
                 it: kubectl annotate node NODE --overwrite {NODE_PROVIDER_ANNOTATION}={name}",
                name = lane.name
            )
        });
        let text = contested.into_iter().chain(held).collect::<Vec<_>>().join(". ");
        lane.findings.set(Finding::NodeOwnershipConflict, Some(text).filter(|text| !text.is_empty()));
    }
}

/// Spreads keys evenly over a time that grows with their number.
fn spread(keys: Vec<ObjectKey>, max: Duration) -> impl Iterator<Item = (Duration, ObjectKey)> {
    let count = u32::try_from(keys.len()).unwrap_or(u32::MAX).max(1);
    let pace = SWAP_PACE.min(max / count);
    keys.into_iter().zip(0_u32..).map(move |(key, index)| (pace * index, key))
}

fn enqueue_node(context: &Context, view: &NodeView) {
    if view.wanting()
        && let Some(lane) = view.owner.provider().and_then(|lane| context.lanes.get(lane))
    {
        lane.nodes.add(view.node.name.clone());
    }
}

/// Emits an Event about an object on which no provider may act.
fn report_verdict(context: &Context, controller: &'static str, object: &ObjectReference, owner: Owner) {
    if let Some((reason, text)) = verdict(context, owner) {
        let actor = Actor { controller, provider: String::new() };
        context.reporter.event(&actor, object, (EventKind::Warning, reason), text);
    }
}

/// Why no provider acts on an object of this owner: the reason and the text of the Event. None if
/// a provider does, or if no provider claims the object.
pub(crate) fn verdict(context: &Context, owner: Owner) -> Option<(&'static str, String)> {
    match owner {
        Owner::Provider(_) | Owner::Unowned => None,
        Owner::Contested(one, other) => {
            let name = |lane| context.lanes.get(lane).map(|lane| lane.name.clone()).unwrap_or_default();
            let (one, other) = (name(one), name(other));
            let text = format!(
                "The providers {one} and {other} both claim this object, so neither acts on it. Give each provider its own classes, selectors, provider-ID schemes and prefixes"
            );
            Some((reasons::PROVIDER_CONFLICT, text))
        }
        Owner::Malformed => {
            let text =
                "no provider owns this node, because spec.providerID does not have the form <scheme>://<rest> and no provider claims a prefix of it; claim it in spec.providerIdPrefixes of its provider, or delete the node and register it again with a valid provider ID".to_owned();
            Some((reasons::INVALID_PROVIDER_ID, text))
        }
    }
}
