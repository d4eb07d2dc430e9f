//! Import `config`: the provider's cloud-config.

use crate::{bindings::skysail::provider::config::Host, store::CallState};

impl Host for CallState {
    fn text(&mut self) -> wasmtime::Result<String> {
        let text = self.sandbox.config().to_owned();
        self.fuel_charge.bytes(text.len() as u64);
        Ok(text)
    }
}
