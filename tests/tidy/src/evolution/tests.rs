//! Invented pairs of versions for each rule of evolution, and mutations of the real contract.

use std::{collections::BTreeMap, fs};

use wit_parser::Resolve;

use super::{
    Break, breaks,
    shape::Shape,
    shipped::{Folder, digest, folders, problems, wit},
};

const BASE: &str = "
interface things {
  record thing { name: string, size: u32 }
  variant outcome { done, failed(string) }
  enum color { red, green }
  flags rights { read, write }
  type pair = tuple<string, string>;
  resource shelf { take: func(index: u32) -> option<thing>; }
  put: func(thing: thing, where: borrow<shelf>) -> result<outcome, pair>;
  count: func() -> u32;
}
interface spare { ping: func(); }
world imports { import things; }
world provider { include imports; export spare; }
world complete-provider { include provider; }
";

fn shape(version: &str, text: &str) -> Shape {
    let text = format!("package t:t@{version};\n{text}");
    Shape::read(&BTreeMap::from([("t.wit".to_owned(), text)]), []).unwrap()
}

/// Replaces `from` (which must be there) by `to` in the base and says what breaks.
#[track_caller]
fn check(from: &str, to: &str, expected: &[(&str, &str)]) {
    assert_eq!(BASE.matches(from).count(), 1, "{from:?} must stand in the base once");
    let found = breaks(&shape("0.1.0", BASE), &shape("0.1.1", &BASE.replace(from, to)));
    let expected: Vec<_> =
        expected.iter().map(|(item, what)| Break { item: (*item).to_owned(), what: (*what).to_owned() }).collect();
    assert_eq!(found, expected);
}

#[test]
fn documentation_may_change() {
    check("  count: func", "  /// How many.\n  count: func", &[]);
}

#[test]
fn functions_methods_types_interfaces_and_worlds_may_be_added() {
    check("count: func() -> u32;", "count: func() -> u32; more: func(a: thing) -> color;", &[]);
    check("resource shelf {", "resource shelf { len: func() -> u32;", &[]);
    check("enum color", "record later { a: thing } enum color", &[]);
    check("interface spare", "interface newer { use things.{thing}; f: func(t: thing); } interface spare", &[]);
    check("world imports { ", "world later { import spare; } world imports { ", &[]);
    check("import things;", "import things; import log;} interface log { f: func();", &[]);
    check("include provider;", "include provider; export things;", &[]);
}

#[test]
fn a_record_is_closed() {
    let item = "record things.thing";
    check("size: u32 }", "size: u32, age: u32 }", &[(item, "`age: u32` added")]);
    check(", size: u32 }", " }", &[(item, "`size: u32` removed")]);
    check("size: u32 }", "weight: u32 }", &[(item, "`size: u32` became `weight: u32`")]);
    check("size: u32 }", "size: u64 }", &[(item, "`size: u32` became `size: u64`")]);
    check("name: string, size: u32", "size: u32, name: string", &[(item, "order changed")]);
}

#[test]
fn variants_enums_and_flags_are_closed() {
    check("failed(string) }", "failed(string), late }", &[("variant things.outcome", "`late` added")]);
    check("failed(string) }", "failed(u32) }", &[("variant things.outcome", "`failed(string)` became `failed(u32)`")]);
    check("done, failed(string)", "failed(string), done", &[("variant things.outcome", "order changed")]);
    check("red, green }", "red, green, blue }", &[("enum things.color", "`blue` added")]);
    check("red, green }", "red }", &[("enum things.color", "`green` removed")]);
    check("read, write }", "read, write, run }", &[("flags things.rights", "`run` added")]);
}

#[test]
fn a_type_keeps_its_kind_and_its_meaning() {
    check(
        "tuple<string, string>",
        "tuple<string, u32>",
        &[("type things.pair", "`tuple<string, string>` became `tuple<string, u32>`")],
    );
    check("enum color", "flags color", &[("enum things.color", "removed")]);
    check("enum color { red, green }", "", &[("enum things.color", "removed")]);
}

