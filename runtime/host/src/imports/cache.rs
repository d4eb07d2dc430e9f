//! Import `cache`: small values that the calls of a release share.

use std::time::Duration;

use crate::{bindings::skysail::provider::cache::Host, store::CallState};

impl Host for CallState {
    fn get(&mut self, key: String) -> wasmtime::Result<Option<Vec<u8>>> {
        let value = self.cache.get(&key);
        self.world.cache_read(&key, || value.clone());
        self.fuel_charge.bytes((key.len() + value.as_ref().map_or(0, Vec::len)) as u64);
        Ok(value)
    }

    fn set(&mut self, key: String, value: Vec<u8>, ttl_ms: u64) -> wasmtime::Result<bool> {
        self.fuel_charge.bytes((key.len() + value.len()) as u64);
        self.world.cache_written(&key);
        let kept = self.cache.set(key, value, Duration::from_millis(ttl_ms));
        if let Err(hit) = kept {
            self.hit(hit);
        }
        Ok(kept.is_ok())
    }

    fn compare_and_set(
        &mut self,
        key: String,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
        ttl_ms: u64,
    ) -> wasmtime::Result<bool> {
        self.fuel_charge.bytes((key.len() + expected.as_ref().map_or(0, Vec::len) + value.len()) as u64);
        self.world.cache_read(&key, || self.cache.get(&key));
        let kept = self.cache.compare_and_set(key, expected.as_deref(), value, Duration::from_millis(ttl_ms));
        if let Err(hit) = kept {
            self.hit(hit);
        }
        Ok(kept == Ok(true))
    }

    fn delete(&mut self, key: String) -> wasmtime::Result<()> {
        self.fuel_charge.bytes(key.len() as u64);
        self.world.cache_written(&key);
        self.cache.delete(&key);
        Ok(())
    }
}
