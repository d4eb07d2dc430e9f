//! Tests of the records of calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{encoding::text::encode, registry::Registry};
use skysail_provider::{Call, Clusters as _, Code, Fence};

use crate::{
    CallMetrics, CallOutcome, CallRecord, CallRecorder, Engine, Fault, Limits, Release, Sandbox, SandboxOptions,
    SandboxedProvider, describe,
    test_guest::{DENIED, GUEST, Guest, Master, component, only_a_deadline, overdue},
};

async fn recorded(guest: &Guest) -> (Arc<CallRecord>, String) {
    recorded_for(guest, &Call::default()).await
}

/// Calls `clusters.master`: the record of that call, and all metrics.
async fn recorded_for(guest: &Guest, call: &Call) -> (Arc<CallRecord>, String) {
    let mut registry = Registry::default();
    let recorder = CallRecorder::new(CallMetrics::register(&mut registry));
    let options =
        SandboxOptions { name: "cloud".to_owned(), limits: Limits::default(), config: String::new(), http: None };
    let sandbox = Sandbox::new(&Engine::on_demand().unwrap(), recorder.clone(), options).unwrap();
    let release = Arc::new(Release::from_wasm(&sandbox, &component(guest)).unwrap());
    let info = Arc::new(describe(&sandbox, &release).await.unwrap());
    let mut records = recorder.subscribe();
    // A provider that is gone has no metrics.
    let provider = SandboxedProvider::new(sandbox, release, info);
    let result = provider.master(call, "x").await;
    let record = records.recv().await.unwrap();
    let outcome = match result {
        Ok(_) => CallOutcome::Ok,
        Err(error) => CallOutcome::Failed { code: error.code, message: error.message },
    };
    assert_eq!(record.outcome, outcome, "the record must contain the outcome of the caller");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    (record, text)
}

fn counted(metrics: &str, line: &str) -> bool {
    metrics.lines().any(|found| found == line)
}

#[tokio::test]
async fn an_error_that_the_guest_returns_is_the_outcome_of_its_call() {
    let (record, metrics) = recorded(&Guest { master: Master::Error(DENIED), ..GUEST }).await;
    assert_eq!(record.outcome, CallOutcome::Failed { code: Code::Denied, message: "1".to_owned() });
    let line = r#"skysail_provider_calls_total{provider="cloud",function="clusters.master",outcome="Denied"} 1"#;
    assert!(counted(&metrics, line), "{metrics}");
    assert!(
        !metrics.contains("skysail_provider_release_faults_total{"),
        "the cloud caused the failure, not the release: {metrics}"
    );
}

#[tokio::test]
async fn an_answer_that_breaks_the_contract_is_a_fault_of_the_release() {
    let (record, metrics) = recorded(&Guest { master: Master::ControlCharacter, ..GUEST }).await;
    assert_eq!(record.outcome.category(), "Internal");
    assert_eq!(record.fault, Some(Fault::Release));
    let line = r#"skysail_provider_calls_total{provider="cloud",function="clusters.master",outcome="Internal"} 1"#;
    assert!(counted(&metrics, line), "{metrics}");
    let line = r#"skysail_provider_release_faults_total{provider="cloud",function="clusters.master"} 1"#;
    assert!(counted(&metrics, line), "{metrics}");
}

#[tokio::test]
async fn a_guest_that_the_host_has_no_room_for_is_the_machines_fault() {
    let recorder = CallRecorder::default();
    let mut records = recorder.subscribe();
    let options =
        SandboxOptions { name: "cloud".to_owned(), limits: Limits::default(), config: String::new(), http: None };
    let sandbox = Sandbox::new(&Engine::with_a_full_pool().unwrap(), recorder, options).unwrap();
    let release = Release::from_wasm(&sandbox, &component(&GUEST)).unwrap();
    let error = describe(&sandbox, &release).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{error}");
    assert_eq!(records.recv().await.unwrap().fault, Some(Fault::Machine));
}

