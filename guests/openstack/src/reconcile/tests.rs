//! One Service's life against an OpenStack in memory.

mod changes;
mod deletion;
mod left;
mod many_ports;
mod public_address;
mod refusals;
mod security;
mod sharing;

use serde_json::{Value, json};
use skysail_guest_sdk::{Error, NodeSet, Protocol, Result, Service, SessionAffinity, TrafficPolicy};

use super::Task;
use crate::{
    fixture::{CLUSTER, Fake, annotated, features, nodes, service, settings, web},
    settings::{Api, Settings},
};

const LB: Api = Api::LoadBalancer;

/// More calls than any Service needs until a change is done: one for each pool, and some more.
const CALLS_MAX: usize = 150;

struct World {
    cloud: Fake,
    settings: Settings,
}

impl World {
    fn new(config: &str) -> Self {
        Self { cloud: Fake::new(), settings: settings(config) }
    }

    /// The same cloud under other settings.
    fn with(self, config: &str) -> Self {
        Self { settings: settings(config), ..self }
    }

    fn of<'a>(&'a self, cluster: &'a str, service: &'a Service) -> Task<'a, Fake> {
        let features = features(&self.settings.load_balancer.provider);
        self.cloud.begin();
        Task { cloud: &self.cloud, settings: &self.settings, features, cluster, service }
    }

    fn task<'a>(&'a self, service: &'a Service) -> Task<'a, Fake> {
        self.of(CLUSTER, service)
    }

    /// Ensures as the host does, until there is an answer; the addresses of the status.
    fn ensure(&self, service: &Service, nodes: &NodeSet) -> Result<Vec<String>> {
        let done = again(|| self.task(service).ensure(nodes))?;
        Ok(done.value.ingress.into_iter().filter_map(|ingress| ingress.ip.or(ingress.hostname)).collect())
    }

    fn delete(&self, service: &Service) -> Result<()> {
        again(|| self.task(service).ensure_deleted())
    }

    fn update(&self, service: &Service, nodes: &NodeSet) -> Result<()> {
        again(|| self.task(service).update(nodes))
    }

    /// One field of each object of Octavia.
    fn column(&self, collection: &str, field: &str) -> Vec<Value> {
        self.cloud.column(LB, collection, field)
    }

    /// The number of objects that the Service may have made.
    fn count(&self) -> usize {
        let octavia = ["loadbalancers", "listeners", "pools", "members", "healthmonitors"];
        let neutron = ["floatingips", "security-groups", "security-group-rules"];
        octavia.iter().map(|collection| self.cloud.all(LB, collection).len()).sum::<usize>()
            + neutron.iter().map(|collection| self.cloud.all(Api::Network, collection).len()).sum::<usize>()
    }

    /// All objects of Octavia and Neutron without what a read changes.
    fn contents(&self) -> Value {
        let of = |api, collection: &str| {
            let mut all = self.cloud.all(api, collection);
            for object in &mut all {
                for volatile in [
                    "id",
                    "left",
                    "loadbalancer_id",
                    "listeners",
                    "pool",
                    "pool_id",
                    "port_id",
                    "vip_port_id",
                    "healthmonitor_id",
                    "floating_ip_address",
                    "security_group_id",
                    "security_groups",
                    "listener_id",
                    "security_group_rules",
                    "revision_number",
                ] {
                    object.as_object_mut().unwrap().remove(volatile);
                }
            }
            all.sort_by_key(ToString::to_string);
            all
        };
        json!({
            "loadbalancers": of(LB, "loadbalancers"), "listeners": of(LB, "listeners"), "pools": of(LB, "pools"),
            "members": of(LB, "members"), "healthmonitors": of(LB, "healthmonitors"),
            "floatingips": of(Api::Network, "floatingips"), "groups": of(Api::Network, "security-groups"),
            "rules": of(Api::Network, "security-group-rules"), "ports": of(Api::Network, "ports"),
        })
    }
}

/// Calls until the answer is not `retry-after`.
fn again<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..CALLS_MAX {
        match call() {
            Err(Error::RetryAfter(_)) => {}
            answer => return answer,
        }
    }
    panic!("still retry-after when called {CALLS_MAX} times");
}

/// A Service with everything: several ports and protocols, a monitor, source ranges, sessions.
fn everything() -> Service {
    Service {
        ports: service(&[(Protocol::Tcp, 80, 30_080), (Protocol::Udp, 53, 30_053)]).ports,
        source_ranges: vec!["192.0.2.0/24".to_owned(), "198.51.100.0/24".to_owned()],
        session_affinity: SessionAffinity::ClientIp(10_800),
        external_traffic_policy: TrafficPolicy::Local,
        health_check_node_port: 32_000,
        ..annotated(&[("enable-health-monitor", "true")])
    }
}

