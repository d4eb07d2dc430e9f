//! What was taken back, and that a person may want it once more all the same.

use tokio::sync::watch;

use super::{Active, Offer, Reason, Refusal, Slot, Stage, Step, Work, trial::Breach};
use crate::admission;

impl Slot {
    /// Refuses this digest from now on, whatever the settings: it was taken back before this
    /// process began. `retried`: as [`Refusal::retried`].
    pub fn quarantine(&self, digest: String, reason: String, retried: bool) {
        let refusal = Refusal {
            digest,
            origin: String::new(),
            stage: Stage::Active,
            code: Reason::Quarantined.category(),
            reason,
            lasting: true,
            retried,
        };
        if self.quarantine.get(&refusal.digest).is_none() {
            self.quarantine.put(&refusal);
        }
    }

    /// The release that a person wants to be tried once more although it was taken back, by its
    /// digest; none where nobody does. [`Slot::retry`] tries it, if it is still the newest offer
    /// and something serves to which the slot can return. It is tried once for as long as the same
    /// digest is named.
    pub fn ask_again(&self, digest: Option<String>) {
        self.asked.send_if_modified(|asked| std::mem::replace(asked, digest.clone()) != digest);
    }

    /// Changes when somebody asks for another release than before: then [`Slot::retry`] has
    /// something to do.
    #[must_use]
    pub fn asked(&self) -> watch::Receiver<Option<String>> {
        self.asked.subscribe()
    }

    /// Whether it served and was taken back: then nothing but a person's wish lets it serve again.
    pub(super) fn was_taken_back(&self, offer: &Offer) -> bool {
        let digest = admission::digest_text(&admission::digest_of(&offer.bytes));
        self.quarantine.get(&digest).is_some_and(|refusal| refusal.was_taken_back())
    }

    /// The newest offer, where it was taken back, a person asks for it, and it is not what that
    /// person asked for before.
    pub(super) fn asked_for(&self, work: &mut Work) -> Option<Offer> {
        let asked = self.asked.borrow().clone();
        if work.asked != asked {
            self.quarantine.asked_anew();
            self.shared.asked_anew();
            work.asked.clone_from(&asked);
        }
        let asked = asked?;
        let refusal = self.quarantine.get(&asked).filter(Refusal::was_taken_back)?;
        let newest = work.refused.as_ref().or(work.taken_back.as_ref())?;
        let is_newest = admission::digest_text(&admission::digest_of(&newest.bytes)) == asked;
        (is_newest && !refusal.retried && self.active.load().is_some()).then(|| newest.clone())
    }

    /// A release does not stay: what is said of it, and that it is not taken again.
    pub(super) fn take_back(
        &self,
        work: &mut Work,
        release: &Active,
        stage: Stage,
        (breach, serves): (&Breach, &str),
    ) -> Refusal {
        let digest = release.provider.release().digest().to_owned();
        let (reason, asked) = (breach.reason(), self.asked.borrow().clone());
        self.shared.step(&digest, stage, Step::Refused(reason));
        let retried = asked.as_ref() == Some(&digest);
        let way_out = if retried {
            "it was tried once more already, and is tried another time only where rollout.retry is removed and written again"
        } else {
            "this one is tried again only where rollout.retry names its digest"
        };
        let refusal = Refusal {
            retried,
            digest,
            origin: release.offer.origin.clone(),
            stage,
            code: reason.category(),
            reason: format!(
                "{}: it was taken back, and {serves}: {breach}: offer a mended release; {way_out}",
                release.offer.origin
            ),
            lasting: true,
        };
        tracing::error!(
            provider.name = %self.name,
            component.digest = refusal.digest,
            code = refusal.code,
            "release taken back: {}", refusal.reason
        );
        self.quarantine.put(&refusal);
        work.asked = asked;
        // What waits, serves a share or was taken back before was offered later.
        let is_newest = work.refused.is_none() && (stage == Stage::Canary || self.canary.borrow().is_none());
        if is_newest {
            work.taken_back.get_or_insert_with(|| release.offer.clone());
        }
        refusal
    }
}
