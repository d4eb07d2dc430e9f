//! Which load balancer a Service has: its own, or a retained one that it has adopted; and what
//! becomes of it when the Service goes (pure).
//!
//! # Guarantees
//! - A Service gets a load balancer that was made for another one only by a record: of its own
//!   provider, of its own namespace, and of a load balancer that no Service has.
//! - The record is written before the first call of the provider that changes something, and it
//!   alone says under which UID and name the provider finds the load balancer: the annotation is
//!   not read again.
//! - A provider that finds load balancers by the names of Services does not give or delete one with
//!   a record to another Service of the name.
//! - A Service that wants a retained load balancer and cannot get it gets no other one.
//! - What is retained, or another Service's, is not deleted with this Service.
//! - A policy that cannot be read counts as `Retain`.
//! - What the provider does not find, and no user has seen an address of, is no load balancer that
//!   could be retained: its parts are deleted under each policy. A record of it would fill the
//!   ConfigMap at no cost for the user.

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{EventKind, Service};

use super::{orphans, plan::Observed};
use crate::{
    context::Context,
    convert,
    findings::Finding,
    lane::Lane,
    ledger::{Entry, State},
    metrics,
    names::{ADOPT_LOAD_BALANCER_ANNOTATION, DELETION_POLICY_ANNOTATION, controllers, reasons},
    ownership::LaneId,
    providers::DeletionPolicy,
    report::Actor,
    retained::{RetainedKey, RetainedLoadBalancer, record::is_uid},
    service_spec::{adopted, deletion_policy, has_finalizer, is_whole, shown, status},
    watch::ObjectKey,
};

type Record = (RetainedKey, RetainedLoadBalancer);

/// What the records say about the load balancers of the observed Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    /// The planning provider's record that names this Service.
    pub(crate) own: Option<Record>,
    /// The planning provider's record of the load balancer that was made for this Service, which
    /// another Service has, or had last.
    pub(crate) taken: Option<Record>,
    /// The planning provider's record that the annotation names, in the namespace of the Service.
    pub(crate) named: Option<Record>,
    /// Another provider that has such a record.
    pub(crate) named_elsewhere: Option<String>,
    /// The record that says that a former Service of this name has the load balancer.
    pub(crate) left: Option<Record>,
    /// The providers whose load balancer of this Service is retained, or another Service's.
    pub(crate) spared: Vec<LaneId>,
    /// Whether a load balancer of this Service is retained.
    pub(crate) is_kept: bool,
}

impl Records {
    /// Reads the records for a plan of this provider.
    pub(super) fn read(
        context: &Context,
        (lane, key): (&Lane, &ObjectKey),
        object: Option<&core::Service>,
        entry: Option<&Entry>,
    ) -> Self {
        let retained = &context.retained;
        let object_uid = object.and_then(|object| object.metadata.uid.as_deref());
        let subject = entry.map(|entry| entry.object_uid.as_str()).or(object_uid).unwrap_or_default();
        let found_by = |at: &Lane| match entry.filter(|_| at.id == lane.id) {
            Some(entry) => entry.service.uid.clone(),
            None => retained.of_service(&at.name, subject).map_or_else(|| subject.to_owned(), |(key, _)| key.uid),
        };
        let is_spared = |at: &Lane| {
            let record = retained.get(&at.name, &found_by(at));
            record.is_some_and(|(_, record)| !record.in_use || record.service_uid != subject)
        };
        let is_kept_at = |at: &Lane| retained.of_service(&at.name, subject).is_some_and(|(_, record)| !record.in_use);
        let lanes = context.lanes.all();
        let of_object = object_uid.unwrap_or_default();
        let named = object.and_then(adopted);
        let is_here = |(_, record): &Record| record.namespace == key.namespace;
        Self {
            own: retained.of_service(&lane.name, of_object),
            taken: retained.get(&lane.name, of_object).filter(|(_, record)| record.service_uid != of_object),
            named: named.and_then(|uid| retained.get(&lane.name, uid)).filter(is_here),
            named_elsewhere: named.and_then(|uid| retained.other_provider(&lane.name, uid, &key.namespace)),
            left: retained.used_by_another(key, object_uid),
            spared: lanes.iter().filter(|lane| is_spared(lane)).map(|lane| lane.id).collect(),
            is_kept: lanes.iter().any(|lane| is_kept_at(lane)),
        }
    }

