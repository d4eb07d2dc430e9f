//! The time that the calls of a replaced release have.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// How long calls may go on after their release was replaced.
pub const DRAIN: Duration = Duration::from_secs(30);

/// How long calls may go on after their settings were replaced: most calls end in this time, and a
/// withdrawn permission must not last.
pub const SETTINGS: Duration = Duration::from_secs(2);

/// When calls have to have ended; none while new ones may begin.
#[derive(Debug, Default)]
pub struct Drain(watch::Sender<Option<Instant>>);

impl Drain {
    /// No call begins any more; calls in progress have to end within `time`.
    pub fn begin(&self, time: Duration) {
        self.0.send_replace(Some(Instant::now() + time));
    }

    /// The release serves (again).
    pub fn end(&self) {
        self.0.send_replace(None);
    }

    /// Ends when the calls have to end.
    pub async fn over(&self) {
        let mut until = self.0.subscribe();
        loop {
            let end = *until.borrow_and_update();
            let over = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => return,
                // Never an error: this holds the sender.
                _ = until.changed() => {}
            }
        }
    }
}
