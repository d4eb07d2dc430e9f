//! The component in front of its cloud, as the cases see it: calls of the contract, what they
//! return, and the requests that they sent.
//!
//! Whatever a case creates is noted before the call, so that it is deleted however the case ends.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{anyhow, ensure};
use skysail_host::{CallRecord, Disturber, Limits, egress::EgressPolicy};
use skysail_provider::{
    Call, Code, Detail, Error, Instance, LoadBalancerStatus, LoadBalancers, Node, NodeSet, OwnedLoadBalancer, Provider,
    Result, Service,
};
use tokio::{
    sync::broadcast::{Receiver, error::TryRecvError},
    time::{Instant, sleep},
};

use super::{
    requests::{Reads, Sent},
    used::Used,
};
use crate::{args::ReadRequest, commands::call, output};

/// Bounds of the pauses while the component returns `retry-after`: the first one where it names no
/// time, and the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// What the author says about the run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The cluster of the run.
    pub(super) cluster: String,
    /// Nodes of machines that exist.
    pub(super) nodes: NodeSet,
    /// The Services of the cases are copies.
    pub(super) service: Service,
    /// Destinations of routes.
    pub(super) route_cidrs: Vec<String>,
    /// How many requests fail for each kind of failure.
    pub(super) fault_requests: u32,
    /// The longest time of one step.
    pub(super) wait: Duration,
    /// A number of this run, so that no UID is used twice.
    pub(super) run: u64,
}

/// See the module.
pub(super) struct Bench {
    provider: Arc<dyn Provider>,
    records: Receiver<Arc<CallRecord>>,
    egress: Arc<EgressPolicy>,
    reads: Vec<ReadRequest>,
    limits: Limits,
    pub(super) disturber: Disturber,
    pub(super) plan: Plan,
    pub(super) used: Used,
    /// The load balancers that may exist, by cluster and UID.
    balancers: BTreeMap<(String, String), Service>,
    /// Those whose deletion failed: they are deleted at the end of the run once more, because each
    /// try may take long.
    stuck: BTreeMap<(String, String), Service>,
    /// Whether routes of the run may exist.
    pub(super) has_routes: bool,
}

/// What the component runs with.
pub(super) struct Setting {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) records: Receiver<Arc<CallRecord>>,
    pub(super) disturber: Disturber,
    pub(super) egress: Arc<EgressPolicy>,
    pub(super) limits: Limits,
}

/// A call, or several until the component had finished.
pub(super) struct Made<T> {
    pub(super) answer: T,
    pub(super) requests: Vec<Sent>,
}

impl Bench {
    pub(super) fn new(setting: Setting, plan: Plan, reads: Vec<ReadRequest>) -> Self {
        let Setting { provider, records, disturber, egress, limits } = setting;
        Self {
            provider,
            records,
            egress,
            reads,
            limits,
            disturber,
            plan,
            used: Used::default(),
            balancers: BTreeMap::new(),
            stuck: BTreeMap::new(),
            has_routes: false,
        }
    }

