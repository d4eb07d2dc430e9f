//! The routes that the component makes, compared with those that the vendor's Go provider makes.

use anyhow::{Context as _, Error, Result, ensure};

use crate::{
    cloud::JudgedRoutes,
    proxy::Proxy,
    suite::{
        routes::{create, delete, list, wanted},
        same,
    },
    vendor::{Vendor, VendorRoute},
    world::{World, line, set},
};

/// Nodes with a route each.
const NODES: usize = 3;

/// The component and the vendor's provider leave the same routes; each lists and deletes those of
/// the other one; the component needs no more requests.
///
/// # Errors
/// The component does otherwise.
pub async fn the_component_routes_as_the_vendors_provider_does<C: JudgedRoutes>() -> Result<()> {
    let world = World::<C>::start().await?;
    let nodes = set(world.cloud.add_numbered_machines(NODES).await?);
    let proxy = Proxy::start(&world.cloud.services(), C::HTTPS).await?;
    let vendor = Vendor::open(&world.cloud.vendor(proxy.origins())?, &nodes)?;
    let cidr = |number: usize| format!("10.244.{number}.0/24");
    let numbered = || nodes.as_slice().iter().enumerate();
    let new: Vec<_> = numbered().map(|(number, node)| wanted(node, &cidr(number))).collect();
    let theirs: Vec<_> = numbered().map(|(number, node)| VendorRoute::of(node, &cidr(number))).collect();
    let before = world.cloud.routes().await?;

    // First the vendor's provider, from which the component takes over.
    proxy.clear();
    vendor.routes()?.map_err(Error::msg).context("the vendor's provider lists")?;
    for route in &theirs {
        vendor.create_route(route)?.map_err(Error::msg).context("the vendor's provider creates")?;
    }
    let their_requests = proxy.take().len();
    let made_by_vendor = (world.cloud.routes().await?, world.cloud.take_forwarding().await?);
    let named = names(&vendor)?;
    // The route controller creates no route that is listed.
    let listed = list(&world).await?;
    let found = listed.len() == NODES && listed.iter().zip(&new).all(|(route, wanted)| route.leads_to(wanted));
    ensure!(found, "the component lists the vendor's routes as {listed:?}");
    world.until_settled("routes", async || delete(&world, &listed).await).await?;
    same("what the component's deletion leaves", &world.cloud.routes().await?, &before)?;

    // Then the component, from which the vendor's provider takes over.
    world.proxy.clear();
    list(&world).await?;
    world.until_settled("routes", async || create(&world, &new).await).await?;
    let our_requests = world.proxy.take();
    let made = (world.cloud.routes().await?, world.cloud.take_forwarding().await?);
    same("the component's routes", &made.0, &made_by_vendor.0)?;
    same("what the machines may forward", &made.1, &made_by_vendor.1)?;
    same("the routes that the vendor's provider lists", &names(&vendor)?, &named)?;
    for route in vendor.routes()?.map_err(Error::msg)? {
        if route.destination_cidr.starts_with("10.244.") {
            vendor.delete_route(&route)?.map_err(Error::msg).context("the vendor's provider deletes")?;
        }
    }
    same("what the vendor's deletion leaves", &world.cloud.routes().await?, &before)?;
    let requests: Vec<_> = our_requests.iter().map(line).collect();
    ensure!(requests.len() <= their_requests, "the vendor's provider needs {their_requests} requests: {requests:#?}");
    Ok(())
}

/// Node and destination of each route of the cluster, by the vendor's provider.
fn names(vendor: &Vendor) -> Result<Vec<String>> {
    let routes = vendor.routes()?.map_err(Error::msg).context("the vendor's provider lists")?;
    let ours = routes.iter().filter(|route| route.destination_cidr.starts_with("10.244."));
    let mut lines: Vec<_> = ours.map(|route| format!("{} to {}", route.destination_cidr, route.target_node)).collect();
    lines.sort();
    Ok(lines)
}
