//! Limits the connections of a port, in total, of one network and of one address.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{limits::CONNECTIONS, peer_address::PeerAddress};

type Taken = HashMap<PeerAddress, usize>;

/// Counts connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

/// The place of one connection, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    address: PeerAddress,
}

impl Places {
    /// A place for a connection of this address, if one is free.
    pub(super) fn take(&self, address: PeerAddress) -> Option<Place> {
        let mut taken = self.lock();
        let (all, own) = (taken.values().sum::<usize>(), taken.get(&address).copied().unwrap_or_default());
        let neighbours = taken.iter().filter(|(other, _)| other.network() == address.network());
        let network: usize = neighbours.map(|(_, number)| number).sum();
        if all >= CONNECTIONS.all || network >= CONNECTIONS.network || own >= CONNECTIONS.address {
            tracing::debug!(connections = all, network, own, "a connection is refused: too many connections");
            return None;
        }
        taken.insert(address, own + 1);
        Some(Place { places: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        let left = taken.get(&self.address).copied().unwrap_or_default().saturating_sub(1);
        match left {
            0 => drop(taken.remove(&self.address)),
            left => drop(taken.insert(self.address, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::{CONNECTIONS, PeerAddress, Places};

    fn address(number: u8) -> PeerAddress {
        PeerAddress::new(Ipv4Addr::new(192, 0, 2, number).into())
    }

    #[test]
    fn one_address_cannot_use_up_the_connections_of_others() {
        let places = Places::default();
        let mut held: Vec<_> = (0..CONNECTIONS.address).map(|_| places.take(address(1)).unwrap()).collect();
        assert!(places.take(address(1)).is_none());
        let other = places.take(address(2)).unwrap();
        held.pop();
        held.push(places.take(address(1)).unwrap());
        drop((held, other));
        assert!(places.lock().is_empty(), "addresses without connections are removed");
    }

    #[test]
    fn all_addresses_together_have_a_bound() {
        let places = Places::default();
        let peers = (0..=u8::MAX).flat_map(|number| [address(number), address(number), address(number)]);
        assert_eq!(peers.filter_map(|peer| places.take(peer).map(std::mem::forget)).count(), CONNECTIONS.all);
    }

    /// Regression: eight addresses of one host used up all connections.
    #[test]
    fn one_network_of_ipv6_cannot_use_up_the_connections_of_others() {
        let places = Places::default();
        let host = |network, number| Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, number);
        let take = |network, number| places.take(PeerAddress::new(host(network, number).into()));
        let held: Vec<_> = (0..u16::MAX).map_while(|number| take(1, number)).collect();
        assert_eq!(held.len(), CONNECTIONS.network);
        assert!(take(2, 0).is_some());
    }
}
