//! Which provider owns a Service, and why: the claims in words.

use k8s_openapi::api::core::v1 as core;

use super::view::ServiceOwner;
use crate::{
    context::Context,
    names::LOAD_BALANCER_FINALIZER,
    ownership::{LaneId, Owner},
    service::unclaimed,
    service_spec::{class, has_finalizer, is_load_balancer},
    triggers::verdict,
    watch::ObjectKey,
};

/// The most names in one text.
const SHOWN_MAX: usize = 5;

pub(super) fn of(context: &Context, key: &ObjectKey, object: Option<&core::Service>) -> ServiceOwner {
    let without = |reason: String| ServiceOwner { provider: None, reason };
    let Some(object) = object else { return without("the Service is deleted".to_owned()) };
    if !is_load_balancer(object) {
        return without("spec.type is not LoadBalancer, so no provider owns the Service".to_owned());
    }
    match context.service_owner(object) {
        Owner::Provider(lane) => {
            let name = context.lanes.get(lane).map(|lane| lane.name.clone()).unwrap_or_default();
            let reason = match class(object) {
                Some(class) => format!("{name} claims the class {class:?}{}", also_listed_by(context, class, lane)),
                None => format!("the Service has no class, and {name} is the default provider"),
            };
            ServiceOwner { provider: Some(name), reason }
        }
        Owner::Unowned => without(unclaimed::text(context, key, object).unwrap_or_else(|| unowned(context, object))),
        owner @ (Owner::Contested(..) | Owner::Malformed) => {
            without(verdict(context, owner).map(|(_, text)| text).unwrap_or_default())
        }
    }
}

/// The younger providers that list a class which the owner has.
fn also_listed_by(context: &Context, class: &str, owner: LaneId) -> String {
    let lanes = context.lanes.all();
    let lists = lanes
        .iter()
        .filter(|lane| lane.id != owner && lane.settings().load_balancer_classes.iter().any(|c| c == class));
    let names: Vec<&str> = lists.map(|lane| lane.name.as_str()).take(SHOWN_MAX).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(
            "; younger providers list the class too and do not get it: {}. Give each provider its own spec.loadBalancerClasses",
            names.join(", ")
        ),
    }
}

fn unowned(context: &Context, object: &core::Service) -> String {
    let lanes = context.lanes.all();
    let Some(class) = class(object) else {
        let default = lanes.iter().find(|lane| lane.settings().default);
        return match default {
            Some(lane) => without_load_balancers(&lane.name, "is the default provider"),
            None => "the Service has no class, and no provider is the default; set spec.default of one Provider, or give the Service the class of a provider".to_owned(),
        };
    };
    if let Some(lane) = lanes.iter().find(|lane| lane.settings().load_balancer_classes.iter().any(|c| c == class)) {
        return without_load_balancers(&lane.name, &format!("lists the class {class:?}"));
    }
    let claims = context.nodes.claims();
    let claimed: Vec<String> =
        claims.iter().flat_map(|claim| claim.classes()).take(SHOWN_MAX).map(|class| format!("{class:?}")).collect();
    let claimed = if claimed.is_empty() { "none".to_owned() } else { claimed.join(", ") };
    format!(
        "no provider claims the class {class:?}; if another controller serves the class, ask that controller, or add the class to spec.loadBalancerClasses of its Provider. Claimed classes: {claimed}"
    )
}

fn without_load_balancers(provider: &str, why: &str) -> String {
    format!("{provider} {why}, and its spec.interfaces leaves load-balancers out; add load-balancers there")
}

/// Why no queue has the Service.
pub(super) fn nobody_works(context: &Context, key: &ObjectKey) -> String {
    if let Some(former) = unclaimed::former_holder(context, key) {
        return format!(
            "the provider {former}, which made the load balancer, is removed, and no other provider owns the Service; add the provider {former} again"
        );
    }
    match context.services.get(key) {
        Some(object) if is_load_balancer(&object) => "no provider owns the Service".to_owned(),
        Some(object) if has_finalizer(&object) => {
            format!(
                "no provider is left that could delete the load balancer for the finalizer {LOAD_BALANCER_FINALIZER}; add a provider"
            )
        }
        Some(_) | None => "the Service wants no load balancer: spec.type is not LoadBalancer".to_owned(),
    }
}
