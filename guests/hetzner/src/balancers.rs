//! Reconciles the load balancer of one Service. Every call reads first, makes the writes that are
//! missing in a fixed order, and ends with `retry-after` at the first action that still runs.

use serde::Serialize;
use serde_json::json;
use skysail_guest_sdk::{Error, LoadBalancerStatus, NodeSet, Owned, Result, Service};

use crate::{
    certificates,
    hcloud::{Hcloud, Host},
    owner::{self, Claim, Owner},
    plan::{self, DEFAULT_TYPE, Front, Place, Wanted, Warnings},
    ports::Certificates,
    refusal::AGAIN,
    settings::Settings,
    targets,
    wire::{Labels, LoadBalancer, LoadBalancerAlgorithm, LoadBalancerService, PrivateNet, Target},
};

/// Collection of the API.
pub(crate) const LOAD_BALANCERS: &str = "load_balancers";

/// The desired state of one Service.
pub(crate) struct Task<'a, H> {
    pub(crate) cloud: &'a Hcloud<H>,
    pub(crate) settings: &'a Settings,
    pub(crate) owner: Owner,
    pub(crate) service: &'a Service,
}

/// The result, and the warnings for the user.
#[derive(Debug)]
pub(crate) struct Done<T> {
    pub(crate) value: T,
    pub(crate) warnings: Warnings,
}

/// The body of a creation: everything at once, so that one action makes the whole load balancer.
#[derive(Debug, Serialize)]
struct New<'a> {
    name: &'a str,
    load_balancer_type: &'a str,
    labels: Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<LoadBalancerAlgorithm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_interface: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<u64>,
    services: Vec<LoadBalancerService>,
    targets: Vec<Target>,
}

