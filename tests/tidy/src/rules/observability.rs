//! Checks that the page for operators names each metric and each Event, and no others.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    rule::{Hit, Rule},
    tree::File,
};

/// The page.
const PAGE: &str = "deploy/docs/observability.md";
/// The reasons of the controllers' Events: constants in the module `reasons`.
const REASONS: &str = "runtime/controllers/src/names.rs";
/// The reasons of the Events about Providers, as literals, and those that conditions have too, as
/// constants.
const PROVIDER_EVENTS: &str = "runtime/skysail/src/commands/run/resources/events.rs";
const PROVIDER_CONDITIONS: &str = "runtime/skysail/src/commands/run/resources/status.rs";
/// The reason of the Event about the Lease.
const LEASE: &str = "runtime/election/src/event.rs";
/// The types of conditions, which are no reasons.
const CONDITIONS: [&str; 5] = ["Ready", "ReleaseAccepted", "Progressing", "Degraded", "LoadBalancersRetained"];

pub(crate) const METRICS_DOCUMENTED: Rule = Rule {
    name: "metrics-documented",
    why: "an operator writes dashboards and alerts from the page, and takes a metric without a row for an accident",
    remedy: "one row `| metric | labels | meaning |` for each metric, under the name that /metrics serves",
    check: |tree| {
        let Some(page) = tree.get(PAGE) else { return vec![Hit::new(PAGE, 0, "there is no page")] };
        let is_test = |file: &File| tree.reached().get(&file.path) == Some(&true);
        let sources = tree.files.iter().filter(|file| file.path.starts_with("runtime/") && !is_test(file));
        let served: BTreeMap<_, _> = sources.flat_map(metrics).collect();
        let rows = rows(page).map(|(line, name)| (name.trim_end_matches("_total").trim_end_matches("_info"), line));
        let rows = rows.filter(|(name, _)| is_metric(name)).collect();
        compared(&served, &rows)
    },
};

pub(crate) const EVENTS_DOCUMENTED: Rule = Rule {
    name: "events-documented",
    why: "a user meets an Event first by its reason, and searches for that word",
    remedy: "one row `| reason | type | about | meaning |` for each reason",
    check: |tree| {
        let Some(page) = tree.get(PAGE) else { return vec![Hit::new(PAGE, 0, "there is no page")] };
        let files =
            [REASONS, LEASE, PROVIDER_EVENTS, PROVIDER_CONDITIONS].into_iter().filter_map(|path| tree.get(path));
        let emitted = files.flat_map(reasons).collect();
        let rows = rows(page).filter(|(_, name)| is_reason(name)).map(|(line, name)| (name, line)).collect();
        compared(&emitted, &rows)
    },
};

/// The alerts and the dashboard of the chart.
const ALERTS: &str = "deploy/chart/files/alerts.yaml";
const DASHBOARD: &str = "deploy/chart/files/dashboard.json";
/// Words with an underscore in an expression that are no metrics.
const NO_METRICS: [&str; 4] = ["count_over_time", "histogram_quantile", "label_values", "__rate_interval"];

pub(crate) const ALERTS_DOCUMENTED: Rule = Rule {
    name: "alerts-documented",
    why: "an alert without a row tells nobody what to do, and an alert on a metric that nothing serves never fires",
    remedy: "one row `| expression | for | meaning | what to do |` for each alert of the chart, and metrics that have a row",
    check: |tree| {
        let (Some(page), Some(alerts)) = (tree.get(PAGE), tree.get(ALERTS)) else {
            return vec![Hit::new(ALERTS, 0, "there is no page, or there are no alerts")];
        };
        let documented: BTreeMap<_, _> =
            rows(page).filter(|(_, cell)| cell.contains([' ', '('])).map(|(line, cell)| (cell, line)).collect();
        let fires: BTreeMap<String, (String, usize)> = expressions(alerts)
            .map(|(line, expression)| (expression.to_owned(), (alerts.path.clone(), line)))
            .collect();
        let mut hits = compared(&fires, &documented);
        let metrics: BTreeSet<_> = rows(page).map(|(_, name)| name).collect();
        for file in [Some(alerts), tree.get(DASHBOARD)].into_iter().flatten() {
            for (number, expression) in expressions(file) {
                let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let words = words.filter(|word| word.contains('_') && !NO_METRICS.contains(word));
                let unknown = words.filter(|word| !metrics.contains(word.trim_end_matches("_bucket")));
                hits.extend(unknown.map(|word| Hit::new(&file.path, number, format!("{PAGE} has no metric {word}"))));
            }
        }
        hits
    },
};

