//! Settings that add latency, faults and limits, and their effect on each request.

use serde::{Deserialize, Serialize};
use tokio::time::{Duration, Instant};

/// Settings that may change while the cloud serves. The default has no latency and no faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Knobs {
    /// Latency of each request. Milliseconds, default 0.
    pub latency_ms: u64,
    /// Share of requests that fail with 500 without effect, 0 to 1. Default 0. `seed`
    /// decides which.
    pub error_rate: f64,
    /// Start of the random numbers behind `error_rate`; setting the knobs starts them again.
    pub seed: u64,
    /// Planned failures in a row; the count falls with each.
    pub fail: Option<Failures>,
    /// Requests per second, with one second's worth as a burst; more get 429 with `Retry-After`.
    /// None, the default, is no limit; 0 refuses all.
    pub requests_per_second: Option<u32>,
    /// Time for which a new elastic IP or virtual server is `pending`. Milliseconds, default 0.
    pub provisioning_ms: u64,
    /// The maximum number of entries of a page, and the default of `limit`. 1 to 500, default 500.
    pub page_entries_max: usize,
}

/// Planned failures in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failures {
    /// Number of matching requests that still succeed.
    #[serde(default)]
    pub after: u32,
    /// Number of requests that fail after that.
    pub count: u32,
    /// Status of the failures, 400 to 599. Default 500.
    #[serde(default = "internal_server_error")]
    pub status: u16,
    /// Whether only requests that change something match. Default false.
    #[serde(default)]
    pub writes_only: bool,
    /// Whether the request takes effect and only its answer is lost. Default false.
    #[serde(default)]
    pub carried_out: bool,
}

const fn internal_server_error() -> u16 {
    500
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            latency_ms: 0,
            error_rate: 0.0,
            seed: 0,
            fail: None,
            requests_per_second: None,
            provisioning_ms: 0,
            page_entries_max: 500,
        }
    }
}

impl Knobs {
    /// Checks the range of each value.
    ///
    /// # Errors
    ///
    /// The name of the knob and its range.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.error_rate) {
            return Err(format!("error_rate is {}: it must be from 0 to 1", self.error_rate));
        }
        if !(1..=500).contains(&self.page_entries_max) {
            return Err(format!("page_entries_max is {}: it must be from 1 to 500", self.page_entries_max));
        }
        match &self.fail {
            Some(fail) if !(400..600).contains(&fail.status) => {
                Err(format!("fail.status is {}: it must be from 400 to 599", fail.status))
            }
            _ => Ok(()),
        }
    }
}

/// The effect on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// The request has no effect.
    Fail(u16),
    /// The request takes effect, and the answer is lost.
    LoseAnswer(u16),
    /// 429; whole seconds, at least 1.
    TooMany {
        retry_after_s: u64,
    },
}

/// The knobs and their state between requests.
#[derive(Debug)]
pub(super) struct Faults {
    knobs: Knobs,
    random: SplitMix64,
    /// Tokens of the rate limit, and the time of the count.
    bucket: (f64, Instant),
}

impl Faults {
    pub(super) fn new(knobs: Knobs) -> Self {
        let burst = knobs.requests_per_second.map_or(0.0, f64::from);
        Self { random: SplitMix64(knobs.seed), bucket: (burst, Instant::now()), knobs }
    }

    pub(super) const fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    pub(super) fn judge(&mut self, is_write: bool, now: Instant) -> Verdict {
        if let Some(wait) = self.over_rate(now) {
            // Retry-After is in whole seconds: rounded up.
            return Verdict::TooMany { retry_after_s: (wait + Duration::from_nanos(999_999_999)).as_secs().max(1) };
        }
        if let Some(verdict) = self.planned(is_write) {
            return verdict;
        }
        // One draw for each request that reaches this line: the same seed and the same requests
        // give the same failures.
        if self.knobs.error_rate > 0.0 && self.random.unit() < self.knobs.error_rate {
            return Verdict::Fail(500);
        }
        Verdict::Pass
    }

    fn over_rate(&mut self, now: Instant) -> Option<Duration> {
        let rate = f64::from(self.knobs.requests_per_second?);
        let (left, then) = self.bucket;
        let left = (left + (now - then).as_secs_f64() * rate).min(rate);
        if left >= 1.0 {
            self.bucket = (left - 1.0, now);
            return None;
        }
        self.bucket = (left, now);
        Some(if rate > 0.0 { Duration::from_secs_f64((1.0 - left) / rate) } else { Duration::from_secs(1) })
    }

    fn planned(&mut self, is_write: bool) -> Option<Verdict> {
        let fail = self.knobs.fail.as_mut().filter(|fail| is_write || !fail.writes_only)?;
        if fail.after > 0 {
            fail.after -= 1;
            return None;
        }
        let verdict = if fail.carried_out { Verdict::LoseAnswer(fail.status) } else { Verdict::Fail(fail.status) };
        fail.count = fail.count.saturating_sub(1);
        if fail.count == 0 {
            self.knobs.fail = None;
        }
        Some(verdict)
    }
}

/// Vigna's generator: a few lines, and every seed is a good one.
#[derive(Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    /// From 0 to below 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // 32 bits are enough, and exact as f64.
        let bits = u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or(0);
        f64::from(bits) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, Instant};

    use super::{Failures, Faults, Knobs, Verdict};

    #[test]
    fn a_rate_limit_allows_a_burst_and_then_names_the_wait() {
        let mut faults = Faults::new(Knobs { requests_per_second: Some(2), ..Knobs::default() });
        let start = Instant::now();
        let verdicts: Vec<_> = (0..3).map(|_| faults.judge(false, start)).collect();
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Pass, Verdict::TooMany { retry_after_s: 1 }]);
        assert_eq!(faults.judge(false, start + Duration::from_millis(500)), Verdict::Pass);
    }

    #[test]
    fn one_seed_gives_the_same_failures_each_time() {
        let run = |seed| {
            let mut faults = Faults::new(Knobs { error_rate: 0.3, seed, ..Knobs::default() });
            (0..1_000).map(|_| faults.judge(true, Instant::now()) == Verdict::Fail(500)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let failed = run(7).iter().filter(|failed| **failed).count();
        assert!((250..350).contains(&failed), "{failed}");
    }

    #[test]
    fn planned_failures_start_and_end_as_configured() {
        let fail = Failures { after: 1, count: 2, status: 503, writes_only: true, carried_out: false };
        let mut faults = Faults::new(Knobs { fail: Some(fail), ..Knobs::default() });
        let verdicts: Vec<_> = [false, true, true, false, true, true].map(|w| faults.judge(w, Instant::now())).into();
        let fail = Verdict::Fail(503);
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Pass, fail, Verdict::Pass, fail, Verdict::Pass]);
    }
}
