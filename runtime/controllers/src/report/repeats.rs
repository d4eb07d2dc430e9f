//! Failures of nodes with the same cause: one log line for a page of nodes, not one for each node.
//!
//! The nodes of a page share a call. If the call fails, each of them fails, again in each pass.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Each text of a cause is logged once in this period.
const PERIOD: Duration = Duration::from_mins(1);
/// The maximum number of texts of one cause that are logged in this period: a text may name a
/// request or a node and so differ each time.
const TEXTS_MAX: usize = 10;

/// Controller, provider, outcome.
type Cause = (&'static str, String, &'static str);

/// The log lines of a cause in the current period.
struct Logged {
    began: Instant,
    texts: BTreeSet<String>,
    omitted: u64,
}

/// The logged texts by cause. The number of providers, controllers and outcomes bounds the map.
#[derive(Default)]
pub(super) struct Repeats(Mutex<HashMap<Cause, Logged>>);

impl Repeats {
    /// Returns `None` if this failure must not be logged, otherwise how many failures of its cause
    /// were omitted before.
    pub(super) fn log(&self, cause: Cause, text: &str) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let new = || Logged { began: now, texts: BTreeSet::new(), omitted: 0 };
        let logged = all.entry(cause).or_insert_with(new);
        let omitted = match now.duration_since(logged.began) < PERIOD {
            true => 0,
            false => std::mem::replace(logged, new()).omitted,
        };
        if logged.texts.len() < TEXTS_MAX && logged.texts.insert(text.to_owned()) {
            return Some(omitted);
        }
        logged.omitted += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::Repeats;

    /// 1,197 nodes that are not ready, a pass each five seconds, and a cloud that answers 500.
    #[tokio::test(start_paused = true)]
    async fn a_page_that_fails_is_one_line_in_a_minute_however_many_nodes_it_has() {
        let repeats = Repeats::default();
        let cause = || ("cloud-node-lifecycle-controller", "sim".to_owned(), "Unavailable");
        let mut lines = Vec::new();
        for _pass in 0..24 {
            let passed = (0..1197).filter_map(|_| repeats.log(cause(), "the cloud answered 500"));
            lines.extend(passed);
            advance(Duration::from_secs(5)).await;
        }
        assert_eq!(lines, [0, 12 * 1197 - 1]);
        assert_eq!(repeats.log(cause(), "another text"), Some(12 * 1197 - 1));
    }

    #[tokio::test(start_paused = true)]
    async fn texts_that_differ_each_time_are_bounded_too() {
        let repeats = Repeats::default();
        let logged = |n: u32| repeats.log(("c", "p".to_owned(), "Internal"), &format!("request {n} failed"));
        assert_eq!((0..1000).filter_map(logged).count(), 10);
        assert_eq!(repeats.log(("c", "p".to_owned(), "Denied"), "request 0 failed"), Some(0), "another cause");
    }
}
