//! Upstream's set "secure serving".

use std::net::SocketAddr;

use clap::Args;

/// What is served, and where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving flags")]
pub(crate) struct SecureServingArgs {
    /// Where /metrics, /livez and /readyz are served, as plain HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10268")]
    pub(crate) metrics_bind_address: SocketAddr,
}
