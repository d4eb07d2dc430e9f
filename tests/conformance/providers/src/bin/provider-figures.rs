//! What the calls of each provider cost in front of its cloud: `make bench-providers`.
//!
//! Requests and fuel are the same in each run. Times are those of this machine, and of a cloud on
//! loopback that shares the machine.

#![expect(clippy::print_stdout, reason = "the table is the result of this program")]

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use skysail_host::CallRecord;
use skysail_provider::{Detail, NodeSet};
use skysail_test_providers::{
    cloud::{Balancers, Cloud},
    clouds::{
        hetzner::Hetzner,
        simcloud::{Go, Rust, Simulated},
        vsphere::Vsphere,
    },
    suite::balancers::web,
    world::{World, set},
};
use tokio::sync::broadcast::Receiver;

/// Nodes of the cluster.
const NODES: usize = 100;
/// Nodes of a whole page.
const PAGE: usize = 500;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    println!("| provider | call | calls | requests | million units of fuel | ms in the guest | ms in HTTP |");
    println!("|---|---|---|---|---|---|---|");
    balancers::<Simulated<Rust>>().await?;
    machines::<Simulated<Rust>>().await?;
    balancers::<Simulated<Go>>().await?;
    machines::<Simulated<Go>>().await?;
    balancers::<Hetzner>().await?;
    machines::<Hetzner>().await?;
    machines::<Vsphere>().await?;
    #[cfg(feature = "aws")]
    {
        use skysail_test_providers::clouds::aws::{Aws, Classic, Network};
        balancers::<Aws<Network>>().await?;
        balancers::<Aws<Classic>>().await?;
        machines::<Aws<Network>>().await?;
    }
    #[cfg(feature = "openstack")]
    {
        use skysail_test_providers::clouds::openstack::OpenStack;
        balancers::<OpenStack>().await?;
        machines::<OpenStack>().await?;
    }
    Ok(())
}

/// A Service with two ports: new, unchanged, and after one node has gone.
async fn balancers<C: Balancers>() -> Result<()> {
    let (world, nodes) = world::<C>(NODES).await?;
    let mut records = world.recorder.subscribe();
    let service = web(&world.cloud, "web");
    world.ensure(&service, &nodes).await?;
    row::<C>("`ensure`, new", &mut records);
    world.ensure(&service, &nodes).await?;
    row::<C>("`ensure`, nothing to do", &mut records);
    let fewer = NodeSet::new(nodes.as_slice().iter().skip(1).cloned());
    world.update(&service, &fewer).await?;
    row::<C>("`update`, one node less", &mut records);
    world.ensure_deleted(&service).await?;
    row::<C>("`ensure-deleted`", &mut records);
    Ok(())
}

/// The machines of nodes, which the component does not know yet.
async fn machines<C: Cloud>() -> Result<()> {
    for (count, what) in [(NODES, "`describe` of 100 nodes"), (PAGE, "`describe` of 500 nodes")] {
        let (world, nodes) = world::<C>(count).await?;
        let mut records = world.recorder.subscribe();
        let found = world.machines(&nodes, Detail::Metadata).await?;
        let missing = found.into_iter().find_map(Result::err);
        missing.map_or(Ok(()), |error| Err(error).context("a machine is not found"))?;
        row::<C>(what, &mut records);
    }
    Ok(())
}

async fn world<C: Cloud>(nodes: usize) -> Result<(World<C>, NodeSet)> {
    let world = World::<C>::start().await?;
    let nodes = set(world.cloud.add_numbered_machines(nodes).await?);
    Ok((world, nodes))
}

/// Prints the sum of the calls since the last row: a provider may ask to be called again.
fn row<C: Cloud>(what: &str, records: &mut Receiver<Arc<CallRecord>>) {
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
    println!(
        "| {} | {what} | {calls} | {requests} | {}.{} | {} | {} |",
        C::COMPONENT,
        millions / 10,
        millions % 10,
        ms(guest),
        ms(http)
    );
}
