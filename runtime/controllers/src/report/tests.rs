//! The fields of a log line about an object.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use prometheus_client::registry::Registry;
use skysail_provider::{Code, ObjectReference};
use tracing::{
    Event, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

use super::{Actor, Reporter};
use crate::{error::Error, events::Events, metrics::ControllerMetrics};

/// Collects the names of all fields.
#[derive(Clone, Default)]
struct Fields(Arc<Mutex<BTreeSet<&'static str>>>);

impl Subscriber for Fields {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().extend(event.fields().map(|field| field.name()));
    }
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// The host's log lines have `provider.name` too, so that one query finds both.
#[test]
fn a_log_line_has_the_same_field_names_as_all_other_lines() {
    let metrics = ControllerMetrics::register(&mut Registry::default());
    let (events, _notices) = Events::new(metrics.clone());
    let reporter = Reporter::new(events, metrics);
    let actor = Actor { controller: "service-controller", provider: "a".to_owned() };
    let (namespace, name, uid) = ("default".to_owned(), "web".to_owned(), "1".to_owned());
    let object = ObjectReference { kind: "Service", namespace, name, uid };
    let failed = |code| Error::provider("ensure load balancer")(skysail_provider::Error::new(code, "no"));
    let fields = Fields::default();
    tracing::subscriber::with_default(fields.clone(), || {
        reporter.reconciled(&actor, &object, Err(&failed(Code::Denied)), Some(Duration::from_mins(2)));
        reporter.reconciled(&actor, &object, Err(&failed(Code::RetryAfter)), None);
        reporter.done(&actor, &object, "done");
    });
    let expected = [
        "controller.name",
        "controller.next_try",
        "controller.omitted",
        "controller.outcome",
        "message",
        "object.kind",
        "object.name",
        "object.namespace",
        "provider.name",
        "reason",
    ];
    assert_eq!(fields.0.lock().unwrap().iter().copied().collect::<Vec<_>>(), expected);
}
