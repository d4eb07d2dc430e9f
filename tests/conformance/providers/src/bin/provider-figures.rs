//! What the calls of each provider cost in front of its cloud: `make bench-providers`.
//!
//! Requests and fuel are the same in each run. Times are those of this machine, and of a cloud on
//! loopback that shares the machine. The last column has the requests of the vendor's Go provider
//! for the same Service and the same nodes.

#![expect(clippy::print_stdout, reason = "the table is the result of this program")]

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Error, Result, ensure};
use skysail_host::CallRecord;
use skysail_provider::{Detail, NodeSet, Service};
use skysail_test_providers::{
    cloud::{Balancers, Cloud, JudgedBalancers, JudgedMachines},
    clouds::{
        aws::{Aws, Classic, Network, Vendors},
        hetzner::Hetzner,
        openstack::WithApplicationCredential as OpenStack,
        simcloud::{Go, Rust, Simulated},
        vsphere::Vsphere,
    },
    proxy::Proxy,
    suite::balancers::web,
    vendor::{Description, Vendor},
    world::{World, set},
};
use tokio::sync::broadcast::Receiver;

/// Nodes of the cluster.
const NODES: usize = 100;
/// Nodes of a whole page.
const PAGE: usize = 500;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    println!(
        "| provider | call | calls | requests | million units of fuel | ms in the guest | ms in HTTP \
         | requests of the vendor's provider |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    balancers::<Simulated<Rust>>([None; 4]).await?;
    machines::<Simulated<Rust>>([None; 2]).await?;
    balancers::<Simulated<Go>>([None; 4]).await?;
    machines::<Simulated<Go>>([None; 2]).await?;
    balancers::<Hetzner>([None; 4]).await?;
    machines::<Hetzner>([None; 2]).await?;
    machines::<Vsphere>(vendors_machines::<Vsphere>().await?).await?;
    balancers::<Aws<Network>>(vendors_balancers::<Aws<Network>>().await?).await?;
    balancers::<Aws<Classic>>(vendors_balancers::<Aws<Classic>>().await?).await?;
    machines::<Aws<Network>>(vendors_machines::<Aws<Network>>().await?).await?;
    balancers::<Aws<Vendors<Network>>>([None; 4]).await?;
    machines::<Aws<Vendors<Network>>>([None; 2]).await?;
    balancers::<OpenStack>(vendors_balancers::<OpenStack>().await?).await?;
    machines::<OpenStack>(vendors_machines::<OpenStack>().await?).await
}

/// Requests of the vendor's provider; none if the cloud has no such provider here.
type Theirs<const N: usize> = [Option<usize>; N];

/// The requests of the vendor's provider for the calls of [`balancers`].
async fn vendors_balancers<C: JudgedBalancers>() -> Result<Theirs<4>> {
    let (world, nodes) = world::<C>(NODES).await?;
    let proxy = Proxy::start(&world.cloud.services(), C::HTTPS).await?;
    let vendor = Vendor::open(&world.cloud.vendor(proxy.origins())?, &nodes)?;
    let service = large(&world.cloud);
    let requests = || Some(proxy.take().len());
    proxy.clear();
    let service = vendor.ensure(&service, &nodes)?.map_err(Error::msg)?;
    let new = requests();
    vendor.ensure(&service, &nodes)?.map_err(Error::msg)?;
    let unchanged = requests();
    vendor.update(&service, &without_the_last(&nodes))?.map_err(Error::msg)?;
    let one_node_less = requests();
    vendor.ensure_deleted(&service)?.map_err(Error::msg)?;
    Ok([new, unchanged, one_node_less, requests()])
}

