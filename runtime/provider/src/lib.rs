//! The interface of a cloud provider in plain Rust: the traits, the types and the errors.
//!
//! The controllers and the wasm host share only this crate. It depends on no Kubernetes client, no
//! WebAssembly runtime and no I/O: a provider may be a component in a sandbox (the slots of
//! `skysail-host`) or an in-memory fake. Names are those of upstream's `k8s.io/cloud-provider`; the
//! meaning of each function is that of the contract in `wit/`.
//!
//! Read [`Provider`] first, then [`LoadBalancers`] and [`Error`].

mod call;
mod dry_run;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod fence;
mod instances;
mod legacy;
mod load_balancers;
mod metadata;
mod node;
mod persistent_volumes;
mod provider;
mod provider_id;
mod requests;
mod routes;
mod service;
mod string_map;
mod system_uuid;
pub mod text;

pub use call::{Call, EventKind, EventSink, ObjectReference, ProviderEvent};
pub use dry_run::{DryRun, HeldRequest};
pub use error::{Code, Error, Limit, LimitHit, Result};
pub use fence::{Fence, FenceClosed};
pub use instances::{Detail, Instance, Instances, NODES_PER_PAGE};
pub use legacy::{Clusters, NodeLegacy, Zone, Zones};
pub use load_balancers::{LoadBalancerInventory, LoadBalancers, OwnedLoadBalancer};
pub use metadata::METADATA_SERVICES;
pub use node::{AddressKind, Column, Node, NodeAddress, NodeSet};
pub use persistent_volumes::{PersistentVolume, PersistentVolumeLabels};
pub use provider::{Info, Interface, Provider};
pub use provider_id::{ParseProviderIdError, ProviderId};
pub use requests::{RequestInFlight, Requests};
pub use routes::{NewRoute, Route, Routes, Target};
pub use service::{
    Ingress, IpFamily, IpFamilyPolicy, IpMode, LoadBalancerStatus, PortStatus, Protocol, Service, ServicePort,
    SessionAffinity, TrafficPolicy,
};
pub use string_map::StringMap;
pub use system_uuid::SystemUuid;
