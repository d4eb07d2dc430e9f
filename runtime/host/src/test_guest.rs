//! A hand-written provider component, for tests that need a component without a build.

use bytes::Bytes;
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

/// The properties and the behaviour of the component.
#[derive(Clone, Copy)]
pub(crate) struct Guest {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) has_clusters: bool,
    pub(crate) instances: Instances,
    pub(crate) describe: &'static str,
    pub(crate) check_config: &'static str,
    pub(crate) master: Master,
    pub(crate) inventory: Inventory,
    /// An origin that the component requires; empty for none.
    pub(crate) egress: &'static str,
}

/// What `instances.describe` does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instances {
    /// The interface is not exported.
    Absent,
    /// The interface is exported, but `identity.describe` names no scheme of provider IDs.
    WithoutScheme,
    /// Returns `not-found` for one node.
    NotFound,
    /// Traps.
    Trap,
}

/// What `load-balancer-inventory.list` does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inventory {
    /// The interface is not exported.
    Absent,
    /// Lists one load balancer with the guest's name.
    Name,
    /// Lists one load balancer whose name is the guest's version.
    Version,
    /// Returns the error `denied`.
    Denied,
    /// Traps.
    Trap,
}

/// What `clusters.master` does.
#[derive(Clone, Copy)]
pub(crate) enum Master {
    /// Returns the version after so many iterations of a loop.
    Version(u32),
    /// Returns the error with this number, with the version as its message.
    Error(u8),
    /// Returns a control character, which texts for machines must not contain.
    ControlCharacter,
    /// Traps.
    Trap,
    /// Returns the value in the cache, or an empty text, and stores the version in the cache.
    Cached,
}

/// The numbers of errors in the contract.
pub(crate) const DENIED: u8 = 4;
pub(crate) const UNAVAILABLE: u8 = 7;
pub(crate) const INTERNAL: u8 = 8;

pub(crate) const GUEST: Guest = Guest {
    name: "p",
    version: "1",
    has_clusters: true,
    instances: Instances::Absent,
    describe: "",
    check_config: "(i32.const 512)",
    master: Master::Version(0),
    inventory: Inventory::Absent,
    egress: "",
};

/// Reports a problem unless the cloud-config is empty: severity, line, key and message.
pub(crate) const PICKY: &str = "(i32.store (i32.const 512) (i32.const 600)) (i32.store (i32.const 516) (i32.ne (local.get 1) (i32.const 0))) \
                                (i32.const 512)";

/// Reports a problem if the cloud-config is empty.
pub(crate) const CHOOSY: &str =
    "(i32.store (i32.const 512) (i32.const 600)) (i32.store (i32.const 516) (i32.eqz (local.get 1))) (i32.const 512)";

/// The import that [`Master::Cached`] needs.
const CACHE: &str = r#"(import "skysail:provider/cache@0.1.0" "get" (func $get (param i32 i32 i32)))
                       (import "skysail:provider/cache@0.1.0" "set" (func $set (param i32 i32 i32 i32 i64) (result i32)))"#;

/// The import that [`Instances`] needs.
const NODES: &str = r#"(import "skysail:provider/types@0.1.0" "[resource-drop]node-set" (func $drop (param i32)))"#;

