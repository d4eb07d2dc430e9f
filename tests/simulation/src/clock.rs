//! The clock of a day: tokio's paused clock.

use std::time::Duration;

use tokio::time::sleep;

/// Waits in virtual time.
pub(crate) async fn wait(time: Duration) {
    sleep(time).await;
}
