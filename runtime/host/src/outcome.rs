//! Explains why a call ended early, from wasmtime's error and from the limits that the store
//! recorded.
//!
//! The caller distinguishes a trap, an exhausted limit and an exit of the guest. A Rust guest that
//! is refused memory aborts with the same trap as one that panics, so the recorded limits are
//! checked first.

use skysail_provider::{Code, Error, Limit, LimitHit};
use wasmtime::{Store, Trap, WasmBacktrace, component::ResourceTableError};
use wasmtime_wasi::I32Exit;

use crate::{imports::LastOutput, limits::Limits, store::CallState, world::NotRecorded};

/// The error of an import that ends the call because of a limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stopped by a limit: {0}")]
pub(crate) struct Stopped(pub(crate) LimitHit);

/// The error for the caller; `place` is that of [`crate::backtrace::of`].
pub(crate) fn explain(
    source: &wasmtime::Error,
    place: Option<String>,
    store: Option<&Store<CallState>>,
    limits: &Limits,
) -> Error {
    let place = place.map(|functions| format!("; in {functions}")).unwrap_or_default();
    if let Some(missing) = source.downcast_ref::<NotRecorded>() {
        return Error::new(Code::Unavailable, missing.to_string());
    }
    if let Some(hit) = limit(source, store, limits) {
        return Error::limit_exceeded(hit, format!("stopped by a limit of the sandbox: {hit}{place}"));
    }
    let reason = match (source.downcast_ref::<Trap>(), source.downcast_ref()) {
        (Some(Trap::UnreachableCodeReached), _) => "the guest trapped: it panicked or aborted".to_owned(),
        (Some(trap), _) => format!("the guest trapped: {trap}"),
        (None, Some(I32Exit(status))) => format!("the guest exited with status {status} instead of returning a result"),
        (None, None) => format!("the guest broke the contract: {}", source.root_cause()),
    };
    // The guest's own text comes before the functions, because a long message is truncated at its
    // end.
    let reason = match store.and_then(|store| store.data().log.last_output()) {
        Some(LastOutput::Panic(text)) => format!("the guest trapped: {text}"),
        Some(LastOutput::Stderr(text)) => format!("{reason}; its last lines on standard error: {text}"),
        None => reason,
    };
    Error::new(Code::Trapped, reason + &place)
}

/// The limit that ended the call; none if no limit did.
fn limit(source: &wasmtime::Error, store: Option<&Store<CallState>>, limits: &Limits) -> Option<LimitHit> {
    let all_of = |limit| {
        let max = limits.value(limit);
        Some(LimitHit { limit, used: max, max })
    };
    if let Some(Stopped(hit)) = source.downcast_ref() {
        return Some(*hit);
    }
    match source.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => return all_of(Limit::Fuel),
        Some(Trap::StackOverflow) => return all_of(Limit::Stack),
        _ => {}
    }
    if matches!(source.downcast_ref(), Some(ResourceTableError::Full)) {
        return all_of(Limit::Handles);
    }
    let text = source.root_cause().to_string();
    match known(&text) {
        Some(Known::HostCallFuel) => {
            // In a host call the guest's frames are still there; a result is lifted after they are
            // gone.
            let in_host_call = source.downcast_ref::<WasmBacktrace>().is_some();
            return store.map(|store| store.data().bytes.exhausted(in_host_call));
        }
        Some(Known::Handles) => return all_of(Limit::Handles),
        Some(Known::Instances(used)) => {
            return Some(LimitHit { limit: Limit::Instances, used, max: limits.instances });
        }
        None => {}
    }
    // Whatever the error is: a guest that was refused memory or table elements ended because of
    // that.
    store.and_then(|store| store.data().growth.refused().next())
}

/// Errors that wasmtime 48 reports only as text. The tests with probes of these limits fail if a
/// newer wasmtime changes the text.
enum Known {
    HostCallFuel,
    Handles,
    Instances(u64),
}

fn known(text: &str) -> Option<Known> {
    if text.contains("fuel allocated for hostcalls has been exhausted") {
        return Some(Known::HostCallFuel);
    }
    if text.contains("store handle limit exceeded") {
        return Some(Known::Handles);
    }
    let count = text.strip_prefix("resource limit exceeded: instance count too high at ")?;
    count.parse().ok().map(Known::Instances)
}