/// Both calls miss their deadline. The clock is paused, so that the guest's CPU time alone decides
/// which of them the machine starved.
#[tokio::test(start_paused = true)]
async fn a_served_call_that_gets_no_cpu_time_is_the_machines_fault_and_one_that_computes_is_the_releases() {
    let hour = Duration::from_hours(1);
    let short = Duration::from_millis(50);
    for (deadline, computes, fault) in [(hour, Duration::ZERO, Fault::Machine), (short, short * 2, Fault::Release)] {
        let limits = only_a_deadline(deadline);
        let options = SandboxOptions { name: "cloud".to_owned(), limits, config: String::new(), http: None };
        let recorder = CallRecorder::default();
        let sandbox = Sandbox::new(&Engine::on_demand().unwrap(), recorder.clone(), options).unwrap();
        let endless = component(&Guest { master: Master::Endless, ..GUEST });
        let release = Arc::new(Release::from_wasm(&sandbox, &endless).unwrap());
        let info = Arc::new(describe(&sandbox, &release).await.unwrap());
        let provider = SandboxedProvider::new(sandbox, Arc::clone(&release), info);
        let (mut records, before) = (recorder.subscribe(), release.call_history().counts());
        let error = overdue(&provider, &Call::default(), computes, deadline).await;
        assert_eq!(error.code, Code::DeadlineExceeded, "{error}");
        let record = records.recv().await.unwrap();
        assert!(record.fuel > 0 && record.cpu > Duration::ZERO, "the guest began: {record:?}");
        assert_eq!(record.fault, Some(fault), "{record:?}");
        assert_eq!(release.call_history().counts() == before, fault == Fault::Machine, "it counts for the release");
    }
}

/// The guest is not started: no fuel is used.
#[tokio::test]
async fn a_process_that_is_not_the_leader_does_not_call_the_guest() {
    let fence = Fence::until(|| Duration::ZERO, Duration::from_secs(1));
    fence.close();
    let (record, metrics) = recorded_for(&GUEST, &Call { fence, ..Call::default() }).await;
    let CallOutcome::Failed { code: Code::NotLeading, .. } = record.outcome else { panic!("{record:?}") };
    assert_eq!(record.fuel, 0);
    assert!(!metrics.contains("skysail_provider_release_faults_total{"), "no release caused the failure: {metrics}");
}

/// The fence closes after the call has begun: the caller must not act on the answer.
#[tokio::test]
async fn a_result_after_the_lease_is_lost_is_discarded() {
    let looks = AtomicU64::new(0);
    let fence = Fence::until(move || Duration::from_secs(looks.fetch_add(1, Ordering::SeqCst)), Duration::from_secs(1));
    let (record, _) = recorded_for(&GUEST, &Call { fence, ..Call::default() }).await;
    assert!(record.fuel > 0, "the guest was called");
    assert_eq!(record.outcome.category(), "NotLeading");
}

#[tokio::test]
async fn a_good_answer_is_ok() {
    let (record, metrics) = recorded(&GUEST).await;
    assert_eq!(record.outcome, CallOutcome::Ok);
    let line = r#"skysail_provider_calls_total{provider="cloud",function="clusters.master",outcome="Ok"} 1"#;
    assert!(counted(&metrics, line), "{metrics}");
}

#[tokio::test]
async fn each_release_counts_only_its_own_calls() {
    let options =
        SandboxOptions { name: "cloud".to_owned(), limits: Limits::default(), config: String::new(), http: None };
    let sandbox = Sandbox::new(&Engine::on_demand().unwrap(), CallRecorder::default(), options).unwrap();
    let release = || Arc::new(Release::from_wasm(&sandbox, &component(&GUEST)).unwrap());
    let (release, other) = (release(), release());
    let info = Arc::new(describe(&sandbox, &release).await.unwrap());
    let provider = SandboxedProvider::new(Arc::clone(&sandbox), Arc::clone(&release), info);
    for _ in 0..3 {
        provider.master(&Call::default(), "x").await.unwrap();
    }
    let calls = release.calls();
    let told: Vec<_> = calls.iter().map(|calls| (calls.function, calls.calls, calls.failed)).collect();
    assert_eq!(told, [("clusters.master", 3, 0), ("identity.describe", 1, 0)]);
    assert!(calls.iter().all(|calls| calls.fuel_max > 0 && calls.p99 > Duration::ZERO), "{calls:?}");
    assert_eq!(other.calls(), []);
}
