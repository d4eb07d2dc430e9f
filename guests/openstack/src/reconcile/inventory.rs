//! The load balancers of this cluster: one entry for each Service's share.

use skysail_guest_sdk::{Error, Owned, Result};

use super::{State, Task, delete};
use crate::{
    client::{Call, Cloud},
    distinct, names,
    settings::Api,
    wire::LoadBalancer,
};

/// As `load-balancer-inventory.list`.
///
/// A share has the name of its Service, whose UID OpenStack does not store: the host compares it
/// with the names of all Services.
pub(crate) fn list_owned(cloud: &impl Cloud, cluster: &str) -> Result<Vec<Owned>> {
    let all: Vec<LoadBalancer> = cloud.list(Call::get(Api::LoadBalancer, &["loadbalancers"]))?;
    let shares = all.iter().filter(|lb| !matches!(lb.state(), State::Going)).flat_map(|lb| {
        let is_shared = lb.tags.iter().any(|tag| tag.starts_with(names::PREFIX));
        // One from before there were tags is the share of the Service that it is named after.
        let untagged = (!is_shared).then_some(&lb.name);
        lb.tags.iter().chain(untagged).filter(|name| names::service_of(cluster, name).is_some())
    });
    let names = distinct(shares.cloned());
    Ok(names.into_iter().map(|name| Owned { name, service: None, extra: Vec::new() }).collect())
}

/// As `load-balancer-inventory.delete`.
pub(crate) fn delete_owned<C: Cloud>(task: &Task<'_, C>, name: &str) -> Result<()> {
    let Some((namespace, service)) = names::service_of(task.cluster, name) else {
        return Err(Error::Denied(format!(
            "{name:?} is not the name of a load balancer of cluster {:?}; nothing was deleted",
            task.cluster
        )));
    };
    let deleted = delete::delete_named(task, name);
    // Not only after the last call: a load balancer that is being deleted is not listed any more.
    if matches!(deleted, Ok(()) | Err(Error::RetryAfter(_))) {
        task.forget_security_groups_of(namespace, service).map_err(Error::never_gone)?;
    }
    deleted.map_err(Error::never_gone)
}
