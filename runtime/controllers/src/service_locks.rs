//! Serializes providers for each Service: each provider has its own queue, and a Service may be in
//! two of them while it moves to another provider.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{ownership::LaneId, watch::ObjectKey};

/// Allows one provider at a time to work on a Service.
#[derive(Default)]
pub(crate) struct ServiceLocks {
    /// The Services in work, each with the providers that wait for it.
    taken: Mutex<HashMap<ObjectKey, BTreeSet<LaneId>>>,
}

impl ServiceLocks {
    /// Returns true if this provider may work on the Service until [`Self::end`]. Otherwise the
    /// provider waits, and the holder's `end` returns it.
    pub(crate) fn begin(&self, key: &ObjectKey, lane: LaneId) -> bool {
        let mut taken = self.lock();
        if let Some(waiting) = taken.get_mut(key) {
            waiting.insert(lane);
            return false;
        }
        taken.insert(key.clone(), BTreeSet::new());
        true
    }

    /// Ends the turn; returns the providers that wait for the Service.
    #[must_use = "nothing else may wake these providers"]
    pub(crate) fn end(&self, key: &ObjectKey) -> BTreeSet<LaneId> {
        self.lock().remove(key).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, BTreeSet<LaneId>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::ServiceLocks;
    use crate::watch::ObjectKey;

    /// Otherwise a provider whose turn came between the last look of the holder and the end of its
    /// turn would wait for the Service's next event.
    #[test]
    fn the_end_of_a_turn_returns_each_provider_that_waits_once() {
        let locks = ServiceLocks::default();
        let key = ObjectKey { namespace: "default".to_owned(), name: "web".to_owned() };
        let [holder, one, other] = [1, 2, 3];
        assert!(locks.begin(&key, holder));
        for lane in [other, one, other] {
            assert!(!locks.begin(&key, lane));
        }
        assert_eq!(locks.end(&key).into_iter().collect::<Vec<_>>(), [one, other]);
        assert!(locks.begin(&key, one), "the turn is free");
        assert_eq!(locks.end(&key).len(), 0);
    }
}
