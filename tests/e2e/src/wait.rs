//! Waiting for conditions.

use std::{fmt::Display, future::Future, time::Duration};

use anyhow::{Result, bail};

/// Between two looks. Short against what is waited for (milliseconds to seconds), long against what
/// a look costs.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks until there is a value, for at most so many seconds of real time.
///
/// # Errors
/// The time is over: says what was waited for, and what the last look saw.
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