#[test]
fn a_service_gets_a_populated_load_balancer_and_a_floating_ip() {
    let world = World::new("");
    assert_eq!(world.ensure(&everything(), &nodes(3)).unwrap().len(), 1);
    assert_eq!(world.cloud.written(), ["POST loadbalancers", "POST floatingips"]);
    assert_eq!(world.column("loadbalancers", "name"), ["kube_service_prod_default_web"]);
    assert_eq!(world.column("loadbalancers", "vip_subnet_id"), ["subnet-nodes"]);
    assert_eq!(world.column("listeners", "protocol"), ["TCP", "UDP"]);
    assert_eq!(world.column("listeners", "allowed_cidrs")[0], json!(["192.0.2.0/24", "198.51.100.0/24"]));
    assert_eq!(world.column("pools", "session_persistence")[0], json!({"type": "SOURCE_IP"}));
    assert_eq!(world.column("healthmonitors", "type"), ["HTTP", "HTTP"]);
    let members = world.cloud.all(LB, "members");
    assert_eq!(members.len(), 6);
    assert_eq!((&members[0]["name"], &members[0]["address"]), (&json!("node-0"), &json!("10.6.0.10")));
    assert_eq!((&members[0]["subnet_id"], &members[0]["monitor_port"]), (&json!("subnet-nodes"), &json!(32_000)));
    let description = "Floating IP for Kubernetes external service default/web from cluster prod";
    assert_eq!(world.cloud.column(Api::Network, "floatingips", "description"), [description]);
}

#[test]
fn ensuring_and_updating_again_write_nothing() {
    for config in ["", "manage-security-groups = true\n", "provider-requires-serial-api-calls = true\n"] {
        let world = World::new(config);
        world.ensure(&everything(), &nodes(3)).unwrap();
        world.cloud.written();
        world.ensure(&everything(), &nodes(3)).unwrap();
        world.update(&everything(), &nodes(3)).unwrap();
        assert_eq!(world.cloud.written(), [""; 0], "{config}");
        assert!(world.task(&everything()).get().unwrap().is_some());
    }
}

#[test]
fn a_service_that_is_right_costs_few_requests() {
    let world = World::new("");
    world.ensure(&web(), &nodes(3)).unwrap();
    world.cloud.read();
    world.ensure(&web(), &nodes(3)).unwrap();
    // Load balancer, listeners, pools, members, floating IP, security group.
    assert_eq!(world.cloud.read(), 6);
    world.update(&web(), &nodes(3)).unwrap();
    assert_eq!(world.cloud.read(), 4);
}

/// One read for each call while the cloud is working.
#[test]
fn a_load_balancer_that_is_pending_is_waited_for_with_one_request_for_each_call() {
    let world = World::new("");
    world.cloud.pending_reads.set(5);
    let first = world.task(&web()).ensure(&nodes(1)).unwrap_err();
    assert!(matches!(&first, Error::RetryAfter(retry) if retry.after_ms == 3_000), "{first:?}");
    world.cloud.read();
    assert!(matches!(world.task(&web()).ensure(&nodes(1)), Err(Error::RetryAfter(_))));
    assert_eq!(world.cloud.read(), 1);
    world.ensure(&web(), &nodes(1)).unwrap();
}

#[test]
fn without_nodes_a_load_balancer_needs_a_subnet_and_its_pool_stays_empty() {
    let world = World::new("");
    let error = world.ensure(&web(), &nodes(0)).unwrap_err();
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("subnet-id")), "{error:?}");
    assert_eq!(world.count(), 0);
    let world = World::new("subnet-id = subnet-lb\n");
    world.ensure(&web(), &nodes(0)).unwrap();
    assert_eq!(world.cloud.all(LB, "members").len(), 0);
    world.update(&web(), &nodes(2)).unwrap();
    assert_eq!(world.cloud.all(LB, "members").len(), 2);
    world.update(&web(), &nodes(0)).unwrap();
    assert_eq!(world.cloud.all(LB, "members").len(), 0);
}

#[test]
fn update_of_a_load_balancer_that_does_not_exist_is_not_found() {
    let world = World::new("");
    assert!(matches!(world.update(&web(), &nodes(1)), Err(Error::NotFound(_))));
}

