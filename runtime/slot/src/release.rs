//! What a slot has to know of a release and of its settings.

use std::sync::Arc;

use skysail_provider::{Info, Interface};

use crate::{CallHistory, Component, Drain, RolloutOptions};

/// A release that is loaded under some settings.
pub trait Release {
    /// The provider's settings.
    type Settings: Settings;
    /// The caller that proposes settings, and learns when they can be committed.
    type Proposer;
    /// Version of the contract between host and release.
    const CONTRACT: &'static str;

    /// Needed to load the release again under other settings.
    fn component(&self) -> &Component;

    /// How the release describes itself.
    fn info(&self) -> &Info;

    /// The interfaces that the release exports besides `identity`.
    fn interfaces(&self) -> &[Interface];

    /// How the calls of the release ended.
    fn call_history(&self) -> &Arc<CallHistory>;

    /// The end of the calls of the release after it was replaced.
    fn drain(&self) -> &Drain;

    /// Whether the release was loaded under these settings.
    fn is_under(&self, settings: &Self::Settings) -> bool;

    /// `sha256:…` of the component.
    fn digest(&self) -> &str {
        &self.component().digest
    }
}

/// Settings of a provider. Cloning is cheap.
pub trait Settings: Clone {
    /// How a new release takes over.
    fn rollout(&self) -> &RolloutOptions;

    /// The digest of the rolled-back release that the operator wants to be tried once more.
    fn retry(&self) -> Option<&str>;

    /// The end of the calls under these settings after they were replaced.
    fn drain(&self) -> &Drain;

    /// Whether these are the same settings: not equal ones that were made later.
    fn is(&self, other: &Self) -> bool;
}

/// Whether nodes and load balancers of the one are known as the other's.
#[must_use]
pub fn is_same_identity(one: &Info, other: &Info) -> bool {
    let sorted = |info: &Info| {
        let mut schemes = info.provider_id_schemes.clone();
        schemes.sort_unstable();
        schemes
    };
    one.name == other.name && sorted(one) == sorted(other)
}
