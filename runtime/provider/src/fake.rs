//! A provider in memory, for tests of the controllers: it simulates a small cloud, records every
//! call as one line of text and fails on request.
//!
//! The provider uses no clock: a test that needs latency installs a hook
//! ([`FakeProvider::on_call`]) whose future uses the test's clock. Do not use the provider outside
//! tests: its memory has no bound.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use crate::{
    Call, Code, Detail, Error, EventKind, Info, Ingress, Instance, Instances, LoadBalancerInventory,
    LoadBalancerStatus, LoadBalancers, NODES_PER_PAGE, NewRoute, NodeSet, OwnedLoadBalancer, PersistentVolume,
    PersistentVolumeLabels, Protocol, Provider, ProviderEvent, Result, Route, Routes, Service, Target,
};

/// The future that a hook returns.
pub type HookFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type Hook = Arc<dyn Fn(&str) -> HookFuture + Send + Sync>;
type EnsureAnswer = Arc<dyn Fn(&Service) -> LoadBalancerStatus + Send + Sync>;
type NameTarget = Arc<dyn Fn(&NewRoute) -> Target + Send + Sync>;

/// A load balancer of the fake cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeLoadBalancer {
    /// `namespace/name` of its Service.
    pub service: String,
    /// The load balancer's status.
    pub status: LoadBalancerStatus,
    /// Names of its backends, sorted.
    pub nodes: Vec<String>,
}

#[derive(Default)]
struct State {
    info: Option<Arc<Info>>,
    calls: Vec<String>,
    /// For each operation the failures of its next calls, in order.
    failures: BTreeMap<String, VecDeque<Error>>,
    /// The error of every call of an operation.
    broken: BTreeMap<String, Error>,
    load_balancers: BTreeMap<String, FakeLoadBalancer>,
    addresses_given: u8,
    instances: BTreeMap<String, Result<Instance>>,
    /// Load balancers in the cloud that were not created through these traits.
    left_behind: Vec<OwnedLoadBalancer>,
    routes: Vec<Route>,
    /// The labels of each volume, by the volume's handle.
    volumes: BTreeMap<String, BTreeMap<String, String>>,
    hook: Option<Hook>,
    answer: Option<EnsureAnswer>,
    target: Option<NameTarget>,
    /// The text of the warning Event that each `describe` emits.
    warning: Option<String>,
    /// A node, and the error of every `describe` that includes it.
    poison: Option<(String, Error)>,
    /// `get` finds no load balancer.
    blind: bool,
    /// Load balancers are named by the names of their Services.
    by_name: bool,
    /// The maximum number of results of `describe`.
    results_max: Option<usize>,
}

impl State {
    /// The failure of one route of a call.
    fn one(&self, operation: &str, cidr: &str) -> Result<()> {
        let failure = self.broken.get(&format!("{operation} {cidr}"));
        failure.map_or(Ok(()), |error| Err(error.clone()))
    }
}

/// A provider in memory. Cloning is cheap and shares everything.
#[derive(Clone)]
pub struct FakeProvider {
    state: Arc<Mutex<State>>,
    name: String,
    without_load_balancers: bool,
    without_instances: bool,
    without_routes: bool,
}

