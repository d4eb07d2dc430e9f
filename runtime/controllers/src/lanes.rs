//! The lanes of a manager, oldest provider first. They follow the set of providers: an edit moves
//! what it concerns, and restarts nothing.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    lane::Lane,
    ownership::{Claim, LaneId},
    providers::{self, ProviderEntry, Providers},
};

/// See the module.
#[derive(Default)]
pub(crate) struct Lanes {
    oldest_first: RwLock<Arc<[Arc<Lane>]>>,
    made: AtomicUsize,
}

/// What another set of providers changed.
pub(crate) struct Changes {
    pub(crate) added: Vec<Arc<Lane>>,
    pub(crate) removed: Vec<Arc<Lane>>,
    /// Those that may give other addresses now.
    pub(crate) readdressed: Vec<Arc<Lane>>,
}

impl Lanes {
    /// All, oldest first.
    pub(crate) fn all(&self) -> Arc<[Arc<Lane>]> {
        Arc::clone(&self.oldest_first.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The lane of this ID, where its provider is still there.
    pub(crate) fn get(&self, id: LaneId) -> Option<Arc<Lane>> {
        self.all().iter().find(|lane| lane.id == id).cloned()
    }

    /// The lane of the provider of this name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Lane>> {
        self.all().iter().find(|lane| lane.name == name).cloned()
    }

    /// What each claims now; see [`providers::claims`].
    pub(crate) fn claims(&self, before: &[Claim]) -> Vec<Claim> {
        let lanes: Vec<(LaneId, Arc<ProviderEntry>)> =
            self.all().iter().map(|lane| (lane.id, lane.settings())).collect();
        providers::claims(lanes.iter().map(|(lane, entry)| (*lane, &**entry)), before)
    }

    /// Takes up another set of providers; `new` makes a lane.
    pub(crate) fn follow(&self, providers: &Providers, new: impl Fn(LaneId, &ProviderEntry) -> Lane) -> Changes {
        let before = self.all();
        let (mut after, mut added, mut readdressed) = (Vec::new(), Vec::new(), Vec::new());
        for entry in providers.entries() {
            let lane = match before.iter().find(|lane| lane.is_of(entry)) {
                Some(lane) => {
                    if lane.edit(entry) {
                        readdressed.push(Arc::clone(lane));
                    }
                    Arc::clone(lane)
                }
                None => {
                    let lane = Arc::new(new(self.made.fetch_add(1, Ordering::Relaxed), entry));
                    added.push(Arc::clone(&lane));
                    lane
                }
            };
            after.push(lane);
        }
        let removed = before.iter().filter(|lane| !after.contains(lane)).cloned().collect();
        *self.oldest_first.write().unwrap_or_else(PoisonError::into_inner) = after.into();
        Changes { added, removed, readdressed }
    }
}
