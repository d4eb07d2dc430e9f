//! A bad release: it describes itself as the provider of the simulated cloud, accepts every
//! cloud-config, and traps at every load balancer.

use skysail_guest_sdk::{
    Identity, Info, LoadBalancerStatus, LoadBalancers, NodeSet, Problem, Result, Service, provider,
};

struct Probe;
provider!(Probe: identity, load_balancers);

impl Identity for Probe {
    fn describe() -> Info {
        Info::new("simcloud", "99.0.0", "A probe of the rollback")
    }
    fn check_config(_text: String) -> Vec<Problem> {
        Vec::new()
    }
    fn origins(_text: String) -> Vec<String> {
        Vec::new()
    }
}

impl LoadBalancers for Probe {
    fn name(_cluster: String, service: Service) -> String {
        service.default_load_balancer_name()
    }
    fn get(_cluster: String, _service: Service) -> Result<Option<LoadBalancerStatus>> {
        regress()
    }
    fn ensure(_cluster: String, _service: Service, _nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        regress()
    }
    fn update(_cluster: String, _service: Service, _nodes: &NodeSet) -> Result<()> {
        regress()
    }
    fn ensure_deleted(_cluster: String, _service: Service) -> Result<()> {
        regress()
    }
}

#[expect(clippy::panic, reason = "this is the probe")]
fn regress<T>() -> Result<T> {
    panic!("a release regresses")
}
