//! Jitter for the wait before the next try, so that candidates do not try at the same moment.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use crate::config::JITTER_FACTOR;

/// A small generator (`SplitMix64`), seeded by the identity: replicas wait differently, and a test
/// is reproducible.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn of(identity: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        identity.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// The period plus up to [`JITTER_FACTOR`] times the period.
    pub(crate) fn stretch(&mut self, period: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // The upper half: 32 bits exceed the resolution of any timer, and are exact as a float.
        let part = f64::from(u32::try_from(z >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX);
        period.mul_f64(1.0 + part * JITTER_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Jitter;

    #[test]
    fn pauses_lie_between_the_period_and_2_2_times_the_period() {
        let mut jitter = Jitter::of("a");
        let pauses: Vec<_> = (0..1000).map(|_| jitter.stretch(Duration::from_secs(2))).collect();
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!((2.0..2.1).contains(&least.as_secs_f64()), "{least:?}");
        assert!((4.3..=4.4).contains(&most.as_secs_f64()), "{most:?}");
        assert_ne!(Jitter::of("b").stretch(Duration::from_secs(2)), pauses[0]);
    }
}
