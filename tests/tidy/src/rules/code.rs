//! Rules for code: names in Kubernetes objects, words of the glossary, conversions, errors, bounds.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    rule::{Hit, Rule},
    source::{Source, find_word, function_name, type_name},
    tree::{File, Tree},
};

pub(crate) const KUBERNETES_NAMES: Rule = Rule {
    name: "kubernetes-names",
    why: "a finalizer, taint, label or annotation that is written in two places will differ one day",
    remedy: "a documented constant in names.rs or annotations.rs",
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
                // The literal has to be the name alone: not a sentence with it, not a domain.
                let domain = text.split_once('/').filter(|(_, name)| !name.is_empty()).map_or("", |(domain, _)| domain);
                let ours = ["kubernetes.io", "k8s.io", "skysail.dev"].iter().any(|ours| domain.ends_with(ours));
                let is_name = ours && !text.contains(' ');
                if is_name && !source.is_test(*line) {
                    hits.push(Hit::new(&file.path, *line, format!("the literal {text:?}")));
                }
            }
        }
        hits
    },
};

/// Beginnings of function names that say nothing about the function.
const VAGUE: &[&str] = &["sync", "process", "handle", "do"];

pub(crate) const GLOSSARY: Rule = Rule {
    name: "glossary",
    why: "one word, one meaning: upstream's reconcile, ensure, update, delete, initialise say what happens; sync, process, handle, do do not; two types of one name are two meanings",
    remedy: "use the word of upstream's Go code, and another word for the second type",
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
        hits.extend(second_meanings(tree));
        hits
    },
};

/// Words of the glossary that name several types on purpose: the same thing as a setting, a state
/// and a status, as a trait and its implementation, or in the simulated cloud.
const SAME_THING: &[&str] = &["Canary", "Instance", "Probation", "Release", "Shadow"];

/// Types named by a word of the glossary that another type has as its name, too.
fn second_meanings(tree: &Tree) -> Vec<Hit> {
    let glossary = tree.files.iter().filter(|file| file.path == "deploy/docs/glossary.md");
    let words = glossary.flat_map(File::lines).filter_map(|(_, line)| line.strip_prefix("| ")?.split(" | ").next());
    let camel_case = |word: &str| {
        let parts = word.split(' ').map(|part| part[..1].to_uppercase() + &part[1..]);
        parts.collect::<String>()
    };
    let words = words.map(camel_case).flat_map(|word| [format!("{word}s"), word]);
    let words: BTreeSet<_> = words.filter(|word| !SAME_THING.contains(&word.as_str())).collect();
    let mut types = BTreeMap::<&str, Vec<Hit>>::new();
    for (file, source) in product(tree, "runtime/") {
        for (number, line) in source.lines().filter(|(number, _)| !source.is_test(*number)) {
            // An alias and an associated type are no other types.
            let is_another = line.split_whitespace().all(|word| word != "type");
            if let Some(word) = type_name(line).filter(|_| is_another).and_then(|name| words.get(name)) {
                let what = format!("a second type called `{word}`, a word of the glossary");
                types.entry(word).or_default().push(Hit::new(&file.path, number, what));
            }
        }
    }
    types.into_values().filter(|hits| hits.len() > 1).flatten().collect()
}

pub(crate) const EXHAUSTIVE_CONVERSIONS: Rule = Rule {
    name: "exhaustive-conversions",
    why: "a conversion that skips fields with `..` silently loses the fields that the next version adds",
    remedy: "name every field, `_` for one that is left out on purpose with the reason beside it",
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
    why: "a message with the chain of causes contains the cause twice",
    remedy: "say what was tried; leave the cause to #[source]",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/").chain(product(tree, "guest-sdk/")) {
            hits.extend(display_causes(source).into_iter().map(|(line, what)| Hit::new(&file.path, line, what)));
        }
        hits
    },
};

/// `{source}` in an `#[error]`, and `{0}` in one whose first tuple field is a `#[source]` or
/// `#[from]`.
fn display_causes(source: &Source) -> Vec<(usize, String)> {
    let lines: Vec<_> = source.lines().collect();
    let mut found = Vec::new();
    for (number, _) in lines.iter().filter(|(_, line)| line.contains("#[error(")) {
        let Some((at, text)) = source.literals.iter().find(|(at, _)| at >= number) else { continue };
        // The variant or struct of the attribute: at most three lines, up to the next `#[error]`.
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

/// Beginnings of a remedy.
const REMEDIES: &[&str] = &["give", "write", "set", "run", "name the", "build", "push", "offer"];

pub(crate) const REMEDY_AFTER_SEMICOLON: Rule = Rule {
    name: "remedy-after-semicolon",
    why: "a message is \"thing: reason; remedy\"; with colons only, a reader cannot tell the reason from the remedy",
    remedy: "a semicolon before the remedy",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/") {
            for (line, text) in source.literals.iter().filter(|(line, _)| !source.is_test(*line)) {
                if let Some(remedy) = REMEDIES.iter().find(|remedy| text.contains(&format!(": {remedy} "))) {
                    hits.push(Hit::new(&file.path, *line, format!("\": {remedy}\" in {text:?}")));
                }
            }
        }
        hits
    },
};

