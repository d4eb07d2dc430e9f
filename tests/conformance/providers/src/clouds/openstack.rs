//! OpenStack: the real services on loopback, with a fake hypervisor and without amphorae. The
//! folder `openstack` of this crate has the program that starts them.

mod changes;
mod traffic;

use std::{collections::BTreeMap, fs, net::SocketAddr, process::Command, time::Duration};

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use skysail_host::credentials::{
    ApplicationCredentialSpec, CredentialSpec, KeystoneNameSpec, KeystonePasswordSpec, KeystoneSpec, ValueFrom,
};
use skysail_provider::{AddressKind, Node, NodeAddress, Service};
use tokio::sync::OnceCell;

pub use self::traffic::Answers;
use crate::{
    cloud::{
        Balancers, Change, Cloud, Difference, Judged, JudgedBalancers, JudgedMachines, JudgedRoutes, Routing, Settings,
        Shared, fill_in, machine_of, numbered,
    },
    component, example,
    process::Program,
    proxy::{Reply, Request},
    vendor::Opening,
};

/// What provider IDs begin with.
const SCHEME: &str = "openstack:///";

/// Six services start within 40 seconds of CPU time. More than `READY_SECONDS` of `cloud.py`, whose
/// error has the log of the service that is late.
const READY_WITHIN: Duration = Duration::from_secs(660);

/// The services that a provider reaches, in the order of the proxies: name, and origin in the
/// guest's example.
const SERVICES: [(&str, &str); 4] = [
    ("keystone", "https://keystone.example.com:5000"),
    ("nova", "https://nova.example.com:8774"),
    ("neutron", "https://neutron.example.com:9696"),
    ("octavia", "https://octavia.example.com:9876"),
];

/// Servers that Nova makes at most for one question: each is a second of its CPU.
const MADE_MAX: usize = 20;

/// The driver of Octavia without a network behind it. All tests of a process share the services;
/// each has a project of its own.
static AMPHORA: Driver = Driver { program: "cloud.py", balancer: "", running: OnceCell::const_new() };

/// A driver of Octavia, and the services that have it.
struct Driver {
    /// The program that starts the services.
    program: &'static str,
    /// Lines of the section `[LoadBalancer]`.
    balancer: &'static str,
    running: OnceCell<Running>,
}

struct Running {
    program: Program,
    services: [SocketAddr; SERVICES.len()],
}

impl Running {
    fn start(program: &str) -> Result<Self> {
        let folder = component::target()?.join("openstack");
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be created", folder.display()))?;
        let mut command = Command::new(component::tool("openstack", "openstack/bin/python")?);
        command.arg(format!("{}/openstack/{program}", env!("CARGO_MANIFEST_DIR"))).arg(folder);
        let (program, facts) = Program::start(command, READY_WITHIN)?;
        let address = |(name, _)| {
            let url = facts.pointer(&format!("/services/{name}")).and_then(Value::as_str).unwrap_or_default();
            let address = url.strip_prefix("http://").and_then(|address| address.parse().ok());
            address.with_context(|| format!("the program names no address of {name}: {facts}"))
        };
        let [keystone, nova, neutron, octavia] = SERVICES.map(address);
        Ok(Self { program, services: [keystone?, nova?, neutron?, octavia?] })
    }
}

/// A project of its own, with a user, a network and a router.
pub struct OpenStack {
    driver: &'static Driver,
    running: &'static Running,
    account: Account,
    /// [`Self::account`] as the program wrote it.
    facts: Value,
    login: Login,
}

#[derive(Debug, Deserialize)]
struct Account {
    name: String,
    password: String,
    router: String,
    external: String,
    /// IDs that annotations name, by the names in braces of the suite's Services.
    names: BTreeMap<String, String>,
}

/// How the provider logs in and finds the services.
enum Login {
    /// By password; the project's catalogue has the proxies.
    Password,
    /// By this application credential; the cloud-config has the proxies.
    ApplicationCredential { id: String, secret: String },
}

#[derive(Deserialize)]
struct Machine {
    id: String,
    name: String,
    address: String,
}

