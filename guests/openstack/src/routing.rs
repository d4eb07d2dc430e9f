//! Routes to the pods of each node: extra routes of a router. A route's target is the node's
//! address.
//!
//! A router's routes have no owner: the list has all of them, and the host deletes only those
//! within the cluster's CIDRs.

use std::net::IpAddr;

use serde_json::json;
use skysail_guest_sdk::{AddressKind, Cidr, Error, NewRoute, NodeAddress, Result, Route, Target};

use crate::{
    client::{BATCH_MAX, Call, Cloud},
    distinct,
    settings::Api,
    wire::{self, AddressPair, Extension, Port, Router, RouterRoute},
};

/// What a port must tell.
const PORT_FIELDS: [&str; 6] =
    ["id", "network_id", "fixed_ips", "allowed_address_pairs", "port_security_enabled", "revision_number"];

/// Addresses in one query for ports: the URL stays below 8 KiB.
const ADDRESSES_MAX: usize = 100;

/// What the network API can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub(crate) struct Extensions {
    /// Routes are added and removed one by one, whatever other clients do to the router.
    atomic: bool,
    /// Ports must be told which addresses their machine may use.
    address_pairs: bool,
}

impl Extensions {
    /// Reads the list of extensions.
    ///
    /// # Errors
    ///
    /// `unsupported` for a cloud whose routers have no extra routes.
    pub(crate) fn of(cloud: &impl Cloud) -> Result<Self> {
        let extensions: Vec<Extension> =
            cloud.one(Call::get(Api::Network, &["extensions"]).query("fields", "alias"))?;
        let has = |alias: &str| extensions.iter().any(|extension| extension.alias == alias);
        if !has("extraroute") && !has("extraroute-atomic") {
            return Err(Error::Unsupported(
                "the network API has no extension extraroute, so routers have no routes; remove router-id in [Route]"
                    .to_owned(),
            ));
        }
        Ok(Self { atomic: has("extraroute-atomic"), address_pairs: has("allowed-address-pairs") })
    }
}

/// Routes that failed, each with the reason.
type Failed = Vec<(RouterRoute, Error)>;

/// One router.
pub(crate) struct Routing<'a, C> {
    pub(crate) cloud: &'a C,
    pub(crate) router: &'a str,
    pub(crate) extensions: Extensions,
}

/// As `routes.list`: one request.
pub(crate) fn list(cloud: &impl Cloud, router: &str) -> Result<Vec<Route>> {
    let Router { routes, .. } = cloud.one(Call::get(Api::Network, &["routers", router])).map_err(no_router(router))?;
    Ok(routes.into_iter().map(route).collect())
}

