//! How a new release takes over from its predecessor.

use std::time::Duration;

/// The phases of a new release, in this order. By default it serves all objects at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RolloutOptions {
    /// Whether the release is asked what its predecessor was asked.
    pub shadow: Option<ShadowOptions>,
    /// Whether the release is asked in a dry run what it would send to the cloud.
    pub plan: Option<PlanOptions>,
    /// Whether the release serves a share of the objects first.
    pub canary: Option<CanaryOptions>,
    /// How long the release is watched when it serves all objects.
    pub probation: Option<ProbationOptions>,
}

/// The shadow phase of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShadowOptions {
    /// What follows from a difference.
    pub on_difference: OnDifference,
}

/// The dry run of a release, which belongs to the shadow phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanOptions {
    /// What follows from a request that would change the cloud and that the predecessor would not
    /// send.
    pub on_writes: OnDifference,
}

/// What follows from a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnDifference {
    /// The status, the log and the metrics report the difference; the rollout continues.
    Report,
    /// The release is refused.
    Refuse,
}

/// How long a new release is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbationOptions {
    /// Calls of the release that have to end.
    pub calls: u64,
    /// Time that has to pass as well; after twelve times this time fewer calls are enough.
    pub time: Duration,
}

impl ProbationOptions {
    pub(crate) fn time_ms(self) -> u64 {
        u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A new release serves a share of the objects for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CanaryOptions {
    /// The share: 1 to 99.
    pub percent: u8,
    /// How long.
    pub watched: ProbationOptions,
}
