//! What a laptop has instead of a cluster and a cloud: an in-memory Kubernetes API and a simulated
//! cloud.
//!
//! For `skysail dev`, tests and simulation. Nothing here knows WebAssembly or the controllers.

pub mod api;
pub mod cloud;
pub mod kubelet;
