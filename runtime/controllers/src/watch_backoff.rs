//! How long a watch waits after a failure.

use std::time::Duration;

use kube::runtime::{utils::Backoff, watcher::DefaultBackoff};

/// The longest wait; kube's is a minute. Every controller has to work again within a minute after
/// the API server recovered.
pub(crate) const LONGEST: Duration = Duration::from_secs(15);

/// kube's default backoff, which is client-go's, with a lower upper bound.
#[derive(Default)]
pub struct WatchBackoff(DefaultBackoff);

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|wait| wait.min(LONGEST))
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, WatchBackoff};

    #[test]
    fn a_watch_waits_longer_after_each_failure_and_never_longer_than_the_bound() {
        let waits: Vec<_> = WatchBackoff::default().take(20).collect();
        assert!(waits[0] < waits[4], "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= LONGEST) && waits[19] == LONGEST, "{waits:?}");
    }
}
