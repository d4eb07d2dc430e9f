//! The texts about Services whose load balancer no provider manages: the reason and the remedy.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use crate::{
    context::Context,
    ledger::Entry,
    names::LOAD_BALANCER_FINALIZER,
    ownership::Owner,
    service_spec::{class, has_finalizer, is_load_balancer},
    watch::ObjectKey,
};

/// The provider that made the Service's load balancer, if it is removed.
pub(crate) fn former_holder(context: &Context, key: &ObjectKey) -> Option<Arc<str>> {
    let Entry { provider, .. } = context.ledger.get(key)?;
    context.lanes.named(&provider).is_none().then_some(provider)
}

/// The text about a provider that takes over from a removed one.
pub(crate) fn taken_over(former: &str, provider: &str) -> String {
    format!(
        "The provider {provider} takes over this Service, because the provider {former}, which made its load balancer, is removed. If {provider} is another \
         cloud, delete the load balancer of {former} by hand"
    )
}

/// The text about a Service that has our finalizer and no owner. None if it has an owner, or if
/// another controller must have set the finalizer and the Service is not being deleted.
pub(crate) fn text(context: &Context, key: &ObjectKey, object: &core::Service) -> Option<String> {
    if !has_finalizer(object) || context.service_owner(object) != Owner::Unowned {
        return None;
    }
    if !is_load_balancer(object) {
        let holder = former_holder(context, key)?;
        return Some(format!(
            "This Service has a load balancer of the provider {holder}, which is removed, so Skysail cannot delete the load balancer, and the \
             finalizer stays on the Service. Add the provider {holder} again; or {}",
            by_hand(key)
        ));
    }
    let wanted = match class(object) {
        Some(class) => format!("the class {class:?}"),
        None => "Services without a class (default)".to_owned(),
    };
    let entry = context.ledger.get(key);
    if entry.as_ref().is_some_and(|entry| entry.service.load_balancer_class.as_deref() != class(object)) {
        // The user changed the class: the load balancer is deleted.
        return None;
    }
    let holder = entry.map(|entry| entry.provider);
    match holder {
        Some(holder) if context.lanes.named(&holder).is_some() => Some(format!(
            "No provider claims {wanted} any more. The load balancer of {holder} stays without updates until this Service is deleted; to have it updated, let a \
             provider claim {wanted} again"
        )),
        Some(holder) => Some(format!(
            "This Service's load balancer belongs to the provider {holder}, which is removed, so Skysail cannot delete it, and the finalizer stays on the Service. \
             Add the provider {holder} again, with {wanted}; or {}",
            by_hand(key)
        )),
        // Other controllers use the same finalizer: while the Service is not being deleted, no
        // report is needed.
        None if object.metadata.deletion_timestamp.is_some() => Some(format!(
            "A finalizer delays the deletion of this Service, and no provider here claims {wanted}. If another controller manages it, wait for that controller. If a provider of \
             Skysail made its load balancer, let that provider claim it again; or {}",
            by_hand(key)
        )),
        None => None,
    }
}

fn by_hand(key: &ObjectKey) -> String {
    let ObjectKey { namespace, name } = key;
    format!(
        "delete the load balancer by hand, and then remove {LOAD_BALANCER_FINALIZER} from metadata.finalizers: kubectl edit service {name} --namespace {namespace}"
    )
}
