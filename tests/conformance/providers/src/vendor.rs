//! A vendor's Go cloud provider beside the component: the code that users of the vendor's
//! cloud-controller-manager run, behind a program that answers questions (`vendors/judge`).

use std::{
    collections::BTreeMap,
    fmt,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use skysail_provider::{
    IpFamily, IpFamilyPolicy, Node, NodeAddress, NodeSet, Protocol, Service, SessionAffinity, TrafficPolicy,
};

use crate::{component, process::Program, world::CLUSTER};

/// The programs start within a second of CPU time.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What a vendor's provider needs to reach a cloud.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The argument of `.ci/setup` that installs the program.
    pub setup: &'static str,
    /// The name of the program with the vendor's provider.
    pub program: &'static str,
    /// The cloud-config.
    pub config: String,
    /// The variables from which the vendor's client takes its credentials.
    pub environment: BTreeMap<String, String>,
}

/// A vendor's provider that serves.
#[derive(Debug)]
pub struct Vendor {
    program: Arc<Program>,
    /// The number of the provider in its program.
    cloud: u64,
}

impl Vendor {
    /// Starts a provider for a cluster of these nodes.
    ///
    /// # Errors
    /// The provider refuses the cloud-config, or does not reach the cloud.
    pub fn open(opening: &Opening, nodes: &NodeSet) -> Result<Self> {
        let Opening { setup, program, config, environment } = opening;
        let program = idle(setup, program)?;
        let question = json!({"do": "open", "config": config, "environment": environment, "nodes": objects(nodes)});
        let cloud = program.ask(&question)?.get("cloud").and_then(Value::as_u64);
        Ok(Self { program, cloud: cloud.context("the vendor's program named no cloud")? })
    }

    /// `EnsureLoadBalancer`. The value is the Service with the annotations that the provider has
    /// added, the inner error the provider's.
    ///
    /// # Errors
    /// The program ended, or does not understand the question.
    pub fn ensure(&self, service: &Service, nodes: &NodeSet) -> Result<Result<Service, String>> {
        let answer = self.call("ensure", service, nodes)?;
        let annotations = BTreeMap::deserialize(answer.get("annotations").unwrap_or(&json!({})))?;
        Ok(failed(&answer).map(|()| Service { annotations, ..service.clone() }))
    }

    /// `UpdateLoadBalancer`. The inner error is the provider's.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub fn update(&self, service: &Service, nodes: &NodeSet) -> Result<Result<(), String>> {
        Ok(failed(&self.call("update", service, nodes)?))
    }

    /// `EnsureLoadBalancerDeleted`. The inner error is the provider's.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub fn ensure_deleted(&self, service: &Service) -> Result<Result<(), String>> {
        Ok(failed(&self.call("delete", service, &NodeSet::new([]))?))
    }

    /// What the vendor's provider says about the machine of each node, in order.
    ///
    /// # Errors
    /// The program ended, or does not understand the question.
    pub fn describe(&self, nodes: &NodeSet) -> Result<Vec<Description>> {
        let answer = self.program.ask(&json!({"do": "describe", "cloud": self.cloud, "nodes": objects(nodes)}))?;
        tracing::info!(%answer, "what the vendor's provider says");
        let machines = Vec::<Description>::deserialize(answer.get("machines").unwrap_or(&Value::Null))?;
        ensure!(machines.len() == nodes.as_slice().len(), "the vendor's program described {} nodes", machines.len());
        Ok(machines)
    }

    /// `ListRoutes`. The inner error is the provider's.
    ///
    /// # Errors
    /// The program ended, or does not understand the question.
    pub fn routes(&self) -> Result<Result<Vec<VendorRoute>, String>> {
        let answer = self.program.ask(&json!({"do": "routes", "cloud": self.cloud, "cluster": CLUSTER}))?;
        let routes = Vec::<VendorRoute>::deserialize(answer.get("routes").unwrap_or(&json!([])))?;
        Ok(failed(&answer).map(|()| routes))
    }

    /// `CreateRoute`. The inner error is the provider's.
    ///
    /// # Errors
    /// As [`Self::routes`].
    pub fn create_route(&self, route: &VendorRoute) -> Result<Result<(), String>> {
        self.about_route("create-route", route)
    }

    /// `DeleteRoute`. The inner error is the provider's.
    ///
    /// # Errors
    /// As [`Self::routes`].
    pub fn delete_route(&self, route: &VendorRoute) -> Result<Result<(), String>> {
        self.about_route("delete-route", route)
    }

    fn about_route(&self, what: &str, route: &VendorRoute) -> Result<Result<(), String>> {
        let question = json!({"do": what, "cloud": self.cloud, "cluster": CLUSTER, "route": route});
        Ok(failed(&self.program.ask(&question)?))
    }

    fn call(&self, what: &str, service: &Service, nodes: &NodeSet) -> Result<Value> {
        let nodes = objects(nodes);
        self.program.ask(
            &json!({"do": what, "cloud": self.cloud, "cluster": CLUSTER, "service": object(service), "nodes": nodes}),
        )
    }
}

