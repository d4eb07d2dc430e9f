//! Statistics of the calls of one release, by function, for people: how many calls there were, how
//! they ended, how long they took, and how close they came to their limits. Nothing is decided by
//! them; `CallHistory` of `runtime/slot` counts for decisions.
//!
//! Every call is noted, so a note is cheap: a lock that is held for some additions, and memory that
//! is allocated at the first call of a function (about 5 KiB) and at its first outcome or limit of
//! a kind. Functions, outcomes and limits are closed sets.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use hdrhistogram::Histogram;
use skysail_provider::text::one_line;

use crate::{
    CallOutcome, CallRecord,
    limits::{DEADLINE_MS_MAX, FUEL_MAX},
};

/// One digit: a quantile is at most a sixteenth above the true value, and a function's two
/// histograms have some hundred counters each.
const DIGITS: u8 = 1;

/// Longest text of a failure that is kept, in bytes: as much as an Event holds.
const FAILURE_BYTES_MAX: usize = 1_000;

/// The calls of one function of a release, since the release was loaded with the settings that it
/// has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionCalls {
    /// Interface and function of the contract: `load-balancers.ensure`.
    pub function: &'static str,
    /// All calls that ended, cancelled ones included.
    pub calls: u64,
    /// The calls among them that ended with an error that needs an action. "Not found",
    /// "implemented elsewhere", "ask again" and a lost lease are no such errors.
    pub failed: u64,
    /// Calls by [`CallOutcome::category`].
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Half of the calls that were not cancelled took at most this long, with the wait for a place.
    pub p50: Duration,
    /// 99 of 100 calls that were not cancelled took at most this long, with the wait for a place.
    pub p99: Duration,
    /// 99 of 100 calls that ran used at most this much fuel, the host's work for them included.
    pub fuel_p99: u64,
    /// The highest use of fuel of one call.
    pub fuel_max: u64,
    /// Calls that met a limit, by the name of the limit, whether the limit ended the call or only
    /// refused a part of it.
    pub limit_hits: BTreeMap<&'static str, u64>,
    /// The last call that `failed` counts.
    pub last_failure: Option<LastFailure>,
}

/// A call that failed, and whether the failure is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFailure {
    /// [`CallOutcome::category`].
    pub code: &'static str,
    /// The error of the call: one line, at most [`FAILURE_BYTES_MAX`].
    pub message: String,
    /// When the call ended.
    pub time: SystemTime,
    /// Whether a call of the same function has succeeded since.
    pub succeeded_since: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CallStatistics {
    /// Sorted by their names.
    functions: Mutex<Vec<FunctionStatistics>>,
}

#[derive(Debug)]
struct FunctionStatistics {
    function: &'static str,
    calls: u64,
    failed: u64,
    outcomes: Counts,
    wall_us: Quantiles,
    fuel: Quantiles,
    limit_hits: Counts,
    last_failure: Option<LastFailure>,
}

/// Counts by names of a closed set.
#[derive(Debug, Default)]
struct Counts(Vec<(&'static str, u64)>);

/// A histogram of values; none where its bounds are not possible.
#[derive(Debug)]
struct Quantiles {
    histogram: Option<Histogram<u32>>,
    max: u64,
}

// === impl CallStatistics ===

impl CallStatistics {
    pub(crate) fn note(&self, record: &CallRecord) {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match functions.binary_search_by_key(&record.function, |statistics| statistics.function) {
            Ok(index) => index,
            Err(index) => {
                functions.insert(index, FunctionStatistics::new(record.function));
                index
            }
        };
        if let Some(statistics) = functions.get_mut(index) {
            statistics.note(record);
        }
    }

    /// One entry for each function that was called, in the order of their names.
    pub(crate) fn calls(&self) -> Vec<FunctionCalls> {
        self.functions.lock().unwrap_or_else(PoisonError::into_inner).iter().map(FunctionStatistics::calls).collect()
    }
}

// === impl FunctionStatistics ===

impl FunctionStatistics {
    fn new(function: &'static str) -> Self {
        Self {
            function,
            calls: 0,
            failed: 0,
            outcomes: Counts::default(),
            wall_us: Quantiles::up_to(DEADLINE_MS_MAX * 1_000),
            fuel: Quantiles::up_to(FUEL_MAX),
            limit_hits: Counts::default(),
            last_failure: None,
        }
    }

    fn note(&mut self, record: &CallRecord) {
        self.calls += 1;
        self.failed += u64::from(record.fault.is_some());
        self.outcomes.add(record.outcome.category());
        // The time of a cancelled call is the caller's and not the release's.
        if record.outcome != CallOutcome::Cancelled {
            self.wall_us.add(u64::try_from(record.wall.as_micros()).unwrap_or(u64::MAX));
        }
        // Without a place or a lease nothing ran.
        if record.fuel > 0 {
            self.fuel.add(record.fuel);
        }
        for hit in &record.limits_hit {
            self.limit_hits.add(hit.limit.name());
        }
        self.note_failure(record);
    }

    fn note_failure(&mut self, record: &CallRecord) {
        match &record.outcome {
            CallOutcome::Failed { code, message } if record.fault.is_some() => {
                #[expect(clippy::disallowed_methods, reason = "a date for people")]
                let time = SystemTime::now();
                let message = one_line(message, FAILURE_BYTES_MAX);
                self.last_failure = Some(LastFailure { code: code.category(), message, time, succeeded_since: false });
            }
            CallOutcome::Ok => {
                if let Some(failure) = &mut self.last_failure {
                    failure.succeeded_since = true;
                }
            }
            CallOutcome::Failed { .. } | CallOutcome::Cancelled => {}
        }
    }

    fn calls(&self) -> FunctionCalls {
        let Self { function, calls, failed, outcomes, wall_us, fuel, limit_hits, last_failure } = self;
        FunctionCalls {
            function,
            calls: *calls,
            failed: *failed,
            outcomes: outcomes.by_name(),
            p50: Duration::from_micros(wall_us.at(0.5)),
            p99: Duration::from_micros(wall_us.at(0.99)),
            fuel_p99: fuel.at(0.99),
            fuel_max: fuel.max,
            limit_hits: limit_hits.by_name(),
            last_failure: last_failure.clone(),
        }
    }
}

// === impl Counts ===

impl Counts {
    fn add(&mut self, name: &'static str) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => self.0.push((name, 1)),
        }
    }

    fn by_name(&self) -> BTreeMap<&'static str, u64> {
        self.0.iter().copied().collect()
    }
}

