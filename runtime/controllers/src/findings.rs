//! Conditions that keep a provider from its objects: claims that an older provider has, nodes that
//! two providers claim, interfaces that its component does not export, nodes that the breaker
//! keeps, deletions beyond the budget, Services that users have paused, load balancers that are
//! retained.
//!
//! The controllers write findings. The process shows them in the conditions of the `Provider`, in
//! `skysail status` and in `/readyz?verbose`.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// The kinds of findings, the most important one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// An older provider has a class or a scheme that this provider claims too.
    ClaimTaken,
    /// The selector of this provider selects nodes that another provider selects too, so neither
    /// acts on them, or that another provider holds.
    NodeOwnershipConflict,
    /// The provider's spec lists interfaces that its component does not export.
    InterfaceNotExported,
    /// The breaker keeps nodes although the provider reports that their machines do not exist.
    NodesHeld,
    /// The budget of deletions is used up, and deletions wait.
    DeletionsHeld,
    /// Users have paused Services of this provider, which is no fault of the provider.
    ServicesPaused,
    /// Load balancers of this provider are retained, which is no fault of the provider.
    LoadBalancersRetained,
}

impl Finding {
    /// The reason of the condition.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ClaimTaken => "ClaimTaken",
            Self::NodeOwnershipConflict => "NodeOwnershipConflict",
            Self::InterfaceNotExported => "InterfaceNotExported",
            Self::NodesHeld => "NodesHeld",
            Self::DeletionsHeld => "DeletionsHeld",
            Self::ServicesPaused => "ServicesPaused",
            Self::LoadBalancersRetained => "LoadBalancersRetained",
        }
    }
}

/// The findings about one provider, each with its explanation. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Findings(watch::Sender<BTreeMap<Finding, String>>);

impl Findings {
    /// Subscribes to the findings.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<BTreeMap<Finding, String>> {
        self.0.subscribe()
    }

    /// Replaces the finding of this kind; `None` clears it. Returns whether anything changed.
    pub fn set(&self, finding: Finding, text: Option<String>) -> bool {
        self.0.send_if_modified(|all| {
            let before = match &text {
                Some(text) => all.insert(finding, text.clone()),
                None => all.remove(&finding),
            };
            before != text
        })
    }
}
