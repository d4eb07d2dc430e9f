//! Runs the days that belong to every test run, and checks that a day is reproducible.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Command, Output},
};

fn simulate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(args)
        .env_remove("SEEDS")
        .env_remove("SEED_FROM")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn five_hundred_days_end_well() {
    let output = simulate(&["--seeds", "500"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_seed_is_the_same_day_to_the_last_line() {
    let day = || simulate(&["--one", "7", "--story"]);
    let (first, second) = (day(), day());
    assert!(text(&first.stdout).lines().count() > 50, "{}", text(&first.stderr));
    assert_eq!(text(&first.stdout), text(&second.stdout));
}

/// A rule of tests/tidy checks that the patches apply, and mutate.sh that the simulation finds
/// them.
#[test]
fn each_deliberate_bug_has_its_line_in_the_table_and_its_patch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutations");
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let patches: BTreeSet<String> = names.filter_map(|name| Some(name.strip_suffix(".patch")?.to_owned())).collect();
    let table = fs::read_to_string(folder.join("README.md")).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows: BTreeMap<String, &str> =
        rows.map(|(name, rest)| (name.to_owned(), rest.trim_end_matches(" |"))).collect();
    assert_eq!(patches, rows.keys().cloned().collect());
    for (name, bug) in rows {
        let patch = fs::read_to_string(folder.join(name).with_extension("patch")).unwrap();
        assert_eq!(patch.lines().next(), Some(bug), "the table says what the first line of the patch says");
    }
}
