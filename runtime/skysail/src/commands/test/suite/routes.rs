//! Routes: created once, listed, deleted.

use anyhow::{anyhow, ensure};
use skysail_provider::{Call, Code, NewRoute, Provider, Result, Route, Routes};

use super::{Judged, Notes, Verdict};
use crate::commands::test::bench::{Bench, Made, missing, only_reads};

fn routes(provider: &dyn Provider) -> Result<&dyn Routes> {
    provider.routes().ok_or_else(|| missing("routes"))
}

/// The first error of a list.
fn all(results: Result<Vec<Result<()>>>) -> Result<()> {
    results?.into_iter().collect()
}

/// The routes of the run, as the cloud has them; none if the settings switch routes off.
async fn list(bench: &mut Bench) -> anyhow::Result<Option<Vec<Route>>> {
    let cluster = bench.plan.cluster.clone();
    let listed = bench.settled("routes.list", async |provider| {
        match routes(&*provider)?.list(&Call::default(), &cluster).await {
            Err(error) if error.code == Code::Unsupported => Ok(None),
            listed => listed.map(Some),
        }
    });
    let made = listed.await?;
    only_reads("routes.list", &made.requests)?;
    let ours = |route: &Route| bench.plan.route_cidrs.contains(&route.destination_cidr);
    Ok(made.answer.map(|listed| listed.into_iter().filter(ours).collect()))
}

async fn create(bench: &mut Bench, wanted: &[NewRoute]) -> anyhow::Result<Made<()>> {
    let cluster = bench.plan.cluster.clone();
    bench.has_routes = true;
    bench
        .settled("routes.create", async |provider| {
            all(routes(&*provider)?.create(&Call::default(), &cluster, wanted).await)
        })
        .await
}

async fn delete(bench: &mut Bench, listed: &[Route]) -> anyhow::Result<Made<()>> {
    let cluster = bench.plan.cluster.clone();
    bench
        .settled("routes.delete", async |provider| {
            all(routes(&*provider)?.delete(&Call::default(), &cluster, listed).await)
        })
        .await
}

/// A route to each of the first machines.
pub(super) async fn created_listed_and_deleted(bench: &mut Bench) -> Judged {
    let (nodes, cidrs, mut notes) = (bench.plan.nodes.clone(), bench.plan.route_cidrs.clone(), Notes::default());
    let wanted: Vec<NewRoute> =
        nodes.as_slice().iter().zip(&cidrs).map(|(node, cidr)| NewRoute::of(node, cidr)).collect();
    match list(bench).await? {
        None => return Ok(Verdict::NotTested("the settings of the component switch routes off".to_owned())),
        Some(listed) if !listed.is_empty() => {
            return Err(anyhow!(
                "{} is in the cloud before the run; delete the route, or give other destinations with --route-cidrs",
                listed.iter().map(|route| &*route.destination_cidr).collect::<Vec<_>>().join(", ")
            ));
        }
        Some(_) => {}
    }
    let created = create(bench, &wanted).await?;
    let listed = list(bench).await?.unwrap_or_default();
    ensure!(listed.len() == wanted.len(), "{} routes were created, and these are listed: {listed:?}", wanted.len());
    for new in &wanted {
        let route = listed.iter().find(|route| route.destination_cidr == new.destination_cidr);
        let route = route.ok_or_else(|| anyhow!("the route to {} is not listed: {listed:?}", new.destination_cidr))?;
        ensure!(
            route.leads_to(new),
            "the route to {} was created for {}, and is listed with {}",
            new.destination_cidr,
            new.node,
            route.target
        );
    }
    let again = create(bench, &wanted).await?;
    notes.nothing_changed("the second `create`", &again.requests, &created.requests)?;
    let listed = list(bench).await?.unwrap_or_default();
    ensure!(listed.len() == wanted.len(), "after a second `create` these routes are listed: {listed:?}");
    delete(bench, &listed).await?;
    let left = list(bench).await?.unwrap_or_default();
    ensure!(left.is_empty(), "these routes are listed after their deletion: {left:?}");
    let again = delete(bench, &listed).await?;
    notes.nothing_changed("the second `delete`", &again.requests, &[])?;
    bench.has_routes = false;
    Ok(notes.verdict())
}

/// Deletes the routes that may exist, and returns a line if some remain.
pub(in crate::commands::test) async fn delete_routes(bench: &mut Bench) -> Option<String> {
    if !bench.has_routes {
        return None;
    }
    let deleted = match list(bench).await {
        Ok(listed) => delete(bench, &listed.unwrap_or_default()).await.map(drop),
        Err(error) => Err(error),
    };
    bench.has_routes = deleted.is_err();
    let (cidrs, cluster) = (bench.plan.route_cidrs.join(" and "), &bench.plan.cluster);
    deleted.err().map(|error: anyhow::Error| format!("the routes to {cidrs} of the cluster {cluster}: {error:#}"))
}

#[cfg(test)]
mod tests {
    use skysail_provider::{Code, Error};

    use super::all;

    #[test]
    fn a_list_succeeds_if_all_of_it_does() {
        let refused = Error::new(Code::Exhausted, "no room");
        assert_eq!(all(Ok(vec![Ok(()), Ok(())])), Ok(()));
        assert_eq!(all(Ok(vec![Ok(()), Err(refused.clone())])), Err(refused.clone()));
        assert_eq!(all(Err(refused.clone())), Err(refused));
    }
}
