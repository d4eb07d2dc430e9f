//! An in-memory Kubernetes API and a simulated cloud, in place of a cluster and a cloud.
//!
//! For `skysail dev`, tests and simulation. Nothing here knows WebAssembly or the controllers.

pub mod api;
pub mod cloud;
pub mod kubelet;
