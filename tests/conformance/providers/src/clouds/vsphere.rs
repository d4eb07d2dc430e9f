//! VMware vCenter Server, played by govmomi's simulator: `vcsim`, a program of this crate.

mod machines;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use skysail_host::credentials::{CredentialSpec, ValueFrom, VsphereSpec};
use skysail_provider::{AddressKind, Node, NodeAddress};
use tempfile::TempDir;

pub use self::machines::{Machine, Nic};
use crate::{
    cloud::{Cloud, Difference, Judged, JudgedMachines, Settings, Variant, machine_of},
    component, example,
    process::Program,
    proxy::{Reply, Request},
    vendor::Opening,
};

/// What provider IDs begin with.
const SCHEME: &str = "vsphere://";

/// Longest start on a busy machine; it takes a fifth of a second on an idle one.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The datacenter of the example Provider.
const DATACENTER: &str = "DC0";
/// Tags on the objects above the machines: category, tag, path of the object.
const TAGS: [[&str; 3]; 2] = [["k8s-region", "region-1", "/DC0"], ["k8s-zone", "zone-a", "/DC0/host/DC0_C0"]];
/// Beginnings of the names of the methods of SOAP that change nothing in the inventory.
const READ_ONLY: [&str; 5] = ["Retrieve", "ContinueRetrieve", "Find", "Login", "Logout"];

/// A vCenter with two datacenters, `DC0` and `F0/DC1`, each with a cluster of two hosts, `DC0_C0`
/// with `DC0_C0_H0` and `DC0_C0_H1`.
#[derive(Debug)]
pub struct Vsphere {
    /// The value of `datacenters` in the cloud-config.
    pub datacenters: String,
    /// Whether the cloud-config has the section `[Labels]`, as the example has.
    pub labels: bool,
    /// Further lines of the cloud-config.
    pub more: &'static str,
    facts: Facts,
    program: Program,
    // After the program, which has its files there.
    _folder: TempDir,
}

#[derive(Debug, Deserialize)]
struct Facts {
    address: SocketAddr,
    user: String,
    password: String,
}

/// The answer to a question for machines.
#[derive(Debug, Deserialize)]
struct Addition {
    machines: Vec<Created>,
}

/// A machine that was created.
#[derive(Debug, Deserialize)]
struct Created {
    uuid: String,
    address: String,
}

impl Vsphere {
    /// Creates running machines with these names and UUIDs. Machines without a UUID get a random
    /// one.
    ///
    /// # Errors
    /// As [`Self::add_all`].
    pub fn add(&self, datacenter: &str, machines: &[(&str, Option<&str>)]) -> Result<Vec<Node>> {
        let machine = |(name, uuid): &(&str, Option<&str>)| Machine {
            name: (*name).to_owned(),
            uuid: uuid.map(str::to_owned),
            ..Machine::default()
        };
        self.add_all(datacenter, &machines.iter().map(machine).collect::<Vec<_>>())
    }

    /// Creates running machines in the datacenter at this inventory path, by turns on its two
    /// hosts.
    ///
    /// # Errors
    /// The simulator refuses.
    pub fn add_all(&self, datacenter: &str, machines: &[Machine]) -> Result<Vec<Node>> {
        let answer = self.program.ask(&json!({"add": {"datacenter": datacenter, "machines": machines}}))?;
        let Addition { machines: created } = serde_json::from_value(answer)?;
        ensure!(created.len() == machines.len(), "{} machines were created", created.len());
        Ok(created.iter().zip(machines).map(|(created, machine)| node(&machine.name, created)).collect())
    }

    /// The cloud-config for a vCenter at this origin, with further keys of the vCenter.
    fn config(&self, origin: &str, keys: &str) -> Result<String> {
        let port = origin.rsplit(':').next().context("the proxy has no port")?;
        let Self { datacenters, labels, more, .. } = self;
        let labels = if *labels { "[Labels]\nregion = k8s-region\nzone = k8s-zone\n" } else { "" };
        Ok(format!("[VirtualCenter \"127.0.0.1\"]\nport = {port}\ndatacenters = {datacenters}\n{keys}{labels}{more}"))
    }

    /// Attaches a tag to the object at an inventory path.
    ///
    /// # Errors
    /// The simulator refuses.
    pub fn tag(&self, category: &str, tag: &str, path: &str) -> Result<()> {
        self.program.ask(&json!({"tag": {"category": category, "tag": tag, "path": path}})).map(drop)
    }

    /// Ends all sessions of the account, as a restart of vCenter Server does.
    ///
    /// # Errors
    /// The simulator refuses.
    pub fn end_sessions(&self) -> Result<()> {
        self.program.ask(&json!({"end": true})).map(drop)
    }
}

