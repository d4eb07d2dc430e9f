//! Checks after the last fault: the objects of the API and the clouds have to match.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use skysail_controllers::{
    RetainedLoadBalancer,
    names::{
        LOAD_BALANCER_FINALIZER, LOAD_BALANCER_PROVIDER_ANNOTATION, SHUTDOWN_TAINT, UNINITIALIZED_TAINT,
        reasons::ORPHANED_LOAD_BALANCER,
    },
};
use skysail_provider::Protocol;

use crate::{
    cloud::{Balancer, Cloud, CloudState, Port},
    operations::{ADOPTED_MARK, OTHERS_FINALIZER, OTHERS_MARK, OTHERS_TAINT},
    referee::text,
    replica::{BY_HAND_MARK, CLASS, Site},
};

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The current state of a cloud.
struct Seen {
    name: &'static str,
    provider: String,
    has_routes: bool,
    state: CloudState,
    /// The records of this cloud's load balancers, by the UIDs by which the provider finds them.
    records: BTreeMap<String, RetainedLoadBalancer>,
}

impl Seen {
    /// The name of the load balancer of this Service: its own, or one that it has adopted.
    fn balancer_of(&self, service: &Value) -> String {
        let uid = text(service, "/metadata/uid");
        let mut adopted = self.records.iter().filter(|(_, record)| record.in_use && record.service_uid == uid);
        format!("lb-{}", adopted.next().map_or(uid, |(key, _)| key))
    }

    /// Whether another Service has, or had last, the load balancer that was made for this one,
    /// which then gets none.
    fn is_taken_from(&self, service: &Value) -> bool {
        let uid = text(service, "/metadata/uid");
        self.records.get(uid).is_some_and(|record| record.service_uid != uid)
    }

    /// Whether the load balancer stays although no Service has it.
    fn is_retained(&self, balancer: &str) -> bool {
        self.records.get(balancer.trim_start_matches("lb-")).is_some_and(|record| !record.in_use)
    }

    /// Whether the cloud has a machine with the node's name. A provider that lied when the node was
    /// initialised has given it the provider ID of another machine, which may outlive its own.
    fn has_machine_of(&self, node: &Value) -> bool {
        self.state.machine_named(text(node, "/metadata/name")).is_some()
    }
}

/// All differences from the desired state; empty if there are none.
///
/// If orphans are not deleted, an orphan only has to be reported by an Event where a process made
/// it from an old state before the process died, where its provider said that it was deleted, or
/// where another provider took the Service over while its provider was removed. The Event about an
/// orphan comes again with each scan; the one about the take-over is written once, and may be lost
/// with its process.
pub(crate) fn differences(site: &Site, orphans_are_deleted: bool) -> Vec<String> {
    let services = site.referee.objects("/api/v1/services");
    let nodes = site.referee.objects("/api/v1/nodes");
    let events = site.referee.objects("/api/v1/events");
    let clouds = seen(site);
    let mut wrong = wrong_records(&clouds, &services);
    for service in services.iter().filter(|service| text(service, "/metadata/name") != "kubernetes") {
        check_service(service, &clouds, &mut wrong);
        check_reconciled(service, &clouds, site, &mut wrong);
    }
    for (index, cloud) in clouds.iter().enumerate() {
        let was_removed = index == 1 && site.ownership.borrow().second_was_removed;
        let is_known_orphan = |name: &str| {
            let uid = name.trim_start_matches("lb-");
            let is_left = site.referee.is_left_behind(uid) || was_removed;
            let is_possible = site.referee.made_in_the_past(uid) || is_left;
            // What a living Service may want is no orphan, also where another provider serves it.
            let lives = || services.iter().any(|service| text(service, "/metadata/uid") == uid);
            (!orphans_are_deleted && is_possible && has_orphan_event(&events, name)) || (is_left && lives())
        };
        wrong.extend(wrong_balancers(cloud, &services, &nodes, is_known_orphan));
    }
    for node in nodes.iter().filter(|node| !is_by_hand(node)) {
        check_node(node, &clouds, &mut wrong);
    }
    check_machines(&clouds, &nodes, &mut wrong);
    check_routes(&clouds, &nodes, &mut wrong);
    wrong
}

