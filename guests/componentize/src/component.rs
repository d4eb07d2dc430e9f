//! From a core module to a component.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, anyhow, ensure};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::{Resolve, SourceMap, WorldId};

use crate::{CONTRACT, PACKAGE, VERSION, borrows::drop_borrows_in_time, sockets::with_own_sockets, symbols::Stripped};

/// A component, and the names of its functions.
#[derive(Debug)]
pub struct Made {
    /// The component. The author's own functions have no names in it.
    pub component: Vec<u8>,
    /// The sidecar with the names, by which `skysail` reads a backtrace of this component; none
    /// where the toolchain gave no names, or made the component itself.
    pub symbols: Option<Vec<u8>>,
}

/// The component of a core module; of componentize-qjs, whose components drop what they borrow too
/// late; or of componentize-py, whose components import sockets.
///
/// A module of wit-bindgen for Rust has the types of the component in a custom section. Go's linker
/// keeps no such section: the types then follow from the interfaces that the module exports. A
/// module that imports `wasi_snapshot_preview1`, as Go's do, gets wasmtime's adapter.
///
/// # Errors
/// The bytes are neither, the module has no interface of the contract, or it imports what
/// neither the contract nor the adapter has.
pub fn component(module: &[u8]) -> Result<Made> {
    if Parser::is_component(module) {
        ensure!(exports_contract(module)?, "it exports no interface of {PACKAGE}@{VERSION}");
        return Ok(Made { component: with_own_sockets(drop_borrows_in_time(module)?)?, symbols: None });
    }
    let Outline { has_types, needs_adapter, interfaces } = Outline::of(module).context("not a core module")?;
    let mut stripped = Stripped::of(module)?;
    if !has_types {
        ensure!(
            !interfaces.is_empty(),
            "it exports no interface of {PACKAGE}@{VERSION}: a Rust module is built with wit-bindgen; a Go program \
             imports the packages skysail.dev/provider/export/… and is built with -buildmode=c-shared"
        );
        let (resolve, world) = world(&interfaces)?;
        wit_component::embed_component_metadata(&mut stripped.module, &resolve, world, StringEncoding::UTF8)?;
    }
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true).module(&stripped.module)?;
    if needs_adapter {
        encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?;
    }
    let component = encoder.encode()?;
    Ok(Made { symbols: stripped.symbols(&component), component })
}

/// Whether a component exports an interface of the contract.
fn exports_contract(component: &[u8]) -> Result<bool> {
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    if export?.name.name.starts_with(&format!("{PACKAGE}/")) {
                        return Ok(true);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

/// What has to be known of a core module.
#[derive(Default)]
struct Outline {
    has_types: bool,
    needs_adapter: bool,
    /// Names of the contract's interfaces that the module exports.
    interfaces: BTreeSet<String>,
}

impl Outline {
    fn of(module: &[u8]) -> Result<Self> {
        let mut outline = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::CustomSection(section) => outline.has_types |= section.name().starts_with("component-type"),
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        outline.needs_adapter |= import?.module == WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME;
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let name = export?.name;
                        // skysail:provider/instances@0.1.0#describe
                        let interface = name.strip_prefix(PACKAGE).and_then(|rest| rest.strip_prefix('/'));
                        let interface = interface.and_then(|rest| rest.split_once('@'));
                        outline.interfaces.extend(interface.map(|(interface, _)| interface.to_owned()));
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }
}

/// A world with every import of the contract and these exports.
fn world(interfaces: &BTreeSet<String>) -> Result<(Resolve, WorldId)> {
    let mut contract = SourceMap::new();
    for (name, text) in CONTRACT {
        contract.push_str(name, text);
    }
    let mut resolve = Resolve::default();
    resolve.push_group(contract.parse().map_err(|(_, error)| anyhow!("{error}"))?)?;
    let exports: String =
        interfaces.iter().map(|interface| format!("export {PACKAGE}/{interface}@{VERSION};")).collect();
    let text =
        format!("package skysail:component; world component {{ include {PACKAGE}/imports@{VERSION}; {exports} }}");
    let package = resolve.push_str("component.wit", &text)?;
    let world = resolve.select_world(&[package], Some("component"))?;
    Ok((resolve, world))
}

#[cfg(test)]
mod tests {
    use super::component;

    fn error(module: &[u8]) -> String {
        format!("{:#}", component(module).unwrap_err())
    }

    #[test]
    fn bytes_that_are_no_core_module_are_refused() {
        assert!(error(b"text").starts_with("not a core module"));
    }

    #[test]
    fn a_module_without_an_interface_of_the_contract_says_what_to_do() {
        let text = error(&wat::parse_str(r#"(module (func (export "main")))"#).unwrap());
        assert!(text.contains("exports no interface") && text.contains("skysail.dev/provider/export"), "{text}");
    }

    #[test]
    fn an_interface_with_a_function_missing_is_refused() {
        let name = "skysail:provider/identity@0.1.0#describe";
        let text = error(&wat::parse_str(format!(r#"(module (func (export "{name}")))"#)).unwrap());
        assert!(text.contains("identity"), "{text}");
    }
}
