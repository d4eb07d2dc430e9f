//! Load balancers: created once, changed completely, deleted completely, and apart from each other.

use anyhow::{Context as _, Result, ensure};
use skysail_provider::{Code, Error, NodeSet, Protocol, Provider as _, Service, ServicePort};

use super::same;
use crate::{
    cloud::{Balancers, Shared},
    world::{CLUSTER, World, set},
};

/// The node ports of [`web`].
pub const NODE_PORTS: [u16; 2] = [30_080, 30_443];

/// A Service with two TCP ports, as this cloud requires it.
#[must_use]
pub fn web<C: Balancers>(cloud: &C, name: &str) -> Service {
    let port = |name: &str, port: u16, node_port: u16| ServicePort {
        name: name.to_owned(),
        protocol: Protocol::Tcp,
        app_protocol: None,
        port,
        node_port,
        target_port: "8080".to_owned(),
    };
    let [http, https] = NODE_PORTS;
    // The UID of an object that was created again under its old name is another one.
    let mut service = Service {
        ports: vec![port("http", 80, http), port("https", 443, https)],
        ..Service::new("default", name, &uid(name))
    };
    cloud.require(&mut service);
    service
}

/// A UUID that depends on the name alone.
fn uid(name: &str) -> String {
    let number = name.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("{:08x}-4e5f-6789-abcd-{:012x}", number & 0xffff_ffff, number & 0xffff_ffff_ffff)
}

/// A world with two nodes, and what was in the account before.
pub(crate) async fn two_nodes<C: Balancers>() -> Result<(World<C>, NodeSet, Vec<String>)> {
    let world = World::<C>::start().await?;
    let nodes = world.nodes(&["node-a", "node-b"]).await?;
    let empty = world.cloud.balancers().await?;
    Ok((world, nodes, empty))
}

/// The second of two equal calls makes no write and returns the same status, and `get` agrees.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_second_ensure_changes_nothing<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    ensure!(world.get(&service).await?.is_none(), "`get` finds a load balancer before the first `ensure`");
    let status = world.ensure(&service, &nodes).await?;
    ensure!(!status.ingress.is_empty(), "`ensure` returned a status without an ingress");
    let before = world.cloud.balancers().await?;
    ensure!(before != empty, "`ensure` created nothing in the cloud");
    world.proxy.clear();
    ensure!(world.ensure(&service, &nodes).await? == status, "a second `ensure` returned another status");
    same("writes of a second `ensure`", &world.writes(), &[])?;
    same("the cloud after a second `ensure`", &world.cloud.balancers().await?, &before)?;
    ensure!(world.get(&service).await? == Some(status), "`get` returned another status than `ensure`");
    world.ensure_deleted(&service).await
}

/// `update` sets the backends, also to none, and leaves what `ensure` would make; without a load
/// balancer it returns `NotFound`.
///
/// # Errors
/// The provider does otherwise.
pub async fn update_changes_the_backends_and_nothing_else<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    let balancers = world.provider.load_balancers().context("the component has no load balancers")?;
    let missing = balancers.update(&world.call, CLUSTER, &service, &nodes).await;
    let code = missing.as_ref().err().map(|error| error.code);
    ensure!(code == Some(Code::NotFound), "`update` without a load balancer returned {missing:?}");
    let one = set(nodes.as_slice().iter().take(1).map(|node| (**node).clone()).collect());
    let none = set(Vec::new());
    world.ensure(&service, &one).await?;
    let of_one = world.cloud.balancers().await?;
    world.update(&service, &nodes).await?;
    let of_two = world.cloud.balancers().await?;
    world.proxy.clear();
    world.ensure(&service, &nodes).await?;
    same("writes of `ensure` after `update` with the same nodes", &world.writes(), &[])?;
    world.update(&service, &none).await?;
    let of_none = world.cloud.balancers().await?;
    world.proxy.clear();
    world.ensure(&service, &none).await?;
    same("writes of `ensure` after `update` to no nodes", &world.writes(), &[])?;
    world.update(&service, &one).await?;
    same("the cloud after `update` to one node", &world.cloud.balancers().await?, &of_one)?;
    ensure!(of_one != of_two && of_none != of_one, "the backends in the cloud did not change");
    world.ensure_deleted(&service).await?;
    same("the cloud after the deletion", &world.cloud.balancers().await?, &empty)
}

