//! Waiting for conditions.

use std::{fmt::Display, future::Future, time::Duration};

use anyhow::{Result, bail};

/// Pause between two looks: shorter than most waits, longer than a look takes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Repeats `look` until it returns a value, for at most this number of seconds.
///
/// # Errors
/// The time is over; the error has `what` and the error of the last look.
pub async fn eventually<T, W, F>(what: &str, seconds: u64, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T, W>>,
    W: Display,
{
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    loop {
        match look().await {
            Ok(value) => return Ok(value),
            Err(seen) if tokio::time::Instant::now() >= end => {
                bail!("{what}: not within {seconds} s; last seen: {seen:#}")
            }
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}
