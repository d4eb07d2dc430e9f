//! Checks that the map from upstream's test cases to our tests is complete and correct, and that
//! tests which other documents name exist.

use std::collections::BTreeSet;

use crate::{
    rule::{Hit, Rule},
    tree::{File, Tree},
};

/// The file of the map.
const MAP: &str = "tests/conformance/README.md";

/// Every case of upstream's tests, by group and number of cases; a group of none is one case. The
/// catalogue was made from kubernetes/cloud-provider at v0.36.2 and from the integration and
/// end-to-end tests of kubernetes/kubernetes.
const CATALOGUE: &[(&str, usize)] = &[
    // Service controller.
    ("S1", 8),
    ("S2", 7),
    ("S3", 10),
    ("S4", 5),
    ("S5", 3),
    ("S6", 2),
    ("S7", 2),
    ("S8", 2),
    ("S9", 3),
    ("S10", 4),
    ("S11", 0),
    ("S12", 15),
    ("S13", 0),
    ("S14", 8),
    ("S15", 10),
    ("S16", 0),
    ("S17", 21),
    ("S18", 27),
    ("S19", 3),
    // Node controller.
    ("N1", 22),
    ("N2", 3),
    ("N3", 5),
    ("N4", 2),
    ("N5", 6),
    ("N6", 4),
    // Node lifecycle controller.
    ("L1", 6),
    ("L2", 6),
    ("L3", 9),
    ("L4", 7),
    // Route controller.
    ("R1", 12),
    ("R2", 17),
    ("R3", 4),
    ("R4", 9),
    // Helpers.
    ("H1", 4),
    ("H2", 14),
    ("H3", 0),
    ("H4", 0),
    ("H5", 0),
    ("H6", 0),
    ("H7", 0),
    ("H8", 0),
    ("H9", 0),
    ("H10", 0),
    ("H11", 0),
    ("H12", 0),
    ("H13", 0),
    // Options and process, integration, end to end, behaviours without an upstream test: numbered
    // through.
    ("O#", 11),
    ("I#", 3),
    ("E#", 10),
    ("B#", 20),
];

pub(crate) const CONFORMANCE: Rule = Rule {
    name: "conformance",
    why: "an operator who replaces the Go manager relies on every case of upstream's tests; a case without a row may have been overlooked",
    remedy: "one row `| ID | path of the file | remark |`; the test's name begins with the ID (`S12.1` is `s12_1_`); `-` and a reason where it cannot apply",
    check: |tree| {
        let Some(map) = tree.get(MAP) else { return vec![Hit::new(MAP, 0, "there is no map")] };
        let mut hits = Vec::new();
        let mut mapped = BTreeSet::new();
        let catalogue: BTreeSet<String> = catalogue().collect();
        for (line, [id, tests, remark]) in rows(map) {
            if !catalogue.contains(id) {
                hits.push(Hit::new(MAP, line, format!("{id} is not a case of the catalogue")));
            }
            if !mapped.insert(id.to_owned()) {
                hits.push(Hit::new(MAP, line, format!("{id} has two rows")));
            }
            hits.extend(judge(tree, (id, tests, remark)).map(|what| Hit::new(MAP, line, what)));
        }
        hits.extend(catalogue.difference(&mapped).map(|id| Hit::new(MAP, 0, format!("{id} has no row"))));
        hits
    },
};

/// The fault of one row.
fn judge(tree: &Tree, (id, tests, remark): (&str, &str, &str)) -> Option<String> {
    if tests == "-" {
        return remark.is_empty().then(|| format!("{id} has neither a test nor a reason"));
    }
    let prefix = format!("{}_", id.to_ascii_lowercase().replace('.', "_"));
    tests.split(", ").find_map(|path| {
        let path = path.trim_matches('`');
        match tree.get(path) {
            None => Some(format!("{id}: there is no file {path:?}")),
            Some(file) if names(file).any(|name| name.starts_with(&prefix)) => None,
            Some(_) => Some(format!("{id}: no test in {path} begins with `{prefix}`")),
        }
    })
}

/// Rows of the tables whose first cell is an ID: number of the line, and three cells.
fn rows(map: &File) -> impl Iterator<Item = (usize, [&str; 3])> {
    map.lines().filter_map(|(number, line)| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let cells = [cells.next()?, cells.next()?, cells.next()?];
        let [id, ..] = cells;
        let is_id = id.starts_with(|c: char| c.is_ascii_uppercase()) && id.ends_with(|c: char| c.is_ascii_digit());
        is_id.then_some((number, cells))
    })
}

fn catalogue() -> impl Iterator<Item = String> {
    CATALOGUE.iter().flat_map(|(group, count)| {
        let one = move |number: usize| match (group.strip_suffix('#'), count) {
            (Some(letter), _) => format!("{letter}{number}"),
            (None, 0) => (*group).to_owned(),
            (None, _) => format!("{group}.{number}"),
        };
        (1..=(*count).max(1)).map(one)
    })
}

pub(crate) const NAMED_TESTS: Rule = Rule {
    name: "named-tests",
    why: "a document must not name a test that does not exist any more",
    remedy: "write the test's current name, as `path/to/file.rs::name_of_the_test`",
    check: |tree| {
        let mut hits = Vec::new();
        for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
            for (number, line) in file.lines() {
                for quoted in line.split('`').skip(1).step_by(2) {
                    let Some((path, name)) = quoted.split_once(".rs::") else { continue };
                    let path = format!("{path}.rs");
                    let found = tree.get(&path).is_some_and(|file| names(file).any(|test| test == name));
                    if !found {
                        hits.push(Hit::new(&file.path, number, format!("there is no test `{name}` in {path}")));
                    }
                }
            }
        }
        hits
    },
};

/// Names of the functions of a file, and of the cases of its tables of tests.
fn names(file: &File) -> impl Iterator<Item = &str> {
    let code = file.source.as_ref().map_or("", |source| source.code.as_str());
    ["fn ", "#[case::"].into_iter().flat_map(move |mark| {
        code.split(mark).skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            rest.get(..end).unwrap_or_default()
        })
    })
}
