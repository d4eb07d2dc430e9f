//! `[LoadBalancer]` and `[LoadBalancerClass "name"]`.

use skysail_guest_sdk::{Error, Result, config::Ini};

use super::{
    flag,
    values::{Count, Domain, Id, LbVersion, Method, Retries, Seconds, Selector},
};

const SECTION: &str = "LoadBalancer";

/// The defaults of every Service's load balancer.
#[derive(Debug)]
pub(crate) struct LoadBalancer {
    /// Whether Services get load balancers at all.
    pub(crate) enabled: bool,
    pub(crate) placement: Placement,
    /// The sections `LoadBalancerClass` with their names.
    pub(crate) classes: Vec<(String, Class)>,
    /// `lb_algorithm` of the pools.
    pub(crate) method: String,
    /// Driver of Octavia: `amphora`, `ovn`, …
    pub(crate) provider: String,
    pub(crate) monitor: Monitor,
    pub(crate) manage_security_groups: bool,
    /// Only internal load balancers are allowed.
    pub(crate) internal: bool,
    /// As the annotation `node-selector`; empty selects every node.
    pub(crate) node_selector: String,
    /// Whether Octavia deletes a load balancer with its children in one request.
    pub(crate) cascade_delete: bool,
    pub(crate) flavor: Option<String>,
    pub(crate) availability_zone: Option<String>,
    /// Domain of the made-up hostname of a load balancer with the PROXY protocol; none reports the
    /// address.
    pub(crate) ingress_hostname_suffix: Option<String>,
    /// Services that may share one load balancer.
    pub(crate) max_shared: usize,
    pub(crate) container_store: ContainerStore,
    pub(crate) tls_container_ref: Option<String>,
    /// The driver takes one object in a request: no populated load balancer, no batch of members.
    pub(crate) serial_api: bool,
}

impl LoadBalancer {
    /// Refuses what has no load balancers.
    ///
    /// # Errors
    ///
    /// `unsupported` where the cloud-config switches load balancers off.
    pub(crate) fn check_enabled(&self) -> Result<()> {
        if self.enabled {
            return Ok(());
        }
        Err(Error::Unsupported("the cloud-config switches load balancers off: [LoadBalancer] enabled".to_owned()))
    }
}

/// Networks and subnets, of the section or of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) network: Option<String>,
    pub(crate) subnet: Option<String>,
    pub(crate) member_subnet: Option<String>,
    pub(crate) floating_network: Option<String>,
    pub(crate) floating_subnet: Option<String>,
    /// Glob, or regular expression after `~`; `!` before either negates it.
    pub(crate) floating_subnet_name: Option<String>,
    /// Tags between commas; after `&` all are needed; `!` before either negates it.
    pub(crate) floating_subnet_tags: Option<String>,
}

/// A section `[LoadBalancerClass "name"]`.
pub(crate) type Class = Placement;

/// The defaults of health monitors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Monitor {
    pub(crate) create: bool,
    pub(crate) delay_seconds: u32,
    pub(crate) timeout_seconds: u32,
    pub(crate) max_retries: u32,
    pub(crate) max_retries_down: u32,
}

/// Where a `default-tls-container-ref` leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerStore {
    /// The provider checks that Barbican has it.
    Barbican,
    /// Not checked.
    External,
}

pub(super) fn read(ini: &mut Ini) -> LoadBalancer {
    let classes = ini.named_sections("LoadBalancerClass").into_iter().map(|name| {
        let placement = placement(ini, &format!("LoadBalancerClass \"{name}\""));
        (name, placement)
    });
    let classes = classes.collect();
    let provider = text(ini, "lb-provider").unwrap_or_else(|| "amphora".to_owned());
    if !["amphora", "octavia", "ovn"].contains(&provider.as_str()) {
        ini.warn(
            SECTION,
            "lb-provider",
            format!("{provider:?} is not a tested driver; write amphora, octavia or ovn, or test the driver"),
        );
    }
    let method =
        ini.optional::<Method>(SECTION, "lb-method").map_or_else(|| "ROUND_ROBIN".to_owned(), |method| method.0);
    if provider == "ovn" && method != "SOURCE_IP_PORT" {
        ini.warn(SECTION, "lb-method", "the driver ovn refuses every pool with another method; write SOURCE_IP_PORT");
    }
    ini.optional::<LbVersion>(SECTION, "lb-version");
    let suffix = text(ini, "ingress-hostname-suffix").and_then(|_| ini.optional(SECTION, "ingress-hostname-suffix"));
    let Domain(hostname_suffix) = suffix.unwrap_or_else(|| Domain("nip.io".to_owned()));
    let container_store = container_store(ini);
    let uses_hostname = flag(ini, SECTION, "enable-ingress-hostname", false);
    LoadBalancer {
        enabled: flag(ini, SECTION, "enabled", true),
        placement: placement(ini, SECTION),
        classes,
        method,
        provider,
        monitor: monitor(ini),
        manage_security_groups: flag(ini, SECTION, "manage-security-groups", false),
        internal: flag(ini, SECTION, "internal-lb", false),
        node_selector: ini
            .optional::<Selector>(SECTION, "node-selector")
            .map_or_else(String::new, |selector| selector.0),
        cascade_delete: flag(ini, SECTION, "cascade-delete", true),
        flavor: id(ini, SECTION, "flavor-id"),
        availability_zone: text(ini, "availability-zone"),
        ingress_hostname_suffix: uses_hostname.then_some(hostname_suffix),
        max_shared: ini.optional::<Count>(SECTION, "max-shared-lb").map_or(2, |count| count.0),
        container_store,
        tls_container_ref: tls_container_ref(ini, container_store),
        serial_api: flag(ini, SECTION, "provider-requires-serial-api-calls", false),
    }
}

