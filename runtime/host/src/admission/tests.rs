//! Every kind of bad file, and its refusal.

use std::path::Path;

use expect_test::{Expect, expect};
use wit_component::{ComponentEncoder, StringEncoding, dummy_module, embed_component_metadata};
use wit_parser::{LiftLowerAbi, ManglingAndAbi, Resolve};

use super::{AdmissionFinding, Examination, Inspection, Interface, RefusalCode, examine, look};

const LIMIT: u64 = 32 << 20;

/// The checks of the jail's parent and child.
fn inspect(bytes: &[u8], origin: &str, bytes_max: u64) -> Inspection {
    let inspection = Inspection::new(bytes, origin);
    match look(bytes, bytes_max) {
        Ok(()) => inspection.with(examine(bytes).bounded()),
        Err(refusal) => inspection.refused(refusal),
    }
}

/// A component with the world `test` of this WIT, whose every function traps. `contract` is the
/// text of `skysail:provider`, and of `skysail:legacy` for a world that names it.
fn component(contract: &[(&str, String)], wit: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let is_legacy = |name: &str| super::contract::LEGACY_WIT.iter().any(|(legacy, _)| *legacy == name);
    let packages: &[bool] = if wit.contains("skysail:legacy/") { &[false, true] } else { &[false] };
    for legacy in packages {
        let mut sources = wit_parser::SourceMap::default();
        for (name, text) in contract.iter().filter(|(name, _)| is_legacy(name) == *legacy) {
            sources.push(Path::new(name), text.clone());
        }
        resolve.push_group(sources.parse().map_err(|(_, error)| error).unwrap()).unwrap();
    }
    for (name, text) in [("cli.wit", WASI_CLI), ("filesystem.wit", WASI_FILESYSTEM), ("http.wit", WASI_HTTP)] {
        resolve.push_str(name, text).unwrap();
    }
    let package = resolve.push_str("test.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("test")).unwrap();
    let mut module = dummy_module(&resolve, world, ManglingAndAbi::Legacy(LiftLowerAbi::Sync));
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

const WASI_CLI: &str = "package wasi:cli@0.2.6; interface environment { get-environment: func() -> list<tuple<string, string>>; } \
                        interface exit { exit: func(status: result); }";
const WASI_FILESYSTEM: &str =
    "package wasi:filesystem@0.2.6; interface preopens { count: func() -> u32; } interface mounts { f: func(); }";
const WASI_HTTP: &str = "package wasi:http@0.2.6; interface incoming-handler { handle: func(); }";

/// The contract, with every `from` replaced by `to`.
fn contract(from: &str, to: &str) -> Vec<(&'static str, String)> {
    let changed = |(name, text): (&'static str, &str)| (name, text.replace(from, to));
    let files = || super::contract::WIT.into_iter().chain(super::contract::LEGACY_WIT);
    let contract: Vec<_> = files().map(changed).collect();
    assert!(from == to || contract.iter().zip(files()).any(|((_, new), (_, old))| new != old), "{from}");
    contract
}

fn provider() -> Vec<u8> {
    component(&contract("", ""), "package a:b; world test { include skysail:provider/provider@0.1.0; }")
}

#[track_caller]
fn check(bytes: &[u8], expected: Expect) -> Inspection {
    let inspection = inspect(bytes, "file /etc/skysail/provider.wasm", LIMIT);
    let lines: Vec<_> =
        inspection.refusals.iter().map(|r| format!("{}: {}\n", r.code.category(), r.sentence)).collect();
    expected.assert_eq(&lines.concat());
    inspection
}

#[test]
fn a_provider_is_admitted_and_its_world_is_listed() {
    let inspection = check(&provider(), expect![""]);
    assert!(inspection.is_admitted());
    assert_eq!(inspection.contract_version.as_deref(), Some("0.1.0"));
    let names: Vec<_> = inspection.exports.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["skysail:provider/identity@0.1.0"]);
    assert!(
        inspection
            .imports
            .iter()
            .any(|i| i.name == "skysail:provider/http@0.1.0" && i.functions == ["send", "send-all"])
    );
    assert!(
        inspection.producers.iter().any(|line| line.starts_with("processed-by: wit-component ")),
        "{:?}",
        inspection.producers
    );
    assert!(inspection.digest.starts_with("sha256:") && inspection.digest.len() == 71);
    let json = serde_json::to_value(&inspection).unwrap();
    assert_eq!(json["contractVersion"], "0.1.0");
}

#[test]
fn every_interface_of_the_contract_is_admitted() {
    let all =
        component(&contract("", ""), "package a:b; world test { include skysail:legacy/complete-provider@0.1.0; }");
    let inspection = check(&all, expect![""]);
    assert_eq!(inspection.exports.len(), 9);
}

/// Linking would accept the component, and each call would trap.
#[test]
fn a_component_with_a_node_set_of_its_own_is_refused() {
    let exported = component(
        &contract("", ""),
        "package a:b; world test {
            include skysail:provider/provider@0.1.0; export skysail:provider/types@0.1.0; export skysail:provider/load-balancers@0.1.0;
        }",
    );
    check(
        &exported,
        expect![[r#"
        WrongType: file /etc/skysail/provider.wasm: it exports skysail:provider/types@0.1.0, which the host provides: its other exports would use their own types instead of the host's, and each call would trap; import the interface and remove the export from your world
    "#]],
    );
    let contract = contract(
        "use types.{error, service, load-balancer-status, node-set};",
        "use types.{error, service, load-balancer-status}; resource node-set;",
    );
    let own = component(
        &contract,
        "package a:b; world test { include skysail:provider/provider@0.1.0; export skysail:provider/load-balancers@0.1.0; }",
    );
    check(
        &own,
        expect![[r#"
        WrongType: file /etc/skysail/provider.wasm: skysail:provider/load-balancers@0.1.0#ensure has another type than in contract 0.1.0: parameter `nodes`: `node-set`: it is a resource of skysail:provider/load-balancers instead of skysail:provider/types; build the component against wit/v0.1.0 as it is, without changes
        WrongType: file /etc/skysail/provider.wasm: skysail:provider/load-balancers@0.1.0#update has another type than in contract 0.1.0: parameter `nodes`: `node-set`: it is a resource of skysail:provider/load-balancers instead of skysail:provider/types; build the component against wit/v0.1.0 as it is, without changes
    "#]],
    );
}

#[test]
fn the_refusal_of_a_file_that_is_no_component_names_its_kind() {
    check(
        b"",
        expect![[r#"
        Empty: file /etc/skysail/provider.wasm: the file is empty; copy the component to it again
    "#]],
    );
    check(
        b"<!DOCTYPE html><html><body>Sign in</body></html>",
        expect![[r#"
        Text: file /etc/skysail/provider.wasm: the file is a web page, not a component: a download probably ended in an error or a login page; fetch the file again
    "#]],
    );
    check(
        b"(component (import \"x\" (func)))",
        expect![[r#"
        Text: file /etc/skysail/provider.wasm: the file is WebAssembly text; make a binary of it with `wasm-tools parse provider.wat -o provider.wasm`
    "#]],
    );
    check(
        b"apiVersion: v1\nkind: ConfigMap\n",
        expect![[r#"
        Text: file /etc/skysail/provider.wasm: the file is text, not a component; it begins with "apiVersion: v1"; give the .wasm file that your build makes
    "#]],
    );
    check(
        b"\x1f\x8b\x08\0\0\0\0\0",
        expect![[r#"
        Compressed: file /etc/skysail/provider.wasm: the file is compressed; unpack it and give the .wasm file inside
    "#]],
    );
    check(
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0",
        expect![[r#"
        Precompiled: file /etc/skysail/provider.wasm: the file is a native executable or library (ELF); build the provider for wasm32-unknown-unknown and make a component of it
    "#]],
    );
    check(
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        expect![[r#"
        NotWasm: file /etc/skysail/provider.wasm: the file is not WebAssembly: it begins with the bytes 89 50 4e 47 instead of 00 61 73 6d; give the .wasm file that your build makes
    "#]],
    );
    check(
        &wat::parse_str("(module)").unwrap(),
        expect![[r#"
        CoreModule: file /etc/skysail/provider.wasm: the file is a core module, not a component; wrap it with `wasm-tools component new module.wasm -o provider.wasm`, or use the component that your build makes beside it
    "#]],
    );
    check(
        b"\0asm\x0a\0\x01\0",
        expect![[r#"
        NotWasm: file /etc/skysail/provider.wasm: its header says version 10, layer 1, which is neither module nor component of today; build it with a current toolchain
    "#]],
    );
    check(
        &wat::parse_str("(component)").unwrap(),
        expect![[r#"
        MissingIdentity: file /etc/skysail/provider.wasm: it does not export skysail:provider/identity@0.1.0, so it is not a provider: include the world `provider` in your own world and implement `identity` (guests/dummy is the smallest example)
    "#]],
    );
}

#[test]
fn a_precompiled_component_is_refused() {
    let engine = wasmtime::Engine::new(&crate::engine::engine_config(512 << 10)).unwrap();
    let native = engine.precompile_component(&wat::parse_str("(component)").unwrap()).unwrap();
    check(
        &native,
        expect![[r#"
        Precompiled: file /etc/skysail/provider.wasm: the file is a component that wasmtime has precompiled (.cwasm): native code from outside is never run; give the .wasm file it was made from, this host compiles it by itself
    "#]],
    );
}

#[test]
fn a_file_above_the_limit_is_not_read_further() {
    let inspection = inspect(&[0; 100], "file x", 99);
    assert_eq!(inspection.refusals[0].code, RefusalCode::TooLarge);
    expect![[r#"file x: it has 100 bytes, and the limit componentBytes is 99; build the component smaller (release profile, opt-level "s", stripped), or raise the limit"#]].assert_eq(&inspection.refusals[0].sentence);
}

#[test]
fn every_prefix_of_a_component_is_refused_until_only_custom_sections_are_missing() {
    let whole = provider();
    let (mut truncated, mut others) = (0, 0);
    for end in 1..whole.len() {
        let inspection = inspect(&whole[..end], "file x", LIMIT);
        match inspection.refusals.first().map(|refusal| refusal.code) {
            Some(RefusalCode::Truncated) => truncated += 1,
            // A cut at the end of a section: the exports are missing.
            Some(_) => others += 1,
            // Only the names and the producers follow the exports.
            None => assert_eq!(inspection.exports.len(), 1, "after {end} bytes"),
        }
    }
    assert!(
        truncated > whole.len() / 10 * 9 && others > 0,
        "{truncated} truncated, {others} others of {}",
        whole.len()
    );
    let half_a_section = b"\0asm\x0d\0\x01\0\x00\x64abc";
    check(
        half_a_section,
        expect![[r#"
        Truncated: file /etc/skysail/provider.wasm: the file ends too early: after 13 bytes, in the section that starts at byte 8, at least 97 bytes are missing; copy it again, preferably under another name and then renamed
    "#]],
    );
}

#[test]
fn a_component_for_another_contract_gets_one_refusal_and_not_one_for_each_interface() {
    let newer = contract("skysail:provider@0.1.0", "skysail:provider@0.2.0");
    let inspection = check(
        &component(&newer, "package a:b; world test { include skysail:provider/provider@0.2.0; }"),
        expect![[r#"
            NewerContract: file /etc/skysail/provider.wasm: it is built for contract 0.2.0 (skysail:provider/identity@0.2.0), and this host supports 0.1.0; upgrade Skysail, or build the component for 0.1.0 (wit/v0.1.0)
        "#]],
    );
    assert_eq!(inspection.contract_version.as_deref(), Some("0.2.0"));
    let older = contract("skysail:provider@0.1.0", "skysail:provider@0.0.9");
    check(
        &component(&older, "package a:b; world test { include skysail:provider/provider@0.0.9; }"),
        expect![[r#"
        OlderContract: file /etc/skysail/provider.wasm: it is built for contract 0.0.9 (skysail:provider/identity@0.0.9), and this host supports 0.1.0; build the component for 0.1.0 (wit/v0.1.0)
    "#]],
    );
}

#[test]
fn a_newer_patch_of_the_same_contract_is_admitted_if_it_uses_only_known_functions() {
    let newer = contract("skysail:provider@0.1.0", "skysail:provider@0.1.7");
    let wit = "package a:b; world test { include skysail:provider/provider@0.1.7; }";
    check(&component(&newer, wit), expect![""]);
    let newer: Vec<_> = newer
        .into_iter()
        .map(|(name, text)| (name, text.replace("interface clock {", "interface clock { zone: func() -> string;")))
        .collect();
    check(
        &component(&newer, wit),
        expect![[r#"
        UnknownImport: file /etc/skysail/provider.wasm: it imports skysail:provider/clock@0.1.7#zone, and in contract 0.1.0 that interface has no such function: it may be of a later contract; build the component against wit/v0.1.0
    "#]],
    );
}

#[test]
fn each_unknown_import_gets_a_refusal() {
    check(
        &component(
            &contract("", ""),
            "package a:b; world test { include skysail:provider/provider@0.1.0; \
             import wasi:cli/environment@0.2.6; import wasi:cli/exit@0.2.6; import wasi:filesystem/preopens@0.2.6; \
             import wasi:filesystem/mounts@0.2.6; import wasi:http/incoming-handler@0.2.6; import inline: interface { f: func(); } import g: func(); }",
        ),
        expect![[r#"
            WithheldWasi: file /etc/skysail/provider.wasm: it imports wasi:filesystem/mounts@0.2.6, and of WASI the sandbox has clocks, random numbers, streams and standard output only; leave it out, or build without WASI
            WithheldWasi: file /etc/skysail/provider.wasm: it imports wasi:http/incoming-handler@0.2.6, and of wasi:http the sandbox has outgoing-handler and types only; a provider serves no requests
            UnknownImport: file /etc/skysail/provider.wasm: it imports inline, which this host does not have: a provider may import skysail:provider/{cache,clock,config,events,http,log,types}@0.1.0 and parts of WASI 0.2
            UnknownImport: file /etc/skysail/provider.wasm: it imports g, which this host does not have: a provider may import skysail:provider/{cache,clock,config,events,http,log,types}@0.1.0 and parts of WASI 0.2
        "#]],
    );
    let sockets = wat::parse_str(
        r#"(component (import "wasi:sockets/tcp@0.2.6" (instance (export "f" (func)))) (import "vendor:x/y@1.0.0" (instance (export "f" (func)))))"#,
    )
    .unwrap();
    check(
        &sockets,
        expect![[r#"
        WithheldWasi: file /etc/skysail/provider.wasm: it imports wasi:sockets/tcp@0.2.6, and the sandbox has no sockets; send requests with skysail:provider/http
        UnknownImport: file /etc/skysail/provider.wasm: it imports vendor:x/y@1.0.0, which this host does not have: a provider may import skysail:provider/{cache,clock,config,events,http,log,types}@0.1.0 and parts of WASI 0.2
        MissingIdentity: file /etc/skysail/provider.wasm: it does not export skysail:provider/identity@0.1.0, so it is not a provider: include the world `provider` in your own world and implement `identity` (guests/dummy is the smallest example)
    "#]],
    );
    let unknown =
        wat::parse_str(r#"(component (import "skysail:provider/queue@0.1.0" (instance (export "f" (func)))))"#)
            .unwrap();
    check(
        &unknown,
        expect![[r#"
        UnknownImport: file /etc/skysail/provider.wasm: it imports skysail:provider/queue@0.1.0, and contract 0.1.0 gives providers no such interface: it may be of a later contract; build the component against wit/v0.1.0
        MissingIdentity: file /etc/skysail/provider.wasm: it does not export skysail:provider/identity@0.1.0, so it is not a provider: include the world `provider` in your own world and implement `identity` (guests/dummy is the smallest example)
    "#]],
    );
}

#[test]
fn the_refusal_of_a_changed_type_names_the_place() {
    let wit = "package a:b; world test { include skysail:provider/complete-provider@0.1.0; }";
    let changes = [
        // An additional field, case and parameter, and another result type.
        ("has-cluster-id: bool,", "has-cluster-id: bool, region: string,"),
        ("enum level { trace, debug, info, warn, error }", "enum level { trace, debug, info, warn, error, fatal }"),
        ("check-config: func(text: string)", "check-config: func(text: string, strict: bool)"),
        ("now-ms: func() -> u64;", "now-ms: func() -> u32;"),
    ];
    let refused = changes.map(|(from, to)| {
        let inspection = inspect(&component(&contract(from, to), wit), "file x", LIMIT);
        inspection.refusals.first().map_or_else(|| "admitted".to_owned(), ToString::to_string)
    });
    expect![[r#"
        file x: skysail:provider/identity@0.1.0#describe has another type than in contract 0.1.0: result: `info`: field `region` is where `serial-load-balancers` should be; build the component against wit/v0.1.0 as it is, without changes
        file x: skysail:provider/log@0.1.0#enabled has another type than in contract 0.1.0: parameter `level`: `level`: case `fatal` is one too many; build the component against wit/v0.1.0 as it is, without changes
        file x: skysail:provider/identity@0.1.0#check-config has another type than in contract 0.1.0: it has 2 parameters instead of 1; build the component against wit/v0.1.0 as it is, without changes
        file x: skysail:provider/clock@0.1.0#now-ms has another type than in contract 0.1.0: result: it is u32 instead of u64; build the component against wit/v0.1.0 as it is, without changes"#]].assert_eq(&refused.join("\n"));
}

#[test]
fn an_incomplete_exported_interface_is_refused() {
    let partly = contract("master: func(cluster: string) -> result<string, error>;", "");
    let wit =
        "package a:b; world test { include skysail:provider/provider@0.1.0; export skysail:legacy/clusters@0.1.0; }";
    check(
        &component(&partly, wit),
        expect![[r#"
        MissingFunction: file /etc/skysail/provider.wasm: it exports skysail:legacy/clusters@0.1.0 without `master`: an interface is exported whole or not at all; implement the function, or leave the interface out of your world
    "#]],
    );
}

#[test]
fn the_number_of_refusals_of_a_component_is_bounded() {
    let imports: String = (0..500).map(|n| format!("import needless{n}: func(); ")).collect();
    let wit = format!("package a:b; world test {{ include skysail:provider/provider@0.1.0; {imports} }}");
    let inspection = inspect(&component(&contract("", ""), &wit), "file x", LIMIT);
    assert_eq!(inspection.refusals.len(), super::REFUSALS_MAX);
    assert_eq!(inspection.imports.len(), super::LISTED_MAX);
}

#[test]
fn an_oversized_examination_of_a_hostile_child_is_truncated() {
    let long = "x".repeat(2_500);
    let interface = Interface { name: long.clone(), functions: vec![long.clone(); 50] };
    let refusals = vec![AdmissionFinding { code: RefusalCode::Malformed, reason: format!("a\n{long}") }; 100];
    let examination = Examination {
        contract_version: Some(long.clone()),
        imports: vec![interface; 300],
        exports: vec![Interface { name: long.clone(), functions: vec![long.clone(); 5000] }],
        wasi: vec![long.clone(); 300],
        producers: vec![long; 300],
        refusals,
    };
    let inspection = Inspection::new(&[], "file x").with(examination.bounded());
    assert!(serde_json::to_vec(&inspection).unwrap().len() < 1 << 20);
    assert_eq!(inspection.refusals.len(), super::REFUSALS_MAX);
    assert!(inspection.refusals.iter().all(|refusal| !refusal.sentence.contains('\n')));
}
