//! What the provider answers where the cloud-config switches an interface off.

use skysail_guest_sdk::{Error, Result, legacy::Zones as _};

use crate::{Provider, fixture::settings, router};

fn unsupported<T: std::fmt::Debug>(result: Result<T>) -> String {
    let Err(Error::Unsupported(text)) = result else { panic!("{result:?}") };
    text
}

/// Before any request: a cloud without Octavia has no endpoint that could be asked.
#[test]
fn load_balancers_that_are_switched_off_are_unsupported_with_the_key() {
    let off = settings("enabled = false\n").load_balancer.check_enabled();
    assert_eq!(unsupported(off), "the cloud-config switches load balancers off: [LoadBalancer] enabled");
    assert_eq!(settings("").load_balancer.check_enabled(), Ok(()));
}

#[test]
fn routes_without_a_router_are_unsupported_with_the_key() {
    assert_eq!(unsupported(router(&settings(""))), "the cloud-config has no router: [Route] router-id");
    assert_eq!(router(&settings("[Route]\nrouter-id = r-1\n")), Ok("r-1"));
}

#[test]
fn the_zone_of_the_managers_machine_is_unsupported() {
    assert_eq!(
        unsupported(Provider::current()),
        "the provider does not know on which machine the manager runs; ask for the zone of a node"
    );
}
