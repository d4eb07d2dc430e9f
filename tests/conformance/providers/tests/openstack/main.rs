//! The suite of every provider against OpenStack: `make test-openstack`.

#[macro_use]
#[path = "../it/requirements.rs"]
mod requirements;

use skysail_test_providers::{
    clouds::openstack::{OpenStack, WithApplicationCredential},
    leaks, published,
    suite::{balancers, faults, inventory, machines, routes},
};

mod openstack {
    use anyhow::Result;

    instances!(OpenStack);
    load_balancers!(OpenStack);
    routes!(OpenStack);
}

mod openstack_with_application_credential {
    use anyhow::Result;

    suite!(WithApplicationCredential:
        machines::machines_are_found_by_id_and_by_name,
        machines::a_refused_credential_is_denied,
    );
}
