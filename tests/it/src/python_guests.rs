//! Guests in Python: what programs find in the sandbox.

use skysail_host::Limits;
use skysail_provider::{Call, Code, Limit, LoadBalancers as _};

use crate::language_probe::{Language, nodes, service};

static PYTHON: Language = Language::new("probe-python");

#[tokio::test]
async fn a_program_in_python_finds_no_file_no_thread_and_an_empty_environment() {
    let probe = PYTHON.probe().await;
    assert_eq!(probe.saw("outside").await, "5 of 5 were refused");
    assert_eq!(probe.saw("environment").await, "0 []");
}

/// The component of componentize-py imports sockets; `skysail-componentize` gives it its own.
#[tokio::test]
async fn a_socket_of_python_ends_its_call_alone() {
    let probe = PYTHON.probe().await;
    let error = probe.call("socket").await;
    assert_eq!(error.code, Code::Trapped, "{error}");
    assert_eq!(probe.saw("clock").await, "True", "the next call");
}

/// The component is a snapshot: random numbers of the build would be the same in each call.
#[tokio::test]
async fn random_numbers_of_python_differ_between_calls() {
    let probe = PYTHON.probe().await;
    let (one, other) = (probe.saw("random").await, probe.saw("random").await);
    for (one, other) in one.split('|').zip(other.split('|')) {
        assert_ne!(one, other);
    }
}

#[tokio::test]
async fn output_of_python_reaches_the_log_and_its_events_the_host() {
    // The call runs on the thread of this test.
    let _logging = tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(std::io::sink).finish());
    let mut probe = PYTHON.probe().await;
    assert_eq!(probe.saw("output").await, "done");
    let record = probe.records.recv().await.unwrap();
    // The call of a test is about no object, and has no place for Events.
    assert_eq!((record.log_lines, record.events_dropped), (2, 1), "{record:?}");
}

#[tokio::test]
async fn an_exception_of_python_says_where_and_why() {
    let probe = PYTHON.probe().await;
    let error = probe.call("exception").await;
    assert_eq!(error.code, Code::Trapped, "{error}");
    for reason in
        ["uncaught AttributeError: 'NoneType' object has no attribute 'member'", "at exception (", "provider.py:"]
    {
        assert!(error.message.contains(reason), "{error}");
    }
    let error = probe.call("exit").await;
    assert_eq!(error.code, Code::Trapped, "{error}");
    assert!(error.message.contains("uncaught SystemExit: 3"), "{error}");
}

#[tokio::test]
async fn a_result_of_python_with_a_wrong_type_is_an_internal_error() {
    let error = PYTHON.probe().await.call("a wrong type").await;
    let reason = "the result of get.ingress[0].ip is not a str: 7";
    assert_eq!((error.code, error.message.as_str()), (Code::Internal, reason));
}

#[tokio::test]
async fn numbers_of_python_beyond_those_of_the_contract_are_limited() {
    let error = PYTHON.probe().await.call("huge numbers").await;
    assert_eq!((error.code, error.message.as_str()), (Code::RetryAfter, "huge"));
}

#[tokio::test]
async fn python_without_end_meets_a_limit() {
    let probe = PYTHON.probe_with(Limits { fuel: 400_000_000, ..Limits::default() }).await;
    for (what, limit) in [("loop", Limit::Fuel), ("memory", Limit::Memory), ("deep JSON", Limit::Stack)] {
        let error = probe.call(what).await;
        assert_eq!(error.limit.map(|hit| hit.limit), Some(limit), "{what}: {error}");
        assert_eq!(probe.saw("clock").await, "True", "the next call");
    }
    // Functions of Python have a limit of their own, which they meet before that of the sandbox.
    let error = probe.call("recursion").await;
    assert!(error.message.contains("uncaught RecursionError"), "{error}");
}

#[tokio::test]
async fn python_reads_node_sets_and_gives_them_back_in_time() {
    let nodes = nodes();
    let probe = PYTHON.probe().await;
    for _ in 0..2 {
        let error = probe.provider.update(&Call::default(), "", &service(), &nodes).await.unwrap_err();
        assert_eq!(error.message, "300 of 300 nodes, None");
        probe.provider.ensure(&Call::default(), "", &service(), &nodes).await.unwrap();
    }
}

#[tokio::test]
async fn requests_of_python_go_through_the_host() {
    assert_eq!(PYTHON.probe().await.saw("requests").await, "denied,denied,denied");
}

#[tokio::test]
async fn texts_of_python_come_back_as_they_were() {
    assert_eq!(PYTHON.probe().await.saw("text").await, "equal");
}
