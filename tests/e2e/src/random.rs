//! Random numbers whose seed is known, so that a test which failed can be run again.

use std::{
    hash::{BuildHasher as _, RandomState},
    ops::Range,
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::workspace::environment;

/// The variable with the seed; without it each run has another one.
pub const SEED: &str = "SKYSAIL_SEED";

/// What `SKYSAIL_SEED` says, or any number: whoever takes it has to print it.
///
/// # Errors
/// The variable is not a number.
pub fn seed() -> Result<u64> {
    match environment(SEED) {
        Some(text) => text.parse().with_context(|| format!("{SEED}={text} is not a number")),
        None => Ok(RandomState::new().hash_one(SEED)),
    }
}

/// A small generator (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The one with this seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Another one, with a seed from this one: what two tasks draw does not depend on which is quicker.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// A number of the range.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    /// A time from zero up to this one.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.within(0..micros))
    }

    /// One of them; none of none.
    pub fn one_of<T>(&mut self, all: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>) -> Option<T> {
        let mut all = all.into_iter();
        let place = self.within(0..all.len() as u64);
        all.nth(usize::try_from(place).ok()?)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