impl OpenStack {
    async fn open(driver: &'static Driver) -> Result<Self> {
        let start = || Running::start(driver.program);
        let running = driver
            .running
            .get_or_try_init(async || tokio::task::spawn_blocking(start).await.context("the start panicked")?)
            .await?;
        let facts = running.program.ask(&json!({"do": "account"}))?;
        let account = Account::deserialize(&facts).context("the program describes no account")?;
        Ok(Self { driver, running, account, facts, login: Login::Password })
    }

    fn ask<const N: usize>(&self, what: &str, more: [(&str, Value); N]) -> Result<Value> {
        let mut question = json!({"do": what, "account": self.facts});
        if let Some(question) = question.as_object_mut() {
            question.extend(more.map(|(key, value)| (key.to_owned(), value)));
        }
        self.running.program.ask(&question)
    }

    /// The cloud-config, with further keys of the section `[Global]`.
    fn config(&self, keystone: &str, keys: &str) -> String {
        let Account { router, external, names, .. } = &self.account;
        let id = |name: &str| names.get(name).map(String::as_str).unwrap_or_default();
        let (subnet, floating_subnet) = (id("subnet"), id("floating-subnet"));
        let balancer = self.driver.balancer;
        format!(
            "[Global]\nauth-url = {keystone}/v3\nregion = RegionOne\n{keys}\
             [LoadBalancer]\nfloating-network-id = {external}\n{balancer}\
             [LoadBalancerClass \"inside\"]\nsubnet-id = {subnet}\nmember-subnet-id = {subnet}\n\
             [LoadBalancerClass \"outside\"]\nfloating-network-id = {external}\n\
             floating-subnet-id = {floating_subnet}\n\
             [Route]\nrouter-id = {router}\n"
        )
    }

    /// Gives the project a catalogue of its own, with these origins.
    fn fill_catalogue(&self, origins: &[String]) -> Result<()> {
        let [_, nova, neutron, octavia] = of_services(origins)?;
        let urls = json!({"compute": format!("{nova}/v2.1"), "network": neutron, "load-balancer": octavia});
        self.ask("endpoints", [("urls", urls)]).map(drop)
    }

    /// Servers with these names: the first of them made by Nova, the others copies.
    fn servers(&self, names: &[String], made: usize) -> Result<Vec<Node>> {
        let answer = self.ask("machines", [("names", json!(names)), ("made", json!(made))])?;
        let machines: Vec<Machine> = Vec::deserialize(answer.get("machines").unwrap_or(&Value::Null))?;
        let node = |Machine { id, name, address }| Node {
            name,
            provider_id: Some(format!("{SCHEME}{id}")),
            addresses: vec![NodeAddress { kind: AddressKind::InternalIp, address }],
            ..Node::default()
        };
        Ok(machines.into_iter().map(node).collect())
    }

    fn lines(&self, what: &str) -> Result<Vec<String>> {
        let answer = self.ask(what, [])?;
        Ok(Vec::deserialize(answer.get("lines").unwrap_or(&Value::Null))?)
    }

    fn keystone(&self, origin: &str) -> (KeystoneSpec, BTreeMap<String, String>) {
        let auth_url = format!("{origin}/v3");
        let of = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let from = |name: &str| ValueFrom::Env(name.to_owned());
        match &self.login {
            Login::Password => {
                let name = KeystoneNameSpec {
                    name: Some(self.account.name.clone()),
                    domain_id: Some("default".to_owned()),
                    ..KeystoneNameSpec::default()
                };
                let password = KeystonePasswordSpec {
                    user: name.clone(),
                    password: from("PASSWORD"),
                    project: Some(name),
                    trust_id: None,
                };
                let spec = KeystoneSpec { auth_url, application_credential: None, password: Some(password) };
                (spec, of("PASSWORD", &self.account.password))
            }
            Login::ApplicationCredential { id, secret } => {
                let credential =
                    ApplicationCredentialSpec { id: Some(id.clone()), name: None, user: None, secret: from("SECRET") };
                let spec = KeystoneSpec { auth_url, application_credential: Some(credential), password: None };
                (spec, of("SECRET", secret))
            }
        }
    }
}

