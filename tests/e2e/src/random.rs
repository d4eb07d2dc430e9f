//! Random numbers with a known seed, so that a failed test can be repeated.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::workspace::environment;

/// The environment variable with the seed; without it each run has another seed.
pub const SEED: &str = "SKYSAIL_SEED";

/// The value of `SKYSAIL_SEED`, or a random number, which the caller has to print.
///
/// # Errors
/// The variable is not a number.
pub fn seed() -> Result<u64> {
    match environment(SEED) {
        Some(text) => text.parse().with_context(|| format!("{SEED}={text} is not a number")),
        None => Ok(RandomState::new().hash_one(SEED)),
    }
}

/// A random time between zero and `most`.
pub fn up_to(random: &mut fastrand::Rng, most: Duration) -> Duration {
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random.u64(..micros.max(1)))
}
