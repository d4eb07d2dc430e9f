//! The cloud-config: vCenters, tag categories, and the networks of the nodes.
//!
//! ```text
//! [Global]
//! datacenters = DC0                               # default: all
//! credential  = vsphere                           # default
//!
//! [VirtualCenter "vcenter.example.com"]
//! ip-family = ipv4, ipv6
//!
//! [Labels]
//! region = k8s-region
//! zone   = k8s-zone
//! ```
//!
//! The keys are those of `vsphere.conf` of the Kubernetes vSphere Cloud Provider, but for
//! `credential`: the host logs in.

mod values;

use skysail_guest_sdk::{
    Cidr, IpFamily, Problem,
    config::{Checked, Ini, Name},
};

use self::values::{CidrList, Host, List, Port, families};

/// Name of the credential where the cloud-config has none.
const CREDENTIAL: &str = "vsphere";
/// HTTPS port of vCenter Server.
const PORT: u16 = 443;
/// The maximum number of vCenters: each may take a few of the requests of a call.
const VCENTERS_MAX: usize = 16;
/// Keys that the host replaces, with the place where the operator says the same.
const REPLACED: [(&str, &str); 9] = [
    ("ca-file", "has no effect: write the certificate into `egress.caBundle` of the Provider"),
    ("thumbprint", "has no effect: write the certificate of the CA into `egress.caBundle` of the Provider"),
    ("secret-name", "has no effect: write the account into `credentials` of the Provider"),
    ("secret-namespace", "has no effect: write the account into `credentials` of the Provider"),
    ("secrets-directory", "has no effect: write the account into `credentials` of the Provider"),
    (
        "insecure-flag",
        "has no effect: certificates are always verified; write the CA into `egress.caBundle` of the Provider",
    ),
    ("soap-roundtrip-count", "has no effect: the manager repeats failed calls; remove the key"),
    ("api-disable", "has no effect: there is no such API; remove the key"),
    ("api-binding", "has no effect: there is no such API; remove the key"),
];

/// A valid cloud-config.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The vCenter Servers, in the order of the text.
    pub(crate) vcenters: Vec<Vcenter>,
    /// None where zones and regions are off.
    pub(crate) labels: Option<Labels>,
    pub(crate) nodes: Nodes,
}

/// One vCenter Server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vcenter {
    /// `https://host:port`.
    pub(crate) origin: String,
    /// Name of the operator's credential, of the scheme `vsphere`.
    pub(crate) credential: String,
    /// Names, inventory paths or IDs (`Datacenter:datacenter-3`). Empty: all.
    pub(crate) datacenters: Vec<String>,
    /// The families of the nodes' addresses, in the order of `status.addresses`.
    pub(crate) families: Vec<IpFamily>,
}

/// Names of the tag categories whose tags are zones and regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labels {
    pub(crate) zone: String,
    pub(crate) region: String,
}

/// Which addresses of a machine become addresses of its node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) internal: Selection,
    pub(crate) external: Selection,
}

/// How the address of one kind is selected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Preferred, the first one most.
    pub(crate) subnets: Vec<Cidr>,
    /// Never selected.
    pub(crate) excluded: Vec<Cidr>,
    /// Preferred after the subnets.
    pub(crate) network: Option<String>,
}

/// Reads and checks a cloud-config.
pub(crate) fn parse(text: &str) -> Checked<Settings> {
    if let Some(line) = yaml_line(text) {
        return Checked::refused(Problem::fatal(
            line,
            "",
            "YAML is not read here; write the INI form: sections such as [VirtualCenter \"HOST\"], with key = value",
        ));
    }
    let mut ini = Ini::parse(text);
    let settings = read(&mut ini);
    ini.finish(settings)
}

fn read(ini: &mut Ini) -> Settings {
    let vcenters = vcenters(ini);
    let (zone, region) = (non_empty(ini, "Labels", "zone"), non_empty(ini, "Labels", "region"));
    if zone.is_some() != region.is_some() {
        let absent = if zone.is_some() { "region" } else { "zone" };
        ini.warn(
            "Labels",
            absent,
            "is absent: nodes get a zone and a region only where both keys are set; write both, or none",
        );
    }
    let labels = zone.zip(region).map(|(zone, region)| Labels { zone, region });
    let nodes = Nodes { internal: selection(ini, "internal"), external: selection(ini, "external") };
    Settings { vcenters, labels, nodes }
}

