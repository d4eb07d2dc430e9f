//! A simulated cluster with its clouds and the manager.

use std::{
    collections::BTreeSet,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use expect_test::Expect;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Service};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use skysail_controllers::{
    Clients, ControllerMetrics, ControllerSettings, DeletionPolicy, DryRunObject, Ending, Explainer, Finding, Ledger,
    Manager, ManagerError, Progress, ProviderAddresses, ProviderEntry, Providers, Snapshot, dry_run,
    names::RETAINED_CONFIG_MAP,
};
use skysail_dev::api::{ApiOptions, ApiServer, Fault, Faults, RequestInfo};
use skysail_election::fenced;
use skysail_provider::{AddressKind, Fence, Instance, Interface, NodeAddress, Provider, fake::FakeProvider};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

/// Lines of a transcript.
pub type Log = Arc<Mutex<Vec<String>>>;

/// A simulated cloud with its provider and the signals of its releases and credentials.
pub struct Cloud {
    /// The fake provider.
    pub fake: FakeProvider,
    /// Counts the provider's releases.
    pub releases: watch::Sender<u64>,
    /// Counts the rotations of the provider's credentials.
    pub rotations: watch::Sender<u64>,
    entry: ProviderEntry,
}

impl Cloud {
    /// A cloud with this name for its provider and its provider-ID scheme.
    pub fn new(name: &str) -> Self {
        let fake = FakeProvider::new(name);
        let (releases, generation) = watch::channel(1);
        let rotations = watch::Sender::new(0);
        let entry = ProviderEntry {
            generation,
            rotations: rotations.subscribe(),
            ..ProviderEntry::new(name, Arc::new(fake.clone()))
        };
        Self { fake, releases, rotations, entry }
    }

    /// Marks the provider as the default.
    pub fn default_of_all(mut self) -> Self {
        self.entry.default = true;
        self
    }

    /// Replaces the provider by one without load balancers.
    pub fn make_without_load_balancers(&mut self) {
        self.entry.provider = Arc::new(self.fake.clone().without_load_balancers());
    }

    /// Replaces the provider by one without routes.
    pub fn without_routes(mut self) -> Self {
        self.fake = self.fake.without_routes();
        self.entry.provider = Arc::new(self.fake.clone());
        self
    }

    /// Replaces the fake by another provider.
    #[must_use]
    pub fn provided_by(mut self, provider: Arc<dyn Provider>) -> Self {
        self.entry.provider = provider;
        self
    }

    /// Pins these schemes in the provider's spec.
    pub fn pinned(mut self, schemes: &[&str]) -> Self {
        self.entry.provider_id_schemes = Some(schemes.iter().map(|scheme| (*scheme).to_owned()).collect());
        self
    }

    /// Lets the provider have these schemes from its last release before the start.
    pub fn remember(&mut self, schemes: &[&str]) {
        self.entry.remembered_schemes = schemes.iter().map(|scheme| (*scheme).to_owned()).collect();
    }

    /// Claims the provider IDs with these prefixes.
    pub fn prefixed(mut self, prefixes: &[&str]) -> Self {
        self.entry.provider_id_prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        self
    }

    /// Lists these interfaces in the provider's spec. The fake keeps the others, as a slot does
    /// not.
    pub fn uses(&mut self, interfaces: &[Interface]) {
        self.entry.interfaces = interfaces.iter().copied().collect();
    }

    /// Restricts load balancers to these ranges.
    pub fn load_balancer_cidrs(mut self, cidrs: &[&str]) -> Self {
        self.allow_load_balancers(cidrs);
        self
    }

    /// Lets the provider's component declare this scheme.
    #[must_use]
    pub fn describing(self, scheme: &str) -> Self {
        self.fake.describe_schemes(&[scheme]);
        self
    }

    /// The controllers' finding of this kind.
    #[must_use]
    pub fn finding(&self, finding: Finding) -> Option<String> {
        self.entry.findings.subscribe().borrow().get(&finding).cloned()
    }

    /// Restricts load balancers to addresses of these ranges.
    pub fn allow_load_balancers(&mut self, cidrs: &[&str]) {
        self.allow(cidrs, &[]);
    }

    /// Restricts load balancers and nodes to addresses of these ranges.
    pub fn allow(&mut self, load_balancers: &[&str], nodes: &[&str]) {
        let owned = |cidrs: &[&str]| cidrs.iter().map(|cidr| (*cidr).to_owned()).collect::<Vec<_>>();
        self.entry.addresses = ProviderAddresses::new(&owned(load_balancers), &owned(nodes)).unwrap();
    }

