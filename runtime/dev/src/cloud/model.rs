//! The records of the simulated cloud: these types are the JSON that a provider reads and sends.

use std::{collections::BTreeMap, net::Ipv4Addr};

use serde::{Deserialize, Serialize};

/// Free key-value pairs on a record, such as its owner and its purpose.
pub type Tags = BTreeMap<String, String>;

/// A place for machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Unique.
    pub name: String,
    /// The region it is in.
    pub region: String,
}

/// Power state of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// The machine's programs answer.
    Running,
    /// The machine exists, and no program on it answers.
    Stopped,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Unique and never reused.
    pub id: String,
    /// Unique among the machines that exist.
    pub name: String,
    /// Name of a zone.
    pub zone: String,
    /// For example `sim.small`.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// On loopback; the programs of the machine listen on it.
    pub private_address: Ipv4Addr,
    /// None without one.
    pub public_address: Option<Ipv4Addr>,
    /// On or off.
    pub state: Power,
    /// As given.
    pub tags: Tags,
}

/// The request for a new machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewInstance {
    /// 1 to 63 bytes.
    pub name: String,
    /// Name of a zone; the first one by default.
    #[serde(default)]
    pub zone: Option<String>,
    /// `sim.small` by default.
    #[serde(default, rename = "type")]
    pub instance_type: Option<String>,
    /// Whether the machine gets a public address besides the private one; false by default.
    #[serde(default)]
    pub public: bool,
    /// At most 32.
    #[serde(default)]
    pub tags: Tags,
}

/// A route for a pod CIDR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Unique and never reused.
    pub id: String,
    /// As given.
    pub name: String,
    /// Unique among the routes that exist; masked.
    pub destination_cidr: String,
    /// ID of the target machine.
    pub instance: String,
    /// The target machine does not exist any more.
    pub blackhole: bool,
    /// As given.
    pub tags: Tags,
}

/// The request for a new route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRoute {
    /// 1 to 255 bytes.
    pub name: String,
    /// For example `10.244.3.0/24`.
    pub destination_cidr: String,
    /// ID of a machine that exists.
    pub instance: String,
    /// At most 32.
    #[serde(default)]
    pub tags: Tags,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Unique and never reused.
    pub id: String,
    /// As given; not unique.
    pub name: String,
    /// Name of a zone; machines of other zones cannot use the disk.
    pub zone: String,
    /// As given.
    pub size_gib: u32,
    /// As given.
    pub tags: Tags,
}

/// The request for a new disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// 1 to 255 bytes.
    pub name: String,
    /// Name of a zone; the first one by default.
    #[serde(default)]
    pub zone: Option<String>,
    /// 1 to 65536.
    pub size_gib: u32,
    /// At most 32.
    #[serde(default)]
    pub tags: Tags,
}

/// Whether a requested record is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// Being created: ask again.
    Pending,
    /// Ready.
    Active,
}

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElasticIp {
    /// Unique and never reused.
    pub id: String,
    /// As given; not unique.
    pub name: String,
    /// On loopback, of the cloud's pool.
    pub address: Ipv4Addr,
    /// `pending` for the time of the knob `provisioning_ms`.
    pub state: Progress,
    /// As given.
    pub tags: Tags,
}

/// The request for a new elastic IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewElasticIp {
    /// 1 to 255 bytes.
    pub name: String,
    /// A free address of the pool; the lowest free one by default.
    #[serde(default)]
    pub address: Option<Ipv4Addr>,
    /// At most 32.
    #[serde(default)]
    pub tags: Tags,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Carried.
    Tcp,
    /// Refused.
    Udp,
    /// Refused.
    Sctp,
}

/// The health of a backend as the virtual server observed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// No recent connection.
    Unknown,
    /// The last connection was accepted.
    Healthy,
    /// The last connection failed: for some seconds other backends are preferred.
    Unhealthy,
}

/// A backend in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// On loopback.
    pub address: Ipv4Addr,
    /// 1 to 65535.
    pub port: u16,
}

/// A backend in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealServer {
    /// As given.
    pub address: Ipv4Addr,
    /// As given.
    pub port: u16,
    /// The observed health.
    pub health: Health,
}

/// A port of an elastic IP that forwards to real servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualServer {
    /// Unique and never reused.
    pub id: String,
    /// As given; not unique.
    pub name: String,
    /// ID of its elastic IP.
    pub elastic_ip: String,
    /// The elastic IP's address.
    pub address: Ipv4Addr,
    /// Always `tcp`.
    pub protocol: Protocol,
    /// Unique on its elastic IP.
    pub port: u16,
    /// Sorted, without duplicates.
    pub real_servers: Vec<RealServer>,
    /// CIDRs of the clients that may connect; empty means every client.
    pub allowed_sources: Vec<String>,
    /// Time for which a client keeps its real server after its last connection; 0 switches affinity
    /// off.
    pub session_affinity_seconds: u32,
    /// `pending` for the time of the knob `provisioning_ms`; it forwards traffic from the start.
    pub state: Progress,
    /// As given.
    pub tags: Tags,
}

/// The request for a new virtual server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewVirtualServer {
    /// 1 to 255 bytes.
    pub name: String,
    /// ID of an elastic IP.
    pub elastic_ip: String,
    /// Only `tcp` is carried.
    pub protocol: Protocol,
    /// 1 to 65535.
    pub port: u16,
    /// Backends.
    #[serde(default)]
    pub real_servers: Vec<Backend>,
    /// CIDRs.
    #[serde(default)]
    pub allowed_sources: Vec<String>,
    /// 0 to 86400.
    #[serde(default)]
    pub session_affinity_seconds: u32,
    /// At most 32.
    #[serde(default)]
    pub tags: Tags,
}

/// The changes of a virtual server; absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtualServerPatch {
    /// All backends.
    #[serde(default)]
    pub real_servers: Option<Vec<Backend>>,
    /// All CIDRs.
    #[serde(default)]
    pub allowed_sources: Option<Vec<String>>,
    /// 0 to 86400.
    #[serde(default)]
    pub session_affinity_seconds: Option<u32>,
}

/// A Kubernetes cluster that the cloud runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Unique.
    pub name: String,
    /// Address of its API server.
    pub master: String,
}

/// A public key that every machine has for a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshKey {
    /// Unique and never reused.
    pub id: String,
    /// Login name.
    pub user: String,
    /// In OpenSSH's format.
    pub key: String,
}

/// A key to add; an existing key of the user stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSshKey {
    /// Login name.
    pub user: String,
    /// In OpenSSH's format.
    pub key: String,
}

/// All records, for assertions; each list is sorted by ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Machines.
    pub instances: Vec<Instance>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Disks.
    pub volumes: Vec<Volume>,
    /// Elastic IPs.
    pub elastic_ips: Vec<ElasticIp>,
    /// Virtual servers with their real servers.
    pub virtual_servers: Vec<VirtualServer>,
    /// Keys.
    pub ssh_keys: Vec<SshKey>,
}

impl Snapshot {
    /// Whether there is no elastic IP and no virtual server.
    #[must_use]
    pub fn has_no_load_balancers(&self) -> bool {
        self.elastic_ips.is_empty() && self.virtual_servers.is_empty()
    }
}
