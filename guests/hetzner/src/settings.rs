//! The cloud-config: endpoint, network, defaults of load balancers.
//!
//! A key is the environment variable of Hetzner's own manager without `HCLOUD_`, in lower case and
//! with dashes: `HCLOUD_LOAD_BALANCERS_LOCATION` is `load-balancers-location`.
//!
//! ```text
//! network                          = kube           # name or ID
//! instances-address-family         = dualstack
//! load-balancers-location          = fsn1
//! load-balancers-use-private-ip    = true
//! ```

use std::{fmt, str::FromStr};

use skysail_guest_sdk::{
    Cidr,
    config::{Checked, Ini, Name, Url},
};

/// Base URL of the public API.
const ENDPOINT: &str = "https://api.hetzner.cloud/v1";

/// A valid cloud-config.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Base URL of the API, with the version.
    pub(crate) endpoint: String,
    /// Name of the operator's credential, a bearer token. Default `hcloud`.
    pub(crate) credential: String,
    /// Name or ID of the private network of nodes and load balancers.
    pub(crate) network: Option<String>,
    /// Whether the network has a route for the pods of each node. True by default if there is a
    /// network.
    pub(crate) routes: bool,
    /// Families of the public addresses of nodes.
    pub(crate) family: AddressFamily,
    /// Whether nodes get the label `topology.kubernetes.io/zone`. True by default.
    pub(crate) zone_label: bool,
    /// Defaults of load balancers.
    pub(crate) balancers: Balancers,
}

/// Defaults of load balancers; an annotation of the Service wins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Balancers {
    /// False: another manager serves Services.
    pub(crate) enabled: bool,
    /// Location of new load balancers; never set together with `network_zone`.
    pub(crate) location: Option<String>,
    /// Network zone of new load balancers; Hetzner chooses the location.
    pub(crate) network_zone: Option<String>,
    /// The type, such as `lb11`. None: `lb11` for new load balancers, and no change of others.
    pub(crate) kind: Option<String>,
    /// None leaves the cloud's value.
    pub(crate) algorithm: Option<Algorithm>,
    /// Whether the public interface is off. None leaves the cloud's value.
    pub(crate) disable_public_network: Option<bool>,
    /// Whether the status lists the public IPv6 address.
    pub(crate) ipv6: bool,
    /// Whether the status lists the private addresses.
    pub(crate) private_ingress: bool,
    /// Whether targets are reached by their private addresses.
    pub(crate) use_private_ip: bool,
    /// The subnet of the network that load balancers are attached to.
    pub(crate) private_subnet: Option<Cidr>,
    /// None leaves the cloud's value.
    pub(crate) proxy_protocol: Option<bool>,
    /// In seconds. None leaves the cloud's value.
    pub(crate) check_interval: Option<u64>,
    /// In seconds. None leaves the cloud's value.
    pub(crate) check_timeout: Option<u64>,
    /// None leaves the cloud's value.
    pub(crate) check_retries: Option<u64>,
}

/// Families of public addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AddressFamily {
    /// IPv4 only.
    #[default]
    Ipv4,
    /// IPv6 only.
    Ipv6,
    /// IPv4, then IPv6.
    DualStack,
}

/// How a load balancer chooses a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    RoundRobin,
    LeastConnections,
}

impl Algorithm {
    /// The word of the API.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastConnections => "least_connections",
        }
    }
}

/// Reads and checks a cloud-config.
pub(crate) fn parse(text: &str) -> Checked<Settings> {
    let mut ini = Ini::parse(text);
    let settings = read(&mut ini);
    ini.finish(settings)
}

fn read(ini: &mut Ini) -> Settings {
    let network = name(ini, "network");
    let routes = switch(ini, "network-routes-enabled");
    if routes == Some(true) && network.is_none() {
        ini.refuse("", "network-routes-enabled", "routes need a network; write the key network, too");
    }
    let settings = Settings {
        endpoint: ini.optional::<Url>("", "endpoint").map_or_else(|| ENDPOINT.to_owned(), |url| url.0),
        credential: name(ini, "credential").unwrap_or_else(|| "hcloud".to_owned()),
        routes: network.is_some() && routes.unwrap_or(true),
        network,
        family: ini.optional("", "instances-address-family").unwrap_or_default(),
        zone_label: switch(ini, "instances-zone-label-enabled").unwrap_or(true),
        balancers: balancers(ini),
    };
    if settings.balancers.use_private_ip && settings.network.is_none() {
        ini.refuse("", "load-balancers-use-private-ip", "private addresses need a network; write the key network, too");
    }
    settings
}

fn balancers(ini: &mut Ini) -> Balancers {
    let balancers = Balancers {
        enabled: switch(ini, "load-balancers-enabled").unwrap_or(true),
        location: name(ini, "load-balancers-location"),
        network_zone: name(ini, "load-balancers-network-zone"),
        kind: name(ini, "load-balancers-type"),
        algorithm: ini.optional("", "load-balancers-algorithm-type"),
        disable_public_network: switch(ini, "load-balancers-disable-public-network"),
        ipv6: !switch(ini, "load-balancers-disable-ipv6").unwrap_or(false),
        private_ingress: !switch(ini, "load-balancers-disable-private-ingress").unwrap_or(false),
        use_private_ip: switch(ini, "load-balancers-use-private-ip").unwrap_or(false),
        private_subnet: ini.optional::<Subnet>("", "load-balancers-private-subnet-ip-range").map(|subnet| subnet.0),
        proxy_protocol: switch(ini, "load-balancers-uses-proxyprotocol"),
        check_interval: seconds(ini, "load-balancers-health-check-interval"),
        check_timeout: seconds(ini, "load-balancers-health-check-timeout"),
        check_retries: ini.optional::<Retries>("", "load-balancers-health-check-retries").map(|retries| retries.0),
    };
    if balancers.location.is_some() && balancers.network_zone.is_some() {
        let why = "stands beside load-balancers-location; write only one of the two";
        ini.refuse("", "load-balancers-network-zone", why);
    }
    balancers
}

