//! When each controller starts: one after the other, with a pause between them.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::settings::ControllerSettings;

/// How long each controller waits before it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Starts {
    pub(crate) service: Duration,
    pub(crate) cloud_node: Duration,
    pub(crate) cloud_node_lifecycle: Duration,
    pub(crate) route: Duration,
}

impl Starts {
    /// The node controller starts first, because Services need nodes. Upstream starts controllers
    /// in random order and adds jitter to each pause, which one process does not need.
    pub(crate) fn new(settings: &ControllerSettings) -> Self {
        let (enabled, mut next) = (settings.controllers, Duration::ZERO);
        let mut turn = |enabled: bool| {
            let mine = next;
            next += if enabled { settings.controller_start_interval } else { Duration::ZERO };
            mine
        };
        Self {
            cloud_node: turn(enabled.cloud_node),
            service: turn(enabled.service),
            cloud_node_lifecycle: turn(enabled.cloud_node_lifecycle),
            route: turn(settings.routes_enabled()),
        }
    }
}

/// Runs a task of a controller after its start delay, unless it is stopped before.
pub(crate) async fn after(start: Duration, stop: CancellationToken, task: impl Future<Output = ()>) {
    if start.is_zero() || timeout(start, stop.cancelled()).await.is_err() {
        task.await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::{Starts, after};
    use crate::settings::ControllerSettings;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn controllers_start_one_pause_after_the_other_and_a_disabled_one_has_none() {
        let mut settings = ControllerSettings::default();
        assert_eq!(Starts::new(&settings), Starts::default());
        settings.controller_start_interval = 3 * S;
        let starts = |service, cloud_node_lifecycle, route| Starts {
            service,
            cloud_node: Duration::ZERO,
            cloud_node_lifecycle,
            route,
        };
        assert_eq!(Starts::new(&settings), starts(3 * S, 6 * S, 9 * S));
        settings.controllers.service = false;
        assert_eq!(Starts::new(&settings), starts(3 * S, 3 * S, 6 * S));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_comes_before_a_start_that_waits() {
        let (stop, begin, ran) = (CancellationToken::new(), Instant::now(), std::cell::Cell::new(0));
        let task = || async { ran.set(ran.get() + 1) };
        after(2 * S, stop.clone(), task()).await;
        assert_eq!((begin.elapsed(), ran.get()), (2 * S, 1));
        stop.cancel();
        after(2 * S, stop, task()).await;
        assert_eq!((begin.elapsed(), ran.get()), (2 * S, 1));
    }
}
