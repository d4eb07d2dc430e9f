//! Where log lines go. Only this file knows the subscriber.

use anyhow::{Context as _, anyhow};
use tracing_subscriber::{EnvFilter, Registry, fmt, prelude::*, reload};

use crate::args::LoggingFormat;

/// Changes at run time what is logged.
#[derive(Clone)]
pub(crate) struct Verbosity(reload::Handle<EnvFilter, Registry>);

impl Verbosity {
    /// Takes a filter as `--log` does, or a number of klog's `-v`.
    ///
    /// # Errors
    /// A sentence: it is neither.
    pub(crate) fn set(&self, text: &str) -> Result<String, String> {
        let directives = directives(text);
        let wrong = |error| {
            format!("{text:?}: give a number (4), a level (debug) or directives (info,skysail_host=debug): {error}")
        };
        let filter = EnvFilter::builder().parse(&directives).map_err(wrong)?;
        self.0.reload(filter).map_err(|error| format!("the log level cannot be changed: {error}"))?;
        tracing::info!("the log level is now {directives}");
        Ok(format!("the log level is now {directives}"))
    }
}

/// What klog's numbers mean here: upstream writes what an operator wants to know up to 3, what a
/// developer wants from 4, requests from 6.
fn directives(text: &str) -> String {
    match text.parse::<u32>() {
        Ok(0..=3) => "info".to_owned(),
        Ok(4..=5) => "debug".to_owned(),
        Ok(_) => "trace".to_owned(),
        Err(_) => text.to_owned(),
    }
}

/// Starts logging to standard error.
///
/// # Errors
/// The filter cannot be parsed, or logging runs already.
pub(crate) fn init(log: &str, format: LoggingFormat) -> anyhow::Result<Verbosity> {
    // An empty variable is what templates leave behind; it asks for nothing, and not for silence
    // about errors.
    let log = if log.trim().is_empty() { "info" } else { log };
    // Its cause would be told twice: the error's own text has it.
    let wrong = |error| anyhow!("--log {log:?}: give a level (info) or directives (info,skysail_host=debug): {error}");
    let filter = EnvFilter::builder().parse(log).map_err(wrong)?;
    let (filter, handle) = reload::Layer::new(filter);
    let layer =
        fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let layer = match format {
        LoggingFormat::Text => layer.with_target(false).boxed(),
        LoggingFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).try_init().context("logging runs already")?;
    Ok(Verbosity(handle))
}

#[cfg(test)]
mod tests {
    use super::directives;

    #[test]
    fn a_number_is_klogs_and_anything_else_a_filter() {
        let numbers = ["0", "3", "4", "6", "10"].map(directives);
        assert_eq!(numbers, ["info", "info", "debug", "trace", "trace"]);
        assert_eq!(directives("warn,skysail_host=debug"), "warn,skysail_host=debug");
    }
}
