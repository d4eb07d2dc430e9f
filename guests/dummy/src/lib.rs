//! The smallest useful provider: no cloud, no requests. The Service's uid selects an address from a
//! pool, two Services may get the same one, no traffic flows, and every node has an instance. To
//! begin a provider, replace the functions one by one by requests to a cloud; the README of
//! skysail-guest-sdk shows how.
use skysail_guest_sdk::{
    AddressKind, Cidr, Detail, Error, Identity, Info, Ingress, Instance, Instances, LoadBalancerStatus, LoadBalancers,
    NodeAddress, NodeSet, Problem, Result, Service, config,
    config::{Checked, Ini},
    info, provider, provider_id,
};

struct Dummy;
provider!(Dummy: identity, load_balancers, instances);

/// The pool of addresses: `[LoadBalancer] pool = CIDR`, by default the documentation range of RFC
/// 5737.
fn pool(text: &str) -> Checked<Cidr> {
    let mut ini = Ini::parse(text);
    let line = ini.line("LoadBalancer", "pool");
    let pool: String = ini.optional("LoadBalancer", "pool").unwrap_or_else(|| "203.0.113.0/24".to_owned());
    ini.finish(pool).and_then(|pool| match pool.parse::<Cidr>() {
        Ok(cidr) => Checked::new(cidr, Vec::new()),
        Err(error) => Checked::refused(Problem::fatal(line, "LoadBalancer.pool", error.message())),
    })
}
impl Identity for Dummy {
    fn describe() -> Info {
        Info { has_cluster_id: false, ..Info::new("dummy", env!("CARGO_PKG_VERSION"), "Addresses without a cloud") }
    }
    fn check_config(text: String) -> Vec<Problem> {
        pool(&text).problems()
    }
    fn origins(_text: String) -> Vec<String> {
        Vec::new()
    }
}
impl LoadBalancers for Dummy {
    fn name(_cluster: String, service: Service) -> String {
        service.default_load_balancer_name()
    }
    fn get(_cluster: String, service: Service) -> Result<Option<LoadBalancerStatus>> {
        let hash = service.uid.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        Ok(Some(Ingress::ip(config::load(pool)?.nth(hash.into()).to_string()).into()))
    }
    fn ensure(cluster: String, service: Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        info!("{} has {} nodes", service.key(), nodes.len());
        Self::get(cluster, service)?.ok_or_else(|| Error::Internal("the pool gave no address".to_owned()))
    }
    fn update(_cluster: String, _service: Service, _nodes: &NodeSet) -> Result<()> {
        Ok(())
    }
    fn ensure_deleted(_cluster: String, _service: Service) -> Result<()> {
        Ok(())
    }
}
impl Instances for Dummy {
    fn describe(nodes: &NodeSet, _detail: Detail) -> Result<Vec<Result<Instance>>> {
        let columns = nodes.names().into_iter().zip(nodes.addresses(&AddressKind::InternalIp));
        let instance = |(name, ips): (String, Vec<String>)| Instance {
            addresses: ips.into_iter().map(|ip| NodeAddress::new(AddressKind::InternalIp, ip)).collect(),
            ..Instance::new(provider_id::format("dummy", &name))
        };
        Ok(columns.map(|column| Ok(instance(column))).collect())
    }
}

#[cfg(test)]
mod tests;
