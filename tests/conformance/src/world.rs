//! A cluster, its clouds and the manager between them.

use std::{
    collections::BTreeSet,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use expect_test::Expect;
use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use skysail_controllers::{
    ControllerMetrics, ControllerSettings, Ending, Finding, Findings, Ledger, Manager, ManagerError, ProviderAddresses,
    ProviderEntry, Providers,
};
use skysail_dev::api::{ApiOptions, ApiServer, Fault, Faults, RequestInfo};
use skysail_election::fenced;
use skysail_provider::{AddressKind, Fence, Instance, NodeAddress, Provider, fake::FakeProvider};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

/// Lines of a transcript.
pub type Log = Arc<Mutex<Vec<String>>>;

/// A provider with the knob of its releases.
pub struct Cloud {
    /// What is called.
    pub fake: FakeProvider,
    /// Counts its releases.
    pub releases: watch::Sender<u64>,
    /// Counts the rotations of its credentials.
    pub rotations: watch::Sender<u64>,
    entry: ProviderEntry,
}

impl Cloud {
    /// A cloud whose provider, and provider-ID scheme, has this name.
    pub fn new(name: &str) -> Self {
        let fake = FakeProvider::new(name);
        let (releases, generation) = watch::channel(1);
        let rotations = watch::Sender::new(0);
        let entry = ProviderEntry {
            name: name.to_owned(),
            provider: Arc::new(fake.clone()),
            default: false,
            node_selector: [].into(),
            load_balancer_classes: vec![],
            provider_id_schemes: None,
            addresses: ProviderAddresses::default(),
            generation,
            rotations: rotations.subscribe(),
            findings: Findings::default(),
        };
        Self { fake, releases, rotations, entry }
    }

    /// The same, marked as default.
    pub fn default_of_all(mut self) -> Self {
        self.entry.default = true;
        self
    }

    /// It has no load balancers from now on.
    pub fn make_without_load_balancers(&mut self) {
        self.entry.provider = Arc::new(self.fake.clone().without_load_balancers());
    }

    /// The same, with a provider that has no routes.
    pub fn without_routes(mut self) -> Self {
        self.fake = self.fake.without_routes();
        self.entry.provider = Arc::new(self.fake.clone());
        self
    }

    /// The same, with another provider behind it than the fake.
    #[must_use]
    pub fn provided_by(mut self, provider: Arc<dyn Provider>) -> Self {
        self.entry.provider = provider;
        self
    }

    /// The same, with these schemes pinned to it.
    pub fn pinned(mut self, schemes: &[&str]) -> Self {
        self.entry.provider_id_schemes = Some(schemes.iter().map(|scheme| (*scheme).to_owned()).collect());
        self
    }

    /// The same, with these ranges for load balancers.
    pub fn load_balancer_cidrs(mut self, cidrs: &[&str]) -> Self {
        self.allow_load_balancers(cidrs);
        self
    }

    /// The same, with a provider that describes this scheme.
    #[must_use]
    pub fn describing(self, scheme: &str) -> Self {
        self.fake.describe_schemes(&[scheme]);
        self
    }

    /// What the controllers report of this kind.
    #[must_use]
    pub fn finding(&self, finding: Finding) -> Option<String> {
        self.entry.findings.subscribe().borrow().get(&finding).cloned()
    }

    /// Its load balancers may have addresses of these ranges.
    pub fn allow_load_balancers(&mut self, cidrs: &[&str]) {
        let cidrs: Vec<String> = cidrs.iter().map(|cidr| (*cidr).to_owned()).collect();
        self.entry.addresses = ProviderAddresses::new(&cidrs, &[]).unwrap();
    }

    /// Takes back the first class.
    pub fn give_up_class(&mut self) -> String {
        self.entry.load_balancer_classes.remove(0)
    }

    /// Claims one more class.
    pub fn claim_class(&mut self, class: String) {
        self.entry.load_balancer_classes.push(class);
    }

    /// The operator's name for its provider.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// The same, and a node without provider ID is its own by this label.
    #[must_use]
    pub fn selects(mut self, label: &str, value: &str) -> Self {
        self.entry.node_selector.insert(label.to_owned(), value.to_owned());
        self
    }

    /// The same, with one more class.
    pub fn class(mut self, class: &str) -> Self {
        self.entry.load_balancer_classes.push(class.to_owned());
        self
    }
}

/// See the module.
pub struct World {
    /// A client of the API.
    pub client: Client,
    /// In the order of the manager's providers.
    pub clouds: Vec<Cloud>,
    /// Ends the manager.
    pub stop: CancellationToken,
    /// The manager.
    pub running: JoinSet<Result<Ending, ManagerError>>,
    /// The API.
    pub server: Arc<ApiServer>,
    /// The manager's metrics.
    pub registry: Registry,
    providers: watch::Sender<Providers>,
    settings: ControllerSettings,
    ledger: Ledger,
    fence: Option<Fence>,
    log: Log,
    faults: Arc<Mutex<Option<Arc<dyn Faults>>>>,
    seen: BTreeSet<String>,
}

/// Time passes. The clock is paused, so this takes none: every timer that is due on the way fires.
pub async fn pass(time: Duration) {
    assert!(timeout(time, pending::<()>()).await.is_err());
}

/// A second.
pub const S: Duration = Duration::from_secs(1);

impl World {
    /// One cloud, the default.
    pub fn new() -> Self {
        Self::with(vec![Cloud::new("fake").default_of_all()])
    }

    /// These clouds, and a manager that is not started.
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
            // Periodic provider calls would stand in every transcript: what is about them switches
            // them on.
            settings: ControllerSettings {
                configure_cloud_routes: false,
                orphan_scan_period: Duration::ZERO,
                // One thing after the other, so that a transcript has one order.
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

    /// A cluster without anything in it whose API takes what no schema would pass.
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

    /// Starts the manager; its writes are in the transcript from now on, ours are not.
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
            .fenced(self.fence.clone().unwrap_or_default());
        self.running.spawn(manager.run(self.stop.clone()));
    }

    fn publish(&self) {
        let entries = self.clouds.iter().map(|cloud| cloud.entry.clone()).collect();
        self.providers.send_replace(Providers::new(entries).unwrap());
    }

    /// An operator edits the providers while the manager runs.
    pub async fn edit(&mut self, edit: impl FnOnce(&mut Vec<Cloud>)) {
        edit(&mut self.clouds);
        self.publish();
        pass(S / 2).await;
    }

    /// Ends the manager and starts the next one of the same process with other claims.
    pub async fn restart(mut self, claims: impl FnOnce(&mut Vec<Cloud>)) -> Self {
        self.stop.cancel();
        self.running.join_next().await.unwrap().unwrap().unwrap();
        self.stop = CancellationToken::new();
        claims(&mut self.clouds);
        self.start().await
    }

    /// Another process starts: it remembers nothing.
    pub fn forget(&mut self) {
        self.ledger = Ledger::default();
    }

    /// From now on this judges each request of the manager; ours are never disturbed.
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

    /// Something that the controllers did not do.
    pub async fn we<T>(&self, doing: impl Future<Output = Result<T, kube::Error>>) -> T {
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

    /// A Service of type LoadBalancer with one port, and what the test adds.
    pub async fn add_service(&self, name: &str, spec: Value) {
        let mut whole = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let object = json!({ "metadata": { "name": name }, "spec": whole });
        self.we(self.services().create(&PostParams::default(), &serde_json::from_value(object).unwrap())).await;
    }

    /// Changes a Service by a merge patch.
    pub async fn patch_service(&self, name: &str, patch: Value) {
        self.we(self.services().patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    }

    /// Deletes a Service.
    pub async fn delete_service(&self, name: &str) {
        self.we(self.services().delete(name, &DeleteParams::default())).await;
    }

    /// An initialised node: its ID has the scheme of the first cloud.
    pub async fn add_node(&self, name: &str) {
        let scheme = &self.clouds[0].entry.name;
        self.add_raw_node(name, json!({ "providerID": format!("{scheme}://{name}") })).await;
    }

    /// As the kubelet makes it: with the taint.
    pub async fn add_new_node(&self, name: &str) {
        self.add_new_node_with(name, json!({})).await;
    }

    /// The same, with labels.
    pub async fn add_new_node_with(&self, name: &str, labels: Value) {
        let taint =
            json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" });
        let object = json!({ "metadata": { "name": name, "labels": labels }, "spec": { "taints": [taint] } });
        self.create_node(&object).await;
    }

    /// A Ready node with this spec.
    pub async fn add_raw_node(&self, name: &str, spec: Value) {
        self.create_node(&json!({ "metadata": { "name": name }, "spec": spec })).await;
    }

    async fn create_node(&self, object: &Value) {
        let node: Node = serde_json::from_value(object.clone()).unwrap();
        let node = self.we(self.nodes().create(&PostParams::default(), &node)).await;
        self.heartbeat(node.metadata.name.as_deref().unwrap(), "True").await;
    }

    /// What a kubelet writes; the message makes each one a change of the object.
    pub async fn heartbeat(&self, name: &str, ready: &str) {
        let beat = self.server.revision().to_string();
        let condition = json!({ "type": "Ready", "status": ready, "reason": "Kubelet", "message": beat });
        let patch = json!({ "status": { "conditions": [condition] } });
        self.we(self.nodes().patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    }

    /// Deletes a node.
    pub async fn delete_node(&self, name: &str) {
        self.we(self.nodes().delete(name, &DeleteParams::default())).await;
    }

    /// The node as it is now.
    pub async fn node(&self, name: &str) -> Option<Node> {
        self.we(self.nodes().get_opt(name)).await
    }

    /// First ingress IP, and the finalizers.
    pub async fn state(&self, name: &str) -> String {
        let Some(object) = self.we(self.services().get_opt(name)).await else { return "gone".to_owned() };
        let status = object.status.and_then(|status| status.load_balancer?.ingress);
        let ips: Vec<String> = status.into_iter().flatten().filter_map(|ingress| ingress.ip).collect();
        format!("{ips:?} {:?}", object.metadata.finalizers.unwrap_or_default())
    }

    /// Lets time pass and tells what the controllers did since the last time.
    pub async fn after(&mut self, time: Duration, expected: Expect) {
        pass(time).await;
        let text = self.transcript().await;
        expected.assert_eq(&text);
    }

    /// What the controllers did since the last time.
    pub async fn transcript(&mut self) -> String {
        let mut lines = std::mem::take(&mut *self.log.lock().unwrap());
        let api: Api<Event> = Api::all(self.client.clone());
        let mut events = self.we(api.list(&ListParams::default())).await.items;
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
