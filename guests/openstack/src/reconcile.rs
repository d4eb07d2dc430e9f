//! Reconciles the load balancer of one Service. Every step reads first, so each may be repeated at
//! any time.
//!
//! Octavia makes one change of a load balancer after the other: until a change is done, the load
//! balancer is `PENDING_…` and refuses the next one. Each write therefore asks for the status once,
//! and a call ends with `retry-after` while the load balancer is pending.

mod contents;
mod create;
mod delete;
mod floating_ip;
mod inventory;
mod left;
mod listeners;
mod pools;
mod security_group;

use std::time::Duration;

use skysail_guest_sdk::{Absent as _, Error, Ingress, LoadBalancerStatus, NodeSet, Result, Service};

pub(crate) use self::inventory::{delete_owned, list_owned};
use crate::{
    client::{Call, Cloud, LAG_MAX, REQUESTS_MAX},
    features::Features,
    names::{self, PREFIX},
    plan::{self, Member, MemberSubnet, Plan},
    settings::{Api, Settings, in_barbican},
    wire::{LoadBalancer, Port},
};

/// Wait while a load balancer is created: with the driver `amphora` a machine has to boot.
const CREATE_WAIT: Duration = Duration::from_secs(3);

/// Wait while a load balancer is changed.
const UPDATE_WAIT: Duration = Duration::from_secs(1);

/// Wait while a load balancer is deleted.
const DELETE_WAIT: Duration = Duration::from_secs(2);

/// One Service and its cloud.
pub(crate) struct Task<'a, C> {
    pub(crate) cloud: &'a C,
    pub(crate) settings: &'a Settings,
    pub(crate) features: Features,
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

/// The share that one Service has of a load balancer: all of it, unless others share it.
struct Share<'a> {
    plan: &'a Plan,
    lb: &'a LoadBalancer,
    /// The load balancer was made for this Service.
    is_owner: bool,
    members: &'a [Member],
}

/// What is to be done with a load balancer that was found.
enum State {
    Active,
    /// The cloud is still changing it.
    Pending,
    /// The load balancer is being deleted, or is deleted.
    Going,
    Error,
}

impl LoadBalancer {
    fn state(&self) -> State {
        match self.provisioning_status.as_str() {
            "ACTIVE" => State::Active,
            "ERROR" => State::Error,
            "DELETED" | "PENDING_DELETE" => State::Going,
            _ => State::Pending,
        }
    }

    fn has_tag(&self, name: &str) -> bool {
        self.tags.iter().any(|tag| tag == name)
    }

    /// Services of any cluster, other than this one, that share it.
    fn others(&self, name: &str) -> usize {
        self.tags.iter().filter(|tag| tag.starts_with(PREFIX) && *tag != name).count()
    }
}

