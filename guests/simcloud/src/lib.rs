//! The provider for the simulated cloud of `skysail dev`: every interface of the contract, written
//! as a vendor's provider should be.
//!
//! Lists instead of one request for each object; everything it makes carries the cluster's name as
//! a tag, and it touches nothing else. Nothing here knows how the cloud works inside:
//! `/openapi.json` of the cloud is all there is to know.

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
