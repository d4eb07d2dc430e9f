//! Common code of the tests: a Service, nodes, and an OpenStack in memory with the observed rules
//! of the 2026.2 release: Octavia 19 with the drivers amphora and ovn, Neutron 29, Nova 34.

mod octavia;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::Duration,
};

use serde_json::{Value, json};
use skysail_guest_sdk::{
    AddressKind, Error, Node, NodeAddress, NodeSet, Protocol, Result, Service, ServicePort,
    http::{self, Response},
};

use crate::{
    client::{Call, Cloud},
    features::Features,
    meaning::meaning,
    settings::{self, Api, Settings},
};

/// The cloud-config of most tests.
pub(crate) const CONFIG: &str = "[Global]\nauth-url = http://keystone\nregion = RegionOne\n[LoadBalancer]\n";

pub(crate) const CLUSTER: &str = "prod";

/// The floating network of [`Fake::new`].
pub(crate) const PUBLIC: &str = "net-public";

/// The subnet of the nodes of [`nodes`].
pub(crate) const NODES_SUBNET: &str = "subnet-nodes";

pub(crate) fn settings(more: &str) -> Settings {
    settings::parse(&format!("{CONFIG}{more}")).config().unwrap()
}

/// The features of the newest Octavia with this driver.
pub(crate) fn features(driver: &str) -> Features {
    Features::of("v2.27".parse().unwrap(), driver).unwrap()
}

/// A Service `default/web` with these ports: protocol, port, node port.
pub(crate) fn service(ports: &[(Protocol, u16, u16)]) -> Service {
    let port = |&(protocol, port, node_port): &(Protocol, u16, u16)| ServicePort::new(protocol, port, node_port);
    Service {
        ports: ports.iter().map(port).collect(),
        ..Service::new("default", "web", "0a1b2c3d-4e5f-6789-abcd-ef0123456789")
    }
}

/// A Service with one port.
pub(crate) fn web() -> Service {
    service(&[(Protocol::Tcp, 80, 30_080)])
}

/// The same with annotations.
pub(crate) fn annotated(annotations: &[(&str, &str)]) -> Service {
    let annotations = annotations.iter().map(|(key, value)| {
        let prefix = if key.contains('/') { "" } else { crate::plan::ANNOTATIONS };
        (format!("{prefix}{key}"), (*value).to_owned())
    });
    Service { annotations: annotations.collect(), ..web() }
}

/// Nodes `node-0` … with the servers and ports of [`Fake::new`].
pub(crate) fn nodes(count: usize) -> NodeSet {
    let node = |n| Node {
        provider_id: Some(format!("openstack:///server-{n}")),
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, address_of(n))],
        labels: vec![("pool".to_owned(), if n % 2 == 0 { "even" } else { "odd" }.to_owned())],
        ..Node::new(&format!("node-{n}"))
    };
    NodeSet::of((0..count).map(node).collect())
}

/// Address of server and node N.
fn address_of(n: usize) -> String {
    format!("10.6.{}.{}", n / 200, n % 200 + 10)
}

type Objects = BTreeMap<(Api, String), Vec<Value>>;

/// An OpenStack in memory.
pub(crate) struct Fake {
    objects: RefCell<Objects>,
    ids: Cell<u32>,
    /// Method and path of every write that the cloud carried out.
    writes: RefCell<Vec<String>>,
    reads: Cell<usize>,
    /// The number of writes after which the provider dies: the last one is carried out, and its
    /// response is lost.
    crash_after: Cell<Option<usize>>,
    dead: Cell<bool>,
    /// How often a load balancer is read until a change is done.
    pub(crate) pending_reads: Cell<u32>,
    /// A collection that has no room left.
    pub(crate) full: Cell<&'static str>,
    /// Entries of one page.
    pub(crate) page: Cell<usize>,
    /// A collection whose lists do not show the new objects yet.
    pub(crate) lagging: Cell<&'static str>,
    /// A collection whose writes a gateway answers with an empty object.
    pub(crate) swallowed: Cell<&'static str>,
    /// A collection whose lists a gateway answers with `not-found`.
    pub(crate) unrouted: Cell<&'static str>,
    /// Requests of one call, and the host's limit.
    sent: Cell<usize>,
    pub(crate) sent_max: Cell<usize>,
    /// IDs by name.
    remembered: RefCell<BTreeMap<String, String>>,
    answers: RefCell<Vec<Prepared>>,
}