    /// Pauses the provider, or ends its pause.
    pub fn pause(&mut self, paused: bool) {
        self.entry.paused = paused;
    }

    /// Sets what becomes of load balancers whose Service has no annotation with a policy.
    pub fn retain(&mut self, policy: DeletionPolicy) {
        self.entry.deletion_policy = policy;
    }

    /// Removes the first class from the provider's claims.
    pub fn give_up_class(&mut self) -> String {
        self.entry.load_balancer_classes.remove(0)
    }

    /// Adds a class to the provider's claims.
    pub fn claim_class(&mut self, class: String) {
        self.entry.load_balancer_classes.push(class);
    }

    /// The name that the operator gave the provider.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Adds a label to the provider's node selector.
    pub fn select(&mut self, label: &str, value: &str) {
        self.entry.node_selector.insert(label.to_owned(), value.to_owned());
    }

    /// Adds a label to the provider's node selector.
    #[must_use]
    pub fn selects(mut self, label: &str, value: &str) -> Self {
        self.select(label, value);
        self
    }

    /// Adds a class to the provider's claims.
    pub fn class(mut self, class: &str) -> Self {
        self.entry.load_balancer_classes.push(class.to_owned());
        self
    }
}

/// The test environment.
pub struct World {
    /// A client of the API.
    pub client: Client,
    /// The clouds, in the order of the manager's providers.
    pub clouds: Vec<Cloud>,
    /// Stops the manager.
    pub stop: CancellationToken,
    /// The running manager.
    pub running: JoinSet<Result<Ending, ManagerError>>,
    /// The API.
    pub server: Arc<ApiServer>,
    /// The manager's metrics.
    pub registry: Registry,
    /// The progress of the manager's workers.
    pub progress: Progress,
    /// Explains the manager's Services.
    pub explainer: Explainer,
    providers: watch::Sender<Providers>,
    settings: ControllerSettings,
    ledger: Ledger,
    fence: Option<Fence>,
    log: Log,
    faults: Arc<Mutex<Option<Arc<dyn Faults>>>>,
    seen: BTreeSet<String>,
}

/// Lets simulated time pass. The clock is paused, so every timer that becomes due fires without a
/// real wait.
pub async fn pass(time: Duration) {
    assert!(timeout(time, pending::<()>()).await.is_err());
}

/// One second.
pub const S: Duration = Duration::from_secs(1);

impl World {
    /// A world with one cloud, whose provider is the default.
    pub fn new() -> Self {
        Self::with(vec![Cloud::new("fake").default_of_all()])
    }

    /// A world with these clouds, and a manager that is not started.
    pub fn with(clouds: Vec<Cloud>) -> Self {
        let server = ApiServer::new(&ApiOptions::default());
        let log = Log::default();
        for cloud in &clouds {
            let log = Arc::clone(&log);
            let name = if clouds.len() > 1 { format!("{} ", cloud.entry.name) } else { String::new() };
            cloud.fake.on_call(move |line| {
                log.lock().unwrap().push(format!("provider {name}{line}"));
                Box::pin(async {})
            });
        }
        World {
            client: server.client(),
            clouds,
            stop: CancellationToken::new(),
            running: JoinSet::new(),
            server,
            registry: Registry::default(),
            progress: Progress::default(),
            explainer: Explainer::default(),
            // Periodic provider calls would appear in every transcript; tests that need them enable
            // them.
            settings: ControllerSettings {
                configure_cloud_routes: false,
                orphan_scan_period: Duration::ZERO,
                // Sequential, so that a transcript has a fixed order.
                concurrent_service_syncs: 1,
                concurrent_node_syncs: 1,
                ..ControllerSettings::default()
            },
            providers: watch::Sender::default(),
            ledger: Ledger::default(),
            fence: None,
            log,
            faults: Arc::default(),
            seen: BTreeSet::new(),
        }
    }

    /// Replaces the API by an empty one without schema validation.
    pub fn without_validation(mut self) -> Self {
        self.server = ApiServer::new(&ApiOptions { validate: false, ..ApiOptions::default() });
        self.client = self.server.client();
        self
    }

    /// Changes the manager's settings.
    pub fn set(mut self, set: impl FnOnce(&mut ControllerSettings)) -> Self {
        set(&mut self.settings);
        self
    }