#[async_trait]
impl Cloud for Vsphere {
    const COMPONENT: &'static str = "vsphere";
    const HTTPS: bool = true;
    // VMware Tools report the host name of a machine some time after its start.
    const KNOWS_ALL_NAMES: bool = false;

    async fn start() -> Result<Self> {
        // Datastores are folders, and each machine makes four files there: in memory where Linux
        // has such a folder, because a disk takes twice the time.
        let folder = tempfile::Builder::new().prefix("vcsim-").tempdir_in(memory_folder())?;
        let mut command = Command::new(component::tool("test", "bin/vcsim")?);
        command.env("TMPDIR", folder.path());
        let (program, facts) = Program::start(command, READY_WITHIN)?;
        let facts = serde_json::from_value(facts).context("the facts of the simulator")?;
        let datacenters = DATACENTER.to_owned();
        let vsphere = Self { datacenters, labels: true, more: "", facts, program, _folder: folder };
        for [category, tag, path] in TAGS {
            vsphere.tag(category, tag, path)?;
        }
        Ok(vsphere)
    }

    fn services(&self) -> Vec<SocketAddr> {
        vec![self.facts.address]
    }

    fn settings(&self, origins: &[String]) -> Result<Settings> {
        let origin = origins.concat();
        let config = self.config(&origin, "")?;
        let account = VsphereSpec {
            url: origin.clone(),
            username: self.facts.user.clone(),
            password: ValueFrom::Env("PASSWORD".to_owned()),
        };
        let credential =
            CredentialSpec { origins: origins.to_vec(), vsphere: Some(account), ..CredentialSpec::default() };
        Ok(Settings {
            config,
            rules: example::rules("vsphere", &[("https://vcenter.example.com", &origin)])?,
            credentials: BTreeMap::from([("vsphere".to_owned(), credential)]),
            values: BTreeMap::from([("PASSWORD".to_owned(), self.facts.password.clone())]),
            ..Settings::default()
        })
    }

    /// SOAP and the tags' API read by POST, too, and the host logs in by POST.
    fn is_write(request: &Request) -> bool {
        if request.path == "/sdk" {
            let body = String::from_utf8_lossy(&request.body);
            let method = body.split_once("Body>").and_then(|(_, body)| body.strip_prefix('<'));
            return !method.is_some_and(|method| READ_ONLY.iter().any(|name| method.starts_with(name)));
        }
        let is_read = request.path.contains("~action=list-") || request.path.ends_with("/cis/session");
        request.method != "GET" && !is_read
    }

    async fn add_machines(&self, names: &[String]) -> Result<Vec<Node>> {
        let machines: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
        self.add(&format!("/{DATACENTER}"), &machines)
    }

    async fn stop_machine(&self, node: &Node) -> Result<()> {
        self.program.ask(&json!({"stop": machine_of(node, SCHEME)?})).map(drop)
    }

    async fn delete_machine(&self, node: &Node) -> Result<()> {
        self.program.ask(&json!({"delete": machine_of(node, SCHEME)?})).map(drop)
    }

    async fn revoke_credential(&self) -> Result<()> {
        self.program.ask(&json!({"revoke": true})).map(drop)
    }

    /// vCenter Server bounds the sessions and the connections, and answers 503 beyond. Its
    /// documents name no header with a time.
    fn throttled(_request: &Request) -> Reply {
        Reply::new(503, "503 Service Unavailable")
    }
}

impl Judged for Vsphere {
    fn vendor(&self, origins: &[String]) -> Result<Opening> {
        let Facts { user, password, .. } = &self.facts;
        // The proxy's certificate is signed by nobody.
        let keys = format!("user = \"{user}\"\npassword = \"{password}\"\ninsecure-flag = true\n");
        let config = self.config(&origins.concat(), &keys)?;
        let environment = BTreeMap::from([("ENABLE_ALPHA_DUAL_STACK".to_owned(), "true".to_owned())]);
        Ok(Opening { setup: "vsphere", program: "vendor-vsphere", config, environment })
    }

    fn differences() -> &'static [Difference] {
        machines::DIFFERENCES
    }
}

#[async_trait]
impl JudgedMachines for Vsphere {
    fn variants() -> Vec<Variant<Self>> {
        machines::variants()
    }

    async fn compared_nodes(&self) -> Result<Vec<Node>> {
        machines::compared_nodes(self).await
    }
}

fn memory_folder() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

fn node(name: &str, created: &Created) -> Node {
    let Created { uuid, address } = created;
    let kinds = [AddressKind::InternalIp, AddressKind::ExternalIp];
    let addresses = kinds.map(|kind| NodeAddress { kind, address: address.clone() });
    let host_name = NodeAddress { kind: AddressKind::Hostname, address: name.to_owned() };
    Node {
        name: name.to_owned(),
        provider_id: Some(format!("{SCHEME}{uuid}")),
        addresses: std::iter::once(host_name).chain(addresses).collect(),
        ..Node::default()
    }
}