// === impl Quantiles ===

impl Quantiles {
    /// For values from 1 on. A value above `max` counts as `max`.
    fn up_to(max: u64) -> Self {
        // An error means impossible bounds; a test shows that these bounds are possible.
        Self { histogram: Histogram::new_with_bounds(1, max, DIGITS).ok(), max: 0 }
    }

    fn add(&mut self, value: u64) {
        self.max = self.max.max(value);
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(value);
        }
    }

    /// At least the true value, and at most a sixteenth more; never more than the highest.
    fn at(&self, quantile: f64) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(quantile)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use skysail_provider::{Code, Limit, LimitHit};

    use super::{CallStatistics, DEADLINE_MS_MAX, FAILURE_BYTES_MAX, FUEL_MAX, FunctionCalls, FunctionStatistics};
    use crate::{CallOutcome, CallRecord, Fault};

    fn record(function: &'static str, wall_ms: u64, fuel: u64) -> CallRecord {
        CallRecord {
            fuel,
            wall: Duration::from_millis(wall_ms),
            ..CallRecord::new("sim".into(), "sha256:00".into(), function, CallOutcome::Ok)
        }
    }

    fn failed(code: Code) -> CallOutcome {
        CallOutcome::Failed { code, message: "why".to_owned() }
    }

    #[test]
    fn quantiles_are_never_below_the_truth_and_at_most_a_sixteenth_above() {
        let statistics = CallStatistics::default();
        for n in 1..=1_000 {
            statistics.note(&record("routes.list", n, n * 1_000_000));
        }
        let calls = statistics.calls();
        let [calls] = calls.as_slice() else { panic!("{calls:?}") };
        for (told, truth) in [
            (calls.p50.as_micros(), 500_000),
            (calls.p99.as_micros(), 990_000),
            (u128::from(calls.fuel_p99), 990_000_000),
        ] {
            assert!(told >= truth && told <= truth + truth / 16, "{told} for {truth}");
        }
        assert_eq!((calls.calls, calls.failed, calls.fuel_max), (1_000, 0, 1_000_000_000));
        assert!(calls.fuel_p99 <= calls.fuel_max && calls.p99 <= Duration::from_secs(1));
    }

    #[test]
    fn the_last_failure_of_a_function_is_kept_until_another_one_and_a_success_is_noted_beside_it() {
        let statistics = CallStatistics::default();
        let ended = |function, outcome, fault| {
            statistics.note(&CallRecord { outcome, fault, ..record(function, 10, 1_000) });
        };
        let last = |function: &str| {
            let calls = statistics.calls().into_iter().find(|calls| calls.function == function)?;
            calls.last_failure.map(|failure| (failure.code, failure.message, failure.succeeded_since))
        };
        let panic = "the guest trapped: panicked at src/lib.rs:9:9: a\ntext";
        let trapped = || CallOutcome::Failed { code: Code::Trapped, message: panic.to_owned() };
        ended("routes.list", trapped(), Some(Fault::Release));
        // These errors need no action.
        ended("routes.list", failed(Code::NotFound), None);
        ended("routes.list", CallOutcome::Cancelled, None);
        ended("zones.current", CallOutcome::Ok, None);
        let text = "the guest trapped: panicked at src/lib.rs:9:9: a text".to_owned();
        assert_eq!(last("routes.list"), Some(("Trapped", text.clone(), false)));
        ended("routes.list", CallOutcome::Ok, None);
        assert_eq!(last("routes.list"), Some(("Trapped", text, true)));
        let long = CallOutcome::Failed { code: Code::Denied, message: "x".repeat(100_000) };
        ended("routes.list", long, Some(Fault::Operator));
        let (code, message, succeeded_since) = last("routes.list").unwrap();
        assert_eq!((code, succeeded_since), ("Denied", false));
        assert!(message.len() <= FAILURE_BYTES_MAX);
        assert_eq!(last("zones.current"), None);
    }

    #[test]
    fn calls_are_counted_by_how_they_ended_and_what_they_met() {
        let statistics = CallStatistics::default();
        let hit = |limit| LimitHit { limit, used: 2, max: 1 };
        let ended = |outcome, limits_hit| {
            let record = record("load-balancers.ensure", 10, 1_000);
            let fault = match &outcome {
                CallOutcome::Failed { code: Code::LimitExceeded, .. } => Some(Fault::Release),
                _ => None,
            };
            statistics.note(&CallRecord { outcome, fault, limits_hit, ..record });
        };
        ended(CallOutcome::Ok, vec![]);
        ended(CallOutcome::Ok, vec![hit(Limit::LogLines)]);
        ended(failed(Code::NotFound), vec![]);
        ended(failed(Code::LimitExceeded), vec![hit(Limit::Fuel), hit(Limit::LogLines)]);
        statistics.note(&CallRecord { outcome: failed(Code::NotLeading), ..record("instances.metadata", 10, 0) });
        // A cancelled call says nothing about the time that an answer takes.
        statistics.note(&CallRecord { outcome: CallOutcome::Cancelled, ..record("instances.metadata", 60_000, 5) });
        // Another test shows the last failure, whose time is that of the clock.
        let without_failure = |calls| FunctionCalls { last_failure: None, ..calls };
        let calls: Vec<_> = statistics.calls().into_iter().map(without_failure).collect();
        expect![[r#"
            [
                FunctionCalls {
                    function: "instances.metadata",
                    calls: 2,
                    failed: 0,
                    outcomes: {
                        "Cancelled": 1,
                        "NotLeading": 1,
                    },
                    p50: 10ms,
                    p99: 10ms,
                    fuel_p99: 5,
                    fuel_max: 5,
                    limit_hits: {},
                    last_failure: None,
                },
                FunctionCalls {
                    function: "load-balancers.ensure",
                    calls: 4,
                    failed: 1,
                    outcomes: {
                        "LimitExceeded": 1,
                        "NotFound": 1,
                        "Ok": 2,
                    },
                    p50: 10ms,
                    p99: 10ms,
                    fuel_p99: 1000,
                    fuel_max: 1000,
                    limit_hits: {
                        "fuel": 1,
                        "logLines": 2,
                    },
                    last_failure: None,
                },
            ]
        "#]]
        .assert_debug_eq(&calls);
    }

    #[test]
    fn values_beyond_every_bound_are_counted_and_take_no_more_memory() {
        let statistics = FunctionStatistics::new("routes.list");
        let size = |statistics: &FunctionStatistics| {
            [&statistics.wall_us, &statistics.fuel]
                .map(|quantiles| quantiles.histogram.as_ref().unwrap().distinct_values())
        };
        let (before, mut statistics) = (size(&statistics), statistics);
        let extreme = CallRecord { wall: Duration::MAX, ..record("routes.list", 0, u64::MAX) };
        for extreme in [extreme, record("routes.list", DEADLINE_MS_MAX, FUEL_MAX), record("routes.list", 0, 0)] {
            statistics.note(&extreme);
        }
        let calls = statistics.calls();
        assert_eq!((calls.calls, calls.fuel_max), (3, u64::MAX));
        assert!(calls.fuel_p99 >= FUEL_MAX && calls.p99 >= Duration::from_millis(DEADLINE_MS_MAX), "{calls:?}");
        assert_eq!(size(&statistics), before);
        assert!(before.iter().sum::<usize>() * size_of::<u32>() < 5 * 1024, "{before:?} counters");
    }

    #[test]
    fn calls_that_end_at_once_are_all_counted() {
        let statistics = CallStatistics::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..1_000 {
                        let function = if n % 2 == 0 { "routes.list" } else { "zones.current" };
                        statistics.note(&record(function, 1, 1));
                    }
                });
            }
        });
        let counted: Vec<_> = statistics.calls().iter().map(|calls| (calls.function, calls.calls)).collect();
        assert_eq!(counted, [("routes.list", 2_000), ("zones.current", 2_000)]);
    }
}
