//! Digests that were refused for what they are: a poll that finds them again costs nothing.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::Refusal;

/// Digests remembered. An author who saves a broken file again and again has the newest of them
/// refused at once; an older one is judged again.
const ENTRIES_MAX: usize = 32;

/// The oldest refusal goes first, and one of a release that served last.
#[derive(Default)]
pub(super) struct Quarantine(Mutex<VecDeque<Refusal>>);

impl Quarantine {
    pub(super) fn get(&self, digest: &str) -> Option<Refusal> {
        self.refusals().iter().find(|refusal| refusal.digest == digest).cloned()
    }

    /// Under other settings a release may be another one. One that served and was taken back was
    /// judged by what it did.
    pub(super) fn settings_changed(&self) {
        self.refusals().retain(Refusal::was_taken_back);
    }

    /// It has passed probation after all.
    pub(super) fn forget(&self, digest: &str) {
        self.refusals().retain(|refusal| refusal.digest != digest);
    }

    /// What a person asks for from now on counts as a new request.
    pub(super) fn asked_anew(&self) {
        for refusal in &mut *self.refusals() {
            refusal.retried = false;
        }
    }

    /// What was taken back stays so whatever is said of it later: a try that did not get as far is
    /// a try all the same.
    pub(super) fn put(&self, refusal: &Refusal) {
        let mut refusals = self.refusals();
        let known = refusals.iter_mut().find(|known| known.digest == refusal.digest && known.was_taken_back());
        if let Some(known) = known
            && !refusal.was_taken_back()
        {
            known.retried = true;
            return;
        }
        refusals.retain(|kept| kept.digest != refusal.digest);
        refusals.push_back(refusal.clone());
        if refusals.len() > ENTRIES_MAX {
            // A source that offers one broken file after the other must not make what was taken
            // back forgotten.
            let oldest = refusals.iter().position(|refusal| !refusal.was_taken_back()).unwrap_or(0);
            refusals.remove(oldest);
        }
    }

    fn refusals(&self) -> MutexGuard<'_, VecDeque<Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES_MAX, Quarantine, Refusal};
    use crate::slot::Stage;

    fn refusal(digest: &str, stage: Stage) -> Refusal {
        let (origin, reason) = (String::new(), String::new());
        Refusal { digest: digest.to_owned(), origin, stage, code: "", reason, lasting: true, retried: false }
    }

    #[test]
    fn a_flood_of_broken_files_does_not_wash_out_what_was_taken_back() {
        let quarantine = Quarantine::default();
        quarantine.put(&refusal("bad", Stage::Active));
        for number in 0..2 * ENTRIES_MAX {
            quarantine.put(&refusal(&number.to_string(), Stage::Offered));
        }
        assert!(quarantine.get("bad").is_some());
        assert!(quarantine.get("0").is_none() && quarantine.get(&(2 * ENTRIES_MAX - 1).to_string()).is_some());
    }
}
