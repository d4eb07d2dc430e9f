//! A probe that reads only the names of nodes: the cost must not depend on the other columns.

use skysail_guest_sdk::{
    Identity, Info, Ingress, LoadBalancerStatus, LoadBalancers, NodeSet, Problem, Result, Service, provider,
};

struct Names;
provider!(Names: identity, load_balancers);

impl Identity for Names {
    fn describe() -> Info {
        Info::new("names", "0.1.0", "A probe that reads names")
    }
    fn check_config(_text: String) -> Vec<Problem> {
        Vec::new()
    }
    fn origins(_text: String) -> Vec<String> {
        Vec::new()
    }
}

impl LoadBalancers for Names {
    fn name(_cluster: String, service: Service) -> String {
        service.default_load_balancer_name()
    }
    fn get(_cluster: String, _service: Service) -> Result<Option<LoadBalancerStatus>> {
        Ok(None)
    }
    fn ensure(_cluster: String, _service: Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        let bytes: usize = nodes.names().iter().map(String::len).sum();
        Ok(Ingress::hostname(format!("names-{bytes}.example.com")).into())
    }
    fn update(_cluster: String, _service: Service, _nodes: &NodeSet) -> Result<()> {
        Ok(())
    }
    fn ensure_deleted(_cluster: String, _service: Service) -> Result<()> {
        Ok(())
    }
}
