//! The provider for the simulated cloud with what most clouds have: load balancers, nodes and
//! routes.
//!
//! The code is that of `skysail-simcloud`; the linker removes the code that no interface of this
//! component needs. The result has the size for which the bounds of swaps are defined, 300 KiB.

#[path = "../../simcloud/src"]
mod code {
    pub(crate) mod api;
    pub(crate) mod balancing;
    pub(crate) mod machines;
    pub(crate) mod routing;
    pub(crate) mod simcloud;
    pub(crate) mod volumes;
}

use skysail_guest_sdk::provider;

use crate::code::{api, balancing, machines, routing, simcloud::SimCloud, volumes};

provider!(SimCloud: identity, load_balancers, instances, routes);
