//! The measured figures, as they are saved.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::place::Source;

/// The figures of one source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// The source of the releases.
    pub source: Source,
    /// Name of the component.
    pub component: String,
    /// Bytes of the component, including the custom section that changes its digest.
    pub component_bytes: usize,
    /// Bytes of its machine code.
    pub code_bytes: usize,
    /// Number of swaps.
    pub swaps: u32,
    /// Time from the moment at which the source can notice the offer until the release serves
    /// ([`Source::measured`]).
    pub serving_ms: Spread,
    /// The same from the start of the write, if that is another moment.
    pub written_ms: Spread,
    /// The steps of a swap.
    pub shares: Shares,
    /// Median time of one compilation of the same component on one thread, in a separate process,
    /// between the swaps.
    pub compile_ms: f64,
    /// Number of calls.
    pub calls: u64,
    /// Failed calls by code.
    pub failed: BTreeMap<String, u64>,
    /// Time of a call.
    pub call_ms: Spread,
    /// Resident memory of this process after a number of swaps, in MiB, while no old release is
    /// draining.
    pub resident_mib: BTreeMap<u32, f64>,
}

/// The steps between an offer and its serving, in milliseconds: the median of each.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Shares {
    /// Until the slot has the offer: notification, settling, fetching. 0 if the benchmark offers
    /// directly to the slot.
    pub source_ms: f64,
    /// Until the release is admitted: the jail starts, reads and checks it.
    pub judged_ms: f64,
    /// Until the release is compiled.
    pub compiled_ms: f64,
    /// Linking, `describe`, `check-config`, swap.
    pub rest_ms: f64,
}

/// Starts of a manager whose registry is unavailable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Restart {
    /// Name of the component.
    pub component: String,
    /// Number of restarts.
    pub rounds: u32,
    /// From the start of the process to the first request that its provider sends to the cloud.
    pub first_request_ms: Spread,
    /// From the start of the process until a node is initialised.
    pub first_node_ms: Spread,
    /// From the start of the process to the log line that says that the release serves, if the API
    /// server is unavailable, too.
    pub alone_ms: Spread,
}

/// Minimum, median, 99th percentile and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The minimum.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// The quantiles of these times, in milliseconds; all 0 if there are none.
    #[must_use]
    pub fn of(times: &[Duration]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let milliseconds = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
        // The nearest-rank percentile.
        let rank = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1));
        Self {
            min: milliseconds(sorted.first()),
            p50: milliseconds(rank(50)),
            p99: milliseconds(rank(99)),
            max: milliseconds(sorted.last()),
        }
    }
}

impl Figures {
    /// Calls that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Whether the 99th percentile of the swaps is within the source's bound.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.serving_ms.p99 <= self.source.bound_ms()
    }

    /// Whether resident memory does not grow; none if there are too few samples.
    #[must_use]
    pub fn is_flat(&self) -> Option<bool> {
        let code_kib = f64::from(u32::try_from(self.code_bytes >> 10).unwrap_or(u32::MAX));
        self.growth_kib().map(|growth| growth <= code_kib * FLAT)
    }

    /// Growth of resident memory with each swap, in KiB: the slope of the regression line through
    /// all samples after the caches are full. None if there are too few samples.
    #[must_use]
    pub fn growth_kib(&self) -> Option<f64> {
        let samples: Vec<(f64, f64)> =
            self.resident_mib.range(CACHES_FULL..).map(|(swap, mib)| (f64::from(*swap), mib * 1024.0)).collect();
        let count = f64::from(u32::try_from(samples.len()).ok().filter(|count| *count >= 3)?);
        let mean = |of: fn(&(f64, f64)) -> f64| samples.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|sample| sample.0), mean(|sample| sample.1));
        let (above, below) = samples.iter().fold((0.0, 0.0), |(above, below), (swap, kib)| {
            (above + (swap - x) * (kib - y), below + (swap - x) * (swap - x))
        });
        Some(above / below)
    }
}

/// Largest growth of resident memory with each swap that counts as flat, as a share of one
/// release's machine code: keeping one release of a hundred would show twice this growth.
const FLAT: f64 = 0.005;

/// Swaps until all caches are full: machine code of the last 16 components, waiting offers, the
/// allocator's pages.
pub(super) const CACHES_FULL: u32 = 100;

impl Restart {
    /// The bound of a restart.
    pub const BOUND_MS: f64 = 1000.0;

    /// Whether every round is within the bound.
    #[must_use]
    pub fn holds(&self) -> bool {
        Self::keeps(&self.first_request_ms) && Self::keeps(&self.alone_ms)
    }

    pub(super) fn keeps(spread: &Spread) -> bool {
        spread.max <= Self::BOUND_MS
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use super::{Figures, Shares, Source, Spread};

    fn figures(resident_mib: BTreeMap<u32, f64>) -> Figures {
        Figures {
            source: Source::File,
            component: "simcloud".to_owned(),
            component_bytes: 1,
            code_bytes: 1500 << 10,
            swaps: 1000,
            serving_ms: Spread::default(),
            written_ms: Spread::default(),
            shares: Shares::default(),
            compile_ms: 1.0,
            calls: 0,
            failed: BTreeMap::new(),
            call_ms: Spread::default(),
            resident_mib,
        }
    }

    #[test]
    fn at_most_one_of_a_hundred_is_above_the_99th_percentile() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(Spread::of(&times), Spread { min: 1.0, p50: 100.0, p99: 198.0, max: 200.0 });
        assert_eq!(Spread::of(&times[..1]), Spread { min: 1.0, p50: 1.0, p99: 1.0, max: 1.0 });
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn only_memory_that_grows_after_the_caches_are_full_counts_as_growth() {
        let flat: BTreeMap<u32, f64> = (0..=10).map(|at| (at * 100, if at == 0 { 10.0 } else { 60.0 })).collect();
        let flat = figures(flat);
        assert_eq!((flat.growth_kib(), flat.is_flat()), (Some(0.0), Some(true)));
        let leak: BTreeMap<u32, f64> = (0..=10).map(|at| (at * 100, f64::from(at))).collect();
        let leak = figures(leak);
        let growth = leak.growth_kib().unwrap();
        assert!((growth - 10.24).abs() < 1e-9, "{growth}");
        assert_eq!(leak.is_flat(), Some(false));
        let short = figures([(0, 1.0), (50, 2.0)].into());
        assert_eq!((short.growth_kib(), short.is_flat()), (None, None));
    }
}
