//! Logging to standard error, and traces. Only this module uses the subscriber.

use anyhow::{Context as _, anyhow};
use tracing_subscriber::{EnvFilter, Registry, filter::ParseError, fmt, prelude::*, reload};

use crate::args::LoggingFormat;

mod traces;

pub(crate) use traces::Traces;

/// Libraries whose log lines only repeat what a line or an error of this program says: kube logs
/// each failed request and each failed watch, and its caller reports it too. A filter that names
/// one of these libraries overrides its entry.
const REPEATING: &str = "kube_client=off,kube_runtime=off,rustls_platform_verifier=off";

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
        let filter = filter(&directives).map_err(wrong)?;
        self.0.reload(filter).map_err(|error| format!("the log level cannot be changed: {error}"))?;
        tracing::info!("the log level is now {directives}");
        Ok(format!("the log level is now {directives}"))
    }
}

/// The filter with these directives, and without the lines of [`REPEATING`].
fn filter(directives: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(format!("{REPEATING},{directives}"))
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
    init_with(log, format, None)
}

/// Starts logging to standard error, and the export of traces.
///
/// # Errors
/// The filter is invalid, or logging has been started already.
pub(crate) fn init_with(log: &str, format: LoggingFormat, traces: Option<&Traces>) -> anyhow::Result<Verbosity> {
    // Templates leave empty environment variables: an empty filter means the default, not silence.
    let log = if log.trim().is_empty() { "info" } else { log };
    // The text of this error includes its cause, so the cause is not added as a source.
    let wrong = |error| {
        anyhow!(
            "--log {log:?} is not a log filter; give a level (info) or levels by module (info,skysail_host=debug): {error}"
        )
    };
    let (filter, handle) = reload::Layer::new(filter(log).map_err(wrong)?);
    let layer =
        fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let layer = match format {
        LoggingFormat::Text => layer.with_target(false).boxed(),
        LoggingFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let logging = tracing_subscriber::registry().with(layer.with_filter(filter));
    logging.with(traces.map(Traces::layer)).try_init().context("logging was started twice")?;
    Ok(Verbosity(handle))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Subscriber};
    use tracing_subscriber::{Layer, layer::Context, prelude::*};

    use super::{directives, filter};

    #[test]
    fn a_number_is_a_verbosity_of_klog_and_any_other_text_is_a_filter() {
        let numbers = ["0", "3", "4", "6", "10"].map(directives);
        assert_eq!(numbers, ["info", "info", "debug", "trace", "trace"]);
        assert_eq!(directives("warn,skysail_host=debug"), "warn,skysail_host=debug");
    }

    /// Keeps the target of each event.
    #[derive(Clone, Default)]
    struct Targets(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Targets {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(event.metadata().target().to_owned());
        }
    }

    /// The targets whose warnings pass the filter.
    fn logged(directives: &str) -> Vec<String> {
        let targets = Targets::default();
        let subscriber = tracing_subscriber::registry().with(targets.clone().with_filter(filter(directives).unwrap()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "kube_runtime::watcher", "watch list error with 403");
            tracing::error!(target: "kube_client::client::builder", "failed with status 403 Forbidden");
            tracing::warn!(target: "skysail_controllers::watch", "watch failed; it is restarted");
        });
        let targets = targets.0.lock().unwrap();
        targets.clone()
    }

    /// Each failed watch and each failed request was logged twice.
    #[test]
    fn lines_of_kube_that_the_manager_repeats_are_off_unless_the_filter_names_kube() {
        for directives in ["info", "trace", "warn,skysail_host=debug"] {
            assert_eq!(logged(directives), ["skysail_controllers::watch"], "{directives}");
        }
        let all = ["kube_runtime::watcher", "skysail_controllers::watch"];
        assert_eq!(logged("info,kube_runtime=warn"), all);
        assert_eq!(logged("info,kube_client=off,kube_runtime=debug"), all);
    }
}
