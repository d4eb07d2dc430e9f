//! Time, as the host gives it. The standard library's clocks do not work inside the sandbox.

use std::time::Duration;

use crate::bindings::imports::skysail::provider::clock;

/// Milliseconds since 1970, UTC.
#[must_use]
pub fn now_ms() -> u64 {
    clock::now_ms()
}

/// Time since an unknown start, never backwards; for differences within one call only.
#[must_use]
pub fn monotonic() -> Duration {
    Duration::from_nanos(clock::monotonic_ns())
}
