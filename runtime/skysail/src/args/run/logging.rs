//! Upstream's set "logs".

use clap::{Args, ValueEnum};

/// How log lines look.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LoggingFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Logging; lines go to standard error.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging flags")]
pub(crate) struct LogArgs {
    /// Level, or directives by module: `info`, `warn,skysail_host=debug`.
    #[arg(long, default_value = "info", value_name = "FILTER", env = "SKYSAIL_LOG")]
    log: String,
    /// How log lines look.
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) logging_format: LoggingFormat,
    /// Upstream's levels, in place of --log: up to 3 is `info`, 4 and 5 `debug` and from 6 on
    /// `trace` for what is ours.
    #[arg(short, long = "v", value_name = "N", conflicts_with = "log")]
    verbosity: Option<u8>,
}

impl LogArgs {
    /// What is logged.
    pub(crate) fn filter(&self) -> &str {
        match self.verbosity {
            None => &self.log,
            Some(0..=3) => "info",
            Some(4..=5) => "info,skysail=debug",
            Some(6..) => "info,skysail=trace",
        }
    }
}
