//! Rules for Rust files: place, length, beginning.

use crate::{
    rule::{Hit, Rule},
    source::find_word,
    tree::Tree,
};

/// The most lines of a file without its tests. A reviewer asks to split a file from 400 lines on.
const LINES_MAX: usize = 600;

pub(crate) const REACHABLE: Rule = Rule {
    name: "reachable",
    why: "a file that no `mod` names is not compiled, and its tests do not run",
    remedy: "name it with `mod` in its parent, or delete it",
    check: |tree| {
        let reached = tree.reached();
        let dead = tree.rust().filter(|(file, _)| !reached.contains_key(&file.path));
        dead.map(|(file, _)| Hit::new(&file.path, 0, "no crate root reaches this file")).collect()
    },
};

pub(crate) const LENGTH: Rule = Rule {
    name: "length",
    why: "a file holds one noun or one step; a long file holds several and is hard to read",
    remedy: "split it by subject into `foo/…` beside `foo.rs`; tests of more than 100 lines go to `foo/tests.rs`",
    check: |tree| {
        let reached = tree.reached();
        let long = tree.rust().filter(|(file, _)| reached.get(&file.path).is_none_or(|test| !*test));
        long.map(|(file, source)| (file, source.lines_outside_tests()))
            .filter(|(_, lines)| *lines > LINES_MAX)
            .map(|(file, lines)| {
                Hit::new(
                    &file.path,
                    0,
                    format!(
                        "{lines} lines without tests; at most {LINES_MAX} are allowed, and at most 400 recommended"
                    ),
                )
            })
            .collect()
    },
};

pub(crate) const MODULE_DOC: Rule = Rule {
    name: "module-doc",
    why: "a reader of a file first needs its purpose and its boundaries",
    remedy: "begin the file with `//!` and a sentence",
    check: |tree| {
        let bare = tree.rust().filter(|(file, _)| {
            let first =
                file.lines().map(|(_, line)| line.trim()).find(|line| !line.is_empty() && !line.starts_with("#!"));
            !first.is_some_and(|line| line.starts_with("//! "))
        });
        bare.map(|(file, _)| Hit::new(&file.path, 0, "no module documentation")).collect()
    },
};

pub(crate) const NO_MOD_RS: Rule = Rule {
    name: "no-mod-rs",
    why: "many files called mod.rs cannot be told apart in an editor",
    remedy: "call it `foo.rs`, beside `foo/`",
    check: |tree| {
        let found = tree.rust().filter(|(file, _)| file.name() == "mod.rs");
        found.map(|(file, _)| Hit::new(&file.path, 0, "a mod.rs")).collect()
    },
};

pub(crate) const NO_ALLOW: Rule = Rule {
    name: "no-allow",
    why: "`allow` stays after its reason has gone; `expect` then produces a warning",
    remedy: "#[expect(lint, reason = \"…\")] at the smallest item",
    check: |tree| {
        in_code(tree, |line| {
            let attribute = line.contains("#[") || line.contains("#![");
            (attribute && find_word(line, "allow").is_some_and(|at| line[at..].starts_with("allow(")))
                .then_some("an `allow` attribute")
        })
    },
};

pub(crate) const NO_LEFTOVERS: Rule = Rule {
    name: "no-leftovers",
    why: "a note on the main branch is work without an owner",
    remedy: "do the work now, or write an issue and state here why the present code is right",
    check: |tree| {
        // Written in two halves, so that the rule does not find this file.
        let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];
        let mut hits = Vec::new();
        for file in tree.files.iter().filter(|file| !super::is_lock_file(file)) {
            for (number, line) in file.lines() {
                if let Some(word) = words.iter().find(|word| find_word(line, word).is_some()) {
                    hits.push(Hit::new(&file.path, number, format!("a {word} was left")));
                }
            }
        }
        hits
    },
};

/// Applies `look` to each line of code, with comments and literals blanked.
pub(crate) fn in_code(tree: &Tree, look: impl Fn(&str) -> Option<&'static str>) -> Vec<Hit> {
    let lines = tree.rust().flat_map(|(file, source)| source.lines().map(move |(number, line)| (file, number, line)));
    lines.filter_map(|(file, number, line)| Some(Hit::new(&file.path, number, look(line)?))).collect()
}