/// The origins of [`SERVICES`].
fn of_services(origins: &[String]) -> Result<&[String; SERVICES.len()]> {
    origins.try_into().with_context(|| format!("{} origins for {} services", origins.len(), SERVICES.len()))
}

#[async_trait]
impl Cloud for OpenStack {
    const COMPONENT: &'static str = "openstack";
    const WAIT_MAX: Duration = Duration::from_millis(80);
    const ANSWERS_IN_TURN: bool = true;

    async fn start() -> Result<Self> {
        Self::open(&AMPHORA).await
    }

    fn services(&self) -> Vec<SocketAddr> {
        self.running.services.to_vec()
    }

    fn settings(&self, origins: &[String]) -> Result<Settings> {
        let [keystone, nova, neutron, octavia] = of_services(origins)?;
        let mut config = self.config(keystone, "");
        match self.login {
            Login::Password => self.fill_catalogue(origins)?,
            Login::ApplicationCredential { .. } => config.push_str(&format!(
                "[Skysail]\ncompute-endpoint = {nova}/v2.1\nnetwork-endpoint = {neutron}\n\
                 load-balancer-endpoint = {octavia}\n"
            )),
        }
        let (login, values) = self.keystone(keystone);
        let credential =
            CredentialSpec { origins: origins.to_vec(), keystone: Some(login), ..CredentialSpec::default() };
        let places = SERVICES.iter().zip(origins).map(|((_, example), origin)| (*example, origin.as_str()));
        Ok(Settings {
            config,
            rules: example::rules("openstack", &places.collect::<Vec<_>>())?,
            credentials: BTreeMap::from([("openstack".to_owned(), credential)]),
            values,
            ..Settings::default()
        })
    }

    fn is_write(request: &Request) -> bool {
        request.method != "GET" && !request.path.starts_with("/v3/auth/")
    }

    async fn add_machines(&self, names: &[String]) -> Result<Vec<Node>> {
        let made = if names.len() > MADE_MAX { 1 } else { names.len() };
        self.servers(names, made)
    }

    async fn stop_machine(&self, node: &Node) -> Result<()> {
        self.ask("stop", [("id", json!(machine_of(node, SCHEME)?))]).map(drop)
    }

    async fn delete_machine(&self, node: &Node) -> Result<()> {
        self.ask("delete", [("id", json!(machine_of(node, SCHEME)?))]).map(drop)
    }

    async fn revoke_credential(&self) -> Result<()> {
        self.ask("revoke", []).map(drop)
    }

    /// As a proxy before the services answers: OpenStack itself has had no rate limit since Nova's
    /// was removed.
    fn throttled(_request: &Request) -> Reply {
        let mut reply = Reply::new(429, r#"{"overLimit": {"code": 429, "message": "This request was rate-limited."}}"#);
        reply.headers.push(("retry-after", "7".to_owned()));
        reply
    }
}

#[async_trait]
impl Balancers for OpenStack {
    // The `pagination_max_limit` of `cloud.py`.
    const PAGE: usize = 25;

    async fn balancers(&self) -> Result<Vec<String>> {
        self.lines("balancers")
    }

    fn require(&self, _service: &mut Service) {}

    fn changes(&self) -> Vec<Change> {
        changes::changes()
    }

    fn quota_exceeded(request: &Request) -> Option<Reply> {
        let kind = request.path.split(['/', '?']).rfind(|part| !part.is_empty())?;
        match (request.method.as_str(), kind) {
            ("POST", "floatingips") => Some(Reply::new(
                409,
                r#"{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['floatingip'].",
                    "detail": ""}}"#,
            )),
            ("POST", "loadbalancers" | "listeners" | "pools" | "healthmonitors") | ("PUT", "members") => {
                let text = "Quota has been met for resources";
                Some(Reply::new(
                    403,
                    &json!({"faultcode": "Client", "faultstring": text, "debuginfo": null}).to_string(),
                ))
            }
            _ => None,
        }
    }
}

