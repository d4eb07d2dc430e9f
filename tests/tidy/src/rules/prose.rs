//! Rules for comments, messages, documents and names: their width, and phrases to avoid.

use crate::{
    rule::{Hit, Rule},
    source::{find_word, function_name, type_name},
    tree::{File, Tree},
};

/// The most columns of a line of prose. Code may be wider (rustfmt.toml).
const COLUMNS_MAX: usize = 100;

/// Phrases with their plain replacement. The table has only phrases that are never the best choice.
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
    ("bear out", "verify, confirm"),
    ("bears out", "verifies, confirms"),
    ("who is meant", "name the person, the account or the key"),
    ("who are meant", "name the persons, the accounts or the keys"),
    ("knows who asks", "authenticates the request"),
    ("means silence", "is not reported"),
    ("is silence", "is not reported"),
    ("old news", "unchanged"),
    ("led astray", "refers to a host that is not allowed"),
    ("is not to be found", "does not exist, is not in"),
    ("is not to be seen", "is not visible"),
    ("nobody may be left", "the reader may be gone"),
    ("last words", "the last output, the end of the log"),
    ("held nothing against", "leaves the quarantine"),
];

/// Beginnings of comments that are directives for a tool: no prose, and the tool may require a line
/// of its own.
const DIRECTIVES: &[&str] = &["go:", "@ts-", "eslint-", "prettier-", "shellcheck "];

/// Beginnings of the line, among the first three of a file, by which a generator says that it wrote
/// the file. The comments of such a file are those of its source.
const GENERATED: &[&str] = &["// Generated ", "// Code generated "];

/// Words that stand for a noun before them, which the first sentence of a comment does not have.
const PRONOUNS: [&str; 5] = ["It", "Its", "They", "Their", "Them"];

pub(crate) const WIDTH: Rule = Rule {
    name: "prose-width",
    why: "long lines of prose are hard to read",
    remedy: "wrap the comment or the paragraph at 100 columns; tables, code blocks and a single long word, such as a URL, may be wider",
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
    remedy: "subject, verb, object, and the standard term: CONTRIBUTING.md, Prose",
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
        // This file contains the phrases.
        for (file, source) in tree.rust().filter(|(file, _)| !file.path.ends_with("rules/prose.rs")) {
            for (number, text) in &source.literals {
                judge(file, *number, text);
            }
            for (number, line) in source.lines() {
                for name in [function_name(line), type_name(line)].into_iter().flatten() {
                    judge(file, number, &words(name));
                }
            }
        }
        hits
    },
};

pub(crate) const NOUN_FIRST: Rule = Rule {
    name: "noun-first",
    why: "a comment that begins with a pronoun sends the reader to the code to find the subject",
    remedy: "begin with the noun: \"The header's name\", not \"Its name\"",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, language) in with_prose(tree).filter(|(_, language)| *language != Language::Document) {
            let mut inside = false;
            for (number, line) in file.lines() {
                let comment = language.prose(line);
                if let Some(first) = comment.filter(|_| !inside).and_then(|text| text.split_whitespace().next())
                    && PRONOUNS.contains(&first)
                {
                    hits.push(Hit::new(&file.path, number, format!("the comment begins with \"{first}\"")));
                }
                // The line `/**` has no words, and after `*/` another comment begins.
                inside = comment.is_some() && line.trim() != "/**" && !line.ends_with("*/");
            }
        }
        hits
    },
};

/// The words of a name: `last_pass` and `LastPass` are "last pass".
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.push(if letter == '_' { ' ' } else { letter });
    }
    words
}

/// Lines of prose with their files and numbers: comments that take a whole line, and documents.
/// Code blocks and tables are left out, and with them the examples of CONTRIBUTING.md.
fn prose(tree: &Tree) -> impl Iterator<Item = (&File, usize, &str)> {
    with_prose(tree).flat_map(|(file, language)| {
        let mut block = false;
        file.lines().filter_map(move |(number, line)| {
            let text = language.prose(line)?;
            if text.starts_with("```") {
                block = !block;
                return None;
            }
            (!block && !text.starts_with('|')).then_some((file, number, line))
        })
    })
}

/// The files with prose.
fn with_prose(tree: &Tree) -> impl Iterator<Item = (&File, Language)> {
    tree.files.iter().filter_map(|file| Some((file, Language::of(file)?)))
}

/// Where a file has its prose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    /// Markdown: every line.
    Document,
    /// Rust, WIT and Go: lines that begin with `//`.
    Slashes,
    /// JavaScript and TypeScript: lines that begin with `//`, `/*` or `*`.
    SlashesAndStars,
    /// TOML, YAML, Make, Python and every script with a `#!` line: lines that begin with `#`.
    Hashes,
}

impl Language {
    /// The language of a file; `None` where the rules read nothing: a generated file, and every
    /// other ending, among them those of lock files, snapshots and lists of packages. The fixtures
    /// of tidy are no part of the tree. A Helm template is YAML: its comments begin with `#`, and a
    /// line of code begins with another character. The files that it renders have its comments.
    fn of(file: &File) -> Option<Self> {
        if file.lines().take(3).any(|(_, line)| GENERATED.iter().any(|beginning| line.starts_with(beginning))) {
            return None;
        }
        let ending = file.name().rsplit_once('.').map_or("", |(_, ending)| ending);
        match ending {
            "md" => Some(Self::Document),
            "rs" | "wit" | "go" => Some(Self::Slashes),
            "js" | "mjs" | "ts" => Some(Self::SlashesAndStars),
            "toml" | "sh" | "yaml" | "yml" | "py" => Some(Self::Hashes),
            _ if file.name() == "Makefile" || file.text.starts_with("#!") => Some(Self::Hashes),
            _ => None,
        }
    }

    /// The text of a line without the marks of a comment; `None` where the line is code or a
    /// directive.
    fn prose(self, line: &str) -> Option<&str> {
        let line = line.trim_start();
        let text = match self {
            Self::Document => return Some(line),
            Self::Slashes => line.strip_prefix("//")?,
            Self::SlashesAndStars => ["//", "/*", "* "]
                .iter()
                .find_map(|mark| line.strip_prefix(mark))
                .or_else(|| matches!(line, "*" | "*/").then_some(""))?,
            Self::Hashes => line.strip_prefix('#').filter(|text| !text.starts_with('!'))?,
        };
        let text = text.trim_start_matches(['/', '!', '*', '#']).trim_start();
        (!DIRECTIVES.iter().any(|beginning| text.starts_with(beginning))).then_some(text)
    }
}
