//! Charges a guest fuel for the work that the host does in its imports. Independent of the
//! individual imports.
//!
//! Wasmtime counts only the guest's own instructions. Without a charge for imports a guest could
//! keep a core busy without using fuel. The charge depends only on the arguments and results, never
//! on time: equal calls cost equal fuel.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// One call of an import.
///
/// An empty import takes 275 ns including both transitions (40 million reads of the clock: 11 s),
/// and a thousand million units of fuel are 0.1 to 0.2 s of CPU, 5 to 10 units for each nanosecond:
/// with this charge, a guest that only calls imports gets as much CPU for its fuel as a guest that
/// only computes.
pub(crate) const CALL: u64 = 2_000;
/// One entry of a list that crosses the boundary: the host allocates a pair of strings for it, or
/// calls the guest's allocator.
pub(crate) const ENTRY: u64 = 100;
/// One random byte: a cipher generates them one by one.
pub(crate) const RANDOM_BYTE: u64 = 4;

/// One byte of a response that is searched for credential values: 0.2 ns with one value, 0.5 ns
/// with twelve, and 0.9 to 1.3 ns where a hostile server repeats beginnings of a value.
pub(crate) const REDACTED_BYTE: u64 = 10;

/// The fuel that the imports of a call have cost and that is not charged yet.
#[derive(Debug, Default)]
pub(crate) struct FuelCharge {
    owed: Owed,
    /// Whether an import was called since the last charge: other transitions (a tick of the epoch,
    /// growth of a memory) must not be charged.
    called: bool,
}

/// Fuel that is not charged yet; clones share it. For objects that outlive the import, such as
/// streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owed(Arc<AtomicU64>);

impl Owed {
    /// Adds the charge for bytes that were searched for credential values.
    pub(crate) fn redacted(&self, bytes: u64) {
        self.add(REDACTED_BYTE.saturating_mul(bytes));
    }

    pub(crate) fn add(&self, fuel: u64) {
        // No overflow: the bytes that cross the boundary bound the sum, far below 2^64.
        self.0.fetch_add(fuel, Ordering::Relaxed);
    }
}

impl FuelCharge {
    /// An import was called.
    pub(crate) fn call(&mut self) {
        self.called = true;
        self.owed.add(CALL);
    }

    pub(crate) fn entries(&self, count: usize) {
        self.owed.add(ENTRY.saturating_mul(count as u64));
    }

    /// Requests in one call of an import: each costs as much as a call of its own.
    pub(crate) fn requests(&self, count: usize) {
        self.owed.add(CALL.saturating_mul(count as u64));
    }

    /// Adds the charge for copied bytes: one unit for each, as wasmtime charges for `memory.copy`.
    pub(crate) fn bytes(&self, count: u64) {
        self.owed.add(count);
    }

    pub(crate) fn random_bytes(&self, count: u64) {
        self.owed.add(RANDOM_BYTE.saturating_mul(count));
    }

    pub(crate) fn owed(&self) -> Owed {
        self.owed.clone()
    }

    /// The fuel to charge at a transition; none if it was not the return of an import.
    pub(crate) fn take(&mut self) -> Option<u64> {
        std::mem::take(&mut self.called).then(|| self.owed.0.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::{CALL, ENTRY, FuelCharge};

    #[test]
    fn each_byte_that_is_searched_for_credentials_costs_fuel() {
        let mut fuel_charge = FuelCharge::default();
        fuel_charge.call();
        fuel_charge.owed().redacted(1_000);
        assert_eq!(fuel_charge.take(), Some(CALL + 10_000));
    }

    #[test]
    fn only_imports_are_charged_and_only_once() {
        let mut fuel_charge = FuelCharge::default();
        fuel_charge.owed().add(7);
        assert_eq!(fuel_charge.take(), None, "a tick of the epoch");
        fuel_charge.call();
        fuel_charge.entries(3);
        fuel_charge.bytes(5);
        assert_eq!(fuel_charge.take(), Some(CALL + 3 * ENTRY + 12));
        assert_eq!(fuel_charge.take(), None);
    }
}
