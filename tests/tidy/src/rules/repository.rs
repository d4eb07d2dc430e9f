//! Rules for the whole repository: the contract's documents, ARCHITECTURE.md, texts that no file
//! may contain.

use std::collections::BTreeSet;

use crate::{
    rule::{Hit, Rule},
    tree::{CARGO_TREE, File},
};

pub(crate) const CONTRACT_DOCUMENTED: Rule = Rule {
    name: "contract-documented",
    why: "an author in another language has only the WIT, which has to say which functions are idempotent and which can fail",
    remedy: "say `Idempotent` (or `reads only`, `No effect`), and `Errors: …` where it returns a result, else `Cannot fail`",
    check: |tree| {
        let mut hits = Vec::new();
        for file in tree.files.iter().filter(|file| file.path.starts_with("wit/") && file.path.ends_with(".wit")) {
            hits.extend(functions(file).into_iter().filter_map(|(line, name, doc, fails)| {
                let repeats = ["dempotent", "eads only", "o effect"].iter().any(|word| doc.contains(word));
                let errors =
                    if fails { doc.contains("Errors:") || doc.contains("Errors,") } else { doc.contains("annot fail") };
                let missing = match (repeats, errors) {
                    (true, true) => return None,
                    (false, _) => "whether it is idempotent",
                    (_, false) if fails => "its errors",
                    (_, false) => "that it cannot fail",
                };
                Some(Hit::new(&file.path, line, format!("`{name}` does not say {missing}")))
            }));
        }
        hits
    },
};

/// Functions of a WIT file: line, name, the doc comment above on one line, whether a `result` comes
/// back. An interface or resource may speak for its functions: a doc of it that says "Every
/// function" is added to theirs.
fn functions(file: &File) -> Vec<(usize, String, String, bool)> {
    let mut found = Vec::new();
    let mut doc = String::new();
    let mut outer: Vec<String> = Vec::new();
    for (number, line) in file.lines() {
        let text = line.trim();
        if let Some(comment) = text.strip_prefix("///") {
            doc.push_str(comment);
        } else {
            if let Some((name, signature)) = text.split_once(": func(") {
                let doc = format!("{doc} {}", outer.join(" "));
                found.push((number, name.trim_start_matches('%').to_owned(), doc, signature.contains("result<")));
            }
            if text.ends_with('{') {
                outer.push(if doc.contains("Every function") { doc.clone() } else { String::new() });
            } else if text == "}" {
                outer.pop();
            }
            doc.clear();
        }
    }
    found
}

/// Lines that ARCHITECTURE.md may have.
const ARCHITECTURE_LINES_MAX: usize = 200;

pub(crate) const ARCHITECTURE: Rule = Rule {
    name: "architecture",
    why: "a long overview is not read, and an incomplete one misleads",
    remedy: "name every crate's folder in ARCHITECTURE.md (`runtime/host`), and keep it under 200 lines",
    check: |tree| {
        let path = "ARCHITECTURE.md";
        let Some(file) = tree.get(path) else { return vec![Hit::new(path, 0, "there is none")] };
        let mut hits = Vec::new();
        let lines = file.lines().count();
        if lines >= ARCHITECTURE_LINES_MAX {
            hits.push(Hit::new(path, 0, format!("{lines} lines")));
        }
        let rooms = tree.manifests().map(|manifest| manifest.path.trim_end_matches("/Cargo.toml"));
        let rooms =
            rooms.filter(|room| !room.starts_with("guests/")).chain(["wit", "guests", "guests/probes", "deploy"]);
        for room in rooms.filter(|room| tree.files.iter().any(|file| file.path.starts_with(&format!("{room}/")))) {
            if !file.text.contains(&format!("`{room}`")) {
                hits.push(Hit::new(path, 0, format!("the folder `{room}` is not named")));
            }
        }
        hits
    },
};