/// The expressions of alerts or of panels, one on a line.
fn expressions(file: &File) -> impl Iterator<Item = (usize, &str)> {
    file.lines().filter_map(|(number, line)| {
        let yaml = line.trim_start().strip_prefix("expr: ");
        let json = || Some(line.split_once("\"expr\": \"")?.1.split_once("\",")?.0);
        Some((number, yaml.or_else(json)?))
    })
}

/// Names of the program without a row, and rows without a name of the program.
fn compared(program: &BTreeMap<String, (String, usize)>, rows: &BTreeMap<&str, usize>) -> Vec<Hit> {
    let missing = program.iter().filter(|(name, _)| !rows.contains_key(name.as_str()));
    let missing = missing.map(|(name, (path, line))| Hit::new(path, *line, format!("{PAGE} has no row for {name}")));
    let surplus = rows.iter().filter(|(name, _)| !program.contains_key(**name));
    missing.chain(surplus.map(|(name, line)| Hit::new(PAGE, *line, format!("the program has no {name}")))).collect()
}

/// The first cells of the tables that are one quoted word.
fn rows(page: &File) -> impl Iterator<Item = (usize, &str)> {
    page.lines().filter_map(|(number, line)| {
        let cell = line.strip_prefix("| `")?.split('|').next()?;
        Some((number, cell.trim().strip_suffix('`')?))
    })
}

fn is_metric(name: &str) -> bool {
    name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn is_reason(name: &str) -> bool {
    let camel = name.starts_with(|c: char| c.is_ascii_uppercase()) && name.contains(|c: char| c.is_ascii_lowercase());
    camel && name.chars().all(char::is_alphanumeric)
}

/// The metrics that a file registers or encodes, with the suffix of their unit and without that of
/// their type, and where.
fn metrics(file: &File) -> Vec<(String, (String, usize))> {
    let Some(source) = file.source.as_ref().filter(|source| source.code.contains("prometheus_client::")) else {
        return Vec::new();
    };
    let literals = || source.literals.iter().filter(|(line, _)| !source.is_test(*line));
    let encodes = source.code.contains("encode_descriptor(");
    let mut found: Vec<_> =
        literals().filter(|(_, text)| encodes && is_metric(text)).map(|(line, text)| (text.clone(), *line)).collect();
    let prefix = source.lines().find(|(_, line)| line.contains("sub_registry_with_prefix(")).map(|(number, _)| number);
    let prefix = prefix.and_then(|number| literals().find(|(line, _)| *line == number));
    for (number, line) in source.lines().filter(|(number, _)| !source.is_test(*number)) {
        if !line.contains(".register(") && !line.contains(".register_with_unit(") {
            continue;
        }
        // The name is the first literal of the call, and `let help = …` stands above it.
        let Some((_, name)) = literals().find(|(line, _)| *line >= number) else { continue };
        if !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            // Another thing is registered.
            continue;
        }
        let call: String = source.code.lines().skip(number - 1).take(6).collect();
        let call = call.split(';').next().unwrap_or_default();
        let unit = [("Unit::Seconds", "_seconds"), ("Unit::Bytes", "_bytes")].into_iter();
        let unit = unit.filter(|(unit, _)| call.contains(unit)).map(|(_, suffix)| suffix).collect::<String>();
        let prefix = prefix.map(|(_, prefix)| format!("{prefix}_")).unwrap_or_default();
        found.push((format!("{prefix}{name}{unit}"), number));
    }
    found.into_iter().map(|(name, line)| (name, (file.path.clone(), line))).collect()
}

/// The literals of a file that are reasons of Events, and where.
fn reasons(file: &File) -> Vec<(String, (String, usize))> {
    let Some(source) = &file.source else { return Vec::new() };
    let code: Vec<&str> = source.lines().map(|(_, line)| line).collect();
    // In the file of all names only those of the module `reasons`.
    let begin = code.iter().position(|line| line.contains("mod reasons"));
    let end = begin.and_then(|begin| code.iter().skip(begin).position(|line| *line == "}").map(|at| begin + at));
    let is_inside = |line: usize| begin.is_none_or(|begin| begin < line) && end.is_none_or(|end| line <= end);
    let is_constant = |line: usize| code.get(line - 1).is_some_and(|code| code.contains("const "));
    let counts = |line: usize| is_inside(line) && (file.path != PROVIDER_CONDITIONS || is_constant(line));
    let literals = source.literals.iter().filter(|(line, _)| !source.is_test(*line) && counts(*line));
    let reasons = literals.filter(|(_, text)| is_reason(text) && !CONDITIONS.contains(&text.as_str()));
    // One word is a condition's status or a prefix.
    let reasons =
        reasons.filter(|(_, text)| begin.is_some() || text.chars().filter(char::is_ascii_uppercase).count() > 1);
    reasons.map(|(line, text)| (text.clone(), (file.path.clone(), *line))).collect()
}
