//! The flags for traces. Upstream's cloud-controller-manager has none; the kube-apiserver and the
//! kubelet have a file, whose `endpoint` and `samplingRatePerMillion` these flags are.

use clap::Args;
use url::Url;

/// The export of traces.
#[derive(Debug, Args)]
#[command(next_help_heading = "Traces")]
pub(crate) struct TracesArgs {
    /// URL to which traces are sent by the OpenTelemetry protocol (OTLP) over HTTP in protobuf,
    /// such as `http://collector:4318/v1/traces`. Without the flag nothing is traced. A trace has
    /// a span for each reconcile, each call of the provider and each request to the cloud. Headers
    /// for the collector are read from `OTEL_EXPORTER_OTLP_HEADERS`, attributes of this process
    /// from `OTEL_RESOURCE_ATTRIBUTES`.
    #[arg(long, value_name = "URL", value_parser = endpoint, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")]
    otlp_traces_endpoint: Option<Endpoint>,
    /// How many of a million reconciles are traced.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) traces_sampling_rate_per_million: u32,
}

/// None for an empty text: templates leave empty environment variables.
#[derive(Clone, Debug)]
struct Endpoint(Option<Url>);

impl TracesArgs {
    /// Where traces are sent.
    pub(crate) fn endpoint(&self) -> Option<&Url> {
        self.otlp_traces_endpoint.as_ref().and_then(|Endpoint(url)| url.as_ref())
    }
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    if text.is_empty() {
        return Ok(Endpoint(None));
    }
    let form = "give a URL such as http://collector:4318/v1/traces";
    let url = Url::parse(text).map_err(|error| format!("{error}; {form}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme {:?} is neither http nor https; {form}", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL in flags and logs may have no password; set OTEL_EXPORTER_OTLP_HEADERS".to_owned());
    }
    Ok(Endpoint(Some(url)))
}