/// Builds the component. Texts are at the addresses 200 (name), 220 (version), 240 (a key) and 260
/// (an origin), results at 100, 160, 512, 800, 904, 1000 and 1200.
pub(crate) fn component(guest: &Guest) -> Bytes {
    let Guest { name, version, has_clusters, instances, describe, check_config, master, inventory, egress } = *guest;
    let clusters = if has_clusters { clusters(master, version) } else { String::new() };
    let inventories = if inventory == Inventory::Absent { String::new() } else { listing(inventory, guest) };
    let describes_nodes = match instances {
        Instances::Absent => String::new(),
        Instances::WithoutScheme | Instances::Trap => describing("unreachable"),
        Instances::NotFound => describing(
            "(call $drop (local.get 0)) (i32.store8 (i32.const 1200) (i32.const 1))
             (i32.store (i32.const 808) (i32.const 1200)) (i32.store (i32.const 812) (i32.const 1)) (i32.const 800)",
        ),
    };
    // The only scheme is the name.
    let scheme = if matches!(instances, Instances::NotFound | Instances::Trap) {
        "(i32.store (i32.const 124) (i32.const 180)) (i32.store (i32.const 128) (i32.const 1))
         (i32.store (i32.const 180) (i32.const 200)) (i32.store (i32.const 184) (i32.const 1))"
    } else {
        ""
    };
    let nodes = if instances == Instances::Absent { "" } else { NODES };
    // One pair of `extra`.
    let extra = if egress.is_empty() {
        ""
    } else {
        "(i32.store (i32.const 136) (i32.const 160)) (i32.store (i32.const 140) (i32.const 1))"
    };
    let imports = if matches!(master, Master::Cached) { CACHE } else { "" };
    let text = format!(
        r#"(module
          {imports} {nodes}
          (memory (export "memory") 1)
          (global $free (mut i32) (i32.const 8192))
          (data (i32.const 200) "{name}") (data (i32.const 220) "{version}")
          (data (i32.const 240) "egress") (data (i32.const 260) "{egress}")
          (data (i32.const 600) "\01\00\00\00\07\00\00\00\80\02\00\00\06\00\00\00\90\02\00\00\0b\00\00\00")
          (data (i32.const 640) "region") (data (i32.const 656) "is unknown!")
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local i32)
            (local.set 4 (global.get $free))
            (global.set $free (i32.add (local.get 4) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))
            (local.get 4))
          (func (export "skysail:provider/identity@0.1.0#describe") (result i32)
            {describe}
            (i32.store (i32.const 100) (i32.const 200)) (i32.store (i32.const 104) (i32.const {}))
            (i32.store (i32.const 108) (i32.const 220)) (i32.store (i32.const 112) (i32.const {}))
            (i32.store (i32.const 160) (i32.const 240)) (i32.store (i32.const 164) (i32.const 6))
            (i32.store (i32.const 168) (i32.const 260)) (i32.store (i32.const 172) (i32.const {}))
            {extra} {scheme}
            (i32.const 100))
          (func (export "skysail:provider/identity@0.1.0#check-config") (param i32 i32) (result i32) {check_config})
          {clusters}
          {inventories}
          {describes_nodes})"#,
        name.len(),
        version.len(),
        egress.len(),
    );
    let mut module = wat::parse_str(text).unwrap();
    let mut resolve = Resolve::default();
    resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/v0.1.0")).unwrap();
    let clusters = if has_clusters { "export skysail:provider/clusters@0.1.0;" } else { "" };
    let cache = if imports.is_empty() { "" } else { "import skysail:provider/cache@0.1.0;" };
    let inventory = if inventories.is_empty() { "" } else { "export skysail:provider/load-balancer-inventory@0.1.0;" };
    let instances = if instances != Instances::Absent { "export skysail:provider/instances@0.1.0;" } else { "" };
    let exports = format!("export skysail:provider/identity@0.1.0; {clusters} {inventory} {instances}");
    let world = format!("package a:b; world w {{ {cache} {exports} }}");
    let package = resolve.push_str("w.wit", &world).unwrap();
    let world = resolve.select_world(&[package], Some("w")).unwrap();
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap().into()
}

fn describing(body: &str) -> String {
    format!(r#"(func (export "skysail:provider/instances@0.1.0#describe") (param i32 i32) (result i32) {body})"#)
}

fn listing(inventory: Inventory, guest: &Guest) -> String {
    let named = |address: u32, length: usize| {
        format!(
            "(i32.store (i32.const 912) (i32.const 1000)) (i32.store (i32.const 916) (i32.const 1))
             (i32.store (i32.const 1000) (i32.const {address})) (i32.store (i32.const 1004) (i32.const {length}))"
        )
    };
    let body = match inventory {
        Inventory::Absent => String::new(),
        Inventory::Name => named(200, guest.name.len()),
        Inventory::Version => named(220, guest.version.len()),
        Inventory::Denied => {
            "(i32.store8 (i32.const 904) (i32.const 1)) (i32.store8 (i32.const 912) (i32.const 4))".to_owned()
        }
        Inventory::Trap => "unreachable".to_owned(),
    };
    format!(
        r#"(func (export "skysail:provider/load-balancer-inventory@0.1.0#list") (param i32 i32) (result i32) {body} (i32.const 904))
           (func (export "skysail:provider/load-balancer-inventory@0.1.0#delete") (param i32 i32 i32 i32) (result i32) unreachable)"#
    )
}

fn clusters(master: Master, version: &str) -> String {
    let version = version.len();
    let body = match master {
        Master::Version(turns) => format!(
            "(local.set 2 (i32.const {turns}))
             (loop $again (if (local.get 2) (then (local.set 2 (i32.sub (local.get 2) (i32.const 1))) (br $again))))
             (i32.store (i32.const 808) (i32.const 220)) (i32.store (i32.const 812) (i32.const {version}))"
        ),
        Master::Error(error) => format!(
            "(i32.store8 (i32.const 800) (i32.const 1)) (i32.store8 (i32.const 808) (i32.const {error}))
             (i32.store (i32.const 816) (i32.const 220)) (i32.store (i32.const 820) (i32.const {version}))"
        ),
        Master::Trap => "unreachable".to_owned(),
        Master::ControlCharacter => {
            "(i32.store (i32.const 808) (i32.const 600)) (i32.store (i32.const 812) (i32.const 1))".to_owned()
        }
        // The key is the first character of the name. If nothing is found, address and length stay
        // 0.
        Master::Cached => format!(
            "(call $get (i32.const 200) (i32.const 1) (i32.const 700))
             (i32.store (i32.const 808) (i32.load (i32.const 704))) (i32.store (i32.const 812) (i32.load (i32.const 708)))
             (drop (call $set (i32.const 200) (i32.const 1) (i32.const 220) (i32.const {version}) (i64.const 60000)))"
        ),
    };
    format!(
        r#"(func (export "skysail:provider/clusters@0.1.0#list") (result i32) unreachable)
           (func (export "skysail:provider/clusters@0.1.0#master") (param i32 i32) (result i32) (local i32)
             {body}
             (i32.const 800))"#
    )
}