#[async_trait]
impl Routing for OpenStack {
    async fn routes(&self) -> Result<Vec<String>> {
        self.lines("routes")
    }
}

/// As [`OpenStack`], with an application credential, and with the endpoints in the cloud-config.
pub struct WithApplicationCredential(OpenStack);

#[async_trait]
impl Cloud for WithApplicationCredential {
    const COMPONENT: &'static str = OpenStack::COMPONENT;

    async fn start() -> Result<Self> {
        let mut cloud = OpenStack::open(&AMPHORA).await?;
        let made = cloud.ask("application_credential", [])?;
        let text = |key| made.get(key).and_then(Value::as_str).map(str::to_owned).context("no application credential");
        cloud.login = Login::ApplicationCredential { id: text("id")?, secret: text("secret")? };
        Ok(Self(cloud))
    }

    fn services(&self) -> Vec<SocketAddr> {
        self.0.services()
    }

    fn settings(&self, origins: &[String]) -> Result<Settings> {
        self.0.settings(origins)
    }

    fn is_write(request: &Request) -> bool {
        OpenStack::is_write(request)
    }

    async fn add_machines(&self, names: &[String]) -> Result<Vec<Node>> {
        self.0.add_machines(names).await
    }

    async fn stop_machine(&self, node: &Node) -> Result<()> {
        self.0.stop_machine(node).await
    }

    async fn delete_machine(&self, node: &Node) -> Result<()> {
        self.0.delete_machine(node).await
    }

    /// Keystone deletes the application credentials of a user that is disabled.
    async fn revoke_credential(&self) -> Result<()> {
        self.0.revoke_credential().await
    }

    fn throttled(request: &Request) -> Reply {
        OpenStack::throttled(request)
    }
}

#[async_trait]
impl Balancers for WithApplicationCredential {
    const PAGE: usize = OpenStack::PAGE;

    async fn balancers(&self) -> Result<Vec<String>> {
        self.0.balancers().await
    }

    /// Replaces the names in braces by IDs.
    fn require(&self, service: &mut Service) {
        fill_in(service, &self.0.account.names);
    }

    fn changes(&self) -> Vec<Change> {
        changes::changes()
    }

    fn quota_exceeded(request: &Request) -> Option<Reply> {
        OpenStack::quota_exceeded(request)
    }
}

/// The component has its endpoints from the cloud-config, so the catalogue is the vendor's alone.
impl Judged for WithApplicationCredential {
    fn vendor(&self, origins: &[String]) -> Result<Opening> {
        let [keystone, ..] = of_services(origins)?;
        self.0.fill_catalogue(origins)?;
        let Account { name, password, .. } = &self.0.account;
        let keys = format!("username = {name}\npassword = {password}\ntenant-name = {name}\ndomain-id = default\n");
        let config = self.0.config(keystone, &keys);
        Ok(Opening { setup: "openstack", program: "vendor-openstack", config, environment: BTreeMap::new() })
    }

    fn differences() -> &'static [Difference] {
        changes::DIFFERENCES
    }
}

#[async_trait]
impl JudgedBalancers for WithApplicationCredential {
    fn compared() -> Vec<Change> {
        let mut services = changes::more_services();
        services.extend(changes::changes());
        services
    }

    /// The vendor's provider asks for the port of the first node, also when one has left.
    async fn add_members(&self, count: usize) -> Result<Vec<Node>> {
        self.0.servers(&numbered(count), 2)
    }
}

impl JudgedMachines for WithApplicationCredential {}

#[async_trait]
impl Routing for WithApplicationCredential {
    async fn routes(&self) -> Result<Vec<String>> {
        self.0.routes().await
    }
}

impl JudgedRoutes for WithApplicationCredential {}

#[async_trait]
impl Shared for WithApplicationCredential {
    async fn share(&self, service: &mut Service) -> Result<()> {
        let ids = self.0.lines("balancer_ids")?;
        let [id] = ids.as_slice() else { bail!("the account has {} load balancers", ids.len()) };
        changes::annotate(service, "load-balancer-id", id);
        Ok(())
    }
}
