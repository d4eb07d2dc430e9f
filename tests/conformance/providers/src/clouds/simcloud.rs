//! The simulated cloud of `skysail dev`.

use std::{collections::BTreeMap, marker::PhantomData, net::SocketAddr};

use anyhow::Result;
use async_trait::async_trait;
use skysail_dev::cloud::{Knobs, SimCloud, SimOptions, SimServer};
use skysail_host::{
    credentials::{CredentialSpec, ValueFrom},
    egress::EgressRuleSpec,
};
use skysail_provider::{AddressKind, Node, NodeAddress, Service};

use crate::{
    cloud::{Balancers, Change, Cloud, Routing, Settings, changes, machine_of},
    proxy::{Reply, Request},
};

/// What provider IDs begin with.
const SCHEME: &str = "simcloud://";

/// The language of a provider for the simulated cloud.
pub trait Language: Send + Sync + 'static {
    /// As [`Cloud::COMPONENT`].
    const COMPONENT: &'static str;
}

/// `guests/simcloud`.
#[derive(Debug)]
pub struct Rust;

/// `guests/simcloud-go`.
#[derive(Debug)]
pub struct Go;

/// `guests/simcloud-js`.
#[derive(Debug)]
pub struct JavaScript;

/// `guests/simcloud-python`.
#[derive(Debug)]
pub struct Python;

impl Language for Rust {
    const COMPONENT: &'static str = "simcloud";
}

impl Language for Go {
    const COMPONENT: &'static str = "simcloud-go";
}

impl Language for JavaScript {
    const COMPONENT: &'static str = "simcloud-js";
}

impl Language for Python {
    const COMPONENT: &'static str = "simcloud-python";
}

/// A simulated cloud of its own, for the provider in this language.
#[derive(Debug)]
pub struct Simulated<L> {
    cloud: SimCloud,
    server: SimServer,
    language: PhantomData<L>,
}

#[async_trait]
impl<L: Language> Cloud for Simulated<L> {
    const COMPONENT: &'static str = L::COMPONENT;

    async fn start() -> Result<Self> {
        let cloud = SimCloud::new(SimOptions::isolated());
        cloud.set_knobs(Knobs { page_entries_max: Self::PAGE, ..cloud.knobs() })?;
        let server = cloud.serve(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        Ok(Self { cloud, server, language: PhantomData })
    }

    fn services(&self) -> Vec<SocketAddr> {
        self.server.url.strip_prefix("http://").and_then(|address| address.parse().ok()).into_iter().collect()
    }

    fn settings(&self, origins: &[String]) -> Result<Settings> {
        let bearer = Some(ValueFrom::Env("TOKEN".to_owned()));
        let api = CredentialSpec { origins: origins.to_vec(), bearer, ..CredentialSpec::default() };
        Ok(Settings {
            config: format!("[Global]\nendpoint = {}\nzone = zone-a\n", origins.concat()),
            rules: vec![EgressRuleSpec { origins: origins.to_vec(), ..EgressRuleSpec::default() }],
            credentials: BTreeMap::from([("api".to_owned(), api)]),
            values: BTreeMap::from([("TOKEN".to_owned(), self.server.token.clone())]),
            ..Settings::default()
        })
    }

    async fn add_machines(&self, names: &[String]) -> Result<Vec<Node>> {
        let add = |name: &String| {
            let machine = self.cloud.add_instance(name, "zone-a")?;
            let address = machine.private_address.to_string();
            Ok(Node {
                name: name.clone(),
                provider_id: Some(format!("{SCHEME}{}", machine.id)),
                addresses: vec![NodeAddress { kind: AddressKind::InternalIp, address }],
                ..Node::default()
            })
        };
        names.iter().map(add).collect()
    }

    async fn stop_machine(&self, node: &Node) -> Result<()> {
        self.cloud.stop_instance(machine_of(node, SCHEME)?).await?;
        Ok(())
    }

    async fn delete_machine(&self, node: &Node) -> Result<()> {
        Ok(self.cloud.delete_instance(machine_of(node, SCHEME)?).await?)
    }

    async fn revoke_credential(&self) -> Result<()> {
        self.cloud.expire_token();
        Ok(())
    }

    fn throttled(_request: &Request) -> Reply {
        Reply { status: 429, headers: vec![("retry-after", "7".to_owned())], body: String::new() }
    }
}

#[async_trait]
impl<L: Language> Balancers for Simulated<L> {
    // The default of 500 load balancers would take minutes.
    const PAGE: usize = 50;

    async fn balancers(&self) -> Result<Vec<String>> {
        let snapshot = self.cloud.snapshot();
        let names: BTreeMap<_, _> =
            snapshot.instances.iter().map(|machine| (machine.private_address, machine.name.as_str())).collect();
        let addresses = snapshot.elastic_ips.iter().map(|ip| format!("elastic IP {} {:?}", ip.name, ip.tags));
        let servers = snapshot.virtual_servers.iter().map(|server| {
            let backends: Vec<String> = server
                .real_servers
                .iter()
                .map(|real| {
                    let name = names.get(&real.address).copied().unwrap_or("a machine that is gone");
                    format!("{name}:{}", real.port)
                })
                .collect();
            format!(
                "virtual server {}:{} to {backends:?} from {:?} affinity {} {:?}",
                server.name, server.port, server.allowed_sources, server.session_affinity_seconds, server.tags
            )
        });
        let mut lines: Vec<String> = addresses.chain(servers).collect();
        lines.sort();
        Ok(lines)
    }

    fn require(&self, _service: &mut Service) {}

    fn changes(&self) -> Vec<Change> {
        vec![
            changes::PORT,
            changes::NODE_PORT,
            changes::EXCHANGED_NODE_PORTS,
            changes::NAMES,
            changes::ONE_PORT_LESS,
            changes::SOURCE_RANGES,
            changes::SESSION_AFFINITY,
        ]
    }

    fn quota_exceeded(_request: &Request) -> Option<Reply> {
        None
    }
}

#[async_trait]
impl<L: Language> Routing for Simulated<L> {
    async fn routes(&self) -> Result<Vec<String>> {
        let snapshot = self.cloud.snapshot();
        let routes = snapshot.routes.iter().map(|route| format!("{} {}", route.name, route.destination_cidr));
        let mut lines: Vec<String> = routes.collect();
        lines.sort();
        Ok(lines)
    }
}
