//! Which changes of a Service affect its load balancer (pure): upstream's predicates, in upstream's
//! order.

use k8s_openapi::api::core::v1 as core;
use skysail_provider::Service;

use crate::service_spec::{
    adopted, allows_deletion, class, convert, deletion_policy, has_finalizer, is_load_balancer, named_class,
    named_holder, paused, status,
};

/// A field, and whether it differs.
type Field = (&'static str, fn(&Service, &Service) -> bool);

/// The fields of a load balancer's Service, by their names in the object.
const FIELDS: [Field; 11] = [
    ("spec.loadBalancerSourceRanges", |old, new| old.source_ranges != new.source_ranges),
    ("spec.ports", |old, new| old.ports != new.ports),
    ("spec.sessionAffinity", |old, new| old.session_affinity != new.session_affinity),
    ("spec.loadBalancerIP", |old, new| old.load_balancer_ip != new.load_balancer_ip),
    ("spec.externalIPs", |old, new| old.external_ips != new.external_ips),
    ("metadata.annotations", |old, new| old.annotations != new.annotations),
    ("metadata.uid", |old, new| old.uid != new.uid),
    ("spec.externalTrafficPolicy", |old, new| old.external_traffic_policy != new.external_traffic_policy),
    ("spec.healthCheckNodePort", |old, new| old.health_check_node_port != new.health_check_node_port),
    ("spec.ipFamilies", |old, new| old.ip_families != new.ip_families),
    ("spec.loadBalancerClass", |old, new| old.load_balancer_class != new.load_balancer_class),
];

/// The fields whose change requires `ensure`.
///
/// Labels, selector, cluster IPs, internal traffic policy and status do not matter. Whether a load
/// balancer is wanted at all is decided before. The class cannot change while the type stays, but
/// the type may have changed twice between two runs. Upstream sees each change and compares only
/// the number of IP families.
pub(crate) fn changed_fields<'a>(old: &'a Service, new: &'a Service) -> impl Iterator<Item = &'static str> + 'a {
    FIELDS.into_iter().filter(move |(_, differs)| differs(old, new)).map(|(name, _)| name)
}

/// Whether a change of the Service requires `ensure`.
pub(crate) fn needs_update(old: &Service, new: &Service) -> bool {
    changed_fields(old, new).next().is_some()
}

/// Whether a change of the object requires a reconcile. Our own writes (finalizer, status) do not.
/// A status change by another client does only if it emptied the status: the API server does so
/// when the type changes, even for a moment.
pub(crate) fn is_relevant(old: &core::Service, new: &core::Service) -> bool {
    let concerns_us = |object| is_load_balancer(object) || has_finalizer(object);
    if !concerns_us(old) && !concerns_us(new) {
        return false;
    }
    if is_load_balancer(old) != is_load_balancer(new)
        || class(old) != class(new)
        || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
        // Another client removed our finalizer: it has to be restored before the object can be
        // deleted.
        || (has_finalizer(old) && !has_finalizer(new))
        || (is_load_balancer(new) && lost_status(old, new))
        || paused(old) != paused(new)
        || deletion_policy(old) != deletion_policy(new)
        || adopted(old) != adopted(new)
        || allows_deletion(old) != allows_deletion(new)
        // Another client wrote the provider's name. The mere removal of the annotation is accepted,
        // to avoid a conflict with that client.
        || (named_holder(old).is_some() && named_holder(new).is_some() && named_holder(old) != named_holder(new))
        || (named_class(old).is_some() && named_class(new).is_some() && named_class(old) != named_class(new))
    {
        return true;
    }
    let (old, new) = (convert(old), convert(new));
    needs_update(&old.service, &new.service) || old.problems != new.problems
}

/// Whether the status had an ingress and is empty now.
fn lost_status(old: &core::Service, new: &core::Service) -> bool {
    !status(old).ingress.is_empty() && status(new).ingress.is_empty()
}

#[cfg(test)]
mod tests;