/// A deletion leaves nothing, may be repeated, and needs no load balancer.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_deletion_leaves_nothing_and_may_be_repeated<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    world.proxy.clear();
    world.ensure_deleted(&service).await.context("nothing was ever created")?;
    same("writes of a deletion of nothing", &world.writes(), &[])?;
    world.ensure(&service, &nodes).await?;
    for _ in 0..2 {
        world.ensure_deleted(&service).await?;
        same("the cloud after the deletion", &world.cloud.balancers().await?, &empty)?;
    }
    ensure!(world.get(&service).await?.is_none(), "`get` finds a load balancer after the deletion");
    Ok(())
}

/// After a change of the Service the cloud has what a new load balancer of the changed Service has,
/// and the way back ends where it began.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_change_of_a_service_ends_as_a_new_load_balancer_would<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    world.ensure(&service, &nodes).await?;
    let first = world.cloud.balancers().await?;
    world.ensure_deleted(&service).await?;
    for (name, change) in world.cloud.changes() {
        let mut changed = service.clone();
        change(&mut changed);
        world.ensure(&changed, &nodes).await.with_context(|| format!("new: {name}"))?;
        let new = world.cloud.balancers().await?;
        world.ensure_deleted(&changed).await.with_context(|| format!("deletion: {name}"))?;
        same(&format!("the cloud after the deletion: {name}"), &world.cloud.balancers().await?, &empty)?;

        world.ensure(&service, &nodes).await?;
        world.ensure(&changed, &nodes).await.with_context(|| format!("change: {name}"))?;
        same(&format!("the cloud after the change: {name}"), &world.cloud.balancers().await?, &new)?;
        world.proxy.clear();
        world.ensure(&changed, &nodes).await?;
        same(&format!("writes of a second `ensure` after the change: {name}"), &world.writes(), &[])?;
        world.ensure(&service, &nodes).await.with_context(|| format!("way back: {name}"))?;
        same(&format!("the cloud after the way back: {name}"), &world.cloud.balancers().await?, &first)?;
        world.ensure_deleted(&service).await?;
        same(&format!("the cloud at the end: {name}"), &world.cloud.balancers().await?, &empty)?;
    }
    Ok(())
}

/// The load balancers of two Services, and of one Service in two clusters, do not meet: each can be
/// deleted without a change of the other.
///
/// # Errors
/// The provider does otherwise.
pub async fn load_balancers_of_other_services_and_clusters_are_left_alone<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let (one, mut other) = (web(&world.cloud, "web"), web(&world.cloud, "shop"));
    // The node ports of two Services of one cluster differ.
    for port in &mut other.ports {
        port.node_port += 100;
    }
    world.ensure(&one, &nodes).await?;
    let alone = world.cloud.balancers().await?;
    world.ensure(&other, &nodes).await?;
    world.proxy.clear();
    world.ensure(&one, &nodes).await?;
    same("writes of `ensure` beside another Service's load balancer", &world.writes(), &[])?;
    world.ensure_deleted(&other).await?;
    same("the cloud after the deletion of another Service", &world.cloud.balancers().await?, &alone)?;

    // The same name in another cluster; UIDs differ between clusters, and so do the node ports, for
    // here both clusters have the same machines.
    let theirs = Service { uid: other.uid.clone(), ports: other.ports.clone(), ..one.clone() };
    world.ensure_in("other", &theirs, &nodes).await?;
    world.ensure_deleted(&one).await?;
    ensure!(world.cloud.balancers().await? != empty, "the deletion in one cluster deleted the other's load balancer");
    world.proxy.clear();
    world.ensure_in("other", &theirs, &nodes).await?;
    same("writes of the other cluster after the deletion in this one", &world.writes(), &[])?;
    world.ensure_deleted_in("other", &theirs).await?;
    same("the cloud at the end", &world.cloud.balancers().await?, &empty)
}

