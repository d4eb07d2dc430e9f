//! Reconciles the listeners of one Service. Every step reads first, so each may be repeated at any
//! time. The trait [`Cloud`] allows tests without a cloud.

use std::{collections::BTreeSet, net::IpAddr};

use skysail_guest_sdk::{Error, Ingress, IpFamily, LoadBalancerStatus, Owned, Result, Service};

use crate::{
    plan::{self, Kind, Listener, Owner, Wanted},
    pool::{Pool, family_of},
    settings::Settings,
    wire::Network,
};

/// Addresses tried for one new listener. Each is free on this network; several that other networks
/// hold mean a shared and full pool, and the next call tries again.
const ADDRESSES_TRIED_MAX: usize = 8;

/// The functions of Incus for listeners of the configured network.
pub(crate) trait Cloud {
    /// The network and all its listeners, also those of other owners.
    fn look(&self) -> Result<(Network, Kind, Vec<Listener>)>;
    /// Addresses that the network may listen on, if the operator configured none.
    fn routed(&self, network: &Network) -> Result<Pool>;
    /// Used addresses of all networks that this client may see.
    fn taken(&self) -> BTreeSet<IpAddr>;
    /// Creates a listener; false where another listener has its address.
    fn create(&self, listener: &Listener) -> Result<bool>;
    /// Replaces a listener's configuration.
    fn replace(&self, listener: &Listener) -> Result<()>;
    /// Removes a listener; an absent one is not an error.
    fn delete(&self, kind: Kind, address: IpAddr) -> Result<()>;
}

/// Name and addresses of each node.
pub(crate) type Nodes = Vec<(String, Vec<String>)>;

/// The desired state of one Service.
pub(crate) struct Task<'a, C> {
    pub(crate) cloud: &'a C,
    pub(crate) settings: &'a Settings,
    pub(crate) cluster: &'a str,
    pub(crate) service: &'a Service,
}

/// The result, and the warnings for the user.
#[derive(Debug)]
pub(crate) struct Done<T> {
    pub(crate) value: T,
    /// Reason and message of Events of type `Warning`.
    pub(crate) warnings: Vec<(&'static str, String)>,
}

impl<C: Cloud> Task<'_, C> {
    /// As `load-balancers.get`.
    pub(crate) fn get(&self) -> Result<Option<LoadBalancerStatus>> {
        let (_, _, listeners) = self.cloud.look()?;
        let addresses: Vec<_> = self.ours(&listeners).into_iter().map(|(address, _)| address).collect();
        Ok((!addresses.is_empty()).then(|| status(&addresses)))
    }

    /// As `load-balancers.ensure`.
    pub(crate) fn ensure(&self, nodes: &Nodes) -> Result<Done<LoadBalancerStatus>> {
        let ports = plan::ports(self.service)?;
        let (network, kind, listeners) = self.cloud.look()?;
        let routed;
        let pool = if self.settings.listen.is_empty() {
            routed = self.cloud.routed(&network)?;
            &routed
        } else {
            &self.settings.listen
        };
        let mut left = self.ours(&listeners);
        let mut warnings: Vec<_> =
            plan::ignored(self.service).map(|(reason, message)| (reason, message.to_owned())).into_iter().collect();
        let mut addresses = Vec::new();
        for (family, fixed) in plan::families(self.service, pool)? {
            let wanted = self.wanted(kind, ports.clone(), (&network, family, nodes), &mut warnings);
            let kept = left.iter().position(|(address, _)| {
                family_of(*address) == family && fixed.map_or(pool.contains(*address), |fixed| fixed == *address)
            });
            addresses.push(match kept {
                Some(place) => {
                    let (address, now) = left.remove(place);
                    self.bring(&wanted, address, now)?;
                    address
                }
                None => self.create(&wanted, (pool, &listeners), family, fixed)?,
            });
        }
        // Deleted last, so that a Service that changes its address is reachable all the time.
        for (address, _) in left {
            self.cloud.delete(kind, address)?;
        }
        Ok(Done { value: status(&addresses), warnings })
    }

    /// As `load-balancers.update`.
    pub(crate) fn update(&self, nodes: &Nodes) -> Result<Done<()>> {
        let ports = plan::ports(self.service)?;
        let (network, kind, listeners) = self.cloud.look()?;
        let ours = self.ours(&listeners);
        if ours.is_empty() {
            return Err(Error::NotFound(format!("Service {} has no load balancer", self.service.key())));
        }
        let mut warnings = Vec::new();
        for (address, now) in ours {
            let wanted = self.wanted(kind, ports.clone(), (&network, family_of(address), nodes), &mut warnings);
            self.bring(&wanted, address, now)?;
        }
        Ok(Done { value: (), warnings })
    }

