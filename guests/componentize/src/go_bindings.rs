//! The bindings of the Go SDK, `guest-sdk/go/internal/wit`.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use wit_bindgen_core::{
    Files,
    wit_parser::{Resolve, SourceMap},
};
use wit_bindgen_go::{Format, Opts};

use crate::{CONTRACT, PACKAGE, VERSION};

const MODULE: &str = "skysail.dev/provider/internal";

/// The contract's interfaces that a provider exports, each with the SDK's package for it. Each has
/// bindings of its own: a component exports the interfaces whose packages its program imports.
const EXPORTS: [(&str, &str); 6] = [
    ("identity", "identity"),
    ("instances", "instances"),
    ("load-balancers", "loadbalancers"),
    ("load-balancer-inventory", "inventory"),
    ("routes", "routes"),
    ("persistent-volume-labels", "volumelabels"),
];

/// Path and text of each file.
///
/// # Errors
/// The contract has something that wit-bindgen cannot express in Go.
pub fn go_bindings() -> Result<BTreeMap<String, String>> {
    let is_exports = |path: &str| path.ends_with("wit_exports.go");
    let mut all = BTreeMap::new();
    for (path, text) in generated("imports", &format!("include {PACKAGE}/imports@{VERSION};"))? {
        if !is_exports(&path) {
            all.insert(format!("imports/{path}"), text);
        }
    }
    for (interface, package) in EXPORTS {
        for (path, text) in generated(package, &format!("export {PACKAGE}/{interface}@{VERSION};"))? {
            if is_exports(&path) {
                all.insert(format!("exports/{package}/wit_exports.go"), exports(interface, package, &text));
            } else {
                all.insert(format!("imports/{path}"), text);
            }
        }
    }
    Ok(all)
}

/// What wit-bindgen makes of a world, for the sandbox alone, with the SDK's packages for types
/// and memory.
fn generated(name: &str, items: &str) -> Result<BTreeMap<String, String>> {
    let mut resolve = Resolve::default();
    let mut map = SourceMap::new();
    for (name, text) in CONTRACT {
        map.push_str(name, text);
    }
    resolve.push_group(map.parse().map_err(|(_, error)| anyhow!("{error}"))?)?;
    let package = resolve.push_str("go.wit", &format!("package skysail:go; world {name} {{ {items} }}"))?;
    let world = resolve.select_world(&[package], Some(name))?;
    let mut files = Files::default();
    // Formatted by gofmt where there is one, the text would depend on the machine.
    let (imports, exports) = (format!("{MODULE}/wit/imports"), format!("{MODULE}/wit/exports"));
    let options =
        Opts { pkg_name: Some(imports), export_pkg_name: Some(exports), format: Format::False, ..Opts::default() };
    options.build().generate(&mut resolve, world, &mut files)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let go = files.iter().filter(|(path, _)| path.ends_with(".go")).map(|(path, bytes)| (path.to_owned(), text(bytes)));
    Ok(go
        .map(|(path, text)| {
            let text = text.replace("go.bytecodealliance.org/pkg/wit/", &format!("{MODULE}/wit/"));
            (path, format!("//go:build wasip1\n\n{text}"))
        })
        .collect())
}

/// The exports of one interface, which call the SDK's functions for it.
fn exports(interface: &str, package: &str, text: &str) -> String {
    let alias = format!("export_skysail_provider_{}", interface.replace('-', "_"));
    let theirs = format!("\"{MODULE}/wit/exports/{alias}\"");
    let ours = format!("{alias} \"{MODULE}/glue/{package}\"");
    text.replace(&theirs, &ours).replace("package wit_exports", &format!("package {package}"))
}
