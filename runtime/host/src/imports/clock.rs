//! Import `clock`: wall time, and a monotonic clock that starts at 0 with the call.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{bindings::skysail::provider::clock::Host, store::CallState};

impl Host for CallState {
    fn now_ms(&mut self) -> wasmtime::Result<u64> {
        #[expect(clippy::disallowed_methods, reason = "this is where guests get the time from")]
        let now = SystemTime::now();
        let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic_ns(&mut self) -> wasmtime::Result<u64> {
        Ok(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
