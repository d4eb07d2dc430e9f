//! Finds cycles between the modules of a crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    rule::{Hit, Rule},
    source::Source,
    tree::Tree,
};

/// Crates whose modules are compared; the modules are those that `lib.rs` or
/// `main.rs` declares.
const CRATES: &[&str] =
    &["controllers", "egress", "election", "host", "provider", "serving", "skysail", "slot", "sources"];

/// Cycles that stay, by crate. ARCHITECTURE.md says why.
const KNOWN: &[(&str, &[&str])] = &[
    ("election", &["elector", "leader"]),
    ("host", &["admission", "call", "convert", "fault", "identity", "imports", "jail", "outcome", "store"]),
];

pub(crate) const NO_MODULE_CYCLES: Rule = Rule {
    name: "no-module-cycles",
    why: "modules that need each other can only be read, tested and changed together",
    remedy: "move what both need into a module below both, or hand it in as a parameter",
    check: |tree| CRATES.iter().flat_map(|name| cycles(tree, name)).collect(),
};

fn cycles(tree: &Tree, name: &str) -> Vec<Hit> {
    let uses = uses(tree, name);
    let known = KNOWN.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, modules)| modules);
    let mut hits = Vec::new();
    for ((from, to), (path, line)) in &uses {
        let is_known = known.contains(&from.as_str()) && known.contains(&to.as_str());
        if !is_known && reaches(&uses, to, from) {
            hits.push(Hit::new(path, *line, format!("`{from}` uses `{to}`, which needs `{from}`")));
        }
    }
    hits
}

/// For each pair of modules the first place where one names the other, outside of tests.
fn uses(tree: &Tree, name: &str) -> BTreeMap<(String, String), (String, usize)> {
    let folder = format!("runtime/{name}/src/");
    let mut uses = BTreeMap::new();
    for (file, source) in tree.rust() {
        let Some(inside) = file.path.strip_prefix(&folder) else { continue };
        if matches!(inside, "lib.rs" | "main.rs") || tree.reached().get(&file.path).is_none_or(|test| *test) {
            continue;
        }
        let module = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
        for (line, named) in named_modules(source) {
            if named != module && tree.get(&format!("{folder}{named}.rs")).is_some() {
                uses.entry((module.to_owned(), named)).or_insert_with(|| (file.path.clone(), line));
            }
        }
    }
    uses
}

/// The modules in `crate::module` and in `crate::{module, …}`, with their lines.
fn named_modules(source: &Source) -> Vec<(usize, String)> {
    let code = &source.code;
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let rest = &code[at + prefix.len()..];
        let line = |offset: usize| code[..at + prefix.len() + offset].matches('\n').count() + 1;
        let Some(list) = rest.strip_prefix('{') else {
            found.push((line(0), identifier(rest).to_owned()));
            continue;
        };
        // Names that follow the opening brace or a comma, outside of any inner brace.
        let (mut depth, mut expected) = (1, true);
        for (offset, letter) in list.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => expected = true,
                _ if expected && letter.is_alphabetic() => {
                    found.push((line(offset + 1), identifier(&list[offset..]).to_owned()));
                    expected = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found.retain(|(line, _)| !source.is_test(*line));
    found
}

fn identifier(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

fn reaches(uses: &BTreeMap<(String, String), (String, usize)>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        if module == to {
            return true;
        }
        let next = uses.keys().filter(|(user, _)| user == module).map(|(_, used)| used.as_str());
        open.extend(next.filter(|used| seen.insert(used)).collect::<Vec<_>>());
    }
    false
}
