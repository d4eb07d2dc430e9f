//! Implements [`Provider`] for a release in its sandbox.
//!
//! Each function of the traits converts its arguments to the contract's types, makes one call, and
//! validates the result. `call` runs the call; this module has no state.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::json;
use skysail_provider::{
    Call, Clusters, Code, Error, Info, Instances, Interface, LoadBalancerInventory, LoadBalancerStatus, LoadBalancers,
    NewRoute, NodeLegacy, NodeSet, OwnedLoadBalancer, PersistentVolume, PersistentVolumeLabels, Provider, Result,
    Route, Routes, Service, Zone, Zones,
};
use skysail_slot::fault::CallObservation;
use wasmtime::{Store, component::Resource};

use crate::{
    Answer, Release, Sandbox,
    call::{Function, Guest, Purpose, Request, run},
    convert,
    imports::HttpAccess,
    store::CallState,
};

mod instances;
mod legacy;
mod load_balancers;
mod persistent_volumes;
mod routes;

/// A release in its sandbox, as a [`Provider`]. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct SandboxedProvider {
    sandbox: Arc<Sandbox>,
    release: Arc<Release>,
    info: Arc<Info>,
    /// The results are only compared: what the host saw of the last call.
    compared: Option<Arc<Mutex<CallObservation>>>,
}

impl SandboxedProvider {
    /// Combines a release with its description: `info` is the result of [`crate::describe`].
    #[must_use]
    pub const fn new(sandbox: Arc<Sandbox>, release: Arc<Release>, info: Arc<Info>) -> Self {
        Self { sandbox, release, info, compared: None }
    }

    /// The same release for calls whose results are only compared (shadow): these calls cannot
    /// change anything in the cloud, and their outcomes do not count.
    #[must_use]
    pub(crate) fn compared(&self) -> Self {
        Self { compared: Some(Arc::default()), ..self.clone() }
    }

    /// What the host saw of the last call whose result is compared.
    pub(crate) fn seen(&self) -> CallObservation {
        self.compared.as_ref().map(|seen| *seen.lock().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default()
    }

    /// The sandbox of the provider.
    #[must_use]
    pub const fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// The release.
    #[must_use]
    pub const fn release(&self) -> &Arc<Release> {
        &self.release
    }

    /// Runs one function of the contract, with HTTP if the function may use it; `judge` validates
    /// the guest's result and converts it.
    async fn run<'env, R, T, F, J>(&self, call: &Call, function: Function<'_>, guest: F, judge: J) -> Result<T>
    where
        R: Send,
        T: Answer + Send,
        F: for<'s> FnOnce(Guest<'s, 'env>) -> BoxFuture<'s, wasmtime::Result<R>> + Send,
        J: FnOnce(R) -> Result<T> + Send,
    {
        let request = Request {
            sandbox: &self.sandbox,
            release: &self.release,
            call,
            function,
            http: match (sends_http(function.0), &self.compared) {
                (false, _) => HttpAccess::None,
                (true, Some(_)) => HttpAccess::Reads,
                (true, None) => HttpAccess::All,
            },
            purpose: self.compared.as_deref().map_or(Purpose::Serving, Purpose::Comparing),
        };
        Ok(run(request, guest, judge).await?)
    }
}

/// Whether the contract allows the function to send requests.
fn sends_http(function: &str) -> bool {
    !matches!(function, "load-balancers.name" | "node-legacy.scrub-dns")
}

impl Provider for SandboxedProvider {
    fn info(&self) -> Option<Arc<Info>> {
        Some(Arc::clone(&self.info))
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.release.exports().has(Interface::LoadBalancers).then_some(self)
    }

    fn load_balancer_inventory(&self) -> Option<&dyn LoadBalancerInventory> {
        self.release.exports().has(Interface::LoadBalancerInventory).then_some(self)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.release.exports().has(Interface::Instances).then_some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.release.exports().has(Interface::Routes).then_some(self)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        self.release.exports().has(Interface::Zones).then_some(self)
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        self.release.exports().has(Interface::Clusters).then_some(self)
    }

    fn node_legacy(&self) -> Option<&dyn NodeLegacy> {
        self.release.exports().has(Interface::NodeLegacy).then_some(self)
    }

    fn persistent_volume_labels(&self) -> Option<&dyn PersistentVolumeLabels> {
        self.release.exports().has(Interface::PersistentVolumeLabels).then_some(self)
    }
}

/// The error for an interface that the release does not export. Happens only if a caller keeps an
/// interface across a swap.
fn absent(interface: Interface) -> Error {
    Error::new(Code::NotServing, format!("the release does not export {interface}"))
}

/// Lends a set of nodes to a guest for one call.
fn lend(store: &mut Store<CallState>, nodes: NodeSet) -> wasmtime::Result<Resource<NodeSet>> {
    let owned = store.data_mut().table.push(nodes)?;
    Ok(Resource::new_borrow(owned.rep()))
}
