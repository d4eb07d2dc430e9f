//! What the suite has to know about a cloud.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use skysail_host::{credentials::CredentialSpec, egress::EgressRuleSpec};
use skysail_provider::{Node, Service};

use crate::{
    proxy::{Reply, Request},
    vendor::Opening,
};

/// A cloud, or an account of its own in a cloud that several tests share. Dropping it ends what it
/// started.
#[async_trait]
pub trait Cloud: Sized + Send + Sync {
    /// The component: a file of `target/components`, without `.wasm`.
    const COMPONENT: &'static str;

    /// Longest wait between two calls of a provider that is not finished, although it may ask for
    /// more: about the time in which the cloud gets on with its work.
    const WAIT_MAX: Duration = Duration::from_millis(500);

    /// Whether the component speaks nothing but HTTPS. Then the proxies do, too, with a certificate
    /// that the egress settings of the component name; the cloud itself speaks HTTP.
    const HTTPS: bool = false;

    /// Whether the cloud knows the name of each machine at all times. Where a program inside the
    /// machine reports the name, a name that no machine has proves nothing.
    const KNOWS_ALL_NAMES: bool = true;

    /// Whether a request that fails gets one of the wrong answers of
    /// [`faults`](crate::suite::faults) instead of each: the first request the first answer, the
    /// second one the second. For services that need minutes where others need seconds.
    const ANSWERS_IN_TURN: bool = false;

    /// Starts the cloud.
    ///
    /// # Errors
    /// The environment cannot be set up; the error says what is missing.
    async fn start() -> Result<Self>;

    /// The addresses of the cloud's services. A proxy is put before each of them.
    fn services(&self) -> Vec<SocketAddr>;

    /// The operator's settings for a component that reaches the services at these origins, in the
    /// order of [`Self::services`].
    ///
    /// # Errors
    /// The example Provider of the guest cannot be read, or misses something.
    fn settings(&self, origins: &[String]) -> Result<Settings>;

    /// Whether the request can change something.
    #[must_use]
    fn is_write(request: &Request) -> bool {
        !matches!(request.method.as_str(), "GET" | "HEAD")
    }

    /// Creates running machines with these names, and returns their nodes as a cluster has them:
    /// with provider ID and addresses.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn add_machines(&self, names: &[String]) -> Result<Vec<Node>>;

    /// Creates this number of machines: `node-0000`, `node-0001` and so on.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn add_numbered_machines(&self, count: usize) -> Result<Vec<Node>> {
        self.add_machines(&numbered(count)).await
    }

    /// Powers a machine off.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn stop_machine(&self, node: &Node) -> Result<()>;

    /// Deletes a machine.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn delete_machine(&self, node: &Node) -> Result<()>;

    /// Makes the cloud refuse the credential from now on.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn revoke_credential(&self) -> Result<()>;

    /// The answer to this request if it is beyond the rate limit.
    fn throttled(request: &Request) -> Reply;
}

/// Names of this number of machines.
pub(crate) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("node-{number:04}")).collect()
}

/// A change of a Service, and its name.
pub type Change = (&'static str, fn(&mut Service));

/// Changes that several clouds can carry out.
pub(crate) mod changes {
    use skysail_provider::{Protocol, Service, SessionAffinity, TrafficPolicy};

    use super::Change;

    pub(crate) fn use_protocol(service: &mut Service, protocol: Protocol) {
        for port in &mut service.ports {
            port.protocol = protocol;
        }
    }

    pub(crate) fn use_local_policy(service: &mut Service, health_check_node_port: u16) {
        service.external_traffic_policy = TrafficPolicy::Local;
        service.health_check_node_port = health_check_node_port;
    }

    pub(crate) const PORT: Change = ("another port", |service| {
        for port in &mut service.ports {
            port.port += 1;
        }
    });
    pub(crate) const NODE_PORT: Change = ("another node port", |service| {
        for port in &mut service.ports {
            port.node_port += 1;
        }
    });
    pub(crate) const EXCHANGED_NODE_PORTS: Change = ("exchanged node ports", |service| {
        if let [one, other] = service.ports.as_mut_slice() {
            std::mem::swap(&mut one.node_port, &mut other.node_port);
        }
    });
    pub(crate) const NAMES: Change = ("another name and target of a port", |service| {
        for port in &mut service.ports {
            port.name.push('x');
            port.target_port = "8081".to_owned();
            port.app_protocol = Some("kubernetes.io/h2c".to_owned());
        }
    });
    pub(crate) const ONE_PORT_LESS: Change = ("one port less", |service| service.ports.truncate(1));
    pub(crate) const SOURCE_RANGES: Change =
        ("source ranges", |service| service.source_ranges = vec!["10.0.0.0/8".to_owned()]);
    pub(crate) const SESSION_AFFINITY: Change = ("session affinity", |service| {
        service.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 };
    });
}

/// Replaces names in braces in the annotations of a Service by these IDs of the account.
pub(crate) fn fill_in(service: &mut Service, ids: &BTreeMap<String, String>) {
    for value in service.annotations.values_mut() {
        for (name, id) in ids {
            *value = value.replace(&format!("{{{name}}}"), id);
        }
    }
}

