//! Creating a load balancer: with everything in one request where the driver can.

use serde_json::{Value, json};
use skysail_guest_sdk::{Error, Result};

use super::{CREATE_WAIT, Task, listeners, pools};
use crate::{
    client::{Call, Cloud},
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
    pub(super) fn create<T>(&self, plan: &Plan, members: &[Member]) -> Result<T> {
        if let Some(id) = &plan.existing {
            return Err(Error::Invalid(format!(
                "annotation {}load-balancer-id: Octavia has no load balancer {id}; correct the ID, or remove the \
                 annotation",
                crate::plan::ANNOTATIONS
            )));
        }
        let subnet = self.member_subnet(plan, None, members)?;
        let body = self.body(plan, members, subnet.as_deref())?;
        let created: LoadBalancer =
            self.cloud.one(Call::post(Api::LoadBalancer, &["loadbalancers"], json!({"loadbalancer": body})))?;
        self.cloud.remember(&plan.name, &created.id);
        if !self.settings.load_balancer.serial_api {
            self.leave_new(&created.id, plan, members);
        }
        Err(Error::retry_after(CREATE_WAIT, format!("Octavia is creating load balancer {}", created.id)))
    }

    fn body(&self, plan: &Plan, members: &[Member], member_subnet: Option<&str>) -> Result<Value> {
        let lb = &self.settings.load_balancer;
        let mut body = json!({
            "name": plan.name,
            "description": plan.description,
            "provider": lb.provider,
            "tags": [plan.name],
            "admin_state_up": true,
        });
        let mut set = |key: &str, value: Option<&str>| {
            if let (Some(value), Some(body)) = (value, body.as_object_mut()) {
                body.insert(key.to_owned(), json!(value));
            }
        };
        set("flavor_id", plan.flavor.as_deref());
        set("availability_zone", plan.availability_zone.as_deref());
        let place = &plan.place;
        if place.vip_port.is_some() {
            set("vip_port_id", place.vip_port.as_deref());
        } else {
            let of_nodes = member_subnet.filter(|_| place.member_subnet == MemberSubnet::OfNodes);
            let subnet = place.subnet.as_deref().or(of_nodes.filter(|_| place.network.is_none()));
            if subnet.is_none() && place.network.is_none() {
                return Err(self.nowhere());
            }
            set("vip_subnet_id", subnet);
            set("vip_network_id", place.network.as_deref());
        }
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
        Ok(body)
    }

    fn nowhere(&self) -> Error {
        Error::Unavailable(format!(
            "Service {} has no node whose subnet the load balancer could use; set subnet-id or network-id in \
             [LoadBalancer], or wait for a node",
            self.service.key()
        ))
    }
}
