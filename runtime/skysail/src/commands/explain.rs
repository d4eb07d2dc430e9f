//! `skysail explain`: what a name in a message means and what to do about it, or why a Service has,
//! or has not, its load balancer.

mod page;
mod service;

pub(super) use self::service::unsettled;

use std::fmt::Write as _;

use anyhow::anyhow;

use crate::{
    args::{ExplainArgs, ExplainObject},
    exit::{MarkExt as _, Reason},
    output,
    pages::{self, Entry},
};

/// Names that an error proposes in place of an unknown one.
const PROPOSED_MAX: usize = 5;

/// Prints the rows of the documents about each name, or all names, or the explanation of an object.
///
/// # Errors
/// No document has a name, the manager does not explain the object, or the text cannot be written.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    if let Some(ExplainObject::Service(args)) = &args.object {
        return service::run(args);
    }
    let entries = pages::entries();
    let text = if args.names.is_empty() {
        listed(&entries)
    } else {
        explained(&entries, &args.names).or_exit(Reason::Usage)?
    };
    output::print(text.as_bytes())
}

/// The names by page and heading.
fn listed(entries: &[Entry]) -> String {
    let mut text = String::new();
    for table in entries.chunk_by(|one, next| (one.page, one.heading) == (next.page, next.heading)) {
        let names: Vec<_> = table.iter().flat_map(|entry| entry.names.iter().copied()).collect();
        let heading = table.first().map(|entry| (entry.heading, entry.page)).unwrap_or_default();
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "{} ({})\n  {}\n", heading.0, heading.1, names.join(" "));
    }
    text
}

fn explained(entries: &[Entry], names: &[String]) -> anyhow::Result<String> {
    let mut blocks = Vec::new();
    for name in names {
        // As a message has it: [LinkFailed].
        let bare = name.trim_matches(['[', ']', '"', '`']);
        let found: Vec<_> =
            entries.iter().filter(|entry| entry.names.iter().any(|known| known.eq_ignore_ascii_case(bare))).collect();
        if found.is_empty() {
            return Err(unknown(entries, bare));
        }
        blocks.extend(found.into_iter().map(block));
    }
    Ok(blocks.join("\n"))
}

fn block(entry: &Entry) -> String {
    let mut text = format!("{} ({})\n", entry.names.join(", "), entry.kind);
    for (head, cell) in &entry.columns {
        let colon = if head.is_empty() { "" } else { ": " };
        let _infallible = writeln!(text, "  {head}{colon}{cell}");
    }
    let _infallible = writeln!(text, "  see: {}, {}", entry.page, entry.heading);
    text
}

fn unknown(entries: &[Entry], name: &str) -> anyhow::Error {
    let wanted = name.to_ascii_lowercase();
    let known = entries.iter().flat_map(|entry| entry.names.iter().copied());
    let near: Vec<_> = known.filter(|known| known.to_ascii_lowercase().contains(&wanted)).take(PROPOSED_MAX).collect();
    let near = if near.is_empty() { String::new() } else { format!(", such as {}", near.join(", ")) };
    anyhow!("{name}: no document explains it; choose a name that `skysail explain` lists{near}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{explained, listed};
    use crate::pages::entries;

    #[rstest]
    #[case("LinkFailed", "rollouts.md, Codes of a refused release")]
    #[case("[linkfailed]", "run skysail inspect")]
    #[case("ConfigMapMissing", "create the ConfigMap")]
    #[case("denied", "who has to act: the operator")]
    #[case("ReleaseRefused", "the offered release does not serve")]
    #[case("Degraded", "True when: ")]
    #[case("skysail_slot_serving", "1 while a release serves")]
    #[case("fuel", "range: 100,000 to 1,000,000,000,000")]
    #[case("--provider-resources", "default: false")]
    #[case("breaker", "the rule that stops node deletions")]
    fn a_name_of_each_kind_is_explained(#[case] name: &str, #[case] has: &str) {
        let text = explained(&entries(), &[name.to_owned()]).unwrap();
        assert!(text.contains(has), "{text}");
    }

    #[test]
    fn an_unknown_name_is_an_error_with_names_that_are_like_it() {
        let error = explained(&entries(), &["Link".to_owned()]).unwrap_err().to_string();
        assert_eq!(
            error,
            "Link: no document explains it; choose a name that `skysail explain` lists, such as LinkFailed"
        );
        let error = explained(&entries(), &["no such name".to_owned()]).unwrap_err().to_string();
        assert!(error.ends_with("`skysail explain` lists"), "{error}");
    }

    #[test]
    fn the_list_has_each_table_once() {
        let text = listed(&entries());
        assert_eq!(text.matches("Codes of a refused release (deploy/docs/rollouts.md)\n").count(), 1, "{text}");
    }
}
