//! The load balancer of one Service: which kind it is, and what all kinds have in common. Every
//! step reads first, so each may be repeated at any time.

use skysail_guest_sdk::{Error, Ingress, LoadBalancerStatus, NodeSet, Result, Service};

use crate::{
    backends::{self, Backend},
    classic::ClassicTask,
    cloud::Cloud,
    deletion,
    network::NetworkTask,
    plan::{self, Kind, classic::Classic, network::Network},
    settings::Settings,
    tagging::Tagging,
    wire::{Tags, elb_v2},
};

/// Machines in the message of one Event, which the host cuts at 1,024 bytes.
const MACHINES_NAMED_MAX: usize = 30;

/// One Service in one cluster.
pub(crate) struct Task<'a> {
    pub(crate) cloud: &'a dyn Cloud,
    pub(crate) settings: &'a Settings,
    pub(crate) tagging: Tagging,
    /// The name of the cluster.
    pub(crate) cluster: &'a str,
    pub(crate) service: &'a Service,
}

/// Reason and message of an Event.
pub(crate) type Warning = (&'static str, String);

/// The result, and the warnings for the user.
#[derive(Debug)]
pub(crate) struct Done<T> {
    pub(crate) value: T,
    pub(crate) warnings: Vec<Warning>,
}

/// The load balancer's name: the first 32 characters of `a` and the Service's UID.
pub(crate) fn name_of(service: &Service) -> String {
    service.default_load_balancer_name()
}

impl<'a> Task<'a> {
    /// The task of a Service.
    pub(crate) fn new(cloud: &'a dyn Cloud, settings: &'a Settings, cluster: &'a str, service: &'a Service) -> Self {
        Self { cloud, settings, tagging: Tagging::new(settings, cluster), cluster, service }
    }

    /// As `load-balancers.get`.
    pub(crate) fn get(&self) -> Result<Option<LoadBalancerStatus>> {
        let name = name_of(self.service);
        Ok(match self.kind()? {
            Kind::Network => deletion::find_network(self.cloud, &name)?.map(|found| network_status(&found)),
            Kind::Classic => deletion::find_classic(self.cloud, &name)?.map(|found| status(&found.dns_name)),
        })
    }

    /// As `load-balancers.ensure`.
    pub(crate) fn ensure(&self, nodes: &NodeSet) -> Result<Done<LoadBalancerStatus>> {
        self.reconcile(nodes, false)
    }

    /// As `load-balancers.update`.
    pub(crate) fn update(&self, nodes: &NodeSet) -> Result<Done<()>> {
        self.reconcile(nodes, true).map(|Done { value: _, warnings }| Done { value: (), warnings })
    }

    /// As `load-balancers.ensure-deleted`.
    pub(crate) fn ensure_deleted(&self) -> Result<()> {
        if Kind::of(self.service).is_none() {
            return Ok(());
        }
        let Self { cloud, settings, tagging, .. } = self;
        deletion::Deletion { cloud: *cloud, settings, tagging, service: Some((self.cluster, self.service)) }
            .run(&name_of(self.service))
    }

    fn kind(&self) -> Result<Kind> {
        Kind::of(self.service).ok_or_else(|| {
            Error::ImplementedElsewhere(
                "the annotation service.beta.kubernetes.io/aws-load-balancer-type gives the Service to another controller"
                    .to_owned(),
            )
        })
    }

    fn reconcile(&self, nodes: &NodeSet, only_nodes: bool) -> Result<Done<LoadBalancerStatus>> {
        let name = name_of(self.service);
        match self.kind()? {
            Kind::Network => {
                let plan = Network::new(self.service, self.settings)?;
                let found = deletion::find_network(self.cloud, &name)?;
                self.check(found.is_some(), Kind::Network, only_nodes)?;
                let (backends, mut warnings) = self.backends(nodes)?;
                warnings.extend(scheme_warning(found.as_ref().map(|found| &*found.scheme), plan.common.internal));
                let task = NetworkTask { task: self, plan: &plan, name: &name, backends: &backends };
                Ok(Done { value: network_state(&task.reconcile(found)?)?, warnings })
            }
            Kind::Classic => {
                let plan = Classic::new(self.service, self.settings)?;
                let found = deletion::find_classic(self.cloud, &name)?;
                self.check(found.is_some(), Kind::Classic, only_nodes)?;
                let (backends, mut warnings) = self.backends(nodes)?;
                warnings.extend(scheme_warning(found.as_ref().map(|found| &*found.scheme), plan.common.internal));
                let task = ClassicTask { task: self, plan: &plan, name: &name, backends: &backends };
                let dns_name = match found {
                    Some(found) if only_nodes => task.update(&found).map(|()| found.dns_name)?,
                    found => task.reconcile(found)?,
                };
                Ok(Done { value: reachable(&name, &dns_name)?, warnings })
            }
        }
    }

    /// A Service keeps its kind of load balancer, and an update needs one.
    fn check(&self, exists: bool, kind: Kind, only_nodes: bool) -> Result<()> {
        match Kind::of_status(self.service) {
            _ if exists => Ok(()),
            Some(other) if other != kind => Err(Error::Invalid(format!(
                "the Service has a load balancer of another kind ({other:?}); AWS cannot change it: restore the annotation \
                 service.beta.kubernetes.io/aws-load-balancer-type, or make a new Service"
            ))),
            _ if only_nodes => Err(Error::NotFound(format!(
                "AWS has no load balancer {} of Service {}",
                name_of(self.service),
                self.service.key()
            ))),
            _ => Ok(()),
        }
    }

    fn backends(&self, nodes: &NodeSet) -> Result<(Vec<Backend>, Vec<Warning>)> {
        let labels = plan::node_labels(self.service);
        let (backends, without) = backends::of_nodes(self.cloud, &self.tagging, nodes, &labels)?;
        let stopped: Vec<_> = backends.iter().filter(|one| !one.is_running).map(|one| one.id.as_str()).collect();
        let warning = without.first().map(|first| {
            let (count, cluster) = (without.len(), self.tagging.cluster());
            let message = format!(
                "{count} node(s) get no traffic, among them {first}: EC2 has no machine for them with the tag of cluster {cluster:?}"
            );
            ("NodesWithoutMachine", message)
        });
        let warnings = warning.into_iter().chain(stopped_warning(&stopped)).collect();
        Ok((backends, warnings))
    }

    /// Namespace and name, as in the tag of the Service.
    pub(crate) fn key(&self) -> String {
        self.service.key()
    }

    /// The tags of a new resource.
    pub(crate) fn tags(&self, additional: &Tags) -> Tags {
        self.tagging.owned(additional, Some(&self.key()))
    }

    /// Refuses a load balancer of another owner.
    pub(crate) fn check_owner(&self, name: &str, tags: &Tags) -> Result<()> {
        deletion::check_owner(&self.tagging, name, tags).map_err(|error| Error::Invalid(error.message().to_owned()))
    }
}

/// AWS refuses machines that do not run.
fn stopped_warning(machines: &[&str]) -> Option<Warning> {
    let (named, others) = machines.split_at_checked(MACHINES_NAMED_MAX).unwrap_or((machines, &[]));
    let others = if others.is_empty() { String::new() } else { format!(" and {} others", others.len()) };
    (!named.is_empty()).then(|| {
        let named = named.join(", ");
        let message = format!(
            "{named}{others} get no traffic: EC2 does not run these machines; start them, or remove their nodes"
        );
        ("MachinesNotRunning", message)
    })
}

/// AWS does not change whom a load balancer serves.
fn scheme_warning(found: Option<&str>, internal: bool) -> Option<Warning> {
    let is_internal = found? == "internal";
    (is_internal != internal).then(|| {
        let is = if is_internal { "internal" } else { "reachable from the internet" };
        let message = format!("the load balancer stays {is}: AWS cannot change it; make a new Service");
        ("SchemeNotChanged", message)
    })
}

fn status(hostname: &str) -> LoadBalancerStatus {
    let ingress = Some(hostname).filter(|name| !name.is_empty()).map(Ingress::hostname);
    LoadBalancerStatus { ingress: ingress.into_iter().collect() }
}

/// The name is valid before AWS has finished, as in the vendor's manager.
fn network_status(found: &elb_v2::LoadBalancer) -> LoadBalancerStatus {
    if found.state == "failed" { status("") } else { status(&found.dns_name) }
}

fn network_state(found: &elb_v2::LoadBalancer) -> Result<LoadBalancerStatus> {
    if found.state == "failed" {
        return Err(Error::Unavailable(format!(
            "AWS failed to make load balancer {}: {}; delete the load balancer in AWS, so that the next call makes another \
             one",
            found.name, found.state_reason
        )));
    }
    reachable(&found.name, &found.dns_name)
}

/// The status of a load balancer that serves.
fn reachable(name: &str, dns_name: &str) -> Result<LoadBalancerStatus> {
    if dns_name.is_empty() {
        return Err(Error::Unavailable(format!(
            "AWS shows no DNS name of load balancer {name}; the next call asks again"
        )));
    }
    Ok(status(dns_name))
}

/// Whether both lists have the same entries; the order does not matter.
pub(crate) fn same_set(one: &[String], other: &[String]) -> bool {
    one.iter().all(|text| other.contains(text)) && other.iter().all(|text| one.contains(text))
}

/// The entries of a list that another one lacks.
pub(crate) fn lacking<'a>(one: &'a [String], other: &[String]) -> Vec<&'a String> {
    one.iter().filter(|text| !other.contains(text)).collect()
}

/// The tags that are missing or have another value.
pub(crate) fn changed_tags(wanted: &Tags, present: &Tags) -> Tags {
    let differs = |(key, value): &(&String, &String)| present.get(*key) != Some(value);
    wanted.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests;
