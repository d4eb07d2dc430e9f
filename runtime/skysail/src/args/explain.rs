//! The arguments of `skysail explain`.

use std::ffi::OsStr;

use clap::{
    Arg, Args, Command, Subcommand, ValueEnum,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

use super::{ManagerArgs, QuietLogArgs};
use crate::pages;

const HELP: &str = "\
A name is a code of an error, a refused release or a source, a reason of an
Event, a condition of a Provider, a metric, a limit, a flag or a word of the
glossary. The text is that of the documents of this version.

Examples:
  skysail explain                        list all names
  skysail explain LinkFailed
  skysail explain ReleaseRefused fuel --drift-repair-period
  skysail explain service --help         why a Service has no load balancer";

const SERVICE_HELP: &str = "\
The answer is about this moment: which provider owns the Service and why, the
next step and its reason, when the next run is and what ends the wait, how the
last run ended, and the last three calls of a provider with their requests to
the cloud. Requests are shown without queries, headers and bodies.

Only the leader knows: another replica answers with the name of the leader. The
answer is from the memory of the process, which a restart empties.

Examples:
  kubectl -n skysail-system port-forward deploy/skysail 10258 &
  kubectl -n default create token operator >token
  skysail explain service default/web --server https://127.0.0.1:10258 \\
    --token-file token --insecure-skip-tls-verify

Required permission: get the path /services/*. deploy/docs/troubleshooting.md
shows how to create such an account.";

/// `skysail explain`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct ExplainArgs {
    #[command(subcommand)]
    pub(crate) object: Option<ExplainObject>,
    /// Names, in any case. Without one all names are listed.
    #[arg(value_name = "NAME", value_parser = Name, allow_hyphen_values = true, hide_possible_values = true)]
    pub(crate) names: Vec<String>,
}

/// An object of the cluster that a manager explains.
#[derive(Debug, Subcommand)]
pub(crate) enum ExplainObject {
    /// Explain why a Service has, or has not, its load balancer.
    Service(Box<ExplainServiceArgs>),
}

/// `skysail explain service`.
#[derive(Debug, Args)]
#[command(after_long_help = SERVICE_HELP)]
pub(crate) struct ExplainServiceArgs {
    /// The Service; without a namespace the one in the namespace `default`.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = object_path)]
    pub(crate) service: ObjectPath,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: DocumentFormat,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}

/// How a document is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentFormat {
    /// Human-readable text.
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectPath {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Parses `NAMESPACE/NAME` or `NAME`, of the characters that a name in Kubernetes has: the path of
/// the request has no others.
fn object_path(text: &str) -> Result<ObjectPath, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    let named = |part: &str| {
        let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        !part.is_empty() && part.len() <= 253 && part.chars().all(valid) && !matches!(part, "." | "..")
    };
    match named(namespace) && named(name) {
        true => Ok(ObjectPath { namespace: namespace.to_owned(), name: name.to_owned() }),
        false => Err(format!("{text:?} is not the name of a Service; write NAMESPACE/NAME, such as default/web")),
    }
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{ExplainObject, ObjectPath, object_path};
    use crate::args::{Args, Command};

    fn parsed(words: &[&str]) -> super::ExplainArgs {
        let args = Args::try_parse_from([&["skysail", "explain"], words].concat()).unwrap();
        let Command::Explain(args) = args.command else { panic!("{words:?} is another command") };
        args
    }

    #[test]
    fn a_name_without_a_namespace_is_in_the_namespace_default() {
        let path = |namespace: &str, name: &str| ObjectPath { namespace: namespace.to_owned(), name: name.to_owned() };
        assert_eq!(object_path("web"), Ok(path("default", "web")));
        assert_eq!(object_path("shop/web-1"), Ok(path("shop", "web-1")));
        for wrong in ["", "/", "a/", "/web", "a/b/c", "a/..", "a?b", "Web", "a b", "default/we%62"] {
            let error = object_path(wrong).unwrap_err();
            assert!(error.contains("write NAMESPACE/NAME"), "{error}");
        }
    }

    #[test]
    fn the_word_service_asks_for_an_object_and_other_words_are_names() {
        let args = parsed(&["service", "web", "--server", "https://m:1"]);
        assert!(matches!(args.object, Some(ExplainObject::Service(_))) && args.names.is_empty());
        let args = parsed(&["LinkFailed", "--drift-repair-period", "fuel"]);
        assert!(args.object.is_none());
        assert_eq!(args.names, ["LinkFailed", "--drift-repair-period", "fuel"]);
        assert!(parsed(&[]).names.is_empty());
    }
}
