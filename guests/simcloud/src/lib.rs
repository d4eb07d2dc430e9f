//! The provider for the simulated cloud of `skysail dev`: every interface of the contract, as an
//! example for vendors.
//!
//! The provider lists objects instead of one request for each. It tags every resource with the
//! cluster's name and changes no other resource. It knows of the cloud only what `/openapi.json`
//! documents.

mod api;
mod balancing;
mod machines;
mod routing;
mod simcloud;
mod volumes;

use skysail_guest_sdk::provider;

use crate::simcloud::SimCloud;

provider!(
    SimCloud: identity, load_balancers, load_balancer_inventory, instances, routes, zones, clusters, node_legacy,
    persistent_volume_labels
);
