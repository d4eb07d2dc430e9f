//! A node whose machine is wanted, and which machine fits it.

use std::net::IpAddr;

use skysail_guest_sdk::{Error, Result, provider_id};

use super::{Found, Query, roster::Roster};
use crate::{SCHEME, vim::Machine};

/// The most queries of one node: a UUID in two byte orders, its host name, and its address.
pub(super) const QUERIES_MAX: usize = 4;

/// A node whose machine is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Name of the node.
    pub(crate) node: String,
    pub(crate) key: Key,
}

/// What a node's machine is found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The UUID of the provider ID, in both byte orders.
    Id([String; 2]),
    /// The node's name, and the UUID that the node's kernel reports, in both byte orders.
    Name(Option<[String; 2]>),
}

impl Wanted {
    /// The key of a node.
    ///
    /// # Errors
    ///
    /// `invalid` for a provider ID that is not `vsphere://UUID`.
    pub(crate) fn new(node: &str, provider_id: Option<&str>, system_uuid: Option<&str>) -> Result<Self> {
        let key = match provider_id {
            Some(id) => Key::Id(
                both_orders(provider_id::parse(SCHEME, id)?)
                    .ok_or_else(|| Error::Invalid(format!("provider ID {id:?} is not of the form {SCHEME}://UUID")))?,
            ),
            // Kernels report the bytes of the first three fields in reverse more often than not.
            None => Key::Name(system_uuid.and_then(both_orders).map(|[as_is, reverse]| [reverse, as_is])),
        };
        Ok(Self { node: node.to_owned(), key })
    }

    /// Whether the node is the machine with this address.
    pub(crate) fn has_address_as_name(&self) -> bool {
        matches!(self.key, Key::Name(_)) && self.node.parse::<IpAddr>().is_ok()
    }

    /// The UUIDs that the machine may have.
    pub(super) fn uuids(&self) -> &[String] {
        match &self.key {
            Key::Id(uuids) | Key::Name(Some(uuids)) => uuids,
            Key::Name(None) => &[],
        }
    }

    /// The queries that find the machine, in their order.
    pub(super) fn queries(&self) -> Vec<Query<'_>> {
        let mut queries: Vec<_> = self.uuids().iter().map(|uuid| Query::Uuid(uuid)).collect();
        if let Key::Name(_) = self.key {
            queries.push(Query::HostName(&self.node));
            if self.has_address_as_name() {
                queries.push(Query::Ip(&self.node));
            }
        }
        queries
    }

    /// The machines that may be the node's, each once.
    pub(super) fn candidates<'m>(&self, roster: &Roster<'m>) -> Vec<&'m Machine> {
        let by_uuid = self.uuids().iter().flat_map(|uuid| roster.with_uuid(uuid));
        let by_name = matches!(self.key, Key::Name(_)).then(|| roster.with_name(&self.node));
        let mut candidates: Vec<&Machine> = Vec::new();
        for machine in by_uuid.chain(by_name.into_iter().flatten()) {
            if !candidates.iter().any(|seen| seen.id == machine.id) {
                candidates.push(machine);
            }
        }
        candidates
    }

    /// Whether a candidate can be the node's machine. A UUID alone is no proof for a node without a
    /// provider ID: a node reports it of itself.
    pub(super) fn fits(&self, candidate: &Machine) -> bool {
        matches!(self.key, Key::Id(_)) || self.is_name_of(candidate)
    }

    /// The node's machine among the candidates of all vCenters, which have these names; none if no
    /// candidate fits.
    ///
    /// # Errors
    ///
    /// `unavailable` where several machines fit.
    pub(super) fn choose(&self, candidates: Vec<Found>, vcenters: &[&str]) -> Result<Option<Found>> {
        let (mut named, others): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|found| self.is_name_of(&found.machine));
        match self.key {
            Key::Id(_) => {
                // One host name decides between machines of one UUID.
                if named.len() != 1 {
                    named.extend(others);
                }
                self.only(
                    named,
                    ("the UUID of its provider ID", "give each machine a `uuid.bios` of its own"),
                    vcenters,
                )
            }
            Key::Name(_) => {
                let (by_uuid, by_name): (Vec<_>, Vec<_>) =
                    named.into_iter().partition(|found| self.uuids().contains(&found.machine.uuid));
                let best = if by_uuid.is_empty() { by_name } else { by_uuid };
                self.only(best, ("its name as host name", "rename all of them but one"), vcenters)
            }
        }
    }

    fn only(&self, mut fitting: Vec<Found>, (what, remedy): (&str, &str), vcenters: &[&str]) -> Result<Option<Found>> {
        if fitting.len() < 2 {
            return Ok(fitting.pop());
        }
        let id = |Found { vcenter, machine }: &Found| {
            format!("{} of {}", machine.id, vcenters.get(*vcenter).copied().unwrap_or_default())
        };
        let (node, count, ids) = (&self.node, fitting.len(), fitting.iter().take(4).map(id).collect::<Vec<_>>());
        Err(Error::Unavailable(format!("node {node}: {count} machines have {what}: {}; {remedy}", ids.join(", "))))
    }

    /// Names of nodes are in lower case, host names as the operator wrote them. A name that is an
    /// address is that of the machine with this address.
    pub(super) fn is_name_of(&self, machine: &Machine) -> bool {
        self.node.eq_ignore_ascii_case(&machine.host_name) || (self.node == machine.ip && self.has_address_as_name())
    }
}

