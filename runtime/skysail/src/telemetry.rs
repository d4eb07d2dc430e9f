//! Logging to standard error. Only this file uses the subscriber.

use anyhow::{Context as _, anyhow};
use tracing_subscriber::{EnvFilter, Registry, fmt, prelude::*, reload};

use crate::args::LoggingFormat;

/// Changes the log level at run time.
#[derive(Clone)]
pub(crate) struct Verbosity(reload::Handle<EnvFilter, Registry>);

impl Verbosity {
    /// Sets the filter: the text is a filter as for `--log`, or a number as for klog's `-v`.
    ///
    /// # Errors
    /// The text is neither; the error is a sentence.
    pub(crate) fn set(&self, text: &str) -> Result<String, String> {
        let directives = directives(text);
        let wrong = |error| {
            format!(
                "{text:?} is not a log filter; give a number (4), a level (debug) or levels by module (info,skysail_host=debug): {error}"
            )
        };
        let filter = EnvFilter::builder().parse(&directives).map_err(wrong)?;
        self.0.reload(filter).map_err(|error| format!("the log level cannot be changed: {error}"))?;
        tracing::info!("the log level is now {directives}");
        Ok(format!("the log level is now {directives}"))
    }
}

/// The filter for a number of klog: upstream logs information for operators up to 3, for developers
/// from 4 on, and requests from 6 on.
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
/// The filter is invalid, or logging has been started already.
pub(crate) fn init(log: &str, format: LoggingFormat) -> anyhow::Result<Verbosity> {
    // Templates leave empty environment variables: an empty filter means the default, not silence.
    let log = if log.trim().is_empty() { "info" } else { log };
    // The text of this error includes its cause, so the cause is not added as a source.
    let wrong = |error| {
        anyhow!(
            "--log {log:?} is not a log filter; give a level (info) or levels by module (info,skysail_host=debug): {error}"
        )
    };
    let filter = EnvFilter::builder().parse(log).map_err(wrong)?;
    let (filter, handle) = reload::Layer::new(filter);
    let layer =
        fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let layer = match format {
        LoggingFormat::Text => layer.with_target(false).boxed(),
        LoggingFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).try_init().context("logging was started twice")?;
    Ok(Verbosity(handle))
}

#[cfg(test)]
mod tests {
    use super::directives;

    #[test]
    fn a_number_is_a_verbosity_of_klog_and_any_other_text_is_a_filter() {
        let numbers = ["0", "3", "4", "6", "10"].map(directives);
        assert_eq!(numbers, ["info", "info", "debug", "trace", "trace"]);
        assert_eq!(directives("warn,skysail_host=debug"), "warn,skysail_host=debug");
    }
}
