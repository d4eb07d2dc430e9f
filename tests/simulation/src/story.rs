//! The log of a day, and the violations in it.

use std::{
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

/// The log of one day. Clones share the log.
#[derive(Clone, Debug)]
pub struct Story(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    lines: Vec<String>,
    violations: Vec<String>,
}

impl Story {
    pub(crate) fn begin() -> Self {
        Self(Arc::new(Mutex::new(Inner { began: Instant::now(), lines: Vec::new(), violations: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line.
    pub(crate) fn tell(&self, who: &str, what: impl Display) {
        let mut inner = self.lock();
        let line = format!("{:>9.3} {who:<12} {what}", inner.began.elapsed().as_secs_f64());
        inner.lines.push(line);
    }

    /// Adds a line about a violated invariant.
    pub(crate) fn violate(&self, what: impl Display) {
        self.tell("VIOLATION", &what);
        let mut inner = self.lock();
        let at = inner.began.elapsed().as_secs_f64();
        inner.violations.push(format!("at {at:.3} s: {what}"));
    }

    /// All lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }
}