impl<C: Cloud> Routing<'_, C> {
    /// As `routes.create`.
    pub(crate) fn create(&self, wanted: &[NewRoute]) -> Result<Vec<Result<()>>> {
        let (router, networks) = self.look()?;
        let routes: Vec<Result<RouterRoute>> = wanted.iter().map(extra_route).collect();
        let good = distinct(routes.iter().filter_map(|route| route.as_ref().ok()));
        // Neutron would use both next hops of one destination in turn.
        let stale = |there: &&RouterRoute| {
            !good.contains(there) && good.iter().any(|route| route.destination == there.destination)
        };
        let stale: Vec<RouterRoute> = router.routes.iter().filter(stale).cloned().collect();
        let missing = good.iter().filter(|route| !router.routes.contains(route)).map(|route| (*route).clone());
        let missing: Vec<RouterRoute> = missing.collect();
        let failed = self.change(router, &stale, &missing)?;
        let added = good.iter().copied().filter(|route| failed.iter().all(|(other, _)| other != *route));
        let pairs = self.change_pairs(&added.collect::<Vec<_>>(), &networks, true)?;
        let result = |route: Result<RouterRoute>| {
            let route = route?;
            match failed.iter().chain(&pairs).find(|(other, _)| *other == route) {
                Some((_, error)) => Err(error.clone()),
                None => Ok(()),
            }
        };
        Ok(routes.into_iter().map(result).collect())
    }

    /// As `routes.delete`.
    pub(crate) fn delete(&self, surplus: &[Route]) -> Result<Vec<Result<()>>> {
        let (router, networks) = self.look()?;
        let routes: Vec<Option<RouterRoute>> = surplus.iter().map(listed_route).collect();
        let all: Vec<&RouterRoute> = routes.iter().flatten().collect();
        // The pairs first: `list` shows a route that is left over, and nothing shows a pair.
        let pairs = self.change_pairs(&all, &networks, false)?;
        let is_free = |route: &&RouterRoute| pairs.iter().all(|(other, _)| other != *route);
        let present = all.into_iter().filter(is_free).filter(|route| router.routes.contains(route));
        let surplus: Vec<RouterRoute> = present.cloned().collect();
        self.change(router, &surplus, &[])?;
        // None is not a route that `list` returned.
        let failed = |route: Option<RouterRoute>| pairs.iter().find(|(other, _)| route.as_ref() == Some(other));
        let result = |route: Option<RouterRoute>| failed(route).map_or(Ok(()), |(_, error)| Err(error.clone()));
        Ok(routes.into_iter().map(result).collect())
    }

    /// The router and the networks that it connects.
    fn look(&self) -> Result<(Router, Vec<String>)> {
        let router = Call::get(Api::Network, &["routers", self.router]);
        let ports = Call::get(Api::Network, &["ports"]).query("device_id", self.router);
        let router = self.cloud.one(router).map_err(no_router(self.router))?;
        if !self.extensions.address_pairs {
            return Ok((router, Vec::new()));
        }
        let ports: Vec<Port> = self.cloud.list(ports.queries("fields", ["id", "network_id"]))?;
        Ok((router, distinct(ports.into_iter().map(|port| port.network_id))))
    }

    /// Removes the routes `stale` from the router and adds the routes `missing`. Returns each route
    /// that could not be added, with its error.
    fn change(&self, router: Router, stale: &[RouterRoute], missing: &[RouterRoute]) -> Result<Failed> {
        if !self.extensions.atomic {
            return self.replace(router, stale, missing);
        }
        if !stale.is_empty() {
            self.cloud.send(self.put("remove_extraroutes", stale))?;
        }
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        match self.cloud.send(self.put("add_extraroutes", missing)) {
            Ok(_) => Ok(Vec::new()),
            // One wrong route fails the whole request, so each route is sent in a separate request.
            Err(Error::Invalid(_)) if missing.len() > 1 => {
                let tried = missing.iter().take(BATCH_MAX);
                let calls = tried.map(|route| self.put("add_extraroutes", std::slice::from_ref(route)));
                let answers = self.cloud.send_all(calls.collect());
                let later = || Err(Error::Unavailable("another route failed; the next call adds this one".to_owned()));
                let answers = answers.into_iter().chain(std::iter::repeat_with(later));
                Ok(missing
                    .iter()
                    .zip(answers)
                    .filter_map(|(route, answer)| Some((route.clone(), answer.err()?)))
                    .collect())
            }
            Err(error @ (Error::Invalid(_) | Error::Exhausted(_))) => {
                Ok(missing.iter().map(|route| (route.clone(), error.clone())).collect())
            }
            Err(error) => Err(error),
        }
    }

    fn put(&self, action: &str, routes: &[RouterRoute]) -> Call {
        Call::put(Api::Network, &["routers", self.router, action], json!({"router": {"routes": routes}}))
    }

    /// For clouds without atomic changes: writes the whole list, if nobody else changed the router
    /// since it was read.
    fn replace(&self, router: Router, stale: &[RouterRoute], missing: &[RouterRoute]) -> Result<Failed> {
        if stale.is_empty() && missing.is_empty() {
            return Ok(Vec::new());
        }
        let kept = router.routes.into_iter().filter(|route| !stale.contains(route));
        let routes: Vec<RouterRoute> = kept.chain(missing.iter().cloned()).collect();
        let body = json!({"router": {"routes": routes}});
        let call = Call::put(Api::Network, &["routers", self.router], body).if_revision(router.revision_number);
        match self.cloud.send(call) {
            Ok(_) => Ok(Vec::new()),
            Err(error @ (Error::Invalid(_) | Error::Exhausted(_))) => {
                Ok(missing.iter().map(|route| (route.clone(), error.clone())).collect())
            }
            Err(error) => Err(error),
        }
    }

    /// Allows or forbids the ports of the next hops to use the destinations. A port that does not
    /// exist needs no change when a route goes, and is `not-found` when a route comes.
    fn change_pairs(&self, routes: &[&RouterRoute], networks: &[String], allow: bool) -> Result<Failed> {
        let mut failed = Vec::new();
        if !self.extensions.address_pairs || routes.is_empty() {
            return Ok(failed);
        }
        let ports = self.ports(routes, networks)?;
        for route in routes.iter().filter(|_| allow) {
            if !ports.iter().any(|port| has_address(port, &route.nexthop)) {
                let why = format!("no port of the router's networks has the address {} of the node", route.nexthop);
                failed.push(((*route).clone(), Error::NotFound(why)));
            }
        }
        let changes = ports.iter().filter_map(|port| {
            let routes: Vec<&RouterRoute> =
                routes.iter().copied().filter(|route| has_address(port, &route.nexthop)).collect();
            let call = with_pairs(port, &routes, allow)?;
            Some((routes, call))
        });
        let changes: Vec<(Vec<&RouterRoute>, Call)> = changes.collect();
        let answers = self.cloud.send_all(changes.iter().take(BATCH_MAX).map(|(_, call)| call.clone()).collect());
        let later =
            || Err(Error::Unavailable("the call has changed other ports; the next call changes this one".to_owned()));
        let answers = answers.into_iter().chain(std::iter::repeat_with(later));
        for ((routes, _), answer) in changes.into_iter().zip(answers) {
            // A response without the port is not that of Neutron, and the port may be unchanged.
            if let Err(error) = answer.and_then(|body| wire::one::<Port>(&body)) {
                failed.extend(routes.into_iter().map(|route| (route.clone(), error.clone())));
            }
        }
        Ok(failed)
    }

    fn ports(&self, routes: &[&RouterRoute], networks: &[String]) -> Result<Vec<Port>> {
        let addresses = distinct(routes.iter().map(|route| route.nexthop.as_str()));
        let calls = addresses.chunks(ADDRESSES_MAX).map(|addresses| {
            let call = Call::get(Api::Network, &["ports"]).queries("fields", PORT_FIELDS);
            addresses.iter().fold(call, |call, address| call.query("fixed_ips", format!("ip_address={address}")))
        });
        let mut ports = Vec::new();
        for list in self.cloud.lists::<Port>(calls.collect()) {
            ports.extend(list?.into_iter().filter(|port| networks.contains(&port.network_id)));
        }
        Ok(ports)
    }
}

