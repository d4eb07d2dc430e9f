//! Rules for tests: names, no skipped tests, waits, mutations, probes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    rule::{Hit, Rule},
    source::{Source, find_word, function_name},
    tree::{File, Tree},
};

pub(crate) const NAMES: Rule = Rule {
    name: "test-names",
    why: "the list of test names is the list of what the program promises",
    remedy: "a sentence about behaviour: `a_denied_origin_never_opens_a_socket`",
    check: |tree| {
        let mut hits = Vec::new();
        for (file, number, name) in tests(tree) {
            if name.starts_with("test_") {
                hits.push(Hit::new(&file.path, number, format!("`{name}` begins with `test_`")));
            } else if name.split('_').count() < 3 {
                hits.push(Hit::new(&file.path, number, format!("`{name}` is not a sentence")));
            }
        }
        hits
    },
};

pub(crate) const NONE_SILENCED: Rule = Rule {
    name: "none-silenced",
    why: "a test that is skipped, or that passes by any panic, proves nothing and looks green",
    remedy: "provide the environment of the test or delete the test; assert the error instead of a panic",
    check: |tree| {
        super::files::in_code(tree, |line| {
            let line = line.trim_start();
            (line.starts_with("#[ignore") || line.starts_with("#[should_panic")).then_some("a silenced test")
        })
    },
};

/// Functions that may sleep in real time, between two checks of a condition.
const WAITS: &[&str] = &["wait", "eventually", "until", "poll"];

pub(crate) const WAIT_FOR_CONDITIONS: Rule = Rule {
    name: "wait-for-conditions",
    why: "a test that waits for a time is slow on a fast machine and fails on a slow one",
    remedy: "pause tokio's clock (`start_paused = true`), or wait for the condition in a function called wait…, eventually…, until… or poll…",
    check: |tree| {
        let mut hits = Vec::new();
        let reached = tree.reached();
        for (file, source) in tree.rust() {
            let whole = reached.get(&file.path).is_some_and(|test| *test);
            if source.code.contains("start_paused = true") || source.code.contains("time::pause()") {
                continue;
            }
            for (number, line) in source.lines().filter(|(number, _)| whole || source.is_test(*number)) {
                let sleeps = find_word(line, "sleep").is_some_and(|at| line[at..].starts_with("sleep("));
                let function = source.function_at(number);
                if sleeps && !WAITS.iter().any(|word| function.split('_').any(|part| part == *word)) {
                    hits.push(Hit::new(&file.path, number, format!("a sleep in `{function}`")));
                }
            }
        }
        hits
    },
};

pub(crate) const MUTATIONS_APPLY: Rule = Rule {
    name: "mutations-apply",
    why: "a patch that does not apply cannot show that the simulation finds its bug",
    remedy: "make the patch again for the current code, and run tests/simulation/mutate.sh with its name",
    check: |tree| {
        let patches =
            tree.files.iter().filter(|file| file.path.contains("/mutations/") && file.path.ends_with(".patch"));
        patches.flat_map(|file| hunks_without_a_place(tree, file)).collect()
    },
};

pub(crate) const MUTATIONS_LISTED: Rule = Rule {
    name: "mutations-listed",
    why: "the table of deliberate bugs is the only place where a reader sees what the simulation finds",
    remedy: "a row `| `name` | bug |` in the table of mutations/README.md, the bug as in the first line of the patch",
    check: |tree| {
        let mut hits = Vec::new();
        for table in tree.files.iter().filter(|file| file.path.ends_with("/mutations/README.md")) {
            let folder = table.path.trim_end_matches("README.md");
            let mut unlisted: BTreeMap<_, _> =
                tree.files.iter().filter_map(|file| Some((patch_of(folder, file)?, file))).collect();
            for (number, line) in table.lines() {
                let row = line.strip_prefix("| `").and_then(|row| row.strip_suffix(" |"));
                let Some((name, bug)) = row.and_then(|row| row.split_once("` | ")) else { continue };
                match unlisted.remove(name) {
                    None => hits.push(Hit::new(&table.path, number, format!("{name}.patch does not exist"))),
                    Some(patch) if patch.text.lines().next() != Some(bug) => {
                        hits.push(Hit::new(
                            &table.path,
                            number,
                            format!("{} begins with another sentence", patch.path),
                        ));
                    }
                    Some(_) => {}
                }
            }
            hits.extend(unlisted.values().map(|patch| Hit::new(&patch.path, 0, format!("{} has no row", table.path))));
        }
        hits
    },
};

/// The name of a patch of the folder, which the table gives.
fn patch_of<'tree>(folder: &str, file: &'tree File) -> Option<&'tree str> {
    file.path.strip_prefix(folder)?.strip_suffix(".patch")
}