impl fmt::Debug for FakeProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeProvider").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FakeProvider {
    /// A provider that serves under this name; the name is also its provider-ID scheme.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let fake = Self {
            state: Arc::default(),
            name: name.to_owned(),
            without_load_balancers: false,
            without_instances: false,
            without_routes: false,
        };
        fake.start();
        fake
    }

    /// The same provider without load balancers.
    #[must_use]
    pub fn without_load_balancers(mut self) -> Self {
        self.without_load_balancers = true;
        self
    }

    /// The same provider without instances.
    #[must_use]
    pub fn without_instances(mut self) -> Self {
        self.without_instances = true;
        self
    }

    /// The same provider without routes.
    #[must_use]
    pub fn without_routes(mut self) -> Self {
        self.without_routes = true;
        self
    }

    /// Makes the provider serve.
    pub fn start(&self) {
        self.lock().info = Some(Arc::new(Info {
            name: self.name.clone(),
            version: "0.0.0".to_owned(),
            description: "in memory".to_owned(),
            provider_id_schemes: vec![self.name.clone()],
            has_cluster_id: true,
            serial_load_balancers: false,
            page_nodes: NODES_PER_PAGE,
        }));
    }

    /// Stops serving: `info` is none, every call fails with [`Code::NotServing`].
    pub fn stop(&self) {
        self.lock().info = None;
    }

    /// Sets the provider-ID schemes of `info`.
    pub fn describe_schemes(&self, schemes: &[&str]) {
        let schemes = schemes.iter().map(|scheme| (*scheme).to_owned()).collect();
        self.describe_as(|info| info.provider_id_schemes = schemes);
    }

    /// Changes `info`, as another release does.
    pub fn describe_as(&self, change: impl FnOnce(&mut Info)) {
        if let Some(info) = &mut self.lock().info {
            change(Arc::make_mut(info));
        }
    }

    /// Every call first awaits the future that this hook returns for the line of the call.
    pub fn on_call(&self, hook: impl Fn(&str) -> HookFuture + Send + Sync + 'static) {
        self.lock().hook = Some(Arc::new(hook));
    }

    /// Sets the status that `ensure` returns, instead of one address out of 203.0.113.0/24.
    pub fn answer_ensure(&self, answer: impl Fn(&Service) -> LoadBalancerStatus + Send + Sync + 'static) {
        self.lock().answer = Some(Arc::new(answer));
    }

    /// Sets the target of the routes that are created from now on, instead of the node's name.
    pub fn target_routes_by(&self, target: impl Fn(&NewRoute) -> Target + Send + Sync + 'static) {
        self.lock().target = Some(Arc::new(target));
    }

    /// The next call of this operation (`ensure`, `describe`, …) fails; several wait in order.
    pub fn fail_next(&self, operation: &str, error: Error) {
        self.lock().failures.entry(operation.to_owned()).or_default().push_back(error);
    }

    /// Every call of this operation fails, or (none) works again.
    pub fn fail_always(&self, operation: &str, error: Option<Error>) {
        let mut state = self.lock();
        match error {
            Some(error) => state.broken.insert(operation.to_owned(), error),
            None => state.broken.remove(operation),
        };
    }

    /// Sets the result of `describe` for this node. The default is [`Code::NotFound`].
    pub fn set_instance(&self, node: &str, instance: Result<Instance>) {
        self.lock().instances.insert(node.to_owned(), instance);
    }

    /// Machines for these nodes, each with the ID `<name>://<node>`.
    pub fn add_instances<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) {
        for node in nodes {
            let provider_id = format!("{}://{node}", self.name);
            self.set_instance(node, Ok(Instance { provider_id, ..Instance::default() }));
        }
    }

    /// Every `describe` emits a warning Event `MachinesListed` with this text.
    pub fn warn_at_describe(&self, message: &str) {
        self.lock().warning = Some(message.to_owned());
    }

    /// Every `describe` that includes this node fails as a whole.
    pub fn poison(&self, node: &str, error: Error) {
        self.lock().poison = Some((node.to_owned(), error));
    }

    /// From now on `describe` returns at most this many results; with `None`, one for each node.
    pub fn cut_answers(&self, results_max: Option<usize>) {
        self.lock().results_max = results_max;
    }

    /// Adds a volume with this handle and these labels. `labels` returns [`Code::NotFound`] for
    /// other volumes.
    pub fn add_volume<'a>(&self, handle: &str, labels: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        self.lock().volumes.insert(handle.to_owned(), labels);
    }

    /// Deletes the machine.
    pub fn remove_instance(&self, node: &str) {
        self.lock().instances.remove(node);
    }

    /// Replaces the routes in the cloud.
    pub fn set_routes(&self, routes: Vec<Route>) {
        self.lock().routes = routes;
    }

    /// The routes in the cloud, in the order of their creation.
    #[must_use]
    pub fn cloud_routes(&self) -> Vec<Route> {
        self.lock().routes.clone()
    }

    /// The load balancers in the cloud, by name.
    #[must_use]
    pub fn cloud(&self) -> BTreeMap<String, FakeLoadBalancer> {
        self.lock().load_balancers.clone()
    }

    /// Adds a load balancer of this cluster that was not created through these traits.
    pub fn leave_behind(&self, load_balancer: OwnedLoadBalancer) {
        self.lock().left_behind.push(load_balancer);
    }

    /// Deletes the load balancers that were added with [`Self::leave_behind`].
    pub fn forget_left_behind(&self) {
        self.lock().left_behind.clear();
    }

    /// Deletes all load balancers, as a person would in the cloud's console.
    pub fn lose_load_balancers(&self) {
        self.lock().load_balancers.clear();
    }

    /// Makes `get` find no load balancer, as in a cloud with stale reads.
    pub fn make_get_blind(&self) {
        self.lock().blind = true;
    }

    /// Names load balancers by namespace and name of their Services, as some vendors do, and not by
    /// their UIDs.
    pub fn name_by_service(&self) {
        self.lock().by_name = true;
    }

    /// All calls so far, one line each.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.lock().calls.clone()
    }

    /// The calls since the last time, one line each.
    #[must_use]
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().calls)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the fence, records the call, awaits the hook, and returns the configured failure.
    async fn enter(&self, call: &Call, operation: &str, line: String) -> Result<()> {
        call.fence.check()?;
        let hook = {
            let mut state = self.lock();
            state.calls.push(line.clone());
            state.hook.clone()
        };
        if let Some(hook) = hook {
            hook(&line).await;
        }
        let mut state = self.lock();
        if state.info.is_none() {
            return Err(Error::new(Code::NotServing, "no release serves"));
        }
        if let Some(error) = state.failures.get_mut(operation).and_then(VecDeque::pop_front) {
            return Err(error);
        }
        state.broken.get(operation).map_or(Ok(()), |error| Err(error.clone()))
    }
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace, service.name)
}

