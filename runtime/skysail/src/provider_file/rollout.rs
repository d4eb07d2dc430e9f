//! `spec.rollout`: how a new release replaces its predecessor.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use skysail_host::slot::{CanaryOptions, OnDifference, PlanOptions, ProbationOptions, RolloutOptions, ShadowOptions};
use skysail_sources::Digest;

use super::{explain::Explanation, schema::Check};
use crate::args::parse_duration_or_zero;

/// Default length of a probation and a canary. An idle cluster makes a few calls a minute, a busy
/// one dozens.
const WATCHED: ProbationOptions = ProbationOptions { calls: 20, time: Duration::from_mins(5) };

/// Longest probation or canary: two releases are in memory for up to twelve times as long.
pub(crate) const TIME_MAX: Duration = Duration::from_hours(24);

/// Largest share of a canary: a release that serves all objects is not a canary.
pub(crate) const PERCENT_MAX: u8 = 99;

/// The names of [`OnDifference`].
pub(crate) const ON_DIFFERENCE: [&str; 2] = ["Report", "Refuse"];

/// How a new release replaces its predecessor: first it answers without effect (shadow), then it
/// serves a share of the objects (canary), then all objects (probation).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Rollout {
    /// Compare the answers of a new release with those of its predecessor before it serves, by
    /// calling both: load-balancers.get for up to 16 Services, instances.describe for nodes, and
    /// the lists of load balancers and routes. In this phase, requests that could change something
    /// are refused. A release that traps or hits a limit where its predecessor answers is refused.
    /// Default: no comparison.
    shadow: Option<Shadow>,
    /// Ask a new release in a dry run, before it serves, to ensure the load balancers of up to 16
    /// Services with their last nodes. Requests that could change the cloud are not sent. Default:
    /// no dry run.
    plan: Option<Plan>,
    /// Let a new release serve a share of the objects first, beside its predecessor. If the new
    /// release is worse, the share is rolled back automatically. Default: a new release serves all
    /// objects at once.
    canary: Option<Canary>,
    /// How long a new release that serves all objects is watched. If the new release is worse than
    /// its predecessor, it is rolled back automatically.
    #[serde(default)]
    probation: Probation,
    /// Digest of a component that was rolled back and that is to be tried again: sha256:…, as in
    /// status.refused. It is tried if the source still offers it. To try it another time, remove
    /// this field and write it again.
    retry: Option<String>,
}

/// What happens if the answers of the two releases differ.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Shadow {
    /// Report writes the differences to status.shadow, an Event and the log, and continues. Refuse
    /// refuses a release whose answers differ from those of its predecessor. Default: Report.
    on_difference: Option<String>,
}

/// What happens if the new release would change the cloud where its predecessor would not.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Plan {
    /// Report writes the requests to status.shadow, an Event and the log, and continues. Refuse
    /// refuses a release that would send them. Default: Report.
    on_writes: Option<String>,
}

/// A canary serves a share of the objects. It passes after both the calls and the time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Canary {
    /// Percentage of the Services and nodes: 1 to 99. The UIDs select the objects, so that they are
    /// the same for each release.
    percent: u8,
    /// Number of calls that the new release has to complete. Default: 20.
    calls: Option<u64>,
    /// How long the release has to serve its share, as a duration such as 5m or 1h30m; at most 24h.
    /// If the number of calls is not reached, the canary passes after twelve times as long.
    /// Default: 5m.
    time: Option<String>,
}

/// A probation passes after both the calls and the time.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Probation {
    /// Number of calls that the new release has to complete. Default: 20.
    calls: Option<u64>,
    /// How long the new release has to serve, as a duration such as 5m or 1h30m; at most 24h. 0s
    /// disables the probation, so that a release is never rolled back. If the number of calls is
    /// not reached, the probation passes after twelve times as long. Default: 5m.
    time: Option<String>,
}

impl Check<'_> {
    pub(super) fn rollout(&self, rollout: &Rollout) -> Result<RolloutOptions, Explanation> {
        let Rollout { shadow, plan, canary, probation, retry: _ } = rollout;
        let shadow = shadow.as_ref().map(|shadow| self.shadow(shadow)).transpose()?;
        let plan = plan.as_ref().map(|plan| self.plan(plan)).transpose()?;
        let canary = canary.as_ref().map(|canary| self.canary(canary)).transpose()?;
        let Probation { calls, time } = probation;
        let watched =
            self.watched("spec.rollout.probation.time", *calls, time.as_deref(), "; 0s disables the probation")?;
        // Without a probation a release is never rolled back.
        let probation = (!watched.time.is_zero()).then_some(watched);
        Ok(RolloutOptions { shadow, plan, canary, probation })
    }

    fn shadow(&self, Shadow { on_difference }: &Shadow) -> Result<ShadowOptions, Explanation> {
        let on_difference = self.on_difference("spec.rollout.shadow.onDifference", on_difference.as_deref())?;
        Ok(ShadowOptions { on_difference })
    }

    fn plan(&self, Plan { on_writes }: &Plan) -> Result<PlanOptions, Explanation> {
        Ok(PlanOptions { on_writes: self.on_difference("spec.rollout.plan.onWrites", on_writes.as_deref())? })
    }

    fn on_difference(&self, place: &'static str, text: Option<&str>) -> Result<OnDifference, Explanation> {
        let [report, refuse] = ON_DIFFERENCE;
        match text {
            None => Ok(OnDifference::Report),
            Some(text) if text == report => Ok(OnDifference::Report),
            Some(text) if text == refuse => Ok(OnDifference::Refuse),
            Some(text) => {
                let reason = format!("{text:?} is unknown; write {report} or {refuse}");
                Err(self.invalid_field(place, reason))
            }
        }
    }

    fn canary(&self, Canary { percent, calls, time }: &Canary) -> Result<CanaryOptions, Explanation> {
        if !(1..=PERCENT_MAX).contains(percent) {
            let reason = format!(
                "{percent} is not a valid share; write 1 to {PERCENT_MAX}, or leave canary out for all objects at once"
            );
            return Err(self.invalid_field("spec.rollout.canary.percent", reason));
        }
        let field = "spec.rollout.canary.time";
        let watched = self.watched(field, *calls, time.as_deref(), "")?;
        if watched.time.is_zero() {
            let reason =
                "a canary needs a time longer than zero; write a duration such as 5m, or leave canary out".to_owned();
            return Err(self.invalid_field(field, reason));
        }
        Ok(CanaryOptions { percent: *percent, watched })
    }

    fn watched(
        &self,
        field: &str,
        calls: Option<u64>,
        time: Option<&str>,
        zero: &str,
    ) -> Result<ProbationOptions, Explanation> {
        let time = match time {
            Some(text) => parse_duration_or_zero(text).map_err(|reason| self.invalid_field(field, reason))?,
            None => WATCHED.time,
        };
        if time > TIME_MAX {
            let reason = format!("{time:?} is too long; write at most {TIME_MAX:?}{zero}");
            return Err(self.invalid_field(field, reason));
        }
        Ok(ProbationOptions { calls: calls.unwrap_or(WATCHED.calls), time })
    }

    /// The digest of the component to try again.
    pub(super) fn retry(&self, rollout: &Rollout) -> Result<Option<String>, Explanation> {
        let digest = |text: &String| {
            let digest: Digest = text.parse().map_err(|error| {
                self.invalid_field("spec.rollout.retry", format!("{error}, as status.refused.digest has them"))
            })?;
            Ok(digest.to_string())
        };
        rollout.retry.as_ref().map(digest).transpose()
    }
}