    /// Lets the manager write only while this fence is open.
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// The first cloud's provider.
    pub fn fake(&self) -> &FakeProvider {
        &self.clouds[0].fake
    }

    /// Starts the manager and records its writes in the transcript; the test's own writes are not
    /// recorded.
    pub async fn start(mut self) -> Self {
        self.launch();
        self.listen();
        pass(S / 2).await;
        self
    }

    /// Starts the manager and lets no time pass.
    pub fn launch(&mut self) {
        self.publish();
        let providers = self.providers.subscribe();
        let metrics = ControllerMetrics::register(&mut self.registry);
        let client = self.fence.clone().map_or_else(|| self.client.clone(), |fence| fenced(&self.client, fence));
        let manager = Manager::new(client, providers, self.settings.clone(), metrics, self.ledger.clone())
            .fenced(self.fence.clone().unwrap_or_default())
            .observed(self.progress.clone())
            .explained(self.explainer.clone());
        self.running.spawn(manager.run(self.stop.clone()));
    }

    fn publish(&self) {
        let entries = self.clouds.iter().map(|cloud| cloud.entry.clone()).collect();
        self.providers.send_replace(Providers::new(entries).unwrap());
    }

    /// Edits the providers while the manager runs, as an operator does.
    pub async fn edit(&mut self, edit: impl FnOnce(&mut Vec<Cloud>)) {
        edit(&mut self.clouds);
        self.publish();
        pass(S / 2).await;
    }

    /// Stops the manager and starts another one in the same process with other claims.
    pub async fn restart(mut self, claims: impl FnOnce(&mut Vec<Cloud>)) -> Self {
        self.stop.cancel();
        self.running.join_next().await.unwrap().unwrap().unwrap();
        self.stop = CancellationToken::new();
        claims(&mut self.clouds);
        self.start().await
    }

    /// Drops the ledger, as a new process does.
    pub fn forget(&mut self) {
        self.ledger = Ledger::default();
    }

    /// What a manager that starts now would change.
    pub async fn dry_run(&self) -> Vec<DryRunObject> {
        self.publish();
        let nodes = self.as_user(self.nodes().list(&ListParams::default())).await.items;
        let services = self.as_user(self.services().list(&ListParams::default())).await.items;
        let metrics = ControllerMetrics::register(&mut Registry::default());
        let (clients, providers) = (Clients::from(self.client.clone()), self.providers.borrow().clone());
        let records: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let retained = self.as_user(records.get_opt(RETAINED_CONFIG_MAP)).await;
        let snapshot = Snapshot { nodes, services, retained };
        dry_run(&clients, &providers, (self.settings.clone(), metrics), snapshot, |_, _| {}).await
    }

    /// Injects faults into the manager's requests; the test's own requests are not affected.
    pub fn disturb(&self, faults: impl Faults + 'static) {
        *self.faults.lock().unwrap() = Some(Arc::new(faults));
    }

    fn listen(&self) {
        let (log, faults) = (Arc::clone(&self.log), Arc::clone(&self.faults));
        let hook = move |request: &RequestInfo| {
            if matches!(request.verb, "patch" | "delete" | "create" | "update") && request.resource != "events" {
                let sub = if request.subresource.is_empty() { "" } else { "/" };
                let RequestInfo { verb, resource, subresource, name, .. } = request;
                log.lock().unwrap().push(format!("api {verb} {resource}{sub}{subresource} {name}"));
            }
            faults.lock().unwrap().as_ref().map_or(Fault::None, |faults| faults.judge(request))
        };
        self.server.set_faults(Some(Arc::new(hook)));
    }

    /// Runs a request of the test itself: without faults and not in the transcript.
    pub async fn as_user<T>(&self, doing: impl Future<Output = Result<T, kube::Error>>) -> T {
        self.server.set_faults(None);
        let result = doing.await.unwrap();
        self.listen();
        result
    }

    /// Services of the namespace `default`.
    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// All nodes.
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates a Service of type LoadBalancer with one port and the test's additional fields.
    pub async fn add_service(&self, name: &str, spec: Value) {
        let mut whole = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let object = json!({ "metadata": { "name": name }, "spec": whole });
        self.as_user(self.services().create(&PostParams::default(), &serde_json::from_value(object).unwrap())).await;
    }

