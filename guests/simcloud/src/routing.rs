//! Routes to the pods of each machine.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use skysail_guest_sdk::{
    Absent as _, AddressKind, Error, NodeAddress, Result, Route,
    http::{self, Response},
};

use crate::{
    api::{Cloud, CloudRoute, Machine, Tags},
    balancing::CLUSTER_TAG,
};

#[derive(Serialize)]
struct NewRoute<'a> {
    name: &'a str,
    destination_cidr: &'a str,
    instance: &'a str,
    tags: Tags,
}

/// Two lists: the cluster's routes, and the machines that they lead to.
pub(crate) fn list(cloud: &Cloud, cluster: &str) -> Result<Vec<Route>> {
    let routes = owned(cloud, cluster)?;
    if routes.is_empty() {
        return Ok(Vec::new());
    }
    let machines: Vec<Machine> = Cloud::list(&cloud.api.get(&["v1", "instances"]))?;
    let by_id: HashMap<&str, &Machine> = machines.iter().map(|machine| (machine.id.as_str(), machine)).collect();
    let route = |route: CloudRoute| {
        let target = by_id.get(route.instance.as_str());
        let address = |machine: &&Machine| NodeAddress::new(AddressKind::InternalIp, &machine.private_address);
        Route {
            name: route.id,
            target_node: target.map(|machine| machine.name.clone()),
            target_addresses: target.iter().map(|machine| address(machine)).collect(),
            destination_cidr: route.destination_cidr,
            blackhole: route.blackhole,
            extra: Vec::new(),
        }
    };
    Ok(routes.into_iter().map(route).collect())
}

/// Two lists, then one request for each missing route, in parallel. A route of this cluster to
/// another machine is deleted first: pod CIDRs move when a node is created again.
pub(crate) fn create(cloud: &Cloud, cluster: &str, wanted: Vec<(String, Route)>) -> Result<Vec<Result<()>>> {
    let present = owned(cloud, cluster)?;
    let machines: Vec<Machine> = Cloud::list(&cloud.api.get(&["v1", "instances"]))?;
    let target = |route: &Route| {
        let name = route.target_node.as_deref().unwrap_or_default();
        let machine = machines.iter().find(|machine| machine.name == name);
        machine
            .map(|machine| machine.id.clone())
            .ok_or_else(|| Error::NotFound(format!("the cloud has no machine {name:?}")))
    };
    let targets: Vec<Result<String>> = wanted.iter().map(|(_, route)| target(route)).collect();
    let in_the_way = |route: &Route, id: &str| {
        present.iter().find(|there| there.destination_cidr == route.destination_cidr && there.instance != id)
    };
    let pairs = || wanted.iter().zip(&targets).filter_map(|((hint, route), id)| Some((hint, route, id.as_ref().ok()?)));
    let stale = pairs().filter_map(|(_, route, id)| in_the_way(route, id));
    let removals = stale.map(|route| cloud.api.delete(&["v1", "routes", &route.id])).collect();
    for removed in http::send_all(removals) {
        removed.absent_ok()?;
    }
    let is_there = |route: &Route, id: &str| {
        present.iter().any(|there| there.destination_cidr == route.destination_cidr && there.instance == id)
    };
    let tags: Tags = [(CLUSTER_TAG.to_owned(), cluster.to_owned())].into();
    let missing = pairs().filter(|(_, route, id)| !is_there(route, id));
    let requests = missing.map(|(hint, route, instance)| {
        let name = if hint.is_empty() { &route.destination_cidr } else { hint };
        let new = NewRoute { name, destination_cidr: &route.destination_cidr, instance, tags: tags.clone() };
        let key = format!("{cluster}/{}/{instance}", route.destination_cidr);
        cloud.api.post(&["v1", "routes"]).header("idempotency-key", &key).json(&new)
    });
    let mut answers = http::send_all(requests.collect()).into_iter();
    let results = wanted.iter().zip(&targets).map(|((_, route), id)| match id {
        Err(error) => Err(error.clone()),
        Ok(id) if is_there(route, id) => Ok(()),
        Ok(_) => answers
            .next()
            .unwrap_or_else(|| Err(Error::Internal("the host returned fewer responses than requests".to_owned())))
            .map(drop),
    });
    Ok(results.collect())
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
