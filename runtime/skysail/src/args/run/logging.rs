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
    pub(crate) log: String,
    /// How log lines look.
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) logging_format: LoggingFormat,
}
