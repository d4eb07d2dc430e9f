//! Runs provider components in wasmtime: engine, limits, calls, imports, egress, slots.
//!
//! A [`Sandbox`] belongs to one configured provider and holds its settings; a [`Release`] is one
//! component in it; a [`SandboxedProvider`] is a release in its sandbox as a
//! [`skysail_provider::Provider`]. Every call runs in a fresh store under every limit and produces
//! one [`CallRecord`]. This crate does not depend on Kubernetes: the controllers make the calls and
//! act on the results.
//!
//! Read `call` first: it runs one call from start to end.

pub mod admission;
pub mod allocator;
mod answer;
mod backtrace;
mod bindings;
mod cache;
mod call;
mod call_statistics;
mod convert;
mod cpu_time;
mod disturbance;
mod engine;
mod epoch;
mod fault;
mod fuel_charge;
mod identity;
mod imports;
pub mod jail;
mod limits;
mod outcome;
mod panics;
mod profile;
mod record;
pub mod recording;
mod release;
mod sandbox;
mod sandboxed_provider;
mod series;
pub mod slot;
mod store;
pub mod symbols;
#[cfg(test)]
mod test_guest;
mod world;

pub use skysail_egress::{credentials, http_client, policy as egress, read_file, write_file, write_own_file};
pub use skysail_slot::Fault;

pub use self::{
    answer::Answer,
    backtrace::symbolized,
    call_statistics::{FunctionCalls, LastFailure},
    disturbance::{Disturbance, DisturbedRequest, Disturber},
    engine::{Allocation, Engine, EngineError, Live, POOL_CALLS_MAX, engine_config},
    epoch::EPOCH_TICK,
    identity::{Problem, Severity, check_config, describe, origins},
    limits::{BOUNDS, Bound, Limits, LimitsError},
    panics::Panics,
    profile::Profile,
    record::{CallMetrics, CallOutcome, CallRecord, CallRecorder, HttpUse, RECORDS_BUFFERED_MAX},
    release::{CompiledComponent, Release, ReleaseError},
    sandbox::{Sandbox, SandboxError, SandboxOptions},
    sandboxed_provider::SandboxedProvider,
};
