//! Hetzner Cloud, played by a server of this crate after Hetzner's OpenAPI document.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use serde_json::{Value, json};
use skysail_host::credentials::{CredentialSpec, ValueFrom};
use skysail_provider::{AddressKind, Node, NodeAddress, Service};
use tokio::task::JoinHandle;

use crate::{
    cloud::{Balancers, Change, Cloud, Routing, Settings, changes, machine_of},
    example,
    hetzner_cloud::{HetznerCloud, TOKEN},
    proxy::{Reply, Request},
};

/// What provider IDs begin with.
const SCHEME: &str = "hcloud://";

/// A default for each annotation of [`Hetzner::changes`]: without one the provider leaves a load
/// balancer as it is when the annotation goes, so that the way back does not end where it began.
const DEFAULTS: &str = "\
load-balancers-location = fsn1
load-balancers-type = lb11
load-balancers-algorithm-type = round_robin
load-balancers-use-private-ip = true
load-balancers-disable-public-network = false
load-balancers-uses-proxyprotocol = false
load-balancers-health-check-interval = 15s
load-balancers-health-check-timeout = 10s
load-balancers-health-check-retries = 3
";

/// The name of a certificate that the operator uploaded.
const CERTIFICATE: &str = "site";

/// A project of its own, with a private network and a certificate.
#[derive(Debug)]
pub struct Hetzner {
    /// The server.
    pub cloud: HetznerCloud,
    address: SocketAddr,
    network: u64,
    server: JoinHandle<std::io::Result<()>>,
}

impl Drop for Hetzner {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Hetzner {
    /// The URL of the API, without a proxy before it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Sends a request that must succeed, and returns the answer.
    fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let (status, answer) = self.cloud.request(method, path, body);
        ensure!(status < 300, "{method} {path}: {status} {answer}");
        Ok(answer)
    }
}

#[async_trait]
impl Cloud for Hetzner {
    const COMPONENT: &'static str = "hetzner";

    // An action ends at the next request.
    const WAIT_MAX: Duration = Duration::from_millis(5);

    async fn start() -> Result<Self> {
        let cloud = HetznerCloud::default();
        let (address, server) = cloud.serve().await?;
        let mut started = Self { cloud, address, network: 0, server };
        let pem = "-----BEGIN CERTIFICATE-----";
        let certificate =
            json!({"name": CERTIFICATE, "type": "uploaded", "certificate": pem, "private_key": "-----BEGIN KEY-----"});
        started.request("POST", "/certificates", &certificate)?;
        let subnet = json!({"type": "cloud", "ip_range": "10.0.0.0/16", "network_zone": "eu-central"});
        let network = json!({"name": "cluster", "ip_range": "10.0.0.0/8", "subnets": [subnet]});
        let network = started.request("POST", "/networks", &network)?;
        started.network = network.pointer("/network/id").and_then(Value::as_u64).context("the network has no ID")?;
        Ok(started)
    }

    fn services(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    fn settings(&self, origins: &[String]) -> Result<Settings> {
        let origin = origins.concat();
        let network = self.network;
        let network_path = format!("/networks/{network}/");
        let rules =
            example::rules("hetzner", &[("https://api.hetzner.cloud", &origin), ("/networks/4711/", &network_path)])?;
        let bearer = Some(ValueFrom::Env("TOKEN".to_owned()));
        let hcloud = CredentialSpec { origins: origins.to_vec(), bearer, ..CredentialSpec::default() };
        Ok(Settings {
            config: format!("endpoint = {origin}/v1\nnetwork = {network}\n{DEFAULTS}"),
            rules,
            credentials: BTreeMap::from([("hcloud".to_owned(), hcloud)]),
            values: BTreeMap::from([("TOKEN".to_owned(), TOKEN.to_owned())]),
            ..Settings::default()
        })
    }

    async fn add_machines(&self, names: &[String]) -> Result<Vec<Node>> {
        let add = |name: &String| {
            let server =
                json!({"name": name, "server_type": "cpx11", "image": "debian-12", "networks": [self.network]});
            let created = self.request("POST", "/servers", &server)?;
            let text = |place: &str| created.pointer(place).and_then(Value::as_str).map(str::to_owned);
            let address = |kind, place: &str| {
                let address = text(place).with_context(|| format!("the server {name} has no {place}"))?;
                anyhow::Ok(NodeAddress { kind, address })
            };
            let id = created.pointer("/server/id").and_then(Value::as_u64).context("the server has no ID")?;
            Ok(Node {
                name: name.clone(),
                provider_id: Some(format!("{SCHEME}{id}")),
                addresses: vec![
                    address(AddressKind::InternalIp, "/server/private_net/0/ip")?,
                    address(AddressKind::ExternalIp, "/server/public_net/ipv4/ip")?,
                ],
                ..Node::default()
            })
        };
        names.iter().map(add).collect()
    }

    async fn stop_machine(&self, node: &Node) -> Result<()> {
        self.request("POST", &format!("/servers/{}/actions/poweroff", machine_of(node, SCHEME)?), &Value::Null)?;
        Ok(())
    }

    async fn delete_machine(&self, node: &Node) -> Result<()> {
        self.request("DELETE", &format!("/servers/{}", machine_of(node, SCHEME)?), &Value::Null)?;
        Ok(())
    }

    async fn revoke_credential(&self) -> Result<()> {
        self.cloud.revoke_token();
        Ok(())
    }

    fn throttled(_request: &Request) -> Reply {
        let error = json!({"error": {
            "code": "rate_limit_exceeded", "message": "limit of 3600 requests per hour reached", "details": null,
        }});
        Reply::new(429, &error.to_string())
    }
}

#[async_trait]
impl Balancers for Hetzner {
    const PAGE: usize = 50;

