//! `spec.rollout`: how a new release takes over.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use skysail_host::slot::{CanaryOptions, OnDifference, ProbationOptions, RolloutOptions, ShadowOptions};
use skysail_sources::Digest;

use super::{explain::Finding, schema::Check};
use crate::args::parse_duration_or_zero;

/// Unless the operator says otherwise. A cluster that is at rest makes a few calls a minute, one in
/// a roll-out dozens.
const WATCHED: ProbationOptions = ProbationOptions { calls: 20, time: Duration::from_mins(5) };

/// Longest time that a release is watched: two of them are in memory for up to twelve times as
/// long.
pub(crate) const TIME_MAX: Duration = Duration::from_hours(24);

/// The most that a canary serves: what serves all objects is none.
pub(crate) const PERCENT_MAX: u8 = 99;

/// What [`OnDifference`] is called.
pub(crate) const ON_DIFFERENCE: [&str; 2] = ["Report", "Refuse"];

/// How a new release takes over: asked beside its predecessor, then for a share of the objects,
/// then for all of them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Rollout {
    /// Asks a new release what its predecessor is asked, before it serves, and compares the
    /// answers: load-balancers.get about up to 16 Services, instances.describe about nodes, the
    /// lists of load balancers and routes. Requests that could change something are refused
    /// meanwhile. A release that traps or meets a limit where its predecessor answers is refused.
    /// Default: nothing is asked.
    shadow: Option<Shadow>,
    /// Lets a new release serve a share of the objects first, beside its predecessor. Where it
    /// turns out worse, its predecessor serves them again by itself. Default: a new release serves
    /// all objects at once.
    canary: Option<Canary>,
    /// How long a release that serves all objects is compared with its predecessor, which serves
    /// again by itself when the new one turns out worse.
    #[serde(default)]
    probation: Probation,
    /// The digest of a component that was taken back, to be tried once more: sha256:… as
    /// status.refused has it. It is tried if the source still offers it. To have it tried another
    /// time, remove it and write it again.
    retry: Option<String>,
}

/// What the answers of a new release mean.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Shadow {
    /// Report tells what differs in status.shadow, in an Event and in the log, and goes on. Refuse
    /// refuses a release that answers otherwise than its predecessor. Default: Report.
    on_difference: Option<String>,
}

/// A share of the objects. It ends when both are reached: so many calls and so much time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Canary {
    /// How many of a hundred Services and nodes: 1 to 99. Which ones is decided by their UIDs, and
    /// is the same for each release.
    percent: u8,
    /// Calls that the new release has to end. Default: 20.
    calls: Option<u64>,
    /// How long it has to serve its share, as a duration such as 5m or 1h30m; at most 24h. Where it
    /// is hardly called, the share grows to all objects after twelve times as long. Default: 5m.
    time: Option<String>,
}

/// A probation ends when both are reached: so many calls and so much time.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Probation {
    /// Calls that a new release has to end. Default: 20.
    calls: Option<u64>,
    /// How long a new release has to serve, as a duration such as 5m or 1h30m; at most 24h. 0s is
    /// no probation at all: a release stays whatever it does. Where it is hardly called, the
    /// probation ends after twelve times as long. Default: 5m.
    time: Option<String>,
}

impl Check<'_> {
    pub(super) fn rollout(&self, rollout: &Rollout) -> Result<RolloutOptions, Finding> {
        let Rollout { shadow, canary, probation, retry: _ } = rollout;
        let shadow = shadow.as_ref().map(|shadow| self.shadow(shadow)).transpose()?;
        let canary = canary.as_ref().map(|canary| self.canary(canary)).transpose()?;
        let Probation { calls, time } = probation;
        let watched =
            self.watched("spec.rollout.probation.time", *calls, time.as_deref(), ", and 0s is none at all")?;
        // None: a release stays whatever it does.
        let probation = (!watched.time.is_zero()).then_some(watched);
        Ok(RolloutOptions { shadow, canary, probation })
    }

    fn shadow(&self, Shadow { on_difference }: &Shadow) -> Result<ShadowOptions, Finding> {
        let [report, refuse] = ON_DIFFERENCE;
        let on_difference = match on_difference.as_deref() {
            None => OnDifference::Report,
            Some(text) if text == report => OnDifference::Report,
            Some(text) if text == refuse => OnDifference::Refuse,
            Some(text) => {
                let reason = format!("{text:?} is unknown; write {report} or {refuse}");
                return Err(self.wrong("spec.rollout.shadow.onDifference", reason));
            }
        };
        Ok(ShadowOptions { on_difference })
    }

    fn canary(&self, Canary { percent, calls, time }: &Canary) -> Result<CanaryOptions, Finding> {
        if !(1..=PERCENT_MAX).contains(percent) {
            let reason =
                format!("{percent} is no share; write 1 to {PERCENT_MAX}, or leave canary out for all objects at once");
            return Err(self.wrong("spec.rollout.canary.percent", reason));
        }
        let field = "spec.rollout.canary.time";
        let watched = self.watched(field, *calls, time.as_deref(), "")?;
        if watched.time.is_zero() {
            let reason =
                "a canary has to serve for a time; write a duration such as 5m, or leave canary out".to_owned();
            return Err(self.wrong(field, reason));
        }
        Ok(CanaryOptions { percent: *percent, watched })
    }

    fn watched(
        &self,
        field: &str,
        calls: Option<u64>,
        time: Option<&str>,
        zero: &str,
    ) -> Result<ProbationOptions, Finding> {
        let time = match time {
            Some(text) => parse_duration_or_zero(text).map_err(|reason| self.wrong(field, reason))?,
            None => WATCHED.time,
        };
        if time > TIME_MAX {
            let reason = format!("{time:?} is too long; the longest is {TIME_MAX:?}{zero}");
            return Err(self.wrong(field, reason));
        }
        Ok(ProbationOptions { calls: calls.unwrap_or(WATCHED.calls), time })
    }

    /// The component that a person wants to be tried once more.
    pub(super) fn retry(&self, rollout: &Rollout) -> Result<Option<String>, Finding> {
        let digest = |text: &String| {
            let digest: Digest = text.parse().map_err(|error| {
                self.wrong("spec.rollout.retry", format!("{error}, as status.refused.digest has them"))
            })?;
            Ok(digest.to_string())
        };
        rollout.retry.as_ref().map(digest).transpose()
    }
}
