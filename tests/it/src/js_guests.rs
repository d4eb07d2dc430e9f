//! Guests in JavaScript: what programs find in the sandbox, and the types of the JavaScript SDK.

use std::fs;

use skysail_host::Limits;
use skysail_provider::{Call, Code, Limit, LoadBalancers as _};

use crate::{
    components::repository,
    language_probe::{Language, nodes, service},
};

static JAVASCRIPT: Language = Language::new("probe-js");

#[tokio::test]
async fn a_program_in_javascript_has_nothing_that_reaches_outside() {
    assert_eq!(JAVASCRIPT.probe().await.saw("outside").await, "");
}

/// The component is a snapshot: the engine's own random numbers are the same in each call.
#[tokio::test]
async fn random_numbers_of_javascript_differ_between_calls() {
    let probe = JAVASCRIPT.probe().await;
    let (one, other) = (probe.saw("random").await, probe.saw("random").await);
    for (one, other) in one.split('|').zip(other.split('|')) {
        assert_ne!(one, other);
    }
}

#[tokio::test]
async fn the_clock_of_javascript_goes_on_after_the_build() {
    assert_eq!(JAVASCRIPT.probe().await.saw("clock").await, "true");
}

#[tokio::test]
async fn output_of_javascript_reaches_the_log_and_its_events_the_host() {
    // The call runs on the thread of this test.
    let _logging = tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(std::io::sink).finish());
    let mut probe = JAVASCRIPT.probe().await;
    assert_eq!(probe.saw("output").await, "done");
    let record = probe.records.recv().await.unwrap();
    // The call of a test is about no object, and has no place for Events.
    assert_eq!((record.log_lines, record.events_dropped), (2, 1), "{record:?}");
}

#[tokio::test]
async fn an_exception_says_where_and_why() {
    let probe = JAVASCRIPT.probe().await;
    for (what, reasons) in [
        (
            "exception",
            ["TypeError: cannot read property 'member' of undefined", "at exception (componentize-qjs:user.js:"],
        ),
        ("not an error", ["uncaught text", "load-balancers"]),
        // The engine would take what the cloud answered for the error of the call.
        ("an error of the contract", ["uncaught", "not-found"]),
        ("an error with a payload", ["uncaught", "Error: thrown"]),
    ] {
        let error = probe.call(what).await;
        assert_eq!(error.code, Code::Trapped, "{error}");
        for reason in reasons {
            assert!(error.message.contains(reason), "{what}: {error}");
        }
    }
}

#[tokio::test]
async fn a_result_of_a_wrong_type_is_an_internal_error() {
    let probe = JAVASCRIPT.probe().await;
    for (what, reason) in [
        ("rejection", "the result of get is not an object: a Promise: the functions of a provider are synchronous"),
        ("a wrong type", "the result of get.ingress[0].ip is not a string: 7"),
    ] {
        let error = probe.call(what).await;
        assert_eq!((error.code, error.message.as_str()), (Code::Internal, reason));
    }
}

#[tokio::test]
async fn numbers_beyond_those_of_the_contract_are_limited() {
    let error = JAVASCRIPT.probe().await.call("huge numbers").await;
    assert_eq!((error.code, error.message.as_str()), (Code::RetryAfter, "huge"));
}

#[tokio::test]
async fn javascript_without_end_meets_a_limit() {
    let probe = JAVASCRIPT.probe_with(Limits { fuel: 200_000_000, ..Limits::default() }).await;
    for (what, limit) in
        [("loop", Limit::Fuel), ("memory", Limit::Memory), ("recursion", Limit::Stack), ("deep JSON", Limit::Stack)]
    {
        let error = probe.call(what).await;
        assert_eq!(error.limit.map(|hit| hit.limit), Some(limit), "{what}: {error}");
        assert_eq!(probe.saw("clock").await, "true", "the next call");
    }
}

#[tokio::test]
async fn javascript_reads_node_sets_and_gives_them_back_in_time() {
    let nodes = nodes();
    let probe = JAVASCRIPT.probe().await;
    for _ in 0..2 {
        let error = probe.provider.update(&Call::default(), "", &service(), &nodes).await.unwrap_err();
        assert_eq!(error.message, "300 of 300 nodes, null, null");
        probe.provider.ensure(&Call::default(), "", &service(), &nodes).await.unwrap();
    }
}

#[tokio::test]
async fn requests_of_javascript_go_through_the_host() {
    assert_eq!(JAVASCRIPT.probe().await.saw("requests").await, "denied,denied,denied");
}

#[tokio::test]
async fn texts_of_javascript_come_back_as_they_were() {
    assert_eq!(JAVASCRIPT.probe().await.saw("text").await, "equal");
}

/// A change of the contract has to reach the JavaScript SDK, whose users have no generator.
#[test]
fn the_javascript_sdk_has_the_types_of_the_contract() {
    let committed = fs::read_to_string(repository().join("guest-sdk/js/src/contract.ts")).unwrap_or_default();
    let remedy = "run `skysail-componentize js-types guest-sdk/js/src/contract.ts`";
    assert!(
        committed == skysail_componentize::js_types().unwrap(),
        "contract.ts is not what the contract says: {remedy}"
    );
}