/// Services whose names are as long as Kubernetes allows, and differ in their last character, have
/// load balancers of their own.
///
/// # Errors
/// The provider does otherwise.
pub async fn the_longest_names_are_kept_apart<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let long = |last: char, base: u16| {
        let mut service = web(&world.cloud, &format!("{}{last}", "n".repeat(62)));
        service.namespace = "s".repeat(63);
        for (port, offset) in service.ports.iter_mut().zip(0..) {
            port.node_port = base + offset;
        }
        service
    };
    let (one, other) = (long('a', 31_000), long('b', 31_100));
    world.ensure(&one, &nodes).await?;
    let alone = world.cloud.balancers().await?;
    world.ensure(&other, &nodes).await?;
    world.proxy.clear();
    world.ensure(&one, &nodes).await?;
    same("writes of a second `ensure`", &world.writes(), &[])?;
    world.ensure_deleted(&other).await?;
    same("the cloud after one of two deletions", &world.cloud.balancers().await?, &alone)?;
    world.ensure_deleted(&one).await?;
    same("the cloud at the end", &world.cloud.balancers().await?, &empty)
}

/// A refused credential is `Denied` in every call, and the load balancer stays as it is.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_refused_credential_changes_no_load_balancer<C: Balancers>() -> Result<()> {
    let (world, nodes, _) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    world.ensure(&service, &nodes).await?;
    let before = world.cloud.balancers().await?;
    world.cloud.revoke_credential().await?;
    let balancers = world.provider.load_balancers().context("the component has no load balancers")?;
    let code = |result: Result<(), Error>| result.err().map(|error| error.code);
    let new = web(&world.cloud, "shop");
    let codes = [
        ("get", code(balancers.get(&world.call, CLUSTER, &service).await.map(drop))),
        ("ensure", code(world.ensure_once(CLUSTER, &service, &nodes).await.map(drop))),
        ("ensure of a new Service", code(world.ensure_once(CLUSTER, &new, &nodes).await.map(drop))),
        ("update", code(balancers.update(&world.call, CLUSTER, &service, &nodes).await)),
        ("ensure-deleted", code(world.ensure_deleted_once(CLUSTER, &service).await)),
    ];
    for (call, code) in codes {
        ensure!(code == Some(Code::Denied), "`{call}` with a revoked credential: {code:?}");
    }
    same("the cloud after the refused calls", &world.cloud.balancers().await?, &before)
}

/// The second of two Services that share the load balancer of the first.
pub(crate) async fn sharing<C: Shared>(cloud: &C) -> Result<Service> {
    let mut other = web(cloud, "shop");
    for (port, number) in other.ports.iter_mut().zip([8080, 8443]) {
        port.port = number;
        port.node_port += 100;
    }
    cloud.share(&mut other).await?;
    Ok(other)
}

/// Two Services that share a load balancer: the deletion of one leaves the other as it was.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_shared_load_balancer_lives_until_its_last_service<C: Shared>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let one = web(&world.cloud, "web");
    let status = world.ensure(&one, &nodes).await?;
    let other = sharing(&world.cloud).await?;
    let alone = world.cloud.balancers().await?;
    ensure!(world.ensure(&other, &nodes).await? == status, "the two Services have different addresses");
    world.proxy.clear();
    world.ensure(&one, &nodes).await?;
    same("writes of `ensure` of the first Service", &world.writes(), &[])?;
    world.ensure_deleted(&other).await?;
    same("the cloud after the deletion of the second Service", &world.cloud.balancers().await?, &alone)?;
    world.ensure(&other, &nodes).await?;
    world.ensure_deleted(&one).await?;
    world.proxy.clear();
    ensure!(world.ensure(&other, &nodes).await? == status, "the second Service lost its address");
    same("writes of `ensure` of the second Service", &world.writes(), &[])?;
    world.ensure_deleted(&other).await?;
    same("the cloud at the end", &world.cloud.balancers().await?, &empty)
}
