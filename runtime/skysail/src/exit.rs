//! Exit codes, for scripts. `skysail --help` prints the table.

use std::{fmt, io::Write as _, process::ExitCode};

use crate::output;

/// Text of the exit codes, for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  success
  1  the command failed: a call returned an error, a case of skysail test or a
     check of the demo failed, or a server stopped
  2  the command line, or a file that it names, is invalid; nothing was started
  3  the component was refused: the file is not a component, the component needs
     an import that the sandbox does not have, or it refuses the cloud-config
  4  the cluster cannot be reached
  5  skysail plan found changes, or skysail replay found differences";

/// The error if a task of this process panicked.
pub(crate) const TASK_PANICKED: &str = "a task panicked; this is a bug in Skysail: report it with the log";

/// Why a command ends without success, for the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The command failed.
    Failed,
    /// The command line or a file is invalid.
    Usage,
    /// The component was refused, or refuses its cloud-config.
    Refused,
    /// The cluster cannot be reached.
    Unreachable,
    /// A plan has changes, or a replayed call has differences.
    Changes,
}

impl Reason {
    const fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Unreachable => 4,
            Self::Changes => 5,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed",
            Self::Usage => "wrong input",
            Self::Refused => "component refused",
            Self::Unreachable => "cluster unreachable",
            Self::Changes => "changes",
        })
    }
}

/// Marks an error with the exit code it leads to; unmarked errors are [`Reason::Failed`].
#[derive(Debug)]
pub(crate) struct Marked {
    reason: Reason,
    source: anyhow::Error,
}

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The mark only selects the exit code; the text is that of the error.
        fmt::Display::fmt(&self.source, f)
    }
}

impl std::error::Error for Marked {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}

/// Adds the exit code to an error.
pub(crate) trait MarkExt<T> {
    /// Marks the error, if there is one.
    fn or_exit(self, reason: Reason) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> MarkExt<T> for Result<T, E> {
    fn or_exit(self, reason: Reason) -> anyhow::Result<T> {
        self.map_err(|error| anyhow::Error::new(Marked { reason, source: error.into() }))
    }
}

/// Prints the error with its causes and gives the exit code.
pub(crate) fn code_of(outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    let reason = error.chain().find_map(|cause| cause.downcast_ref::<Marked>()).map_or(Reason::Failed, |m| m.reason);
    // A closed standard error is ignored. `plain` keeps the error on one line: it can contain file
    // names, keys and text of a cloud.
    drop(writeln!(std::io::stderr().lock(), "skysail: {}", output::plain(&format!("{error:#}"))));
    ExitCode::from(reason.code())
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::{MarkExt as _, Marked, Reason};

    #[test]
    fn a_mark_survives_context_and_does_not_change_the_text() {
        let error = Err::<(), _>(anyhow!("no such file")).or_exit(Reason::Usage).context("reading a.yaml").unwrap_err();
        let marked = error.chain().find_map(|cause| cause.downcast_ref::<Marked>()).unwrap();
        assert_eq!(marked.reason, Reason::Usage);
        assert_eq!(format!("{error:#}"), "reading a.yaml: no such file");
    }

    #[test]
    fn the_help_text_names_every_code() {
        for reason in [Reason::Failed, Reason::Usage, Reason::Refused, Reason::Unreachable, Reason::Changes] {
            assert!(super::HELP.contains(&format!("\n  {}  ", reason.code())), "{reason}");
        }
    }
}
