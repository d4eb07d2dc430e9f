//! What only Hetzner Cloud has.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use skysail_provider::{AddressKind, Error, NewRoute, Provider as _, Service};
use skysail_test_providers::{
    cloud::Balancers as _,
    clouds::hetzner::{Hetzner, annotate},
    component,
    hetzner_cloud::TOKEN,
    leaks, published,
    suite::balancers::{NODE_PORTS, web},
    world::{CLUSTER, World},
};

/// A Service with a managed certificate.
fn secure(cloud: &Hetzner) -> Service {
    let mut service = web(cloud, "web");
    annotate(
        &mut service,
        &[
            ("protocol", "https"),
            ("certificate-type", "managed"),
            ("http-managed-certificate-name", "shop"),
            ("http-managed-certificate-domains", "example.com,www.example.com"),
        ],
    );
    service
}

/// No request against Hetzner's document, and no value of a credential in the log.
fn clean() -> Result<()> {
    published::none()?;
    leaks::none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_name_renames_the_load_balancer() -> Result<()> {
    let world = World::<Hetzner>::start().await?;
    let nodes = world.nodes(&["node-a"]).await?;
    let empty = world.cloud.balancers().await?;
    let service = web(&world.cloud, "web");
    let status = world.ensure(&service, &nodes).await?;
    let before = world.cloud.balancers().await?;
    let mut renamed = service.clone();
    annotate(&mut renamed, &[("name", "site")]);
    ensure!(world.ensure(&renamed, &nodes).await? == status, "another name has another address");
    let lines = world.cloud.balancers().await?;
    ensure!(lines.len() == before.len() && lines.concat().contains("load balancer site "), "{lines:?}");
    // The load balancer is found by its label, whatever the name.
    world.ensure_deleted(&service).await?;
    ensure!(world.cloud.balancers().await? == empty, "{:?}", world.cloud.balancers().await?);
    clean()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_managed_certificate_comes_and_goes_with_its_service() -> Result<()> {
    let world = World::<Hetzner>::start().await?;
    let nodes = world.nodes(&["node-a"]).await?;
    let empty = world.cloud.balancers().await?;
    let service = secure(&world.cloud);
    world.ensure(&service, &nodes).await?;
    let lines = world.cloud.balancers().await?.join("\n");
    ensure!(lines.contains(r#"certificate shop managed for ["example.com","www.example.com"]"#), "{lines}");
    ensure!(lines.contains(r#""certificates":["1 certificates"]"#), "{lines}");
    world.proxy.clear();
    world.ensure(&service, &nodes).await?;
    ensure!(world.writes().is_empty(), "a second `ensure` writes");
    world.ensure_deleted(&service).await?;
    ensure!(world.cloud.balancers().await? == empty, "{:?}", world.cloud.balancers().await?);
    clean()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_cannot_be_issued_is_named_with_the_reason() -> Result<()> {
    let world = World::<Hetzner>::start().await?;
    let nodes = world.nodes(&["node-a"]).await?;
    let empty = world.cloud.balancers().await?;
    world.cloud.cloud.set_issue_fails(true);
    let service = secure(&world.cloud);
    let Err(error) = world.ensure(&service, &nodes).await else {
        anyhow::bail!("the load balancer has a certificate that was never issued")
    };
    let error = format!("{error:#}");
    for part in ["[Invalid]", "shop", "DNS zone not found"] {
        ensure!(error.contains(part), "{part:?} is not in the error: {error}");
    }
    world.ensure_deleted(&service).await?;
    ensure!(world.cloud.balancers().await? == empty, "{:?}", world.cloud.balancers().await?);
    clean()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hetzners_sdk_reads_what_the_provider_made() -> Result<()> {
    let world = World::<Hetzner>::start().await?;
    let nodes = world.nodes(&["node-a", "node-b"]).await?;
    world.ensure(&web(&world.cloud, "web"), &nodes).await?;
    let [node, ..] = nodes.as_slice() else { anyhow::bail!("no machine was made") };
    let route = NewRoute {
        name_hint: String::new(),
        node: node.name.clone(),
        provider_id: node.provider_id.clone(),
        addresses: node.addresses.clone(),
        destination_cidr: "10.244.1.0/24".to_owned(),
    };
    let routes = world.provider.routes().context("the component has no routes")?;
    let create = async || -> Result<(), Error> {
        routes.create(&world.call, CLUSTER, std::slice::from_ref(&route)).await?.into_iter().collect()
    };
    world.until_settled("routes", create).await?;

    let read = judge(&world.cloud)?;
    let balancers = read.get("load_balancers").and_then(Value::as_array).cloned().unwrap_or_default();
    let [balancer] = balancers.as_slice() else { anyhow::bail!("the SDK reads {read}") };
    let owner = balancer.pointer("/labels/skysail~1cluster");
    ensure!(owner == Some(&json!(CLUSTER)), "the labels are {balancer}");
    let service = |listen: u16, destination: u16| {
        json!({
            "protocol": "tcp", "listen_port": listen, "destination_port": destination, "proxyprotocol": false,
            "check": ["tcp", destination, 15, 10, 3],
        })
    };
    let [http, https] = NODE_PORTS;
    for (field, expected) in [
        ("type", json!("lb11")),
        ("location", json!("fsn1")),
        ("networks", json!(["cluster"])),
        ("services", json!([service(80, http), service(443, https)])),
        ("targets", json!([["node-a", true], ["node-b", true]])),
    ] {
        ensure!(balancer.get(field) == Some(&expected), "{field} is not {expected}: {balancer}");
    }
    let address = node.addresses.iter().find(|address| address.kind == AddressKind::InternalIp);
    let address = address.map(|address| address.address.as_str());
    ensure!(read.get("routes") == Some(&json!([["10.244.1.0/24", address]])), "the SDK reads {read}");
    clean()
}

/// What `hcloud/judge.py` prints.
fn judge(cloud: &Hetzner) -> Result<Value> {
    let python = component::tool("test", "hcloud/bin/python")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hcloud/judge.py");
    let output = Command::new(python).arg(script).arg(cloud.url()).env("HCLOUD_TOKEN", TOKEN).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&printed).with_context(|| format!("not JSON: {printed}"))
}