fn load_balancer_name(state: &State, service: &Service) -> String {
    if state.by_name {
        return format!("{}-{}", service.namespace, service.name);
    }
    let name = format!("a{}", service.uid.replace('-', ""));
    name.chars().take(32).collect()
}

fn names(nodes: &NodeSet) -> Vec<String> {
    nodes.as_slice().iter().map(|node| node.name.clone()).collect()
}

/// Names while they fit on a line, else their number.
fn names_line(nodes: &NodeSet) -> String {
    if nodes.len() > 8 { format!("({} nodes)", nodes.len()) } else { names(nodes).join(",") }
}

/// Targets and destinations while they fit on a line, else their number.
fn routes_line<'a>(routes: impl ExactSizeIterator<Item = (&'a str, &'a str)>) -> String {
    if routes.len() > 8 {
        return format!("({} routes)", routes.len());
    }
    routes.map(|(target, cidr)| format!("{target}={cidr}")).collect::<Vec<_>>().join(",")
}

fn target_text(target: &Target) -> &str {
    match target {
        Target::Node(text) | Target::ProviderId(text) | Target::Address(text) => text,
        Target::None => "-",
    }
}

fn ports_line(service: &Service) -> String {
    let port = |p: &crate::ServicePort| {
        let protocol = match p.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        };
        format!("{}/{protocol}", p.port)
    };
    service.ports.iter().map(port).collect::<Vec<_>>().join(",")
}

#[async_trait]
impl LoadBalancers for FakeProvider {
    async fn name(&self, call: &Call, _cluster: &str, service: &Service) -> Result<String> {
        self.enter(call, "name", format!("name {}", key(service))).await?;
        Ok(load_balancer_name(&self.lock(), service))
    }

    async fn get(&self, call: &Call, _cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        self.enter(call, "get", format!("get {}", key(service))).await?;
        let state = self.lock();
        let seen = state.load_balancers.get(&load_balancer_name(&state, service)).filter(|_| !state.blind);
        Ok(seen.map(|lb| lb.status.clone()))
    }

