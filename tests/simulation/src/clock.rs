//! The day's clock: tokio's, paused.

use std::time::Duration;

use tokio::time::sleep;

/// Virtual time passes.
pub(crate) async fn wait(time: Duration) {
    sleep(time).await;
}
