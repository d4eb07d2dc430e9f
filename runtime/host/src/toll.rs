//! What the host's work costs the guest that asks for it, in fuel. Must not know which import it
//! is.
//!
//! Wasmtime counts the guest's own instructions. What an import does is not among them, so a guest
//! could keep a core busy for nothing; here each import is charged for what it makes the host do.
//! The price depends on what was asked alone, never on time: equal calls cost equal fuel.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// One call of an import.
///
/// An import that does nothing takes 275 ns with its crossings (40 million reads of the clock: 11
/// s), and a thousand million units of fuel are 0.1 to 0.2 s of CPU, 5 to 10 units a nanosecond: a
/// guest that only calls imports gets as much CPU out of its fuel as one that only computes.
pub(crate) const CALL: u64 = 2_000;
/// One entry of a list that crosses: the host makes a pair of strings of it, or has the guest's
/// allocator called for it.
pub(crate) const ENTRY: u64 = 100;
/// One random byte: they come one by one from a cipher.
pub(crate) const RANDOM_BYTE: u64 = 4;

/// One byte of an answer that is searched for values of credentials: 2.5 to 6.6 ns, with one value
/// and with eight.
pub(crate) const REDACTED_BYTE: u64 = 30;

/// What a call's imports have cost and what is not charged yet.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    owed: Owed,
    /// Whether an import was called since the last charge: other crossings (a tick of the epoch,
    /// growth of a memory) must change nothing.
    called: bool,
}

/// Fuel that is owed; clones share it. For what lives on its own, as streams do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owed(Arc<AtomicU64>);

impl Owed {
    /// Bytes were searched for values of credentials.
    pub(crate) fn redacted(&self, bytes: u64) {
        self.add(REDACTED_BYTE.saturating_mul(bytes));
    }

    pub(crate) fn add(&self, fuel: u64) {
        // No overflow: what a call can owe before it is charged is bounded by the bytes that cross,
        // far below 2^64.
        self.0.fetch_add(fuel, Ordering::Relaxed);
    }
}

impl Toll {
    /// An import was called.
    pub(crate) fn call(&mut self) {
        self.called = true;
        self.owed.add(CALL);
    }

    pub(crate) fn entries(&self, count: usize) {
        self.owed.add(ENTRY.saturating_mul(count as u64));
    }

    /// Requests of one call of an import: each costs as if it had been sent alone.
    pub(crate) fn requests(&self, count: usize) {
        self.owed.add(CALL.saturating_mul(count as u64));
    }

    /// Bytes were copied: one unit for each, as wasmtime charges for `memory.copy`.
    pub(crate) fn bytes(&self, count: u64) {
        self.owed.add(count);
    }

    pub(crate) fn random_bytes(&self, count: u64) {
        self.owed.add(RANDOM_BYTE.saturating_mul(count));
    }

    pub(crate) fn owed(&self) -> Owed {
        self.owed.clone()
    }

    /// What to charge now that an import returned, where it was one.
    pub(crate) fn take(&mut self) -> Option<u64> {
        std::mem::take(&mut self.called).then(|| self.owed.0.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::{CALL, ENTRY, Toll};

    #[test]
    fn only_an_import_is_charged_and_once() {
        let mut toll = Toll::default();
        toll.owed().add(7);
        assert_eq!(toll.take(), None, "a tick of the epoch");
        toll.call();
        toll.entries(3);
        toll.bytes(5);
        assert_eq!(toll.take(), Some(CALL + 3 * ENTRY + 12));
        assert_eq!(toll.take(), None);
    }
}
