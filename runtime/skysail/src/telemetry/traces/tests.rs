//! What is exported, with an exporter in memory.

use std::sync::{Arc, Mutex};

use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use tracing::field::Empty;
use tracing_subscriber::prelude::*;

use super::{Conventions, Traces};

/// Keeps the spans in memory.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

/// The spans that `work` causes, in the order of their ends.
fn exported(work: impl FnOnce()) -> Vec<SpanData> {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(Conventions(kept.clone())).build();
    let subscriber = tracing_subscriber::registry().with(Traces(provider).layer());
    tracing::subscriber::with_default(subscriber, work);
    let spans = kept.0.lock().unwrap();
    spans.clone()
}

#[test]
fn spans_have_the_names_and_kinds_of_the_conventions_and_keep_their_parents() {
    let spans = exported(|| {
        let reconcile = tracing::debug_span!("reconcile", controller.name = "service-controller").entered();
        let call = tracing::debug_span!("provider_call", provider.operation = "load-balancers.ensure").entered();
        drop(tracing::debug_span!("http request", http.request.method = "GET", url.full = "http://c").entered());
        drop(tracing::debug_span!("login", credential.name = "api").entered());
        drop((call, reconcile));
    });
    let named: Vec<_> = spans.iter().map(|span| (&*span.name, span.span_kind.clone())).collect();
    let expected = [
        ("GET", SpanKind::Client),
        ("login", SpanKind::Client),
        ("load-balancers.ensure", SpanKind::Internal),
        ("reconcile service-controller", SpanKind::Internal),
    ];
    assert_eq!(named, expected);
    let [request, login, call, reconcile] = spans.as_slice() else { panic!("{spans:?}") };
    let parents = [request, login, call].map(|span| span.parent_span_id);
    assert_eq!(parents, [call, call, reconcile].map(|span| span.span_context.span_id()));
}

#[test]
fn a_failure_is_the_status_of_its_span() {
    let spans = exported(|| {
        let span = tracing::debug_span!("login", "error.type" = Empty, error.message = Empty);
        span.record("error.type", "credential-refused").record("error.message", "the password is wrong");
    });
    assert_eq!(spans.first().unwrap().status, Status::error("the password is wrong"));
}

/// Log lines may have the words of a guest, and libraries have spans of their own, also those that
/// send the traces.
#[test]
fn log_lines_and_the_spans_of_libraries_are_not_exported() {
    let spans = exported(|| {
        let _span = tracing::debug_span!("reconcile", controller.name = "c").entered();
        tracing::info!("a log line");
        drop(tracing::info_span!(target: "hyper_util::client", "connect").entered());
    });
    let events: Vec<_> = spans.iter().map(|span| (&*span.name, span.events.len())).collect();
    assert_eq!(events, [("reconcile c", 0)]);
}
