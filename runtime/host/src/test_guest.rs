//! A hand-written provider component, for tests that need a component without a build.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use rustix::time::ClockId;
use skysail_provider::{Call, Clusters, Error};
use tokio::{task::yield_now, time};
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use crate::{Limits, cpu_time::clock};

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
    pub(crate) needs_origin: Needs,
    /// Whether the component asks for serial calls of its load balancers.
    pub(crate) is_serial: bool,
    /// What `load-balancers.ensure-deleted` does before it succeeds; none where the interface is
    /// not exported.
    pub(crate) deletion: Option<&'static str>,
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
    /// Sends a request to this port of 127.0.0.1, ignores the answer, and then traps or lists one
    /// load balancer whose name is the guest's version.
    AfterRequest { port: u16, traps: bool },
}

/// When the component requires its origin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Always,
    /// Unless the cloud-config is empty.
    WithConfig,
}

/// What `clusters.master` does.
#[derive(Clone, Copy)]
pub(crate) enum Master {
    /// Returns the version after this number of iterations of a loop.
    Version(u32),
    /// Never returns.
    Endless,
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
    needs_origin: Needs::Always,
    is_serial: false,
    deletion: None,
};

/// Reports a problem unless the cloud-config is empty: severity, line, key and message.
pub(crate) const PICKY: &str = "(i32.store (i32.const 512) (i32.const 600)) (i32.store (i32.const 516) (i32.ne (local.get 1) (i32.const 0))) \
                                (i32.const 512)";

/// Reports a problem if the cloud-config is empty.
pub(crate) const CHOOSY: &str =
    "(i32.store (i32.const 512) (i32.const 600)) (i32.store (i32.const 516) (i32.eqz (local.get 1))) (i32.const 512)";

/// Never ends.
pub(crate) const ENDLESS: &str = "(loop $again (br $again))";

/// Limits under which only the deadline ends a guest with [`Master::Endless`].
pub(crate) fn only_a_deadline(deadline: Duration) -> Limits {
    let deadline_ms = u64::try_from(deadline.as_millis()).unwrap();
    Limits {
        deadline_ms,
        http_time_ms: deadline_ms,
        cpu_time_ms: 3_600_000,
        fuel: 1_000_000_000_000,
        ..Limits::default()
    }
}

/// Calls `clusters.master` of a guest with [`Master::Endless`], and returns the error. The guest
/// computes for this much CPU time and until its next tick of the epoch; then the machine gives it
/// no more before the deadline has passed. The clock must be paused.
pub(crate) async fn overdue(provider: &impl Clusters, call: &Call, computes: Duration, deadline: Duration) -> Error {
    let mut answer = pin!(provider.master(call, "x"));
    let cpu = || clock(ClockId::ThreadCPUTime);
    let began = cpu();
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => panic!("an endless guest has ended: {answer:?}"),
            () = yield_now() => {}
        }
        if cpu() - began >= computes {
            break;
        }
    }
    time::advance(deadline * 2).await;
    answer.await.unwrap_err()
}

/// The import that [`Master::Cached`] needs.
const CACHE: &str = r#"(import "skysail:provider/cache@0.1.0" "get" (func $get (param i32 i32 i32)))
                       (import "skysail:provider/cache@0.1.0" "set" (func $set (param i32 i32 i32 i32 i64) (result i32)))"#;

