//! Traces of a manager with a real API server and the simulated cloud, in a collector that speaks
//! the OpenTelemetry protocol.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode as SpanStatus},
};
use prost::Message as _;
use skysail_test_e2e::{
    manager::Manager,
    objects::{address_of, create_service},
    timeline::{Bar, Timeline},
    wait::eventually,
    workspace::component,
};
use tokio::{net::TcpListener, task::JoinSet};

use crate::simulated::Site;

const NODE_PORT: u16 = 30_080;
const PATIENCE: u64 = 120;

/// What the collector got.
#[derive(Default)]
struct Received {
    /// Whether the collector answers 503.
    is_down: AtomicBool,
    /// The bodies of the requests that the collector took.
    bodies: Mutex<Vec<Bytes>>,
}

/// A collector. Dropping this value ends the collector.
struct Collector {
    url: String,
    received: Arc<Received>,
    _server: JoinSet<()>,
}

impl Collector {
    async fn start() -> Result<Self> {
        let received = Arc::<Received>::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&received));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/v1/traces", listener.local_addr()?);
        let mut server = JoinSet::new();
        server.spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(Self { url, received, _server: server })
    }

    fn set_down(&self, is_down: bool) {
        self.received.is_down.store(is_down, Ordering::SeqCst);
    }

    fn bodies(&self) -> Vec<Bytes> {
        self.received.bodies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All spans so far, and the attributes of the process that sent them.
    fn spans(&self) -> Result<(Vec<KeyValue>, Vec<Span>)> {
        let (mut process, mut spans) = (Vec::new(), Vec::new());
        for body in self.bodies() {
            let request = ExportTraceServiceRequest::decode(body).context("the body is no request of OTLP")?;
            for resource in request.resource_spans {
                process = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
                spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        Ok((process, spans))
    }
}

async fn take(State(received): State<Arc<Received>>, body: Bytes) -> (StatusCode, &'static str) {
    if received.is_down.load(Ordering::SeqCst) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the collector is down");
    }
    received.bodies.lock().unwrap_or_else(PoisonError::into_inner).push(body);
    (StatusCode::OK, "")
}

/// The text of an attribute; empty without the attribute.
fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => other.map_or_else(String::new, |value| format!("{value:?}")),
    }
}

fn failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code == i32::from(SpanStatus::Error))
}

/// The spans of the reconcile of a Service that has this status: the reconcile, the call of
/// `ensure` below it, and the requests below the call.
fn ensure_of<'a>(spans: &'a [Span], service: &str, is_failed: bool) -> Result<(&'a Span, &'a Span, Vec<&'a Span>)> {
    let of_service = |span: &&Span| {
        span.name == "reconcile service-controller"
            && text(&span.attributes, "object.name") == service
            && failed(span) == is_failed
    };
    let below = |parent: &'a Span| {
        let is_below = move |span: &&Span| span.parent_span_id == parent.span_id && span.trace_id == parent.trace_id;
        spans.iter().filter(is_below)
    };
    let with_call = spans.iter().filter(of_service).find_map(|reconcile| {
        let call = below(reconcile).find(|span| span.name == "load-balancers.ensure")?;
        Some((reconcile, call, below(call).collect()))
    });
    let names = || spans.iter().map(|span| &*span.name).collect::<Vec<_>>();
    with_call.with_context(|| format!("no trace of the Service {service}; the spans are {:?}", names()))
}

async fn a_trace_leads_from_the_reconcile_to_the_requests(site: &Site, collector: &Collector) -> Result<()> {
    create_service(&site.client, "web", 8080, NODE_PORT).await?;
    eventually("the Service gets an address", PATIENCE, || address_of(&site.client, "web")).await?;
    let traced = || async {
        let (process, spans) = collector.spans()?;
        let (reconcile, call, requests) = ensure_of(&spans, "web", false)?;
        ensure!(text(&process, "service.name") == "skysail", "{process:?}");
        ensure!(reconcile.parent_span_id.is_empty(), "the reconcile is no root: {reconcile:?}");
        ensure!(text(&reconcile.attributes, "object.namespace") == "default", "{reconcile:?}");
        ensure!(text(&call.attributes, "provider.name") == "sim", "{call:?}");
        ensure!(text(&call.attributes, "call.fuel").parse::<u64>()? > 0, "{call:?}");
        let created =
            requests.iter().find(|span| span.name == "POST").context("no request creates the load balancer")?;
        ensure!(created.kind == i32::from(SpanKind::Client), "{created:?}");
        ensure!(text(&created.attributes, "http.response.status_code") == "201", "{created:?}");
        ensure!(text(&created.attributes, "url.full").starts_with("http://127.0.0.1:"), "{created:?}");
        way_of_a_request(reconcile, call, &requests)?.draw("request.svg")
    };
    eventually("the trace arrives", PATIENCE, traced).await
}

