//! The host's clocks. The standard library's clocks do not work inside the sandbox.

use std::time::Duration;

use crate::{bindings::imports::skysail::provider::clock, native::host_only};

/// Milliseconds since 1970, UTC.
#[must_use]
#[track_caller]
pub fn now_ms() -> u64 {
    host_only("clock::now_ms");
    clock::now_ms()
}

/// Time since an unspecified start. It never goes backwards; use it for differences within one
/// call.
#[must_use]
#[track_caller]
pub fn monotonic() -> Duration {
    host_only("clock::monotonic");
    Duration::from_nanos(clock::monotonic_ns())
}
