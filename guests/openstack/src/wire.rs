//! The types of the compute and network APIs that this provider uses, and the envelopes that all
//! APIs share. No decisions here.

mod octavia;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use skysail_guest_sdk::{Error, Result};

pub(crate) use self::octavia::{LbListener, LbMember, LbMonitor, LbPool, LoadBalancer, Statuses, Versions};

/// A response without its envelope `{"servers": […], "servers_links": […]}` or `{"server": {…}}`:
/// each API names the content after its objects.
pub(crate) struct Content<'a> {
    content: &'a RawValue,
    /// Whether the list goes on after this page.
    pub(crate) more: bool,
}

/// A link of a page: `rel` is `next` or `previous`.
#[derive(Deserialize)]
struct Link {
    #[serde(default)]
    rel: String,
}

impl<'a> Content<'a> {
    /// Opens the envelope.
    ///
    /// # Errors
    ///
    /// `internal` where the response has another shape.
    pub(crate) fn of(body: &'a [u8]) -> Result<Self> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body)?;
        let (mut content, mut more) = (None, false);
        for (key, member) in members {
            if key.ends_with("_links") {
                let links: Vec<Link> = serde_json::from_str(member.get())?;
                more |= links.iter().any(|link| link.rel == "next");
            } else {
                content = Some(member);
            }
        }
        let content =
            content.ok_or_else(|| Error::Internal("unexpected JSON: an object without content".to_owned()))?;
        Ok(Self { content, more })
    }

    /// The content as an object or a list.
    ///
    /// # Errors
    ///
    /// `internal` where it has another shape.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_str(self.content.get())?)
    }
}

/// The object in a response.
///
/// # Errors
///
/// `internal` where the response has another shape.
pub(crate) fn one<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    Content::of(body).and_then(|content| content.read()).map_err(|error| unexpected(&error))
}

/// The error of an answer that cannot be read, with the remedy.
pub(crate) fn unexpected(error: &Error) -> Error {
    let message = format!(
        "{}; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the \
         gateway before the service",
        error.message()
    );
    error.clone().with_message(message)
}

/// An object of a list: its ID is the marker of the next page.
pub(crate) trait Listed: DeserializeOwned {
    fn id(&self) -> &str;
}

macro_rules! listed {
    ($($type:ty),+) => { $(impl Listed for $type { fn id(&self) -> &str { &self.id } })+ };
}

listed!(
    Server,
    Port,
    Network,
    Subnet,
    FloatingIp,
    SecurityGroup,
    LoadBalancer,
    LbListener,
    LbPool,
    LbMember,
    LbMonitor
);

/// A server with the microversion [`crate::client::NOVA_MICROVERSION`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) name: String,
    /// `ACTIVE`, `SHUTOFF`, …
    pub(crate) status: String,
    /// The project.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) tenant_id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) metadata: Metadata,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) flavor: Flavor,
    /// The addresses in each network, by the network's name.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) addresses: BTreeMap<String, Vec<ServerAddress>>,
    #[serde(default, rename = "accessIPv4", deserialize_with = "null_is_default")]
    pub(crate) access_ipv4: String,
    #[serde(default, rename = "accessIPv6", deserialize_with = "null_is_default")]
    pub(crate) access_ipv6: String,
    #[serde(default, rename = "OS-EXT-AZ:availability_zone", deserialize_with = "null_is_default")]
    pub(crate) availability_zone: String,
}

/// What the metadata of a server says about its node.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) hostname: String,
}

/// The flavor as it was when the server was created.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Flavor {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) original_name: String,
}

/// An address of a server.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ServerAddress {
    pub(crate) addr: String,
    /// `fixed` or `floating`.
    #[serde(default, rename = "OS-EXT-IPS:type", deserialize_with = "null_is_default")]
    pub(crate) kind: String,
}

/// A port, or the fields of a port that the request named.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Port {
    pub(crate) id: String,
    /// The server, router, … that has the port.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) device_id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) network_id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) status: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) fixed_ips: Vec<FixedIp>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) trunk_details: TrunkDetails,
    /// Absent where the cloud has no extension `port-security`: then every port is secured.
    pub(crate) port_security_enabled: Option<bool>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) security_groups: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) allowed_address_pairs: Vec<AddressPair>,
    /// Counts the changes of the port; absent in clouds without the extension.
    pub(crate) revision_number: Option<u64>,
}

/// An address of a port in a subnet.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FixedIp {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) subnet_id: String,
    pub(crate) ip_address: String,
}

/// The ports of the VLANs of a port.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct TrunkDetails {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) sub_ports: Vec<SubPort>,
}

/// A port of a VLAN.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SubPort {
    pub(crate) port_id: String,
}

/// An address that a port may send from beside its own.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct AddressPair {
    pub(crate) ip_address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac_address: Option<String>,
}

/// A network.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Network {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) subnets: Vec<String>,
}

/// A subnet.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Subnet {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) name: String,
    pub(crate) network_id: String,
    pub(crate) cidr: String,
}

/// A floating IP.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FloatingIp {
    pub(crate) id: String,
    pub(crate) floating_ip_address: String,
    /// Empty where it is free.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) port_id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) description: String,
}

/// A security group with its rules.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SecurityGroup {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) security_group_rules: Vec<SecurityGroupRule>,
}

/// A rule of a security group.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SecurityGroupRule {
    pub(crate) id: String,
    pub(crate) direction: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) ethertype: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) protocol: String,
    pub(crate) port_range_min: Option<u16>,
    pub(crate) port_range_max: Option<u16>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) remote_ip_prefix: String,
}

/// A router.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Router {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) routes: Vec<RouterRoute>,
    pub(crate) revision_number: Option<u64>,
}

/// A route of a router.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RouterRoute {
    pub(crate) destination: String,
    pub(crate) nexthop: String,
}

/// An extension of the network API.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Extension {
    pub(crate) alias: String,
}

/// `GET /v3/auth/catalog`.
#[derive(Debug, Deserialize)]
pub(crate) struct Catalog {
    pub(crate) catalog: Vec<CatalogEntry>,
}

/// A service of the catalogue.
#[derive(Debug, Deserialize)]
pub(crate) struct CatalogEntry {
    pub(crate) r#type: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) endpoints: Vec<CatalogEndpoint>,
}

/// An endpoint of the catalogue.
#[derive(Debug, Deserialize)]
pub(crate) struct CatalogEndpoint {
    /// `public`, `internal` or `admin`.
    pub(crate) interface: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) region: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) region_id: String,
    pub(crate) url: String,
}

/// OpenStack sends `null` for absent texts, lists and objects.
pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
