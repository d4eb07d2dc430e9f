//! The inventory of load balancers: complete, of this cluster alone, and safe to delete from.

use anyhow::{Context as _, Result, bail, ensure};
use skysail_provider::{Code, OwnedLoadBalancer, Provider as _, Service};

use super::{
    balancers::{two_nodes, web},
    same,
};
use crate::{cloud::Balancers, world::CLUSTER};

/// The inventory has one entry for each Service of this cluster, and a deleted entry leaves
/// nothing; entries of other clusters cannot be deleted.
///
/// # Errors
/// The provider does otherwise.
pub async fn the_inventory_lists_and_deletes_only_this_clusters<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    same("the inventory of an empty account", &names(&world.inventory(CLUSTER).await?), &[])?;
    let (ours, mut theirs) = (web(&world.cloud, "web"), web(&world.cloud, "shop"));
    for port in &mut theirs.ports {
        port.node_port += 100;
    }
    world.ensure(&ours, &nodes).await?;
    let alone = world.cloud.balancers().await?;
    world.ensure_in("other", &theirs, &nodes).await?;
    let listed = world.inventory(CLUSTER).await?;
    let [owned] = listed.as_slice() else { bail!("the inventory of one load balancer is {listed:?}") };
    let balancers = world.provider.load_balancers().context("the component has no load balancers")?;
    ensure!(owned.name == balancers.name(&world.call, CLUSTER, &ours).await?, "the entry is named {:?}", owned.name);
    if let Some(whose) = &owned.service {
        ensure!(*whose == identity(&ours), "the entry belongs to {whose:?}");
    }

    let others = world.inventory("other").await?;
    let [foreign] = others.as_slice() else { bail!("the inventory of the other cluster is {others:?}") };
    let before = world.cloud.balancers().await?;
    let inventory = world.provider.load_balancer_inventory().context("the component has no inventory")?;
    match inventory.delete(&world.call, CLUSTER, foreign).await {
        // Ok where the name means nothing in this cluster.
        Ok(()) => {}
        Err(error) => ensure!(error.code == Code::Denied, "the deletion of another cluster's entry: {error}"),
    }
    same("the cloud after the deletion of another cluster's entry", &world.cloud.balancers().await?, &before)?;

    for _ in 0..2 {
        world.delete_owned("other", foreign).await?;
        same("the cloud without the other cluster's", &world.cloud.balancers().await?, &alone)?;
    }
    world.delete_owned(CLUSTER, owned).await?;
    same("the inventory at the end", &names(&world.inventory(CLUSTER).await?), &[])?;
    same("the cloud at the end", &world.cloud.balancers().await?, &empty)
}

fn names(owned: &[OwnedLoadBalancer]) -> Vec<String> {
    owned.iter().map(|owned| owned.name.clone()).collect()
}

fn identity(service: &Service) -> (String, String, String) {
    (service.namespace.clone(), service.name.clone(), service.uid.clone())
}
