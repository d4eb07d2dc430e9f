//! Limits the connections of a port, in total and of one address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::limits::{CONNECTIONS_MAX, CONNECTIONS_OF_ONE_ADDRESS_MAX};

type Taken = HashMap<IpAddr, usize>;

/// Counts connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

/// The place of one connection, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    address: IpAddr,
}

impl Places {
    /// A place for a connection of this address, if one is free.
    pub(super) fn take(&self, address: IpAddr) -> Option<Place> {
        let mut taken = self.lock();
        let (all, own) = (taken.values().sum::<usize>(), taken.get(&address).copied().unwrap_or_default());
        if all >= CONNECTIONS_MAX || own >= CONNECTIONS_OF_ONE_ADDRESS_MAX {
            tracing::debug!(connections = all, own, "a connection is refused: too many connections");
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
    use std::net::{IpAddr, Ipv4Addr};

    use super::{CONNECTIONS_MAX, CONNECTIONS_OF_ONE_ADDRESS_MAX, Places};

    fn address(number: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, number).into()
    }

    #[test]
    fn one_address_cannot_use_up_the_connections_of_others() {
        let places = Places::default();
        let mut held: Vec<_> = (0..CONNECTIONS_OF_ONE_ADDRESS_MAX).map(|_| places.take(address(1)).unwrap()).collect();
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
        assert_eq!(peers.filter_map(|peer| places.take(peer).map(std::mem::forget)).count(), CONNECTIONS_MAX);
    }
}
