//! Routes: created once, deleted once, and what others made stays.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use skysail_provider::{Code, Error, NewRoute, Node, Provider as _, Route, Target};

use super::same;
use crate::{
    cloud::Routing,
    proxy::{Judge, Reply, Verdict},
    world::{CLUSTER, World},
};

/// More requests than two routes need.
const PLACES_MAX: usize = 100;

pub(super) fn wanted(node: &Node, destination: &str) -> NewRoute {
    NewRoute { name_hint: "0a1b2c3d-4e5f-6789-abcd-ef0123456789".to_owned(), ..NewRoute::of(node, destination) }
}

/// A world with two nodes, the routes that they need, and the routes that were there before.
pub(super) async fn two_routes<C: Routing>() -> Result<(World<C>, [NewRoute; 2], Vec<String>)> {
    let world = World::<C>::start().await?;
    let nodes = world.nodes(&["node-a", "node-b"]).await?;
    let [a, b] = nodes.as_slice() else { bail!("the cloud made {} machines", nodes.len()) };
    let wanted = [wanted(a, "10.244.1.0/24"), wanted(b, "10.244.2.0/24")];
    let before = world.cloud.routes().await?;
    Ok((world, wanted, before))
}

pub(super) async fn list<C: Routing>(world: &World<C>) -> Result<Vec<Route>, Error> {
    let routes = world.provider.routes().ok_or_else(|| Error::new(Code::Unsupported, "no routes"))?;
    let mut listed = routes.list(&world.call, CLUSTER).await?;
    listed.retain(|route| route.destination_cidr.starts_with("10.244."));
    listed.sort_by(|one, other| one.destination_cidr.cmp(&other.destination_cidr));
    Ok(listed)
}

/// All results, or the first error.
fn all(results: Result<Vec<Result<(), Error>>, Error>) -> Result<(), Error> {
    results?.into_iter().collect()
}

pub(super) async fn create<C: Routing>(world: &World<C>, wanted: &[NewRoute]) -> Result<(), Error> {
    let routes = world.provider.routes().ok_or_else(|| Error::new(Code::Unsupported, "no routes"))?;
    all(routes.create(&world.call, CLUSTER, wanted).await)
}

pub(super) async fn delete<C: Routing>(world: &World<C>, listed: &[Route]) -> Result<(), Error> {
    let routes = world.provider.routes().ok_or_else(|| Error::new(Code::Unsupported, "no routes"))?;
    all(routes.delete(&world.call, CLUSTER, listed).await)
}

/// Whether a call has succeeded so far.
fn is_settled_or_waits(result: &Result<(), Error>) -> bool {
    result.as_ref().err().is_none_or(|error| error.code == Code::RetryAfter)
}

/// Each route is created once and listed with a target that the host can resolve to its node;
/// repeated calls change nothing, and a deletion leaves what was there before.
///
/// # Errors
/// The provider does otherwise.
pub async fn routes_are_created_and_deleted_once<C: Routing>() -> Result<()> {
    let (world, wanted, before) = two_routes::<C>().await?;
    ensure!(list(&world).await?.is_empty(), "routes are listed before the first one is created");
    world.until_settled("routes", async || create(&world, &wanted).await).await?;
    let created = world.cloud.routes().await?;
    let listed = list(&world).await?;
    ensure!(listed.len() == 2, "two routes were created, and these are listed: {listed:?}");
    for (route, wanted) in listed.iter().zip(&wanted) {
        ensure!(route.destination_cidr == wanted.destination_cidr && !route.blackhole, "{route:?} is not {wanted:?}");
        ensure!(route.leads_to(wanted), "the host does not find the node of {route:?}");
    }
    world.proxy.clear();
    world.until_settled("routes", async || create(&world, &wanted).await).await?;
    same("writes of a second creation", &world.writes(), &[])?;
    for _ in 0..2 {
        world.until_settled("routes", async || delete(&world, &listed).await).await?;
        same("the routes after a deletion", &world.cloud.routes().await?, &before)?;
    }
    ensure!(created != before, "the creation changed nothing in the cloud");
    ensure!(list(&world).await?.is_empty(), "deleted routes are listed");
    Ok(())
}

