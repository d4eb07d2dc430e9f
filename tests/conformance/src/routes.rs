//! A world with only the route controller, and helpers with a short notation for routes.

use kube::api::{Patch, PatchParams};
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use skysail_controllers::{ControllerSettings, EnabledControllers, parse_cluster_cidr};
use skysail_provider::{AddressKind, NodeAddress, Route, Target};

use crate::world::{Cloud, World};

impl World {
    /// A world with these clouds, only the route controller, and the pod networks 10.120.0.0/16 and
    /// `a00::/8`.
    pub fn routing(clouds: Vec<Cloud>) -> Self {
        Self::with(clouds).set(|settings| {
            *settings = ControllerSettings {
                controllers: EnabledControllers {
                    service: false,
                    cloud_node: false,
                    cloud_node_lifecycle: false,
                    ..EnabledControllers::default()
                },
                cluster_cidrs: parse_cluster_cidr("10.120.0.0/16,a00::/8").unwrap(),
                ..ControllerSettings::default()
            };
        })
    }

    /// Adds a node of the first cloud from a line `name address cidrs`; `cidrs` may be missing.
    pub async fn add_routed(&self, line: &str) {
        let mut words = line.split(' ');
        let (name, ip) = (words.next().unwrap(), words.next().unwrap());
        self.add_routed_node(name, ip, words.next().unwrap_or_default()).await;
    }

    /// Adds a node of the first cloud with an address and pod CIDRs, separated by commas.
    pub async fn add_routed_node(&self, name: &str, ip: &str, cidrs: &str) {
        self.add_node_of("fake", name, (ip, cidrs)).await;
    }

    /// Adds a node with a provider ID of this scheme.
    pub async fn add_node_of(&self, scheme: &str, name: &str, (ip, cidrs): (&str, &str)) {
        let mut spec = json!({ "providerID": format!("{scheme}://{name}") });
        let cidrs: Vec<&str> = cidrs.split(',').filter(|cidr| !cidr.is_empty()).collect();
        if let (Some(first), Some(spec)) = (cidrs.first(), spec.as_object_mut()) {
            spec.insert("podCIDR".to_owned(), json!(first));
            spec.insert("podCIDRs".to_owned(), json!(cidrs));
        }
        self.add_raw_node(name, spec).await;
        self.readdress(name, ip).await;
    }

    /// Replaces the node's address.
    pub async fn readdress(&self, name: &str, ip: &str) {
        self.patch_status(name, json!({ "addresses": [{ "type": "InternalIP", "address": ip }] })).await;
    }

    /// Applies a merge patch to the node's status.
    pub async fn patch_status(&self, name: &str, status: Value) {
        let patch = json!({ "status": status });
        self.as_user(self.nodes().patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    }

    /// Writes a kubelet's heartbeat; other conditions stay.
    pub async fn beat(&self, name: &str) {
        let message = self.server.revision().to_string();
        let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": message });
        let patch = json!({ "status": { "conditions": [ready] } });
        self.as_user(self.nodes().patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))).await;
    }

    /// Applies a merge patch to the node.
    pub async fn patch_node(&self, name: &str, patch: Value) {
        self.as_user(self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    }

    /// Status and reason of `NetworkUnavailable`; `-` without the condition.
    pub async fn network_unavailable(&self, name: &str) -> String {
        let conditions = self.node(name).await.unwrap().status.unwrap().conditions.unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable");
        condition.map_or("-".to_owned(), |c| format!("{} {}", c.status, c.reason.unwrap_or_default()))
    }

    /// Routes of the first cloud: target, destination and addresses, sorted.
    pub fn routes(&self) -> Vec<String> {
        routes_of(&self.clouds[0])
    }

    /// The lines of the metrics that contain this text.
    pub fn metrics(&self, part: &str) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let mut lines: Vec<String> =
            text.lines().filter(|line| !line.starts_with('#') && line.contains(part)).map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

/// Routes of a cloud: target (`-` for none), destination and addresses, sorted.
pub fn routes_of(cloud: &Cloud) -> Vec<String> {
    let line = |route: Route| {
        let target = match route.target {
            Target::Node(name) | Target::ProviderId(name) | Target::Address(name) => name,
            Target::None => "-".to_owned(),
        };
        let addresses: Vec<String> = route.target_addresses.into_iter().map(|address| address.address).collect();
        format!("{target} {} {}", route.destination_cidr, addresses.join(",")).trim_end().to_owned()
    };
    let mut lines: Vec<String> = cloud.fake.cloud_routes().into_iter().map(line).collect();
    lines.sort();
    lines
}

/// Parses routes from lines `target destination address`: the target `-` means none; `=` before the
/// address (which may be missing) enables `enable_node_addresses`.
pub fn routes(lines: &[&str]) -> Vec<Route> {
    let route = |(index, line): (usize, &&str)| {
        let mut words = line.split(' ');
        let (target, cidr) = (words.next().unwrap(), words.next().unwrap());
        let address = words.next().unwrap_or_default();
        let plain = address.trim_start_matches('=');
        let addresses = (!plain.is_empty())
            .then(|| NodeAddress { kind: AddressKind::InternalIp, address: plain.to_owned() })
            .into_iter();
        Route {
            name: format!("r{index}"),
            target: if target == "-" { Target::None } else { Target::Node(target.to_owned()) },
            target_addresses: addresses.collect(),
            destination_cidr: cidr.to_owned(),
            blackhole: false,
            enable_node_addresses: address.starts_with('='),
            extra: Vec::new(),
        }
    };
    lines.iter().enumerate().map(route).collect()
}
