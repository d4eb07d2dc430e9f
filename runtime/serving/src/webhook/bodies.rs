//! Limits the bodies of requests that are read at the same time, in total and of one address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::limits::{BODIES_MAX, BODIES_OF_ONE_ADDRESS_MAX};

/// Counts bodies. A client that sends its bodies slowly delays only its own address.
#[derive(Debug)]
pub(super) struct Bodies {
    all: Arc<Semaphore>,
    by_address: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// The place of one body, which is free again after a drop.
#[derive(Debug)]
pub(super) struct BodyPlace {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Bodies {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(BODIES_MAX)), by_address: Mutex::default() }
    }

    /// Waits for a place for a body of this address.
    pub(super) async fn place(&self, address: IpAddr) -> Result<BodyPlace, AcquireError> {
        let own = self.of(address).acquire_owned().await?;
        let all = Arc::clone(&self.all).acquire_owned().await?;
        Ok(BodyPlace { _own: own, _all: all })
    }

    fn of(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_address.get(&address).and_then(Weak::upgrade) {
            return known;
        }
        by_address.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(BODIES_OF_ONE_ADDRESS_MAX));
        by_address.insert(address, Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use futures::FutureExt as _;

    use super::{BODIES_OF_ONE_ADDRESS_MAX, Bodies};

    #[test]
    fn one_address_cannot_use_up_the_places_of_others() {
        let bodies = Bodies::new();
        let place = |number: u8| bodies.place(IpAddr::from(Ipv4Addr::new(192, 0, 2, number))).now_or_never();
        let held: Vec<_> = (0..BODIES_OF_ONE_ADDRESS_MAX).map(|_| place(1).unwrap().unwrap()).collect();
        assert!(place(1).is_none());
        assert!(place(2).is_some());
        drop(held);
        assert!(place(1).is_some());
        assert_eq!(bodies.by_address.lock().unwrap().len(), 1, "addresses without bodies are removed");
    }
}
