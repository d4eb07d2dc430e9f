//! The lanes of a manager, oldest provider first. The lanes follow the set of providers: an edit
//! updates the lane in place and restarts nothing.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicUsize, Ordering},
};

use tokio::time::Instant;

use crate::{
    lane::{Lane, LaneEdit},
    ownership::{Claim, LaneId},
    providers::{self, ProviderEntry, Providers},
};

/// See the module.
#[derive(Default)]
pub(crate) struct Lanes {
    oldest_first: RwLock<Arc<[Arc<Lane>]>>,
    made: AtomicUsize,
}

/// The differences between two sets of providers.
pub(crate) struct Changes {
    pub(crate) added: Vec<Arc<Lane>>,
    pub(crate) removed: Vec<Arc<Lane>>,
    /// Lanes that had an edit, and what it changed.
    pub(crate) edited: Vec<(Arc<Lane>, LaneEdit)>,
}

impl Lanes {
    /// All lanes, oldest first.
    pub(crate) fn all(&self) -> Arc<[Arc<Lane>]> {
        Arc::clone(&self.oldest_first.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The lane with this ID, if its provider still exists.
    pub(crate) fn get(&self, id: LaneId) -> Option<Arc<Lane>> {
        self.all().iter().find(|lane| lane.id == id).cloned()
    }

    /// The lane of the provider with this name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Lane>> {
        self.all().iter().find(|lane| lane.name == name).cloned()
    }

    /// The current claim of each provider; see [`providers::claims`].
    pub(crate) fn claims(&self, before: &[Claim]) -> Vec<Claim> {
        let (lanes, now) = (self.all(), Instant::now());
        let entries: Vec<(LaneId, Arc<ProviderEntry>)> = lanes.iter().map(|lane| (lane.id, lane.settings())).collect();
        let awaited = |id| lanes.iter().any(|lane| lane.id == id && now < lane.first_release_deadline());
        providers::claims(entries.iter().map(|(lane, entry)| (*lane, &**entry)), before, awaited)
    }

    /// Replaces the set of providers; `new` creates the lane of an added provider.
    pub(crate) fn follow(&self, providers: &Providers, new: impl Fn(LaneId, &ProviderEntry) -> Lane) -> Changes {
        let before = self.all();
        let (mut after, mut added, mut edited) = (Vec::new(), Vec::new(), Vec::new());
        for entry in providers.entries() {
            let lane = match before.iter().find(|lane| lane.is_of(entry)) {
                Some(lane) => {
                    edited.push((Arc::clone(lane), lane.edit(entry)));
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
        Changes { added, removed, edited }
    }
}
