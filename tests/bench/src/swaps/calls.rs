//! Calls at a steady rate during the swaps.
//!
//! Each call gets the load balancer of a Service that has none: the provider sends a request to the
//! cloud, so that a call takes as long as the cloud's latency and can run during a swap.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use skysail_host::slot::Slot;
use skysail_provider::{Call, Code, LoadBalancerStatus, LoadBalancers as _, Service, ServicePort};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{self, Instant},
};

use super::figures::Spread;

/// The results of the calls. Times go into a histogram: a list that grows with the calls would look
/// like memory of the swaps.
#[derive(Default)]
pub(super) struct Ended {
    /// Number of calls by their time in tenths of a millisecond, rounded up.
    times: BTreeMap<u64, u64>,
    pub(super) failed: BTreeMap<String, u64>,
}

impl Ended {
    pub(super) fn count(&self) -> u64 {
        self.times.values().sum()
    }

    pub(super) fn spread(&self) -> Spread {
        Spread {
            min: self.rank(1),
            p50: self.rank(self.count().div_ceil(2)),
            p99: self.rank((self.count() * 99).div_ceil(100)),
            max: self.rank(self.count()),
        }
    }

    /// The `wanted`-th shortest time, in milliseconds.
    fn rank(&self, wanted: u64) -> f64 {
        let mut seen = 0;
        let tenths = self.times.iter().find_map(|(tenths, count)| {
            seen += count;
            (seen >= wanted).then_some(*tenths)
        });
        Duration::from_micros(tenths.unwrap_or_default() * 100).as_secs_f64() * 1000.0
    }

    fn take(&mut self, answer: Option<(Duration, Result<(), Code>)>) {
        let (time, failure) = match answer {
            Some((time, answer)) => (time, answer.err().map(Code::category)),
            None => (Duration::ZERO, Some("Panicked")),
        };
        let tenths = u64::try_from(time.as_micros().div_ceil(100)).unwrap_or(u64::MAX);
        *self.times.entry(tenths).or_default() += 1;
        if let Some(failure) = failure {
            *self.failed.entry(failure.to_owned()).or_default() += 1;
        }
    }
}

/// The running calls; dropping them ends them at once.
pub(super) struct Calls {
    stop: watch::Sender<bool>,
    task: JoinSet<Ended>,
}

impl Calls {
    pub(super) fn start(slot: Arc<Slot>, per_second: u32) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(call(slot, per_second, stopped));
        Self { stop, task }
    }

    /// Starts no more calls, and waits for the running ones.
    pub(super) async fn end(mut self) -> Result<Ended> {
        self.stop.send_replace(true);
        self.task.join_next().await.context("the calls must have begun")?.context("the calls")
    }
}

async fn call(slot: Arc<Slot>, per_second: u32, mut stopped: watch::Receiver<bool>) -> Ended {
    let mut calls = JoinSet::new();
    let mut ended = Ended::default();
    // A late call is made up for, so that the average rate is kept.
    let mut tick = time::interval(Duration::from_secs(1) / per_second);
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let slot = Arc::clone(&slot);
                calls.spawn(async move { one(&slot).await });
            }
            Some(answer) = calls.join_next() => ended.take(answer.ok()),
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
    }
    while let Some(answer) = calls.join_next().await {
        ended.take(answer.ok());
    }
    ended
}

async fn one(slot: &Slot) -> (Duration, Result<(), Code>) {
    let begun = Instant::now();
    let answer = slot.get(&Call::default(), "bench", &service()).await;
    let answer = match answer {
        Ok(None) => Ok(()),
        // There is no load balancer, so a result with one is wrong.
        Ok(Some(LoadBalancerStatus { .. })) => Err(Code::Internal),
        Err(error) => Err(error.code),
    };
    (begun.elapsed(), answer)
}

fn service() -> Service {
    let port = ServicePort {
        name: "http".to_owned(),
        protocol: skysail_provider::Protocol::Tcp,
        app_protocol: None,
        port: 18_080,
        node_port: 30_080,
        target_port: "8080".to_owned(),
    };
    Service { ports: vec![port], ..Service::new("default", "web", "0a1b2c") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skysail_provider::Code;

    use super::{Ended, Spread};

    #[test]
    fn times_are_counted_in_tenths_of_a_millisecond_including_failed_calls() {
        let mut ended = Ended::default();
        for millis in 1..=99 {
            ended.take(Some((Duration::from_millis(millis), Ok(()))));
        }
        ended.take(Some((Duration::from_micros(250_010), Err(Code::NotServing))));
        ended.take(None);
        assert_eq!(ended.count(), 101);
        assert_eq!(ended.spread(), Spread { min: 0.0, p50: 50.0, p99: 99.0, max: 250.1 });
        assert_eq!(ended.failed, [("NotServing".to_owned(), 1), ("Panicked".to_owned(), 1)].into());
    }
}