impl<H: Host> Task<'_, H> {
    /// As `load-balancers.get`.
    ///
    /// # Errors
    ///
    /// `unavailable` in place of `invalid`, which `ensure` reports.
    pub(crate) fn get(&self) -> Result<Option<LoadBalancerStatus>> {
        let status = || {
            let Some(balancer) = self.owned()? else { return Ok(None) };
            Ok(Some(Front::new(&self.settings.balancers, self.service)?.status(&balancer)))
        };
        status().map_err(|error| match error {
            Error::Invalid(message) => Error::Unavailable(message),
            error => error,
        })
    }

    /// As `load-balancers.ensure`.
    pub(crate) fn ensure(&self, nodes: &NodeSet) -> Result<Done<LoadBalancerStatus>> {
        let mut warnings = Warnings::new();
        let wanted = Wanted::new(self.settings, self.service, nodes, &mut warnings)?;
        self.cloud.settle(&self.owner.uid)?;
        let network = self.cloud.configured_network(self.settings)?;
        let balancer = match self.found()? {
            Some(balancer) => balancer,
            None => self.create(&wanted, network)?,
        };
        let balancer = self.converge(&wanted, network, balancer, &mut warnings).map_err(Error::never_gone)?;
        Ok(Done { value: wanted.front.status(&balancer), warnings })
    }

    /// As `load-balancers.update`.
    pub(crate) fn update(&self, nodes: &NodeSet) -> Result<Done<()>> {
        let mut warnings = Warnings::new();
        let wanted = Wanted::new(self.settings, self.service, nodes, &mut warnings)?;
        self.cloud.settle(&self.owner.uid)?;
        let network = self.cloud.configured_network(self.settings)?;
        let missing = || Error::NotFound(format!("Service {} has no load balancer", self.service.key()));
        let balancer = self.found()?.ok_or_else(missing)?;
        self.converge(&wanted, network, balancer, &mut warnings)?;
        Ok(Done { value: (), warnings })
    }

    /// As `load-balancers.ensure-deleted`.
    pub(crate) fn ensure_deleted(&self) -> Result<Done<()>> {
        // An action that failed does not matter any more.
        if let Err(running @ Error::RetryAfter(_)) = self.cloud.settle(&self.owner.uid) {
            return Err(running);
        }
        let mut warnings = Warnings::new();
        for balancer in self.all_owned()? {
            warnings.extend(remove(self.cloud, &balancer)?);
        }
        if warnings.is_empty() {
            certificates::delete(self.cloud, &self.owner)?;
        }
        Ok(Done { value: (), warnings })
    }

    /// The load balancers with this Service's UID that are not another cluster's.
    fn all_owned(&self) -> Result<Vec<LoadBalancer>> {
        let mut found = self.cloud.balancers(&owner::of_service(&self.owner.uid))?;
        found.retain(|balancer| self.owner.claim(&balancer.labels) == Claim::Ours);
        Ok(found)
    }

    /// The load balancer with this Service's UID.
    fn owned(&self) -> Result<Option<LoadBalancer>> {
        let mut found = self.all_owned()?.into_iter();
        match (found.next(), found.next()) {
            (Some(one), Some(other)) => Err(Error::Invalid(format!(
                "load balancers {} and {} both have the label {}={}; remove the label from one of them",
                one.id,
                other.id,
                owner::UID,
                self.owner.uid
            ))),
            (found, _) => Ok(found),
        }
    }

    /// The load balancer with this Service's UID, or else the one with its name: a user made it, or
    /// protected it from the deletion of an earlier Service.
    fn found(&self) -> Result<Option<LoadBalancer>> {
        if let Some(balancer) = self.owned()? {
            return Ok(Some(balancer));
        }
        let name = plan::name_of(self.service);
        let Some(balancer) = self.cloud.balancer_named(&name)? else { return Ok(None) };
        match self.owner.claim(&balancer.labels) {
            Claim::Ours | Claim::Free => Ok(Some(balancer)),
            Claim::Other(other) => Err(Error::Invalid(format!(
                "load balancer {name:?} ({}) belongs to {other}; choose another name by the annotation {}name, or remove \
                 the label {} from the load balancer",
                balancer.id,
                plan::PREFIX,
                owner::UID
            ))),
        }
    }

    fn create(&self, wanted: &Wanted, network: Option<u64>) -> Result<LoadBalancer> {
        let Place { location, network_zone } = Place::new(&self.settings.balancers, self.service)?;
        // An address or a subnet can be chosen only when a load balancer is attached later.
        let network = network.filter(|_| wanted.private_ipv4.is_none() && wanted.private_subnet.is_none());
        let reachable = !wanted.use_private_ip || network.is_some();
        let services = match wanted.ports.certificates {
            // Issuing takes minutes; the load balancer gets its addresses meanwhile.
            Certificates::Managed { .. } => Vec::new(),
            _ => certificates::with(self.cloud, &self.owner, &wanted.ports)?,
        };
        let name = plan::name_of(self.service);
        let mut new = New {
            name: &name,
            load_balancer_type: wanted.kind.as_deref().unwrap_or(DEFAULT_TYPE),
            labels: self.owner.added_to(&Labels::new()),
            location,
            network_zone,
            algorithm: wanted.algorithm.map(|one| LoadBalancerAlgorithm { r#type: one.word().to_owned() }),
            public_interface: wanted.public_interface.filter(|on| *on || network.is_some()),
            network,
            services: services.into_iter().map(LoadBalancerService::complete).collect(),
            targets: wanted
                .servers
                .keys()
                .filter(|_| reachable)
                .map(|id| Target::server(*id, wanted.use_private_ip))
                .collect(),
        };
        let created = self.cloud.create::<LoadBalancer>(LOAD_BALANCERS, &new);
        let created = match created {
            // One server that cannot be a target, or one too many, makes the cloud refuse all.
            Err(refusal) if refusal.is_final() && !new.targets.is_empty() => {
                new.targets.clear();
                self.cloud.create::<LoadBalancer>(LOAD_BALANCERS, &new)
            }
            created => created,
        };
        let created = created.map_err(|refusal| match refusal.code.as_str() {
            // The lists lag behind: neither of the two had the load balancer.
            "uniqueness_error" => {
                Error::retry_after(AGAIN, format!("load balancer {name:?} exists and is in no list yet"))
            }
            _ => refusal.about(&format!("load balancer {name:?}")).error.never_gone(),
        })?;
        if let Some(action) = &created.action {
            self.cloud.ended(&self.owner.uid, action)?;
        }
        self.cloud.balancer(created.object.id).map_err(Error::never_gone)
    }

    /// Makes the missing changes; the load balancer as the cloud has it.
    fn converge(
        &self,
        wanted: &Wanted,
        network: Option<u64>,
        mut balancer: LoadBalancer,
        warnings: &mut Warnings,
    ) -> Result<LoadBalancer> {
        if self.change_info(wanted, &balancer)? | self.change_properties(wanted, network, &balancer)? {
            // A load balancer that was detached from the network has lost its targets.
            balancer = self.cloud.balancer(balancer.id)?;
        }
        if let Some(day) = &balancer.load_balancer_type.deprecated {
            let kind = &balancer.load_balancer_type.name;
            let message = format!("load balancer type {kind} is deprecated since {day}; choose another type");
            warnings.push(("LoadBalancerTypeDeprecated", message));
        }
        // Both, whatever the other one says: a missing certificate must not keep new nodes from the
        // load balancer. But no change begins while an action runs.
        let changed = targets::change(self, &balancer, wanted, warnings);
        if !matches!(changed, Err(Error::RetryAfter(_))) {
            self.change_services(wanted, &balancer)?;
        }
        changed?;
        // The cloud keeps the public interface on while a target needs it.
        if wanted.public_interface == Some(false) && balancer.public_net.enabled {
            self.act(&balancer, "disable_public_interface", None)?;
            balancer.public_net.enabled = false;
        }
        Ok(balancer)
    }

    /// Changes name and labels, in one request; whether anything was changed.
    fn change_info(&self, wanted: &Wanted, balancer: &LoadBalancer) -> Result<bool> {
        let name = wanted.name.as_ref().filter(|name| **name != balancer.name);
        let labels = (!self.owner.is_in(&balancer.labels)).then(|| self.owner.added_to(&balancer.labels));
        if name.is_none() && labels.is_none() {
            return Ok(false);
        }
        let mut body = serde_json::Map::new();
        body.extend(name.map(|name| ("name".to_owned(), json!(name))));
        body.extend(labels.map(|labels| ("labels".to_owned(), json!(labels))));
        self.cloud.change(LOAD_BALANCERS, balancer.id, &body)?;
        Ok(true)
    }

    /// Changes everything but services and targets; whether anything was changed.
    fn change_properties(&self, wanted: &Wanted, network: Option<u64>, balancer: &LoadBalancer) -> Result<bool> {
        let mut changes = Vec::new();
        let public = &balancer.public_net;
        for (rdns, address) in [(&wanted.rdns_ipv4, &public.ipv4), (&wanted.rdns_ipv6, &public.ipv6)] {
            if let (Some(rdns), Some(ip)) = (rdns, &address.ip)
                && address.dns_ptr.as_ref() != Some(rdns)
            {
                changes.push(("change_dns_ptr", Some(json!({"ip": ip, "dns_ptr": rdns}))));
            }
        }
        if let Some(algorithm) = wanted.algorithm.filter(|one| one.word() != balancer.algorithm.r#type) {
            changes.push(("change_algorithm", Some(json!({"type": algorithm.word()}))));
        }
        if let Some(kind) = wanted.kind.as_ref().filter(|kind| **kind != balancer.load_balancer_type.name) {
            changes.push(("change_type", Some(json!({"load_balancer_type": kind}))));
        }
        let chosen = wanted.private_ipv4.map(|ip| ip.to_string());
        let stays =
            |net: &&PrivateNet| Some(net.network) == network && chosen.as_ref().is_none_or(|chosen| *chosen == net.ip);
        for net in balancer.private_net.iter().filter(|net| !stays(net)) {
            changes.push(("detach_from_network", Some(json!({"network": net.network}))));
        }
        if let Some(network) = network.filter(|_| !balancer.private_net.iter().any(|net| stays(&net))) {
            let mut body = json!({"network": network});
            if let (Some(body), Some(ip)) = (body.as_object_mut(), chosen) {
                body.insert("ip".to_owned(), json!(ip));
            }
            if let (Some(body), Some(range)) = (body.as_object_mut(), wanted.private_subnet) {
                body.insert("ip_range".to_owned(), json!(range.to_string()));
            }
            changes.push(("attach_to_network", Some(body)));
        }
        if wanted.public_interface == Some(true) && !public.enabled {
            changes.push(("enable_public_interface", None));
        }
        for (verb, body) in &changes {
            self.act(balancer, verb, body.as_ref())?;
        }
        Ok(!changes.is_empty())
    }

    /// Deletes, changes and adds services, in this order: a port must be free before another
    /// service can take it, and the number of services has a limit.
    fn change_services(&self, wanted: &Wanted, balancer: &LoadBalancer) -> Result<()> {
        let services = certificates::with(self.cloud, &self.owner, &wanted.ports)?;
        let port = |service: &LoadBalancerService| service.listen_port;
        let actual = balancer.services.iter();
        let diff = skysail_guest_sdk::diff::diff(services, actual, port, |service| service.listen_port);
        for service in diff.surplus {
            self.act(balancer, "delete_service", Some(&json!({"listen_port": service.listen_port})))?;
        }
        for (service, actual) in diff.present {
            if !service.is_done_by(actual) {
                self.act(balancer, "update_service", Some(&serde_json::to_value(&service)?))?;
            }
        }
        for service in diff.missing {
            self.act(balancer, "add_service", Some(&serde_json::to_value(service.complete())?))?;
        }
        Ok(())
    }

    fn act(&self, balancer: &LoadBalancer, verb: &str, body: Option<&serde_json::Value>) -> Result<()> {
        let action = self.cloud.act(LOAD_BALANCERS, balancer.id, verb, body)?;
        self.cloud.ended(&self.owner.uid, &action)
    }
}

/// Deletes a load balancer; one that the user protected from deletion is released instead, and the
/// warning says so.
fn remove<H: Host>(cloud: &Hcloud<H>, balancer: &LoadBalancer) -> Result<Warnings> {
    if !balancer.protection.delete {
        cloud.delete(LOAD_BALANCERS, balancer.id)?;
        return Ok(Warnings::new());
    }
    cloud.change(LOAD_BALANCERS, balancer.id, &json!({"labels": owner::released(&balancer.labels)}))?;
    let message = format!(
        "load balancer {:?} ({}) is protected from deletion and was not deleted; switch the protection off",
        balancer.name, balancer.id
    );
    Ok(vec![("LoadBalancerProtected", message)])
}

/// As `load-balancer-inventory.list`.
pub(crate) fn list_owned<H: Host>(cloud: &Hcloud<H>, cluster: &str) -> Result<Vec<Owned>> {
    let balancers = cloud.balancers(&owner::of_cluster(cluster)?)?;
    let owned = |balancer: LoadBalancer| Owned {
        service: Owner::of(&balancer.labels).map(|owner| (owner.namespace, owner.name, owner.uid)),
        name: balancer.name,
        extra: Vec::new(),
    };
    Ok(balancers.into_iter().map(owned).collect())
}

/// As `load-balancer-inventory.delete`.
pub(crate) fn delete_owned<H: Host>(
    cloud: &Hcloud<H>,
    cluster: &str,
    name: &str,
    service: Option<(String, String, String)>,
) -> Result<Warnings> {
    owner::of_cluster(cluster)?;
    let Some(balancer) = cloud.balancer_named(name)? else { return Ok(Warnings::new()) };
    if owner::cluster_of(&balancer.labels) != Some(cluster) {
        return Err(Error::Denied(format!("load balancer {name:?} does not belong to cluster {cluster:?}")));
    }
    let owner = Owner::of(&balancer.labels);
    if owner.as_ref().map(|owner| &owner.uid) != service.as_ref().map(|(_, _, uid)| uid) {
        return Ok(Warnings::new());
    }
    let warnings = remove(cloud, &balancer)?;
    if let (true, Some(owner)) = (warnings.is_empty(), owner) {
        certificates::delete(cloud, &owner)?;
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests;