/// The error that the provider returned.
fn failed(answer: &Value) -> Result<(), String> {
    answer.get("failed").and_then(Value::as_str).map_or(Ok(()), |failed| Err(failed.to_owned()))
}

/// A route as `k8s.io/cloud-provider` has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct VendorRoute {
    /// The pods of the node.
    #[serde(rename = "DestinationCIDR")]
    pub destination_cidr: String,
    /// The name of the node; empty if the provider does not find the node.
    pub target_node: String,
    /// The other fields of Go's type.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl VendorRoute {
    /// The route of this node, as the route controller asks for it.
    #[must_use]
    pub fn of(node: &Node, destination_cidr: &str) -> Self {
        let addresses = node.addresses.iter().map(node_address).collect();
        Self {
            destination_cidr: destination_cidr.to_owned(),
            target_node: node.name.clone(),
            more: BTreeMap::from([("TargetNodeAddresses".to_owned(), addresses)]),
        }
    }
}

/// What a provider says about the machine of a node.
#[derive(Clone, Debug, Deserialize)]
pub struct Description {
    /// `running`, `shutdown`, `gone`, or `unknown` after an error.
    pub state: String,
    /// None after an error.
    pub metadata: Option<Metadata>,
}

impl Description {
    /// Whether the provider returned an error for everything.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.state == "unknown" && self.metadata.is_none()
    }

    /// The metadata alone.
    #[must_use]
    pub fn without_state(self) -> Self {
        Self { state: "unknown".to_owned(), ..self }
    }
}

/// What a provider says about a machine that exists: `InstanceMetadata`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Metadata {
    /// The provider ID.
    #[serde(rename = "ProviderID")]
    pub provider_id: String,
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// The region.
    pub region: String,
    /// Kind and address, in order.
    #[serde(rename = "NodeAddresses", deserialize_with = "addresses")]
    pub addresses: Vec<String>,
    /// Further labels.
    #[serde(rename = "AdditionalLabels", deserialize_with = "or_none")]
    pub labels: BTreeMap<String, String>,
}

/// Go's encoder writes `null` for a map or list that was never made.
fn or_none<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    struct Address {
        r#type: String,
        address: String,
    }
    let all: Vec<Address> = or_none(from)?;
    Ok(all.into_iter().map(|one| format!("{} {}", one.r#type, one.address)).collect())
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, metadata } = self;
        let Some(Metadata { provider_id, instance_type, zone, region, addresses, labels }) = metadata else {
            return write!(f, "{state}, no metadata");
        };
        write!(f, "{state}, {provider_id}, type {instance_type:?}, zone {zone:?}, region {region:?}")?;
        write!(f, ", {addresses:?}, {labels:?}")
    }
}

