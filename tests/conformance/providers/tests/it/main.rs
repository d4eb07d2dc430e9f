//! The suite of every provider against each cloud.

#[macro_use]
mod requirements;

use skysail_test_providers::{
    clouds::{hetzner::Hetzner, simcloud::Simulated, vsphere::Vsphere},
    leaks, published,
    suite::{balancers, faults, inventory, machines, routes},
};

#[cfg(feature = "aws")]
mod aws;
mod hetzner;
#[cfg(feature = "openstack")]
mod openstack;
mod vsphere;

mod hetzner_cloud {
    use anyhow::Result;

    instances!(Hetzner);
    load_balancers!(Hetzner);
    routes!(Hetzner);
}

mod simcloud {
    use anyhow::Result;

    instances!(Simulated);
    load_balancers!(Simulated);
    routes!(Simulated);
}

mod vcenter_server {
    use anyhow::Result;

    instances!(Vsphere);
}
