//! Common code of the tests: a project of Hetzner Cloud in memory behind the client, nodes and a
//! Service.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    time::Duration,
};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use skysail_guest_sdk::{
    AddressKind, Error, LoadBalancerStatus, Node, NodeAddress, NodeSet, Protocol, Result, Service, ServicePort,
    http::{Api, Response},
};

use crate::{
    balancers::{Done, Task},
    hcloud::{Call, Hcloud, Host},
    owner::Owner,
    refusal::{self, Refusal},
    settings::{self, Settings},
};

// The validating proxy and the vendor's SDK judge the same code in the conformance tests.
#[path = "../../../tests/conformance/providers/src/hetzner_cloud/project.rs"]
mod project;

use project::{Answer, Project};

/// More calls than any test needs until the actions of a Service have ended.
const CALLS_MAX: usize = 60;

/// A project with a network `kube` (10.0.0.0/16) and servers, all of them in the network, and the
/// host's cache.
pub(crate) struct Fake {
    pub(crate) project: RefCell<Project>,
    cache: RefCell<HashMap<String, u64>>,
    /// Writes whose response arrives; after the next write, nothing arrives any more.
    pub(crate) writes_left: Cell<Option<usize>>,
    answers: RefCell<Vec<Prepared>>,
    pub(crate) network: u64,
    pub(crate) servers: Vec<u64>,
}