/// Method and path of a call, and the response that answers it once.
struct Prepared {
    method: &'static str,
    path: String,
    status: u16,
    media_type: &'static str,
    body: String,
}

impl Fake {
    /// Gives the next such call this status and this body: the service or a gateway answers.
    pub(crate) fn answer_once(&self, method: &'static str, path: &str, status: u16, body: &str) {
        let media_type = if body.starts_with('<') { "text/html" } else { "application/json" };
        let (path, body) = (path.to_owned(), body.to_owned());
        self.answers.borrow_mut().push(Prepared { method, path, status, media_type, body });
    }

    fn prepared(&self, call: &Call) -> Option<Result<Vec<u8>>> {
        let is_for = |one: &Prepared| one.method == call.method && one.path == call.path.join("/");
        let at = self.answers.borrow().iter().position(is_for)?;
        let Prepared { status, media_type, body, .. } = self.answers.borrow_mut().remove(at);
        let url = match call.api {
            Api::Compute => "https://nova/v2.1",
            Api::Network => "https://neutron/v2.0",
            Api::LoadBalancer => "https://octavia/v2.0/lbaas",
            Api::KeyManager => "https://barbican/v1",
        };
        let line = format!("{} {}", call.method, call.request(&http::Api::new(url)).url());
        let response = Response::new(&line, status, &[("content-type", media_type)], body);
        Some(meaning(&response).map_or_else(|| Ok(response.body), Err))
    }

    /// Three servers with a port each in a subnet, a router, and a public network.
    pub(crate) fn new() -> Self {
        let fake = Self {
            objects: RefCell::default(),
            ids: Cell::new(0),
            writes: RefCell::default(),
            reads: Cell::new(0),
            crash_after: Cell::new(None),
            dead: Cell::new(false),
            pending_reads: Cell::new(0),
            full: Cell::new(""),
            page: Cell::new(usize::MAX),
            lagging: Cell::new(""),
            swallowed: Cell::new(""),
            unrouted: Cell::new(""),
            sent: Cell::new(0),
            sent_max: Cell::new(64),
            remembered: RefCell::default(),
            answers: RefCell::default(),
        };
        for n in 0..3 {
            fake.add_server(n);
        }
        fake.put(
            Api::Network,
            "networks",
            json!({"id": PUBLIC, "name": "public", "router:external": true,
            "subnets": ["subnet-public", "subnet-public-2"]}),
        );
        for (id, name, tag) in [("subnet-public", "public-1", "a"), ("subnet-public-2", "public-2", "b")] {
            let subnet = json!({"id": id, "name": name, "network_id": PUBLIC, "cidr": "203.0.113.0/24", "tags": [tag]});
            fake.put(Api::Network, "subnets", subnet);
        }
        let subnet = json!({"id": NODES_SUBNET, "name": "nodes", "network_id": "net-nodes", "cidr": "10.6.0.0/24"});
        fake.put(Api::Network, "subnets", subnet);
        fake.put(Api::Network, "routers", json!({"id": "router", "routes": [], "revision_number": 1}));
        let port = json!({"id": "port-router", "device_id": "router", "network_id": "net-nodes", "fixed_ips": []});
        fake.put(Api::Network, "ports", port);
        fake
    }

    /// Server `node-N` with its port.
    pub(crate) fn add_server(&self, n: usize) {
        let address = address_of(n);
        let server = json!({
            "id": format!("server-{n}"), "name": format!("node-{n}"), "status": "ACTIVE", "tenant_id": "project",
            "flavor": {"original_name": "m1.large"}, "OS-EXT-AZ:availability_zone": "nova", "accessIPv4": "",
            "metadata": {}, "addresses": {"k8s": [{"addr": address, "OS-EXT-IPS:type": "fixed"}]},
        });
        self.put(Api::Compute, "servers", server);
        let port = json!({
            "id": format!("port-{n}"), "device_id": format!("server-{n}"), "project_id": "project",
            "network_id": "net-nodes", "status": "ACTIVE", "security_groups": ["default"],
            "fixed_ips": [{"subnet_id": NODES_SUBNET, "ip_address": address}],
            "allowed_address_pairs": [], "port_security_enabled": true, "revision_number": 1,
        });
        self.put(Api::Network, "ports", port);
    }