    async fn balancers(&self) -> Result<Vec<String>> {
        let names: BTreeMap<String, String> = self
            .cloud
            .all("servers")
            .into_iter()
            .map(|server| (text(&server, "/id"), text(&server, "/name")))
            .collect();
        let balancer = |balancer: &Value| {
            let mut services = list(balancer, "/services");
            services.sort_by_key(|service| service.get("listen_port").and_then(Value::as_u64));
            for service in &mut services {
                // Certificates have IDs, and the line of each is below.
                if let Some(ids) = service.pointer_mut("/http/certificates").and_then(Value::as_array_mut) {
                    let number = ids.len();
                    *ids = vec![json!(format!("{number} certificates"))];
                }
            }
            let mut targets: Vec<String> = list(balancer, "/targets")
                .iter()
                .map(|target| {
                    let id = text(target, "/server/id");
                    let name = names.get(&id).map_or("a server that is gone", String::as_str);
                    format!("{name} by its private address: {}", text(target, "/use_private_ip"))
                })
                .collect();
            targets.sort();
            format!(
                "load balancer {} of type {} in {}, {}, public: {}, networks {}, labels {}, {} to {targets:?}",
                text(balancer, "/name"),
                text(balancer, "/load_balancer_type/name"),
                text(balancer, "/location/name"),
                text(balancer, "/algorithm/type"),
                text(balancer, "/public_net/enabled"),
                list(balancer, "/private_net").len(),
                text(balancer, "/labels"),
                Value::from(services),
            )
        };
        let certificate = |certificate: &Value| {
            format!(
                "certificate {} {} for {} labels {}",
                text(certificate, "/name"),
                text(certificate, "/type"),
                text(certificate, "/domain_names"),
                text(certificate, "/labels"),
            )
        };
        let mut lines: Vec<String> = self.cloud.all("load_balancers").iter().map(balancer).collect();
        lines.extend(self.cloud.all("certificates").iter().map(certificate));
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
            ("another type", |service| annotate(service, &[("type", "lb21")])),
            ("another algorithm", |service| annotate(service, &[("algorithm-type", "least_connections")])),
            ("public addresses of the targets", |service| annotate(service, &[("use-private-ip", "false")])),
            ("no public interface", |service| annotate(service, &[("disable-public-network", "true")])),
            ("the PROXY protocol", |service| annotate(service, &[("uses-proxyprotocol", "true")])),
            ("HTTP with sticky sessions", |service| {
                annotate(
                    service,
                    &[
                        ("protocol", "http"),
                        ("http-sticky-sessions", "true"),
                        ("http-cookie-name", "TARGET"),
                        ("http-cookie-lifetime", "60s"),
                    ],
                );
            }),
            ("another health check", |service| {
                annotate(
                    service,
                    &[
                        ("health-check-protocol", "http"),
                        ("health-check-http-path", "/healthz"),
                        ("health-check-interval", "20s"),
                        ("health-check-timeout", "5s"),
                        ("health-check-retries", "5"),
                    ],
                );
            }),
            ("a health check of another port by HTTPS", |service| {
                annotate(
                    service,
                    &[
                        ("health-check-protocol", "https"),
                        ("health-check-port", "9000"),
                        ("health-check-http-domain", "web.example.com"),
                        ("health-check-http-validate-certificate", "true"),
                        ("http-status-codes", "2??,301"),
                    ],
                );
            }),
            ("HTTPS with a certificate", |service| {
                annotate(service, &[("protocol", "https"), ("http-certificates", CERTIFICATE)]);
            }),
            ("HTTPS to which HTTP is redirected", |service| {
                service.ports.retain(|port| port.port == 443);
                annotate(
                    service,
                    &[("protocol", "https"), ("http-certificates", CERTIFICATE), ("http-redirect-http", "true")],
                );
            }),
        ]
    }

    fn quota_exceeded(request: &Request) -> Option<Reply> {
        let error = json!({"error": {
            "code": "resource_limit_exceeded", "message": "load balancer limit exceeded", "details": null,
        }});
        let creates = request.method == "POST" && request.path == "/v1/load_balancers";
        creates.then(|| Reply::new(403, &error.to_string()))
    }
}

/// Sets annotations of Hetzner's manager.
pub fn annotate(service: &mut Service, annotations: &[(&str, &str)]) {
    let named = |(name, value): &(&str, &str)| (format!("load-balancer.hetzner.cloud/{name}"), (*value).to_owned());
    service.annotations.extend(annotations.iter().map(named));
}

/// The value at a place: a text as it is, anything else as JSON.
fn text(value: &Value, place: &str) -> String {
    match value.pointer(place) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "none".to_owned(),
    }
}

fn list(value: &Value, place: &str) -> Vec<Value> {
    value.pointer(place).and_then(Value::as_array).cloned().unwrap_or_default()
}

#[async_trait]
impl Routing for Hetzner {
    async fn routes(&self) -> Result<Vec<String>> {
        let networks = self.cloud.all("networks");
        let routes = networks.iter().flat_map(|network| list(network, "/routes"));
        let mut lines: Vec<String> =
            routes.map(|route| format!("{} to {}", text(&route, "/destination"), text(&route, "/gateway"))).collect();
        lines.sort();
        Ok(lines)
    }
}
