//! The floating IP of a load balancer: its public address.

use serde_json::{Value, json};
use skysail_guest_sdk::{Absent as _, Error, Result};

use super::{Share, Task};
use crate::{
    client::{Call, Cloud, LAG_MAX},
    names::{self, FLOATING_IP_MARK},
    plan::{self, Plan, SubnetFilter},
    settings::Api,
    wire::{FloatingIp, LoadBalancer, Network, Subnet},
};

/// Subnets tried for one new floating IP; several full ones mean a full network.
const SUBNETS_TRIED_MAX: usize = 8;

impl<C: Cloud> Task<'_, C> {
    /// The address to report, after the floating IP is what the Service asks for.
    pub(super) fn address(&self, share: &Share<'_>, warnings: &mut Vec<(&'static str, String)>) -> Result<String> {
        let Share { plan, lb, is_owner, .. } = *share;
        if lb.vip_address.contains(':') {
            if !plan.internal {
                let message = format!("IPv6 has no floating IPs; the Service gets the address {}", lb.vip_address);
                warnings.push(("LoadBalancerFloatingIPSkipped", message));
            }
            return Ok(lb.vip_address.clone());
        }
        let attached = self.attached(lb)?;
        if plan.internal && is_owner {
            if let Some(floating) = attached {
                self.withdraw(plan, &floating)?;
            }
            return Ok(lb.vip_address.clone());
        }
        if let Some(floating) = attached {
            return Ok(floating.floating_ip_address);
        }
        if !is_owner {
            return Err(Error::Invalid(format!(
                "annotation {}load-balancer-id: load balancer {} has no floating IP, and only its owner may add one, \
                 because other Services on it could be internal; make the owner's Service public first",
                plan::ANNOTATIONS,
                lb.id
            )));
        }
        if let Some(address) = plan.address
            && let Some(floating) = self.existing(&address.to_string())?
        {
            return self.attach(lb, &floating).map(|()| floating.floating_ip_address);
        }
        match self.floating_network(plan)? {
            Some(network) => self.allocate(plan, lb, &network),
            None => {
                let message = "the cloud has no external network, so the Service gets the internal address; set \
                               floating-network-id in [LoadBalancer]";
                warnings.push(("LoadBalancerForcedInternal", message.to_owned()));
                Ok(lb.vip_address.clone())
            }
        }
    }

    /// The floating IP of the load balancer's port.
    pub(super) fn attached(&self, lb: &LoadBalancer) -> Result<Option<FloatingIp>> {
        if lb.vip_port_id.is_empty() {
            return Ok(None);
        }
        let call = Call::get(Api::Network, &["floatingips"]).query("port_id", &lb.vip_port_id);
        let found: Vec<FloatingIp> = self.cloud.list(call)?;
        let is_attached = |floating: &FloatingIp| floating.port_id == lb.vip_port_id;
        if let Some(found) = found.into_iter().find(is_attached) {
            return Ok(Some(found));
        }
        // A list may not show yet what was allocated a moment ago, and Neutron refuses a second
        // one.
        let Some(id) = self.cloud.remembered(&lb.vip_port_id) else { return Ok(None) };
        let known: Option<FloatingIp> = self.cloud.one(Call::get(Api::Network, &["floatingips", &id])).absent_ok()?;
        Ok(known.filter(is_attached))
    }

    /// Deletes the floating IP of a deleted load balancer, if this provider created it.
    pub(super) fn release(&self, lb: &LoadBalancer) -> Result<()> {
        match self.attached(lb)? {
            Some(floating) if is_ours(&floating) => self.delete_floating_ip(&floating),
            _ => Ok(()),
        }
    }

    /// Takes the floating IP from a Service that has become internal.
    fn withdraw(&self, plan: &Plan, floating: &FloatingIp) -> Result<()> {
        if is_ours(floating) && !plan.keep_floating_ip {
            return self.delete_floating_ip(floating);
        }
        self.set_port(floating, Value::Null)
    }

    fn delete_floating_ip(&self, floating: &FloatingIp) -> Result<()> {
        self.cloud.send(Call::delete(Api::Network, &["floatingips", &floating.id])).absent_ok().map(drop)
    }

    fn set_port(&self, floating: &FloatingIp, port: Value) -> Result<()> {
        let body = json!({"floatingip": {"port_id": port}});
        self.cloud.send(Call::put(Api::Network, &["floatingips", &floating.id], body)).map(drop)
    }

    /// The floating IP that the user reserved.
    fn existing(&self, address: &str) -> Result<Option<FloatingIp>> {
        let call = Call::get(Api::Network, &["floatingips"]).query("floating_ip_address", address);
        let found: Vec<FloatingIp> = self.cloud.list(call)?;
        Ok(found.into_iter().find(|floating| floating.floating_ip_address == address))
    }

    fn attach(&self, lb: &LoadBalancer, floating: &FloatingIp) -> Result<()> {
        if !floating.port_id.is_empty() {
            return Err(Error::Invalid(format!(
                "loadBalancerIP {} is in use by port {}; choose another address, or release this one",
                floating.floating_ip_address, floating.port_id
            )));
        }
        self.set_port(floating, json!(lb.vip_port_id))
    }

    /// The network of new floating IPs: the first external one with an IPv4 subnet, where nobody
    /// named one.
    fn floating_network(&self, plan: &Plan) -> Result<Option<String>> {
        if let Some(network) = &plan.place.floating_network {
            return Ok(Some(network.clone()));
        }
        let call = Call::get(Api::Network, &["networks"]).query("router:external", "true");
        let networks: Vec<Network> = self.cloud.list(call.queries("fields", ["id", "name", "subnets"]))?;
        let ids = networks.iter().map(|network| network.id.as_str());
        if networks.is_empty() {
            return Ok(None);
        }
        let call = Call::get(Api::Network, &["subnets"]).queries("network_id", ids);
        let visible: Vec<Subnet> = self.cloud.list(call)?;
        // The cloud may hide a subnet from this account; then it could be an IPv4 subnet.
        let is_ipv4 = |id: &String| {
            visible.iter().find(|subnet| subnet.id == *id).is_none_or(|subnet| !subnet.cidr.contains(':'))
        };
        Ok(networks.into_iter().find(|network| network.subnets.iter().any(is_ipv4)).map(|network| network.id))
    }

    fn allocate(&self, plan: &Plan, lb: &LoadBalancer, network: &str) -> Result<String> {
        let body = |subnet: Option<&str>| {
            let mut body = json!({
                "floating_network_id": network,
                "port_id": lb.vip_port_id,
                "description": names::floating_ip_description(self.cluster, self.service),
            });
            let mut set = |key: &str, value: &str| super::pools::set(&mut body, key, json!(value));
            if let Some(subnet) = subnet {
                set("subnet_id", subnet);
            }
            if let Some(address) = plan.address {
                set("floating_ip_address", &address.to_string());
            }
            json!({"floatingip": body})
        };
        let create = |subnet: Option<&str>| {
            let call = Call::post(Api::Network, &["floatingips"], body(subnet));
            let floating: FloatingIp = self.cloud.one(call)?;
            self.cloud.remember(&lb.vip_port_id, &floating.id, LAG_MAX);
            Ok(floating.floating_ip_address)
        };
        match &plan.place.floating_subnet {
            SubnetFilter::Any => create(None),
            SubnetFilter::Id(subnet) => {
                self.check_subnet(subnet, network)?;
                create(Some(subnet))
            }
            // The cloud creates the address that the user named in the subnet that has it.
            SubnetFilter::Matching { .. } if plan.address.is_some() => create(None),
            SubnetFilter::Matching { name, tags } => {
                let mut last = None;
                for subnet in self.subnets(network, name.as_deref(), tags.as_deref())? {
                    match create(Some(&subnet.id)) {
                        Err(error @ Error::Exhausted(_)) => last = Some(error),
                        other => return other,
                    }
                }
                Err(last.unwrap_or_else(|| {
                    Error::Invalid(format!(
                        "network {network} has no subnet with the name {:?} and the tags {:?}; correct floating-subnet \
                         or floating-subnet-tags",
                        name.as_deref().unwrap_or("*"),
                        tags.as_deref().unwrap_or_default()
                    ))
                }))
            }
        }
    }

    fn check_subnet(&self, subnet: &str, network: &str) -> Result<()> {
        let found = self.cloud.one::<Subnet>(Call::get(Api::Network, &["subnets", subnet])).absent_ok()?;
        let wrong = |why: String| Err(Error::Invalid(format!("floating-subnet-id {subnet}: {why}; correct the ID")));
        match found {
            None => wrong("the subnet does not exist".to_owned()),
            Some(found) if found.network_id != network => {
                wrong(format!("the subnet is in network {}, and the floating network is {network}", found.network_id))
            }
            Some(_) => Ok(()),
        }
    }

    fn subnets(&self, network: &str, name: Option<&str>, tags: Option<&str>) -> Result<Vec<Subnet>> {
        let mut call = Call::get(Api::Network, &["subnets"]).query("network_id", network);
        if let Some(tags) = tags {
            let (key, tags) = plan::tag_query(tags);
            call = call.query(key, tags);
        }
        let mut subnets: Vec<Subnet> = self.cloud.list(call)?;
        subnets.retain(|subnet| name.is_none_or(|pattern| plan::matches(pattern, &subnet.name)));
        subnets.truncate(SUBNETS_TRIED_MAX);
        Ok(subnets)
    }
}

fn is_ours(floating: &FloatingIp) -> bool {
    floating.description.contains(FLOATING_IP_MARK)
}