    /// Puts an object into a collection.
    pub(crate) fn put(&self, api: Api, collection: &str, object: Value) {
        self.objects.borrow_mut().entry((api, collection.to_owned())).or_default().push(object);
    }

    /// All objects of a collection.
    pub(crate) fn all(&self, api: Api, collection: &str) -> Vec<Value> {
        self.objects.borrow().get(&(api, collection.to_owned())).cloned().unwrap_or_default()
    }

    /// One field of all objects of a collection.
    pub(crate) fn column(&self, api: Api, collection: &str, field: &str) -> Vec<Value> {
        self.all(api, collection).into_iter().map(|object| object[field].clone()).collect()
    }

    /// Changes an object.
    pub(crate) fn edit(&self, api: Api, collection: &str, id: &str, change: impl FnOnce(&mut Value)) {
        let mut objects = self.objects.borrow_mut();
        let all = objects.entry((api, collection.to_owned())).or_default();
        change(all.iter_mut().find(|object| object["id"] == id).expect("the object is there"));
    }

    pub(crate) fn remove(&self, api: Api, collection: &str, is: impl Fn(&Value) -> bool) -> usize {
        let mut objects = self.objects.borrow_mut();
        let all = objects.entry((api, collection.to_owned())).or_default();
        let before = all.len();
        all.retain(|object| !is(object));
        before - all.len()
    }

    /// The writes since the last call of this function.
    pub(crate) fn written(&self) -> Vec<String> {
        self.writes.take()
    }

    /// The requests since the last call of this function that changed nothing.
    pub(crate) fn read(&self) -> usize {
        self.reads.take()
    }

    /// Lets the provider die after this many writes.
    pub(crate) fn crash_after(&self, writes: usize) {
        self.crash_after.set(Some(writes));
    }

    /// Whether the provider died; it lives again.
    pub(crate) fn revive(&self) -> bool {
        self.crash_after.set(None);
        self.dead.replace(false)
    }

    /// The time passes after which nothing is remembered.
    pub(crate) fn pass_a_minute(&self) {
        self.remembered.take();
    }

    /// Begins the next call.
    pub(crate) fn begin(&self) {
        self.sent.set(0);
    }

    fn new_id(&self, kind: &str) -> String {
        self.ids.set(self.ids.get() + 1);
        format!("{kind}-{:04}", self.ids.get())
    }

    fn answer(&self, call: &Call) -> Result<Value> {
        if self.dead.get() {
            return Err(Error::Unavailable("the provider is dead".to_owned()));
        }
        self.sent.set(self.sent.get() + 1);
        if self.sent.get() > self.sent_max.get() {
            return Err(Error::Unavailable("a limit of the sandbox was met".to_owned()));
        }
        if call.method == "GET" {
            self.reads.set(self.reads.get() + 1);
            if call.path == [self.unrouted.get()] {
                return Err(Error::NotFound("no Route matched with those values".to_owned()));
            }
            return self.carry_out(call);
        }
        if call.path.first().is_some_and(|collection| collection == self.swallowed.get()) {
            return Ok(json!({}));
        }
        let answer = self.carry_out(call)?;
        self.writes.borrow_mut().push(format!("{} {}", call.method, call.path.join("/")));
        if let Some(left) = self.crash_after.get() {
            self.crash_after.set(Some(left.saturating_sub(1)));
            if left <= 1 {
                self.dead.set(true);
                return Err(Error::Unavailable("the response was lost".to_owned()));
            }
        }
        Ok(answer)
    }

