//! The machines of the comparison with the Kubernetes vSphere Cloud Provider, and the settings
//! under which both describe them.

use anyhow::{Context as _, Result};
use serde::Serialize;
use skysail_provider::Node;

use super::{DATACENTER, SCHEME, Vsphere};
use crate::cloud::{Cloud as _, Difference, Variant, machine_of};

/// A machine that the simulator creates; a field without a value gets a usual one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// The name, which VMware Tools report as the host name.
    pub name: String,
    /// The UUID of the firmware.
    pub uuid: Option<String>,
    /// Virtual processors.
    pub cpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mb: Option<u32>,
    /// vSphere's identifier of the operating system.
    pub guest: Option<&'static str>,
    /// What cloud-init was given, in base64.
    pub metadata: Option<String>,
    /// What VMware Tools report; an empty list if none run.
    pub nics: Option<Vec<Nic>>,
}

/// A network interface as VMware Tools report it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Nic {
    /// The name of the network.
    pub network: &'static str,
    /// All addresses.
    pub addresses: Vec<&'static str>,
    /// Whether a container runtime made the interface.
    pub inside: bool,
}

/// An interface that vCenter gave the machine.
fn nic(network: &'static str, addresses: &[&'static str]) -> Nic {
    Nic { network, addresses: addresses.to_vec(), inside: false }
}

/// What the README of the guest explains.
pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        cases: &[],
        lines: &["stopped: "],
        reason: "VMware's provider returns an error for a machine without VMware Tools, so that its node is neither \
                 tainted nor deleted; the component knows that the machine is powered off",
    },
    Difference {
        cases: &[],
        lines: &["other-byte-order: "],
        reason: "VMware's provider finds the machine and panics, because it looks for the UUID that it has not found",
    },
];

/// Sections of the cloud-config that decide about addresses.
pub(super) fn variants() -> Vec<Variant<Vsphere>> {
    vec![
        ("the example", |_| {}),
        ("no labels", |vsphere| vsphere.labels = false),
        ("two datacenters", |vsphere| vsphere.datacenters = "F0/DC1, DC0".to_owned()),
        ("preferred subnets", |vsphere| {
            vsphere.more = "[Nodes]\ninternal-network-subnet-cidr = 10.2.0.0/16\n\
                            external-network-subnet-cidr = 192.0.2.0/24\n";
        }),
        ("several preferred subnets", |vsphere| {
            vsphere.more = "[Nodes]\ninternal-network-subnet-cidr = \"172.16.0.0/12,10.1.0.0/16\"\n";
        }),
        ("preferred networks", |vsphere| {
            vsphere.more = "[Nodes]\ninternal-vm-network-name = backend\nexternal-vm-network-name = \"VM Network\"\n";
        }),
        ("networks that only some machines have", |vsphere| {
            vsphere.more = "[Nodes]\ninternal-vm-network-name = backend\nexternal-vm-network-name = frontend\n";
        }),
        ("a subnet and a network", |vsphere| {
            vsphere.more = "[Nodes]\ninternal-network-subnet-cidr = 10.2.0.0/16\nexternal-vm-network-name = frontend\n";
        }),
        ("excluded subnets", |vsphere| {
            vsphere.more = "[Nodes]\nexclude-internal-network-subnet-cidr = \"10.1.0.0/16,192.0.2.0/24\"\n\
                            exclude-external-network-subnet-cidr = 10.2.0.0/16\n";
        }),
        ("IPv6", |vsphere| vsphere.more = "[Global]\nip-family = ipv6\n"),
        ("IPv4 and IPv6", |vsphere| vsphere.more = "[Global]\nip-family = \"ipv4,ipv6\"\n"),
    ]
}

/// What cloud-init is given: the address 10.2.0.11 is configured, in base64.
const METADATA: &str =
    "bmV0d29yazoKICBldGhlcm5ldHM6CiAgICBldGgwOgogICAgICBhZGRyZXNzZXM6CiAgICAgIC0gMTAuMi4wLjExLzI0Cg==";
