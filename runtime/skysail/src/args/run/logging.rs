//! Upstream's flag set "logs".

use clap::{Args, ValueEnum};

/// The format of log lines.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LoggingFormat {
    /// Human-readable text.
    Text,
    /// One JSON object for each line.
    Json,
}

/// Logging; lines go to standard error.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging flags")]
pub(crate) struct LogArgs {
    /// Log level, or levels by module: `info`, `warn,skysail_host=debug`. The lines of the library
    /// kube, which the manager's own lines repeat, appear if a module names it:
    /// `kube_runtime=warn`.
    #[arg(long, default_value = "info", value_name = "FILTER", env = "SKYSAIL_LOG")]
    log: String,
    /// Format of log lines.
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) logging_format: LoggingFormat,
    /// Verbosity as in klog, in place of --log: 0 to 3 is `info`; 4 and 5 is `debug` and 6 and more
    /// is `trace` for Skysail's own modules.
    #[arg(short, long = "v", value_name = "N", conflicts_with = "log")]
    verbosity: Option<u8>,
}

impl LogArgs {
    /// The filter of log lines.
    pub(crate) fn filter(&self) -> &str {
        match self.verbosity {
            None => &self.log,
            Some(0..=3) => "info",
            Some(4..=5) => "info,skysail=debug",
            Some(6..) => "info,skysail=trace",
        }
    }
}
