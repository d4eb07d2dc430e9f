//! Reproducible random numbers.

use std::{ops::RangeInclusive, time::Duration};

/// A stream of random numbers from a seed. Streams with different names are independent, so that
/// another draw from one stream does not change the others.
#[derive(Clone, Debug)]
pub(crate) struct Chance(fastrand::Rng);

impl Chance {
    pub(crate) fn of(seed: u64, stream: &str) -> Self {
        // FNV-1a: a fixed number for a name.
        let name = stream
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(fastrand::Rng::with_seed(seed ^ name))
    }

    /// `true` with this probability.
    pub(crate) fn once_in(&mut self, share: f64) -> bool {
        self.0.f64() < share
    }

    pub(crate) fn number(&mut self, range: RangeInclusive<usize>) -> usize {
        self.0.usize(range)
    }

    pub(crate) fn milliseconds(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.0.u64(range))
    }

    /// A random element; `None` if there is none.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.0.usize(..of.len())) }
    }

    /// A random element by weight.
    pub(crate) fn weighted<T: Copy>(&mut self, of: &[(u32, T)]) -> Option<T> {
        let sum: u32 = of.iter().map(|(weight, _)| weight).sum();
        let mut left = self.0.u32(..sum.max(1));
        of.iter().find_map(|(weight, one)| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                None
            }
            None => Some(*one),
        })
    }
}
