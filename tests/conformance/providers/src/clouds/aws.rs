//! Amazon EC2 and Elastic Load Balancing, played by moto (`moto/cloud.py`) with its check of
//! signatures and policies. One process serves all tests; each test has an account of its own.

mod changes;

use std::{
    collections::BTreeMap,
    marker::PhantomData,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use async_trait::async_trait;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use skysail_host::credentials::{AwsAccessKeySpec, AwsSpec, AwsWebIdentitySpec, CredentialSpec, ValueFrom};
use skysail_provider::{AddressKind, Node, NodeAddress, Service};
use tokio::sync::OnceCell;

pub use self::changes::{Classic, Kind, Managed, Network, Vendors, WithRole};
use crate::{
    cloud::{
        Balancers, Change, Cloud, Difference, Judged, JudgedBalancers, JudgedMachines, JudgedRoutes, Routing,
        Sandboxed, Settings, fill_in,
    },
    component, example,
    process::Program,
    proxy::{Reply, Request},
    vendor::Opening,
    world::CLUSTER,
};

/// moto reads Amazon's model of EC2, which costs seconds, on a busy machine many.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Both clusters of the suite.
const CLUSTERS: [&str; 2] = [CLUSTER, "other"];
/// The region of the example Provider.
const REGION: &str = "eu-west-1";
/// The program with Amazon's Go provider, and the component with the same code.
const VENDORS: &str = "vendor-aws";
/// The name of both APIs of Elastic Load Balancing in signatures.
const BALANCING: &str = "elasticloadbalancing";

static MOTO: OnceCell<Moto> = OnceCell::const_new();

/// The process that serves all tests of this program.
struct Moto {
    program: Program,
    address: SocketAddr,
}

impl Moto {
    async fn get() -> Result<&'static Self> {
        MOTO.get_or_try_init(|| async { tokio::task::block_in_place(Self::start) }).await
    }

    fn start() -> Result<Self> {
        let mut command = Command::new(component::tool("aws", "moto/bin/python")?);
        // Without `__pycache__` in the source tree.
        command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("moto/cloud.py"));
        let (program, facts) = Program::start(command, READY_WITHIN).context("moto")?;
        let port = facts.get("port").and_then(Value::as_u64).context("moto printed no port")?;
        Ok(Self { program, address: (Ipv4Addr::LOCALHOST, u16::try_from(port)?).into() })
    }

    fn ask<T: DeserializeOwned>(&self, question: &Value) -> Result<T> {
        serde_json::from_value(self.program.ask(question)?).with_context(|| format!("the answer to {question}"))
    }
}

/// The address of moto, without a proxy before it.
///
/// # Errors
/// moto cannot be started.
pub async fn address() -> Result<SocketAddr> {
    Ok(Moto::get().await?.address)
}

/// An account with a VPC, two subnets, a route table and a security group for machines. The kind
/// says which load balancers the suite makes in it.
pub struct Aws<K> {
    moto: &'static Moto,
    account: Account,
    kind: PhantomData<K>,
}

/// What `moto/cloud.py` says about a new account.
#[derive(Deserialize)]
struct Account {
    account: String,
    vpc: String,
    /// IDs that annotations name, by the names in braces of the suite's Services.
    names: BTreeMap<String, String>,
    /// The ID of the access key, and its secret.
    key: String,
    secret: String,
    /// The ARN of a role, and the token of the only identity that the role trusts.
    role: String,
    identity: String,
}

#[derive(Deserialize)]
struct Machine {
    id: String,
    zone: String,
    address: String,
    /// The private DNS name, which kubelet takes as the node's name.
    dns: String,
}

impl<K> Aws<K> {
    fn ask<T: DeserializeOwned>(&self, what: &str, more: Value) -> Result<T> {
        let mut question = json!({"do": what, "account": self.account.account});
        if let (Some(question), Value::Object(more)) = (question.as_object_mut(), more) {
            question.extend(more);
        }
        self.moto.ask(&question)
    }

    /// The cloud-config of the component and of Amazon's provider, which reads no `Credential`.
    fn config(&self, ec2: &str, balancing: &str, more: &str) -> String {
        let service = |number: usize, service: &str, signing: &str, url: &str, credential: &str| {
            format!(
                "[ServiceOverride \"{number}\"]\nService = {service}\nRegion = {REGION}\nURL = {url}\n\
                 SigningRegion = {REGION}\nSigningName = {signing}\nCredential = {credential}\n"
            )
        };
        format!(
            "[Global]\nRegion = {REGION}\nVPC = {}\n{more}\n{}{}{}",
            self.account.vpc,
            service(1, "EC2", "ec2", ec2, "aws"),
            service(2, "Elastic Load Balancing", BALANCING, balancing, "balancing"),
            service(3, "Elastic Load Balancing v2", BALANCING, balancing, "balancing"),
        )
    }

