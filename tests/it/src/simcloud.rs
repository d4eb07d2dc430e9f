//! Tests of the provider for the simulated cloud: a real component in the real host, with real
//! HTTP.
//!
//! Each test has its own cloud, and checks the cloud's resources and the requests that it received.

mod balancing;
mod deletions;
mod failures;
mod machines;
mod routing;
mod shadow;
mod volumes;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use skysail_dev::cloud::{Cluster, Knobs, SimCloud, SimOptions, SimServer};
use skysail_host::{
    CallRecorder, Engine, Limits, SandboxOptions, SandboxedProvider,
    credentials::{CredentialSpec, Credentials, SecretValues, ValueFrom},
    egress::{EgressPolicy, EgressRuleSpec, EgressSpec},
    http_client::{DeletionBudget, HttpClient},
};
use skysail_provider::{
    AddressKind, Call, Error, Instances, LoadBalancerInventory, LoadBalancerStatus, LoadBalancers, Node, NodeAddress,
    NodeSet, Protocol, Provider as _, Routes, Service, ServicePort,
};

use crate::{components::built, probes::Setup};

const CLUSTER: &str = "kubernetes";

/// A simulated cloud, and its provider in the sandbox.
struct World {
    cloud: SimCloud,
    provider: SandboxedProvider,
    sandbox: SandboxOptions,
    credentials: Arc<Credentials>,
    /// The origin of the cloud, to which the credential is sent.
    url: String,
    call: Call,
    deletions: Arc<DeletionBudget>,
    _server: SimServer,
    _engine: Engine,
}

impl World {
    async fn new() -> Self {
        Self::with("zone = zone-b\n").await
    }

    /// `global` has additional lines for the section `Global` of the cloud-config.
    async fn with(global: &str) -> Self {
        let clusters = vec![Cluster { name: CLUSTER.to_owned(), master: "https://10.0.0.1:6443".to_owned() }];
        let cloud = SimCloud::new(SimOptions { clusters, ..SimOptions::isolated() });
        let server = cloud.serve(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let rule = EgressRuleSpec { origins: vec![server.url.clone()], ..EgressRuleSpec::default() };
        let spec =
            EgressSpec { rules: vec![rule], allow_cidrs: vec!["127.0.0.1/32".to_owned()], ..EgressSpec::default() };
        let credentials = Arc::new(Self::credentials(&server.url, &server.token));
        let limits = Limits { http_requests_per_second: 10_000, ..Limits::default() };
        let policy = Arc::new(EgressPolicy::new(&spec).unwrap());
        let deletions = Arc::new(DeletionBudget::default());
        let client = HttpClient::new(policy, Arc::clone(&credentials), &limits.http()).unwrap();
        let client = Arc::new(client.with_deletions(Arc::clone(&deletions)));
        let config = format!("[Global]\nendpoint = {}\n{global}", server.url);
        let engine = Engine::on_demand().unwrap();
        let wasm = built("simcloud");
        let sandbox = SandboxOptions { name: "simcloud".to_owned(), limits, config, http: Some(client) };
        let SandboxOptions { name, limits, config, http } = sandbox.clone();
        let setup = Setup { name: &name, wasm: &wasm, limits, config: &config, http };
        let provider = setup.serve(&engine, &CallRecorder::default()).await;
        let url = server.url.clone();
        let call = Call::default();
        Self { cloud, provider, sandbox, credentials, url, call, deletions, _server: server, _engine: engine }
    }

    /// Credentials with `api` as bearer, whose value comes from `SIM_TOKEN`.
    fn credentials(url: &str, token: &str) -> Credentials {
        let bearer = Some(ValueFrom::Env("SIM_TOKEN".to_owned()));
        let api = CredentialSpec { origins: vec![url.to_owned()], bearer, ..CredentialSpec::default() };
        let environment = |_: &str| Some(token.to_owned());
        Credentials::load(&BTreeMap::from([("api".to_owned(), api)]), &environment, &SecretValues::new()).unwrap()
    }

    /// Replaces the token, as an operator does.
    fn use_token(&self, token: &str) {
        let rotation = self.credentials.rotation_to(&Self::credentials(&self.url, token)).unwrap();
        assert_eq!(self.credentials.exchange(rotation), ["api"]);
    }

    fn turn(&self, knobs: Knobs) {
        self.cloud.set_knobs(knobs).unwrap();
    }

    /// Creates machines with these names and their nodes, each with an HTTP server on both node
    /// ports of [`service`].
    async fn nodes(&self, names: &[&str]) -> NodeSet {
        let mut nodes = Vec::new();
        for name in names {
            let machine = self.cloud.add_instance(name, "zone-a").unwrap();
            for port in [NODE_PORT, NODE_PORT + 1] {
                self.cloud.serve_backend(&machine.id, port).await.unwrap();
            }
            let address = NodeAddress { kind: AddressKind::InternalIp, address: machine.private_address.to_string() };
            nodes.push(Arc::new(Node { addresses: vec![address], ..node(name, Some(&machine.id)) }));
        }
        NodeSet::new(nodes)
    }

    fn balancers(&self) -> &dyn LoadBalancers {
        self.provider.load_balancers().unwrap()
    }

    fn inventory(&self) -> &dyn LoadBalancerInventory {
        self.provider.load_balancer_inventory().unwrap()
    }

    fn instances(&self) -> &dyn Instances {
        self.provider.instances().unwrap()
    }

    fn routes(&self) -> &dyn Routes {
        self.provider.routes().unwrap()
    }

    async fn ensure(&self, service: &Service, nodes: &NodeSet) -> Result<LoadBalancerStatus, Error> {
        self.balancers().ensure(&self.call, CLUSTER, service, nodes).await
    }

    async fn ensure_deleted(&self, service: &Service) -> Result<(), Error> {
        self.balancers().ensure_deleted(&self.call, CLUSTER, service).await
    }

    /// Method and path, without the query, of each request since the last call.
    fn requests(&self) -> Vec<String> {
        let records = self.cloud.requests();
        self.cloud.clear_requests();
        let line = |path: &str| path.split('?').next().unwrap_or_default().to_owned();
        records.iter().map(|record| format!("{} {}", record.method, line(&record.path))).collect()
    }

    /// The [`Self::requests`] that can change something.
    fn writes(&self) -> Vec<String> {
        self.requests().into_iter().filter(|line| !line.starts_with("GET ")).collect()
    }
}

/// Ports of [`service`]: not privileged, so that the tests need no privileges.
const PORT: u16 = 18_080;
const NODE_PORT: u16 = 30_080;

/// A Service with two TCP ports.
fn service(uid: &str) -> Service {
    let port = |n: u16| ServicePort {
        name: format!("port-{n}"),
        protocol: Protocol::Tcp,
        app_protocol: None,
        port: PORT + n,
        node_port: NODE_PORT + n,
        target_port: "8080".to_owned(),
    };
    Service { ports: vec![port(0), port(1)], ..Service::new("default", "web", uid) }
}

fn node(name: &str, machine: Option<&str>) -> Node {
    let provider_id = machine.map(|id| format!("simcloud://{id}"));
    Node { name: name.to_owned(), provider_id, ..Node::default() }
}

fn set(nodes: Vec<Node>) -> NodeSet {
    NodeSet::new(nodes.into_iter().map(Arc::new))
}
