//! OpenStack: the feature `openstack` of this crate, as `make test-openstack` sets it.

use skysail_test_providers::{
    clouds::openstack::{OpenStack, WithApplicationCredential},
    leaks, published,
    suite::{
        balancers, faults, inventory,
        judged::{balancers as judged_balancers, machines as judged_machines, routes as judged_routes},
        machines, routes,
    },
};

mod password {
    use anyhow::Result;

    instances!(OpenStack);
    load_balancers!(OpenStack);
    routes!(OpenStack);
}

mod application_credential {
    use anyhow::Result;

    judged_instances!(WithApplicationCredential);
    judged_load_balancers!(WithApplicationCredential);
    judged_routes!(WithApplicationCredential);
    suite!(WithApplicationCredential:
        balancers::a_shared_load_balancer_lives_until_its_last_service,
        judged_balancers::the_component_shares_as_the_vendors_provider_does,
        machines::machines_are_found_by_id_and_by_name,
        machines::a_refused_credential_is_denied,
    );
}