/// Where each character of a UUID is taken from to reverse the bytes of its first three fields.
const REVERSE: [usize; 36] = [
    6, 7, 4, 5, 2, 3, 0, 1, 8, 11, 12, 9, 10, 13, 16, 17, 14, 15, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
    31, 32, 33, 34, 35,
];

/// A UUID in lower case as it is written, and with the bytes of its first three fields reversed:
/// firmware and kernels disagree about their order. None for a text that is no UUID.
fn both_orders(text: &str) -> Option<[String; 2]> {
    let uuid = text.trim().to_ascii_lowercase();
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let is_uuid = |(at, byte): (usize, u8)| if is_dash(at) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    if uuid.len() != REVERSE.len() || !uuid.bytes().enumerate().all(is_uuid) {
        return None;
    }
    let reverse = REVERSE.iter().filter_map(|at| uuid.as_bytes().get(*at).copied().map(char::from)).collect();
    Some([uuid, reverse])
}

#[cfg(test)]
mod tests {
    use skysail_guest_sdk::Error;

    use super::{Key, Wanted, both_orders};

    #[test]
    fn a_uuid_has_two_byte_orders() {
        let [as_is, reverse] = both_orders(" 42013DDB-57D9-3E2C-9A7C-0123456789AB").unwrap();
        assert_eq!(as_is, "42013ddb-57d9-3e2c-9a7c-0123456789ab");
        assert_eq!(reverse, "db3d0142-d957-2c3e-9a7c-0123456789ab");
        assert_eq!(both_orders(&reverse).unwrap(), [reverse, as_is]);
        for text in [
            "",
            "vm-1",
            "42013ddb-57d9-3e2c-9a7c-0123456789a",
            "42013ddb57d93e2c9a7c0123456789ab",
            "g2013ddb-57d9-3e2c-9a7c-0123456789ab",
        ] {
            assert_eq!(both_orders(text), None, "{text}");
        }
    }

    #[test]
    fn a_provider_id_of_another_form_is_invalid() {
        for id in ["aws:///eu/i-1", "vsphere://", "vsphere://node-1", "42013ddb-57d9-3e2c-9a7c-0123456789ab"] {
            assert!(matches!(Wanted::new("n", Some(id), None), Err(Error::Invalid(_))), "{id}");
        }
        let wanted = Wanted::new("n", None, Some("not a UUID")).unwrap();
        assert_eq!(wanted.key, Key::Name(None));
    }
}