impl<C: Cloud> Task<'_, C> {
    /// As `load-balancers.get`.
    pub(crate) fn get(&self) -> Result<Option<LoadBalancerStatus>> {
        let plan = match self.plan() {
            Ok(plan) => plan,
            // What `ensure` refuses must not keep a Service from being deleted, and the host asks
            // before it deletes.
            Err(Error::Invalid(_)) => {
                let found = self.marked(&self.name())?.pop();
                return Ok(found.map(|lb| Ingress::ip(lb.vip_address).into()));
            }
            Err(error) => return Err(error),
        };
        let Some(lb) = self.find(&plan)? else { return Ok(None) };
        let address = match self.attached(&lb)? {
            Some(floating) => floating.floating_ip_address,
            None => lb.vip_address,
        };
        Ok(Some(plan.status(&address)))
    }

    /// As `load-balancers.ensure`.
    ///
    /// # Errors
    ///
    /// Never `not-found`: an object that the load balancer needs is absent, not the load balancer.
    pub(crate) fn ensure(&self, nodes: &NodeSet) -> Result<Done<LoadBalancerStatus>> {
        self.ensure_all(nodes).map_err(Error::never_gone)
    }

    fn ensure_all(&self, nodes: &NodeSet) -> Result<Done<LoadBalancerStatus>> {
        let plan = self.plan()?;
        if self.service.ports.is_empty() {
            return Err(Error::Invalid("the Service has no ports; a load balancer needs at least one".to_owned()));
        }
        self.check_tls(&plan)?;
        let members = plan.members(nodes);
        let Some(lb) = self.find(&plan)? else { return self.create(&plan, &members, nodes) };
        let share = self.share(&plan, &lb, &members)?;
        // First, so that the share is found again if the call ends in the middle.
        if !lb.has_tag(&plan.name) {
            let mut tags = lb.tags.clone();
            tags.push(plan.name.clone());
            self.tag(&lb, &tags)?;
        }
        self.reconcile_listeners(&share)?;
        let mut warnings = plan.warnings.clone();
        let address = self.address(&share, &mut warnings)?;
        self.reconcile_security_group(&share)?;
        Ok(Done { value: plan.status(&address), warnings })
    }

    /// As `load-balancers.update`.
    pub(crate) fn update(&self, nodes: &NodeSet) -> Result<()> {
        let plan = self.plan()?;
        let members = plan.members(nodes);
        let Some(lb) = self.find(&plan)? else {
            return Err(Error::NotFound(format!("Service {} has no load balancer", self.service.key())));
        };
        let share = self.share(&plan, &lb, &members)?;
        self.reconcile_listeners(&share)?;
        if self.settings.load_balancer.manage_security_groups {
            self.reconcile_security_group(&share)?;
        }
        Ok(())
    }

    /// The Service's share of a load balancer that can be changed now.
    fn share<'s>(&self, plan: &'s Plan, lb: &'s LoadBalancer, members: &'s [Member]) -> Result<Share<'s>> {
        self.check_state(plan, lb)?;
        let is_owner = lb.name == plan.name || lb.name == self.service.default_load_balancer_name();
        self.check_share(plan, lb, is_owner)?;
        Ok(Share { plan, lb, is_owner, members })
    }

    /// Name and tag of the Service's load balancer, cut where `ensure` refuses the length.
    fn name(&self) -> String {
        names::load_balancer(self.cluster, &self.service.namespace, &self.service.name)
    }

    fn plan(&self) -> Result<Plan> {
        plan::plan(self.settings, self.features, self.cluster, self.service)
    }

    /// The load balancer that the user named, else that of the Service's name, else that of the
    /// name that old versions of the vendor's manager gave.
    fn find(&self, plan: &Plan) -> Result<Option<LoadBalancer>> {
        if let Some(id) = &plan.existing {
            return self.by_id(id).absent_ok();
        }
        if let Some(found) = self.by_name(&plan.name)? {
            return Ok(Some(found));
        }
        if let Some(found) = self.just_created(&plan.name)?.filter(|lb| !matches!(lb.state(), State::Going)) {
            return Ok(Some(found));
        }
        self.by_name(&self.service.default_load_balancer_name())
    }

    /// The load balancer that was created a moment ago: a list may not show it yet, and Octavia
    /// would create a second one of the same name.
    fn just_created(&self, name: &str) -> Result<Option<LoadBalancer>> {
        let Some(id) = self.cloud.remembered(name) else { return Ok(None) };
        let found = self.by_id(&id).absent_ok()?;
        if found.is_none() {
            // Deleted: later calls need not ask.
            self.cloud.forget(name);
        }
        Ok(found)
    }

    fn by_id(&self, id: &str) -> Result<LoadBalancer> {
        self.cloud.one(Call::get(Api::LoadBalancer, &["loadbalancers", id]))
    }

    fn by_name(&self, name: &str) -> Result<Option<LoadBalancer>> {
        let found = self.cloud.list::<LoadBalancer>(named(name))?;
        // The check costs nothing: a driver may ignore the filter.
        let found = found.into_iter().filter(|lb| lb.name == name && !matches!(lb.state(), State::Going));
        let mut found: Vec<_> = found.collect();
        match (found.pop(), found.pop()) {
            (Some(one), Some(other)) => Err(Error::Unavailable(format!(
                "Octavia has several load balancers {name:?}, among them {} and {}; delete all but one",
                one.id, other.id
            ))),
            (one, _) => Ok(one),
        }
    }

    /// Whether the load balancer can be changed now. One that failed before the Service had an
    /// address is deleted with its floating IP, and the next call creates another one.
    ///
    /// # Errors
    ///
    /// `unavailable` also where the deletion went well: the user sees no `retry-after`, and a load
    /// balancer that can never be built would be created and deleted for ever without an Event.
    fn check_state(&self, plan: &Plan, lb: &LoadBalancer) -> Result<()> {
        match lb.state() {
            State::Active => Ok(()),
            State::Pending => Err(pending(lb)),
            State::Going => Err(Error::Unavailable(format!(
                "load balancer {} is being deleted; remove the annotation {}load-balancer-id, or name another one",
                lb.id,
                plan::ANNOTATIONS
            ))),
            State::Error => {
                let never_served = self.service.status.ingress.is_empty();
                if never_served && plan.existing.is_none() && lb.name == plan.name && lb.others(&plan.name) == 0 {
                    self.begin_whole_deletion(lb, plan.keep_floating_ip)?;
                    return Err(Error::Unavailable(format!(
                        "load balancer {} had the provisioning status ERROR before it served Service {}, so it was \
                         deleted, and the next call creates another one; look for the cause in the logs of Octavia and \
                         its driver, such as a missing image or a full quota",
                        lb.id,
                        self.service.key()
                    )));
                }
                Err(Error::Unavailable(format!(
                    "load balancer {} has the provisioning status ERROR; look for the cause in Octavia, then run \
                     `openstack loadbalancer failover {0}`",
                    lb.id
                )))
            }
        }
    }

    /// Whether the Service may use a load balancer that is not its own.
    fn check_share(&self, plan: &Plan, lb: &LoadBalancer, is_owner: bool) -> Result<()> {
        if is_owner {
            return Ok(());
        }
        let key = format!("annotation {}load-balancer-id", plan::ANNOTATIONS);
        if lb.name.starts_with(PREFIX) && names::service_of(self.cluster, &lb.name).is_none() {
            return Err(Error::Invalid(format!(
                "{key}: load balancer {} has the name {:?} of another cluster; if this cluster had another \
                 --cluster-name, rename the load balancer to {:?}",
                lb.id, lb.name, plan.name
            )));
        }
        if plan.internal {
            return Err(Error::Invalid(format!(
                "{key}: an internal Service cannot share load balancer {}, which its owner may make public; remove the \
                 annotation",
                lb.id
            )));
        }
        let (others, max) = (lb.others(&plan.name), self.settings.load_balancer.max_shared);
        if !lb.has_tag(&plan.name) && others >= max {
            return Err(Error::Exhausted(format!(
                "{key}: {others} Services share load balancer {} already; raise max-shared-lb in [LoadBalancer], or \
                 name another load balancer",
                lb.id
            )));
        }
        Ok(())
    }

    /// Whether the certificates that the Service names exist.
    fn check_tls(&self, plan: &Plan) -> Result<()> {
        let Some(reference) = &plan.checked_tls else { return Ok(()) };
        let wrong = |why: &str| {
            Error::Invalid(format!(
                "annotation {}default-tls-container-ref: {reference:?} {why}; write https://HOST/v1/containers/UUID or \
                 https://HOST/v1/secrets/UUID, or set container-store = external in [LoadBalancer]",
                plan::ANNOTATIONS
            ))
        };
        let (kind, id) = in_barbican(reference).ok_or_else(|| wrong("is not a reference to a container or secret"))?;
        let found = self.cloud.send(Call::get(Api::KeyManager, &[kind, id])).absent_ok()?;
        found.map(drop).ok_or_else(|| wrong("does not exist in Barbican"))
    }

    fn tag(&self, lb: &LoadBalancer, tags: &[String]) -> Result<()> {
        let body = serde_json::json!({"loadbalancer": {"tags": tags}});
        self.write(lb, Call::put(Api::LoadBalancer, &["loadbalancers", &lb.id], body)).map(drop)
    }

    /// Makes one change of a load balancer and asks once whether the change is done.
    ///
    /// # Errors
    ///
    /// `retry-after` where the change is not done yet, or not begun because this call has sent many
    /// requests: the next call sees it, or begins it.
    fn write(&self, lb: &LoadBalancer, call: Call) -> Result<Vec<u8>> {
        self.check_room(lb)?;
        let body = self.cloud.send(call)?;
        self.settled(lb).map(|()| body)
    }

    /// As [`Self::write`], for a deletion: what does not exist is deleted.
    fn erase(&self, lb: &LoadBalancer, path: &[&str]) -> Result<()> {
        self.check_room(lb)?;
        self.cloud.send(Call::delete(Api::LoadBalancer, path)).absent_ok()?;
        self.settled(lb)
    }

    /// Whether this call may send the requests of one more change.
    fn check_room(&self, lb: &LoadBalancer) -> Result<()> {
        let sent = self.cloud.sent();
        if sent < REQUESTS_MAX {
            return Ok(());
        }
        let message = format!("load balancer {}: after {sent} requests the next call makes the other changes", lb.id);
        Err(Error::retry_after(UPDATE_WAIT, message))
    }

    fn settled(&self, lb: &LoadBalancer) -> Result<()> {
        let now = self.by_id(&lb.id)?;
        match now.state() {
            State::Active => Ok(()),
            State::Pending | State::Going => Err(pending(&now)),
            State::Error => Err(Error::Unavailable(format!(
                "load balancer {} has the provisioning status ERROR after a change; look for the cause in Octavia",
                lb.id
            ))),
        }
    }

    /// The subnet of the members.
    fn member_subnet(&self, plan: &Plan, lb: Option<&LoadBalancer>, members: &[Member]) -> Result<Option<String>> {
        match &plan.place.member_subnet {
            MemberSubnet::Of(subnet) => Ok(Some(subnet.clone())),
            MemberSubnet::OfVip => Ok(lb.map(|lb| lb.vip_subnet_id.clone()).filter(|subnet| !subnet.is_empty())),
            MemberSubnet::OfNodes if members.is_empty() => Ok(None),
            MemberSubnet::OfNodes => self.subnet_of_nodes(members).map(Some),
        }
    }

    /// The subnet in which the first node with a machine has its address.
    fn subnet_of_nodes(&self, members: &[Member]) -> Result<String> {
        let remedy = "set subnet-id in [LoadBalancer], or the annotation loadbalancer.openstack.org/subnet-id";
        let first = members.iter().find_map(|member| Some((member, member.provider_id.as_ref()?)));
        let Some((member, provider_id)) = first else {
            return Err(Error::Unavailable(format!("no node has a provider ID yet, so no subnet is known; {remedy}")));
        };
        let server = crate::machines::server_id(self.settings, provider_id)?;
        let key = format!("subnet of {} of {server}", member.address);
        if let Some(subnet) = self.cloud.remembered(&key) {
            return Ok(subnet);
        }
        let call = Call::get(Api::Network, &["ports"]).query("device_id", server);
        let ports: Vec<Port> = self.cloud.list(call.queries("fields", ["id", "fixed_ips"]))?;
        let mut addresses = ports.into_iter().flat_map(|port| port.fixed_ips);
        let found = addresses.find(|fixed| fixed.ip_address == member.address).map(|fixed| fixed.subnet_id);
        if let Some(subnet) = &found {
            self.cloud.remember(&key, subnet, LAG_MAX);
        }
        found.ok_or_else(|| {
            Error::Unavailable(format!(
                "no port of server {server} has the address {} of node {}, so no subnet is known; {remedy}",
                member.address, member.node
            ))
        })
    }
}

/// The list of the load balancers with this name.
fn named(name: &str) -> Call {
    Call::get(Api::LoadBalancer, &["loadbalancers"]).query("name", name)
}

fn pending(lb: &LoadBalancer) -> Error {
    let wait = match lb.provisioning_status.as_str() {
        "PENDING_CREATE" => CREATE_WAIT,
        "PENDING_DELETE" => DELETE_WAIT,
        _ => UPDATE_WAIT,
    };
    Error::retry_after(wait, format!("load balancer {} is {}", lb.id, lb.provisioning_status))
}

#[cfg(test)]
mod tests;
