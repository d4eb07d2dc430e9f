//! A Skysail provider over the API of [Incus](https://linuxcontainers.org/incus/): instances as
//! nodes, network load balancers (OVN) and network forwards (bridge) for Services.
//!
//! The host adds the client certificate; this crate never sees it. The operator's egress rules must
//! allow the origin of the endpoint and paths under `/1.0`. The pure parts (`settings`, `pool`,
//! `machines`, `plan`, `reconcile`) are tested natively; only `incus` sends requests.

#[cfg(test)]
mod fixture;
mod incus;
mod machines;
mod plan;
mod pool;
mod reconcile;
mod settings;
mod wire;

use skysail_guest_sdk::{
    AddressKind, Detail, Error, Identity, Info, Instance, Instances, LoadBalancerInventory, LoadBalancerStatus,
    LoadBalancers, NodeSet, Owned, Problem, Result, Service, config, events,
    legacy::{Zone, Zones},
    provider,
};

use self::{
    incus::Incus,
    machines::Machines,
    reconcile::{Done, Nodes, Task},
    settings::Settings,
};

/// Scheme of `spec.providerID`, and the provider's name.
const SCHEME: &str = "incus";

struct Provider;

provider!(Provider: identity, instances, zones, load_balancers, load_balancer_inventory);

impl Identity for Provider {
    fn describe() -> Info {
        Info::new(SCHEME, env!("CARGO_PKG_VERSION"), "Incus instances, network load balancers and network forwards")
    }

    fn check_config(text: String) -> Vec<Problem> {
        settings::parse(&text).problems()
    }

    fn origins(text: String) -> Vec<String> {
        settings::parse(&text).config().into_iter().map(|settings| settings.endpoint).collect()
    }
}

impl Instances for Provider {
    fn describe(nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        let settings = settings()?;
        let listed = Incus::new(&settings).instances(detail == Detail::Metadata)?;
        let machines = Machines::new(&settings, &listed);
        let nodes = nodes.names().into_iter().zip(nodes.provider_ids());
        Ok(nodes.map(|(name, id)| machines.describe(&name, id.as_deref())).collect())
    }
}

impl Zones for Provider {
    fn current() -> Result<Zone> {
        Err(Error::Unsupported("Incus has no call that tells on which machine a program runs".to_owned()))
    }

    fn by_provider_id(provider_id: String) -> Result<Zone> {
        zone(|machines| machines.by_provider_id(&provider_id).map(|machine| machines.zone(machine)))
    }

    fn by_node_name(node: String) -> Result<Zone> {
        zone(|machines| machines.by_node_name(&node).map(|machine| machines.zone(machine)))
    }
}

impl LoadBalancers for Provider {
    fn name(_cluster: String, service: Service) -> String {
        reconcile::name_of(&service.uid)
    }

    fn get(cluster: String, service: Service) -> Result<Option<LoadBalancerStatus>> {
        with_task(&cluster, &service, |task| task.get())
    }

    fn ensure(cluster: String, service: Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        with_task(&cluster, &service, |task| task.ensure(&columns(nodes)).map(tell))
    }

    fn update(cluster: String, service: Service, nodes: &NodeSet) -> Result<()> {
        with_task(&cluster, &service, |task| task.update(&columns(nodes)).map(tell))
    }

    fn ensure_deleted(cluster: String, service: Service) -> Result<()> {
        with_task(&cluster, &service, |task| task.ensure_deleted())
    }
}

impl LoadBalancerInventory for Provider {
    fn list(cluster: String) -> Result<Vec<Owned>> {
        reconcile::list_owned(&Incus::new(&settings()?), &cluster)
    }

    /// The name contains the Service's UID.
    fn delete(cluster: String, name: String, _service: Option<(String, String, String)>) -> Result<()> {
        reconcile::delete_owned(&Incus::new(&settings()?), &cluster, &name)
    }
}

fn settings() -> Result<Settings> {
    config::load(settings::parse)
}

fn zone(find: impl FnOnce(&Machines<'_>) -> Result<Zone>) -> Result<Zone> {
    let settings = settings()?;
    let listed = Incus::new(&settings).instances(false)?;
    find(&Machines::new(&settings, &listed))
}

fn with_task<T>(cluster: &str, service: &Service, run: impl FnOnce(&Task<'_, Incus<'_>>) -> Result<T>) -> Result<T> {
    let settings = settings()?;
    let cloud = Incus::new(&settings);
    run(&Task { cloud: &cloud, settings: &settings, cluster, service })
}

/// Reads two columns only: labels and annotations cost nothing.
fn columns(nodes: &NodeSet) -> Nodes {
    nodes.names().into_iter().zip(nodes.addresses(&AddressKind::InternalIp)).collect()
}

/// Publishes the warnings and returns the status.
fn tell<T>(Done { value, warnings }: Done<T>) -> T {
    for (reason, message) in warnings {
        events::warning(reason, &message);
    }
    value
}
