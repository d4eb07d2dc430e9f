//! The components of the tests: those that `make guests` builds, and the hand-written ones in
//! `guests/wat`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use skysail_host::symbols::Symbols;
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

/// The root folder of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A component that `make guests` has built, from `components` in the target folder of this test.
#[track_caller]
pub(crate) fn built(name: &str) -> Vec<u8> {
    let file = file(name);
    fs::read(&file).unwrap_or_else(|error| panic!("{} is missing ({error}); run make guests", file.display()))
}

/// The file of a component that `make guests` builds.
fn file(name: &str) -> PathBuf {
    // TARGET/PROFILE/deps/it-…
    let folder = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("components");
    folder.join(format!("{name}.wasm"))
}

/// The names of the functions of such a component, as a file.
pub(crate) fn symbols(name: &str) -> PathBuf {
    Symbols::beside(&file(name))
}

/// The same component with another digest, because of a custom section at its end.
#[track_caller]
pub(crate) fn marked(name: &str, mark: u8) -> Vec<u8> {
    let mut component = built(name);
    component.extend([0, 3, 1, b'm', mark]);
    component
}

/// The component of `guests/wat/<name>.wat` and the common definitions of these files.
#[track_caller]
pub(crate) fn hand_written(name: &str) -> Vec<u8> {
    let folder = repository().join("guests/wat");
    let part = |name: &str| fs::read_to_string(folder.join(format!("{name}.wat"))).unwrap();
    let mut module = wat::parse_str(format!("(module {} {})", part(name), part("common"))).unwrap();
    let mut resolve = Resolve::default();
    for folder in ["wit/v0.1.0", "wit/legacy-v0.1.0"] {
        resolve.push_dir(repository().join(folder)).unwrap();
    }
    // Only a component that exports a resource can create one.
    let things = if part(name).contains("[resource-new]") { "export things;" } else { "" };
    let takes_strings = part(name).contains(STRINGS);
    let strings = if takes_strings { "import strings;" } else { "" };
    let world = format!(
        "package skysail:probe; interface things {{ resource thing; }}
        interface strings {{ take-utf16: func(text: string); take-latin1: func(text: string); }}
        world probe {{
            export skysail:provider/identity@0.1.0;
            export skysail:legacy/clusters@0.1.0;
            {things} {strings}
        }}"
    );
    let package = resolve.push_str("probe.wit", &world).unwrap();
    let world = resolve.select_world(&[package], Some("probe")).unwrap();
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    let component = ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap();
    if takes_strings { beside_a_taker_of_strings(&component) } else { component }
}

/// The interface whose functions take a string.
const STRINGS: &str = "skysail:probe/strings";

/// A component with two inner ones: this component, and one that takes its strings in other
/// encodings than UTF-8, which this component has.
#[track_caller]
fn beside_a_taker_of_strings(component: &[u8]) -> Vec<u8> {
    let inner = wasmprinter::print_bytes(component).unwrap();
    // The outer component imports the types that both it and its exports are made of.
    let types = r#"(import "skysail:provider/types@0.1.0""#;
    let (head, rest) = inner.split_once(types).unwrap();
    let (import, _) = rest.split_once('\n').unwrap();
    let is_kept = |line: &&str| !line.contains(&format!("(import \"{STRINGS}\""));
    let head = head.lines().skip(1).filter(is_kept).collect::<Vec<_>>().join("\n");
    let inner = inner.replacen("(component", "(component $inner", 1);
    let exports = ["skysail:provider/identity@0.1.0", "skysail:legacy/clusters@0.1.0"]
        .map(|name| format!(r#"(export "{name}" (instance $inner "{name}"))"#))
        .concat();
    let text = format!(
        r#"(component {head} {types}{import}
        {inner}
        (component $taker
            (core module $m
                (memory (export "memory") 34)
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 16))
                (func (export "take") (param i32 i32)))
            (core instance $m (instantiate $m))
            (func (export "take-utf16") (param "text" string) (canon lift (core func $m "take")
                string-encoding=utf16 (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
            (func (export "take-latin1") (param "text" string) (canon lift (core func $m "take")
                string-encoding=latin1+utf16 (memory (core memory $m "memory")) (realloc (core func $m "realloc")))))
        (instance $taker (instantiate $taker))
        (instance $inner (instantiate $inner
            (with "skysail:provider/types@0.1.0" (instance 0))
            (with "{STRINGS}" (instance $taker))))
        {exports})"#
    );
    wat::parse_str(text).unwrap()
}

/// The same component with additional core instances that do nothing.
pub(crate) fn with_instances(component: &[u8], further: usize) -> Vec<u8> {
    let instances = "(core instance (instantiate $empty))".repeat(further);
    with(component, &format!("(core module $empty) {instances}"))
}

/// The same component with additional definitions.
pub(crate) fn with(component: &[u8], definitions: &str) -> Vec<u8> {
    let text = wasmprinter::print_bytes(component).unwrap();
    let body = text.trim_end().strip_suffix(')').unwrap();
    wat::parse_str(format!("{body} {definitions})")).unwrap()
}
