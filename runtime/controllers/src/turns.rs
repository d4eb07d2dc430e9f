//! Whose turn it is with which Service: the providers have a queue each, and a Service may be in
//! two of them while it changes hands.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{ownership::LaneId, watch::ObjectKey};

/// One provider at a time works on a Service.
#[derive(Default)]
pub(crate) struct Turns {
    /// The Services that are worked on, each with the providers that asked meanwhile.
    taken: Mutex<HashMap<ObjectKey, BTreeSet<LaneId>>>,
}

impl Turns {
    /// Whether it is this provider's turn now, until [`Self::end`]; where it is not, `end` names
    /// it.
    pub(crate) fn begin(&self, key: &ObjectKey, lane: LaneId) -> bool {
        let mut taken = self.lock();
        if let Some(waiting) = taken.get_mut(key) {
            waiting.insert(lane);
            return false;
        }
        taken.insert(key.clone(), BTreeSet::new());
        true
    }

    /// The turn is over; returns the providers that asked meanwhile.
    pub(crate) fn end(&self, key: &ObjectKey) -> BTreeSet<LaneId> {
        self.lock().remove(key).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, BTreeSet<LaneId>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
