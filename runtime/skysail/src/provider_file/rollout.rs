//! `spec.rollout`: how a new release takes over.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use skysail_host::slot::ProbationOptions;

use super::{explain::Finding, schema::Check};
use crate::args::parse_duration_or_zero;

/// Unless the operator says otherwise. A cluster that is at rest makes a few calls a minute, one in a roll-out dozens.
const PROBATION: ProbationOptions = ProbationOptions { calls: 20, time: Duration::from_mins(5) };

/// Longest probation: the predecessor's memory is kept for twelve times as long.
pub(crate) const TIME_MAX: Duration = Duration::from_hours(24);

/// How a new release takes over.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Rollout {
    /// How long a new release is compared with its predecessor, which serves again by itself when the new one turns out worse.
    #[serde(default)]
    probation: Probation,
}

/// A probation ends when both are reached: so many calls and so much time.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Probation {
    /// Calls that a new release has to end. Default: 20.
    calls: Option<u64>,
    /// How long a new release has to serve, as a duration such as 5m or 1h30m; at most 24h. 0s is no probation at all: a release stays
    /// whatever it does. Where it is hardly called, the probation ends after twelve times as long. Default: 5m.
    time: Option<String>,
}

impl Check<'_> {
    /// None where a release stays whatever it does.
    pub(super) fn probation(&self, rollout: &Rollout) -> Result<Option<ProbationOptions>, Finding> {
        let Rollout { probation: Probation { calls, time } } = rollout;
        let time = match time {
            Some(text) => {
                parse_duration_or_zero(text).map_err(|reason| self.wrong("spec.rollout.probation.time", reason))?
            }
            None => PROBATION.time,
        };
        if time > TIME_MAX {
            let reason = format!("{time:?} is too long; the longest is {TIME_MAX:?}, and 0s is none at all");
            return Err(self.wrong("spec.rollout.probation.time", reason));
        }
        let options = ProbationOptions { calls: calls.unwrap_or(PROBATION.calls), time };
        Ok((!time.is_zero()).then_some(options))
    }
}