    /// The record of a former Service of this name, unless the ledger has that Service.
    pub(super) fn left_behind(&self, entry: Option<&Entry>) -> Option<&Record> {
        let is_known =
            |record: &RetainedLoadBalancer| entry.is_some_and(|entry| entry.object_uid == record.service_uid);
        self.left.as_ref().filter(|(_, record)| !is_known(record))
    }
}

/// Which load balancer a Service has, or is to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The UID and the name of the Service for which it was made: by these the provider finds it.
    pub(crate) uid: String,
    pub(crate) name: String,
    /// Whether the record has to be written first, because the load balancer is retained.
    pub(crate) claims: bool,
    /// Why the Service does not get the load balancer that it asks for.
    pub(crate) problem: Option<String>,
}

/// The load balancer of this object, which has one or is to get one. `wanted`: the planning
/// provider has to serve the object; only then its annotation counts.
pub(super) fn identity(observed: &Observed, object: &core::Service, wanted: bool) -> Identity {
    let Observed { records, .. } = observed;
    let object_uid = object.metadata.uid.clone().unwrap_or_default();
    let of_object = observed.entry.as_ref().filter(|entry| entry.object_uid == object_uid);
    let entry = of_object.filter(|entry| entry.state != State::Deleted);
    let found_by = match (entry, &records.own) {
        (Some(entry), _) => Some((entry.service.uid.clone(), entry.service.name.clone())),
        (None, Some((key, record))) => Some((key.uid.clone(), record.made_for.clone())),
        (None, None) => None,
    };
    let named = adopted(object).filter(|_| wanted);
    if let Some((uid, name)) = found_by {
        let claims = records.own.as_ref().is_some_and(|(key, record)| key.uid == uid && !record.in_use);
        let problem = named.filter(|named| *named != uid).map(|named| has_another(object, named, &uid));
        return Identity { uid, name, claims, problem };
    }
    let own_name = object.metadata.name.clone().unwrap_or_default();
    let own = |problem| Identity { uid: object_uid.clone(), name: own_name.clone(), claims: false, problem };
    let Some(named) = named else {
        return own(records.taken.as_ref().filter(|_| wanted).map(|record| taken(object, record)));
    };
    // The watch may still show the finalizer that this process has removed.
    let may_have_own = has_finalizer(object) && of_object.is_none() && observed.release_wait.is_none();
    match &records.named {
        _ if named == object_uid && records.taken.is_none() => own(None),
        _ if may_have_own && named != object_uid => own(Some(has_another(object, named, &object_uid))),
        Some((key, record)) if !record.in_use => {
            Identity { uid: key.uid.clone(), name: record.made_for.clone(), claims: true, problem: None }
        }
        Some((_, record)) => own(Some(in_use(object, named, record))),
        None => own(Some(not_found(observed, object, named))),
    }
}

/// The commands and places in the texts about the annotation.
fn remove(object: &core::Service) -> String {
    let (namespace, name) = (object.metadata.namespace.as_deref(), object.metadata.name.as_deref());
    format!(
        "kubectl annotate service {} --namespace {} {ADOPT_LOAD_BALANCER_ANNOTATION}-",
        name.unwrap_or_default(),
        namespace.unwrap_or_default()
    )
}

fn has_another(object: &core::Service, named: &str, uid: &str) -> String {
    format!(
        "the annotation {ADOPT_LOAD_BALANCER_ANNOTATION} is {}, and this Service has, or may have, the load balancer with the UID {uid} already; create another Service with \
         the annotation, and remove it here: {}",
        shown(named),
        remove(object)
    )
}

fn in_use(object: &core::Service, named: &str, record: &RetainedLoadBalancer) -> String {
    format!(
        "the annotation {ADOPT_LOAD_BALANCER_ANNOTATION} is {}, and the Service {} has this load balancer; to get a new one, remove the annotation: {}",
        shown(named),
        shown(&record.service),
        remove(object)
    )
}

