//! What may stand in the code: names that Kubernetes sees, words of the glossary, conversions, errors, bounds.

use crate::{
    rule::{Hit, Rule},
    source::{Source, find_word, function_name},
    tree::{File, Tree},
};

pub(crate) const KUBERNETES_NAMES: Rule = Rule {
    name: "kubernetes-names",
    why: "a finalizer, taint, label or annotation that is spelt in two places is one day spelt in two ways",
    way_out: "a documented constant in names.rs or annotations.rs",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/controllers/") {
            if matches!(file.name(), "names.rs" | "annotations.rs")
                || file.path.contains("/names/")
                || file.path.contains("/annotations/")
            {
                continue;
            }
            for (line, text) in &source.literals {
                let is_name = ["kubernetes.io", "k8s.io", "skysail.dev"].iter().any(|domain| text.contains(domain));
                if is_name && !source.is_test(*line) {
                    hits.push(Hit::new(&file.path, *line, format!("the literal {text:?}")));
                }
            }
        }
        hits
    },
};

/// Beginnings of function names that our field uses for everything.
const VAGUE: &[&str] = &["sync", "process", "handle", "do"];

pub(crate) const GLOSSARY: Rule = Rule {
    name: "glossary",
    why: "one word, one meaning: upstream's reconcile, ensure, update, delete, initialise say what happens; sync, process, handle, do do not",
    way_out: "the word that upstream's Go code has for it",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/controllers/") {
            for (number, line) in source.lines() {
                let Some(name) = function_name(line) else { continue };
                if VAGUE.contains(&name.split('_').next().unwrap_or_default()) {
                    hits.push(Hit::new(&file.path, number, format!("a function called `{name}`")));
                }
            }
        }
        hits
    },
};

pub(crate) const EXHAUSTIVE_CONVERSIONS: Rule = Rule {
    name: "exhaustive-conversions",
    why: "a conversion that skips fields with `..` loses the field that the next version adds, in silence",
    way_out: "name every field, `_` for one that is left out on purpose with the reason beside it",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/") {
            if file.name() != "convert.rs" && !file.path.contains("/convert/") {
                continue;
            }
            for (number, line) in source.lines().filter(|(number, _)| !source.is_test(*number)) {
                let line: String = line.split_whitespace().collect();
                if line.contains(",..}")
                    || line.contains("{..}")
                    || line.contains("..Default::default()")
                    || line == ".."
                {
                    hits.push(Hit::new(&file.path, number, "`..` skips fields"));
                }
            }
        }
        hits
    },
};

pub(crate) const NO_CAUSE_IN_DISPLAY: Rule = Rule {
    name: "no-cause-in-display",
    why: "whoever prints the chain prints the cause twice",
    way_out: "say what was tried; leave the cause to #[source]",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/").chain(product(tree, "guest-sdk/")) {
            hits.extend(display_causes(source).into_iter().map(|(line, what)| Hit::new(&file.path, line, what)));
        }
        hits
    },
};

/// `{source}` in an `#[error]`, and `{0}` in one whose first tuple field is a `#[source]` or `#[from]`.
fn display_causes(source: &Source) -> Vec<(usize, String)> {
    let lines: Vec<_> = source.lines().collect();
    let mut found = Vec::new();
    for (number, _) in lines.iter().filter(|(_, line)| line.contains("#[error(")) {
        let Some((at, text)) = source.literals.iter().find(|(at, _)| at >= number) else { continue };
        // The variant or struct that the attribute stands on: up to the next attribute of the kind, at most a few lines.
        let item = lines.iter().skip(*at).take(3).take_while(|(_, line)| !line.contains("#[error("));
        let item: String = item.map(|(_, line)| *line).collect();
        let first = item.split_once('(').map(|(_, fields)| fields.trim_start()).unwrap_or_default();
        let tuple = first.starts_with("#[source]") || first.starts_with("#[from]");
        if text.contains("{source") || (text.contains("{0") && tuple) {
            found.push((*at, format!("the cause is part of {text:?}")));
        }
    }
    found
}

pub(crate) const BOUNDED: Rule = Rule {
    name: "bounded",
    why: "a queue without a bound is a memory leak that waits for a slow consumer",
    way_out: "a bounded channel whose size is a named constant with its reason",
    check: |tree| {
        super::files::in_code(tree, |line| {
            let names = ["unbounded_channel", "unbounded", "UnboundedSender", "UnboundedReceiver"];
            names.iter().any(|name| find_word(line, name).is_some()).then_some("a channel without a bound")
        })
    },
};

pub(crate) const NO_SLEEP_IN_CONTROLLERS: Rule = Rule {
    name: "no-sleep-in-controllers",
    why: "a reconcile that sleeps holds a worker and forgets its wait when the process ends",
    way_out: "return `Action::requeue`, or let the queue's backoff decide",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/controllers/") {
            for (number, line) in source.lines().filter(|(number, _)| !source.is_test(*number)) {
                if ["sleep", "sleep_until"].iter().any(|name| find_word(line, name).is_some()) {
                    hits.push(Hit::new(&file.path, number, "a sleep in a controller"));
                }
            }
        }
        hits
    },
};

/// Rust files below a folder that are not only tests'.
fn product<'a>(tree: &'a Tree, folder: &'a str) -> impl Iterator<Item = (&'a File, &'a Source)> {
    let reached = tree.reached();
    tree.rust()
        .filter(move |(file, _)| file.path.starts_with(folder) && reached.get(&file.path).is_none_or(|test| !*test))
}
