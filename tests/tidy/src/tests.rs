//! Applies the rules to this repository, and each rule to its fixture.

use std::fmt::Write as _;

use crate::{
    rule::{RULES, Violation},
    source::Source,
    tree::Tree,
};

#[test]
fn the_repository_keeps_every_rule() {
    let tree = Tree::of_this_repository().unwrap();
    let mut report = String::new();
    let mut count = 0;
    for rule in RULES {
        for hit in (rule.check)(&tree) {
            writeln!(report, "{}", Violation(rule, &hit)).unwrap();
            count += 1;
        }
    }
    assert!(count == 0, "{count} findings\n{report}");
}

#[test]
fn every_rule_finds_exactly_what_its_fixture_marks() {
    for rule in RULES {
        let (tree, mut expected) = Tree::of_fixture(rule.name).unwrap();
        assert!(!expected.is_empty(), "the fixture of {} marks no violation: a check that cannot fail", rule.name);
        let hits = (rule.check)(&tree);
        let mut found: Vec<_> = hits.iter().map(|hit| (hit.path.clone(), hit.line)).collect();
        found.sort();
        found.dedup();
        expected.sort();
        let report: String = hits.iter().map(|hit| format!("{}\n", Violation(rule, hit))).collect();
        assert_eq!(found, expected, "rule {}: found (left), marked (right)\n{report}", rule.name);
    }
}

#[test]
fn every_fixture_belongs_to_a_rule() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(RULES.iter().any(|rule| format!("{}.txt", rule.name) == name), "{name} belongs to no rule");
    }
}

#[test]
fn literals_and_comments_are_not_taken_for_code() {
    let text = r##"
let a = "sleep(1) \" // not a comment"; // sleep(2)
let b = r#"raw " sleep(3)"#; /* sleep /* nested */ (4) */ sleep(5);
let c = '"'; let d: &'static str = b'\'' as _; sleep(6);
"##;
    let source = Source::read(text);
    let lines: Vec<_> = source.lines().filter(|(_, line)| line.contains("sleep(")).map(|(number, _)| number).collect();
    assert_eq!(lines, [3, 4]);
    assert_eq!(source.code.matches("sleep(").count(), 2);
    let literals: Vec<_> = source.literals.iter().map(|(line, text)| (*line, text.as_str())).collect();
    assert_eq!(literals, [(2, "sleep(1) \\\" // not a comment"), (3, "raw \" sleep(3)")]);
}

#[test]
fn only_the_item_under_cfg_test_counts_as_test() {
    let text =
        "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { if x {} }\n}\nfn c() {}\n#[cfg(test)]\nuse d;\nfn e() {}\n";
    let source = Source::read(text);
    let tests: Vec<_> = (1..=9).filter(|line| source.is_test(*line)).collect();
    assert_eq!(tests, [2, 3, 4, 5, 7, 8]);
    assert_eq!(source.lines_outside_tests(), 3);
}