/// The picture of a trace.
fn way_of_a_request(reconcile: &Span, call: &Span, requests: &[&Span]) -> Result<Timeline> {
    let since = |time: u64| Duration::from_nanos(time.saturating_sub(reconcile.start_time_unix_nano));
    let bar = |depth, label, span: &Span| Bar {
        depth,
        label,
        start: since(span.start_time_unix_nano),
        end: since(span.end_time_unix_nano),
    };
    let mut bars = vec![bar(0, reconcile.name.clone(), reconcile), bar(1, call.name.clone(), call)];
    let mut requests = requests.to_vec();
    requests.sort_by_key(|span| span.start_time_unix_nano);
    for span in requests {
        let (url, status) = ("url.full", "http.response.status_code");
        let url: axum::http::Uri = text(&span.attributes, url).parse().context("the span has no URL")?;
        bars.push(bar(2, format!("{} {}: {}", span.name, url.path(), text(&span.attributes, status)), span));
    }
    Ok(Timeline { title: "A new Service: reconcile, call of the provider, requests to the cloud".to_owned(), bars })
}

async fn a_failure_is_the_status_of_all_three(site: &Site, collector: &Collector) -> Result<()> {
    site.cloud.cloud.expire_token();
    create_service(&site.client, "late", 8081, NODE_PORT + 1).await?;
    let traced = || async {
        let (_, spans) = collector.spans()?;
        let (reconcile, call, requests) = ensure_of(&spans, "late", true)?;
        let errors = [reconcile, call].map(|span| text(&span.attributes, "error.type"));
        ensure!(errors == ["Denied", "Denied"], "{errors:?}");
        let refused = requests.iter().any(|span| failed(span) && text(&span.attributes, "error.type") == "401");
        ensure!(failed(call) && refused, "{call:?} {requests:?}");
        Ok(())
    };
    eventually("the trace of the failure arrives", PATIENCE, traced).await
}

/// The number of log lines with this message.
fn said(manager: &Manager, message: &str) -> usize {
    manager.lines(|line| line["message"].as_str().is_some_and(|text| text.starts_with(message))).len()
}

#[tokio::test]
async fn a_reconcile_is_a_trace_with_its_calls_and_their_requests_and_no_collector_holds_it_up() -> Result<()> {
    let (site, collector) = (Site::start(&["a"]).await?, Collector::start().await?);
    collector.set_down(true);
    let flags = ["--leader-elect=false", &*format!("--otlp-traces-endpoint={}", collector.url)];
    let (kubeconfig, wasm, file) = (site.server.kubeconfig(), component("simcloud")?, site.cloud.provider_file());
    let manager = Manager::start_with(&flags, &kubeconfig, &wasm, &file, &[site.cloud.token()]).await?;
    let told = async {
        create_service(&site.client, "first", 8079, NODE_PORT + 2).await?;
        eventually("the Service gets an address", PATIENCE, || address_of(&site.client, "first")).await?;
        let warned = || {
            std::future::ready(match said(&manager, "traces are not delivered") {
                0 => Err(anyhow::anyhow!("no warning")),
                _ => Ok(()),
            })
        };
        eventually("the manager says that the collector is down", PATIENCE, warned).await?;
        collector.set_down(false);
        a_trace_leads_from_the_reconcile_to_the_requests(&site, &collector).await?;
        a_failure_is_the_status_of_all_three(&site, &collector).await
    };
    told.await.map_err(|error: anyhow::Error| error.context(manager.log_tail()))?;
    let counts = ["traces are not delivered", "traces are delivered again"].map(|message| said(&manager, message));
    ensure!(counts == [1, 1], "each change is said once, not {counts:?}");
    let (_, token) = site.cloud.token();
    let leaked = collector.bodies().iter().any(|body| body.windows(token.len()).any(|part| part == token.as_bytes()));
    ensure!(!leaked, "the value of the credential is in a trace");
    let status = manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}
