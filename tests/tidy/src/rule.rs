//! The type of a rule, and the list of all rules.

use std::fmt;

use crate::{rules, tree::Tree};

/// One rule.
pub(crate) struct Rule {
    /// The name of the rule and of its fixture.
    pub(crate) name: &'static str,
    /// What goes wrong without it.
    pub(crate) why: &'static str,
    /// What to do instead.
    pub(crate) remedy: &'static str,
    /// Finds the violations.
    pub(crate) check: fn(&Tree) -> Vec<Hit>,
}

/// One place that violates a rule.
pub(crate) struct Hit {
    /// The path from the root of the repository.
    pub(crate) path: String,
    /// 1-based; 0 for the file as a whole.
    pub(crate) line: usize,
    /// The violation.
    pub(crate) what: String,
}

impl Hit {
    /// A violation at a place.
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

/// A violation with its rule, as it is printed.
pub(crate) struct Violation<'a>(pub(crate) &'a Rule, pub(crate) &'a Hit);

impl fmt::Display for Violation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(rule, hit) = self;
        writeln!(f, "{}:{}: {} [{}]", hit.path, hit.line, hit.what, rule.name)?;
        writeln!(f, "    why: {}", rule.why)?;
        write!(f, "    remedy: {}", rule.remedy)
    }
}

/// Every rule, in the order of the style sheet: crates, files, names, errors and limits, documents,
/// tests, repository.
pub(crate) const RULES: &[Rule] = &[
    rules::crates::INHERITS_WORKSPACE,
    rules::crates::ONE_TOOLCHAIN,
    rules::crates::ONE_VERSION,
    rules::crates::VERSIONS_ONCE,
    rules::crates::WHO_DEPENDS_ON_WHOM,
    rules::crates::IMPORT_TABLE,
    rules::cycles::NO_MODULE_CYCLES,
    rules::files::REACHABLE,
    rules::files::LENGTH,
    rules::files::MODULE_DOC,
    rules::files::NO_MOD_RS,
    rules::files::NO_ALLOW,
    rules::files::NO_LEFTOVERS,
    rules::code::KUBERNETES_NAMES,
    rules::code::GLOSSARY,
    rules::code::EXHAUSTIVE_CONVERSIONS,
    rules::code::NO_CAUSE_IN_DISPLAY,
    rules::code::REMEDY_AFTER_SEMICOLON,
    rules::code::BOUNDED,
    rules::code::NO_SLEEP_IN_CONTROLLERS,
    rules::code::PURE_STEPS,
    rules::code::STEPS_MARKED,
    rules::code::TELEMETRY_FIELDS,
    rules::prose::WIDTH,
    rules::prose::PLAIN_ENGLISH,
    rules::prose::NOUN_FIRST,
    rules::tests::NAMES,
    rules::tests::NONE_SILENCED,
    rules::tests::WAIT_FOR_CONDITIONS,
    rules::tests::ONE_BINARY,
    rules::tests::MUTATIONS_APPLY,
    rules::tests::MUTATIONS_LISTED,
    rules::tests::PROMISES_SHOWN,
    rules::tests::PROBES,
    rules::conformance::CONFORMANCE,
    rules::conformance::NAMED_TESTS,
    rules::observability::METRICS_DOCUMENTED,
    rules::observability::EVENTS_DOCUMENTED,
    rules::observability::ALERTS_DOCUMENTED,
    rules::repository::CONTRACT_DOCUMENTED,
    rules::repository::ARCHITECTURE,
    rules::repository::NO_LOCAL_PATHS,
    rules::repository::NO_REGISTRY_HOSTS,
    rules::repository::TOP_LEVEL,
    rules::repository::FILE_SIZE,
    rules::repository::CI_IS_MAKE_TEST,
];