#[test]
fn an_absent_subnet_does_not_make_ensure_not_found() {
    let world = World::new("subnet-id = subnet-lb\nmember-subnet-id = absent\nmanage-security-groups = true\n");
    let answer = world.ensure(&web(), &nodes(1));
    assert!(matches!(&answer, Err(Error::Unavailable(text)) if text.contains("absent")), "{answer:?}");
}

#[test]
fn a_quota_is_exhausted_and_leaves_nothing() {
    let world = World::new("");
    world.cloud.full.set("loadbalancers");
    assert!(matches!(world.ensure(&web(), &nodes(1)), Err(Error::Exhausted(_))));
    assert_eq!(world.count(), 0);
}

#[test]
fn a_load_balancer_that_failed_before_it_served_is_created_again() {
    let world = World::new("");
    assert!(world.task(&web()).ensure(&nodes(1)).is_err());
    let fail = |lb: &mut Value| lb["provisioning_status"] = json!("ERROR");
    world.cloud.edit(LB, "loadbalancers", "lb-0001", fail);
    world.cloud.pending_reads.set(2);
    let error = world.task(&web()).ensure(&nodes(1)).unwrap_err();
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("ERROR")), "the user sees why: {error:?}");
    world.ensure(&web(), &nodes(1)).unwrap();
    let ids = world.column("loadbalancers", "id");
    assert!(ids.len() == 1 && ids[0] != "lb-0001", "{ids:?}");
    // The operator repairs a load balancer that has served: a new one would have another address.
    world.cloud.edit(LB, "loadbalancers", ids[0].as_str().unwrap(), fail);
    let serving = Service { status: skysail_guest_sdk::Ingress::ip("203.0.113.1").into(), ..web() };
    let error = world.ensure(&serving, &nodes(1)).unwrap_err();
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("failover")), "{error:?}");
    assert_eq!(world.column("loadbalancers", "id"), ids);
}

#[test]
fn a_load_balancer_that_failed_with_an_address_leaves_no_floating_ip() {
    for config in ["", "cascade-delete = false\n"] {
        let world = World::new(config);
        world.ensure(&web(), &nodes(1)).unwrap();
        world.cloud.edit(LB, "loadbalancers", "lb-0001", |lb| lb["provisioning_status"] = json!("ERROR"));
        assert!(matches!(world.ensure(&web(), &nodes(1)), Err(Error::Unavailable(_))), "{config}");
        world.ensure(&web(), &nodes(1)).unwrap();
        let port = world.column("loadbalancers", "vip_port_id");
        assert_eq!(world.cloud.column(Api::Network, "floatingips", "port_id"), port, "{config}");
    }
}

/// Every write may be the last one that the provider makes before it dies: what the next calls make
/// of it is the same as without a death.
#[test]
fn a_death_after_any_write_is_repaired_by_the_next_call() {
    for config in [
        "manage-security-groups = true\n",
        "manage-security-groups = true\nprovider-requires-serial-api-calls = true\n",
        "lb-provider = ovn\nlb-method = SOURCE_IP_PORT\nmanage-security-groups = true\n",
    ] {
        let whole = World::new(config);
        whole.ensure(&everything(), &nodes(2)).unwrap();
        let mut deaths = 0;
        for writes in 1.. {
            let world = World::new(config);
            world.cloud.crash_after(writes);
            let answer = world.ensure(&everything(), &nodes(2));
            if !world.cloud.revive() {
                break;
            }
            deaths += 1;
            assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
            world.ensure(&everything(), &nodes(2)).unwrap();
            assert_eq!(world.contents(), whole.contents(), "after {writes} writes");
            world.cloud.written();
            world.ensure(&everything(), &nodes(2)).unwrap();
            assert_eq!(world.cloud.written(), [""; 0], "after {writes} writes");
        }
        assert!(deaths >= 8, "{deaths} writes were made");
    }
}

#[test]
fn deleting_after_a_death_in_any_write_leaves_nothing() {
    let config = "manage-security-groups = true\nprovider-requires-serial-api-calls = true\n";
    for writes in 1.. {
        let world = World::new(config);
        world.cloud.crash_after(writes);
        drop(world.ensure(&everything(), &nodes(2)));
        if !world.cloud.revive() {
            break;
        }
        world.delete(&everything()).unwrap();
        assert_eq!(world.count(), 0, "after {writes} writes");
        assert_eq!(world.cloud.column(Api::Network, "ports", "security_groups")[0], json!(["default"]));
        world.delete(&everything()).unwrap();
    }
}