    /// The component.
    pub(super) fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider)
    }

    // === the Services of the cases ===

    /// A copy of the author's Service with this name.
    pub(super) fn service(&self, name: &str) -> Service {
        let uid = uid(self.plan.run, name);
        Service { name: format!("skysail-test-{name}"), uid, ..self.plan.service.clone() }
    }

    /// As [`Self::service`], with other node ports: those of two Services of a cluster differ.
    pub(super) fn second_service(&self, name: &str) -> Service {
        let mut service = self.service(name);
        for port in service.ports.iter_mut().filter(|port| port.node_port > 0) {
            port.node_port = port.node_port.saturating_add(100);
        }
        service
    }

    /// The name of a second cluster.
    pub(super) fn second_cluster(&self) -> String {
        format!("{}-2", self.plan.cluster)
    }

    /// The first machine alone.
    pub(super) fn one_node(&self) -> NodeSet {
        NodeSet::new(self.plan.nodes.as_slice().iter().take(1).cloned())
    }

    // === calls ===

    /// Makes one call.
    pub(super) async fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(Arc<dyn Provider>) -> Result<T>,
    ) -> anyhow::Result<Made<Result<T>>> {
        let answer = call(Arc::clone(&self.provider)).await;
        Ok(Made { answer, requests: self.requests()? })
    }

    /// Makes a call again and again while it returns `retry-after`, as the controllers do.
    pub(super) async fn settled<T>(
        &mut self,
        what: &str,
        call: impl AsyncFn(Arc<dyn Provider>) -> Result<T>,
    ) -> anyhow::Result<Made<T>> {
        let (began, mut requests) = (Instant::now(), Vec::new());
        loop {
            let made = self.call(async |provider| call(provider).await).await?;
            requests.extend(made.requests);
            match made.answer {
                Ok(answer) => return Ok(Made { answer, requests }),
                Err(error) if error.code == Code::RetryAfter => {
                    let pause = pause(&error);
                    let wait = self.plan.wait;
                    ensure!(
                        began.elapsed() + pause <= wait,
                        "`{what}` still returns {} after {} s; give more time with --wait if the cloud needs it",
                        call::failure(&error),
                        began.elapsed().as_secs(),
                    );
                    output::say(&format!("{what}: {error}; asking again in {:.1} s", pause.as_secs_f64()));
                    sleep(pause).await;
                }
                Err(error) => return Err(anyhow!("`{what}` returned {}", call::failure(&error))),
            }
        }
    }

    /// The requests since the last call, in their order.
    fn requests(&mut self) -> anyhow::Result<Vec<Sent>> {
        let reads = Reads { egress: &self.egress, named: &self.reads };
        let (mut requests, mut is_whole) = (Vec::new(), true);
        loop {
            match self.records.try_recv() {
                Ok(record) => {
                    self.used.add(&record, &self.limits);
                    let Some(recording) = &record.recording else { continue };
                    is_whole &= recording.complete;
                    requests.extend(recording.requests.iter().map(|exchange| reads.judge(exchange)));
                }
                Err(TryRecvError::Lagged(_)) => is_whole = false,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        ensure!(
            is_whole,
            "the call received more than 16 MiB, so that its requests are not known; test with fewer objects in the cloud"
        );
        Ok(requests)
    }

    // === load balancers ===

    /// One call of `ensure`.
    pub(super) async fn ensure_once(
        &mut self,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> anyhow::Result<Made<Result<LoadBalancerStatus>>> {
        self.note(cluster, service);
        self.call(async |provider| balancers(&*provider)?.ensure(&Call::default(), cluster, service, nodes).await).await
    }

    /// Calls `ensure` until the component has finished.
    pub(super) async fn ensure(
        &mut self,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> anyhow::Result<Made<LoadBalancerStatus>> {
        self.note(cluster, service);
        let ensure = async |provider: Arc<dyn Provider>| {
            balancers(&*provider)?.ensure(&Call::default(), cluster, service, nodes).await
        };
        self.settled("ensure", ensure).await
    }

    /// Calls `update` until the component has finished.
    pub(super) async fn update(&mut self, service: &Service, nodes: &NodeSet) -> anyhow::Result<Made<()>> {
        let cluster = self.plan.cluster.clone();
        let update = async |provider: Arc<dyn Provider>| {
            balancers(&*provider)?.update(&Call::default(), &cluster, service, nodes).await
        };
        self.settled("update", update).await
    }

    /// Calls `ensure-deleted` until the component has finished.
    pub(super) async fn delete(&mut self, cluster: &str, service: &Service) -> anyhow::Result<Made<()>> {
        let delete = async |provider: Arc<dyn Provider>| {
            match balancers(&*provider)?.ensure_deleted(&Call::default(), cluster, service).await {
                // The host treats it as ok.
                Err(error) if error.code == Code::NotFound => Ok(()),
                answer => answer,
            }
        };
        let made = self.settled("ensure-deleted", delete).await?;
        self.balancers.remove(&(cluster.to_owned(), service.uid.clone()));
        Ok(made)
    }

    /// The current load balancer in the cloud.
    pub(super) async fn get(&mut self, cluster: &str, service: &Service) -> anyhow::Result<Option<LoadBalancerStatus>> {
        let get =
            async |provider: Arc<dyn Provider>| balancers(&*provider)?.get(&Call::default(), cluster, service).await;
        let made = self.settled("get", get).await?;
        only_reads("get", &made.requests)?;
        Ok(made.answer)
    }

    fn note(&mut self, cluster: &str, service: &Service) {
        self.balancers.insert((cluster.to_owned(), service.uid.clone()), service.clone());
    }

    /// The inventory of a cluster; none if the component has none, or its settings switch it off.
    pub(super) async fn inventory(&mut self, cluster: &str) -> anyhow::Result<Option<Vec<OwnedLoadBalancer>>> {
        let list = async |provider: Arc<dyn Provider>| {
            let listed = match provider.load_balancer_inventory() {
                Some(inventory) => inventory.list(&Call::default(), cluster).await,
                None => return Ok(None),
            };
            match listed {
                Err(error) if error.code == Code::Unsupported => Ok(None),
                listed => listed.map(Some),
            }
        };
        let made = self.settled("load-balancer-inventory.list", list).await?;
        only_reads("load-balancer-inventory.list", &made.requests)?;
        Ok(made.answer)
    }

    // === machines ===

    /// Asks for the machines of these nodes.
    pub(super) async fn machines(
        &mut self,
        nodes: &NodeSet,
        detail: Detail,
    ) -> anyhow::Result<Made<Result<Vec<Result<Instance>>>>> {
        let made = self.call(async |provider| {
            let instances = provider.instances().ok_or_else(|| missing("instances"))?;
            instances.describe(&Call::default(), nodes, detail).await
        });
        let made = made.await?;
        only_reads("describe", &made.requests)?;
        Ok(made)
    }

    /// Gives the nodes the addresses of their machines where the author has given none: a node of a
    /// cluster has addresses.
    pub(super) async fn complete_nodes(&mut self) -> anyhow::Result<()> {
        let nodes = self.plan.nodes.clone();
        if self.provider.instances().is_none() || nodes.as_slice().iter().all(|node| !node.addresses.is_empty()) {
            return Ok(());
        }
        let page = self.provider.info().map_or(1, |info| info.page_nodes);
        let mut completed = Vec::with_capacity(nodes.len());
        for page in nodes.pages(page) {
            // A component that describes no machine fails a case of machines.
            let answers = self.machines(&page, Detail::Metadata).await?.answer.unwrap_or_default();
            let mut answers = answers.into_iter();
            for node in page.as_slice() {
                let found = answers.next().and_then(Result::ok).map(|instance| instance.addresses);
                let addresses =
                    if node.addresses.is_empty() { found.unwrap_or_default() } else { node.addresses.clone() };
                completed.push(Arc::new(Node { addresses, ..(**node).clone() }));
            }
        }
        self.plan.nodes = NodeSet::new(completed);
        Ok(())
    }

    // === the end ===

    /// Deletes the load balancers of a case, and returns a line for each that remains.
    pub(super) async fn delete_balancers(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for (of, service) in self.balancers.clone() {
            if let Err(error) = self.delete(&of.0, &service).await {
                left.push(format!("{}: {error:#}", described(&of.0, &service)));
                self.balancers.remove(&of);
                self.stuck.insert(of, service);
            }
        }
        left
    }

    /// Lets the next deletion try all that remains.
    pub(super) fn try_the_rest_again(&mut self) {
        self.balancers.append(&mut self.stuck);
    }

    /// What may exist, without another try to delete it.
    pub(super) fn names_of_the_rest(&self) -> Vec<String> {
        let balancers = self.balancers.iter().chain(&self.stuck);
        let balancers = balancers.map(|((cluster, _), service)| described(cluster, service));
        let routes = format!("the routes to {}", self.plan.route_cidrs.join(" and "));
        balancers.chain(self.has_routes.then_some(routes)).collect()
    }
}

/// How long to wait before the call is repeated.
pub(super) fn pause(error: &Error) -> Duration {
    error.retry_after.unwrap_or(PAUSE).min(PAUSE_MAX)
}

fn described(cluster: &str, Service { namespace, name, uid, .. }: &Service) -> String {
    format!("the load balancer of the Service {namespace}/{name} with the UID {uid} in the cluster {cluster}")
}

/// The load balancers of the component.
fn balancers(provider: &dyn Provider) -> Result<&dyn LoadBalancers> {
    provider.load_balancers().ok_or_else(|| missing("load-balancers"))
}

pub(super) fn missing(interface: &str) -> Error {
    Error::new(Code::Unsupported, format!("the component does not export {interface}"))
}

/// Fails if a function that the contract calls one that only reads sent a write.
pub(super) fn only_reads(function: &str, requests: &[Sent]) -> anyhow::Result<()> {
    match requests.iter().find(|request| request.writes) {
        None => Ok(()),
        Some(request) => Err(anyhow!(
            "`{function}` only reads, and sent {}; name the request with --reads if it changes nothing",
            request.line()
        )),
    }
}

/// A UUID that depends on the run and the name alone. Names of load balancers contain the beginning
/// of the UID, so that already its first part differs between two names.
fn uid(run: u64, name: &str) -> String {
    let number = name.bytes().fold(run, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("{:08x}-{:04x}-4abc-8def-{:012x}", number & 0xffff_ffff, run & 0xffff, run >> 16)
}

#[cfg(test)]
mod tests {
    use super::uid;

    #[test]
    fn the_uid_of_a_service_is_a_uuid_of_the_run_and_the_name() {
        let [one, other, later] = [(7, "a"), (7, "b"), (8, "a")].map(|(run, name)| uid(run << 40, name));
        assert!(one != later && one[..8] != other[..8]);
        let parts: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
    }
}
