//! Calls the provider at a steady rate and counts the outcomes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use skysail_controllers::provider_service;
use skysail_host::{CallOutcome, CallRecord, slot::Slot};
use skysail_provider::{Call, LoadBalancers as _};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{Dev, SERVICE};

/// Two hundred calls a second.
const PERIOD: Duration = Duration::from_millis(5);
/// The function that is called: it sends requests to the cloud and changes nothing.
const FUNCTION: &str = "load-balancers.get";

/// The outcomes of the calls.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) failed: usize,
    pub(super) first_failure: String,
    /// Successful calls, by the digest of the release that answered.
    pub(super) by_digest: BTreeMap<String, usize>,
}

impl Counts {
    pub(super) fn all(&self) -> usize {
        self.failed + self.by_digest.values().sum::<usize>()
    }
}

/// A running load.
pub(super) struct Load {
    stop: CancellationToken,
    calls: JoinSet<usize>,
    counts: JoinSet<anyhow::Result<Counts>>,
}

impl Load {
    /// Calls [`FUNCTION`] for the demo's Service until stopped.
    pub(super) async fn start(dev: &Dev) -> anyhow::Result<Self> {
        let services: Api<Service> = Api::default_namespaced(dev.world.client.clone());
        let object = services.get(SERVICE).await.context("cannot read the Service")?;
        let service =
            provider_service(&object).map_err(|problems| anyhow!("the Service is invalid: {}", problems.join("; ")))?;
        let stop = CancellationToken::new();
        let mut counts = JoinSet::new();
        counts.spawn(count(dev.fleet.services.recorder.subscribe(), stop.clone()));
        let mut calls = JoinSet::new();
        calls.spawn(call(dev.slot()?, Arc::new(service), stop.clone()));
        Ok(Self { stop, calls, counts })
    }

    /// Stops the load and waits for the calls in flight.
    pub(super) async fn stop(mut self) -> anyhow::Result<Counts> {
        self.stop.cancel();
        let failed = self.calls.join_next().await.context("the load has no task")??;
        let mut counts = self.counts.join_next().await.context("the count has no task")???;
        counts.failed = counts.failed.max(failed);
        Ok(counts)
    }
}

/// Calls until stopped and returns the number of failed calls.
async fn call(slot: Arc<Slot>, service: Arc<skysail_provider::Service>, stop: CancellationToken) -> usize {
    let mut running = JoinSet::new();
    let mut failed = 0;
    let mut period = interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(period.tick()).await.is_some() {
        let (slot, service) = (Arc::clone(&slot), Arc::clone(&service));
        running.spawn(async move { slot.get(&Call::default(), "kubernetes", &service).await.is_err() });
        while let Some(ended) = running.try_join_next() {
            failed += usize::from(ended.unwrap_or(true));
        }
    }
    while let Some(ended) = running.join_next().await {
        failed += usize::from(ended.unwrap_or(true));
    }
    failed
}

/// Counts the records of the calls. It runs longer than the load, for the calls that are in flight
/// when the load stops.
async fn count(mut records: broadcast::Receiver<Arc<CallRecord>>, stop: CancellationToken) -> anyhow::Result<Counts> {
    const AFTERWARDS: Duration = Duration::from_secs(1);
    let mut counts = Counts::default();
    let ended = async {
        stop.cancelled().await;
        tokio::time::sleep(AFTERWARDS).await;
    };
    let mut ended = std::pin::pin!(ended);
    loop {
        let record = tokio::select! {
            record = records.recv() => record,
            () = &mut ended => return Ok(counts),
        };
        match record {
            Ok(record) if record.function == FUNCTION => match &record.outcome {
                CallOutcome::Ok => *counts.by_digest.entry(record.digest.to_string()).or_default() += 1,
                CallOutcome::Failed { code, message } => {
                    counts.failed += 1;
                    counts.first_failure = format!("{}: {message}", code.category());
                }
                CallOutcome::Cancelled => counts.failed += 1,
            },
            Ok(_) => {}
            Err(RecvError::Lagged(missed)) => return Err(anyhow!("{missed} records were missed")),
            Err(RecvError::Closed) => return Ok(counts),
        }
    }
}
