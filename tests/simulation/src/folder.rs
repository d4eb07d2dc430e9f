//! The state folder of a process, which outlives the process: the release of each provider that
//! served last, and the releases that were rolled back. As `skysail_sources::Archive`, without a
//! disk.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use skysail_slot::{ActiveStatus, Component, Offer, Refusal, RefusalReason, SlotStatus, Stage};

/// As the archive's limit.
const QUARANTINED_MAX: usize = 32;

/// See the module. Clones share the folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folder(Arc<Mutex<BTreeMap<String, Records>>>);

/// The end of the origin of a kept component.
const KEPT_ON_DISK: &str = " (kept on disk)";

/// The records of one provider.
#[derive(Debug, Default)]
struct Records {
    /// The component, and the place that it came from.
    kept: Option<(usize, Component)>,
    /// The oldest first.
    quarantined: Vec<Refusal>,
}

impl Folder {
    /// The component of this provider that served last and came from this place.
    pub(crate) fn kept(&self, provider: &str, place: usize) -> Option<Component> {
        let records = self.lock();
        let (_, kept) = records.get(provider)?.kept.as_ref().filter(|(from, _)| *from == place)?;
        let origin = format!("{}{KEPT_ON_DISK}", kept.offer.origin);
        Some(Component { offer: Offer { bytes: kept.offer.bytes.clone(), origin }, ..kept.clone() })
    }

    /// The releases of this provider that were rolled back. As in `skysail run`, they have no
    /// origin.
    pub(crate) fn quarantined(&self, provider: &str) -> Vec<Refusal> {
        self.lock().get(provider).map(|records| records.quarantined.clone()).unwrap_or_default()
    }

    fn keep(&self, provider: &str, place: usize, component: &Component) {
        let mut all = self.lock();
        let records = all.entry(provider.to_owned()).or_default();
        records.quarantined.retain(|known| *known.digest != *component.digest);
        let origin = component.offer.origin.trim_end_matches(KEPT_ON_DISK).to_owned();
        let offer = Offer { bytes: component.offer.bytes.clone(), origin };
        records.kept = Some((place, Component { offer, ..component.clone() }));
    }

    fn quarantine(&self, provider: &str, refusal: &Refusal) {
        let mut all = self.lock();
        let quarantined = &mut all.entry(provider.to_owned()).or_default().quarantined;
        quarantined.retain(|known| known.digest != refusal.digest);
        let code = RefusalReason::Quarantined.category();
        quarantined.push(Refusal { origin: String::new(), stage: Stage::Active, code, ..refusal.clone() });
        let surplus = quarantined.len().saturating_sub(QUARANTINED_MAX);
        quarantined.drain(..surplus);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Records>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes releases that passed probation, and releases that were rolled back, to the folder: as
/// `Kept` of the feeder of `skysail run`.
pub(crate) struct Keeper {
    pub(crate) folder: Folder,
    pub(crate) provider: String,
    pub(crate) place: usize,
    /// What the source offered last.
    pub(crate) last: Option<Component>,
    /// The digest of the component in the folder.
    kept: Option<Arc<str>>,
    remembered: Vec<Refusal>,
}

impl Keeper {
    pub(crate) fn new(folder: Folder, provider: String, place: usize) -> Self {
        Self { folder, provider, place, last: None, kept: None, remembered: Vec::new() }
    }

    /// Returns the component that goes into the folder, if one does.
    pub(crate) fn follow(&mut self, status: &SlotStatus) -> Option<&Component> {
        self.remembered.retain(|known| status.quarantine.contains(known));
        // A refusal without an origin was read from the folder.
        for refusal in status.quarantine.iter().filter(|refusal| !refusal.origin.is_empty()) {
            if !self.remembered.contains(refusal) {
                self.remembered.push(refusal.clone());
                // If the operator asks for the release and it passes, the folder has to be written
                // again.
                self.kept = None;
                self.folder.quarantine(&self.provider, refusal);
            }
        }
        let component = self.last.as_ref()?;
        let is_it = |active: &ActiveStatus| active.passed && active.digest == *component.digest;
        if !status.active.as_ref().is_some_and(is_it) || self.kept.as_ref() == Some(&component.digest) {
            return None;
        }
        self.kept = Some(Arc::clone(&component.digest));
        self.folder.keep(&self.provider, self.place, component);
        Some(component)
    }
}