    async fn ensure(
        &self,
        call: &Call,
        _cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus> {
        let line = format!("ensure {} ports={} nodes={}", key(service), ports_line(service), names_line(nodes));
        self.enter(call, "ensure", line).await?;
        let mut state = self.lock();
        let name = load_balancer_name(&state, service);
        let status = match (state.answer.clone(), state.load_balancers.get(&name)) {
            (Some(answer), _) => answer(service),
            (None, Some(present)) => present.status.clone(),
            (None, None) => {
                state.addresses_given = state.addresses_given.wrapping_add(1);
                let ip = format!("203.0.113.{}", state.addresses_given);
                LoadBalancerStatus { ingress: vec![Ingress { ip: Some(ip), ..Ingress::default() }] }
            }
        };
        let lb = FakeLoadBalancer { service: key(service), status: status.clone(), nodes: names(nodes) };
        if state.load_balancers.get(&name) != Some(&lb) {
            held_back(call, "PUT", &name)?;
        }
        state.load_balancers.insert(name, lb);
        Ok(status)
    }

    async fn update(&self, call: &Call, _cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
        self.enter(call, "update", format!("update {} nodes={}", key(service), names_line(nodes))).await?;
        let mut state = self.lock();
        let name = load_balancer_name(&state, service);
        match state.load_balancers.get_mut(&name) {
            Some(lb) => {
                if lb.nodes != names(nodes) {
                    held_back(call, "PUT", &name)?;
                }
                lb.nodes = names(nodes);
                Ok(())
            }
            None => Err(Error::new(Code::NotFound, "the load balancer is gone")),
        }
    }

    async fn ensure_deleted(&self, call: &Call, _cluster: &str, service: &Service) -> Result<()> {
        self.enter(call, "ensure-deleted", format!("ensure-deleted {}", key(service))).await?;
        let mut state = self.lock();
        let name = load_balancer_name(&state, service);
        if state.load_balancers.contains_key(&name) {
            held_back(call, "DELETE", &name)?;
        }
        state.load_balancers.remove(&name);
        Ok(())
    }
}

/// As the host does: in a dry run a request that changes the cloud fails, and is recorded.
fn held_back(call: &Call, method: &str, what: &str) -> Result<()> {
    match &call.dry_run {
        Some(dry_run) => {
            dry_run.hold(method, &format!("https://cloud.test/{what}"), b"");
            Err(Error::new(Code::Denied, "the call is a dry run"))
        }
        None => Ok(()),
    }
}

#[async_trait]
impl LoadBalancerInventory for FakeProvider {
    async fn list(&self, call: &Call, _cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        self.enter(call, "list-owned", "list-owned".to_owned()).await?;
        let owned = |name: &String| OwnedLoadBalancer { name: name.clone(), service: None };
        let state = self.lock();
        Ok(state.load_balancers.keys().map(owned).chain(state.left_behind.iter().cloned()).collect())
    }

    async fn delete(&self, call: &Call, _cluster: &str, share: &OwnedLoadBalancer) -> Result<()> {
        let whose = share.service.as_ref().map(|(namespace, name, _)| format!(" of {namespace}/{name}"));
        let line = format!("delete-owned {}{}", share.name, whose.unwrap_or_default());
        self.enter(call, "delete-owned", line).await?;
        let mut state = self.lock();
        if share.service.is_none() {
            state.load_balancers.remove(&share.name);
        }
        state.left_behind.retain(|one| one != share);
        Ok(())
    }
}

#[async_trait]
impl Instances for FakeProvider {
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        if let (Some(sink), Some(message)) = (&call.events, self.lock().warning.clone()) {
            let (object, reason) = (call.object.clone(), "MachinesListed".to_owned());
            sink.emit(ProviderEvent { object, kind: EventKind::Warning, reason, message });
        }
        let detail = match detail {
            Detail::State => "state",
            Detail::Metadata => "metadata",
        };
        self.enter(call, "describe", format!("describe {detail} nodes={}", names_line(nodes))).await?;
        let state = self.lock();
        if let Some((_, error)) = state.poison.as_ref().filter(|(node, _)| names(nodes).contains(node)) {
            return Err(error.clone());
        }
        let one = |name: &String| {
            let missing = || Err(Error::new(Code::NotFound, format!("no machine named {name}")));
            state.instances.get(name).cloned().unwrap_or_else(missing)
        };
        Ok(names(nodes).iter().take(state.results_max.unwrap_or(usize::MAX)).map(one).collect())
    }
}