/// The requests of the vendor's provider when the node controllers ask about each node once: its
/// metadata, whether the machine exists, whether it is shut down.
async fn vendors_machines<C: JudgedMachines>() -> Result<Theirs<2>> {
    let mut requests = [None; 2];
    for (count, requests) in [NODES, PAGE].into_iter().zip(&mut requests) {
        let (world, nodes) = world::<C>(count).await?;
        let proxy = Proxy::start(&world.cloud.services(), C::HTTPS).await?;
        let vendor = Vendor::open(&world.cloud.vendor(proxy.origins())?, &set(Vec::new()))?;
        let unknown = vendor.describe(&nodes)?.into_iter().filter(Description::is_unknown).count();
        ensure!(unknown == 0, "the vendor's provider does not know {unknown} of {count} nodes");
        *requests = Some(proxy.take().len());
    }
    Ok(requests)
}

/// The Service, whose load balancer takes all nodes.
fn large<C: Balancers>(cloud: &C) -> Service {
    let mut service = web(cloud, "web");
    // The smallest type of Hetzner Cloud takes 25 targets.
    service.annotations.insert("load-balancer.hetzner.cloud/type".to_owned(), "lb31".to_owned());
    service
}

/// A Service with two ports: new, unchanged, and after one node has gone.
async fn balancers<C: Balancers>(theirs: Theirs<4>) -> Result<()> {
    let [new, unchanged, one_node_less, deleted] = theirs;
    let (world, nodes) = world::<C>(NODES).await?;
    let mut records = world.recorder.subscribe();
    let service = large(&world.cloud);
    world.ensure(&service, &nodes).await?;
    row::<C>("`ensure`, new", &mut records, new);
    world.ensure(&service, &nodes).await?;
    row::<C>("`ensure`, nothing to do", &mut records, unchanged);
    world.update(&service, &without_the_last(&nodes)).await?;
    row::<C>("`update`, one node less", &mut records, one_node_less);
    world.ensure_deleted(&service).await?;
    row::<C>("`ensure-deleted`", &mut records, deleted);
    Ok(())
}

/// The machines of nodes, which the component does not know yet.
async fn machines<C: Cloud>(theirs: Theirs<2>) -> Result<()> {
    let of = [(NODES, "`describe` of 100 nodes"), (PAGE, "`describe` of 500 nodes")];
    for ((count, what), theirs) in of.into_iter().zip(theirs) {
        let (world, nodes) = world::<C>(count).await?;
        let mut records = world.recorder.subscribe();
        let found = world.machines(&nodes, Detail::Metadata).await?;
        let missing = found.into_iter().find_map(Result::err);
        missing.map_or(Ok(()), |error| Err(error).context("a machine is not found"))?;
        row::<C>(what, &mut records, theirs);
    }
    Ok(())
}

/// All nodes but the last one: the vendor's provider of OpenStack finds the subnet of a load
/// balancer by its first node, and of many machines only the first one has a port.
fn without_the_last(nodes: &NodeSet) -> NodeSet {
    NodeSet::new(nodes.as_slice().iter().take(nodes.len().saturating_sub(1)).cloned())
}

async fn world<C: Cloud>(nodes: usize) -> Result<(World<C>, NodeSet)> {
    let world = World::<C>::start().await?;
    let nodes = set(world.cloud.add_numbered_machines(nodes).await?);
    Ok((world, nodes))
}

/// Prints the sum of the calls since the last row: a provider may ask to be called again.
fn row<C: Cloud>(what: &str, records: &mut Receiver<Arc<CallRecord>>, theirs: Option<usize>) {
    let (mut calls, mut requests, mut fuel, mut guest, mut http) = (0, 0, 0, Duration::ZERO, Duration::ZERO);
    while let Ok(record) = records.try_recv() {
        calls += 1;
        requests += record.http.requests;
        fuel += record.fuel;
        guest += record.guest;
        http += record.http.time;
    }
    let ms = |time: Duration| time.as_millis();
    let millions = fuel.div_ceil(100_000);
    let theirs = theirs.map_or("none here".to_owned(), |theirs| theirs.to_string());
    println!(
        "| {} | {what} | {calls} | {requests} | {}.{} | {} | {} | {theirs} |",
        C::COMPONENT,
        millions / 10,
        millions % 10,
        ms(guest),
        ms(http)
    );
}
