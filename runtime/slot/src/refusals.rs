//! Digests that are not tried again by themselves: a poll that finds one of them again costs
//! nothing.
//!
//! The rolled-back ones are the quarantine: only a fault of the release brings a digest there. The
//! others were refused before they served, by a fault of the release or of the operator, and are
//! tried again under other settings.

use std::collections::VecDeque;

use crate::Refusal;

/// Digests remembered. An author who saves a broken file again and again has the newest of them
/// refused at once; an older one is judged again.
const ENTRIES_MAX: usize = 32;

/// Evicts the oldest refusal first; a quarantined digest only if nothing else is left.
#[derive(Default)]
pub(crate) struct Refusals(VecDeque<Refusal>);

impl Refusals {
    pub(crate) fn get(&self, digest: &str) -> Option<&Refusal> {
        self.0.iter().find(|refusal| refusal.digest == digest)
    }

    /// The rolled-back releases, the oldest first.
    pub(crate) fn quarantine(&self) -> Vec<Refusal> {
        self.0.iter().filter(|refusal| refusal.was_rolled_back()).cloned().collect()
    }

    /// Other settings may make a release acceptable. A rolled-back release was judged by its calls,
    /// and stays.
    pub(crate) fn settings_changed(&mut self) {
        self.0.retain(Refusal::was_rolled_back);
    }

    /// The release passed probation.
    pub(crate) fn forget(&mut self, digest: &str) {
        self.0.retain(|refusal| refusal.digest != digest);
    }

    /// The operator named another release to retry: each rolled-back release may be tried once
    /// more.
    pub(crate) fn allow_retries(&mut self) {
        self.0.iter_mut().for_each(|refusal| refusal.retried = false);
    }

    /// A rolled-back release keeps the refusal of the rollback. A later refusal, before the release
    /// serves again, counts as its retry.
    pub(crate) fn put(&mut self, refusal: &Refusal) {
        let known = self.0.iter_mut().find(|known| known.digest == refusal.digest && known.was_rolled_back());
        if let Some(known) = known
            && !refusal.was_rolled_back()
        {
            known.retried = true;
            return;
        }
        self.forget(&refusal.digest);
        self.0.push_back(refusal.clone());
        if self.0.len() > ENTRIES_MAX {
            // A source that offers one broken file after the other must not push a rolled-back
            // release out.
            let oldest = self.0.iter().position(|refusal| !refusal.was_rolled_back()).unwrap_or(0);
            self.0.remove(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES_MAX, Refusal, Refusals};
    use crate::Stage;

    fn refusal(digest: &str, stage: Stage) -> Refusal {
        let (origin, reason) = (String::new(), String::new());
        Refusal { digest: digest.to_owned(), origin, stage, code: "", reason, lasting: true, retried: false }
    }

    #[test]
    fn broken_files_do_not_push_a_rolled_back_release_out_of_the_quarantine() {
        let mut refusals = Refusals::default();
        refusals.put(&refusal("bad", Stage::Active));
        for number in 0..2 * ENTRIES_MAX {
            refusals.put(&refusal(&number.to_string(), Stage::Offered));
        }
        assert!(refusals.get("bad").is_some());
        assert!(refusals.get("0").is_none() && refusals.get(&(2 * ENTRIES_MAX - 1).to_string()).is_some());
    }
}