fn placement(ini: &mut Ini, section: &str) -> Placement {
    let mut name = |key| ini.optional::<String>(section, key).filter(|text| !text.is_empty());
    let (floating_subnet_name, floating_subnet_tags) = (name("floating-subnet"), name("floating-subnet-tags"));
    if floating_subnet_name.as_deref().is_some_and(|name| name.trim_start_matches('!').starts_with('~')) {
        let why =
            "is a regular expression, which is not supported; write a glob such as public-*, or floating-subnet-tags";
        ini.refuse(section, "floating-subnet", why);
    }
    Placement {
        network: id(ini, section, "network-id"),
        subnet: id(ini, section, "subnet-id"),
        member_subnet: id(ini, section, "member-subnet-id"),
        floating_network: id(ini, section, "floating-network-id"),
        floating_subnet: id(ini, section, "floating-subnet-id"),
        floating_subnet_name,
        floating_subnet_tags,
    }
}

fn monitor(ini: &mut Ini) -> Monitor {
    let monitor = Monitor {
        create: flag(ini, SECTION, "create-monitor", false),
        delay_seconds: ini.optional::<Seconds>(SECTION, "monitor-delay").map_or(5, |seconds| seconds.0),
        timeout_seconds: ini.optional::<Seconds>(SECTION, "monitor-timeout").map_or(3, |seconds| seconds.0),
        max_retries: retries(ini, "monitor-max-retries", 1),
        max_retries_down: retries(ini, "monitor-max-retries-down", 3),
    };
    if monitor.timeout_seconds > monitor.delay_seconds {
        let Monitor { delay_seconds, timeout_seconds, .. } = monitor;
        let why = format!("{timeout_seconds}s is longer than monitor-delay, {delay_seconds}s; write a shorter time");
        ini.refuse(SECTION, "monitor-timeout", why);
    }
    monitor
}

fn retries(ini: &mut Ini, key: &str, default: u32) -> u32 {
    ini.optional::<Retries>(SECTION, key).map_or(default, |retries| retries.0)
}

/// The kind and the ID of a reference to a container or a secret of Barbican.
pub(crate) fn in_barbican(reference: &str) -> Option<(&str, &str)> {
    let mut parts = reference.rsplit('/');
    let (id, kind) = (parts.next()?, parts.next()?);
    ["containers", "secrets"].contains(&kind).then_some((kind, id)).filter(|_| !id.is_empty())
}

fn tls_container_ref(ini: &mut Ini, store: ContainerStore) -> Option<String> {
    const KEY: &str = "default-tls-container-ref";
    let reference = text(ini, KEY)?;
    if store == ContainerStore::Barbican && in_barbican(&reference).is_none() {
        let why = format!(
            "{reference:?} is not a reference to a container or secret; write https://HOST/v1/containers/UUID or \
             https://HOST/v1/secrets/UUID, or set container-store = external"
        );
        ini.refuse(SECTION, KEY, why);
    }
    Some(reference)
}

fn container_store(ini: &mut Ini) -> ContainerStore {
    match text(ini, "container-store").as_deref() {
        None | Some("barbican") => ContainerStore::Barbican,
        Some("external") => ContainerStore::External,
        Some(other) => {
            ini.warn(
                SECTION,
                "container-store",
                format!("{other:?} is neither, so nothing is checked; write barbican or external"),
            );
            ContainerStore::External
        }
    }
}

fn text(ini: &mut Ini, key: &str) -> Option<String> {
    ini.optional::<String>(SECTION, key).filter(|text| !text.is_empty())
}

/// An ID; an empty value counts as absent, as in the vendor's manager.
fn id(ini: &mut Ini, section: &str, key: &str) -> Option<String> {
    let empty = ini.optional::<String>(section, key)?.is_empty();
    if empty { None } else { ini.optional::<Id>(section, key).map(|id| id.0) }
}
