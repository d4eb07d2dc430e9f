//! Runs provider components in wasmtime: engine, limits, calls, imports, egress, slots.
//!
//! A [`Sandbox`] is what one provider has for as long as it is configured; a [`Release`] is one
//! component in it; a [`SandboxedProvider`] is both as a [`skysail_provider::Provider`]. Every call
//! runs in a fresh store under every limit and leaves one [`CallRecord`]. This crate knows no
//! Kubernetes: what is asked and what is done with the answer is the controllers' matter.
//!
//! Read `call` first: it is the walk through one call.

pub mod admission;
pub mod allocator;
mod backtrace;
mod bindings;
mod cache;
mod call;
mod convert;
mod cpu_time;
mod engine;
mod fault;
mod identity;
mod imports;
pub mod jail;
mod limits;
mod outcome;
mod record;
mod release;
mod sandbox;
mod sandboxed_provider;
pub mod slot;
mod store;
mod tally;
#[cfg(test)]
mod test_guest;
mod toll;
mod vitals;

pub use skysail_egress::{credentials, http_client, policy as egress, read_file};

pub use self::{
    engine::{Allocation, EPOCH_TICK, Engine, EngineError, Live, POOL_CALLS_MAX, engine_config},
    fault::Fault,
    identity::{Problem, Severity, check_config, describe},
    limits::{BOUNDS, Bound, Limits, LimitsError},
    record::{CallMetrics, CallRecord, CallRecorder, HttpUse, Outcome, RECORDS_BUFFERED_MAX},
    release::{CompiledComponent, Release, ReleaseError},
    sandbox::{Sandbox, SandboxError, SandboxOptions},
    sandboxed_provider::SandboxedProvider,
    tally::{FunctionCalls, LastFailure},
};
