//! How many requests one object may cost: a loop without a rate fails the day, also during faults.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};

/// The time that a budget is for.
const WINDOW: Duration = Duration::from_mins(1);
/// Requests for one object within a window in which people do nothing: retries, a new leader and
/// another one after that, and the periodic passes. Loops without a rate take thousands.
const IDLE_MAX: u32 = 60;
/// Requests for one object that one operation of people, or one fault, may cause.
const PER_OPERATION_MAX: u32 = 6;

/// Counts requests by object.
#[derive(Debug)]
pub(crate) struct Budget {
    began: Instant,
    operations: u32,
    /// Of the window before: what was begun then may go on.
    operations_before: u32,
    spent: BTreeMap<String, u32>,
}

impl Budget {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), operations: 0, operations_before: 0, spent: BTreeMap::new() }
    }

    /// People do something, or a fault begins.
    pub(crate) fn operation(&mut self) {
        self.turn();
        self.operations += 1;
    }

    /// One request for this object. Says once for each window that there are too many.
    pub(crate) fn spend(&mut self, what: String) -> Option<String> {
        self.turn();
        let max = IDLE_MAX + PER_OPERATION_MAX * (self.operations + self.operations_before);
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
