//! What the record of a call says about its end.

use std::sync::Arc;

use prometheus_client::{encoding::text::encode, registry::Registry};
use skysail_provider::{Call, Clusters as _, Code};

use crate::{
    CallMetrics, CallRecord, CallRecorder, Engine, Limits, Outcome, Release, Sandbox, SandboxOptions,
    SandboxedProvider, describe,
    test_guest::{GUEST, Guest, Master, component},
};

/// Calls `clusters.master`: the record of that call, and all metrics.
async fn recorded(guest: &Guest) -> (Arc<CallRecord>, String) {
    let mut registry = Registry::default();
    let recorder = CallRecorder::new(CallMetrics::register(&mut registry));
    let options =
        SandboxOptions { name: "cloud".to_owned(), limits: Limits::default(), config: String::new(), http: None };
    let sandbox = Sandbox::new(&Engine::on_demand().unwrap(), recorder.clone(), options).unwrap();
    let release = Arc::new(Release::from_wasm(&sandbox, &component(guest)).unwrap());
    let info = Arc::new(describe(&sandbox, &release).await.unwrap());
    let mut records = recorder.subscribe();
    let result = SandboxedProvider::new(sandbox, release, info).master(&Call::default(), "x").await;
    let record = records.recv().await.unwrap();
    let outcome = match result {
        Ok(_) => Outcome::Ok,
        Err(error) => Outcome::Failed { code: error.code, message: error.message },
    };
    assert_eq!(record.outcome, outcome, "the record says what the caller got");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    (record, text)
}

fn counted(metrics: &str, line: &str) -> bool {
    metrics.lines().any(|found| found == line)
}

#[tokio::test]
async fn an_error_that_the_guest_answers_with_is_the_outcome_of_its_call() {
    let (record, metrics) = recorded(&Guest { master: Master::Denied, ..GUEST }).await;
    assert_eq!(record.outcome, Outcome::Failed { code: Code::Denied, message: "1".to_owned() });
    let line = r#"skysail_provider_calls_total{provider="cloud",function="clusters.master",outcome="Denied"} 1"#;
    assert!(counted(&metrics, line), "{metrics}");
    assert!(
        !metrics.contains("skysail_provider_release_faults_total{"),
        "the cloud refused, not the release: {metrics}"
    );
}

#[tokio::test]
async fn an_answer_that_breaks_the_contract_is_a_fault_of_the_release() {
    let (record, metrics) = recorded(&Guest { master: Master::ControlCharacter, ..GUEST }).await;
    assert_eq!(record.outcome.category(), "Internal");
    assert!(record.outcome.counts_against_release());
    let line = r#"skysail_provider_calls_total{provider="cloud",function="clusters.master",outcome="Internal"} 1"#;
    assert!(counted(&metrics, line), "{metrics}");
    let line = r#"skysail_provider_release_faults_total{provider="cloud",function="clusters.master"} 1"#;
    assert!(counted(&metrics, line), "{metrics}");
}

#[tokio::test]
async fn a_good_answer_is_ok() {
    let (record, metrics) = recorded(&GUEST).await;
    assert_eq!(record.outcome, Outcome::Ok);
    let line = r#"skysail_provider_calls_total{provider="cloud",function="clusters.master",outcome="Ok"} 1"#;
    assert!(counted(&metrics, line), "{metrics}");
}