#[test]
fn a_function_keeps_its_signature() {
    let item = "function things.put";
    check("func(thing: thing,", "func(hurry: bool, thing: thing,", &[(item, "`hurry: bool` added")]);
    check("func(thing: thing,", "func(", &[(item, "`thing: things.thing` removed")]);
    check("func(thing: thing,", "func(it: thing,", &[(item, "`thing: things.thing` became `it: things.thing`")]);
    check(
        "result<outcome, pair>",
        "result<outcome, string>",
        &[(item, "`-> result<things.outcome, things.pair>` became `-> result<things.outcome, string>`")],
    );
    check("count: func() -> u32;", "count: func();", &[("function things.count", "`-> u32` became `-> nothing`")]);
    check("count: func()", "count: async func()", &[("function things.count", "`async` added")]);
    check(
        "where: borrow<shelf>",
        "where: shelf",
        &[(item, "`where: borrow<things.shelf>` became `where: things.shelf`")],
    );
}

#[test]
fn nothing_is_removed() {
    check("count: func() -> u32;", "", &[("function things.count", "removed")]);
    check("take: func(index: u32) -> option<thing>;", "", &[("function things.[method]shelf.take", "removed")]);
    check("world complete-provider { include provider; }", "", &[("world complete-provider", "removed")]);
    check(
        "world imports { import things; }",
        "world imports { }",
        &[
            ("world complete-provider", "`import things` removed"),
            ("world imports", "`import things` removed"),
            ("world provider", "`import things` removed"),
        ],
    );
}

#[test]
fn what_a_component_must_export_does_not_grow() {
    check(
        "export spare;",
        "export spare; export things;",
        &[("world provider", "`export things` added: older components do not have it")],
    );
}

/// The real contract, as a later version of itself.
fn mutated(from: &str, to: &str) -> Vec<String> {
    let folders = folders().unwrap();
    let shipped = frozen(&folders["v0.1.0"]);
    let mut later = shipped.clone();
    let mut replaced = 0;
    for text in later.values_mut() {
        *text = text.replace("skysail:provider@0.1.0", "skysail:provider@0.1.1");
        replaced += text.matches(from).count();
        *text = text.replace(from, to);
    }
    later.values_mut().for_each(|text| text.push_str("// DRAFT\n"));
    assert_eq!(replaced, 1, "{from:?} must stand in the contract once");
    let table = format!("# the table\nv0.1.0 {}\n", digest(&shipped));
    problems(&table, &BTreeMap::from([("v0.1.0".to_owned(), shipped), ("v0.1.1".to_owned(), later)]))
}

/// As it will look once shipped.
fn frozen(folder: &Folder) -> Folder {
    folder.iter().map(|(name, text)| (name.clone(), text.replace("DRAFT", "Frozen"))).collect()
}

#[test]
fn the_real_contract_may_grow_by_functions_only() {
    assert_eq!(mutated("  check-config: func", "  more: func();\n  check-config: func"), Vec::<String>::new());
    assert_eq!(
        mutated("has-cluster-id: bool,", "has-cluster-id: bool, region: string,"),
        [
            "wit/v0.1.1 breaks components of v0.1.0: record identity.info: `region: string` added. It belongs to a new 0.x line."
        ]
    );
    assert_eq!(
        mutated("enum ip-mode { vip, proxy }", "enum ip-mode { vip, proxy, direct }"),
        ["wit/v0.1.1 breaks components of v0.1.0: enum types.ip-mode: `direct` added. It belongs to a new 0.x line."]
    );
    assert_eq!(
        mutated("name: func(cluster: string, service: service)", "name: func(service: service)"),
        [
            "wit/v0.1.1 breaks components of v0.1.0: function load-balancers.name: `cluster: string` removed. It belongs to a new 0.x line."
        ]
    );
}