fn no_router(router: &str) -> impl Fn(Error) -> Error {
    move |error| match error {
        // The list of routes is unknown, not empty.
        Error::NotFound(said) => Error::Denied(format!(
            "[Route] router-id: OpenStack has no router {router}, or does not show it to this account: {said}; \
             correct the ID, or the project of the account"
        )),
        error => error,
    }
}

fn route(RouterRoute { destination, nexthop }: RouterRoute) -> Route {
    Route {
        name: destination.clone(),
        target_addresses: vec![NodeAddress::new(AddressKind::InternalIp, nexthop.as_str())],
        target: Target::Address(nexthop),
        destination_cidr: destination,
        blackhole: false,
        extra: Vec::new(),
    }
}

/// The route of a `Route` that [`list`] returned.
fn listed_route(route: &Route) -> Option<RouterRoute> {
    match &route.target {
        Target::Address(nexthop) => {
            Some(RouterRoute { destination: route.destination_cidr.clone(), nexthop: nexthop.clone() })
        }
        Target::Node(_) | Target::ProviderId(_) | Target::None => None,
    }
}

/// The route to the node's first internal address of the destination's family.
fn extra_route(new: &NewRoute) -> Result<RouterRoute> {
    let destination: Cidr = new.destination_cidr.parse()?;
    let internal = new.addresses.iter().filter(|address| address.kind == AddressKind::InternalIp);
    let mut addresses = internal.filter_map(|address| address.address.parse::<IpAddr>().ok());
    let nexthop = addresses.find(|address| address.is_ipv4() == destination.address().is_ipv4());
    let nexthop = nexthop.ok_or_else(|| {
        Error::Unavailable(format!(
            "node {} has no InternalIP of the family of {destination} yet, so the route has no next hop",
            new.node
        ))
    })?;
    Ok(RouterRoute { destination: new.destination_cidr.clone(), nexthop: nexthop.to_string() })
}

fn has_address(port: &Port, address: &str) -> bool {
    port.fixed_ips.iter().any(|fixed| fixed.ip_address == address)
}

/// The change of a port's address pairs; none where the port is not secured, or is right already.
fn with_pairs(port: &Port, routes: &[&RouterRoute], allow: bool) -> Option<Call> {
    if port.port_security_enabled == Some(false) {
        return None;
    }
    let is_of = |pair: &AddressPair, route: &RouterRoute| pair.ip_address == route.destination;
    let mut pairs = port.allowed_address_pairs.clone();
    if allow {
        for route in routes {
            if !pairs.iter().any(|pair| is_of(pair, route)) {
                pairs.push(AddressPair { ip_address: route.destination.clone(), mac_address: None });
            }
        }
    } else {
        pairs.retain(|pair| !routes.iter().any(|route| is_of(pair, route)));
    }
    let body = json!({"port": {"allowed_address_pairs": pairs}});
    (pairs != port.allowed_address_pairs)
        .then(|| Call::put(Api::Network, &["ports", &port.id], body).if_revision(port.revision_number))
}

#[cfg(test)]
mod tests;
