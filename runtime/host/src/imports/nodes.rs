//! The contract's resource `node-set`: a guest reads the columns that it needs, and only these
//! count against its limits.

use skysail_provider::{LimitHit, Node, NodeSet};
use wasmtime::component::Resource;

use crate::{
    bindings::skysail::provider::types::{AddressKind, Host, HostNodeSet, Node as ContractNode},
    convert,
    outcome::Stopped,
    store::CallState,
};

/// Bytes of a list entry besides its text: pointer and length in the guest.
const ENTRY_BYTES: usize = 8;

impl Host for CallState {}

impl CallState {
    fn nodes(&self, set: &Resource<NodeSet>) -> wasmtime::Result<NodeSet> {
        Ok(self.table.get(set)?.clone())
    }

    /// Builds one column and counts its bytes on the way, so that a column that is too large is
    /// never built completely.
    fn column<T>(
        &mut self,
        set: &Resource<NodeSet>,
        entry: impl Fn(&Node) -> T,
        size: impl Fn(&T) -> usize,
    ) -> wasmtime::Result<Vec<T>> {
        let nodes = self.nodes(set)?;
        let mut column = Vec::with_capacity(nodes.len());
        for node in nodes.as_slice() {
            let entry = entry(node);
            self.read(ENTRY_BYTES + size(&entry))?;
            column.push(entry);
        }
        Ok(column)
    }

    fn read(&mut self, bytes: usize) -> wasmtime::Result<()> {
        self.fuel_charge.bytes(bytes as u64);
        self.bytes.column_read(bytes as u64).map_err(|hit: LimitHit| Stopped(hit).into())
    }
}

impl HostNodeSet for CallState {
    fn len(&mut self, set: Resource<NodeSet>) -> wasmtime::Result<u32> {
        Ok(u32::try_from(self.nodes(&set)?.len()).unwrap_or(u32::MAX))
    }

    fn digest(&mut self, set: Resource<NodeSet>) -> wasmtime::Result<u64> {
        Ok(self.nodes(&set)?.digest())
    }

    fn names(&mut self, set: Resource<NodeSet>) -> wasmtime::Result<Vec<String>> {
        self.column(&set, |node| node.name.clone(), String::len)
    }

    fn provider_ids(&mut self, set: Resource<NodeSet>) -> wasmtime::Result<Vec<Option<String>>> {
        self.column(&set, |node| node.provider_id.clone(), |id| id.as_ref().map_or(0, String::len))
    }

    fn addresses(&mut self, set: Resource<NodeSet>, kind: AddressKind) -> wasmtime::Result<Vec<Vec<String>>> {
        let kind = convert::address_kind(kind);
        self.column(
            &set,
            |node| {
                let of_kind = node.addresses.iter().filter(|address| address.kind == kind);
                of_kind.map(|address| address.address.clone()).collect()
            },
            |addresses: &Vec<String>| addresses.iter().map(|address| ENTRY_BYTES + address.len()).sum(),
        )
    }

    fn label(&mut self, set: Resource<NodeSet>, key: String) -> wasmtime::Result<Vec<Option<String>>> {
        self.column(
            &set,
            |node| node.labels.get(&key).map(str::to_owned),
            |value| value.as_ref().map_or(0, String::len),
        )
    }

    fn get(&mut self, set: Resource<NodeSet>, index: u32) -> wasmtime::Result<Option<ContractNode>> {
        let nodes = self.nodes(&set)?;
        let Some(node) = nodes.as_slice().get(index as usize) else { return Ok(None) };
        self.read(convert::node_bytes(node))?;
        Ok(Some(convert::node_to_guest(node)))
    }

    fn drop(&mut self, set: Resource<NodeSet>) -> wasmtime::Result<()> {
        self.table.delete(set)?;
        Ok(())
    }
}