#[async_trait]
impl Routes for FakeProvider {
    async fn list(&self, call: &Call, _cluster: &str) -> Result<Vec<Route>> {
        self.enter(call, "list-routes", "list-routes".to_owned()).await?;
        Ok(self.lock().routes.clone())
    }

    /// One route alone fails where a failure is set for the operation `create-route <cidr>`.
    async fn create(&self, call: &Call, _cluster: &str, routes: &[NewRoute]) -> Result<Vec<Result<()>>> {
        let wanted = routes.iter().map(|route| (route.node.as_str(), route.destination_cidr.as_str()));
        self.enter(call, "create-routes", format!("create-routes {}", routes_line(wanted))).await?;
        let mut state = self.lock();
        let name_target = state.target.clone();
        Ok(routes
            .iter()
            .map(|new| {
                let NewRoute { name_hint, node, addresses, destination_cidr, .. } = new;
                held_back(call, "POST", destination_cidr)?;
                state.one("create-route", destination_cidr)?;
                let target = name_target.as_ref().map_or_else(|| Target::Node(node.clone()), |target| target(new));
                let same = |present: &&Route| present.target == target && present.destination_cidr == *destination_cidr;
                if state.routes.iter().any(|present| same(&present)) {
                    // Only with a list that tells the target, the caller knows that the route
                    // exists.
                    let known = Err(Error::new(Code::Invalid, "the route exists"));
                    return if target == Target::None { Ok(()) } else { known };
                }
                let name = format!("{name_hint}-{destination_cidr}");
                let (target_addresses, destination_cidr) = (addresses.clone(), destination_cidr.clone());
                state.routes.push(Route { name, target, target_addresses, destination_cidr, ..Route::default() });
                Ok(())
            })
            .collect())
    }

    /// One route alone fails where a failure is set for the operation `delete-route <cidr>`.
    async fn delete(&self, call: &Call, _cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
        let stale = routes.iter().map(|route| (target_text(&route.target), route.destination_cidr.as_str()));
        self.enter(call, "delete-routes", format!("delete-routes {}", routes_line(stale))).await?;
        let mut state = self.lock();
        Ok(routes
            .iter()
            .map(|route| {
                held_back(call, "DELETE", &route.destination_cidr)?;
                state.one("delete-route", &route.destination_cidr)?;
                state.routes.retain(|present| present.name != route.name);
                Ok(())
            })
            .collect())
    }
}

#[async_trait]
impl PersistentVolumeLabels for FakeProvider {
    async fn labels(&self, call: &Call, cluster: &str, volume: &PersistentVolume) -> Result<BTreeMap<String, String>> {
        let PersistentVolume { name, source, handle, .. } = volume;
        self.enter(call, "labels", format!("labels {cluster} {name} {source} {handle}")).await?;
        let missing = || Error::new(Code::NotFound, format!("no volume {handle:?}"));
        self.lock().volumes.get(handle).cloned().ok_or_else(missing)
    }
}

impl Provider for FakeProvider {
    fn info(&self) -> Option<Arc<Info>> {
        self.lock().info.clone()
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        (!self.without_load_balancers).then_some(self as &dyn LoadBalancers)
    }

    fn load_balancer_inventory(&self) -> Option<&dyn LoadBalancerInventory> {
        (!self.without_load_balancers).then_some(self as &dyn LoadBalancerInventory)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        (!self.without_instances).then_some(self as &dyn Instances)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        (!self.without_routes).then_some(self as &dyn Routes)
    }

    fn persistent_volume_labels(&self) -> Option<&dyn PersistentVolumeLabels> {
        Some(self)
    }
}
