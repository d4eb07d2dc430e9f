//! The operator's budget of deletions: the egress rules of the example count what deletes
//! something, and nothing else.

use std::time::Duration;

use anyhow::{Result, ensure};
use skysail_host::http_client::DeletionLimit;
use skysail_provider::Error;

use super::{
    balancers::{two_nodes, web},
    routes::{create, delete, list, two_routes},
    same,
};
use crate::{
    cloud::{Balancers, Cloud, Routing},
    world::{CLUSTER, World},
};

/// Holds every deletion back, or none.
fn hold<C>(world: &World<C>, holds: bool) {
    let none = DeletionLimit { deletions: 0, window: Duration::from_hours(1) };
    world.deletions.limit_to(holds.then_some(none));
}

/// Calls until the cloud has finished; returns whether the budget has held a deletion back.
async fn is_held<C: Cloud>(
    world: &World<C>,
    what: &str,
    mut call: impl AsyncFnMut() -> Result<(), Error>,
) -> Result<bool> {
    world
        .until_settled(what, async || match call().await {
            Err(error) if error.holds_deletion => Ok(true),
            answer => answer.map(|()| false),
        })
        .await
}

/// A load balancer is made and updated although every deletion is held back, and the first request
/// that would delete a part of the load balancer does not leave.
///
/// # Errors
/// The rules count otherwise.
pub async fn the_rules_of_the_example_count_the_deletion_of_a_load_balancer<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    hold(&world, true);
    world.ensure(&service, &nodes).await?;
    world.update(&service, &nodes).await?;
    let delete = async || world.ensure_deleted_once(CLUSTER, &service).await;
    ensure!(is_held(&world, "ensure-deleted", delete).await?, "no request of the deletion is counted");
    ensure!(world.get(&service).await?.is_some(), "the load balancer is deleted");
    hold(&world, false);
    world.ensure_deleted(&service).await?;
    same("the cloud after the deletion", &world.cloud.balancers().await?, &empty)
}

/// The same for the routes of two nodes.
///
/// # Errors
/// The rules count otherwise.
pub async fn the_rules_of_the_example_count_the_deletion_of_a_route<C: Routing>() -> Result<()> {
    let (world, wanted, before) = two_routes::<C>().await?;
    hold(&world, true);
    world.until_settled("routes", async || create(&world, &wanted).await).await?;
    let listed = list(&world).await?;
    let held = is_held(&world, "delete routes", async || delete(&world, &listed).await).await?;
    ensure!(held, "no request of the deletion is counted");
    ensure!(list(&world).await?.len() == 2, "a route is deleted");
    hold(&world, false);
    world.until_settled("delete routes", async || delete(&world, &listed).await).await?;
    same("the routes after the deletion", &world.cloud.routes().await?, &before)
}
