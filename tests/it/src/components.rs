//! Where the tests' components come from: the folder that `make guests` fills, and the hand-written
//! ones in `guests/wat`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

/// The top of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A component that `make guests` has built: from `components` in the target folder that this test
/// itself was built into.
#[track_caller]
pub(crate) fn built(name: &str) -> Vec<u8> {
    // TARGET/PROFILE/deps/it-…
    let folder = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("components");
    let file = folder.join(format!("{name}.wasm"));
    fs::read(&file).unwrap_or_else(|error| panic!("{} is missing ({error}): run make guests", file.display()))
}

/// The same component as another file, with another digest: a custom section at its end.
#[track_caller]
pub(crate) fn marked(name: &str, mark: u8) -> Vec<u8> {
    let mut component = built(name);
    component.extend([0, 3, 1, b'm', mark]);
    component
}

/// A component of `guests/wat/<name>.wat` and what is common to these.
#[track_caller]
pub(crate) fn hand_written(name: &str) -> Vec<u8> {
    let folder = repository().join("guests/wat");
    let part = |name: &str| fs::read_to_string(folder.join(format!("{name}.wat"))).unwrap();
    let mut module = wat::parse_str(format!("(module {} {})", part(name), part("common"))).unwrap();
    let mut resolve = Resolve::default();
    resolve.push_dir(repository().join("wit/v0.1.0")).unwrap();
    // Only a component that exports a resource can make one.
    let things = if part(name).contains("[resource-new]") { "export things;" } else { "" };
    let world = format!(
        "package skysail:probe; interface things {{ resource thing; }} world probe {{
            export skysail:provider/identity@0.1.0;
            export skysail:provider/clusters@0.1.0;
            {things}
        }}"
    );
    let package = resolve.push_str("probe.wit", &world).unwrap();
    let world = resolve.select_world(&[package], Some("probe")).unwrap();
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

/// The same component with so many further core instances that do nothing.
pub(crate) fn with_instances(component: &[u8], further: usize) -> Vec<u8> {
    let instances = "(core instance (instantiate $empty))".repeat(further);
    with(component, &format!("(core module $empty) {instances}"))
}

/// The same component with further definitions.
pub(crate) fn with(component: &[u8], definitions: &str) -> Vec<u8> {
    let text = wasmprinter::print_bytes(component).unwrap();
    let body = text.trim_end().strip_suffix(')').unwrap();
    wat::parse_str(format!("{body} {definitions})")).unwrap()
}
