//! A vendor's Go cloud provider beside the component: the code that users of the vendor's
//! cloud-controller-manager run, behind a program that answers questions (`vendors/judge`).

use std::{
    collections::BTreeMap,
    process::Command,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use skysail_provider::{
    AddressKind, IpFamily, IpFamilyPolicy, Node, NodeAddress, NodeSet, Protocol, Service, SessionAffinity,
    TrafficPolicy,
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
    program: &'static Program,
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
        let program = running(setup, program)?;
        let question = json!({"do": "open", "config": config, "environment": environment, "nodes": objects(nodes)});
        let cloud = program.ask(&question)?.get("cloud").and_then(Value::as_u64);
        Ok(Self { program, cloud: cloud.context("the vendor's program named no cloud")? })
    }

    /// `EnsureLoadBalancer`. The inner error is the provider's.
    ///
    /// # Errors
    /// The program ended, or does not understand the question.
    pub fn ensure(&self, service: &Service, nodes: &NodeSet) -> Result<Result<(), String>> {
        self.call("ensure", service, nodes)
    }

    /// `EnsureLoadBalancerDeleted`. The inner error is the provider's.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub fn ensure_deleted(&self, service: &Service) -> Result<Result<(), String>> {
        self.call("delete", service, &NodeSet::new([]))
    }

    fn call(&self, what: &str, service: &Service, nodes: &NodeSet) -> Result<Result<(), String>> {
        let nodes = objects(nodes);
        let question =
            json!({"do": what, "cloud": self.cloud, "cluster": CLUSTER, "service": object(service), "nodes": nodes});
        let answer = self.program.ask(&question)?;
        Ok(match answer.get("failed").and_then(Value::as_str) {
            Some(failed) => Err(failed.to_owned()),
            None => Ok(()),
        })
    }
}

/// The program of this name. All tests of a process share it.
fn running(setup: &str, name: &'static str) -> Result<&'static Program> {
    static ALL: Mutex<BTreeMap<&str, &Program>> = Mutex::new(BTreeMap::new());
    tokio::task::block_in_place(|| {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = all.get(name) {
            return Ok(*program);
        }
        let command = Command::new(component::tool(setup, &format!("bin/{name}"))?);
        let (program, _) = Program::start(command, READY_WITHIN)?;
        let program: &Program = Box::leak(Box::new(program));
        all.insert(name, program);
        Ok(program)
    })
}

fn objects(nodes: &NodeSet) -> Vec<Value> {
    nodes.as_slice().iter().map(|node| node_object(node)).collect()
}

/// A Node as the API server has it.
fn node_object(node: &Node) -> Value {
    let address = |NodeAddress { kind, address }: &NodeAddress| {
        let kind = match kind {
            AddressKind::Hostname => "Hostname",
            AddressKind::InternalIp => "InternalIP",
            AddressKind::ExternalIp => "ExternalIP",
            AddressKind::InternalDns => "InternalDNS",
            AddressKind::ExternalDns => "ExternalDNS",
            AddressKind::Other(kind) => kind,
        };
        json!({"type": kind, "address": address})
    };
    json!({
        "metadata": {"name": node.name, "uid": node.uid},
        "spec": {"providerID": node.provider_id, "podCIDRs": node.pod_cidrs},
        "status": {"addresses": node.addresses.iter().map(address).collect::<Vec<_>>()},
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