/// The differences of the nodes alone, without load balancers.
pub(crate) fn node_differences(site: &Site) -> Vec<String> {
    let nodes = site.referee.objects("/api/v1/nodes");
    let clouds = seen(site);
    let mut wrong = Vec::new();
    for node in nodes.iter().filter(|node| !is_by_hand(node)) {
        check_node(node, &clouds, &mut wrong);
    }
    check_machines(&clouds, &nodes, &mut wrong);
    wrong
}

fn seen(site: &Site) -> Vec<Seen> {
    let records = site.referee.records();
    let records_of = |cloud: &Cloud| {
        let own = records.all().filter(|(key, _)| key.provider == cloud.provider);
        own.map(|(key, record)| (key.uid.clone(), record.clone())).collect()
    };
    let seen = |cloud: &Arc<Cloud>| Seen {
        name: cloud.name,
        provider: cloud.provider.clone(),
        has_routes: cloud.has_routes,
        state: cloud.state(),
        records: records_of(cloud),
    };
    // The third cloud is another account of the first one and stays empty.
    site.clouds.iter().take(2).map(seen).collect()
}

/// Whether this cloud has to have a load balancer for the Service.
fn is_wanted(service: &Value, cloud: &Seen) -> bool {
    text(service, "/spec/type") == "LoadBalancer"
        && service.pointer("/metadata/deletionTimestamp").is_none()
        && is_of_class(service, cloud)
        && !cloud.is_taken_from(service)
}

/// The records of a Service that does not exist.
fn wrong_records(clouds: &[Seen], services: &[Value]) -> Vec<String> {
    let lives = |uid: &str| services.iter().any(|service| text(service, "/metadata/uid") == uid);
    let records = clouds.iter().flat_map(|cloud| &cloud.records);
    let dead = records.filter(|(_, record)| record.in_use && !lives(&record.service_uid));
    dead.map(|(uid, record)| format!("the load balancer of {uid} is said to be in use: {record:?}")).collect()
}

fn is_of_class(service: &Value, cloud: &Seen) -> bool {
    let class = text(service, "/spec/loadBalancerClass");
    if cloud.has_routes { class.is_empty() } else { class == CLASS }
}

fn strings<'a>(object: &'a Value, pointer: &str) -> Vec<&'a str> {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether the Service's finalizer belongs to another manager: the Service was created with the
/// finalizer, has that manager's class now, and was never ours.
fn has_anothers_finalizer(service: &Value, clouds: &[Seen]) -> bool {
    let wants = text(service, "/spec/type") == "LoadBalancer";
    let is_anothers = !clouds.iter().any(|cloud| is_of_class(service, cloud));
    let holder = service.pointer("/metadata/annotations").and_then(|all| all.get(LOAD_BALANCER_PROVIDER_ANNOTATION));
    wants && is_anothers && holder.is_none() && !text(service, ADOPTED_MARK).is_empty()
}

fn check_service(service: &Value, clouds: &[Seen], wrong: &mut Vec<String>) {
    let name = text(service, "/metadata/name");
    let kept_by_another = has_anothers_finalizer(service, clouds);
    if !kept_by_another && service.pointer("/metadata/deletionTimestamp").is_some() {
        wrong.push(format!("the Service {name} was deleted and still exists"));
    }
    let wanted = clouds.iter().find(|cloud| is_wanted(service, cloud));
    let has_finalizer = strings(service, "/metadata/finalizers").contains(&LOAD_BALANCER_FINALIZER);
    // Somebody brought the finalizer back with the Service, which is refused a load balancer and
    // whose deletion removes the finalizer.
    let may_have_finalizer = text(service, "/spec/type") == "LoadBalancer"
        && clouds.iter().any(|cloud| is_of_class(service, cloud) && cloud.is_taken_from(service));
    if !kept_by_another && has_finalizer != wanted.is_some() && !(has_finalizer && may_have_finalizer) {
        wrong.push(format!("the Service {name} has the finalizer without need, or lacks it"));
    }
    let ingress = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    let shown: Vec<&str> = ingress.into_iter().flatten().map(|one| text(one, "/ip")).collect();
    let real = wanted.and_then(|cloud| cloud.state.addresses.get(&cloud.balancer_of(service)).cloned());
    if wanted.is_some() && real.is_none() {
        wrong.push(format!("the Service {name} has no address in its cloud"));
    }
    if !text(service, OTHERS_MARK).is_empty() && !strings(service, "/metadata/finalizers").contains(&OTHERS_FINALIZER) {
        wrong.push(format!("the Service {name} has lost another controller's finalizer"));
    }
    if shown != real.iter().map(String::as_str).collect::<Vec<_>>() {
        wrong.push(format!("the Service {name} shows {shown:?}, the cloud has {real:?}"));
    }
}