pub(crate) const NO_LOCAL_PATHS: Rule = Rule {
    name: "no-local-paths",
    why: "a path of one machine does not exist on other machines",
    remedy: "a path from the repository's root, a temporary folder, or an option",
    check: |tree| {
        // Written in two halves, so that the rule does not find this file.
        let paths = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
        grep(&tree.files, |line| {
            paths
                .iter()
                .find(|path| line.match_indices(**path).any(|(at, _)| starts_a_path(line, at)))
                .map(|path| format!("the path {path}…"))
        })
    },
};

/// Not the middle of a longer path or of a URL.
fn starts_a_path(line: &str, at: usize) -> bool {
    !line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '}' | ')'))
}

pub(crate) const NO_REGISTRY_HOSTS: Rule = Rule {
    name: "no-registry-hosts",
    why: "each ecosystem's client gets packages through its own configuration; a host name in a file bypasses mirrors",
    remedy: "name the package, not the registry's host",
    check: |tree| {
        let hosts = [
            concat!("crates", ".io"),
            concat!("static.rust", "-lang.org"),
            concat!("py", "pi.org"),
            concat!("pythonho", "sted.org"),
            concat!("np", "mjs.org"),
            concat!("proxy.gol", "ang.org"),
            concat!("sum.gol", "ang.org"),
            concat!("deb.deb", "ian.org"),
            concat!("security.deb", "ian.org"),
            concat!("dl.goo", "gle.com"),
        ];
        let files = tree.files.iter().filter(|file| !super::is_lock_file(file));
        grep(files, |line| hosts.iter().find(|host| line.contains(**host)).map(|host| format!("the host {host}")))
    },
};

/// The folders that the top level may contain, besides folders that begin with a dot.
const TOP: &[&str] = &["wit", "runtime", "guest-sdk", "guests", "deploy", "tests"];

pub(crate) const TOP_LEVEL: Rule = Rule {
    name: "top-level",
    why: "the top-level folders are fixed, so that a reader finds each subject",
    remedy: "put the file beside its subject in one of wit, runtime, guest-sdk, guests, deploy, tests",
    check: |tree| {
        let mut seen = BTreeSet::new();
        let new = tree.files.iter().filter(|file| {
            let folder = file.path.split_once('/').map(|(folder, _)| folder);
            folder.is_some_and(|folder| !folder.starts_with('.') && !TOP.contains(&folder) && seen.insert(folder))
        });
        new.map(|file| Hit::new(&file.path, 0, "a new top-level folder")).collect()
    },
};

/// The most bytes of one file.
const FILE_BYTES_MAX: u64 = 2 << 20;

pub(crate) const FILE_SIZE: Rule = Rule {
    name: "file-size",
    why: "a large file stays in every clone for ever",
    remedy: "generate the file in the test that needs it, or fetch it in the set-up",
    check: |tree| {
        let large = tree.files.iter().filter(|file| file.size > FILE_BYTES_MAX && file.path != CARGO_TREE);
        large.map(|file| Hit::new(&file.path, 0, format!("{} bytes", file.size))).collect()
    },
};

pub(crate) const CI_IS_MAKE_TEST: Rule = Rule {
    name: "ci-is-make-test",
    why: "a step that only CI can run cannot be repeated by a developer",
    remedy: "let .ci/run call `make test` and put the rest into the Makefile",
    check: |tree| {
        let path = ".ci/run";
        match tree.get(path) {
            Some(file) if file.lines().any(|(_, line)| line.trim() == "make test") => Vec::new(),
            _ => vec![Hit::new(path, 0, "does not call `make test`")],
        }
    },
};

fn grep<'a>(files: impl IntoIterator<Item = &'a File>, look: impl Fn(&str) -> Option<String>) -> Vec<Hit> {
    let lines = files
        .into_iter()
        .filter(|file| file.path != CARGO_TREE)
        .flat_map(|file| file.lines().map(move |(number, line)| (file, number, line)));
    lines.filter_map(|(file, number, line)| Some(Hit::new(&file.path, number, look(line)?))).collect()
}