    /// As `load-balancers.ensure-deleted`.
    pub(crate) fn ensure_deleted(&self) -> Result<()> {
        let (_, kind, listeners) = self.cloud.look()?;
        self.ours(&listeners).into_iter().try_for_each(|(address, _)| self.cloud.delete(kind, address))
    }

    fn ours<'l>(&self, listeners: &'l [Listener]) -> Vec<(IpAddr, &'l Listener)> {
        let ours =
            |listener: &Listener| listener.owner().is_some_and(|owner| owner.is(self.cluster, &self.service.uid));
        let mut ours: Vec<_> = listeners
            .iter()
            .filter(|listener| ours(listener))
            .filter_map(|listener| Some((listener.address()?, listener)))
            .collect();
        ours.sort_unstable_by_key(|(address, _)| *address);
        ours
    }

    fn wanted(
        &self,
        kind: Kind,
        ports: Vec<plan::Port>,
        (network, family, nodes): (&Network, IpFamily, &Nodes),
        warnings: &mut Vec<(&'static str, String)>,
    ) -> Wanted {
        let (targets, outside) = plan::targets(nodes.clone(), plan::subnet(network, family));
        if let Some(first) = outside.first() {
            let count = outside.len();
            let message = format!(
                "{count} node(s) without an {family:?} address in the load balancer's network get no traffic, among them {first}"
            );
            warnings.push(("NodesOutsideNetwork", message));
        }
        let owner = Owner::new(self.cluster, self.service);
        Wanted { kind, owner, ports, targets, health_check: self.settings.health_check }
    }

    fn bring(&self, wanted: &Wanted, address: IpAddr, now: &Listener) -> Result<()> {
        let listener = wanted.listener(address, Some(now));
        if listener.does_the_same_as(now) { Ok(()) } else { self.cloud.replace(&listener) }
    }

    fn create(
        &self,
        wanted: &Wanted,
        (pool, listeners): (&Pool, &[Listener]),
        family: IpFamily,
        fixed: Option<IpAddr>,
    ) -> Result<IpAddr> {
        if let Some(address) = fixed {
            return match self.cloud.create(&wanted.listener(address, None))? {
                true => Ok(address),
                false => {
                    Err(Error::Invalid(format!("loadBalancerIP {address} is in use by another listener or network")))
                }
            };
        }
        // A restricted client may not see the allocations, but sees the listeners of its network.
        let mut taken = self.cloud.taken();
        taken.extend(listeners.iter().filter_map(Listener::address));
        let mut tried = 0;
        for address in pool.free(family, &taken).take(ADDRESSES_TRIED_MAX) {
            if self.cloud.create(&wanted.listener(address, None))? {
                return Ok(address);
            }
            tried += 1;
        }
        Err(Error::Exhausted(match tried {
            0 => "every address for load balancers is in use".to_owned(),
            _ => format!(
                "Incus refused {tried} addresses of the pool, because other networks use them; take these addresses out of the pool"
            ),
        }))
    }
}

/// As `load-balancer-inventory.list`.
pub(crate) fn list_owned(cloud: &impl Cloud, cluster: &str) -> Result<Vec<Owned>> {
    let (_, _, listeners) = cloud.look()?;
    let owners: BTreeSet<Owner> =
        listeners.iter().filter_map(Listener::owner).filter(|owner| owner.cluster == cluster).collect();
    // One entry for each Service, also for one with two addresses or one that was renamed.
    let mut owned: Vec<Owned> = Vec::new();
    for owner in owners {
        let name = name_of(&owner.uid);
        if owned.iter().all(|other| other.name != name) {
            owned.push(Owned { name, service: Some((owner.namespace, owner.name, owner.uid)), extra: Vec::new() });
        }
    }
    Ok(owned)
}

/// As `load-balancer-inventory.delete`.
pub(crate) fn delete_owned(cloud: &impl Cloud, cluster: &str, name: &str) -> Result<()> {
    let (_, kind, listeners) = cloud.look()?;
    for listener in &listeners {
        let (Some(owner), Some(address)) = (listener.owner(), listener.address()) else { continue };
        if name_of(&owner.uid) != name {
            continue;
        }
        if owner.cluster != cluster {
            return Err(Error::Denied(format!("load balancer {name:?} belongs to cluster {:?}", owner.cluster)));
        }
        cloud.delete(kind, address)?;
    }
    Ok(())
}

/// The name of a Service's load balancer in logs, Events and the inventory: Incus names it by its
/// address only.
pub(crate) fn name_of(uid: &str) -> String {
    format!("k8s-{uid}")
}

fn status(addresses: &[IpAddr]) -> LoadBalancerStatus {
    let ingress = addresses.iter().map(|address| Ingress::ip(address.to_string())).collect();
    LoadBalancerStatus { ingress }
}

#[cfg(test)]
mod tests;
