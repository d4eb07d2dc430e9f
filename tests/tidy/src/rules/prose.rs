//! Comments, messages and documents: how wide they are, and phrases that do not say what is meant.

use crate::{
    rule::{Hit, Rule},
    source::find_word,
    tree::{File, Tree},
};

/// Columns of a line of prose. Code may be wider (rustfmt.toml): a reader takes in code by its
/// shape and prose by its words.
const COLUMNS_MAX: usize = 100;

/// Each phrase with the plain words for it. Only phrases that are never the best choice stand here.
const PHRASES: &[(&str, &str)] = &[
    ("whoever", "name the person: the operator, the user, anyone with write access"),
    ("is told", "is reported, receives"),
    ("are told", "are reported, receive"),
    ("stranger", "foreign, unknown, another party"),
    ("strangers", "foreign, unknown, other parties"),
    ("anew", "again"),
    ("nobody's", "name the owner, or: without an owner"),
    ("bore out", "passed probation"),
    ("borne out", "passed probation"),
    ("to be had", "available, can be fetched"),
    ("comes to its end", "ends"),
    ("come to its end", "end"),
    ("is no news", "emits no Event"),
    ("has to be named", "must be listed"),
    ("of its own accord", "automatically"),
    ("may not be had", "is not available"),
];

pub(crate) const WIDTH: Rule = Rule {
    name: "prose-width",
    why: "a line of prose that is wider than a hand's breadth is not read",
    way_out: "wrap the comment or the paragraph at 100 columns; tables, code blocks and a single long word may be wider",
    check: |tree| {
        let wide = |line: &str| line.chars().count() > COLUMNS_MAX && line.split_whitespace().nth(2).is_some();
        let hits = prose(tree).filter(|(_, _, line)| wide(line));
        hits.map(|(file, number, line)| {
            Hit::new(&file.path, number, format!("a line of {} columns", line.chars().count()))
        })
        .collect()
    },
};

pub(crate) const PLAIN_ENGLISH: Rule = Rule {
    name: "plain-english",
    why: "a reader without context cannot say what the sentence means",
    way_out: "subject, verb, object, and the standard term: CONTRIBUTING.md, Prose",
    check: |tree| {
        let mut hits = Vec::new();
        let mut judge = |file: &File, number: usize, text: &str| {
            let text = text.to_lowercase();
            for (phrase, instead) in PHRASES {
                if find_word(&text, phrase).is_some() {
                    hits.push(Hit::new(&file.path, number, format!("\"{phrase}\": write {instead}")));
                }
            }
        };
        for (file, number, line) in prose(tree) {
            judge(file, number, line);
        }
        // The phrases themselves stand in this rule.
        for (file, source) in tree.rust().filter(|(file, _)| !file.path.ends_with("rules/prose.rs")) {
            for (number, text) in &source.literals {
                judge(file, *number, text);
            }
        }
        hits
    },
};

/// Lines of prose with their files and numbers: comments of Rust and WIT that take a whole line,
/// and documents. Code blocks and tables are left out, and with them the examples of
/// CONTRIBUTING.md.
fn prose(tree: &Tree) -> impl Iterator<Item = (&File, usize, &str)> {
    tree.files.iter().filter(|file| has_prose(file)).flat_map(|file| {
        let comments = !file.path.ends_with(".md");
        let mut block = false;
        file.lines().filter_map(move |(number, line)| {
            let text = if comments { line.trim_start().strip_prefix("//")? } else { line };
            let text = text.trim_start_matches(['/', '!']).trim_start();
            if text.starts_with("```") {
                block = !block;
                return None;
            }
            (!block && !text.starts_with('|')).then_some((file, number, line))
        })
    })
}

fn has_prose(file: &File) -> bool {
    [".rs", ".wit", ".md"].iter().any(|ending| file.path.ends_with(ending))
}
