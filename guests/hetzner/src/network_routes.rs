//! Routes of the private network: one for the pods of each node.
//!
//! A network has no labels for routes, so every route in it is this cluster's; the host deletes
//! only those within the cluster's CIDRs.

use std::net::IpAddr;

use serde_json::json;
use skysail_guest_sdk::{AddressKind, Cidr, Error, NewRoute, NodeAddress, Result, Route, Target, provider_id};

use crate::{
    SCHEME,
    hcloud::{Hcloud, Host, server_id},
    refusal::AGAIN,
    settings::Settings,
    wire::{Network, NetworkRoute},
};

/// Collection of the API.
const NETWORKS: &str = "networks";

/// The routes of the configured network.
pub(crate) struct Routes<'a, H> {
    cloud: &'a Hcloud<H>,
    network: u64,
}

impl<'a, H: Host> Routes<'a, H> {
    /// The routes of this cloud-config.
    ///
    /// # Errors
    ///
    /// `unsupported` where it has no network, or switches routes off.
    pub(crate) fn new(cloud: &'a Hcloud<H>, settings: &Settings) -> Result<Self> {
        let off = || {
            Error::Unsupported(
                "the cloud-config has no network, or switches its routes off: network, network-routes-enabled"
                    .to_owned(),
            )
        };
        let network = cloud.configured_network(settings)?.filter(|_| settings.routes).ok_or_else(off)?;
        Ok(Self { cloud, network })
    }

    /// As `routes.list`. The host finds the node by its address in the network.
    pub(crate) fn list(&self) -> Result<Vec<Route>> {
        let routes = self.network()?.routes.into_iter();
        Ok(routes.map(|NetworkRoute { destination, gateway }| route(destination, gateway)).collect())
    }

    /// As `routes.create`. Hetzner changes a network by one action at a time, so a refused change
    /// puts the routes after it off.
    pub(crate) fn create(&self, routes: Vec<NewRoute>) -> Result<Vec<Result<()>>> {
        self.cloud.settle(&self.owner())?;
        let network = self.network()?;
        let mut busy = None;
        let results = routes.iter().map(|route| self.in_turn(&mut busy, || self.create_one(&network, route)));
        Ok(results.collect())
    }

    /// As `routes.delete`.
    pub(crate) fn delete(&self, routes: Vec<Route>) -> Result<Vec<Result<()>>> {
        self.cloud.settle(&self.owner())?;
        let network = self.network()?;
        let mut busy = None;
        let results = routes.iter().map(|route| {
            // The gateway may have changed since the route was listed; then another call made it.
            let present = network.routes.iter().find(|present| name(present) == route.name);
            match present {
                Some(present) => self.in_turn(&mut busy, || self.change("delete_route", present)),
                None => Ok(()),
            }
        });
        Ok(results.collect())
    }

    fn network(&self) -> Result<Network> {
        self.cloud.network(self.network).map_err(|error| match error {
            Error::NotFound(message) => Error::Denied(format!("{message}; correct the key network, or the token")),
            error => error,
        })
    }

    fn create_one(&self, network: &Network, route: &NewRoute) -> Result<()> {
        let destination = &route.destination_cidr;
        let cidr: Cidr = destination.parse()?;
        if !cidr.address().is_ipv4() {
            return Err(Error::Invalid(format!(
                "route to {destination}: Hetzner's networks have no IPv6; give the nodes IPv4 pod CIDRs"
            )));
        }
        let gateway = gateway(network, route)?;
        let wanted = NetworkRoute { destination: cidr.to_string(), gateway };
        let same = |present: &&NetworkRoute| present.destination.parse() == Ok(cidr);
        match network.routes.iter().find(same) {
            Some(present) if present.gateway == wanted.gateway => Ok(()),
            Some(other) => {
                self.change("delete_route", other)?;
                self.change("add_route", &wanted)
            }
            None => self.change("add_route", &wanted),
        }
    }

    /// Starts a change. It does not wait for the end: the next call asks about it, and the next
    /// `list` shows it.
    fn change(&self, verb: &str, route: &NetworkRoute) -> Result<()> {
        let action = self.cloud.act(NETWORKS, self.network, verb, Some(&json!(route)))?;
        self.cloud.ended(&self.owner(), &action)
    }

    /// Makes one change, unless an earlier one of this call made the network busy.
    fn in_turn(&self, busy: &mut Option<String>, change: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(why) = busy {
            return Err(Error::retry_after(AGAIN, why.clone()));
        }
        let result = change();
        if let Err(Error::RetryAfter(retry)) = &result {
            *busy = Some(format!("another change of the network comes first: {}", retry.message));
        }
        result
    }

    fn owner(&self) -> String {
        format!("network/{}", self.network)
    }
}

/// The address of the node in the network.
///
/// # Errors
///
/// `invalid` where the node has none, or its server is not attached.
fn gateway(network: &Network, route: &NewRoute) -> Result<String> {
    let node = &route.node;
    let remedy = format!("attach the server of node {node} to network {}", network.id);
    if let Some(id) = &route.provider_id {
        let id = server_id(provider_id::parse(SCHEME, id)?)?;
        if !network.servers.contains(&id) {
            return Err(Error::Invalid(format!("server {id} is not in the network; {remedy}")));
        }
    }
    let range: Cidr = network
        .ip_range
        .parse()
        .map_err(|error: Error| Error::Internal(format!("the range of network {}: {}", network.id, error.message())))?;
    let inside = |address: &&NodeAddress| {
        address.kind == AddressKind::InternalIp
            && address.address.parse::<IpAddr>().is_ok_and(|address| range.contains(address))
    };
    let found = route.addresses.iter().find(inside).map(|address| address.address.clone());
    found.ok_or_else(|| Error::Invalid(format!("node {node} has no InternalIP in {range}; {remedy}")))
}

fn route(destination: String, gateway: String) -> Route {
    let present = NetworkRoute { destination, gateway };
    Route {
        name: name(&present),
        target: Target::Address(present.gateway),
        target_addresses: Vec::new(),
        destination_cidr: present.destination,
        blackhole: false,
        extra: Vec::new(),
    }
}

/// As the vendor's manager names a route.
fn name(route: &NetworkRoute) -> String {
    format!("{}-{}", route.gateway, route.destination)
}

#[cfg(test)]
mod tests;