/// A node that came back with another machine: its route leads to the new machine, or the error
/// says what is in the way.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_route_to_another_machine_is_replaced_or_named<C: Routing>() -> Result<()> {
    let (world, [one, other], _) = two_routes::<C>().await?;
    let [moved, first] = [NewRoute { destination_cidr: one.destination_cidr.clone(), ..other }, one];
    world.until_settled("routes", async || create(&world, std::slice::from_ref(&first)).await).await?;
    match world.until_settled("routes", async || create(&world, std::slice::from_ref(&moved)).await).await {
        Ok(()) => {
            let listed = list(&world).await?;
            let [route] = listed.as_slice() else { bail!("after the replacement: {listed:?}") };
            let old = route.leads_to(&first) || route.target == Target::None;
            ensure!(!old, "the route still leads to the old machine: {route:?}");
        }
        Err(error) => {
            ensure!(error.to_string().contains("10.244.1.0/24"), "the error does not name the route: {error}")
        }
    }
    let listed = list(&world).await?;
    world.until_settled("routes", async || delete(&world, &listed).await).await
}

/// The routes of two clusters in one account do not meet: a deletion in one cluster leaves those of
/// the other one.
///
/// # Errors
/// The provider does otherwise.
pub async fn routes_of_other_clusters_are_left_alone<C: Routing>() -> Result<()> {
    let (world, ours, before) = two_routes::<C>().await?;
    let nodes = world.nodes(&["node-c"]).await?;
    let theirs: Vec<NewRoute> = nodes.as_slice().iter().map(|node| wanted(node, "10.245.1.0/24")).collect();
    let routes = world.provider.routes().context("the component has no routes")?;
    let create_theirs = async || all(routes.create(&world.call, "other", &theirs).await);
    world.until_settled("routes of the other cluster", create_theirs).await?;
    let alone = world.cloud.routes().await?;
    ensure!(alone != before, "the creation in the other cluster changed nothing in the cloud");
    world.until_settled("routes", async || create(&world, &ours).await).await?;
    let listed = list(&world).await?;
    ensure!(listed.len() == 2, "two routes were created, and these are listed: {listed:?}");
    world.until_settled("routes", async || delete(&world, &listed).await).await?;
    same("the routes after the deletion of this cluster's", &world.cloud.routes().await?, &alone)?;
    let listed = routes.list(&world.call, "other").await?;
    let theirs: Vec<Route> = listed.into_iter().filter(|route| route.destination_cidr == "10.245.1.0/24").collect();
    ensure!(theirs.len() == 1, "the other cluster's route is not listed there");
    world.until_settled("routes", async || all(routes.delete(&world.call, "other", &theirs).await)).await?;
    same("the routes at the end", &world.cloud.routes().await?, &before)
}

/// A refused credential is `Denied` in every call, and the routes stay.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_refused_credential_changes_no_route<C: Routing>() -> Result<()> {
    let (world, wanted, _) = two_routes::<C>().await?;
    world.until_settled("routes", async || create(&world, &wanted).await).await?;
    let (listed, before) = (list(&world).await?, world.cloud.routes().await?);
    world.cloud.revoke_credential().await?;
    let code = |result: Result<(), Error>| result.err().map(|error| error.code);
    let codes = [
        ("list", code(list(&world).await.map(drop))),
        ("create", code(create(&world, &wanted).await)),
        ("delete", code(delete(&world, &listed).await)),
    ];
    for (call, code) in codes {
        ensure!(code == Some(Code::Denied), "`{call}` with a revoked credential: {code:?}");
    }
    same("the routes after the refused calls", &world.cloud.routes().await?, &before)
}

