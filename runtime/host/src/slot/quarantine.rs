//! Digests that were refused for what they are: a poll that finds them again costs nothing.

use std::collections::VecDeque;

use super::{Refusal, Stage};

/// Digests remembered. An author who saves a broken file again and again has the newest of them refused at once; an older one is judged
/// anew.
const ENTRIES_MAX: usize = 32;

/// The oldest refusal goes first.
#[derive(Default)]
pub(super) struct Quarantine {
    refusals: VecDeque<Refusal>,
}

impl Quarantine {
    pub(super) fn get(&self, digest: &str) -> Option<Refusal> {
        self.refusals.iter().find(|refusal| refusal.digest == digest).cloned()
    }

    /// Under other settings a release may be another one. One that served and was taken back was judged by what it did.
    pub(super) fn settings_changed(&mut self) {
        self.refusals.retain(|refusal| refusal.stage == Stage::Active);
    }

    pub(super) fn put(&mut self, refusal: &Refusal) {
        self.refusals.retain(|kept| kept.digest != refusal.digest);
        self.refusals.push_back(refusal.clone());
        if self.refusals.len() > ENTRIES_MAX {
            self.refusals.pop_front();
        }
    }
}
