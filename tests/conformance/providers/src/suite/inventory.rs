//! The inventory of load balancers: complete, of this cluster alone, and safe to delete from.

use anyhow::{Context as _, Result, bail, ensure};
use skysail_provider::{Code, OwnedLoadBalancer, Provider as _, Service};

use super::{
    balancers::{two_nodes, web},
    same,
};
use crate::{
    cloud::Balancers,
    proxy::{Reply, Verdict},
    world::CLUSTER,
};

/// More requests than one load balancer needs.
const PLACES_MAX: usize = 200;

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

/// More load balancers than a page of the cloud's list: all are in the inventory, and each Service
/// finds its own.
///
/// # Errors
/// The provider does otherwise.
pub async fn load_balancers_beyond_a_page_are_found<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let services = (0..C::PAGE + 2).map(|number| {
        let mut service = web(&world.cloud, &format!("web-{number:03}"));
        service.ports.truncate(1);
        service.ports.iter_mut().for_each(|port| port.node_port = 30_000 + u16::try_from(number).unwrap_or_default());
        service
    });
    let services: Vec<Service> = services.collect();
    for service in &services {
        world.ensure(service, &nodes).await.with_context(|| service.name.clone())?;
    }
    let owned = world.inventory(CLUSTER).await?;
    ensure!(owned.len() == services.len(), "{} of {} load balancers are listed", owned.len(), services.len());
    world.proxy.clear();
    for service in [services.first(), services.last()].into_iter().flatten() {
        world.ensure(service, &nodes).await.with_context(|| service.name.clone())?;
    }
    same("writes of a second `ensure`", &world.writes(), &[])?;
    for service in &services {
        world.ensure_deleted(service).await.with_context(|| service.name.clone())?;
    }
    same("the inventory at the end", &names(&world.inventory(CLUSTER).await?), &[])?;
    same("the cloud at the end", &world.cloud.balancers().await?, &empty)
}

/// A request of the inventory fails, at each place in turn: a list is an error and never a short
/// one, and the next deletion leaves nothing.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_failure_of_any_request_shortens_no_inventory<C: Balancers>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    world.ensure(&service, &nodes).await?;
    let whole = world.inventory(CLUSTER).await?;
    let [owned] = whole.as_slice() else { bail!("the inventory of one load balancer is {whole:?}") };
    let inventory = world.provider.load_balancer_inventory().context("the component has no inventory")?;
    let html = Reply::new(200, "<html></html>");
    for verdict in [Verdict::CutBefore, Verdict::CutAfter, Verdict::Answer(html), Verdict::Answer(Reply::new(500, ""))]
    {
        let fail_at = |place: usize| {
            let verdict = verdict.clone();
            world.proxy.decide(move |request| if request.number == place { verdict.clone() } else { Verdict::Pass });
        };
        for place in 0.. {
            ensure!(place < PLACES_MAX, "the provider sent {PLACES_MAX} requests for one list");
            fail_at(place);
            let listed = world.inventory(CLUSTER).await;
            let reached = world.proxy.take().len() > place;
            world.proxy.pass();
            let is_whole = listed.as_ref().map_or(true, |listed| *listed == whole);
            ensure!(is_whole, "{verdict:?} at request {place} of a list: {listed:?}");
            if !reached {
                break;
            }
        }
        for place in 0.. {
            ensure!(place < PLACES_MAX, "the provider sent {PLACES_MAX} requests for one deletion");
            fail_at(place);
            drop(inventory.delete(&world.call, CLUSTER, owned).await);
            let reached = world.proxy.take().len() > place;
            world.proxy.pass();
            world.delete_owned(CLUSTER, owned).await.with_context(|| format!("{verdict:?} at request {place}"))?;
            let what = format!("the cloud after {verdict:?} at request {place} of a deletion");
            same(&what, &world.cloud.balancers().await?, &empty)?;
            world.ensure(&service, &nodes).await?;
            if !reached {
                break;
            }
        }
    }
    world.ensure_deleted(&service).await?;
    same("the cloud at the end", &world.cloud.balancers().await?, &empty)
}

fn names(owned: &[OwnedLoadBalancer]) -> Vec<String> {
    owned.iter().map(|owned| owned.name.clone()).collect()
}

fn identity(service: &Service) -> (String, String, String) {
    (service.namespace.clone(), service.name.clone(), service.uid.clone())
}
