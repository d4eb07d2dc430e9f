//! Machines by everything that a node may know of its own.

use std::cell::OnceCell;

use crate::vim::Machine;

/// Machines by UUID, host name and address. A page of nodes asks for each of them, so a search
/// through the list would be the square of the page.
pub(super) struct Roster<'m> {
    machines: &'m [Machine],
    uuids: Sorted<'m>,
    /// Only nodes without a provider ID ask for names. In lower case, as the names of nodes are.
    names: OnceCell<Sorted<'m>>,
    ips: OnceCell<Sorted<'m>>,
}

/// Machines in the order of a key; those without one are left out.
struct Sorted<'m>(Vec<(String, &'m Machine)>);

impl<'m> Roster<'m> {
    pub(super) fn new(machines: &'m [Machine]) -> Self {
        let uuids = Sorted::by(machines, |machine| machine.uuid.clone());
        Self { machines, uuids, names: OnceCell::new(), ips: OnceCell::new() }
    }

    pub(super) fn with_uuid(&self, uuid: &str) -> impl Iterator<Item = &'m Machine> + use<'_, 'm> {
        self.uuids.with(uuid).iter().map(|(_, machine)| *machine)
    }

    /// Those whose guest has this host name, or this address.
    pub(super) fn with_name(&self, name: &str) -> impl Iterator<Item = &'m Machine> + use<'_, 'm> {
        let lower = |machine: &Machine| machine.host_name.to_ascii_lowercase();
        let names = self.names.get_or_init(|| Sorted::by(self.machines, lower));
        let ips = self.ips.get_or_init(|| Sorted::by(self.machines, |machine| machine.ip.clone()));
        let found = names.with(&name.to_ascii_lowercase()).iter().chain(ips.with(name));
        found.map(|(_, machine)| *machine)
    }
}

impl<'m> Sorted<'m> {
    fn by(machines: &'m [Machine], key: impl Fn(&Machine) -> String) -> Self {
        let keyed = machines.iter().map(|machine| (key(machine), machine));
        let mut keyed: Vec<_> = keyed.filter(|(key, _)| !key.is_empty()).collect();
        // Stable: machines of one key stay in their order.
        keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self(keyed)
    }

    fn with(&self, key: &str) -> &[(String, &'m Machine)] {
        let first = self.0.partition_point(|(found, _)| found.as_str() < key);
        let behind = self.0.get(first..).unwrap_or_default();
        let count = behind.iter().take_while(|(found, _)| found == key).count();
        behind.get(..count).unwrap_or_default()
    }
}
