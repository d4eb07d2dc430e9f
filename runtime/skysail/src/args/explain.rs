//! The arguments of `skysail explain`.

use std::ffi::OsStr;

use clap::{
    Arg, Args, Command,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

use crate::pages;

const HELP: &str = "\
A name is a code of an error, a refused release or a source, a reason of an
Event, a condition of a Provider, a metric, a limit, a flag or a word of the
glossary. The text is that of the documents of this version.

Examples:
  skysail explain                        list all names
  skysail explain LinkFailed
  skysail explain ReleaseRefused fuel --drift-repair-period";

/// `skysail explain`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ExplainArgs {
    /// Names, in any case. Without one all names are listed.
    #[arg(value_name = "NAME", value_parser = Name, allow_hyphen_values = true, hide_possible_values = true)]
    pub(crate) names: Vec<String>,
}

/// Accepts any text, so that the command reports the error; a shell completes the known names.
#[derive(Clone)]
struct Name;

impl TypedValueParser for Name {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            pages::entries()
                .into_iter()
                .flat_map(|entry| entry.names)
                .filter(|name| !name.contains(char::is_whitespace))
                .map(PossibleValue::new),
        ))
    }
}