/// The release that serves has to have ensured each load balancer: a swap, like the start of a
/// process, reconciles every object once.
fn check_reconciled(service: &Value, clouds: &[Seen], site: &Site, wrong: &mut Vec<String>) {
    for (cloud, source) in clouds.iter().zip(&site.sources).filter(|(cloud, _)| is_wanted(service, cloud)) {
        let Some(newest) = source.newest() else { continue };
        let balancer = cloud.balancer_of(service);
        let key = (cloud.provider.as_str(), balancer.trim_start_matches("lb-"));
        if !site.referee.is_ensured_by(key, &newest.digest) {
            let (name, origin) = (text(service, "/metadata/name"), &newest.offer.origin);
            wrong.push(format!("the Service {name} was not ensured in {} since {origin} serves", cloud.name));
        }
    }
}

/// Whether an Event says that no Service wants this load balancer.
fn has_orphan_event(events: &[Value], name: &str) -> bool {
    let tells =
        |event: &Value| text(event, "/reason") == ORPHANED_LOAD_BALANCER && text(event, "/message").contains(name);
    events.iter().any(tells)
}

fn wrong_balancers(
    cloud: &Seen,
    services: &[Value],
    nodes: &[Value],
    is_known_orphan: impl Fn(&str) -> bool,
) -> Vec<String> {
    let (state, mut wrong) = (&cloud.state, Vec::new());
    let wanted = services.iter().filter(|service| is_wanted(service, cloud));
    let wanted: BTreeMap<String, Balancer> = wanted.map(|service| balancer(service, cloud, nodes)).collect();
    for (name, has) in &state.balancers {
        match wanted.get(name) {
            None if is_known_orphan(name) || cloud.is_retained(name) => {}
            None => wrong.push(format!("{} has {name}, which no Service wants", cloud.name)),
            Some(wanted) if wanted != has => wrong.push(format!("{name} is {has:?}, not {wanted:?}")),
            Some(_) => {}
        }
    }
    for name in wanted.keys().filter(|name| !state.balancers.contains_key(*name)) {
        wrong.push(format!("{} lacks {name}", cloud.name));
    }
    let is_left = |name: &&String| !wanted.contains_key(*name) && !is_known_orphan(name) && !cloud.is_retained(name);
    for name in state.addresses.keys().filter(is_left) {
        wrong.push(format!("{} has an address for {name}, which no Service wants", cloud.name));
    }
    wrong
}

/// Whether people joined the node by hand. Two providers claim it, so it keeps its place in the
/// load balancers of the older one, that of the second cloud, and neither writes it.
fn is_by_hand(node: &Value) -> bool {
    !text(node, BY_HAND_MARK).is_empty()
}

fn balancer(service: &Value, cloud: &Seen, nodes: &[Value]) -> (String, Balancer) {
    let state = &cloud.state;
    let name = cloud.balancer_of(service);
    let uid = name.trim_start_matches("lb-").to_owned();
    let backs = |node: &&Value| {
        (state.machines.contains_key(text(node, "/spec/providerID")) || is_by_hand(node) && !cloud.has_routes)
            && node.pointer("/metadata/labels").is_none_or(|labels| labels.get(EXCLUDED).is_none())
    };
    let backends = nodes.iter().filter(backs).map(|node| text(node, "/metadata/name").to_owned()).collect();
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let mut ports: Vec<Port> = ports.into_iter().flatten().map(port).collect();
    ports.sort_unstable();
    (name, Balancer { service: uid, ports, backends })
}

