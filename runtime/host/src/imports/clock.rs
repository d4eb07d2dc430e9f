//! Import `clock`: wall time, and a monotonic clock that starts at 0 with the call.

use crate::{bindings::skysail::provider::clock::Host, store::CallState};

impl Host for CallState {
    fn now_ms(&mut self) -> wasmtime::Result<u64> {
        Ok(u64::try_from(self.world.wall().as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic_ns(&mut self) -> wasmtime::Result<u64> {
        Ok(u64::try_from(self.world.monotonic(self.began).as_nanos()).unwrap_or(u64::MAX))
    }
}
