//! A Skysail provider over the APIs of [OpenStack](https://www.openstack.org): servers of Nova as
//! nodes, load balancers of Octavia for Services, extra routes of a Neutron router.
//!
//! The host logs in at Keystone and adds the token; this crate never sees either. The pure parts
//! (`settings`, `catalog`, `plan`, `names`) and the reconciling parts are tested natively against a
//! cloud in memory; only `client` sends requests.

mod catalog;
mod client;
mod features;
#[cfg(test)]
mod fixture;
mod machines;
mod meaning;
mod names;
mod plan;
mod reconcile;
mod routing;
mod settings;
mod wire;

use std::hash::{DefaultHasher, Hash, Hasher as _};

use skysail_guest_sdk::{
    Detail, Error, Identity, Info, Instance, Instances, LoadBalancerInventory, LoadBalancerStatus, LoadBalancers,
    NewRoute, NodeSet, Owned, Problem, Result, Route, Routes, Service, config, events, http,
    instances::Turn,
    legacy::{Zone, Zones},
    provider,
};

use self::{
    client::OpenStack,
    features::Features,
    reconcile::{Done, Task},
    routing::Routing,
    settings::Settings,
};

/// Scheme of `spec.providerID`, and the provider's name.
const SCHEME: &str = "openstack";

struct Provider;

provider!(Provider: identity, instances, zones, load_balancers, load_balancer_inventory, routes);

impl Identity for Provider {
    /// Services that share a load balancer change its tags, and members of several Services share
    /// the security groups of a port: one call after the other loses no change.
    fn describe() -> Info {
        let description = "OpenStack: Nova servers, Octavia load balancers, Neutron routes";
        Info { serial_load_balancers: true, ..Info::new(SCHEME, env!("CARGO_PKG_VERSION"), description) }
    }

    fn check_config(text: String) -> Vec<Problem> {
        settings::parse(&text).problems()
    }

    /// Keystone, and the endpoints that the operator wrote down; those of the catalogue are not
    /// known before the first call.
    fn origins(text: String) -> Vec<String> {
        let Ok(settings) = settings::parse(&text).config() else { return Vec::new() };
        let urls = std::iter::once(settings.auth_url).chain(settings.endpoints.into_iter().flatten());
        let mut origins: Vec<String> = urls.map(|url| http::Api::new(&url).origin()).collect();
        origins.sort_unstable();
        origins.dedup();
        origins
    }
}

impl Instances for Provider {
    fn describe(nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        let settings = settings()?;
        let nodes = nodes.names().into_iter().zip(nodes.provider_ids()).collect();
        machines::describe(&OpenStack::new(&settings), &settings, nodes, detail, Turn::now())
    }
}

impl Zones for Provider {
    fn current() -> Result<Zone> {
        Err(Error::Unsupported(
            "the provider does not know on which machine the manager runs; ask for the zone of a node".to_owned(),
        ))
    }

    fn by_provider_id(provider_id: String) -> Result<Zone> {
        let settings = settings()?;
        machines::zone(&OpenStack::new(&settings), &settings, "", Some(provider_id))
    }

    fn by_node_name(node: String) -> Result<Zone> {
        let settings = settings()?;
        machines::zone(&OpenStack::new(&settings), &settings, &node, None)
    }
}

impl LoadBalancers for Provider {
    fn name(cluster: String, service: Service) -> String {
        names::load_balancer(&cluster, &service.namespace, &service.name)
    }

    fn get(cluster: String, service: Service) -> Result<Option<LoadBalancerStatus>> {
        with_task(&switched_on()?, &cluster, &service, |task| task.get())
    }

    fn ensure(cluster: String, service: Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        with_task(&switched_on()?, &cluster, &service, |task| task.ensure(nodes).map(tell))
    }

    fn update(cluster: String, service: Service, nodes: &NodeSet) -> Result<()> {
        with_task(&switched_on()?, &cluster, &service, |task| task.update(nodes))
    }

    fn ensure_deleted(cluster: String, service: Service) -> Result<()> {
        with_task(&settings()?, &cluster, &service, |task| task.ensure_deleted())
    }
}

impl LoadBalancerInventory for Provider {
    fn list(cluster: String) -> Result<Vec<Owned>> {
        let settings = switched_on()?;
        reconcile::list_owned(&OpenStack::new(&settings), &cluster)
    }

    fn delete(cluster: String, name: String, _service: Option<(String, String, String)>) -> Result<()> {
        let unknown = Service::new("", "", "");
        with_task(&settings()?, &cluster, &unknown, |task| reconcile::delete_owned(task, &name))
    }
}

impl Routes for Provider {
    fn list(_cluster: String) -> Result<Vec<Route>> {
        let settings = settings()?;
        routing::list(&OpenStack::new(&settings), router(&settings)?)
    }

    fn create(_cluster: String, routes: Vec<NewRoute>) -> Result<Vec<Result<()>>> {
        with_routing(|routing| routing.create(&routes))
    }

    fn delete(_cluster: String, routes: Vec<Route>) -> Result<Vec<Result<()>>> {
        with_routing(|routing| routing.delete(&routes))
    }
}

fn settings() -> Result<Settings> {
    config::load(settings::parse)
}

/// The settings of a call for a Service: no request is sent where load balancers are off, because
/// the cloud may not have Octavia.
fn switched_on() -> Result<Settings> {
    let settings = settings()?;
    settings.load_balancer.check_enabled()?;
    Ok(settings)
}

fn router(settings: &Settings) -> Result<&str> {
    let absent = || Error::Unsupported("the cloud-config has no router: [Route] router-id".to_owned());
    settings.router.as_deref().ok_or_else(absent)
}

fn with_routing<T>(run: impl FnOnce(&Routing<'_, OpenStack<'_>>) -> Result<T>) -> Result<T> {
    let settings = settings()?;
    let cloud = OpenStack::new(&settings);
    run(&Routing { cloud: &cloud, router: router(&settings)?, extensions: cloud.extensions()? })
}

fn with_task<T>(
    settings: &Settings,
    cluster: &str,
    service: &Service,
    run: impl FnOnce(&Task<'_, OpenStack<'_>>) -> Result<T>,
) -> Result<T> {
    let cloud = OpenStack::new(settings);
    let features = Features::of(cloud.octavia()?, &settings.load_balancer.provider)?;
    run(&Task { cloud: &cloud, settings, features, cluster, service })
}

/// The values in order, each once.
fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// A digest that is the same in all calls of a component.
fn digest(value: &(impl Hash + ?Sized)) -> String {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Publishes the warnings and returns the status.
fn tell<T>(Done { value, warnings }: Done<T>) -> T {
    for (reason, message) in warnings {
        events::warning(reason, &message);
    }
    value
}

#[cfg(test)]
mod tests;
