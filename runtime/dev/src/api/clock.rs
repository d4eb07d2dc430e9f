//! The clock of the API server: a given epoch plus tokio's clock, so that a paused clock also
//! pauses the cluster.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

/// The server's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: Timestamp,
    started: Instant,
}

impl Clock {
    /// A clock whose present time is `epoch`.
    pub(crate) fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now() }
    }

    /// The present.
    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// The present in the form of `metav1.Time`: whole seconds, UTC.
    pub(crate) fn stamp(&self) -> Value {
        stamp(self.now())
    }

    /// How long ago a `metav1.Time` or `MicroTime` was; `None` where the text is not a time.
    pub(crate) fn age(&self, time: &str) -> Option<Duration> {
        let then: Timestamp = time.parse().ok()?;
        Some(Duration::try_from(self.now().duration_since(then)).unwrap_or_default())
    }
}

/// A time in the form of `metav1.Time`.
pub(crate) fn stamp(time: Timestamp) -> Value {
    Value::from(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