/// A program of this name that no [`Vendor`] has: a program answers one question at a time, and a
/// call lasts as long as the cloud takes.
fn idle(setup: &str, name: &'static str) -> Result<Arc<Program>> {
    static ALL: Mutex<Vec<(&str, Arc<Program>)>> = Mutex::new(Vec::new());
    tokio::task::block_in_place(|| {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = all.iter().find(|(known, program)| *known == name && Arc::strong_count(program) == 1);
        if let Some((_, program)) = idle {
            return Ok(Arc::clone(program));
        }
        let command = Command::new(component::tool(setup, &format!("bin/{name}"))?);
        let program = Arc::new(Program::start(command, READY_WITHIN)?.0);
        all.push((name, Arc::clone(&program)));
        Ok(program)
    })
}

fn objects(nodes: &NodeSet) -> Vec<Value> {
    nodes.as_slice().iter().map(|node| node_object(node)).collect()
}

fn node_address(NodeAddress { kind, address }: &NodeAddress) -> Value {
    json!({"type": kind.as_str(), "address": address})
}

/// A Node as the API server has it.
fn node_object(node: &Node) -> Value {
    let labels: BTreeMap<_, _> = node.labels.iter().collect();
    json!({
        "metadata": {"name": node.name, "uid": node.uid, "labels": labels},
        "spec": {"providerID": node.provider_id, "podCIDRs": node.pod_cidrs},
        "status": {
            "addresses": node.addresses.iter().map(node_address).collect::<Vec<_>>(),
            "nodeInfo": {"systemUUID": node.system_uuid.as_ref().map(ToString::to_string)},
        },
    })
}

/// A Service as the API server has it.
fn object(service: &Service) -> Value {
    let protocol = |protocol| match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    };
    let policy = |policy| match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    };
    let family = |family: &IpFamily| match family {
        IpFamily::Ipv4 => "IPv4",
        IpFamily::Ipv6 => "IPv6",
    };
    let ports = service.ports.iter().map(|port| {
        // A number stays a number, as in the API's type `intstr.IntOrString`.
        let target = port.target_port.parse::<u16>().map_or_else(|_| json!(port.target_port), |number| json!(number));
        json!({
            "name": port.name, "protocol": protocol(port.protocol), "appProtocol": port.app_protocol, "port": port.port,
            "nodePort": port.node_port, "targetPort": target,
        })
    });
    let (affinity, affinity_config) = match service.session_affinity {
        SessionAffinity::None => ("None", Value::Null),
        SessionAffinity::ClientIp { timeout_seconds } => {
            ("ClientIP", json!({"clientIP": {"timeoutSeconds": timeout_seconds}}))
        }
    };
    json!({
        "metadata": {
            "namespace": service.namespace, "name": service.name, "uid": service.uid,
            "labels": service.labels, "annotations": service.annotations,
        },
        "spec": {
            "type": "LoadBalancer", "ports": ports.collect::<Vec<_>>(),
            "sessionAffinity": affinity, "sessionAffinityConfig": affinity_config,
            "loadBalancerIP": service.load_balancer_ip, "loadBalancerClass": service.load_balancer_class,
            "loadBalancerSourceRanges": service.source_ranges, "externalIPs": service.external_ips,
            "externalTrafficPolicy": policy(service.external_traffic_policy),
            "internalTrafficPolicy": policy(service.internal_traffic_policy),
            "healthCheckNodePort": service.health_check_node_port,
            "ipFamilies": service.ip_families.iter().map(family).collect::<Vec<_>>(),
            "ipFamilyPolicy": service.ip_family_policy.map(|policy| match policy {
                IpFamilyPolicy::SingleStack => "SingleStack",
                IpFamilyPolicy::PreferDualStack => "PreferDualStack",
                IpFamilyPolicy::RequireDualStack => "RequireDualStack",
            }),
            "allocateLoadBalancerNodePorts": service.allocate_node_ports,
        },
    })
}
