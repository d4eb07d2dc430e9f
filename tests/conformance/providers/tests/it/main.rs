//! The suite of every provider against each cloud.

#[macro_use]
mod requirements;

use skysail_test_providers::{
    clouds::{
        hetzner::Hetzner,
        simcloud::{Go, JavaScript, Python, Rust, Simulated},
        vsphere::Vsphere,
    },
    leaks, published,
    suite::{balancers, deletions, faults, inventory, machines, routes},
};

type SimulatedInRust = Simulated<Rust>;
type SimulatedInGo = Simulated<Go>;
type SimulatedInJavaScript = Simulated<JavaScript>;
type SimulatedInPython = Simulated<Python>;

mod aws;
mod examples;
mod hetzner;
#[cfg(feature = "openstack")]
mod openstack;
mod sizes;
mod vsphere;

mod hetzner_cloud {
    use anyhow::Result;

    instances!(Hetzner);
    load_balancers!(Hetzner);
    routes!(Hetzner);
    suite!(Hetzner: deletions::the_rules_of_the_example_count_the_deletion_of_a_route);
}

mod simcloud {
    use anyhow::Result;

    instances!(SimulatedInRust);
    load_balancers!(SimulatedInRust);
    routes!(SimulatedInRust);
}

mod simcloud_go {
    use anyhow::Result;

    instances!(SimulatedInGo);
    load_balancers!(SimulatedInGo);
    routes!(SimulatedInGo);
}

mod simcloud_js {
    use anyhow::Result;

    instances!(SimulatedInJavaScript);
    load_balancers!(SimulatedInJavaScript);
    routes!(SimulatedInJavaScript);
}

mod simcloud_python {
    use anyhow::Result;

    instances!(SimulatedInPython);
    load_balancers!(SimulatedInPython);
    routes!(SimulatedInPython);
}

mod vcenter_server {
    use anyhow::Result;

    instances!(Vsphere);
}