fn failures<C: Routing>() -> [(&'static str, Judge); 5] {
    let always = |verdict: Verdict| -> Judge { Arc::new(move |_| verdict.clone()) };
    [
        ("a cut connection", always(Verdict::CutBefore)),
        ("a lost answer", always(Verdict::CutAfter)),
        ("200 with HTML", always(Verdict::Answer(Reply::new(200, "<html></html>")))),
        ("200 with an empty object", always(Verdict::Answer(Reply::new(200, "{}")))),
        ("the rate limit", Arc::new(|request| Verdict::Answer(C::throttled(request)))),
    ]
}

/// A request fails, at each place in turn: a list is never short, and the next call completes the
/// work.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_failure_of_any_request_loses_no_route<C: Routing>() -> Result<()> {
    let (world, wanted, before) = two_routes::<C>().await?;
    world.until_settled("routes", async || create(&world, &wanted).await).await?;
    let created = world.cloud.routes().await?;
    for (name, failure) in failures::<C>() {
        let fail_at = |place: usize| {
            let failure = Arc::clone(&failure);
            world.proxy.decide(move |request| if request.number == place { failure(request) } else { Verdict::Pass });
        };
        for place in 0.. {
            ensure!(place < PLACES_MAX, "the provider sent {PLACES_MAX} requests for one list");
            fail_at(place);
            let listed = list(&world).await;
            let reached = world.proxy.take().len() > place;
            world.proxy.pass();
            ensure!(
                listed.as_ref().map_or(true, |listed| listed.len() == 2),
                "{name} at request {place} of a list: {listed:?}"
            );
            if !reached {
                break;
            }
        }
        for place in 0.. {
            ensure!(place < PLACES_MAX, "the provider sent {PLACES_MAX} requests for two routes");
            let listed = list(&world).await?;
            fail_at(place);
            let deleted = delete(&world, &listed).await;
            let reached = world.proxy.take().len() > place;
            world.proxy.pass();
            let left = list(&world).await?;
            world
                .until_settled("routes", async || delete(&world, &left).await)
                .await
                .with_context(|| format!("{name} at request {place}"))?;
            same(
                &format!("routes after {name} at request {place} of a deletion"),
                &world.cloud.routes().await?,
                &before,
            )?;
            fail_at(place);
            let made = create(&world, &wanted).await;
            let reached = reached || world.proxy.take().len() > place;
            world.proxy.pass();
            world
                .until_settled("routes", async || create(&world, &wanted).await)
                .await
                .with_context(|| format!("{name} at request {place}"))?;
            same(
                &format!("routes after {name} at request {place} of a creation"),
                &world.cloud.routes().await?,
                &created,
            )?;
            if !reached {
                for result in [deleted, made] {
                    ensure!(is_settled_or_waits(&result), "no request failed: {result:?}");
                }
                break;
            }
        }
    }
    Ok(())
}

/// Lists that lag behind show a new route late and a deleted one for a while: calls that are
/// repeated because of that make no second route, and leave none.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_cloud_whose_lists_lag_behind_has_each_route_once<C: Routing + 'static>() -> Result<()> {
    let (world, wanted, before) = two_routes::<C>().await?;
    world.until_settled("routes", async || create(&world, &wanted).await).await?;
    let created = world.cloud.routes().await?;
    let listed = list(&world).await?;
    world.until_settled("routes", async || delete(&world, &listed).await).await?;
    world.proxy.lag_behind(C::is_write);
    for round in 0..2 {
        // A stale read may make a write that the cloud refuses, or hide the route that is to be
        // deleted; the controller lists and repeats.
        for (what, wanted, expected) in [("creation", Some(&wanted), &created), ("deletion", None, &before)] {
            let (mut last, mut calls) = (Ok(()), 0);
            while calls < 20 && (last.is_err() || world.cloud.routes().await? != *expected || calls == 0) {
                let listed = list(&world).await?;
                last = match wanted {
                    Some(wanted) => create(&world, wanted).await,
                    None => delete(&world, &listed).await,
                };
                calls += 1;
            }
            last.with_context(|| format!("{what} {round} with lists that lag behind"))?;
            let what = format!("the routes after {what} {round} with lists that lag behind");
            same(&what, &world.cloud.routes().await?, expected)?;
        }
    }
    Ok(())
}
