//! The binary under the names by which kubectl finds a plugin: `kubectl-skysail` is run for
//! `kubectl skysail`, and `kubectl_complete-skysail` for the completion of its command line.
//! Source of both: `pkg/cmd/plugin` and `pkg/cmd/plugin_completion.go` of kubectl.

use std::{
    ffi::{OsStr, OsString},
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _};
use clap_complete::engine::{CompletionCandidate, complete};
use skysail_provider::text::is_plain;

use crate::{args::Args, output};

const PLUGIN: &str = "kubectl-skysail";
const COMPLETION: &str = "kubectl_complete-skysail";

/// `ShellCompDirectiveNoFileComp` of Cobra: the shell offers no names of files.
const NO_FILES: u8 = 4;
/// `ShellCompDirectiveNoSpace` of Cobra: what was completed goes on, such as a folder.
const NO_SPACE: u8 = 2;

/// By which name this process was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CalledAs {
    /// `kubectl-skysail`: help and errors say `kubectl skysail`.
    Plugin,
    /// `kubectl_complete-skysail`.
    Completion,
    /// Any other name, usually `skysail`.
    Program,
}

impl CalledAs {
    /// The name of the program file in the first argument of the process.
    pub(crate) fn of(program: Option<OsString>) -> Self {
        let path = program.map(PathBuf::from).unwrap_or_default();
        match path.file_name().and_then(OsStr::to_str) {
            Some(PLUGIN) => Self::Plugin,
            Some(COMPLETION) => Self::Completion,
            _ => Self::Program,
        }
    }
}

/// The command line; a wrong one ends the process with a usage message.
pub(crate) fn parse(called_as: CalledAs) -> Args {
    let command = match called_as {
        CalledAs::Plugin => Args::command().bin_name("kubectl skysail"),
        CalledAs::Completion | CalledAs::Program => Args::command(),
    };
    Args::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

/// Prints what can stand in place of the last word, as kubectl expects it of a plugin.
///
/// # Errors
/// The candidates cannot be found or written.
pub(crate) fn print_candidates(words: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let words: Vec<_> = std::iter::once(OsString::from("skysail")).chain(words).collect();
    let folder = std::env::current_dir().unwrap_or_default();
    let last = words.len().saturating_sub(1);
    let word = words.last().and_then(|word| word.to_str()).unwrap_or_default().to_owned();
    let found = complete(&mut Args::command(), words, last, Some(&folder))
        .context("cannot complete the command line of kubectl skysail")?;
    output::print(answer(&word, &found, &folder).as_bytes())
}

/// A line for each candidate of the word with its help, and Cobra's directive in the last line.
fn answer(word: &str, candidates: &[CompletionCandidate], folder: &Path) -> String {
    let mut lines = String::new();
    let mut directive = NO_FILES;
    // Cobra's scripts complete what follows the flag and its sign of equality.
    let flag = word.split_inclusive('=').next().filter(|flag| flag.starts_with('-') && flag.ends_with('='));
    for candidate in candidates {
        // The name of a file may have characters that a terminal obeys.
        let Some(value) = candidate.get_value().to_str().filter(|value| is_plain(value)) else { continue };
        let value = flag.and_then(|flag| value.strip_prefix(flag)).unwrap_or(value);
        if folder.join(value).exists() {
            // The shell expands what the user typed, such as ~, before it asks.
            directive &= !NO_FILES;
        }
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        let gap = if help.is_empty() { "" } else { "\t" };
        // Writing to a String does not fail.
        let _written = writeln!(lines, "{value}{gap}{help}");
        if value.ends_with('/') {
            directive |= NO_SPACE;
        }
    }
    let _written = writeln!(lines, ":{directive}");
    lines
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap_complete::engine::CompletionCandidate;
    use rstest::rstest;

    use super::{CalledAs, answer};

    #[rstest]
    #[case::plugin(Some("/usr/local/bin/kubectl-skysail"), CalledAs::Plugin)]
    #[case::completion(Some("kubectl_complete-skysail"), CalledAs::Completion)]
    #[case::program(Some("./skysail"), CalledAs::Program)]
    #[case::other_plugin(Some("kubectl-skysail-status"), CalledAs::Program)]
    #[case::no_name(None, CalledAs::Program)]
    fn the_name_of_the_program_file_decides(#[case] program: Option<&str>, #[case] expected: CalledAs) {
        assert_eq!(CalledAs::of(program.map(Into::into)), expected);
    }

    #[test]
    fn a_candidate_is_one_line_and_the_last_line_is_the_directive() {
        let described = CompletionCandidate::new("status").help(Some("Show the state.\nMore.".into()));
        let hostile = CompletionCandidate::new("a\u{1b}[2J\n:1");
        let folder = Path::new("/nonexistent");
        assert_eq!(answer("st", &[described, hostile], folder), "status\tShow the state.\n:4\n");
        assert_eq!(answer("", &[], folder), ":4\n");
    }

    #[test]
    fn a_value_behind_its_flag_is_completed_without_the_flag() {
        let found = [CompletionCandidate::new("--output=wide")];
        assert_eq!(answer("--output=wi", &found, Path::new("/nonexistent")), "wide\n:4\n");
    }

    #[test]
    fn a_path_leaves_the_rest_to_the_shell() {
        assert_eq!(answer("/", &[CompletionCandidate::new("/tmp/")], Path::new("/")), "/tmp/\n:2\n");
    }
}
