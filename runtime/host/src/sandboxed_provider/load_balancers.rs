//! Interfaces `load-balancers` and `load-balancer-inventory`.

use super::{
    Call, Code, Guest, Interface, LoadBalancerInventory, LoadBalancerStatus, LoadBalancers, NodeSet, OwnedLoadBalancer,
    Result, SandboxedProvider, Service, absent, async_trait, convert, json, lend,
};
use crate::bindings::exports::skysail::provider::{load_balancer_inventory, load_balancers};

impl SandboxedProvider {
    fn load_balancer_indices(&self) -> Result<&load_balancers::GuestIndices> {
        self.release.exports().load_balancers.as_ref().ok_or_else(|| absent(Interface::LoadBalancers))
    }

    fn inventory_indices(&self) -> Result<&load_balancer_inventory::GuestIndices> {
        let indices = self.release.exports().load_balancer_inventory.as_ref();
        indices.ok_or_else(|| absent(Interface::LoadBalancerInventory))
    }
}

#[async_trait]
impl LoadBalancers for SandboxedProvider {
    async fn name(&self, call: &Call, cluster: &str, service: &Service) -> Result<String> {
        let indices = self.load_balancer_indices()?;
        let given = convert::service_to_guest(service);
        self.run(
            call,
            ("load-balancers.name", &|| json!({"cluster": cluster, "service": service})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_name(store, cluster, &given).await })
            },
            convert::load_balancer_name,
        )
        .await
    }

    async fn get(&self, call: &Call, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        let indices = self.load_balancer_indices()?;
        let given = convert::service_to_guest(service);
        self.run(
            call,
            ("load-balancers.get", &|| json!({"cluster": cluster, "service": service})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_get(store, cluster, &given).await })
            },
            |found| {
                // In the contract absence is none; `not-found` is accepted with the same meaning.
                match convert::result(found, |status| status.map(convert::status).transpose()) {
                    Err(error) if error.code == Code::NotFound => Ok(None),
                    other => other,
                }
            },
        )
        .await
    }

    async fn ensure(
        &self,
        call: &Call,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus> {
        let indices = self.load_balancer_indices()?;
        let (given, lent) = (convert::service_to_guest(service), nodes.clone());
        self.run(
            call,
            ("load-balancers.ensure", &|| json!({"cluster": cluster, "service": service, "nodes": nodes})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move {
                    let nodes = lend(store, lent)?;
                    indices.load(&mut *store, instance)?.call_ensure(store, cluster, &given, nodes).await
                })
            },
            |status| convert::result(status, convert::status),
        )
        .await
    }

    async fn update(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
        let indices = self.load_balancer_indices()?;
        let (given, lent) = (convert::service_to_guest(service), nodes.clone());
        self.run(
            call,
            ("load-balancers.update", &|| json!({"cluster": cluster, "service": service, "nodes": nodes})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move {
                    let nodes = lend(store, lent)?;
                    indices.load(&mut *store, instance)?.call_update(store, cluster, &given, nodes).await
                })
            },
            |updated| convert::result(updated, Ok),
        )
        .await
    }

    async fn ensure_deleted(&self, call: &Call, cluster: &str, service: &Service) -> Result<()> {
        let indices = self.load_balancer_indices()?;
        let given = convert::service_to_guest(service);
        self.run(
            call,
            ("load-balancers.ensure-deleted", &|| json!({"cluster": cluster, "service": service})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move {
                    indices.load(&mut *store, instance)?.call_ensure_deleted(store, cluster, &given).await
                })
            },
            |deleted| match convert::result(deleted, Ok) {
                Err(error) if error.code == Code::NotFound => Ok(()),
                other => other,
            },
        )
        .await
    }
}

#[async_trait]
impl LoadBalancerInventory for SandboxedProvider {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        let indices = self.inventory_indices()?;
        self.run(
            call,
            ("load-balancer-inventory.list", &|| json!({"cluster": cluster})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_list(store, cluster).await })
            },
            |list| convert::result(list, convert::owned),
        )
        .await
    }

    async fn delete(&self, call: &Call, cluster: &str, share: &OwnedLoadBalancer) -> Result<()> {
        let indices = self.inventory_indices()?;
        let OwnedLoadBalancer { name, service } = share;
        let owner = service.as_ref().map(|(namespace, name, uid)| (&**namespace, &**name, &**uid));
        self.run(
            call,
            ("load-balancer-inventory.delete", &|| json!({"cluster": cluster, "name": name, "service": service})),
            |Guest { store, instance, env: _ }| {
                Box::pin(
                    async move { indices.load(&mut *store, instance)?.call_delete(store, cluster, name, owner).await },
                )
            },
            |deleted| convert::result(deleted, Ok),
        )
        .await
    }
}