fn name(ini: &mut Ini, key: &str) -> Option<String> {
    ini.optional::<Name>("", key).map(|name| name.0)
}

fn switch(ini: &mut Ini, key: &str) -> Option<bool> {
    ini.optional::<Switch>("", key).map(|switch| switch.0)
}

fn seconds(ini: &mut Ini, key: &str) -> Option<u64> {
    ini.optional::<Seconds>("", key).map(|seconds| seconds.0)
}

/// A Boolean as Go's `strconv.ParseBool` reads it.
struct Switch(bool);

impl FromStr for Switch {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(Self(true)),
            "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(Self(false)),
            _ => Err("is not a Boolean; write true or false"),
        }
    }
}

/// Whole seconds in the form of Go's durations: `15s`, `1m30s`.
struct Seconds(u64);

impl FromStr for Seconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let sum = text.split_inclusive(['s', 'm', 'h']).try_fold(0_u64, |sum, part| {
            let (number, unit) = [("s", 1), ("m", 60), ("h", 3_600)]
                .iter()
                .find_map(|(name, seconds)| Some((part.strip_suffix(name)?, *seconds)))?;
            sum.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)
        });
        sum.filter(|sum| *sum > 0).map(Self).ok_or("is not a number of seconds; write for example 15s or 1m30s")
    }
}

/// How often a health check may fail.
struct Retries(u64);

impl FromStr for Retries {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().ok().filter(|count| *count > 0).map(Self).ok_or("is not a number of failures; write for example 3")
    }
}

/// An address range, which Hetzner's networks have for IPv4 only.
struct Subnet(Cidr);

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let cidr: Cidr = text.parse().map_err(|error: skysail_guest_sdk::Error| error.message().to_owned())?;
        if cidr.address().is_ipv4() {
            Ok(Self(cidr))
        } else {
            Err("is not a range of a private network, which has IPv4 only; write for example 10.0.1.0/24".to_owned())
        }
    }
}

impl FromStr for AddressFamily {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "ipv4" => Ok(Self::Ipv4),
            "ipv6" => Ok(Self::Ipv6),
            "dualstack" => Ok(Self::DualStack),
            _ => Err("is not an address family; write ipv4, ipv6 or dualstack"),
        }
    }
}

impl FromStr for Algorithm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "round_robin" => Ok(Self::RoundRobin),
            "least_connections" => Ok(Self::LeastConnections),
            _ => Err("is not an algorithm; write round_robin or least_connections"),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

#[cfg(test)]
mod wrong;

#[cfg(test)]
mod tests {
    use super::{AddressFamily, Algorithm, parse};

    #[test]
    fn an_empty_text_serves_nodes_and_load_balancers_without_a_network() {
        let settings = parse("").config().unwrap();
        assert_eq!(
            (settings.endpoint.as_str(), settings.credential.as_str()),
            ("https://api.hetzner.cloud/v1", "hcloud")
        );
        assert_eq!((settings.family, settings.zone_label, settings.routes), (AddressFamily::Ipv4, true, false));
        let balancers = settings.balancers;
        assert!(balancers.enabled && balancers.ipv6 && balancers.private_ingress && !balancers.use_private_ip);
        assert_eq!((balancers.kind, balancers.algorithm, balancers.proxy_protocol), (None, None, None));
    }

    #[test]
    fn every_variable_of_the_vendors_manager_has_its_key() {
        let text = "endpoint = http://127.0.0.1:4012/v1/\ncredential = token\nnetwork = kube\n\
                    network-routes-enabled = false\ninstances-address-family = dualstack\n\
                    instances-zone-label-enabled = F\nload-balancers-enabled = 1\nload-balancers-location = fsn1\n\
                    load-balancers-type = lb21\nload-balancers-algorithm-type = least_connections\n\
                    load-balancers-disable-public-network = true\nload-balancers-disable-ipv6 = true\n\
                    load-balancers-disable-private-ingress = true\nload-balancers-use-private-ip = true\n\
                    load-balancers-private-subnet-ip-range = 10.0.1.0/24\nload-balancers-uses-proxyprotocol = true\n\
                    load-balancers-health-check-interval = 1m30s\nload-balancers-health-check-timeout = 10s\n\
                    load-balancers-health-check-retries = 5\n";
        assert_eq!(parse(text).problems(), []);
        let settings = parse(text).config().unwrap();
        assert_eq!((settings.endpoint.as_str(), settings.routes), ("http://127.0.0.1:4012/v1", false));
        let balancers = settings.balancers;
        assert_eq!((balancers.check_interval, balancers.check_retries), (Some(90), Some(5)));
        assert_eq!(balancers.algorithm, Some(Algorithm::LeastConnections));
        assert_eq!(balancers.disable_public_network, Some(true));
    }

    #[test]
    fn what_needs_a_network_is_refused_without_one() {
        for text in ["network-routes-enabled = true\n", "load-balancers-use-private-ip = true\n"] {
            let problems = parse(text).problems();
            assert_eq!((problems.len(), problems[0].line), (1, 1), "{text}");
        }
        assert!(parse("network = kube\n").config().unwrap().routes);
    }
}
