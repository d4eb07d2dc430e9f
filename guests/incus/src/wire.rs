//! The types of the Incus API that this provider uses. No decisions here.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// Keys and values of an Incus object.
pub(crate) type Config = BTreeMap<String, String>;

/// The envelope of every response.
#[derive(Debug, Deserialize)]
pub(crate) struct Envelope<T> {
    pub(crate) metadata: T,
}

/// A response with status 202: the operation continues.
#[derive(Debug, Deserialize)]
pub(crate) struct Started {
    /// `/1.0/operations/<id>`, with the project as a query where it is not the default one.
    pub(crate) operation: String,
}

/// `GET /1.0/operations/<id>/wait`.
#[derive(Debug, Deserialize)]
pub(crate) struct Operation {
    pub(crate) status_code: u32,
    #[serde(default)]
    pub(crate) err: String,
}

/// One element of `GET /1.0/instances?recursion=1` (without `state`) or `2`.
#[derive(Debug, Deserialize)]
pub(crate) struct Instance {
    pub(crate) name: String,
    /// `container` or `virtual-machine`.
    #[serde(default)]
    pub(crate) r#type: String,
    pub(crate) status_code: u32,
    /// Cluster member; `none` where the server is not a cluster.
    #[serde(default)]
    pub(crate) location: String,
    /// Includes the values of the profiles.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) expanded_config: Config,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) expanded_devices: BTreeMap<String, Config>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) state: InstanceState,
}

/// The current state of a running instance.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct InstanceState {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) network: BTreeMap<String, Interface>,
}

/// One interface inside an instance.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Interface {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) addresses: Vec<Address>,
    #[serde(default)]
    pub(crate) hwaddr: String,
    /// The other end of the pair, on the host of the instance.
    #[serde(default)]
    pub(crate) host_name: String,
}

/// One address of an interface.
#[derive(Debug, Deserialize)]
pub(crate) struct Address {
    pub(crate) address: String,
    /// `global`, `link` or `local`.
    pub(crate) scope: String,
}

/// `GET /1.0/networks/<name>`.
#[derive(Debug, Deserialize)]
pub(crate) struct Network {
    /// `ovn`, `bridge`, …
    pub(crate) r#type: String,
    /// Empty for a client without permission.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) config: Config,
}

/// One element of `GET /1.0/network-allocations`.
#[derive(Debug, Deserialize)]
pub(crate) struct Allocation {
    /// Addresses with their prefix length.
    pub(crate) addresses: String,
}

/// A network load balancer, of an OVN network.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct LoadBalancer {
    pub(crate) listen_address: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) config: Config,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) backends: Vec<Backend>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) ports: Vec<LoadBalancerPort>,
}

/// One target of a network load balancer.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Backend {
    /// Unique in its load balancer, without spaces.
    pub(crate) name: String,
    pub(crate) target_address: String,
    #[serde(default)]
    pub(crate) target_port: String,
}

/// One port of a network load balancer. Incus refuses one without a backend.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct LoadBalancerPort {
    pub(crate) listen_port: String,
    /// `tcp` or `udp`.
    pub(crate) protocol: String,
    /// Names of backends.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) target_backend: Vec<String>,
}

/// A network forward, of a bridge network.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Forward {
    pub(crate) listen_address: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) config: Config,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) ports: Vec<ForwardPort>,
}

/// One port of a network forward: it has one target.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ForwardPort {
    /// This provider stores the node's name here.
    #[serde(default)]
    pub(crate) description: String,
    pub(crate) listen_port: String,
    pub(crate) protocol: String,
    #[serde(default)]
    pub(crate) target_port: String,
    pub(crate) target_address: String,
}

/// Incus is written in Go and sends `null` for an empty list or map.
fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