    fn act(&self, what: &str, node: &Node) -> Result<()> {
        let id = node.provider_id.as_deref().and_then(|id| id.rsplit('/').next());
        let id = id.with_context(|| anyhow!("{} has no machine of this cloud", node.name))?;
        self.ask::<Value>(what, json!({"machine": id})).map(drop)
    }
}

impl<K: Kind> Aws<K> {
    /// The cloud-config of Amazon's provider.
    fn vendors_config(&self, origins: &[String]) -> Result<String> {
        let [ec2, balancing] = both(origins)?;
        // With a subnet, Amazon's provider does not ask the metadata service about its own machine.
        let more = format!("{}\nKubernetesClusterID = {CLUSTER}\nSubnetID = subnet-0\n", K::CONFIG);
        Ok(self.config(ec2, balancing, &more))
    }

    /// The access key, or the role of a web identity.
    fn login(&self) -> AwsSpec {
        let from = |name: &str| ValueFrom::Env(name.to_owned());
        let access_key = || AwsAccessKeySpec { id: from("KEY"), secret: from("SECRET"), session_token: None };
        let web_identity = || AwsWebIdentitySpec {
            role_arn: self.account.role.clone(),
            token: Some(from("IDENTITY")),
            service_account_token: None,
            session_name: None,
            sts_url: Some(format!("http://{}", self.moto.address)),
        };
        AwsSpec {
            access_key: (!K::HAS_ROLE).then(access_key),
            web_identity: K::HAS_ROLE.then(web_identity),
            ..AwsSpec::default()
        }
    }
}

#[async_trait]
impl<K: Kind> Cloud for Aws<K> {
    const COMPONENT: &'static str = K::COMPONENT;

    async fn start() -> Result<Self> {
        let moto = Moto::get().await?;
        let account = moto.ask(&json!({"do": "account", "clusters": CLUSTERS, "actions": permissions()?}))?;
        Ok(Self { moto, account, kind: PhantomData })
    }

    /// EC2 and Elastic Load Balancing, whose host names differ.
    fn services(&self) -> Vec<SocketAddr> {
        vec![self.moto.address; 2]
    }

    fn settings(&self, origins: &[String]) -> Result<Settings> {
        let [ec2, balancing] = both(origins)?;
        // Ours without KubernetesClusterID, so that the name of the cluster counts.
        let config = if K::COMPONENT == VENDORS {
            self.vendors_config(origins)?
        } else {
            self.config(ec2, balancing, K::CONFIG)
        };
        let key = |origin: &String, service: &str| {
            let aws = AwsSpec {
                region: REGION.to_owned(),
                // The host of the proxy does not name the service.
                service: Some(service.to_owned()),
                ..self.login()
            };
            CredentialSpec { origins: vec![origin.clone()], aws: Some(aws), ..CredentialSpec::default() }
        };
        Ok(Settings {
            config,
            rules: example::rules(
                "aws",
                &[
                    ("https://ec2.eu-west-1.amazonaws.com", ec2.as_str()),
                    ("https://elasticloadbalancing.eu-west-1.amazonaws.com", balancing.as_str()),
                ],
            )?,
            credentials: BTreeMap::from([
                ("aws".to_owned(), key(ec2, "ec2")),
                ("balancing".to_owned(), key(balancing, BALANCING)),
            ]),
            values: BTreeMap::from([
                ("SECRET".to_owned(), self.account.secret.clone()),
                ("IDENTITY".to_owned(), self.account.identity.clone()),
            ]),
            public: BTreeMap::from([("KEY".to_owned(), self.account.key.clone())]),
        })
    }

    fn is_write(request: &Request) -> bool {
        !action(request).starts_with("Describe")
    }

    async fn add_machines(&self, names: &[String]) -> Result<Vec<Node>> {
        let machines: Vec<Machine> = self.ask("add", json!({"names": names}))?;
        let node = |machine: Machine| Node {
            provider_id: Some(format!("aws:///{}/{}", machine.zone, machine.id)),
            addresses: vec![
                NodeAddress { kind: AddressKind::InternalIp, address: machine.address },
                NodeAddress { kind: AddressKind::InternalDns, address: machine.dns.clone() },
                NodeAddress { kind: AddressKind::Hostname, address: machine.dns.clone() },
            ],
            name: machine.dns,
            ..Node::default()
        };
        Ok(machines.into_iter().map(node).collect())
    }

    async fn stop_machine(&self, node: &Node) -> Result<()> {
        self.act("stop", node)
    }

    async fn delete_machine(&self, node: &Node) -> Result<()> {
        self.act("delete", node)
    }

    async fn revoke_credential(&self) -> Result<()> {
        self.ask::<Value>("revoke", json!({})).map(drop)
    }

    fn throttled(request: &Request) -> Reply {
        if is_ec2(request) { error(request, 503, "RequestLimitExceeded") } else { error(request, 400, "Throttling") }
    }
}