/// Method and path of a request, and the status and the body that answer it once.
type Prepared = (&'static str, String, u16, String);

impl Fake {
    /// Gives the next such request this status and this body: the API or a gateway answers.
    pub(crate) fn answer_once(&self, method: &'static str, path: &str, status: u16, body: &str) {
        self.answers.borrow_mut().push((method, path.to_owned(), status, body.to_owned()));
    }
}

impl Host for Fake {
    fn send<T: DeserializeOwned>(&self, call: Call) -> Result<T, Refusal> {
        let lost = || Refusal::from(Error::Unavailable("the answer was cut off".to_owned()));
        let is_write = call.method != "GET";
        let arrives = match self.writes_left.get() {
            Some(usize::MAX) => return Err(lost()),
            Some(0) if is_write => {
                self.writes_left.set(Some(usize::MAX));
                false
            }
            Some(left) => {
                self.writes_left.set(Some(left - usize::from(is_write)));
                true
            }
            None => true,
        };
        let path = format!("/{}", call.path.join("/"));
        let request = call.request(&Api::new("https://api.hetzner.cloud/v1"));
        let line = format!("{} {}", call.method, request.url());
        let is_prepared = |(method, of, _, _): &Prepared| *method == call.method && *of == path;
        let at = self.answers.borrow().iter().position(is_prepared);
        if let Some((_, _, status, body)) = at.map(|at| self.answers.borrow_mut().remove(at)) {
            let media_type = if body.starts_with('<') { "text/html" } else { "application/json" };
            return refusal::read(Response::new(&line, status, &[("content-type", media_type)], body));
        }
        let query: Vec<_> = call.query.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let body = call.body.unwrap_or_default();
        let Answer { status, body } = self.project.borrow_mut().handle(call.method, &path, &query, &body);
        if !arrives {
            return Err(lost());
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        refusal::read(Response::new(&line, status, &[], body))
    }

    fn recall(&self, key: &str) -> Option<u64> {
        self.cache.borrow().get(key).copied()
    }

    fn keep(&self, key: &str, id: u64, _ttl: Duration) {
        self.cache.borrow_mut().insert(key.to_owned(), id);
    }

    fn forget(&self, key: &str) {
        self.cache.borrow_mut().remove(key);
    }
}

/// The client, the cloud-config and the Service of a test.
pub(crate) struct Scene {
    pub(crate) cloud: Hcloud<Fake>,
    pub(crate) settings: Settings,
    pub(crate) service: Service,
}

impl Scene {
    /// A scene with three servers `node-0`, `node-1` and `node-2`, and this cloud-config beside
    /// `load-balancers-location = fsn1`.
    pub(crate) fn new(config: &str) -> Self {
        let mut project = Project::default();
        project.action_requests = 0;
        let mut create = |collection: &str, body: Value| {
            let Answer { status, body } = project.handle("POST", &format!("/{collection}"), &[], &body);
            assert_eq!(status, 201, "{body}");
            body[collection.trim_end_matches('s')]["id"].as_u64().unwrap()
        };
        let subnet = |range: &str| json!({"type": "cloud", "ip_range": range, "network_zone": "eu-central"});
        let subnets = [subnet("10.0.1.0/24"), subnet("10.0.2.0/24")];
        let network = create("networks", json!({"name": "kube", "ip_range": "10.0.0.0/16", "subnets": subnets}));
        let server = |n: usize| json!({"name": format!("node-{n}"), "server_type": "cpx11", "networks": [network]});
        let servers = (0..3).map(|n| create("servers", server(n))).collect();
        project.action_requests = 1;
        project.requests.clear();
        let fake = Fake {
            project: RefCell::new(project),
            cache: RefCell::default(),
            writes_left: Cell::new(None),
            answers: RefCell::default(),
            network,
            servers,
        };
        let config = format!("load-balancers-location = fsn1\n{config}");
        let config = if config.contains("network-zone") {
            config.replacen("load-balancers-location = fsn1", "", 1)
        } else {
            config
        };
        Self { cloud: Hcloud { host: fake }, settings: settings::parse(&config).config().unwrap(), service: service() }
    }

    /// Sets an annotation of the vendor's prefix.
    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        let key = format!("{}{key}", crate::plan::PREFIX);
        self.service.annotations.retain(|(name, _)| *name != key);
        self.service.annotations.push((key, value.to_owned()));
    }

    pub(crate) fn fake(&self) -> &Fake {
        &self.cloud.host
    }

    /// The task of cluster `prod`.
    pub(crate) fn task(&self) -> Task<'_, Fake> {
        self.task_of("prod", &self.service)
    }

    pub(crate) fn task_of<'a>(&'a self, cluster: &str, service: &'a Service) -> Task<'a, Fake> {
        let owner = Owner::new(cluster, service).unwrap();
        Task { cloud: &self.cloud, settings: &self.settings, owner, service }
    }

    /// Nodes for the first `count` servers.
    pub(crate) fn nodes(&self, count: usize) -> NodeSet {
        let node = |(n, id): (usize, &u64)| Node {
            provider_id: Some(format!("hcloud://{id}")),
            addresses: vec![NodeAddress::new(AddressKind::InternalIp, format!("10.0.1.{}", n + 2))],
            labels: vec![("pool".to_owned(), if n == 0 { "edge" } else { "core" }.to_owned())],
            ..Node::new(&format!("node-{n}"))
        };
        NodeSet::of(self.fake().servers.iter().take(count).enumerate().map(node).collect())
    }

    /// Repeats `ensure` while actions run, as the host does.
    pub(crate) fn ensure(&self, nodes: usize) -> Result<Done<LoadBalancerStatus>> {
        settled(|| self.task().ensure(&self.nodes(nodes)))
    }

    /// Repeats `ensure-deleted` while actions run.
    pub(crate) fn delete(&self) -> Result<Done<()>> {
        settled(|| self.task().ensure_deleted())
    }

    /// The only load balancer of the project.
    pub(crate) fn balancer(&self) -> Value {
        let all = self.all("load_balancers");
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }

    pub(crate) fn all(&self, collection: &str) -> Vec<Value> {
        self.fake().project.borrow().all(collection).into_iter().cloned().collect()
    }

    /// The last parts of the writes since the last call of this function: `add_service`, …; for
    /// other writes the method.
    pub(crate) fn written(&self) -> Vec<String> {
        let writes = std::mem::take(&mut self.fake().project.borrow_mut().requests);
        let last = |write: String| match write.rsplit_once("/actions/") {
            Some((_, verb)) => verb.to_owned(),
            None => write.split(' ').next().unwrap_or_default().to_owned(),
        };
        writes.into_iter().filter(|request| !request.starts_with("GET ")).map(last).collect()
    }

    /// Sends a request of a user, and waits for its action.
    pub(crate) fn by_user(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut project = self.fake().project.borrow_mut();
        let Answer { status, body } = project.handle(method, path, &[], body);
        assert!(status < 300, "{body}");
        project.handle("GET", "/locations", &[], &Value::Null);
        project.requests.clear();
        body
    }
}

/// Repeats a call while it asks for that.
pub(crate) fn settled<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..CALLS_MAX {
        match call() {
            Err(Error::RetryAfter(_)) => {}
            ended => return ended,
        }
    }
    panic!("the cloud's actions have not ended after {CALLS_MAX} calls");
}

/// A Service `default/web` with the port 80 and the node port 30080.
fn service() -> Service {
    Service { ports: vec![port(80, 30_080)], ..Service::new("default", "web", "0a1b2c3d-4e5f-6789-abcd-ef0123456789") }
}

/// A TCP port with this node port.
pub(crate) fn port(port: u16, node_port: u16) -> ServicePort {
    ServicePort::new(Protocol::Tcp, port, node_port)
}

/// The addresses and names of a status.
pub(crate) fn shown(status: &LoadBalancerStatus) -> Vec<&str> {
    status.ingress.iter().filter_map(|ingress| ingress.ip.as_deref().or(ingress.hostname.as_deref())).collect()
}
