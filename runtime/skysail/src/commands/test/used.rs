//! What the calls used, beside their limits, and limits to set.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use skysail_host::{CallRecord, Limits};

use crate::commands::call::amounts::{ROWS, bound, with_room};

/// The share of a limit, in percent, beyond which the report names another limit.
const SHARE_MAX: u64 = 50;

/// For each limit the call that used most of it.
#[derive(Debug, Default)]
pub(super) struct Used(BTreeMap<&'static str, Largest>);

/// The largest use of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Largest {
    /// As in `spec.limits`.
    pub(super) limit: &'static str,
    pub(super) used: u64,
    pub(super) max: u64,
    pub(super) percent: u64,
    /// Whether a call reached the limit.
    pub(super) reached: bool,
    pub(super) function: &'static str,
    /// What to set; none where the limit leaves enough room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) set: Option<u64>,
}

impl Used {
    /// Takes a call that had these limits.
    pub(super) fn add(&mut self, record: &Arc<CallRecord>, limits: &Limits) {
        for row in ROWS {
            if let Some(bound) = row.limit.and_then(bound) {
                let used = row.in_limit((row.used)(record));
                self.note((bound.name, used, (bound.value)(limits)), record.function, false);
            }
        }
        if let Some(bound) = bound("httpResponseBytes") {
            self.note((bound.name, response_bytes(record), (bound.value)(limits)), record.function, false);
        }
        for hit in &record.limits_hit {
            self.note((hit.limit.name(), hit.used, hit.max), record.function, true);
        }
    }

    fn note(&mut self, (limit, used, max): (&'static str, u64, u64), function: &'static str, reached: bool) {
        let percent = used.saturating_mul(100).checked_div(max).unwrap_or_default();
        let set = (reached || percent > SHARE_MAX).then(|| with_room(limit, used)).flatten().filter(|set| *set > max);
        self.keep(Largest { limit, used, max, percent, reached, function, set });
    }

    fn keep(&mut self, largest: Largest) {
        let known = self.0.entry(largest.limit).or_insert_with(|| largest.clone());
        if (largest.reached, largest.percent) > (known.reached, known.percent) {
            *known = largest;
        }
    }

    /// Takes the calls of another part of the run.
    pub(super) fn extend(&mut self, other: Self) {
        other.0.into_values().for_each(|largest| self.keep(largest));
    }

    /// All limits, those first that were used most.
    pub(super) fn largest(&self) -> Vec<Largest> {
        let mut all: Vec<_> = self.0.values().cloned().collect();
        all.sort_by_key(|largest| (std::cmp::Reverse((largest.reached, largest.percent)), largest.limit));
        all
    }
}

/// The size of the largest body of a response.
fn response_bytes(record: &CallRecord) -> u64 {
    let requests = record.recording.iter().flat_map(|recording| &recording.requests);
    let bodies = requests.filter_map(|exchange| exchange.response.as_ref()?.body.as_ref());
    bodies.map(|body| body.0.len() as u64).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skysail_host::{CallOutcome, CallRecord, Limits};
    use skysail_provider::{Limit, LimitHit};

    use super::Used;

    fn record(function: &'static str, fuel: u64) -> CallRecord {
        CallRecord { fuel, ..CallRecord::new("p".into(), "sha256:0".into(), function, CallOutcome::Ok) }
    }

    #[test]
    fn a_limit_of_which_more_than_half_is_used_gets_another_value_and_the_others_none() {
        let limits = Limits { fuel: 1_000_000_000, memory_bytes: 64 << 20, ..Limits::default() };
        let mut used = Used::default();
        used.add(&Arc::new(record("routes.list", 600_000_000)), &limits);
        used.add(&Arc::new(CallRecord { memory_peak: 1 << 20, ..record("instances.describe", 500_000_000) }), &limits);
        let all = used.largest();
        let of = |name: &str| all.iter().find(|largest| largest.limit == name).unwrap();
        assert_eq!(all[0].limit, "fuel");
        assert_eq!((of("fuel").percent, of("fuel").function, of("fuel").set), (60, "routes.list", Some(2_400_000_000)));
        assert_eq!((of("memoryBytes").used, of("memoryBytes").set), (1 << 20, None));
    }

    #[test]
    fn a_limit_that_was_reached_is_named_even_if_another_call_used_a_larger_share_later() {
        let mut used = Used::default();
        let hit = LimitHit { limit: Limit::HttpResponseBytes, used: 9 << 20, max: 8 << 20 };
        used.add(&Arc::new(CallRecord { limits_hit: vec![hit], ..record("routes.list", 1) }), &Limits::default());
        used.add(&Arc::new(record("instances.describe", 2)), &Limits::default());
        let all = used.largest();
        assert_eq!((all[0].limit, all[0].reached, all[0].set), ("httpResponseBytes", true, Some(19_000_000)));
    }
}