    fn carry_out(&self, call: &Call) -> Result<Value> {
        let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
        match (call.api, call.method, path.as_slice()) {
            (Api::LoadBalancer, ..) => self.octavia(call, &path),
            (Api::Compute, "GET", ["servers", "detail"]) => Ok(self.list(call, "servers")),
            (Api::Network, "PUT", ["routers", id, action]) => self.change_routes(call, id, action),
            (_, "GET", [collection]) => Ok(self.list(call, collection)),
            (_, "GET", [collection, id]) => self.get(call.api, collection, id),
            (Api::Network, "POST", [collection]) => self.create(call, collection),
            (Api::Network, "PUT", [collection, id]) => self.update(call, collection, id),
            (Api::Network, "DELETE", [collection, id]) => self.delete(collection, id),
            _ => panic!("the fake has no {} {path:?}", call.method),
        }
    }

    fn get(&self, api: Api, collection: &str, id: &str) -> Result<Value> {
        let found = self.all(api, collection).into_iter().find(|object| object["id"] == id);
        let found = found.ok_or_else(|| Error::NotFound(format!("{collection} {id} could not be found")))?;
        Ok(json!({singular(collection): found}))
    }

    /// A page of the entries that match the query.
    fn list(&self, call: &Call, collection: &str) -> Value {
        let mut all: Vec<Value> =
            self.all(call.api, collection).into_iter().filter(|object| is_asked_for(call, object)).collect();
        if self.lagging.get() == collection {
            all.clear();
        }
        all.sort_by_key(|object| object["id"].to_string());
        let marker = call.query.iter().find(|(key, _)| *key == "marker").map(|(_, marker)| marker.as_str());
        let begin = marker.map_or(0, |marker| 1 + all.iter().position(|object| object["id"] == marker).unwrap());
        let page: Vec<Value> = all.iter().skip(begin).take(self.page.get()).cloned().collect();
        let more = begin + page.len() < all.len();
        let key = collection.replace('-', "_");
        let mut answer = json!({key.clone(): page});
        if more {
            answer[format!("{key}_links")] = json!([{"rel": "next", "href": "https://elsewhere.example.com/"}]);
        }
        answer
    }

    fn create(&self, call: &Call, collection: &str) -> Result<Value> {
        let key = singular(collection);
        let mut object = call.body.as_ref().expect("a POST has a body")[&key].clone();
        if self.full.get() == collection {
            return Err(Error::Exhausted(format!("Quota exceeded for resources: ['{key}']")));
        }
        object["id"] = json!(self.new_id(&key));
        match collection {
            "floatingips" => {
                if object["floating_ip_address"].is_null() {
                    object["floating_ip_address"] = json!(format!("203.0.113.{}", 100 + self.ids.get() % 100));
                }
                if self.full.get() == object["subnet_id"].as_str().unwrap_or("none") {
                    return Err(Error::Exhausted("No more IP addresses available on network".to_owned()));
                }
            }
            "security-groups" => object["security_group_rules"] = json!([]),
            "security-group-rules" => {
                let group = object["security_group_id"].as_str().unwrap().to_owned();
                let rule = object.clone();
                self.edit(Api::Network, "security-groups", &group, |group| {
                    group["security_group_rules"].as_array_mut().unwrap().push(rule);
                });
            }
            _ => {}
        }
        self.put(Api::Network, collection, object.clone());
        Ok(json!({key: object}))
    }

    fn update(&self, call: &Call, collection: &str, id: &str) -> Result<Value> {
        let key = singular(collection);
        let Value::Object(found) = self.get(Api::Network, collection, id)? else { unreachable!() };
        let present = found[&key]["revision_number"].as_u64();
        if call.revision.is_some() && call.revision != present {
            return Err(Error::retry_after(Duration::from_secs(1), "RevisionNumberConstraintFailed"));
        }
        let changes = call.body.as_ref().expect("a PUT has a body")[&key].clone();
        self.edit(Api::Network, collection, id, |object| {
            merge(object, &changes);
            if let Some(revision) = present {
                object["revision_number"] = json!(revision + 1);
            }
        });
        self.get(Api::Network, collection, id)
    }

