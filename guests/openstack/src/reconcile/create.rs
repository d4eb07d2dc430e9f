//! Creating a load balancer: with everything in one request where the driver can.

use serde_json::{Value, json};
use skysail_guest_sdk::{Error, NodeSet, Result};

use super::{CREATE_WAIT, Task, listeners, pools};
use crate::{
    client::{Call, Cloud, PENDING_MAX},
    names,
    plan::{Member, MemberSubnet, Plan},
    settings::Api,
    wire::LoadBalancer,
};

impl<C: Cloud> Task<'_, C> {
    /// Starts the creation.
    ///
    /// # Errors
    ///
    /// `retry-after` where everything went well: the cloud is creating it.
    pub(super) fn create<T>(&self, plan: &Plan, members: &[Member], nodes: &NodeSet) -> Result<T> {
        if let Some(id) = &plan.existing {
            return Err(Error::Invalid(format!(
                "annotation {}load-balancer-id: Octavia has no load balancer {id}; correct the ID, or remove the \
                 annotation",
                crate::plan::ANNOTATIONS
            )));
        }
        let subnet = self.member_subnet(plan, None, members)?;
        let place = self.place(plan, nodes, subnet.as_deref())?;
        let mut body = self.body(plan, members, subnet.as_deref());
        for (key, value) in place {
            pools::set(&mut body, key, json!(value));
        }
        let created: LoadBalancer =
            self.cloud.one(Call::post(Api::LoadBalancer, &["loadbalancers"], json!({"loadbalancer": body})))?;
        self.cloud.remember(&plan.name, &created.id, PENDING_MAX);
        if !self.settings.load_balancer.serial_api {
            self.leave_new(&created.id, plan, members);
        }
        Err(Error::retry_after(CREATE_WAIT, format!("Octavia is creating load balancer {}", created.id)))
    }

    /// The port, or the subnet and the network, of a new load balancer: without any of them the
    /// subnet of the nodes, of which the Service need not select one.
    fn place(&self, plan: &Plan, nodes: &NodeSet, of_members: Option<&str>) -> Result<Vec<(&'static str, String)>> {
        let place = &plan.place;
        if let Some(port) = &place.vip_port {
            return Ok(vec![("vip_port_id", port.clone())]);
        }
        let subnet = match (&place.subnet, &place.network, of_members) {
            (None, None, Some(subnet)) if place.member_subnet == MemberSubnet::OfNodes => Some(subnet.to_owned()),
            (None, None, _) => {
                let nodes = plan.all_nodes(nodes);
                if nodes.is_empty() {
                    return Err(self.nowhere());
                }
                Some(self.subnet_of_nodes(&nodes)?)
            }
            (subnet, _, _) => subnet.clone(),
        };
        let subnet = subnet.map(|subnet| ("vip_subnet_id", subnet));
        let network = place.network.clone().map(|network| ("vip_network_id", network));
        Ok(subnet.into_iter().chain(network).collect())
    }

    fn body(&self, plan: &Plan, members: &[Member], member_subnet: Option<&str>) -> Value {
        let lb = &self.settings.load_balancer;
        let mut body = json!({
            "name": plan.name,
            "description": plan.description,
            "provider": lb.provider,
            "tags": [plan.name],
            "admin_state_up": true,
        });
        let mut set = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                pools::set(&mut body, key, json!(value));
            }
        };
        set("flavor_id", plan.flavor.as_deref());
        set("availability_zone", plan.availability_zone.as_deref());
        // The address of a public load balancer is that of its floating IP.
        let address = plan.address.filter(|address| plan.internal || address.is_ipv6());
        set("vip_address", address.map(|address| address.to_string()).as_deref());
        if !lb.serial_api
            && let Some(body) = body.as_object_mut()
        {
            let listeners = plan.listeners.iter().map(|wanted| {
                let mut listener = listeners::body(wanted, &plan.name);
                let mut pool = pools::body(wanted, &plan.name);
                pools::set(&mut pool, "members", json!(pools::members(wanted, members, member_subnet)));
                if let Some(monitor) = &wanted.pool.monitor {
                    pools::set(
                        &mut pool,
                        "healthmonitor",
                        pools::monitor(monitor, &names::monitor(wanted.index, &plan.name)),
                    );
                }
                pools::set(&mut listener, "default_pool", pool);
                listener
            });
            body.insert("listeners".to_owned(), listeners.collect());
        }
        body
    }

    fn nowhere(&self) -> Error {
        Error::Unavailable(format!(
            "Service {} has no node whose subnet the load balancer could use; set subnet-id or network-id in \
             [LoadBalancer], or wait for a node",
            self.service.key()
        ))
    }
}
