//! A new release that serves a share of the objects first, beside its predecessor, which serves the
//! rest.
//!
//! # Rule
//! Which objects are in the share is decided by their UID alone: it is the same for each release
//! and each process, so that no object sees two releases in turn. Nodes that are asked about
//! together are asked apart. Calls about no single object (lists, routes) stay with the
//! predecessor.
//!
//! The canary is compared with its predecessor as a release on probation is (`trial`). Where it is
//! worse, the predecessor serves its share again, too, and the digest is quarantined. Where it
//! passes, it serves all objects, on probation if the settings ask for one. A release that may call
//! itself by another name than its predecessor serves all objects at once: two names for one cloud
//! would take each other's objects for strange.
//!
//! New settings end a canary; what was offered is taken up again under them.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use skysail_provider::Interface;
use tokio::sync::watch;

use super::{
    Active, CanaryStatus, DRAIN, ProbationOptions, Refusal, Slot, Stage, Step, Work,
    trial::{Breach, Trial},
};

#[cfg(test)]
mod tests;

/// A share of the objects for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CanaryOptions {
    /// Of the objects: 1 to 99.
    pub percent: u8,
    /// How long.
    pub watched: ProbationOptions,
}

/// One release that serves a share.
pub(super) struct Canary {
    trial: Trial,
    percent: u8,
}

impl Canary {
    pub(super) const fn trial(&self) -> &Trial {
        &self.trial
    }

    pub(super) fn release(&self) -> &Arc<Active> {
        self.trial.release()
    }

    /// Whether the object of this UID is in the share.
    pub(super) fn serves(&self, uid: &str) -> bool {
        is_in_share(uid, self.percent)
    }

    fn status(&self) -> CanaryStatus {
        let (release, ProbationOptions { calls, time }) = (self.release(), self.trial.options());
        CanaryStatus {
            digest: release.provider.release().digest().to_owned(),
            origin: release.offer.origin.clone(),
            version: release.info.version.clone(),
            percent: self.percent,
            calls,
            time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// The same in every process and of every release of this program.
fn is_in_share(uid: &str, percent: u8) -> bool {
    let [first, second, ..] = <[u8; 32]>::from(Sha256::digest(uid));
    u16::from_be_bytes([first, second]) % 100 < u16::from(percent)
}

impl Slot {
    /// A release serves its share, in place of another canary if there is one.
    pub(super) fn begin_canary(&self, release: Active, predecessor: &Active, options: CanaryOptions) {
        let CanaryOptions { percent, watched } = options;
        let beside = self.active.load().as_ref().is_some_and(|active| std::ptr::eq(&raw const **active, predecessor));
        let canary = Arc::new(Canary { trial: Trial::new(Arc::new(release), predecessor, watched, beside), percent });
        let status = canary.status();
        tracing::info!(
            provider.name = %self.name,
            provider.version = status.version,
            component.digest = status.digest,
            percent,
            "release serves a share of the objects"
        );
        self.shared.step(&status.digest, Stage::Shadowed, Step::To(Stage::Canary));
        self.set_canary(Some((canary, status)), None);
    }

    /// No canary any more; with the reason where it is taken back.
    pub(super) fn end_canary(&self, taken_back: Option<&Refusal>) {
        self.set_canary(None, taken_back);
    }

    fn set_canary(&self, canary: Option<(Arc<Canary>, CanaryStatus)>, taken_back: Option<&Refusal>) {
        let (canary, status) = canary.unzip();
        let before = self.canary.send_replace(canary);
        let active = self.active.load();
        if let Some(release) = before.as_ref().map(|before| before.release())
            // It may have passed.
            && active.as_ref().is_none_or(|active| !Arc::ptr_eq(active, release))
        {
            release.drain.begin(DRAIN);
        }
        self.shared.canary(status, taken_back);
        drop(before);
        self.shared.count_draining();
    }

    /// The canary passed: it serves all objects.
    pub(super) async fn promote(&self, canary: &Arc<Canary>) {
        let mut work = self.interrupt().await;
        if !self.is_canary(canary) {
            return;
        }
        // What is said may be about a newer offer, or about settings that wait.
        let said = self.shared.refusal();
        // First, so that no call of its share goes back for a moment.
        self.activate(Arc::clone(canary.release()), Stage::Canary, &mut work);
        self.end_canary(None);
        self.shared.settled(said);
    }

    /// The canary failed.
    pub(super) async fn recall(&self, canary: &Arc<Canary>, breach: &Breach) {
        let mut work = self.interrupt().await;
        if !self.is_canary(canary) {
            return;
        }
        let percent = canary.percent;
        let serves = format!("what serves the other objects serves its {percent} % again, too");
        let refusal = self.take_back(&mut work, canary.release(), Stage::Canary, (breach, &serves));
        self.end_canary(Some(&refusal));
    }

    /// The canary that has this interface.
    pub(super) fn canary_with(&self, interface: Interface) -> Option<Arc<Canary>> {
        self.canary.borrow().as_ref().filter(|canary| canary.release().interfaces.contains(&interface)).cloned()
    }

    /// The canary, where it serves the object of this UID and has this interface.
    pub(super) fn canary_of(&self, interface: Interface, uid: Option<&str>) -> Option<Arc<Active>> {
        let uid = uid?;
        let canary = self.canary_with(interface)?;
        canary.serves(uid).then(|| Arc::clone(canary.release()))
    }

    fn is_canary(&self, canary: &Arc<Canary>) -> bool {
        self.canary.borrow().as_ref().is_some_and(|current| Arc::ptr_eq(current, canary))
    }

    /// New settings: what served a share is what was offered last, unless something newer was.
    pub(super) fn put_canary_off(&self, work: &mut Work) {
        let offer = self.canary.borrow().as_ref().map(|canary| canary.release().offer.clone());
        if let Some(offer) = offer {
            work.refused.get_or_insert(offer);
            self.end_canary(None);
        }
    }
}

/// Where calls and the guard find it.
pub(super) type Current = watch::Sender<Option<Arc<Canary>>>;
