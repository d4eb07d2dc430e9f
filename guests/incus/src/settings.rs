//! The cloud-config: server, project, network, addresses.
//!
//! ```text
//! endpoint = https://incus.example.com:8443
//! project  = default                              # default
//! network  = ovn0                                 # network of load balancers; without it they are refused
//! listen   = 198.51.100.200/29, 2001:db8::10-2001:db8::1f
//! region   = home
//! ```

use std::str::FromStr;

use skysail_guest_sdk::{
    config::{Checked, Ini, Name},
    labels::LabelValue,
};

use crate::pool::Pool;

/// A valid cloud-config.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Origin of the API: `https://host:port`.
    pub(crate) endpoint: String,
    /// Name of the operator's credential, a client certificate. Default `incus`.
    pub(crate) credential: String,
    /// Incus project of the instances and of the network. Default `default`.
    pub(crate) project: String,
    /// OVN or bridge network of the nodes. Without it load balancers are unsupported.
    pub(crate) network: Option<String>,
    /// Addresses for load balancers. Empty: the routes of the network's uplink.
    pub(crate) listen: Pool,
    /// Label `topology.kubernetes.io/region`. Empty by default.
    pub(crate) region: String,
    /// Label `topology.kubernetes.io/zone` where the server is not a cluster. Empty by default.
    pub(crate) zone: String,
    /// Whether OVN checks the backends. Off by default, because every node must be a port of this
    /// network.
    pub(crate) health_check: bool,
}

/// Reads and checks a cloud-config.
pub(crate) fn parse(text: &str) -> Checked<Settings> {
    let mut ini = Ini::parse(text);
    let mut listen = Pool::default();
    for part in ini.list::<Pool>("", "listen") {
        listen.extend(part);
    }
    let settings = Settings {
        endpoint: ini.required::<Endpoint>("", "endpoint").0,
        credential: name_or(&mut ini, "credential", "incus"),
        project: name_or(&mut ini, "project", "default"),
        network: ini.optional::<Name>("", "network").map(|name| name.0),
        listen,
        region: ini.optional::<LabelValue>("", "region").unwrap_or_default().0,
        zone: ini.optional::<LabelValue>("", "zone").unwrap_or_default().0,
        health_check: ini.optional("", "health-check").unwrap_or(false),
    };
    if settings.network.is_none() {
        ini.warn("", "network", "is absent: nodes are served, load balancers are refused");
    }
    ini.finish(settings)
}

fn name_or(ini: &mut Ini, key: &str, default: &str) -> String {
    ini.optional::<Name>("", key).map_or_else(|| default.to_owned(), |name| name.0)
}

/// `https://host:port`, without path, query and user.
#[derive(Default)]
struct Endpoint(String);

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let authority = text.strip_prefix("https://").ok_or("an Incus endpoint starts with https://")?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.is_empty() || authority.contains(['/', '?', '#', '@', '\\', ' ']) {
            return Err("expected https://HOST:PORT and nothing else");
        }
        Ok(Self(format!("https://{authority}")))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    const GOOD: &str = "endpoint = https://[::1]:8443/\nproject=kube\nnetwork = ovn0\nlisten = 198.51.100.200/30\n\
                        listen = 2001:db8::1-2001:db8::3 # second family\nregion = home\n";

    #[test]
    fn a_good_text_is_read_with_its_defaults() {
        let settings = parse(GOOD).config().unwrap();
        assert_eq!(settings.endpoint, "https://[::1]:8443");
        assert_eq!((settings.project.as_str(), settings.credential.as_str()), ("kube", "incus"));
        assert_eq!(settings.network.as_deref(), Some("ovn0"));
        assert!(settings.listen.contains("2001:db8::2".parse().unwrap()));
        assert!(!settings.health_check);
        assert_eq!(parse(GOOD).problems(), []);
    }

    #[test]
    fn each_fault_names_its_line_and_key() {
        let text = "endpoint = http://incus:8443\nlisten = 10.0.0.9-10.0.0.1\nregoin = x\nregion = a b\nproject = a/b\n\
                    health-check = perhaps\nnetwork = ovn0\n";
        let found: Vec<_> = parse(text).problems().into_iter().map(|p| (p.line, p.key)).collect();
        let expected =
            [(1, "endpoint"), (2, "listen"), (3, "regoin"), (4, "region"), (5, "project"), (6, "health-check")];
        assert_eq!(found, expected.map(|(line, key)| (line, key.to_owned())));
    }

    #[test]
    fn an_endpoint_is_an_origin_and_nothing_more() {
        for bad in ["https://", "https://a/1.0", "https://u@a", "https://a?x", "incus:8443", "unix:///run/incus"] {
            assert!(parse(&format!("endpoint = {bad}\n")).config().is_err(), "{bad}");
        }
        assert_eq!(parse("").problems()[0].key, "endpoint");
    }

    #[test]
    fn a_config_without_a_network_is_good_for_nodes() {
        let checked = || parse("endpoint = https://a:8443\n");
        assert!(checked().config().is_ok());
        let problems = checked().problems();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].severity, skysail_guest_sdk::Severity::Warning);
    }
}
