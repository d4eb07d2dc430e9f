//! The export of spans by the OpenTelemetry protocol (OTLP) over HTTP: a reconcile is the root of a
//! trace, the calls of the provider are below it, and the requests to the cloud below a call.
//!
//! The crates name spans and fields for log lines; [`Conventions`] gives spans the names, the kinds
//! and the status of OpenTelemetry's conventions.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::Context as _;
use async_trait::async_trait;
use opentelemetry::{
    KeyValue,
    trace::{SpanKind, Status, TracerProvider as _},
};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter},
};
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};
use url::Url;

/// The longest time for one request to the collector, with its answer.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(10);
/// The longest time that the last spans may take at the end of the process.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);
/// The most bytes of the collector's answer that are read: an answer has a sentence at most.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const PER_MILLION: f64 = 1_000_000.0;

/// The export of traces to one collector.
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the export. The requests to the collector run on `runtime`. Nothing waits for the
    /// collector: spans that it does not take are dropped.
    ///
    /// # Errors
    /// The client cannot be made, for example because the system has no certificates.
    pub(crate) fn start(endpoint: &Url, sampling_rate_per_million: u32, runtime: Handle) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().timeout(EXPORT_TIME_MAX).build();
        let client = client.context("cannot make a client for the collector of traces")?;
        let collector = Collector { client, runtime, endpoint: endpoint.to_string(), fails: AtomicBool::new(false) };
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(collector)
            .with_endpoint(endpoint.as_str())
            .with_timeout(EXPORT_TIME_MAX)
            .build()
            .context("the export of traces")?;
        let sampler = Sampler::TraceIdRatioBased(f64::from(sampling_rate_per_million) / PER_MILLION);
        let resource = Resource::builder()
            .with_service_name("skysail")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(Conventions(exporter))
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_resource(resource)
            .build();
        Ok(Self(provider))
    }

    /// The layer that turns this program's spans into spans of OpenTelemetry. Log lines are left
    /// out: they have their own way.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("skysail"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("skysail")))
    }

    /// Sends the last spans, at the end of the process. Call it while the runtime runs.
    pub(crate) fn end(self) {
        if let Err(error) = self.0.shutdown_with_timeout(FLUSH_TIME_MAX) {
            tracing::warn!("the last traces were not delivered: {error}");
        }
    }
}

/// Gives spans the names, the kinds and the status of OpenTelemetry's conventions.
#[derive(Debug)]
struct Conventions<E>(E);

impl<E: SpanExporter> SpanExporter for Conventions<E> {
    fn export(&self, mut batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        for span in &mut batch {
            follow_conventions(span);
        }
        self.0.export(batch)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// The field of the text of a failure.
const ERROR_MESSAGE: &str = "error.message";

/// Names a span by what it did, from a closed set of names (`reconcile service-controller`,
/// `load-balancers.ensure`, `GET`, `login`), and makes its failure its status.
fn follow_conventions(span: &mut SpanData) {
    let find = |key: &str| {
        let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
        found.map(|attribute| attribute.value.to_string())
    };
    let attribute = |key: &str| find(key).unwrap_or_default();
    if find("error.type").is_some() {
        span.status = Status::error(attribute(ERROR_MESSAGE));
    }
    match &*span.name {
        "reconcile" => span.name = format!("reconcile {}", attribute("controller.name")).into(),
        "provider_call" => span.name = attribute("provider.operation").into(),
        "http request" => {
            (span.name, span.span_kind) = (attribute("http.request.method").into(), SpanKind::Client);
        }
        "login" => span.span_kind = SpanKind::Client,
        _ => {}
    }
    span.attributes.retain(|attribute| attribute.key.as_str() != ERROR_MESSAGE);
}

/// The collector, as the exporter's client. The exporter has a thread without a tokio runtime.
#[derive(Debug)]
struct Collector {
    client: reqwest::Client,
    runtime: Handle,
    endpoint: String,
    /// Whether the last request failed: only a change is logged.
    fails: AtomicBool,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.spawn(send(self.client.clone(), request)).await;
        let result = sent.context("the process ends").and_then(|sent| sent);
        let failure = match &result {
            Err(error) => Some(format!("{error:#}")),
            Ok(response) if !response.status().is_success() => Some(format!("the answer is {}", response.status())),
            Ok(_) => None,
        };
        let failed = self.fails.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(reason) if !failed => tracing::warn!(
                url.full = self.endpoint,
                reason,
                "traces are not delivered (--otlp-traces-endpoint); they are dropped until the collector takes them"
            ),
            None if failed => tracing::info!(url.full = self.endpoint, "traces are delivered again"),
            Some(_) | None => {}
        }
        result.map_err(Into::into)
    }
}

async fn send(client: reqwest::Client, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
    let mut response = client.execute(request.try_into()?).await?;
    let mut answer = Response::new(Bytes::new());
    *answer.status_mut() = response.status();
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await? {
        if body.len() + bytes.len() > ANSWER_BYTES_MAX {
            break;
        }
        body.extend_from_slice(&bytes);
    }
    *answer.body_mut() = body.into();
    Ok(answer)
}

#[cfg(test)]
mod tests;
