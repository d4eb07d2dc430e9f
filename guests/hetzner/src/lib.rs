//! A Skysail provider over the API of [Hetzner Cloud](https://docs.hetzner.cloud): servers as
//! nodes, load balancers for Services, routes of a private network.
//!
//! The host adds the token; this crate never sees it. `settings`, `servers`, `plan` and `ports` are
//! pure; `balancers`, `targets`, `certificates` and `network_routes` reconcile through the client
//! in `hcloud`, whose trait `Host` has a cloud in memory behind it in tests.

mod balancers;
mod certificates;
#[cfg(test)]
mod fixture;
mod hcloud;
mod network_routes;
mod owner;
mod plan;
mod ports;
mod refusal;
mod selector;
mod servers;
mod settings;
mod targets;
mod wire;

use skysail_guest_sdk::{
    Detail, Error, Identity, Info, Instance, Instances, LoadBalancerInventory, LoadBalancerStatus, LoadBalancers,
    NewRoute, NodeSet, Owned, Problem, Result, Route, Service, config, events,
    http::Api,
    instances::{self, By, Machine},
    provider,
};

use self::{
    balancers::{Done, Task},
    hcloud::{Hcloud, Sandbox},
    network_routes::Routes,
    owner::Owner,
    servers::Server,
    settings::Settings,
};

/// Scheme of `spec.providerID`; also the name of the vendor's manager.
const SCHEME: &str = "hcloud";

/// What a call for load balancers reads where there are none.
const OFF: &str = "the cloud-config switches load balancers off: load-balancers-enabled";

struct Provider;

provider!(Provider: identity, instances, load_balancers, load_balancer_inventory, routes);

impl Identity for Provider {
    fn describe() -> Info {
        Info::new(SCHEME, env!("CARGO_PKG_VERSION"), "Hetzner Cloud servers, load balancers and routes")
    }

    fn check_config(text: String) -> Vec<Problem> {
        settings::parse(&text).problems()
    }

    fn origins(text: String) -> Vec<String> {
        settings::parse(&text).config().into_iter().map(|settings| Api::new(&settings.endpoint).origin()).collect()
    }
}

impl Instances for Provider {
    fn describe(nodes: &NodeSet, _detail: Detail) -> Result<Vec<Result<Instance>>> {
        let Account { settings, cloud } = Account::load()?;
        let network = cloud.configured_network(&settings)?;
        let servers = cloud.servers()?.into_iter().map(|server| Server::new(&settings, network, server));
        Ok(instances::describe(SCHEME, &servers.collect::<Vec<_>>(), nodes))
    }
}

impl Machine for Server {
    fn id(&self) -> &str {
        &self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn instance(&self) -> Instance {
        self.instance.clone()
    }

    fn look_up(by: By<'_>) -> Result<Self> {
        let Account { settings, cloud } = Account::load()?;
        let network = cloud.configured_network(&settings)?;
        let server = cloud.server_of(by)?;
        Ok(Self::new(&settings, network, server))
    }
}

impl LoadBalancers for Provider {
    fn name(_cluster: String, service: Service) -> String {
        plan::name_of(&service)
    }

    fn get(cluster: String, service: Service) -> Result<Option<LoadBalancerStatus>> {
        Account::balancers()?.task(&cluster, &service)?.get()
    }

    fn ensure(cluster: String, service: Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        Account::balancers()?.task(&cluster, &service)?.ensure(nodes).map(tell)
    }

    fn update(cluster: String, service: Service, nodes: &NodeSet) -> Result<()> {
        Account::balancers()?.task(&cluster, &service)?.update(nodes).map(tell)
    }

    fn ensure_deleted(cluster: String, service: Service) -> Result<()> {
        Account::balancers()?.task(&cluster, &service)?.ensure_deleted().map(tell)
    }
}

impl LoadBalancerInventory for Provider {
    fn list(cluster: String) -> Result<Vec<Owned>> {
        let Account { settings, cloud } = Account::load()?;
        if !settings.balancers.enabled {
            return Err(Error::Unsupported(OFF.to_owned()));
        }
        balancers::list_owned(&cloud, &cluster)
    }

    fn delete(cluster: String, name: String, service: Option<(String, String, String)>) -> Result<()> {
        let warnings = balancers::delete_owned(&Account::load()?.cloud, &cluster, &name, service)?;
        tell(Done { value: (), warnings });
        Ok(())
    }
}

impl skysail_guest_sdk::Routes for Provider {
    fn list(_cluster: String) -> Result<Vec<Route>> {
        let Account { settings, cloud } = Account::load()?;
        Routes::new(&cloud, &settings)?.list()
    }

    fn create(_cluster: String, routes: Vec<NewRoute>) -> Result<Vec<Result<()>>> {
        let Account { settings, cloud } = Account::load()?;
        Routes::new(&cloud, &settings)?.create(routes)
    }

    fn delete(_cluster: String, routes: Vec<Route>) -> Result<Vec<Result<()>>> {
        let Account { settings, cloud } = Account::load()?;
        Routes::new(&cloud, &settings)?.delete(routes)
    }
}

/// The cloud-config of this call, and the client that it describes.
struct Account {
    settings: Settings,
    cloud: Hcloud<Sandbox>,
}

impl Account {
    fn load() -> Result<Self> {
        let settings = config::load(settings::parse)?;
        let cloud = Hcloud { host: Sandbox::new(&settings) };
        Ok(Self { settings, cloud })
    }

    /// As [`Account::load`].
    ///
    /// # Errors
    ///
    /// `implemented-elsewhere` where the cloud-config switches load balancers off.
    fn balancers() -> Result<Self> {
        let account = Self::load()?;
        if account.settings.balancers.enabled {
            return Ok(account);
        }
        Err(Error::ImplementedElsewhere(OFF.to_owned()))
    }

    fn task<'a>(&'a self, cluster: &str, service: &'a Service) -> Result<Task<'a, Sandbox>> {
        let owner = Owner::new(cluster, service)?;
        Ok(Task { cloud: &self.cloud, settings: &self.settings, owner, service })
    }
}

/// Publishes the warnings and returns the value.
fn tell<T>(Done { value, warnings }: Done<T>) -> T {
    for (reason, message) in warnings {
        events::warning(reason, &message);
    }
    value
}