    fn delete(&self, collection: &str, id: &str) -> Result<Value> {
        self.get(Api::Network, collection, id)?;
        if collection == "security-groups" {
            let used = |port: &Value| port["security_groups"].as_array().is_some_and(|all| all.contains(&json!(id)));
            if self.all(Api::Network, "ports").iter().any(used) {
                return Err(Error::retry_after(Duration::from_secs(1), "SecurityGroupInUse"));
            }
        }
        if collection == "security-group-rules" {
            let mut objects = self.objects.borrow_mut();
            for group in objects.entry((Api::Network, "security-groups".to_owned())).or_default() {
                group["security_group_rules"].as_array_mut().unwrap().retain(|rule| rule["id"] != id);
            }
        }
        self.remove(Api::Network, "security-group-rules", |rule| rule["security_group_id"] == id);
        self.remove(Api::Network, collection, |object| object["id"] == id);
        Ok(Value::Null)
    }

    fn change_routes(&self, call: &Call, id: &str, action: &str) -> Result<Value> {
        let routes = call.body.as_ref().unwrap()["router"]["routes"].as_array().unwrap().clone();
        if routes.iter().any(|route| !route["nexthop"].as_str().unwrap().starts_with("10.6.0.")) {
            return Err(Error::Invalid("InvalidRoutes: the nexthop is not connected with router".to_owned()));
        }
        self.edit(Api::Network, "routers", id, |router| {
            let present = router["routes"].as_array_mut().unwrap();
            present.retain(|route| !routes.contains(route));
            if action == "add_extraroutes" {
                present.extend(routes);
            }
        });
        self.get(Api::Network, "routers", id)
    }
}

impl Cloud for Fake {
    fn sent(&self) -> usize {
        self.sent.get()
    }

    fn remember(&self, name: &str, text: &str, _time: Duration) {
        self.remembered.borrow_mut().insert(name.to_owned(), text.to_owned());
    }

    fn remembered(&self, name: &str) -> Option<String> {
        self.remembered.borrow().get(name).cloned()
    }

    fn forget(&self, name: &str) {
        self.remembered.borrow_mut().remove(name);
    }

    fn send_all(&self, calls: Vec<Call>) -> Vec<Result<Vec<u8>>> {
        let bytes = |answer: Value| serde_json::to_vec(&answer).unwrap();
        let answer = |call: &Call| self.prepared(call).unwrap_or_else(|| self.answer(call).map(bytes));
        calls.iter().map(answer).collect()
    }
}

fn singular(collection: &str) -> String {
    collection.strip_suffix('s').unwrap_or(collection).replace('-', "_")
}

fn merge(object: &mut Value, changes: &Value) {
    for (key, value) in changes.as_object().expect("changes are an object") {
        object[key] = value.clone();
    }
}

/// Whether a name matches a pattern of characters and of classes of characters, `^a[.][bB]$`, as in
/// a database that distinguishes upper and lower case.
fn is_matched(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.trim_matches(['^', '$']), name.chars());
    while let Some(first) = pattern.chars().next() {
        let class = pattern.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (class, rest) = class.unwrap_or_else(|| pattern.split_at(first.len_utf8()));
        if !name.next().is_some_and(|c| class.contains(c)) {
            return false;
        }
        pattern = rest;
    }
    name.next().is_none()
}

/// Whether an object matches every parameter of a query; a repeated parameter asks for one of its
/// values.
fn is_asked_for(call: &Call, object: &Value) -> bool {
    let keys = call.query.iter().map(|(key, _)| *key);
    keys.filter(|key| !["fields", "limit", "marker"].contains(key)).all(|key| {
        let values = || call.query.iter().filter(|(other, _)| *other == key).map(|(_, value)| value.as_str());
        let contains = |list: &Value, value: &str| list.as_array().is_some_and(|list| list.contains(&json!(value)));
        match key {
            "tags" | "tags-any" => values().any(|tags| tags.split(',').any(|tag| contains(&object["tags"], tag))),
            "security_groups" => values().any(|group| contains(&object[key], group)),
            "fixed_ips" => values().any(|wanted| {
                let (field, value) = wanted.split_once('=').unwrap();
                object[key].as_array().is_some_and(|all| all.iter().any(|fixed| fixed[field] == value))
            }),
            "name" if call.api == Api::Compute => {
                values().any(|pattern| is_matched(pattern, object[key].as_str().unwrap()))
            }
            "router:external" => object[key] == true,
            _ => values().any(|value| object[key] == value),
        }
    })
}
