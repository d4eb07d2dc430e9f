//! The contract's resource `node-set`: a guest reads the columns that it needs, and only these
//! count against its limits.
//!
//! The functions are linked by hand: those that wasmtime generates from the contract would make
//! each call copy a column before it is written into the guest's memory. The calls of all Services
//! share the columns of a set.

use std::sync::Arc;

use skysail_provider::{Column, LimitHit, NodeSet};
use wasmtime::{
    StoreContextMut,
    component::{Linker, Resource, ResourceType},
};

use crate::{
    bindings::{
        self,
        skysail::provider::types::{AddressKind, Node},
    },
    convert,
    outcome::Stopped,
    store::CallState,
};

/// Bytes of a list entry besides its text: pointer and length in the guest.
const ENTRY_BYTES: usize = 8;

type Set = Resource<NodeSet>;

/// Links the interface `types`, whose only functions are those of the resource.
pub(super) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let mut types = linker.instance(&format!("{}/types@{}", bindings::PACKAGE, bindings::CONTRACT_VERSION))?;
    types.resource("node-set", ResourceType::host::<NodeSet>(), |mut store, handle| {
        store.data_mut().charge_import().table.delete(Set::new_own(handle))?;
        Ok(())
    })?;
    types.func_wrap("[method]node-set.len", |mut store: Store<'_>, (set,): (Set,)| {
        let (_, nodes) = read(&mut store, &set)?;
        Ok((u32::try_from(nodes.len()).unwrap_or(u32::MAX),))
    })?;
    types.func_wrap("[method]node-set.digest", |mut store: Store<'_>, (set,): (Set,)| {
        let (_, nodes) = read(&mut store, &set)?;
        Ok((nodes.digest(),))
    })?;
    types.func_wrap("[method]node-set.names", |mut store: Store<'_>, (set,): (Set,)| {
        let (state, nodes) = read(&mut store, &set)?;
        Ok((state.column(nodes.names(), |name| name.len())?,))
    })?;
    types.func_wrap("[method]node-set.provider-ids", |mut store: Store<'_>, (set,): (Set,)| {
        let (state, nodes) = read(&mut store, &set)?;
        Ok((state.column(nodes.provider_ids(), |id| id.as_ref().map_or(0, |id| id.len()))?,))
    })?;
    types.func_wrap("[method]node-set.addresses", |mut store: Store<'_>, (set, kind): (Set, AddressKind)| {
        let (state, nodes) = read(&mut store, &set)?;
        let addresses = nodes.addresses(&convert::address_kind(kind));
        Ok((state.column(addresses, |of_node| of_node.iter().map(|address| ENTRY_BYTES + address.len()).sum())?,))
    })?;
    types.func_wrap("[method]node-set.label", |mut store: Store<'_>, (set, key): (Set, String)| {
        let (state, nodes) = read(&mut store, &set)?;
        let values = nodes.as_slice().iter().map(|node| node.labels.get(&key).map(Arc::<str>::from));
        Ok((state.column(values.collect(), |value| value.as_ref().map_or(0, |value| value.len()))?,))
    })?;
    types.func_wrap("[method]node-set.get", |mut store: Store<'_>, (set, index): (Set, u32)| {
        let (state, nodes) = read(&mut store, &set)?;
        let Some(node) = nodes.as_slice().get(index as usize) else { return Ok((None::<Node>,)) };
        state.charge_bytes(convert::node_bytes(node))?;
        Ok((Some(convert::node_to_guest(node)),))
    })
}

type Store<'a> = StoreContextMut<'a, CallState>;

/// The call's state, charged for one import, and the nodes of the set.
fn read<'a>(store: &'a mut Store<'_>, set: &Set) -> wasmtime::Result<(&'a mut CallState, NodeSet)> {
    let state = store.data_mut().charge_import();
    let nodes = state.table.get(set)?.clone();
    Ok((state, nodes))
}

impl CallState {
    /// Counts the bytes of a column, before wasmtime writes it into the guest's memory.
    fn column<T>(&mut self, column: Column<T>, size: impl Fn(&T) -> usize) -> wasmtime::Result<Column<T>> {
        let bytes = column.iter().map(|entry| ENTRY_BYTES + size(entry)).sum();
        self.charge_bytes(bytes)?;
        Ok(column)
    }

    fn charge_bytes(&mut self, bytes: usize) -> wasmtime::Result<()> {
        self.fuel_charge.bytes(bytes as u64);
        self.bytes.column_read(bytes as u64).map_err(|hit: LimitHit| Stopped(hit).into())
    }
}
