//! A Skysail provider over the APIs of Amazon EC2 and Elastic Load Balancing: machines as nodes,
//! routes to pods, Network Load Balancers and Classic Load Balancers for Services.
//!
//! The host signs the requests; this crate never sees a key. Everything except `cloud` is tested
//! natively.

mod backends;
mod balancing;
mod call;
mod classic;
mod cloud;
mod deletion;
mod fault;
#[cfg(test)]
mod fixture;
mod groups;
mod inventory;
mod lookup;
mod machines;
mod network;
mod plan;
mod provider_id;
mod routes;
mod settings;
mod sources;
mod subnets;
mod tagging;
mod wire;

use skysail_guest_sdk::{
    Detail, Identity, Info, Instance, Instances, LoadBalancerInventory, LoadBalancerStatus, LoadBalancers, NewRoute,
    NodeSet, Owned, Problem, Result, Route, Routes, Service, events, instances::Turn, provider,
};

use self::{
    balancing::{Done, Task},
    cloud::Aws,
};

/// Scheme of `spec.providerID`, and the provider's name.
const SCHEME: &str = "aws";

struct Provider;

provider!(Provider: identity, instances, routes, load_balancers, load_balancer_inventory);

impl Identity for Provider {
    /// The calls for load balancers are serial: all Services share the rules in the security groups
    /// of the nodes.
    fn describe() -> Info {
        let description = "EC2 machines and routes, Network Load Balancers and Classic Load Balancers";
        Info { serial_load_balancers: true, ..Info::new(SCHEME, env!("CARGO_PKG_VERSION"), description) }
    }

    fn check_config(text: String) -> Vec<Problem> {
        settings::parse(&text).problems()
    }

    fn origins(text: String) -> Vec<String> {
        let Ok(settings) = settings::parse(&text).config() else { return Vec::new() };
        let mut origins: Vec<_> =
            [settings.ec2, settings.elb, settings.elb_v2].iter().map(settings::Endpoint::origin).collect();
        origins.sort_unstable();
        origins.dedup();
        origins
    }
}

impl Instances for Provider {
    fn describe(nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        let settings = settings::load()?;
        machines::describe(&Aws::new(&settings), &settings, nodes, detail, Turn::now())
    }
}

impl Routes for Provider {
    fn list(cluster: String) -> Result<Vec<Route>> {
        let settings = settings::load()?;
        routes::list(&Aws::new(&settings), &settings, &cluster)
    }

    fn create(cluster: String, routes: Vec<NewRoute>) -> Result<Vec<Result<()>>> {
        let settings = settings::load()?;
        routes::create(&Aws::new(&settings), &settings, &cluster, &routes)
    }

    fn delete(cluster: String, routes: Vec<Route>) -> Result<Vec<Result<()>>> {
        let settings = settings::load()?;
        routes::delete(&Aws::new(&settings), &settings, &cluster, &routes)
    }
}

impl LoadBalancers for Provider {
    fn name(_cluster: String, service: Service) -> String {
        balancing::name_of(&service)
    }

    fn get(cluster: String, service: Service) -> Result<Option<LoadBalancerStatus>> {
        with_task(&cluster, &service, |task| task.get())
    }

    fn ensure(cluster: String, service: Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        with_task(&cluster, &service, |task| task.ensure(nodes).map(tell))
    }

    fn update(cluster: String, service: Service, nodes: &NodeSet) -> Result<()> {
        with_task(&cluster, &service, |task| task.update(nodes).map(tell))
    }

    fn ensure_deleted(cluster: String, service: Service) -> Result<()> {
        with_task(&cluster, &service, |task| task.ensure_deleted())
    }
}

impl LoadBalancerInventory for Provider {
    fn list(cluster: String) -> Result<Vec<Owned>> {
        let settings = settings::load()?;
        inventory::list(&Aws::new(&settings), &settings, &cluster)
    }

    /// The name has the Service's UID.
    fn delete(cluster: String, name: String, _service: Option<(String, String, String)>) -> Result<()> {
        let settings = settings::load()?;
        inventory::delete(&Aws::new(&settings), &settings, &cluster, &name)
    }
}

fn with_task<T>(cluster: &str, service: &Service, run: impl FnOnce(&Task<'_>) -> Result<T>) -> Result<T> {
    let settings = settings::load()?;
    run(&Task::new(&Aws::new(&settings), &settings, cluster, service))
}

/// Publishes the warnings and returns the result.
fn tell<T>(Done { value, warnings }: Done<T>) -> T {
    for (reason, message) in warnings {
        events::warning(reason, &message);
    }
    value
}