fn port(port: &Value) -> Port {
    let number = |key: &str| port.get(key).and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok());
    (Protocol::Tcp, number("port").unwrap_or_default(), number("nodePort").unwrap_or_default())
}

fn check_node(node: &Value, clouds: &[Seen], wrong: &mut Vec<String>) {
    let name = text(node, "/metadata/name");
    let id = text(node, "/spec/providerID");
    let machine = clouds.iter().find_map(|cloud| cloud.state.instance(id));
    let Some(machine) = machine else {
        wrong.push(format!("the node {name} ({id:?}) has no machine"));
        return;
    };
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    for taint in taints.into_iter().flatten().map(|taint| text(taint, "/key")) {
        // As upstream, the taint stays until the node is ready, and without a machine it never is.
        let may_stay = taint == SHUTDOWN_TAINT && !clouds.iter().any(|cloud| cloud.has_machine_of(node));
        if [UNINITIALIZED_TAINT, SHUTDOWN_TAINT].contains(&taint) && !may_stay {
            wrong.push(format!("the node {name} has the taint {taint}"));
        }
    }
    let has = |key: &str| taints.into_iter().flatten().any(|taint| text(taint, "/key") == key);
    if !text(node, OTHERS_MARK).is_empty() && !has(OTHERS_TAINT) {
        wrong.push(format!("the node {name} has lost another controller's taint"));
    }
    let address = machine.addresses.first().map(|address| address.address.as_str()).unwrap_or_default();
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
    let internal = addresses.into_iter().flatten().find(|one| text(one, "/type") == "InternalIP");
    if internal.map(|one| text(one, "/address")) != Some(address) {
        wrong.push(format!("the node {name} has the address {internal:?}, not {address}"));
    }
    let labels = [
        ("node.kubernetes.io~1instance-type", "small"),
        ("topology.kubernetes.io~1zone", "z1"),
        ("topology.kubernetes.io~1region", "r1"),
    ];
    for (label, value) in labels {
        if text(node, &format!("/metadata/labels/{label}")) != value {
            wrong.push(format!("the node {name} lacks the label {label}"));
        }
    }
}

fn check_machines(clouds: &[Seen], nodes: &[Value], wrong: &mut Vec<String>) {
    let known: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/spec/providerID")).collect();
    for cloud in clouds {
        for (id, machine) in &cloud.state.machines {
            if !known.contains(id.as_str()) {
                wrong.push(format!("the machine {} ({id}) has no node", machine.name));
            }
        }
    }
}

fn check_routes(clouds: &[Seen], nodes: &[Value], wrong: &mut Vec<String>) {
    for cloud in clouds.iter().filter(|cloud| cloud.has_routes) {
        let state = &cloud.state;
        let own = nodes.iter().filter(|node| state.machines.contains_key(text(node, "/spec/providerID")));
        // The cloud makes a route to the machine with the node's name.
        let (own, others): (Vec<_>, Vec<_>) = own.partition(|node| cloud.has_machine_of(node));
        let mut wanted = BTreeMap::new();
        let mut routes = state.routes.clone();
        routes.retain(|cidr, _| others.iter().all(|node| text(node, "/spec/podCIDR") != cidr));
        for node in own {
            wanted.insert(text(node, "/spec/podCIDR").to_owned(), text(node, "/spec/providerID").to_owned());
            let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
            let condition = conditions.into_iter().flatten().find(|one| text(one, "/type") == "NetworkUnavailable");
            if condition.map(|one| text(one, "/status")) != Some("False") {
                wrong.push(format!("the node {} is not said to have its route", text(node, "/metadata/name")));
            }
        }
        if wanted != routes {
            wrong.push(format!("the routes are {routes:?}, not {wanted:?}"));
        }
    }
}
