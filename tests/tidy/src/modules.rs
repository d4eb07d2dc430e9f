//! Finds the Rust files that a crate root reaches by `mod`, and those that only tests reach.
//!
//! It follows `mod x;`, `#[path]` and `include!` by text, but not modules that a macro declares.

use std::collections::BTreeMap;

use crate::tree::{File, Tree};

/// Files that some crate root reaches; the value says whether only under `cfg(test)`.
pub(crate) fn reached(tree: &Tree) -> BTreeMap<String, bool> {
    let mut reached = BTreeMap::<String, bool>::new();
    let mut open: Vec<(String, bool)> = tree.rust().filter_map(|(file, _)| root(tree, file)).collect();
    while let Some((path, test)) = open.pop() {
        let Some(file) = tree.get(&path) else { continue };
        // Visited before; only a path outside of tests can still change the result.
        if reached.get(&path).is_some_and(|seen| !*seen || test) {
            continue;
        }
        reached.insert(path, test);
        open.extend(children(tree, file).into_iter().map(|(child, under_test)| (child, test || under_test)));
    }
    reached
}

/// A crate root, and whether it is the root of a test.
fn root(tree: &Tree, file: &File) -> Option<(String, bool)> {
    let package = tree
        .manifests()
        .map(|manifest| manifest.path.trim_end_matches("Cargo.toml"))
        .filter(|folder| file.path.starts_with(folder));
    let folder = package.max_by_key(|folder| folder.len())?;
    let inside = &file.path[folder.len()..];
    let parts: Vec<_> = inside.split('/').collect();
    let own_test = folder.starts_with("tests/") && folder != "tests/support/";
    let test = match parts.as_slice() {
        ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] | ["src", "bin", _, "main.rs"] | ["build.rs"] => own_test,
        ["examples", _] => own_test,
        ["tests" | "benches", _] | ["tests" | "benches", _, "main.rs"] => true,
        _ if names_path(tree, folder, inside) => own_test,
        _ => return None,
    };
    Some((file.path.clone(), test))
}

/// Whether a target of the manifest has this `path`.
fn names_path(tree: &Tree, folder: &str, inside: &str) -> bool {
    tree.get(&format!("{folder}Cargo.toml"))
        .is_some_and(|manifest| manifest.text.contains(&format!("path = \"{inside}\"")))
}

fn children(tree: &Tree, file: &File) -> Vec<(String, bool)> {
    let Some(source) = &file.source else { return Vec::new() };
    let parent = file.path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let owns_folder = matches!(file.name(), "lib.rs" | "main.rs" | "mod.rs") || is_target_root(tree, file);
    let folder = if owns_folder { parent.to_owned() } else { file.path.trim_end_matches(".rs").to_owned() };
    let raw: Vec<_> = file.text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in source.lines() {
        let words =
            line.trim().trim_start_matches("pub ").trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        if let Some(name) = words.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
            let above = number.checked_sub(2).and_then(|index| raw.get(index)).copied().unwrap_or_default().trim();
            let test = source.is_test(number) || name == "tests";
            match above.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
                Some(named) => found.push((normal(&format!("{parent}/{named}")), test)),
                None => {
                    found.push((format!("{folder}/{name}.rs"), test));
                    found.push((format!("{folder}/{name}/mod.rs"), test));
                }
            }
        }
        if line.contains("include!(")
            && let Some((_, named)) = source.literals.iter().find(|(at, _)| *at == number)
        {
            found.push((normal(&format!("{parent}/{named}")), source.is_test(number)));
        }
    }
    found
}

fn is_target_root(tree: &Tree, file: &File) -> bool {
    root(tree, file).is_some()
}

/// Resolves `..` in a path.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}
