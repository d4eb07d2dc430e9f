//! Import `config`: the provider's cloud-config, as it was when the call began.

use crate::{bindings::skysail::provider::config::Host, store::CallState};

impl Host for CallState {
    fn text(&mut self) -> wasmtime::Result<String> {
        self.bytes.copied(self.config.len() as u64);
        Ok(self.config.as_ref().clone())
    }
}