/// The line where a text begins that can only be YAML.
fn yaml_line(text: &str) -> Option<u32> {
    let lines = (1..).zip(text.lines());
    let mut lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.trim().starts_with(['#', ';']));
    let (number, first) = lines.next()?;
    let yaml =
        first.starts_with("---") || (!first.trim().starts_with('[') && !first.contains('=') && first.contains(':'));
    yaml.then_some(number)
}

fn vcenters(ini: &mut Ini) -> Vec<Vcenter> {
    let global = Defaults::read(ini, "Global");
    let mut found = Vec::new();
    let named = ini.named_sections("VirtualCenter");
    if let Some(server) = &global.server
        && !named.contains(&server.0)
    {
        found.push(global.vcenter(&Defaults::default(), server));
    }
    for name in named {
        let section = format!("VirtualCenter \"{name}\"");
        let own = Defaults::read(ini, &section);
        match own.server.clone().map_or_else(|| name.parse(), Ok) {
            Ok(server) => found.push(own.vcenter(&global, &server)),
            Err(why) => ini.refuse(&section, "server", format!("{name:?}: {why}, or write the host as `server`")),
        }
    }
    if found.is_empty() {
        ini.refuse("VirtualCenter", "", "is required; write a section [VirtualCenter \"HOST\"]");
    }
    if found.len() > VCENTERS_MAX {
        ini.refuse(
            "VirtualCenter",
            "",
            format!("at most {VCENTERS_MAX} vCenters are supported; write several Providers"),
        );
    }
    found
}

/// The keys that `[Global]` and each `[VirtualCenter]` have; those of `[Global]` are the defaults.
#[derive(Default)]
struct Defaults {
    server: Option<Host>,
    port: Option<Port>,
    credential: Option<String>,
    datacenters: Vec<String>,
    families: Vec<IpFamily>,
}

impl Defaults {
    fn read(ini: &mut Ini, section: &str) -> Self {
        for key in ["user", "password"] {
            if ini.optional::<String>(section, key).is_some() {
                ini.refuse(section, key, "does not belong here, where the component reads it; write the account into `credentials` of the Provider, with the scheme `vsphere`, and its name as `credential`");
            }
        }
        for (key, why) in REPLACED {
            if ini.optional::<String>(section, key).is_some_and(|value| !value.is_empty()) {
                ini.warn(section, key, why);
            }
        }
        Self {
            server: present(ini, section, "server"),
            port: present(ini, section, "port"),
            credential: present::<Name>(ini, section, "credential").map(|name| name.0),
            datacenters: ini.optional::<List>(section, "datacenters").unwrap_or_default().0,
            families: families(ini, section),
        }
    }

    fn vcenter(&self, defaults: &Self, server: &Host) -> Vcenter {
        let or = |own: &Vec<String>, default: &Vec<String>| if own.is_empty() { default.clone() } else { own.clone() };
        let families = [&self.families, &defaults.families].into_iter().find(|families| !families.is_empty());
        let credential = self.credential.as_ref().or(defaults.credential.as_ref());
        Vcenter {
            origin: server.origin(self.port.or(defaults.port).map_or(PORT, |port| port.0)),
            credential: credential.map_or(CREDENTIAL, String::as_str).to_owned(),
            datacenters: or(&self.datacenters, &defaults.datacenters),
            families: families.cloned().unwrap_or_else(|| vec![IpFamily::Ipv4]),
        }
    }
}

/// A key whose empty value means the same as its absence, as in the examples of the vendor.
fn present<T: std::str::FromStr<Err: std::fmt::Display>>(ini: &mut Ini, section: &str, key: &str) -> Option<T> {
    non_empty(ini, section, key)?;
    ini.optional(section, key)
}

fn non_empty(ini: &mut Ini, section: &str, key: &str) -> Option<String> {
    ini.optional::<String>(section, key).filter(|value| !value.is_empty())
}

fn selection(ini: &mut Ini, kind: &str) -> Selection {
    let mut cidrs = |key: String| ini.optional::<CidrList>("Nodes", &key).unwrap_or_default().0;
    Selection {
        subnets: cidrs(format!("{kind}-network-subnet-cidr")),
        excluded: cidrs(format!("exclude-{kind}-network-subnet-cidr")),
        network: non_empty(ini, "Nodes", &format!("{kind}-vm-network-name")),
    }
}

#[cfg(test)]
mod tests;
