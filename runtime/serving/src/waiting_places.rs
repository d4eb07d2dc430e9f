//! Limits what is done at the same time, in total, for one network and for one address.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::{limits::AtOnce, peer_address::PeerAddress};

/// Gives places to the requests that wait. A client whose requests take long delays only its own
/// address and network.
#[derive(Debug)]
pub(crate) struct WaitingPlaces {
    all: Arc<Semaphore>,
    by_network: Shares,
    by_address: Shares,
}

/// The places of each network or of each address.
#[derive(Debug)]
struct Shares {
    max: usize,
    used: Mutex<HashMap<PeerAddress, Weak<Semaphore>>>,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _permits: [OwnedSemaphorePermit; 3],
}

impl WaitingPlaces {
    pub(crate) fn new(limit: AtOnce) -> Self {
        let shares = |max| Shares { max, used: Mutex::default() };
        Self {
            all: Arc::new(Semaphore::new(limit.all)),
            by_network: shares(limit.network),
            by_address: shares(limit.address),
        }
    }

    /// Waits for a place for a request of this client.
    pub(crate) async fn place(&self, client: PeerAddress) -> Result<Place, AcquireError> {
        let own = self.by_address.of(client).acquire_owned().await?;
        let network = self.by_network.of(client.network()).acquire_owned().await?;
        let all = Arc::clone(&self.all).acquire_owned().await?;
        Ok(Place { _permits: [own, network, all] })
    }
}

impl Shares {
    fn of(&self, key: PeerAddress) -> Arc<Semaphore> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = used.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        used.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(self.max));
        used.insert(key, Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::{Place, WaitingPlaces};
    use crate::{limits::AtOnce, peer_address::PeerAddress};

    /// A place that is free at once.
    fn place(places: &WaitingPlaces, address: &str) -> Option<Place> {
        let client = PeerAddress::new(address.parse().unwrap());
        places.place(client).now_or_never().map(Result::unwrap)
    }

    #[test]
    fn one_address_cannot_use_up_the_places_of_others() {
        let places = WaitingPlaces::new(AtOnce { all: 4, network: 3, address: 3 });
        let held: Vec<_> = (0..3).map(|_| place(&places, "192.0.2.1").unwrap()).collect();
        assert!(place(&places, "192.0.2.1").is_none());
        assert!(place(&places, "192.0.2.2").is_some());
        drop(held);
        assert!(place(&places, "192.0.2.1").is_some());
        let known = places.by_address.used.lock().unwrap().len();
        assert_eq!(known, 1, "addresses without requests are removed");
    }

    #[test]
    fn one_network_of_ipv6_cannot_use_up_the_places_of_others() {
        let places = WaitingPlaces::new(AtOnce { all: 4, network: 3, address: 2 });
        let hosts = ["2001:db8::1", "2001:db8::1", "2001:db8::2"];
        let held = hosts.map(|host| place(&places, host).unwrap());
        assert!(place(&places, "2001:db8::3").is_none());
        assert!(place(&places, "2001:db8:0:1::1").is_some());
        drop(held);
        assert!(place(&places, "2001:db8::3").is_some());
    }
}
