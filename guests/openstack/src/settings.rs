//! The cloud-config: the sections and keys of the vendor's manager, and `[Skysail]` for what its
//! environment variables and this sandbox need.
//!
//! ```text
//! [Global]
//! auth-url = https://keystone.example.com:5000/v3
//! region   = RegionOne
//!
//! [LoadBalancer]
//! floating-network-id = c57af0a0-da92-49be-a98a-345ceca004b3
//! ```

mod global;
mod load_balancer;
mod values;

use skysail_guest_sdk::{
    Cidr,
    config::{Checked, Flag, Ini, Name, Url},
    labels::LabelValue,
};

pub(crate) use self::load_balancer::{Class, ContainerStore, LoadBalancer, Placement, in_barbican};
use self::values::Id;
pub(crate) use self::values::is_id;

/// A valid cloud-config.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Keystone without the version: `https://keystone.example.com:5000`.
    pub(crate) auth_url: String,
    /// Region of the catalogue and label `topology.kubernetes.io/region`; empty for clouds with one
    /// region.
    pub(crate) region: String,
    /// `public`, `internal` or `admin`.
    pub(crate) interface: &'static str,
    /// Name of the operator's credential. Default `openstack`.
    pub(crate) credential: String,
    /// Endpoints that the operator wrote down, in the order of [`APIS`].
    pub(crate) endpoints: [Option<String>; APIS.len()],
    /// Whether provider IDs of new nodes name the region.
    pub(crate) regional_provider_id: bool,
    pub(crate) networking: Networking,
    pub(crate) load_balancer: LoadBalancer,
    /// Router of the pods' routes; none switches routes off.
    pub(crate) router: Option<String>,
}

/// Which addresses of a machine its node gets.
#[derive(Debug, Default)]
pub(crate) struct Networking {
    pub(crate) ipv6_disabled: bool,
    pub(crate) public_networks: Vec<String>,
    pub(crate) internal_networks: Vec<String>,
    /// Addresses in an earlier range come first; addresses outside of all ranges keep their order.
    pub(crate) sort_order: Vec<Cidr>,
}

/// An API of OpenStack that this provider uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Api {
    Compute,
    Network,
    LoadBalancer,
    KeyManager,
}

/// Each API with its type in the catalogue and the key of its endpoint in `[Skysail]`.
pub(crate) const APIS: [(Api, &str, &str); 4] = [
    (Api::Compute, "compute", "compute-endpoint"),
    (Api::Network, "network", "network-endpoint"),
    (Api::LoadBalancer, "load-balancer", "load-balancer-endpoint"),
    (Api::KeyManager, "key-manager", "key-manager-endpoint"),
];

/// Name of the operator's credential where `[Skysail] credential` is absent.
const CREDENTIAL: &str = "openstack";

/// Reads and checks a cloud-config.
pub(crate) fn parse(text: &str) -> Checked<Settings> {
    let mut ini = Ini::parse(text);
    let settings = read(&mut ini);
    ini.finish(settings)
}

fn read(ini: &mut Ini) -> Settings {
    let credential = ini.optional::<Name>("Skysail", "credential").map_or_else(|| CREDENTIAL.to_owned(), |name| name.0);
    global::check_logins(ini, &credential);
    let region = ini.optional::<LabelValue>("Global", "region").unwrap_or_default().0;
    let regional_provider_id = flag(ini, "Skysail", "regional-provider-id", false);
    if region.is_empty() && regional_provider_id {
        ini.refuse("Skysail", "regional-provider-id", "needs the key region in [Global]; write it, or remove this key");
    } else if region.is_empty() {
        ini.warn(
            "Global",
            "region",
            "is absent: the first endpoint of each service is used, nodes get no region label; write the region",
        );
    }
    let settings = Settings {
        auth_url: without_version(ini.required::<Url>("Global", "auth-url")),
        region,
        interface: global::interface(ini),
        credential,
        endpoints: APIS.map(|(_, _, key)| ini.optional::<Url>("Skysail", key).map(|url| url.0)),
        regional_provider_id,
        networking: networking(ini),
        load_balancer: load_balancer::read(ini),
        router: ini.optional::<Id>("Route", "router-id").map(|id| id.0),
    };
    for key in ["search-order", "request-timeout"] {
        if ini.optional::<String>("Metadata", key).is_some() {
            ini.warn(
                "Metadata",
                key,
                "has no effect: the provider never reads the metadata of the machine that it runs on; remove the key",
            );
        }
    }
    ini.ignore_section("BlockStorage", "has no effect: volumes are the CSI driver's; remove the key");
    settings
}

fn networking(ini: &mut Ini) -> Networking {
    const SECTION: &str = "Networking";
    let sort_order = ini.optional::<String>(SECTION, "address-sort-order").unwrap_or_default();
    let mut ranges = Vec::new();
    for range in sort_order.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        match range.parse() {
            Ok(range) => ranges.push(range),
            Err(error) => ini.refuse(SECTION, "address-sort-order", error_text(&error)),
        }
    }
    Networking {
        ipv6_disabled: flag(ini, SECTION, "ipv6-support-disabled", false),
        public_networks: non_empty(ini.list(SECTION, "public-network-name")),
        internal_networks: non_empty(ini.list(SECTION, "internal-network-name")),
        sort_order: ranges,
    }
}

/// The URL of Keystone without a version of its API at the end.
fn without_version(Url(url): Url) -> String {
    let root = url.strip_suffix("/v3").or_else(|| url.strip_suffix("/v2.0")).unwrap_or(&url);
    root.trim_end_matches('/').to_owned()
}

fn error_text(error: &skysail_guest_sdk::Error) -> String {
    error.message().to_owned()
}

fn non_empty(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

fn flag(ini: &mut Ini, section: &str, key: &str, default: bool) -> bool {
    ini.optional::<Flag>(section, key).map_or(default, |flag| flag.0)
}

#[cfg(test)]
mod tests;
