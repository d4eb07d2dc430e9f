//! Services whose load balancer no provider looks after: what is wrong and what a person can do, in
//! words.

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

/// The provider that made the Service's load balancer, where it is not there any more.
pub(crate) fn former_holder(context: &Context, key: &ObjectKey) -> Option<Arc<str>> {
    let Entry { provider, .. } = context.ledger.get(key)?;
    context.lanes.named(&provider).is_none().then_some(provider)
}

/// One provider follows another that is gone.
pub(crate) fn taken_over(former: &str, provider: &str) -> String {
    format!(
        "The provider {former} made this Service's load balancer and is not there any more; {provider} takes the Service over. If {provider} is another \
         cloud, delete what {former} made by hand"
    )
}

/// What has to be said about a Service that has our finalizer and no owner; nothing where it has
/// either, or where only somebody else can have set the finalizer and nothing waits for it.
pub(crate) fn text(context: &Context, key: &ObjectKey, object: &core::Service) -> Option<String> {
    if !has_finalizer(object) || context.service_owner(object) != Owner::Nobody {
        return None;
    }
    if !is_load_balancer(object) {
        let holder = former_holder(context, key)?;
        return Some(format!(
            "The provider {holder} made a load balancer for this Service, which wants none any more, and is not there: nobody will delete it, and the \
             finalizer keeps this Service. Give the provider {holder} back; or {}",
            by_hand(key)
        ));
    }
    let wanted = match class(object) {
        Some(class) => format!("the class {class:?}"),
        None => "Services without a class (default)".to_owned(),
    };
    let entry = context.ledger.get(key);
    if entry.as_ref().is_some_and(|entry| entry.service.load_balancer_class.as_deref() != class(object)) {
        // Its user changed the class: it goes.
        return None;
    }
    let holder = entry.map(|entry| entry.provider);
    match holder {
        Some(holder) if context.lanes.named(&holder).is_some() => Some(format!(
            "No provider claims {wanted} any more. The load balancer stays as {holder} made it and goes with this Service; to have it kept up to date, let a \
             provider claim that again"
        )),
        Some(holder) => Some(format!(
            "The provider {holder} made this Service's load balancer and is not there any more: nobody will delete it, and the finalizer keeps this Service. \
             Give the provider {holder} back, with {wanted}; or {}",
            by_hand(key)
        )),
        // Other controllers use the same finalizer: as long as nothing waits for it, it is none of
        // our business.
        None if object.metadata.deletion_timestamp.is_some() => Some(format!(
            "This Service is kept by a finalizer, and no provider here claims {wanted}. If another controller looks after it, wait for that one. If a provider of \
             ours made its load balancer, let that provider claim it again; or {}",
            by_hand(key)
        )),
        None => None,
    }
}

fn by_hand(key: &ObjectKey) -> String {
    let ObjectKey { namespace, name } = key;
    format!(
        "delete the load balancer by hand, and then take {LOAD_BALANCER_FINALIZER} out of metadata.finalizers: kubectl edit service {name} --namespace {namespace}"
    )
}
