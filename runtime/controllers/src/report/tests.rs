//! What a line about an object is made of.

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

use super::{Reporter, Voice};
use crate::{error::Error, events::Events, metrics::ControllerMetrics};

/// Keeps the names of all fields.
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

/// The host's lines have `provider.name` too: one query finds both.
#[test]
fn a_line_calls_provider_and_object_as_all_lines_do() {
    let metrics = ControllerMetrics::register(&mut Registry::default());
    let (events, _notices) = Events::new(metrics.clone());
    let reporter = Reporter::new(events, metrics);
    let voice = Voice { controller: "service-controller", provider: "a".to_owned() };
    let (namespace, name, uid) = ("default".to_owned(), "web".to_owned(), "1".to_owned());
    let object = ObjectReference { kind: "Service", namespace, name, uid };
    let failed = |code| Error::provider("ensure load balancer")(skysail_provider::Error::new(code, "no"));
    let fields = Fields::default();
    tracing::subscriber::with_default(fields.clone(), || {
        reporter.reconciled(&voice, &object, Err(&failed(Code::Denied)), Some(Duration::from_mins(2)));
        reporter.reconciled(&voice, &object, Err(&failed(Code::RetryAfter)), None);
        reporter.done(&voice, &object, "done");
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
