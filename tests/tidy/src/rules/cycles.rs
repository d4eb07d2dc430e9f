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
    &["controllers", "dev", "egress", "election", "host", "provider", "serving", "skysail", "slot", "sources"];

/// Cycles that stay, by crate. ARCHITECTURE.md says why.
const KNOWN: &[(&str, &[&str])] = &[
    ("election", &["elector", "leader"]),
    ("host", &["admission", "call", "convert", "fault", "identity", "imports", "jail", "outcome", "release", "store"]),
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
    let is_module = |name: &str| tree.get(&format!("{folder}{name}.rs")).is_some();
    let roots = ["lib.rs", "main.rs"].into_iter().filter_map(|root| tree.get(&format!("{folder}{root}")));
    let homes: BTreeMap<_, _> = roots.filter_map(|root| root.source.as_ref()).flat_map(imported).collect();
    let mut uses = BTreeMap::new();
    for (file, source) in tree.rust() {
        let Some(inside) = file.path.strip_prefix(&folder) else { continue };
        if matches!(inside, "lib.rs" | "main.rs") || tree.reached().get(&file.path).is_none_or(|test| *test) {
            continue;
        }
        let module = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
        for (line, named) in named(source) {
            let home = if is_module(&named) { Some(&named) } else { homes.get(&named) };
            if let Some(named) = home.filter(|home| is_module(home) && *home != module) {
                uses.entry((module.to_owned(), named.clone())).or_insert_with(|| (file.path.clone(), line));
            }
        }
    }
    uses
}

/// The names in `crate::name` and in `crate::{name, …}`, with their lines: of modules, and of what
/// the crate's root imports.
fn named(source: &Source) -> Vec<(usize, String)> {
    let code = &source.code;
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let start = at + prefix.len();
        for (offset, part) in parts(&code[start..]) {
            let line = code[..start + offset].matches('\n').count() + 1;
            found.push((line, identifier(part).to_owned()));
        }
    }
    found.retain(|(line, _)| !source.is_test(*line));
    found
}

/// The names that the root of a crate imports from its modules, for itself or for others, with the
/// module of each. The names behind a `*` are not known.
fn imported(root: &Source) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, keyword) in root.code.match_indices("use ") {
        let tree = root.code[at + keyword.len()..].split(';').next().unwrap_or_default();
        let tree = ["self::", "crate::"].iter().find_map(|root| tree.strip_prefix(root)).unwrap_or(tree);
        for (_, path) in parts(tree) {
            if let Some((module, rest)) = path.split_once("::") {
                found.extend(leaves(rest).into_iter().map(|name| (name, module.to_owned())));
            }
        }
    }
    found
}

/// The names that a tree of `use` brings into scope.
fn leaves(tree: &str) -> Vec<String> {
    let of_path = |(_, path): (usize, &str)| match path.split_once("::") {
        Some((_, rest)) => leaves(rest),
        None => vec![identifier(path.rsplit(" as ").next().unwrap_or(path)).to_owned()],
    };
    parts(tree).into_iter().flat_map(of_path).collect()
}

/// The paths of a tree of `use`, with their places: those in its braces, or the one that it is.
fn parts(tree: &str) -> Vec<(usize, &str)> {
    let Some(list) = tree.strip_prefix('{') else { return vec![(0, tree)] };
    let (mut depth, mut start, mut found) = (1, 0, Vec::new());
    for (offset, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && letter == ',') {
            let part = &list[start..offset];
            let blank = part.len() - part.trim_start().len();
            if blank < part.len() {
                found.push((1 + start + blank, part.trim()));
            }
            start = offset + 1;
        }
        if depth == 0 {
            break;
        }
    }
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