/// The origins of EC2 and of Elastic Load Balancing.
fn both(origins: &[String]) -> Result<&[String; 2]> {
    origins.try_into().with_context(|| format!("{} origins for two services", origins.len()))
}

/// The actions that the README of the guest names: an action without a service is one of EC2.
fn permissions() -> Result<Vec<String>> {
    const README: &str = include_str!("../../../../../guests/aws/README.md");
    let (_, section) = README.split_once("## Permissions of the account").context("the README has no permissions")?;
    let named = section.split('`').skip(1).step_by(2);
    Ok(named.map(|name| if name.contains(':') { name.to_owned() } else { format!("ec2:{name}") }).collect())
}

fn action(request: &Request) -> String {
    let body = String::from_utf8_lossy(&request.body);
    body.split('&').find_map(|pair| pair.strip_prefix("Action=")).unwrap_or_default().to_owned()
}

fn is_ec2(request: &Request) -> bool {
    request.body.windows(VERSION_OF_EC2.len()).any(|part| part == VERSION_OF_EC2)
}

const VERSION_OF_EC2: &[u8] = b"Version=2016-11-15";

/// An error of AWS: the two APIs have different documents.
fn error(request: &Request, status: u16, code: &str) -> Reply {
    let error = format!("<Error><Code>{code}</Code><Message>the suite refuses {}</Message></Error>", action(request));
    let body = if is_ec2(request) {
        format!("<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>")
    } else {
        format!("<ErrorResponse>{error}<RequestId>1</RequestId></ErrorResponse>")
    };
    Reply { status, headers: vec![("content-type", "text/xml".to_owned())], body }
}

#[async_trait]
impl<K: Kind> Balancers for Aws<K> {
    // Of moto; AWS has 400.
    const PAGE: usize = 50;

    async fn balancers(&self) -> Result<Vec<String>> {
        self.ask("balancers", json!({}))
    }

    fn require(&self, service: &mut Service) {
        if let Some(kind) = K::TYPE {
            changes::annotate(service, "type", kind);
        }
        fill_in(service, &self.account.names);
    }

    fn changes(&self) -> Vec<Change> {
        K::changes()
    }

    fn quota_exceeded(request: &Request) -> Option<Reply> {
        let code = match action(request).as_str() {
            "CreateLoadBalancer" => "TooManyLoadBalancers",
            "CreateTargetGroup" => "TooManyTargetGroups",
            "CreateListener" => "TooManyListeners",
            "RegisterTargets" => "TooManyTargets",
            "CreateLoadBalancerPolicy" => "TooManyPolicies",
            "CreateSecurityGroup" => "SecurityGroupLimitExceeded",
            "AuthorizeSecurityGroupIngress" => "RulesPerSecurityGroupLimitExceeded",
            _ => return None,
        };
        Some(error(request, 400, code))
    }
}

impl<K: Kind> Judged for Aws<K> {
    fn vendor(&self, origins: &[String]) -> Result<Opening> {
        let config = self.vendors_config(origins)?;
        let environment = [
            ("AWS_ACCESS_KEY_ID", self.account.key.as_str()),
            ("AWS_SECRET_ACCESS_KEY", self.account.secret.as_str()),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ];
        let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Opening { setup: "aws", program: VENDORS, config, environment })
    }

    fn differences() -> &'static [Difference] {
        K::DIFFERENCES
    }
}

impl<K: Kind> JudgedBalancers for Aws<K> {
    fn compared() -> Vec<Change> {
        let mut services = K::more_services();
        services.extend(K::changes());
        services
    }
}

impl<K: Kind> Sandboxed for Aws<Vendors<K>> {
    const ASKED_AGAIN: &'static [(&'static str, &'static str)] = &[
        ("DescribeAvailabilityZones", "Amazon's provider keeps the zones of its region"),
        ("DescribeInstances", "Amazon's provider keeps the machines of the nodes for ten minutes"),
        (
            "DescribeLoadBalancers",
            "before a deletion the adapter asks whether the load balancer exists, as upstream's controller",
        ),
    ];

    fn operation(request: &Request) -> String {
        action(request)
    }

    /// AWS's code, and the whole text where the provider itself refuses.
    fn failure(error: &str) -> String {
        let of_aws = error.split_once("RequestID: ").and_then(|(_, rest)| rest.split_once(", "));
        let code = of_aws.and_then(|(_, rest)| rest.trim_start_matches("api error ").split(':').next());
        code.unwrap_or(error).to_owned()
    }
}

impl<K: Kind> JudgedMachines for Aws<K> {}

#[async_trait]
impl<K: Kind> JudgedRoutes for Aws<K> {
    async fn take_forwarding(&self) -> Result<Vec<String>> {
        self.ask("forwarding", json!({}))
    }
}

#[async_trait]
impl<K: Kind> Routing for Aws<K> {
    async fn routes(&self) -> Result<Vec<String>> {
        self.ask("routes", json!({}))
    }
}
