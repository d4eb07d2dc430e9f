//! The log line about an object: its fields and their values.

use std::time::Duration;

use expect_test::expect;
use prometheus_client::registry::Registry;
use skysail_provider::{Code, ObjectReference};
use skysail_test_support::log::Log;
use tracing_subscriber::{filter::LevelFilter, fmt};

use super::{Actor, Reporter};
use crate::{error::Error, events::Events, metrics::ControllerMetrics};

/// The host's log lines have `provider.name` too, so that one query finds both.
#[test]
fn a_log_line_names_controller_provider_and_object_with_the_reason_and_the_time_of_the_next_try() {
    let metrics = ControllerMetrics::register(&mut Registry::default());
    let (events, _notices) = Events::new(metrics.clone());
    let reporter = Reporter::new(events, metrics);
    let actor = Actor { controller: "service-controller", provider: "a".to_owned() };
    let (namespace, name, uid) = ("default".to_owned(), "web".to_owned(), "1".to_owned());
    let object = ObjectReference { kind: "Service", namespace, name, uid };
    let failed = |code| Error::provider("ensure load balancer")(skysail_provider::Error::new(code, "no"));
    let log = Log::default();
    let lines = log.clone();
    let subscriber =
        fmt().json().flatten_event(true).without_time().with_target(false).with_max_level(LevelFilter::DEBUG);
    tracing::subscriber::with_default(subscriber.with_writer(move || lines.clone()).finish(), || {
        reporter.reconciled(&actor, &object, Err(&failed(Code::Denied)), Some(Duration::from_mins(2)));
        reporter.reconciled(&actor, &object, Err(&failed(Code::RetryAfter)), Some(Duration::from_secs(7)));
        reporter.done(&actor, &object, "done");
    });
    expect![[r#"
        {"level":"WARN","message":"failed","controller.name":"service-controller","provider.name":"a","object.kind":"Service","object.namespace":"default","object.name":"web","controller.outcome":"Denied","controller.next_try":"120s","controller.omitted":0,"reason":"failed to ensure load balancer: no"}
        {"level":"DEBUG","message":"done","controller.name":"service-controller","provider.name":"a","object.kind":"Service","object.namespace":"default","object.name":"web","reason":"failed: failed to ensure load balancer: no; next try in 120s"}
        {"level":"INFO","message":"waits","controller.name":"service-controller","provider.name":"a","object.kind":"Service","object.namespace":"default","object.name":"web","controller.outcome":"RetryAfter","controller.next_try":"7s","controller.omitted":0,"reason":"failed to ensure load balancer: no"}
        {"level":"DEBUG","message":"done","controller.name":"service-controller","provider.name":"a","object.kind":"Service","object.namespace":"default","object.name":"web","reason":"waits: failed to ensure load balancer: no; next try in 7s"}
        {"level":"DEBUG","message":"done","controller.name":"service-controller","provider.name":"a","object.kind":"Service","object.namespace":"default","object.name":"web","reason":"done"}
    "#]].assert_eq(&log.take());
}
