//! Common code of the tests: a Service, and an in-memory Incus with the observed rules of Incus
//! 6.0.4.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use skysail_guest_sdk::{Error, Protocol, Result, Service, ServicePort};

use crate::{
    plan::{Kind, Listener},
    pool::Pool,
    reconcile::Cloud,
    wire::{Config, LoadBalancer, Network},
};

/// A Service `default/web` with these ports: protocol, port, node port.
pub(crate) fn service(ports: &[(Protocol, u16, u16)]) -> Service {
    let port = |&(protocol, port, node_port): &(Protocol, u16, u16)| ServicePort::new(protocol, port, node_port);
    Service {
        ports: ports.iter().map(port).collect(),
        ..Service::new("default", "web", "0a1b2c3d-4e5f-6789-abcd-ef0123456789")
    }
}

/// An OVN network 10.88.0.0/24 whose uplink routes 198.51.100.200/29.
#[derive(Default)]
pub(crate) struct FakeIncus {
    listeners: RefCell<BTreeMap<IpAddr, String>>,
    /// Addresses of another network, which this client learns only by a refusal.
    pub(crate) elsewhere: BTreeSet<IpAddr>,
    /// Whether this client is restricted and does not see the allocations.
    pub(crate) hides_allocations: bool,
    /// Every write, in order.
    pub(crate) writes: RefCell<Vec<String>>,
}

impl FakeIncus {
    /// The addresses in use on this network.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.listeners.borrow().keys().map(ToString::to_string).collect()
    }

    /// The writes since the last call of this function.
    pub(crate) fn written(&self) -> Vec<String> {
        self.writes.take()
    }

    fn keep(&self, verb: &str, listener: &Listener) -> Result<()> {
        let Listener::LoadBalancer(balancer) = listener else {
            return Err(Error::Internal("an OVN network has no forwards here".to_owned()));
        };
        if balancer.ports.iter().any(|port| port.target_backend.is_empty()) {
            return Err(Error::Unavailable("Missing VIP target(s)".to_owned()));
        }
        let address = listener.address().ok_or_else(|| Error::Invalid("no address".to_owned()))?;
        let body = serde_json::to_string(balancer)?;
        self.writes.borrow_mut().push(format!("{verb} {address} backends={}", balancer.backends.len()));
        self.listeners.borrow_mut().insert(address, body);
        Ok(())
    }
}

impl Cloud for FakeIncus {
    fn look(&self) -> Result<(Network, Kind, Vec<Listener>)> {
        let config = Config::from([("ipv4.address".to_owned(), "10.88.0.1/24".to_owned())]);
        let parse = |body: &String| serde_json::from_str::<LoadBalancer>(body).map(Listener::LoadBalancer);
        let listeners = self.listeners.borrow().values().map(parse).collect::<Result<_, _>>()?;
        Ok((Network { r#type: "ovn".to_owned(), config }, Kind::LoadBalancer, listeners))
    }

    fn routed(&self, _network: &Network) -> Result<Pool> {
        "198.51.100.200/29".parse().map_err(Error::Internal)
    }

    fn taken(&self) -> BTreeSet<IpAddr> {
        if self.hides_allocations {
            return BTreeSet::new();
        }
        self.listeners.borrow().keys().copied().collect()
    }

    fn create(&self, listener: &Listener) -> Result<bool> {
        let address = listener.address().ok_or_else(|| Error::Invalid("no address".to_owned()))?;
        if self.elsewhere.contains(&address) || self.listeners.borrow().contains_key(&address) {
            return Ok(false);
        }
        self.keep("create", listener).map(|()| true)
    }

    fn replace(&self, listener: &Listener) -> Result<()> {
        self.keep("replace", listener)
    }

    fn delete(&self, _kind: Kind, address: IpAddr) -> Result<()> {
        self.writes.borrow_mut().push(format!("delete {address}"));
        self.listeners.borrow_mut().remove(&address);
        Ok(())
    }
}
