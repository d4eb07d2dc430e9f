//! The implementation of the contract's interfaces. The crate of a component selects the interfaces
//! that it exports.

use skysail_guest_sdk::{
    Detail, Error, Identity, Info, Instance, Instances, LoadBalancerInventory, LoadBalancerStatus, LoadBalancers,
    NewRoute, NodeSet, Owned, Pair, PersistentVolume, PersistentVolumeLabels, Problem, Result, Route, Routes, Service,
    legacy::{Clusters, NodeLegacy, Zone, Zones},
};

use crate::{api::Cloud, balancing, machines, routing, volumes};

pub(crate) struct SimCloud;

impl Identity for SimCloud {
    fn describe() -> Info {
        Info::new("simcloud", env!("CARGO_PKG_VERSION"), "Skysail's simulated cloud")
    }
    fn check_config(text: String) -> Vec<Problem> {
        Cloud::parse(&text).problems()
    }
    fn origins(text: String) -> Vec<String> {
        Cloud::parse(&text).config().iter().map(|cloud| cloud.api.origin()).collect()
    }
}

impl LoadBalancers for SimCloud {
    fn name(_cluster: String, service: Service) -> String {
        service.default_load_balancer_name()
    }
    fn get(cluster: String, service: Service) -> Result<Option<LoadBalancerStatus>> {
        balancing::get(&Cloud::load()?, &cluster, &service)
    }
    fn ensure(cluster: String, service: Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        balancing::ensure(&Cloud::load()?, &cluster, &service, nodes)
    }
    fn update(cluster: String, service: Service, nodes: &NodeSet) -> Result<()> {
        balancing::update(&Cloud::load()?, &cluster, &service, nodes)
    }
    fn ensure_deleted(cluster: String, service: Service) -> Result<()> {
        balancing::delete(&Cloud::load()?, &cluster, &service.default_load_balancer_name())
    }
}

impl LoadBalancerInventory for SimCloud {
    fn list(cluster: String) -> Result<Vec<Owned>> {
        balancing::owned(&Cloud::load()?, &cluster)
    }
    fn delete(cluster: String, name: String, service: Option<(String, String, String)>) -> Result<()> {
        let uid = service.as_ref().map(|(_, _, uid)| uid.as_str());
        balancing::delete_owned(&Cloud::load()?, &cluster, &name, uid)
    }
}

impl Instances for SimCloud {
    fn describe(nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        machines::describe(&Cloud::load()?, nodes, detail)
    }
}

impl Routes for SimCloud {
    fn list(cluster: String) -> Result<Vec<Route>> {
        routing::list(&Cloud::load()?, &cluster)
    }
    fn create(cluster: String, routes: Vec<NewRoute>) -> Result<Vec<Result<()>>> {
        routing::create(&Cloud::load()?, &cluster, &routes)
    }
    fn delete(cluster: String, routes: Vec<Route>) -> Result<Vec<Result<()>>> {
        routing::delete(&Cloud::load()?, &cluster, &routes)
    }
}

impl Zones for SimCloud {
    fn current() -> Result<Zone> {
        let cloud = Cloud::load()?;
        let name = cloud.zone.clone().ok_or_else(|| Error::Unsupported("the cloud-config names no zone".to_owned()))?;
        machines::zone(&cloud, &name)
    }
    fn by_provider_id(provider_id: String) -> Result<Zone> {
        let cloud = Cloud::load()?;
        machines::zone(&cloud, &machines::by_provider_id(&cloud, &provider_id)?.zone)
    }
    fn by_node_name(node: String) -> Result<Zone> {
        let cloud = Cloud::load()?;
        machines::zone(&cloud, &machines::by_name(&cloud, &node)?.zone)
    }
}

impl Clusters for SimCloud {
    fn list() -> Result<Vec<String>> {
        Ok(Cloud::load()?.clusters()?.into_iter().map(|cluster| cluster.name).collect())
    }
    fn master(cluster: String) -> Result<String> {
        let found = Cloud::load()?.clusters()?.into_iter().find(|known| known.name == cluster);
        found.map(|known| known.master).ok_or_else(|| Error::NotFound(format!("there is no cluster {cluster:?}")))
    }
}

impl NodeLegacy for SimCloud {
    fn add_ssh_key_to_all_instances(user: String, key: Vec<u8>) -> Result<()> {
        let key = String::from_utf8(key).map_err(|_| Error::Invalid("the SSH key is not UTF-8".to_owned()))?;
        Cloud::load()?.add_ssh_key(&user, &key)
    }
    fn current_node_name(hostname: String) -> Result<String> {
        Ok(machines::by_name(&Cloud::load()?, &hostname)?.name)
    }
    fn scrub_dns(nameservers: Vec<String>, searches: Vec<String>) -> (Vec<String>, Vec<String>) {
        (nameservers, searches)
    }
}

impl PersistentVolumeLabels for SimCloud {
    fn labels(_cluster: String, volume: PersistentVolume) -> Result<Vec<Pair>> {
        volumes::labels(&Cloud::load()?, &volume)
    }
}
