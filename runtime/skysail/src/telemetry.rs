//! Where log lines go. Only this file knows the subscriber.

use anyhow::{Context as _, anyhow};
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

use crate::args::LoggingFormat;

/// Starts logging to standard error.
///
/// # Errors
/// The filter cannot be parsed, or logging runs already.
pub(crate) fn init(log: &str, format: LoggingFormat) -> anyhow::Result<()> {
    // Its cause would be told twice: the error's own text has it.
    let wrong = |error| anyhow!("--log {log:?}: give a level (info) or directives (info,skysail_host=debug): {error}");
    let filter = EnvFilter::builder().parse(log).map_err(wrong)?;
    let layer =
        fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let layer = match format {
        LoggingFormat::Text => layer.with_target(false).boxed(),
        LoggingFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).try_init().context("logging runs already")
}