pub(crate) const BOUNDED: Rule = Rule {
    name: "bounded",
    why: "a queue without a bound grows without limit when its consumer is slow",
    remedy: "a bounded channel whose size is a named constant with its reason",
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
    remedy: "return `Action::requeue`, or let the queue's backoff decide",
    check: |tree| {
        let mut hits = Vec::new();
        // A request that waits for its turn is no reconcile that waits for a retry.
        let is_client = |file: &File| file.path == "runtime/controllers/src/throttle.rs";
        for (file, source) in product(tree, "runtime/controllers/").filter(|(file, _)| !is_client(file)) {
            for (number, line) in source.lines().filter(|(number, _)| !source.is_test(*number)) {
                if ["sleep", "sleep_until"].iter().any(|name| find_word(line, name).is_some()) {
                    hits.push(Hit::new(&file.path, number, "a sleep in a controller"));
                }
            }
        }
        hits
    },
};

pub(crate) const PURE_STEPS: Rule = Rule {
    name: "pure-steps",
    why: "a pure step can be tested by its values alone, and cannot block a reconcile",
    remedy: "pass the values as parameters, or remove the mark (pure) from the file's first line",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/controllers/") {
            let marked =
                file.lines().next().is_some_and(|(_, first)| first.starts_with("//!") && first.contains("(pure)"));
            for (number, line) in source.lines().filter(|(number, _)| marked && !source.is_test(*number)) {
                let words = ["async", "await", "Client", "Instant", "SystemTime"];
                if let Some(word) = words.iter().find(|word| find_word(line, word).is_some()) {
                    hits.push(Hit::new(&file.path, number, format!("`{word}` in a pure step")));
                }
            }
        }
        hits
    },
};

/// Lines of a `reconcile` and its documentation in which the marks are expected.
const RECONCILE_LINES_MAX: usize = 70;

pub(crate) const STEPS_MARKED: Rule = Rule {
    name: "steps-marked",
    why: "the marks in `reconcile` show which steps call the API server, which call the cloud, and which call neither",
    remedy: "a comment on each step: (pure), (client), (provider), or two of them",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/controllers/") {
            let found = source
                .lines()
                .find(|(number, line)| !source.is_test(*number) && function_name(line) == Some("reconcile"));
            let Some((number, _)) = found else { continue };
            let near: Vec<_> =
                file.text.lines().skip(number.saturating_sub(20)).take(RECONCILE_LINES_MAX + 20).collect();
            let marks = |mark: &str| near.iter().any(|line| line.contains("//") && line.contains(&format!("({mark}")));
            if !marks("pure") || !(marks("client") || marks("provider")) {
                hits.push(Hit::new(&file.path, number, "the steps of `reconcile` are not marked"));
            }
        }
        hits
    },
};

/// The entities with which a dotted field of a log line or span may begin.
const ENTITIES: &[&str] = &[
    "provider",
    "service",
    "node",
    "route",
    "object",
    "component",
    "release",
    "call",
    "http",
    "limit",
    "source",
    "slot",
    "egress",
    "credential",
    "guest",
    "lease",
    "config",
    "controller",
    // As OpenTelemetry's conventions name them.
    "error",
    "url",
];

pub(crate) const TELEMETRY_FIELDS: Rule = Rule {
    name: "telemetry-fields",
    why: "a field with two different names cannot be queried",
    remedy: "`entity.property` with an entity of the list ENTITIES in tests/tidy/src/rules/code.rs; the unit at the end",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, source) in product(tree, "runtime/") {
            for (number, name) in fields(&source.code).into_iter().filter(|(number, _)| !source.is_test(*number)) {
                if !ENTITIES.contains(&name.split('.').next().unwrap_or_default()) {
                    hits.push(Hit::new(&file.path, number, format!("the field `{name}`")));
                }
            }
        }
        hits
    },
};

/// Names with dots before a `=` inside tracing's macros, with their lines.
fn fields(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for kind in ["trace!(", "debug!(", "info!(", "warn!(", "error!(", "event!(", "span!("] {
        for (start, _) in code.match_indices(kind) {
            let rest = &code[start + kind.len()..];
            let mut depth = 1usize;
            let end = rest.find(|c: char| {
                depth = depth + usize::from(c == '(') - usize::from(c == ')');
                depth == 0
            });
            let arguments = &rest[..end.unwrap_or(rest.len())];
            for (at, _) in arguments.match_indices(" = ") {
                let name = arguments[..at]
                    .rsplit(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.'))
                    .next()
                    .unwrap_or_default();
                if name.contains('.') {
                    found.push((code[..start + kind.len() + at].matches('\n').count() + 1, name));
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Rust files below a folder that production code reaches.
fn product<'a>(tree: &'a Tree, folder: &'a str) -> impl Iterator<Item = (&'a File, &'a Source)> {
    let reached = tree.reached();
    tree.rust()
        .filter(move |(file, _)| file.path.starts_with(folder) && reached.get(&file.path).is_none_or(|test| !*test))
}
