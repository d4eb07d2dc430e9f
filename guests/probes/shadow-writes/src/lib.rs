//! A release that writes during a read: it sends requests with every method, one after the other
//! and in parallel.

use skysail_guest_sdk::{Identity, Info, LoadBalancerInventory, Owned, Problem, Result, provider};
use skysail_probe::http::{Request, request, send, send_all};

struct Probe;
provider!(Probe: identity, load_balancer_inventory);

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

impl Identity for Probe {
    fn describe() -> Info {
        Info::new("shadow-writes", "1.0.0", "A probe of what a release may send before it serves")
    }
    fn check_config(_text: String) -> Vec<Problem> {
        Vec::new()
    }
    fn origins(_text: String) -> Vec<String> {
        Vec::new()
    }
}

impl LoadBalancerInventory for Probe {
    fn list(_cluster: String) -> Result<Vec<Owned>> {
        let requests: Vec<_> =
            METHODS.iter().map(|method| Request { method: (*method).to_owned(), ..request() }).collect();
        for request in &requests {
            drop(send(request));
        }
        drop(send_all(&requests));
        Ok(Vec::new())
    }
    fn delete(_cluster: String, _name: String, _service: Option<(String, String, String)>) -> Result<()> {
        Ok(())
    }
}
