//! The resources of a cloud.

use std::collections::{BTreeMap, BTreeSet};

use skysail_provider::{AddressKind, Instance, NodeAddress, Protocol, Service};

/// The beginning of the addresses that each cloud gives to load balancers.
pub(crate) const RANGES: [&str; 3] = ["100.64.", "100.65.", "100.66."];

/// A port of a load balancer: protocol, port, node port.
pub(crate) type Port = (Protocol, u16, u16);

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) off: bool,
}

/// A load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Balancer {
    /// UID of its Service.
    pub(crate) service: String,
    pub(crate) ports: Vec<Port>,
    /// Node names.
    pub(crate) backends: BTreeSet<String>,
}

/// All resources of one cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CloudState {
    scheme: &'static str,
    /// The number of the cloud, which is part of all its addresses.
    number: u8,
    /// By provider ID; an ID is never used twice.
    pub(crate) machines: BTreeMap<String, Machine>,
    /// Addresses by the name of their load balancer.
    pub(crate) addresses: BTreeMap<String, String>,
    /// The load balancers, by name.
    pub(crate) balancers: BTreeMap<String, Balancer>,
    /// Names of load balancers whose backend pool was deleted; only `ensure` makes a new pool.
    pub(crate) without_pool: BTreeSet<String>,
    /// Provider ID of the target by destination.
    pub(crate) routes: BTreeMap<String, String>,
    machines_made: u16,
}

impl CloudState {
    pub(crate) fn new(scheme: &'static str, number: u8) -> Self {
        Self {
            scheme,
            number,
            machines: BTreeMap::new(),
            addresses: BTreeMap::new(),
            balancers: BTreeMap::new(),
            without_pool: BTreeSet::new(),
            routes: BTreeMap::new(),
            machines_made: 0,
        }
    }

    /// Makes a machine; returns its provider ID.
    pub(crate) fn make_machine(&mut self, name: &str) -> String {
        self.machines_made += 1;
        let made = self.machines_made;
        let id = format!("{}://{made}", self.scheme);
        let address = format!("10.{}.{}.{}", self.number, made / 200, made % 200 + 1);
        self.machines.insert(id.clone(), Machine { name: name.to_owned(), address, off: false });
        id
    }

    /// Provider ID of a node's machine: by the node's provider ID, or by its name while the node is
    /// not initialised.
    pub(crate) fn behind(&self, provider_id: &str, node: &str) -> Option<&String> {
        let own = self.machines.get_key_value(provider_id).map(|(id, _)| id);
        own.or_else(|| provider_id.is_empty().then(|| self.machine_named(node)).flatten())
    }

    /// Provider ID of the machine of this name.
    pub(crate) fn machine_named(&self, name: &str) -> Option<&String> {
        self.machines.iter().find(|(_, machine)| machine.name == name).map(|(id, _)| id)
    }

    /// The machine as `Instances::describe` returns it.
    pub(crate) fn instance(&self, id: &str) -> Option<Instance> {
        let machine = self.machines.get(id)?;
        Some(Instance {
            provider_id: id.to_owned(),
            shutdown: machine.off,
            instance_type: "small".to_owned(),
            zone: "z1".to_owned(),
            region: "r1".to_owned(),
            addresses: vec![NodeAddress { kind: AddressKind::InternalIp, address: machine.address.clone() }],
            ..Instance::default()
        })
    }

    /// The address of this name; if there is none, takes the lowest free address.
    pub(crate) fn take_address(&mut self, name: &str) -> String {
        if let Some(address) = self.addresses.get(name) {
            return address.clone();
        }
        let taken: BTreeSet<&String> = self.addresses.values().collect();
        let range = RANGES.get(usize::from(self.number) - 1).unwrap();
        let mut hosts = (0..=255).flat_map(|net| (1..=254).map(move |host| format!("{range}{net}.{host}")));
        let address = hosts.find(|one| !taken.contains(one)).unwrap();
        self.addresses.insert(name.to_owned(), address.clone());
        address
    }
}

/// The ports that this Service's load balancer has to have.
pub(crate) fn ports_of(service: &Service) -> Vec<Port> {
    let mut ports: Vec<Port> = service.ports.iter().map(|port| (port.protocol, port.port, port.node_port)).collect();
    ports.sort_unstable();
    ports
}
