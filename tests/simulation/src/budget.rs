//! Limits the requests for one object, so that a loop without a rate limit fails the day, even
//! during faults.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};

/// The period of a budget.
const WINDOW: Duration = Duration::from_mins(1);
/// The most requests for one object within a window without operations: retries, two changes of the
/// leader, and the periodic passes. A loop without a rate limit sends thousands.
const IDLE_MAX: u32 = 60;
/// The most requests for one object that one operation or one fault may cause.
const PER_OPERATION_MAX: u32 = 6;

/// Counts requests by object.
#[derive(Debug)]
pub(crate) struct Budget {
    began: Instant,
    operations: u32,
    /// Operations of the previous window, whose requests may continue.
    operations_before: u32,
    spent: BTreeMap<String, u32>,
}

impl Budget {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), operations: 0, operations_before: 0, spent: BTreeMap::new() }
    }

    /// Counts an operation of people or the begin of a fault.
    pub(crate) fn operation(&mut self) {
        self.turn();
        self.operations += 1;
    }

    /// Counts one request for this object, or for one of this many. Returns a message for the first
    /// request of a window beyond the limit.
    pub(crate) fn spend(&mut self, what: String, objects: u32) -> Option<String> {
        self.turn();
        let max = (IDLE_MAX + PER_OPERATION_MAX * (self.operations + self.operations_before)) * objects;
        let spent = self.spent.entry(what.clone()).or_default();
        *spent += 1;
        (*spent == max + 1).then(|| format!("{what}: more than {max} requests within {} s", WINDOW.as_secs()))
    }

    fn turn(&mut self) {
        if self.began.elapsed() >= WINDOW {
            let operations = if self.began.elapsed() >= 2 * WINDOW { 0 } else { self.operations };
            *self = Self { operations_before: operations, ..Self::begin() };
        }
    }
}