/// The import that [`Inventory::AfterRequest`] needs.
const HTTP: &str = r#"(import "skysail:provider/http@0.1.0" "send" (func $send
                        (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;

/// The import that [`Instances`] needs.
const NODES: &str = r#"(import "skysail:provider/types@0.1.0" "[resource-drop]node-set" (func $drop (param i32)))"#;

/// Builds the component. Texts are at the addresses 200 (name), 220 (version), 260 (an origin) and
/// 1440 (a request), results at 100, 160, 512, 800, 904, 1000, 1200 and 1400.
pub(crate) fn component(guest: &Guest) -> Bytes {
    let Guest { name, version, has_clusters, instances, describe, check_config, master, inventory, .. } = *guest;
    let Guest { egress, needs_origin, is_serial, deletion, .. } = *guest;
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
    let serial = if is_serial { "(i32.store8 (i32.const 133) (i32.const 1))" } else { "" };
    let origins = if egress.is_empty() { String::new() } else { requiring(egress, needs_origin) };
    let load_balancers = deletion.map(deleting).unwrap_or_default();
    let cache = if matches!(master, Master::Cached) { CACHE } else { "" };
    let http = if matches!(inventory, Inventory::AfterRequest { .. }) { HTTP } else { "" };
    let text = format!(
        r#"(module
          {cache} {http} {nodes}
          (memory (export "memory") 1)
          (global $free (mut i32) (i32.const 8192))
          (data (i32.const 200) "{name}") (data (i32.const 220) "{version}")
          (data (i32.const 260) "{egress}")
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
            {serial} {scheme}
            (i32.const 100))
          (func (export "skysail:provider/identity@0.1.0#origins") (param i32 i32) (result i32)
            {origins} (i32.const 160))
          (func (export "skysail:provider/identity@0.1.0#check-config") (param i32 i32) (result i32) {check_config})
          {clusters}
          {inventories}
          {describes_nodes}
          {load_balancers})"#,
        name.len(),
        version.len(),
    );
    let mut module = wat::parse_str(text).unwrap();
    let mut resolve = Resolve::default();
    for folder in ["v0.1.0", "legacy-v0.1.0"] {
        resolve.push_dir(format!("{}/../../wit/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    }
    let clusters = if has_clusters { "export skysail:legacy/clusters@0.1.0;" } else { "" };
    let cache = if cache.is_empty() { "" } else { "import skysail:provider/cache@0.1.0;" };
    let http = if http.is_empty() { "" } else { "import skysail:provider/http@0.1.0;" };
    let inventory = if inventories.is_empty() { "" } else { "export skysail:provider/load-balancer-inventory@0.1.0;" };
    let instances = if instances != Instances::Absent { "export skysail:provider/instances@0.1.0;" } else { "" };
    let balancers = if deletion.is_some() { "export skysail:provider/load-balancers@0.1.0;" } else { "" };
    let exports = format!("export skysail:provider/identity@0.1.0; {clusters} {inventory} {instances} {balancers}");
    let world = format!("package a:b; world w {{ {cache} {http} {exports} }}");
    let package = resolve.push_str("w.wit", &world).unwrap();
    let world = resolve.select_world(&[package], Some("w")).unwrap();
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap().into()
}

fn describing(body: &str) -> String {
    format!(r#"(func (export "skysail:provider/instances@0.1.0#describe") (param i32 i32) (result i32) {body})"#)
}

/// One origin, as a list at the address 160.
fn requiring(origin: &str, needs: Needs) -> String {
    let count = match needs {
        Needs::Always => "(i32.const 1)",
        Needs::WithConfig => "(i32.ne (local.get 1) (i32.const 0))",
    };
    format!(
        "(i32.store (i32.const 160) (i32.const 168)) (i32.store (i32.const 164) {count})
         (i32.store (i32.const 168) (i32.const 260)) (i32.store (i32.const 172) (i32.const {}))",
        origin.len()
    )
}

/// Only `ensure-deleted` is called.
fn deleting(body: &str) -> String {
    let others = ["name", "get", "ensure", "update"].map(|function| {
        let export = format!("skysail:provider/load-balancers@0.1.0#{function}");
        format!(r#"(func (export "{export}") (param i32) (result i32) unreachable)"#)
    });
    format!(
        r#"{}
           (func (export "skysail:provider/load-balancers@0.1.0#ensure-deleted") (param i32) (result i32) {body} (i32.const 800))"#,
        others.join(" ")
    )
}

fn listing(inventory: Inventory, guest: &Guest) -> String {
    let named = |address: u32, length: usize| {
        format!(
            "(i32.store (i32.const 912) (i32.const 1000)) (i32.store (i32.const 916) (i32.const 1))
             (i32.store (i32.const 1000) (i32.const {address})) (i32.store (i32.const 1004) (i32.const {length}))"
        )
    };
    let url = if let Inventory::AfterRequest { port, .. } = inventory {
        format!("http://127.0.0.1:{port}/")
    } else {
        String::new()
    };
    let body = match inventory {
        Inventory::Absent => String::new(),
        Inventory::Name => named(200, guest.name.len()),
        Inventory::Version => named(220, guest.version.len()),
        Inventory::Denied => {
            "(i32.store8 (i32.const 904) (i32.const 1)) (i32.store8 (i32.const 912) (i32.const 4))".to_owned()
        }
        Inventory::Trap => "unreachable".to_owned(),
        // A method and a URL; no headers, body, credential, timeout or extra; the address of the
        // answer.
        Inventory::AfterRequest { traps, .. } => format!(
            "(call $send (i32.const 1440) (i32.const 3) (i32.const 1450) (i32.const {}) {} (i32.const 1400)) {}",
            url.len(),
            "(i32.const 0)".repeat(11),
            if traps { "unreachable".to_owned() } else { named(220, guest.version.len()) }
        ),
    };
    format!(
        r#"(data (i32.const 1440) "GET") (data (i32.const 1450) "{url}")
           (func (export "skysail:provider/load-balancer-inventory@0.1.0#list") (param i32 i32) (result i32) {body} (i32.const 904))
           (func (export "skysail:provider/load-balancer-inventory@0.1.0#delete")
             (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)"#
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
        Master::Endless => ENDLESS.to_owned(),
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
        r#"(func (export "skysail:legacy/clusters@0.1.0#list") (result i32) unreachable)
           (func (export "skysail:legacy/clusters@0.1.0#master") (param i32 i32) (result i32) (local i32)
             {body}
             (i32.const 800))"#
    )
}