    /// Changes a Service by a merge patch.
    pub async fn patch_service(&self, name: &str, patch: Value) {
        self.as_user(self.services().patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    }

    /// Deletes a Service.
    pub async fn delete_service(&self, name: &str) {
        self.as_user(self.services().delete(name, &DeleteParams::default())).await;
    }

    /// Adds an initialised node with a provider ID of the first cloud's scheme.
    pub async fn add_node(&self, name: &str) {
        let scheme = &self.clouds[0].entry.name;
        self.add_raw_node(name, json!({ "providerID": format!("{scheme}://{name}") })).await;
    }

    /// Adds a node as a kubelet registers it, with the taint.
    pub async fn add_new_node(&self, name: &str) {
        self.add_new_node_with(name, json!({})).await;
    }

    /// Adds a node as a kubelet registers it, with labels.
    pub async fn add_new_node_with(&self, name: &str, labels: Value) {
        let taint =
            json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" });
        let object = json!({ "metadata": { "name": name, "labels": labels }, "spec": { "taints": [taint] } });
        self.create_node(&object).await;
    }

    /// Adds a Ready node with these labels, without taint and provider ID.
    pub async fn add_bare_node(&self, name: &str, labels: Value) {
        self.create_node(&json!({ "metadata": { "name": name, "labels": labels } })).await;
    }

    /// Adds a Ready node with this spec.
    pub async fn add_raw_node(&self, name: &str, spec: Value) {
        self.create_node(&json!({ "metadata": { "name": name }, "spec": spec })).await;
    }

    async fn create_node(&self, object: &Value) {
        let node: Node = serde_json::from_value(object.clone()).unwrap();
        let node = self.as_user(self.nodes().create(&PostParams::default(), &node)).await;
        self.heartbeat(node.metadata.name.as_deref().unwrap(), "True").await;
    }

    /// Writes a kubelet's heartbeat; its message makes each one a change of the object.
    pub async fn heartbeat(&self, name: &str, ready: &str) {
        let beat = self.server.revision().to_string();
        let condition = json!({ "type": "Ready", "status": ready, "reason": "Kubelet", "message": beat });
        let patch = json!({ "status": { "conditions": [condition] } });
        self.as_user(self.nodes().patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    }

    /// Deletes a node.
    pub async fn delete_node(&self, name: &str) {
        self.as_user(self.nodes().delete(name, &DeleteParams::default())).await;
    }

    /// The current node.
    pub async fn node(&self, name: &str) -> Option<Node> {
        self.as_user(self.nodes().get_opt(name)).await
    }

    /// The ingress IPs and the finalizers of a Service.
    pub async fn state(&self, name: &str) -> String {
        let Some(object) = self.as_user(self.services().get_opt(name)).await else { return "gone".to_owned() };
        let status = object.status.and_then(|status| status.load_balancer?.ingress);
        let ips: Vec<String> = status.into_iter().flatten().filter_map(|ingress| ingress.ip).collect();
        format!("{ips:?} {:?}", object.metadata.finalizers.unwrap_or_default())
    }

    /// Lets time pass and compares the transcript since the last call.
    pub async fn after(&mut self, time: Duration, expected: Expect) {
        pass(time).await;
        let text = self.transcript().await;
        expected.assert_eq(&text);
    }

    /// The actions and Events of the controllers since the last call.
    pub async fn transcript(&mut self) -> String {
        let mut lines = std::mem::take(&mut *self.log.lock().unwrap());
        let api: Api<Event> = Api::all(self.client.clone());
        let mut events = self.as_user(api.list(&ListParams::default())).await.items;
        events.sort_by_key(|event| event.metadata.resource_version.as_deref().and_then(|v| v.parse::<u64>().ok()));
        for event in events {
            let name = event.involved_object.name.unwrap_or_default();
            let (kind, reason) = (event.type_.unwrap_or_default(), event.reason.unwrap_or_default());
            let count = event.count.unwrap_or_default();
            let text = event.message.unwrap_or_default();
            let line = format!("event {name} {kind} {reason} x{count}: {text}");
            if self.seen.insert(format!("{:?} {line}", event.metadata.name)) {
                lines.push(line);
            }
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }
}

/// A machine of the fake cloud.
pub fn machine(id: &str, ips: &[&str]) -> Instance {
    let address = |ip: &&str| NodeAddress { kind: AddressKind::InternalIp, address: (*ip).to_owned() };
    Instance {
        provider_id: id.to_owned(),
        instance_type: "small".to_owned(),
        zone: "z1".to_owned(),
        region: "r1".to_owned(),
        addresses: ips.iter().map(address).collect(),
        ..Instance::default()
    }
}