/// The text is the same whether a record of another namespace exists or none: a user learns nothing
/// about the load balancers of others.
fn not_found(observed: &Observed, object: &core::Service, named: &str) -> String {
    let provider = &observed.provider;
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let why = match &observed.records.named_elsewhere {
        _ if !is_uid(named) => "which is not a UID".to_owned(),
        Some(other) => format!(
            "which is a retained load balancer of the provider {other}, and this Service is of the provider {provider}: create it with a spec.loadBalancerClass of {other}"
        ),
        None => format!(
            "and the provider {provider} has no retained load balancer with this UID in the namespace {namespace}"
        ),
    };
    format!(
        "the annotation {ADOPT_LOAD_BALANCER_ANNOTATION} is {}, {why}; the Event {} of the former Service names the UID. To get a new load balancer, remove the annotation: {}",
        shown(named),
        reasons::LOAD_BALANCER_RETAINED,
        remove(object)
    )
}

fn taken(object: &core::Service, (key, record): &Record) -> String {
    let service = shown(&record.service);
    let ObjectKey { namespace, name } = ObjectKey::of(object);
    match record.in_use {
        true => format!(
            "the Service {service} has adopted the load balancer that was made for this Service; delete this Service and create it again, to get a new load balancer"
        ),
        false => format!(
            "the load balancer that was made for this Service is retained, and the Service {service} had it last; to take it back: kubectl annotate service {name} \
             --namespace {namespace} {ADOPT_LOAD_BALANCER_ANNOTATION}={}",
            key.uid
        ),
    }
}

/// The annotation with the policy that counts for the load balancer of the ledger entry, or else of
/// the object. The cache keeps no annotations of an object that is neither of type LoadBalancer nor
/// has our finalizer.
fn annotated<'a>(object: Option<&'a core::Service>, entry: Option<&'a Entry>) -> Option<&'a str> {
    let is_of = |object: &&core::Service, entry: &Entry| {
        object.metadata.uid.as_deref() == Some(&entry.object_uid) && is_whole(object)
    };
    match (object, entry) {
        (object, Some(entry)) => match object.filter(|object| is_of(object, entry)) {
            Some(object) => deletion_policy(object),
            None => entry.deletion_policy.as_deref(),
        },
        (Some(object), None) => deletion_policy(object),
        (None, None) => None,
    }
}

/// The providers that retain the load balancer.
pub(super) fn retaining(context: &Context, object: Option<&core::Service>, entry: Option<&Entry>) -> Vec<LaneId> {
    let annotated = annotated(object, entry);
    let retains = |lane: &Lane| match annotated {
        Some(policy) => policy != "Delete",
        None => lane.settings().deletion_policy == DeletionPolicy::Retain,
    };
    context.lanes.all().iter().filter(|lane| retains(lane)).map(|lane| lane.id).collect()
}

/// Whether users have seen an address of the load balancer: this process has, or the status of the
/// object shows one.
pub(super) fn was_shown(observed: &Observed) -> bool {
    let entry = observed.entry.as_ref();
    let is_its = |object: &&core::Service| {
        entry.is_none_or(|entry| object.metadata.uid.as_deref() == Some(entry.object_uid.as_str()))
    };
    let object = observed.object.as_deref().filter(is_its);
    entry.is_some_and(|entry| entry.was_shown) || object.is_some_and(|object| !status(object).ingress.is_empty())
}

/// Why a Service gets no load balancer whose name in the cloud would be that of one with a record.
pub(super) fn namesake(object: &ObjectKey, record: &RetainedLoadBalancer) -> String {
    format!(
        "the provider would find the load balancer {}, which it made for a former Service {object} and which is retained or in use; give this Service another name, or let it adopt that load balancer: skysail retained lists the UIDs for the annotation {ADOPT_LOAD_BALANCER_ANNOTATION}",
        shown(&record.name)
    )
}

/// Where the policy comes from, as a part of a sentence.
fn source(provider: &str, annotated: Option<&str>) -> String {
    match annotated {
        Some("Delete" | "Retain") => format!("the annotation {DELETION_POLICY_ANNOTATION}"),
        Some(other) => format!(
            "the annotation {DELETION_POLICY_ANNOTATION} is {}, which is neither \"Delete\" nor \"Retain\", and counts as \"Retain\"",
            shown(other)
        ),
        None => format!("spec.deletionPolicy of the Provider {provider}"),
    }
}