/// The hunks of a patch whose old lines are not in their file.
fn hunks_without_a_place(tree: &Tree, patch: &File) -> Vec<Hit> {
    let (mut hits, mut target, mut hunk) = (Vec::new(), None, None);
    let judge = |hunk: Option<(usize, String)>, target: Option<&str>| {
        let (number, old) = hunk?;
        let path = target.unwrap_or_default();
        let stands = tree.get(path).is_some_and(|file| file.text.contains(&old));
        (!stands).then(|| Hit::new(&patch.path, number, format!("{path} does not contain these lines")))
    };
    for (number, line) in patch.lines() {
        if let Some(path) = line.strip_prefix("--- a/") {
            hits.extend(judge(hunk.take(), target));
            target = Some(path);
        } else if line.starts_with("@@ ") {
            hits.extend(judge(hunk.replace((number, String::new())), target));
        } else if let Some((_, old)) = &mut hunk
            && let Some(text) = line.strip_prefix(' ').or_else(|| line.strip_prefix('-'))
        {
            old.push_str(text);
            old.push('\n');
        }
    }
    hits.extend(judge(hunk, target));
    hits
}

/// The page with the promises of the sandbox.
const SECURITY: &str = "SECURITY.md";

pub(crate) const PROMISES_SHOWN: Rule = Rule {
    name: "promises-shown",
    why: "a promise of the sandbox that no test attacks is a hope, and a probe that is not listed proves nothing to a reader",
    remedy: "name existing tests and every folder of guests/probes in the table of SECURITY.md",
    check: |tree| {
        let Some(page) = tree.get(SECURITY) else { return vec![Hit::new(SECURITY, 0, "there is no page")] };
        let tests: BTreeSet<_> = tests(tree).into_iter().map(|(_, _, name)| name).collect();
        let mut hits = Vec::new();
        for (number, line) in page.lines() {
            let quoted = line.split('`').skip(1).step_by(2).filter(|word| word.matches('_').count() > 2);
            let unknown = quoted.filter(|word| !tests.contains(*word));
            hits.extend(unknown.map(|word| Hit::new(SECURITY, number, format!("there is no test {word}"))));
        }
        for manifest in tree.manifests() {
            let probe = manifest.path.strip_prefix("guests/probes/").and_then(|rest| rest.strip_suffix("/Cargo.toml"));
            if probe.is_some_and(|probe| !page.text.contains(&format!("`{probe}`"))) {
                hits.push(Hit::new(&manifest.path, 0, format!("{SECURITY} does not name this probe")));
            }
        }
        hits
    },
};

pub(crate) const ONE_BINARY: Rule = Rule {
    name: "one-test-binary",
    why: "each integration test binary links the whole program again",
    remedy: "one `tests/it/main.rs` for a package, its parts as modules",
    check: |tree| {
        let mut hits = Vec::new();
        for manifest in tree.manifests() {
            let folder = format!("{}tests/", manifest.path.trim_end_matches("Cargo.toml"));
            let roots = tree.rust().filter_map(|(file, _)| {
                let inside = file.path.strip_prefix(&folder)?;
                (!inside.contains('/') || (inside.ends_with("/main.rs") && inside.matches('/').count() == 1))
                    .then_some(file)
            });
            hits.extend(
                roots.skip(1).map(|file| Hit::new(&file.path, 0, "a second integration binary of this package")),
            );
        }
        hits
    },
};

pub(crate) const PROBES: Rule = Rule {
    name: "probes",
    why: "a probe guest without a test is never run",
    remedy: "a test whose name begins with the probe's name (`spin` → `spin_is_stopped_by_fuel`)",
    check: |tree| {
        let tests: Vec<_> = tests(tree).into_iter().map(|(_, _, name)| name).collect();
        let mut hits = Vec::new();
        for manifest in tree.manifests() {
            let Some(probe) =
                manifest.path.strip_prefix("guests/probes/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
            else {
                continue;
            };
            let name = probe.replace('-', "_");
            if !tests.iter().any(|test| find_word(&test.replace('_', " "), &name.replace('_', " ")).is_some()) {
                hits.push(Hit::new(&manifest.path, 0, format!("no test has `{name}` in its name")));
            }
        }
        hits
    },
};

/// Every test function: file, line of the `fn`, name.
fn tests(tree: &Tree) -> Vec<(&File, usize, &str)> {
    tree.rust()
        .flat_map(|(file, source)| test_functions(source).into_iter().map(move |(line, name)| (file, line, name)))
        .collect()
}

fn test_functions(source: &Source) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_test = false;
    for (number, line) in source.lines() {
        let attribute = line.trim_start();
        is_test |= ["#[test]", "#[tokio::test", "#[rstest]"].iter().any(|mark| attribute.starts_with(mark));
        if let (true, Some(name)) = (is_test, function_name(line)) {
            found.push((number, name));
            is_test = false;
        }
    }
    found
}
