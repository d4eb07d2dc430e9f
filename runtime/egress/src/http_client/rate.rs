//! The rate of one provider over all its calls: a token bucket on tokio's clock. Must not know
//! about requests.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use skysail_provider::{Limit, LimitHit};
use tokio::time::Instant;

/// How long a request may wait for a token.
///
/// A burst of up to a second is smoothed; further requests are refused, so that a flood does not
/// become a queue in the host.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A bucket that holds one second's worth of tokens.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: u32,
    /// The time of the next token, less the burst: the "theoretical arrival time" of GCRA.
    next: Mutex<Option<Instant>>,
}

impl Rate {
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second, next: Mutex::default() }
    }

    /// Takes a token and returns when it may be used: at most [`WAIT_MAX`] from now.
    pub(super) fn take(&self) -> Result<Instant, LimitHit> {
        let now = Instant::now();
        let max = u64::from(self.per_second);
        let hit = |used| LimitHit { limit: Limit::HttpRate, used, max };
        let Some(interval) = Duration::from_secs(1).checked_div(self.per_second) else { return Err(hit(1)) };
        let burst = interval * (self.per_second - 1);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let arrival = next.map_or(now, |next| next.max(now));
        let debt = arrival.duration_since(now);
        if debt > burst + WAIT_MAX {
            let waiting = debt.as_nanos().div_ceil(interval.as_nanos().max(1));
            return Err(hit(u64::try_from(waiting).unwrap_or(u64::MAX).saturating_add(1)));
        }
        *next = Some(arrival + interval);
        Ok(now + debt.saturating_sub(burst))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, advance};

    use super::Rate;

    #[tokio::test(start_paused = true)]
    async fn a_second_s_worth_goes_at_once_then_one_per_interval_then_none() {
        let rate = Rate::new(4);
        let start = Instant::now();
        let waits: Vec<_> = (0..10).map(|_| rate.take().map(|at| at.duration_since(start).as_millis())).collect();
        assert_eq!(waits.iter().flatten().copied().collect::<Vec<_>>(), [0, 0, 0, 0, 250, 500, 750, 1000]);
        assert_eq!(waits[8].unwrap_err().to_string(), "httpRequestsPerSecond: 9 of 4");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_come_back_with_time_and_never_more_than_a_second_s_worth() {
        let rate = Rate::new(2);
        while rate.take().is_ok() {}
        advance(Duration::from_secs(3600)).await;
        let start = Instant::now();
        let waits: Vec<_> = (0..3).map(|_| rate.take().unwrap().duration_since(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 500]);
    }

    #[test]
    fn a_rate_of_zero_gives_nothing() {
        assert!(Rate::new(0).take().is_err());
    }
}