/// What becomes of the load balancer when the Service goes, in words.
pub(super) fn explained(observed: &Observed) -> String {
    let annotated = annotated(observed.object.as_deref(), observed.entry.as_ref());
    let source = source(&observed.provider, annotated);
    let adopted = match &observed.records.own {
        Some((key, RetainedLoadBalancer { in_use: true, .. })) => {
            format!(
                ". The Service has adopted the load balancer that was made for the Service with the UID {}",
                key.uid
            )
        }
        _ => String::new(),
    };
    match observed.retains.contains(&observed.lane) {
        true => format!("Retain ({source}): the load balancer stays in the cloud{adopted}"),
        false => format!("Delete ({source}){adopted}"),
    }
}

/// The text of the Event about a load balancer that stays, and its kind.
pub(super) fn retained_text(
    observed: &Observed,
    provider: &str,
    (key, record): (&RetainedKey, &RetainedLoadBalancer),
) -> (EventKind, String) {
    let annotated = annotated(observed.object.as_deref(), observed.entry.as_ref());
    let is_clear = matches!(annotated, None | Some("Delete" | "Retain"));
    let addresses = match record.addresses.as_slice() {
        [] => String::new(),
        addresses => format!(" ({})", addresses.join(", ")),
    };
    let name = orphans::shown(&record.name);
    let text = format!(
        "The load balancer {name}{addresses} of the provider {provider} stays in the cloud, because the deletion policy is Retain: {}. To use it again, create a Service in the \
         namespace {} with the annotation {ADOPT_LOAD_BALANCER_ANNOTATION}: {uid}. To delete it, delete that Service with the annotation {DELETION_POLICY_ANNOTATION}: \
         Delete, or: skysail orphans --delete {name}",
        source(provider, annotated),
        record.namespace,
        uid = key.uid
    );
    (if is_clear { EventKind::Normal } else { EventKind::Warning }, text)
}

/// Reports a policy that cannot be read of a Service with an owner, when it is first seen and when
/// it changes.
pub(crate) fn report_unclear(context: &Context, old: Option<&core::Service>, new: &core::Service) {
    let Some(policy) = deletion_policy(new).filter(|policy| !matches!(*policy, "Delete" | "Retain")) else { return };
    let Some(owner) = context.service_owner(new).provider().and_then(|owner| context.lanes.get(owner)) else { return };
    if old.and_then(deletion_policy) == Some(policy) {
        return;
    }
    let ObjectKey { namespace, name } = ObjectKey::of(new);
    let text = format!(
        "The annotation {DELETION_POLICY_ANNOTATION} is {}, which is neither \"Delete\" nor \"Retain\", so the load balancer of this Service will stay when the Service goes. \
         Correct it: kubectl annotate --overwrite service {name} --namespace {namespace} {DELETION_POLICY_ANNOTATION}=Retain",
        shown(policy)
    );
    let actor = Actor { controller: controllers::SERVICE, provider: owner.name.clone() };
    let kind = (EventKind::Warning, reasons::INVALID_DELETION_POLICY);
    context.reporter.event(&actor, &convert::service_reference(new), kind, text);
}

/// Reports how many load balancers of the provider are retained.
pub(crate) fn count(context: &Context, lane: &Lane) {
    let (count, first) = context.retained.of_provider(&lane.name);
    metrics::set_count(&context.reporter.metrics.retained_load_balancers, &lane.name, count);
    let finding = first.map(|(key, record)| {
        format!(
            "Load balancers that stay in the cloud without a Service: {count}, such as {} with the UID {} of the former Service {}. To list them: skysail retained",
            shown(&record.name),
            key.uid,
            record.service_key()
        )
    });
    lane.findings.set(Finding::LoadBalancersRetained, finding);
}

/// The form of the Service that a record names, for a question to the API.
pub(super) fn former(record: &RetainedLoadBalancer) -> Service {
    let mut object = core::Service::default();
    object.metadata.namespace = Some(record.namespace.clone());
    object.metadata.name = Some(record.service.clone());
    object.metadata.uid = Some(record.service_uid.clone());
    crate::service_spec::convert(&object).service
}

#[cfg(test)]
mod tests;