/// The ID of a node's machine: its provider ID without this beginning.
///
/// # Errors
/// The node has no such provider ID.
pub(crate) fn machine_of<'a>(node: &'a Node, prefix: &str) -> Result<&'a str> {
    let id = node.provider_id.as_deref().and_then(|id| id.strip_prefix(prefix));
    id.with_context(|| format!("{} has no machine of this cloud", node.name))
}

/// A cloud with load balancers.
#[async_trait]
pub trait Balancers: Cloud {
    /// Load balancers on one page of the cloud's list.
    const PAGE: usize;

    /// Everything in the account that a load balancer consists of: one line for each object,
    /// sorted, without what differs between two load balancers of one kind, such as IDs and
    /// addresses.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn balancers(&self) -> Result<Vec<String>>;

    /// Adds to a Service what this cloud requires of each.
    fn require(&self, service: &mut Service);

    /// Changes of [`crate::suite::balancers::web`] that the cloud can carry out, each with its
    /// name.
    fn changes(&self) -> Vec<Change>;

    /// The answer to this request if a quota is used up; none if the cloud has no quota for it.
    fn quota_exceeded(request: &Request) -> Option<Reply>;
}

/// A cloud in which Services can share a load balancer.
#[async_trait]
pub trait Shared: Balancers {
    /// Makes the Service use the only load balancer of the account, which another Service has made.
    ///
    /// # Errors
    /// The account has no load balancer or several.
    async fn share(&self, service: &mut Service) -> Result<()>;
}

/// Nodes of a cluster that is compared with the vendor's.
pub(crate) const COMPARED_NODES: usize = 20;

/// A cloud whose vendor has a Go cloud provider.
pub trait Judged: Cloud {
    /// The vendor's provider, for a cloud whose services are at these origins.
    ///
    /// # Errors
    /// The program with the vendor's provider is missing.
    fn vendor(&self, origins: &[String]) -> Result<Opening>;

    /// What may differ.
    fn differences() -> &'static [Difference];
}

/// A cloud whose vendor's provider has load balancers.
#[async_trait]
pub trait JudgedBalancers: Judged + Balancers {
    /// Services that both have to serve alike: changes of [`crate::suite::balancers::web`].
    fn compared() -> Vec<Change>;

    /// Creates this number of machines, which are only asked about as members of a load balancer.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn add_members(&self, count: usize) -> Result<Vec<Node>> {
        self.add_numbered_machines(count).await
    }
}

/// A cloud whose component is the vendor's Go provider itself.
pub trait Sandboxed: JudgedBalancers {
    /// Operations of [`Self::operation`] that a provider sends again because it forgets between two
    /// calls, and what it would remember.
    const ASKED_AGAIN: &'static [(&'static str, &'static str)];

    /// What the request asks the cloud to do.
    fn operation(request: &Request) -> String;

    /// The part of an error of the vendor's code that is the same in two accounts.
    fn failure(error: &str) -> String;
}

/// Settings of the operator, and their name.
pub type Variant<C> = (&'static str, fn(&mut C));

/// A cloud whose vendor's provider has instances.
#[async_trait]
pub trait JudgedMachines: Judged {
    /// Settings under which both have to describe the machines alike.
    fn variants() -> Vec<Variant<Self>> {
        vec![("the example", |_| {})]
    }

    /// Nodes of all kinds, with and without machines, which are created here. Every fifth machine
    /// is stopped, every fifth deleted, and half of each kind have a node that has not been
    /// initialised.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn compared_nodes(&self) -> Result<Vec<Node>> {
        let mut nodes = self.add_numbered_machines(COMPARED_NODES).await?;
        for (number, node) in nodes.iter_mut().enumerate() {
            match number % 5 {
                1 => self.stop_machine(node).await?,
                2 => self.delete_machine(node).await?,
                _ => {}
            }
            if number % 2 == 1 {
                node.provider_id = None;
            }
        }
        Ok(nodes)
    }
}

/// Something that the component does in another way than the vendor's provider, on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The Services or the settings with the difference, by their names in the table; all of them
    /// if there is none.
    pub cases: &'static [&'static str],
    /// Parts of lines and of writes: those with one of them are not compared. None if one of both
    /// refuses the Services that the other one serves.
    pub lines: &'static [&'static str],
    /// Why; a comparison logs it.
    pub reason: &'static str,
}

/// A cloud with routes.
#[async_trait]
pub trait Routing: Cloud {
    /// Every route in the account, also those that no cluster owns: one line each, sorted, without
    /// IDs.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn routes(&self) -> Result<Vec<String>>;
}

/// A cloud whose vendor's provider has routes.
#[async_trait]
pub trait JudgedRoutes: Judged + Routing {
    /// The machines that may forward packets of pods, where [`Routing::routes`] does not say so: a
    /// line each, sorted. Takes the permission from them, because no deletion of a route does.
    ///
    /// # Errors
    /// The cloud refuses.
    async fn take_forwarding(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// The operator's settings for a component.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The cloud-config.
    pub config: String,
    /// The egress rules.
    pub rules: Vec<EgressRuleSpec>,
    /// The credentials. Their values come from `values`.
    pub credentials: BTreeMap<String, CredentialSpec>,
    /// The values of environment variables that the credentials name: all of them secret.
    pub values: BTreeMap<String, String>,
    /// The same for values that are not secret, such as the ID of an access key, which is in each
    /// request.
    pub public: BTreeMap<String, String>,
}
