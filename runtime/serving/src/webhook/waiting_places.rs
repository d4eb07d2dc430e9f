//! Limits what is done at the same time, in total and for one address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Gives places to the requests that wait. A client whose requests take long delays only its own
/// address.
#[derive(Debug)]
pub(super) struct WaitingPlaces {
    all: Arc<Semaphore>,
    of_one_address_max: usize,
    by_address: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl WaitingPlaces {
    pub(super) fn new(max: usize, of_one_address_max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(max)), of_one_address_max, by_address: Mutex::default() }
    }

    /// Waits for a place for a request of this address.
    pub(super) async fn place(&self, address: IpAddr) -> Result<Place, AcquireError> {
        let own = self.of(address).acquire_owned().await?;
        let all = Arc::clone(&self.all).acquire_owned().await?;
        Ok(Place { _own: own, _all: all })
    }

    fn of(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_address.get(&address).and_then(Weak::upgrade) {
            return known;
        }
        by_address.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(self.of_one_address_max));
        by_address.insert(address, Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use futures::FutureExt as _;

    use super::WaitingPlaces;

    #[test]
    fn one_address_cannot_use_up_the_places_of_others() {
        let places = WaitingPlaces::new(4, 3);
        let place = |number: u8| places.place(IpAddr::from(Ipv4Addr::new(192, 0, 2, number))).now_or_never();
        let held: Vec<_> = (0..3).map(|_| place(1).unwrap().unwrap()).collect();
        assert!(place(1).is_none());
        assert!(place(2).is_some());
        drop(held);
        assert!(place(1).is_some());
        assert_eq!(places.by_address.lock().unwrap().len(), 1, "addresses without requests are removed");
    }
}
