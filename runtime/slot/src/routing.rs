//! Which release serves a call.

use std::{iter::repeat_n, sync::Arc};

use sha2::{Digest as _, Sha256};
use skysail_provider::{Code, Error, Instance, Interface, NodeSet, Result};

use crate::Release;

/// Which release serves a call. This is all that callers read, and it is exchanged as a whole.
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

    /// The nodes in the share, and the others.
    #[must_use]
    pub fn split(&self, nodes: &NodeSet) -> (NodeSet, NodeSet) {
        let (share, rest): (Vec<_>, Vec<_>) = nodes.as_slice().iter().cloned().partition(|node| self.serves(&node.uid));
        (NodeSet::new(share), NodeSet::new(rest))
    }

    /// The answers for all nodes, in their order, from those of the two releases for their parts
    /// ([`Self::split`]). Where one release has no answer, the nodes of the other release still get
    /// theirs.
    ///
    /// # Errors
    /// No node has an answer.
    pub fn join(
        &self,
        nodes: &NodeSet,
        share: Result<Vec<Result<Instance>>>,
        rest: Result<Vec<Result<Instance>>>,
    ) -> Result<Vec<Result<Instance>>> {
        let (share, rest) = match (share, rest) {
            (Err(error), Ok(rest)) if rest.is_empty() => return Err(error),
            (Err(_), Err(error)) => return Err(error),
            answers => answers,
        };
        let (mut share, mut rest) = (of_each(share, nodes.len()), of_each(rest, nodes.len()));
        let each = nodes.as_slice().iter();
        Ok(each.filter_map(|node| if self.serves(&node.uid) { share.next() } else { rest.next() }).collect())
    }
}

/// The answers of one release. An error of the whole call becomes the error of each node, with a
/// code that does not claim that the node is gone.
fn of_each(answers: Result<Vec<Result<Instance>>>, nodes: usize) -> impl Iterator<Item = Result<Instance>> {
    let (answers, error) = match answers {
        Ok(answers) => (answers, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let error = error.map(|error| match error.code {
        Code::NotFound | Code::ImplementedElsewhere => Error { code: Code::Internal, ..error },
        _ => error,
    });
    answers.into_iter().chain(error.into_iter().flat_map(move |error| repeat_n(Err(error), nodes)))
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
