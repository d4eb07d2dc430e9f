//! The imports of a guest: one file for each interface of the contract's world `imports`, and WASI
//! without sockets, with an empty environment and without directories.
//!
//! An import never blocks a thread and never holds more data than its limit. If the contract says
//! that excess data is dropped, the import drops and counts it; if a limit ends the call, the
//! import returns `Stopped`. Every linked function accesses the call's state through
//! `CallState::charge_import`, which charges fuel ([`crate::fuel_charge`]).

mod cache;
mod clock;
mod config;
mod events;
mod http;
mod log;
mod nodes;
mod wasi;
mod wasi_http;

pub(crate) use self::{
    http::{HttpAccess, HttpCall},
    log::{CallLog, LastOutput, log_level},
    wasi::{WorldClock, context as wasi_context, has as has_wasi},
    wasi_http::WasiHttp,
};

use wasmtime::component::{HasSelf, Linker};

use crate::{bindings::skysail::provider as contract, store::CallState};

/// A linker with everything that a component may import, for one engine.
pub(crate) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    nodes::add_to_linker(&mut linker)?;
    contract::http::add_to_linker::<_, HasSelf<CallState>>(&mut linker, CallState::charge_import)?;
    contract::log::add_to_linker::<_, HasSelf<CallState>>(&mut linker, CallState::charge_import)?;
    contract::config::add_to_linker::<_, HasSelf<CallState>>(&mut linker, CallState::charge_import)?;
    contract::clock::add_to_linker::<_, HasSelf<CallState>>(&mut linker, CallState::charge_import)?;
    contract::cache::add_to_linker::<_, HasSelf<CallState>>(&mut linker, CallState::charge_import)?;
    contract::events::add_to_linker::<_, HasSelf<CallState>>(&mut linker, CallState::charge_import)?;
    wasi::add_to_linker(&mut linker)?;
    Ok(linker)
}
