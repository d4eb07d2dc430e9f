//! Routes to the pods of each machine. The cloud names the target of a route by the machine's ID.

use std::collections::HashSet;

use serde::Serialize;
use skysail_guest_sdk::{
    Absent as _, Error, NewRoute, Result, Route, Target,
    http::{self, Response},
    provider_id,
};

use crate::{
    api::{Cloud, CloudRoute, Machine, Tags},
    balancing::CLUSTER_TAG,
    machines::SCHEME,
};

#[derive(Serialize)]
struct NewCloudRoute<'a> {
    name: &'a str,
    destination_cidr: &'a str,
    instance: &'a str,
    tags: Tags,
}

/// One list: the host finds the node of a machine.
pub(crate) fn list(cloud: &Cloud, cluster: &str) -> Result<Vec<Route>> {
    let route = |route: CloudRoute| Route {
        name: route.id,
        target: Target::ProviderId(provider_id::format(SCHEME, &route.instance)),
        target_addresses: Vec::new(),
        destination_cidr: route.destination_cidr,
        blackhole: route.blackhole,
        extra: Vec::new(),
    };
    Ok(owned(cloud, cluster)?.into_iter().map(route).collect())
}

/// One list, and a second one for nodes without a provider ID; then one request for each missing
/// route, in parallel. A route of this cluster to another machine is deleted first: pod CIDRs move
/// when a node is created again.
pub(crate) fn create(cloud: &Cloud, cluster: &str, wanted: &[NewRoute]) -> Result<Vec<Result<()>>> {
    let present = owned(cloud, cluster)?;
    let targets = machines_of(cloud, wanted)?;
    let in_the_way = |route: &NewRoute, id: &str| {
        present.iter().find(|there| there.destination_cidr == route.destination_cidr && there.instance != id)
    };
    let pairs = || wanted.iter().zip(&targets).filter_map(|(route, id)| Some((route, id.as_ref().ok()?)));
    let stale = pairs().filter_map(|(route, id)| in_the_way(route, id));
    let removals = stale.map(|route| cloud.api.delete(&["v1", "routes", &route.id])).collect();
    for removed in http::send_all(removals) {
        removed.absent_ok()?;
    }
    let is_there = |route: &NewRoute, id: &str| {
        present.iter().any(|there| there.destination_cidr == route.destination_cidr && there.instance == id)
    };
    let tags: Tags = [(CLUSTER_TAG.to_owned(), cluster.to_owned())].into();
    let missing = pairs().filter(|(route, id)| !is_there(route, id));
    let requests = missing.map(|(route, instance)| {
        let NewRoute { name_hint, destination_cidr, .. } = route;
        let name = if name_hint.is_empty() { destination_cidr } else { name_hint };
        let new = NewCloudRoute { name, destination_cidr, instance, tags: tags.clone() };
        let key = format!("{cluster}/{destination_cidr}/{instance}");
        cloud.api.post(&["v1", "routes"]).header("idempotency-key", &key).json(&new)
    });
    let mut answers = http::send_all(requests.collect()).into_iter();
    let results = wanted.iter().zip(&targets).map(|(route, id)| match id {
        Err(error) => Err(error.clone()),
        Ok(id) if is_there(route, id) => Ok(()),
        Ok(_) => answers
            .next()
            .unwrap_or_else(|| Err(Error::Internal("the host returned fewer responses than requests".to_owned())))
            .map(drop),
    });
    Ok(results.collect())
}

/// The ID of the machine of each route: by the node's provider ID, else by the node's name.
fn machines_of(cloud: &Cloud, wanted: &[NewRoute]) -> Result<Vec<Result<String>>> {
    let is_by_name = wanted.iter().any(|route| route.provider_id.is_none());
    let machines: Vec<Machine> =
        if is_by_name { Cloud::list(&cloud.api.get(&["v1", "instances"]))? } else { Vec::new() };
    let target = |NewRoute { node, provider_id, .. }: &NewRoute| match provider_id {
        Some(id) => provider_id::parse(SCHEME, id).map(str::to_owned),
        None => {
            let machine = machines.iter().find(|machine| machine.name == *node);
            let missing = || Error::NotFound(format!("the cloud has no machine {node:?}"));
            machine.map(|machine| machine.id.clone()).ok_or_else(missing)
        }
    };
    Ok(wanted.iter().map(target).collect())
}

/// One list, then one request for each route, in parallel. A missing route is a success. A route of
/// another cluster is refused, because the name comes from the host and proves no ownership.
pub(crate) fn delete(cloud: &Cloud, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
    let owned: HashSet<String> = owned(cloud, cluster)?.into_iter().map(|route| route.id).collect();
    let request = |route: &Route| {
        let path = ["v1", "routes", route.name.as_str()];
        if owned.contains(&route.name) { cloud.api.delete(&path) } else { cloud.api.get(&path) }
    };
    let answers = http::send_all(routes.iter().map(request).collect());
    let judge = |(route, answer): (&Route, Result<Response>)| match answer.absent_ok()? {
        Some(_) if !owned.contains(&route.name) => {
            Err(Error::Denied(format!("route {:?} is not of cluster {cluster:?}", route.name)))
        }
        Some(_) | None => Ok(()),
    };
    Ok(routes.iter().zip(answers).map(judge).collect())
}

fn owned(cloud: &Cloud, cluster: &str) -> Result<Vec<CloudRoute>> {
    Cloud::list(&cloud.api.get(&["v1", "routes"]).query("tag", &format!("{CLUSTER_TAG}={cluster}")))
}
