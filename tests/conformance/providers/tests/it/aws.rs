//! AWS: the feature `aws` of this crate, as `make test-aws` sets it.

use skysail_test_providers::{
    clouds::aws::{self, Aws},
    leaks, published,
    suite::{balancers, faults, inventory, machines, routes},
};

type Network = Aws<aws::Network>;
type Managed = Aws<aws::Managed>;
type Classic = Aws<aws::Classic>;

/// Machines and routes do not depend on the kind of load balancer.
mod network {
    use anyhow::Result;

    instances!(Network);
    load_balancers!(Network);
    routes!(Network);
}

mod network_with_groups {
    use anyhow::Result;

    load_balancers!(Managed);
}

mod classic {
    use anyhow::Result;

    load_balancers!(Classic);
}
