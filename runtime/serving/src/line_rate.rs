//! The rate of log lines that clients without rights cause.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// At most this many lines in each [`PERIOD`]: enough to see what happens, and too few to push
/// other lines out of the log.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// Counts the lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct LineRate(Mutex<Option<Lines>>);

#[derive(Debug)]
struct Lines {
    since: Instant,
    written: u32,
    left_out: u64,
}

/// How many lines were left out before this one; shown as an end of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut(u64);

impl LineRate {
    /// Whether a line may be written now.
    pub(crate) fn take(&self) -> Option<LeftOut> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let new = Lines { since: now, written: 0, left_out: 0 };
        let lines = lines.get_or_insert(new);
        if now.duration_since(lines.since) >= PERIOD {
            (lines.since, lines.written) = (now, 0);
        }
        if lines.written == LINES_MAX {
            lines.left_out += 1;
            return None;
        }
        lines.written += 1;
        Some(LeftOut(std::mem::take(&mut lines.left_out)))
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            lines => write!(f, " (and {lines} such lines before that were left out)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::{LINES_MAX, LeftOut, LineRate, PERIOD};

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_the_rate_are_counted_and_left_out() {
        let rate = LineRate::default();
        let written = (0..LINES_MAX + 90).filter_map(|_| rate.take()).count();
        assert_eq!(written, 10);
        advance(PERIOD).await;
        assert_eq!((rate.take(), rate.take()), (Some(LeftOut(90)), Some(LeftOut(0))));
        assert_eq!(LeftOut(90).to_string(), " (and 90 such lines before that were left out)");
    }
}
