//! Which release has a call.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use skysail_provider::Interface;

use crate::Release;

/// Which release has a call. This is all that callers read, and it is exchanged as a whole.
#[derive(Debug)]
pub struct Routing<R> {
    /// Serves all objects that are not in the canary's share; none while nothing serves.
    pub active: Option<Arc<R>>,
    /// Serves a share of the objects.
    pub canary: Option<Share<R>>,
}

/// A release that serves a share of the objects.
#[derive(Debug)]
pub struct Share<R> {
    /// The release.
    pub release: Arc<R>,
    /// The share: 1 to 99.
    pub percent: u8,
}

// === impl Share ===

impl<R> Share<R> {
    /// Whether the object of this UID is in the share. The UID alone decides, so that the answer is
    /// the same in every process and for every release, and no object sees two releases in turn.
    #[must_use]
    pub fn serves(&self, uid: &str) -> bool {
        is_in_share(uid, self.percent)
    }
}

/// As [`Share::serves`].
#[must_use]
pub fn is_in_share(uid: &str, percent: u8) -> bool {
    let [first, second, ..] = <[u8; 32]>::from(Sha256::digest(uid));
    u16::from_be_bytes([first, second]) % 100 < u16::from(percent)
}

impl<R> Clone for Share<R> {
    fn clone(&self) -> Self {
        Self { release: Arc::clone(&self.release), percent: self.percent }
    }
}

// === impl Routing ===

impl<R: Release> Routing<R> {
    /// The canary that has this interface.
    #[must_use]
    pub fn canary_with(&self, interface: Interface) -> Option<&Share<R>> {
        self.canary.as_ref().filter(|canary| canary.release.interfaces().contains(&interface))
    }

    /// The release for a call of this interface about the object of this UID. A call about no
    /// single object (lists, routes) stays with the active release.
    #[must_use]
    pub fn pick(&self, interface: Interface, uid: Option<&str>) -> Option<&Arc<R>> {
        let canary = self.canary_with(interface).filter(|canary| uid.is_some_and(|uid| canary.serves(uid)));
        canary.map(|canary| &canary.release).or(self.active.as_ref())
    }
}

impl<R> Routing<R> {
    /// The active release, and the canary.
    pub fn releases(&self) -> impl Iterator<Item = &Arc<R>> {
        self.active.iter().chain(self.canary.as_ref().map(|canary| &canary.release))
    }

    /// Whether every call goes to the same release by both.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let percent = |routing: &Self| routing.canary.as_ref().map(|canary| canary.percent);
        percent(self) == percent(other) && self.releases().map(Arc::as_ptr).eq(other.releases().map(Arc::as_ptr))
    }
}

impl<R> Clone for Routing<R> {
    fn clone(&self) -> Self {
        Self { active: self.active.clone(), canary: self.canary.clone() }
    }
}

impl<R> Default for Routing<R> {
    fn default() -> Self {
        Self { active: None, canary: None }
    }
}