/// The same UUID as the firmware has it, and as old kernels report it.
const FIRMWARE: &str = "42013ddb-57d9-3e2c-9a7c-0123456789ab";
const KERNEL: &str = "db3d0142-d957-2c3e-9a7c-0123456789ab";

fn machine(name: &str) -> Machine {
    Machine { name: name.to_owned(), ..Machine::default() }
}

/// The machines whose nodes have a provider ID.
fn machines() -> Vec<Machine> {
    let with = |name, nics: &[Nic]| Machine { nics: Some(nics.to_vec()), ..machine(name) };
    let two = [nic("VM Network", &["10.1.9.1"]), nic("backend", &["10.2.0.10"])];
    vec![
        machine("usual"),
        with("two-networks", &two),
        with(
            "three-networks",
            &[
                nic("frontend", &["192.0.2.7", "2001:db8::7"]),
                nic("Backend", &["10.2.0.12", "fd00::12"]),
                nic("VM Network", &["10.1.9.3"]),
            ],
        ),
        with(
            "several-addresses",
            &[nic("VM Network", &["fe80::1", "127.0.0.1", "10.1.9.4", "10.2.0.13", "192.0.2.8"])],
        ),
        with(
            "container-runtime",
            &[Nic { inside: true, ..nic("", &["172.17.0.1"]) }, nic("VM Network", &["10.1.9.5"])],
        ),
        with("link-local", &[nic("VM Network", &["169.254.1.1", "fe80::2"])]),
        with("another-network", &[nic("storage", &["10.9.0.1"])]),
        with("without-addresses", &[nic("VM Network", &[])]),
        with("ipv6", &[nic("VM Network", &["2001:db8::9"])]),
        Machine {
            metadata: Some(METADATA.to_owned()),
            nics: Some(vec![nic("VM Network", &["10.2.0.100", "10.2.0.11"]), nic("backend", &["10.2.0.14"])]),
            ..machine("configured-address")
        },
        Machine { cpus: Some(16), memory_mb: Some(66_048), guest: Some("windows2019srv_64Guest"), ..machine("large") },
        Machine { guest: Some("otherGuest64"), memory_mb: Some(512), ..machine("small") },
        Machine { guest: Some("skysailGuest"), ..machine("unknown-system") },
        Machine { nics: Some(Vec::new()), ..machine("without-tools") },
        Machine { uuid: Some(FIRMWARE.to_owned()), ..machine("other-byte-order") },
        machine("capitals"),
        machine("stopped"),
        machine("gone"),
    ]
}

/// Each machine's node, and nodes that have no provider ID yet.
pub(super) async fn compared_nodes(vsphere: &Vsphere) -> Result<Vec<Node>> {
    let datacenter = format!("/{DATACENTER}");
    let mut nodes = vsphere.add_all(&datacenter, &machines())?;
    for node in &mut nodes {
        match node.name.as_str() {
            "other-byte-order" => node.provider_id = Some(format!("{SCHEME}{KERNEL}")),
            "capitals" => {
                let id = machine_of(node, SCHEME)?.to_uppercase();
                node.provider_id = Some(format!("{SCHEME}{id}"));
            }
            "stopped" => vsphere.stop_machine(node).await?,
            "gone" => vsphere.delete_machine(node).await?,
            _ => {}
        }
    }
    let new = [machine("new"), machine("new.example.com"), machine("twice"), machine("twice")];
    let mut new = vsphere.add_all(&datacenter, &new)?;
    new.pop().context("no machine was created")?;
    // This node's name is the address of its machine.
    let nics = Some(vec![nic("VM Network", &["10.1.200.1"])]);
    new.extend(vsphere.add_all(&datacenter, &[Machine { nics, ..machine("named-by-address") }])?);
    for node in &mut new {
        node.provider_id = None;
        if node.name == "named-by-address" {
            node.name = "10.1.200.1".to_owned();
        }
    }
    new.push(Node { name: "unknown".to_owned(), ..Node::default() });
    nodes.append(&mut new);
    Ok(nodes)
}