#[test]
fn an_edit_or_a_deletion_of_a_released_version_is_found() {
    let drafts = folders().unwrap();
    let shipped = frozen(&drafts["v0.1.0"]);
    let table = format!("v0.1.0 {}", digest(&shipped));
    assert_eq!(problems(&table, &BTreeMap::from([("v0.1.0".to_owned(), shipped.clone())])), Vec::<String>::new());

    let mut touched = shipped.clone();
    touched.get_mut("types.wit").unwrap().push_str("// a comment\n");
    let found = problems(&table, &BTreeMap::from([("v0.1.0".to_owned(), touched)]));
    assert!(
        matches!(found.as_slice(), [one] if one.starts_with("wit/v0.1.0 was released and has been edited")),
        "{found:?}"
    );

    let found = problems(&table, &BTreeMap::new());
    assert!(
        matches!(found.as_slice(), [one] if one.starts_with("wit/v0.1.0 was released and is missing")),
        "{found:?}"
    );

    let found = problems("", &BTreeMap::from([("v0.1.0".to_owned(), shipped.clone())]));
    assert!(matches!(found.as_slice(), [one] if one.contains("not in wit/SHIPPED says DRAFT")), "{found:?}");

    let found = problems("", &BTreeMap::from([("v0.2.0".to_owned(), drafts["v0.1.0"].clone())]));
    assert_eq!(found, ["wit/v0.2.0 declares a package whose folder is wit/v0.1.0"]);

    let found = problems(
        "",
        &BTreeMap::from([("v0.1.0".to_owned(), Folder::from([("x.wit".to_owned(), "interface {".to_owned())]))]),
    );
    assert!(matches!(found.as_slice(), [one] if one.contains("does not parse")), "{found:?}");
}

#[test]
fn another_line_may_break() {
    let drafts = folders().unwrap();
    let shipped = frozen(&drafts["v0.1.0"]);
    let table = format!("v0.1.0 {}", digest(&shipped));
    let later = drafts["v0.1.0"].iter().map(|(name, text)| {
        (name.clone(), text.replace("provider@0.1.0", "provider@0.2.0").replace("has-cluster-id: bool,", ""))
    });
    let folders = BTreeMap::from([("v0.1.0".to_owned(), shipped), ("v0.2.0".to_owned(), later.collect())]);
    assert_eq!(problems(&table, &folders), Vec::<String>::new());
}

/// A package for tools has its own versions and uses the contract's types.
#[test]
fn the_package_of_the_legacy_interfaces_keeps_the_same_rules() {
    let drafts = folders().unwrap();
    let (contract, legacy) = (drafts["v0.1.0"].clone(), frozen(&drafts["legacy-v0.1.0"]));
    let later = |from: &str, to: &str| -> Folder {
        let newer = |text: &String| text.replace("skysail:legacy@0.1.0", "skysail:legacy@0.1.1").replace(from, to);
        drafts["legacy-v0.1.0"].iter().map(|(name, text)| (name.clone(), newer(text))).collect()
    };
    let table = format!("legacy-v0.1.0 {}", digest(&legacy));
    let judged = |later: Folder| {
        let all = [("v0.1.0", contract.clone()), ("legacy-v0.1.0", legacy.clone()), ("legacy-v0.1.1", later)];
        problems(&table, &all.map(|(version, folder)| (version.to_owned(), folder)).into())
    };
    assert_eq!(judged(later("  master: func", "  more: func();\n  master: func")), Vec::<String>::new());
    assert_eq!(
        judged(later("master: func(cluster: string)", "master: func()")),
        [
            "wit/legacy-v0.1.1 breaks components of legacy-v0.1.0: function clusters.master: `cluster: string` removed. It belongs to a new 0.x line."
        ]
    );
}

#[test]
fn the_contract_keeps_its_rules() {
    let table = fs::read_to_string(wit().join("SHIPPED")).unwrap();
    let folders = folders().unwrap();
    assert!(folders.contains_key("v0.1.0") && folders.contains_key("legacy-v0.1.0"));
    let found = problems(&table, &folders);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_world_of_the_readme_composes() {
    let readme = fs::read_to_string(wit().join("README.md")).unwrap();
    let example = readme.split("```wit\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example world");
    let mut resolve = Resolve::default();
    resolve.push_dir(wit().join("v0.1.0")).unwrap();
    let package = resolve.push_str("example.wit", example).unwrap();
    let world = *resolve.packages[package].worlds.values().next().expect("the example has a world");
    let names = |items: &wit_parser::IndexMap<_, _>| {
        let mut names: Vec<_> = items.keys().map(|key| resolve.name_world_key(key)).collect();
        names.sort();
        names
    };
    let exports = names(&resolve.worlds[world].exports);
    assert_eq!(exports, ["skysail:provider/identity@0.1.0", "skysail:provider/load-balancers@0.1.0"]);
    assert!(names(&resolve.worlds[world].imports).contains(&"skysail:provider/http@0.1.0".to_owned()));
}
