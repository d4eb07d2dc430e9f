//! Components of componentize-py, which import sockets.
//!
//! The C library of Python imports `wasi:sockets`, whatever the program does, and the sandbox has
//! no sockets. Here the component gets sockets of its own: another component exports the imported
//! interfaces, with functions that end the call. A component that imports no sockets stays as it
//! is. The option `--stub-wasi` of componentize-py would take clocks, random numbers and standard
//! output away as well.

use anyhow::{Context as _, Result, bail};
use wasm_compose::graph::{Component, CompositionGraph, EncodeOptions};
use wasmparser::{Parser, Payload, Validator};
use wit_component::{ComponentEncoder, DecodedWasm, StringEncoding};
use wit_parser::{LiftLowerAbi, ManglingAndAbi, Resolve};

/// What the names of the imports begin with.
const SOCKETS: &str = "wasi:sockets/";

/// The component with sockets of its own.
///
/// # Errors
/// The bytes are no component, or the types of its sockets cannot be read.
pub(crate) fn with_own_sockets(bytes: Vec<u8>) -> Result<Vec<u8>> {
    let imported = imported_sockets(&bytes)?;
    if imported.is_empty() {
        return Ok(bytes);
    }
    let DecodedWasm::Component(resolve, _) = wit_component::decode(&bytes)? else {
        bail!("it is a package of types and no component")
    };
    let sockets = sockets(resolve, &imported)?;
    let mut validator = Validator::new();
    let mut graph = CompositionGraph::new();
    let stub = graph.add_component(Component::from_bytes(&mut validator, "sockets", sockets)?)?;
    let provider = graph.add_component(Component::from_bytes(&mut validator, "provider", bytes)?)?;
    let [stub_instance, provider_instance] = [graph.instantiate(stub)?, graph.instantiate(provider)?];
    for name in &imported {
        let component = |id| graph.get_component(id).context("a component is not in the graph");
        let (export, ..) = component(stub)?.export_by_name(name).with_context(|| format!("no export {name}"))?;
        let (import, ..) = component(provider)?.import_by_name(name).with_context(|| format!("no import {name}"))?;
        graph.connect(stub_instance, Some(export), provider_instance, import)?;
    }
    graph.encode(EncodeOptions { define_components: true, export: Some(provider_instance), validate: true })
}

/// The interfaces of sockets that a component imports.
fn imported_sockets(component: &[u8]) -> Result<Vec<String>> {
    let (mut names, mut depth) = (Vec::new(), 0_u32);
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let name = import?.name.name;
                    if name.starts_with(SOCKETS) {
                        names.push(name.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    Ok(names)
}

/// A component that exports these interfaces, with functions that trap.
fn sockets(mut resolve: Resolve, interfaces: &[String]) -> Result<Vec<u8>> {
    let exports: String = interfaces.iter().map(|name| format!("export {name};")).collect();
    let package =
        resolve.push_str("sockets.wit", &format!("package skysail:sockets; world sockets {{ {exports} }}"))?;
    let world = resolve.select_world(&[package], Some("sockets"))?;
    let abi = ManglingAndAbi::Legacy(LiftLowerAbi::Sync);
    let mut module = wit_component::dummy_module(&resolve, world, abi);
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    ComponentEncoder::default().validate(true).module(&module)?.encode()
}

#[cfg(test)]
mod tests {
    use wasmparser::Validator;
    use wit_component::{ComponentEncoder, StringEncoding};
    use wit_parser::{LiftLowerAbi, ManglingAndAbi, Resolve};

    use super::{imported_sockets, with_own_sockets};

    /// A component that imports sockets, whose types are made of those of `wasi:io`.
    fn with_sockets() -> Vec<u8> {
        let text = "package skysail:test;
            world test { import wasi:io/poll@0.2.9; import wasi:sockets/tcp@0.2.9; export run: func(); }
            package wasi:io@0.2.9 { interface poll { resource pollable { block: func(); } } }
            package wasi:sockets@0.2.9 { interface tcp {
                use wasi:io/poll@0.2.9.{pollable};
                resource tcp-socket { subscribe: func() -> pollable; }
                create: func() -> tcp-socket;
            } }";
        let mut resolve = Resolve::default();
        let package = resolve.push_str("test.wit", text).unwrap();
        let world = resolve.select_world(&[package], Some("test")).unwrap();
        let abi = ManglingAndAbi::Legacy(LiftLowerAbi::Sync);
        let mut module = wit_component::dummy_module(&resolve, world, abi);
        wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
    }

    #[test]
    fn a_component_gets_sockets_of_its_own_and_keeps_its_other_imports() {
        let before = with_sockets();
        assert_eq!(imported_sockets(&before).unwrap(), ["wasi:sockets/tcp@0.2.9"]);
        let after = with_own_sockets(before).unwrap();
        assert_eq!(imported_sockets(&after).unwrap(), Vec::<String>::new());
        let types = Validator::new().validate_all(&after).unwrap();
        assert!(types.as_ref().component_item_for_import("wasi:io/poll@0.2.9").is_some());
        assert!(types.as_ref().component_item_for_export("run").is_some());
        // Through the program once more, it stays as it is.
        assert_eq!(with_own_sockets(after.clone()).unwrap(), after);
    }

    #[test]
    fn a_component_without_sockets_stays_as_it_is() {
        let component = wat::parse_str("(component (core module))").unwrap();
        assert_eq!(with_own_sockets(component.clone()).unwrap(), component);
    }
}
