//! Packets through what the component made with Octavia's driver `ovn`: from a client on the
//! external network to the nodes. Root only.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use skysail_provider::{LoadBalancerStatus, NewRoute, NodeSet, Provider as _};
use skysail_test_providers::{
    cloud::{Balancers as _, Routing as _},
    clouds::openstack::{Answers, OpenStack},
    leaks,
    suite::balancers::{NODE_PORTS, web},
    world::{CLUSTER, World, one_less},
};

const NODES: [&str; 2] = ["node-a", "node-b"];

/// OVN chooses a node by the source port: if a node is not reached by so many connections, the load
/// balancer does not have it.
const CONNECTIONS: usize = 30;

/// Nodes that serve, and what was in the account before.
async fn serving() -> Result<(World<OpenStack>, NodeSet, Vec<String>)> {
    let world = World::before(OpenStack::with_traffic().await?).await?;
    let nodes = world.nodes(&NODES).await?;
    for node in nodes.as_slice() {
        world.cloud.serve(node, &NODE_PORTS)?;
    }
    let empty = world.cloud.balancers().await?;
    Ok((world, nodes, empty))
}

/// Waits until these nodes and no other answer the client, each request or, without nodes, none.
async fn until_reached(world: &World<OpenStack>, url: &str, nodes: &[&str]) -> Result<()> {
    until_answered(|| world.cloud.get(url, CONNECTIONS), nodes).await.with_context(|| url.to_owned())
}

/// A status `ACTIVE` comes before the last flow of Open vSwitch.
async fn until_answered(get: impl Fn() -> Result<Answers>, nodes: &[&str]) -> Result<()> {
    let mut last = None;
    for _ in 0..60 {
        let answers = get()?;
        if answers.of_nodes.keys().eq(nodes) && (answers.unanswered == 0) != nodes.is_empty() {
            return Ok(());
        }
        last = Some(answers);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bail!("{nodes:?} have to answer: {last:?}")
}

fn address(status: &LoadBalancerStatus) -> Result<&str> {
    let ip = status.ingress.first().and_then(|ingress| ingress.ip.as_deref());
    ip.with_context(|| format!("a status without an address: {status:?}"))
}

/// Waits until the account has nothing but these. Octavia forgets a load balancer before Neutron
/// its ports.
async fn until_left(world: &World<OpenStack>, expected: &[String]) -> Result<()> {
    for _ in 0..60 {
        if world.cloud.balancers().await? == expected {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bail!("the cloud has to have {expected:?}: {:?}", world.cloud.balancers().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_reach_the_nodes_of_the_service_and_no_other() -> Result<()> {
    let (world, nodes, empty) = serving().await?;
    let service = web(&world.cloud, "web");
    let status = world.ensure(&service, &nodes).await?;
    let urls = service.ports.iter().map(|port| Ok(format!("http://{}:{}", address(&status)?, port.port)));
    let urls: Vec<String> = urls.collect::<Result<_>>()?;
    for url in &urls {
        until_reached(&world, url, &NODES).await.context("after `ensure` with two nodes")?;
    }
    world.update(&service, &one_less(&nodes)).await?;
    for url in &urls {
        until_reached(&world, url, &["node-b"]).await.context("after `update` to one node")?;
    }
    world.update(&service, &nodes).await?;
    for url in &urls {
        until_reached(&world, url, &NODES).await.context("after `update` to two nodes")?;
    }
    world.ensure_deleted(&service).await?;
    for url in &urls {
        until_reached(&world, url, &[]).await.context("after `ensure-deleted`")?;
    }
    until_left(&world, &empty).await?;
    leaks::none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_answer_the_monitor_gets_no_request() -> Result<()> {
    let (world, nodes, empty) = serving().await?;
    let mut service = web(&world.cloud, "web");
    for (key, value) in
        [("enable-health-monitor", "true"), ("health-monitor-delay", "2"), ("health-monitor-timeout", "1")]
    {
        service.annotations.insert(format!("loadbalancer.openstack.org/{key}"), value.to_owned());
    }
    let status = world.ensure(&service, &nodes).await?;
    let url = format!("http://{}:80", address(&status)?);
    until_reached(&world, &url, &NODES).await.context("while both nodes answer")?;
    world.cloud.silence(nodes.as_slice().first().context("two nodes")?)?;
    until_reached(&world, &url, &["node-b"]).await.context("after one node fell silent")?;
    world.ensure_deleted(&service).await?;
    until_left(&world, &empty).await?;
    leaks::none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_carries_packets_to_a_pod_and_back() -> Result<()> {
    const POD: &str = "10.244.1.7";
    const DESTINATION: &str = "10.244.1.0/24";
    let (world, nodes, _) = serving().await?;
    let routes = world.provider.routes().context("the component has no routes")?;
    let [node, other] = nodes.as_slice() else { bail!("{} nodes", nodes.len()) };
    world.cloud.add_pod(node, POD)?;
    // The Service's security group lets the packets in.
    let service = web(&world.cloud, "web");
    world.ensure(&service, &nodes).await?;
    let [port, _] = NODE_PORTS;
    let (url, before) = (format!("http://{POD}:{port}"), world.cloud.routes().await?);
    // Not the client: the router gives what leaves the project its own address.
    let get = || world.cloud.get_from(other, &url, CONNECTIONS);
    until_answered(get, &[]).await.context("without a route")?;
    let wanted = NewRoute {
        name_hint: "0a1b2c3d-4e5f-6789-abcd-ef0123456789".to_owned(),
        node: node.name.clone(),
        provider_id: node.provider_id.clone(),
        addresses: node.addresses.clone(),
        destination_cidr: DESTINATION.to_owned(),
    };
    let create = async || routes.create(&world.call, CLUSTER, std::slice::from_ref(&wanted)).await;
    world.until_settled("routes.create", create).await?.into_iter().collect::<Result<Vec<()>, _>>()?;
    until_answered(get, &["node-a"]).await.context("with a route")?;
    let listed = routes.list(&world.call, CLUSTER).await?;
    let delete = async || routes.delete(&world.call, CLUSTER, &listed).await;
    world.until_settled("routes.delete", delete).await?.into_iter().collect::<Result<Vec<()>, _>>()?;
    until_answered(get, &[]).await.context("without the route")?;
    ensure!(world.cloud.routes().await? == before, "the deletion leaves {:?}", world.cloud.routes().await?);
    world.ensure_deleted(&service).await?;
    leaks::none()
}
