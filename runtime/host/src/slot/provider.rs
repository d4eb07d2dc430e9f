//! The slot as a provider: each call goes to the release that serves when it begins.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use skysail_provider::{
    Call, Clusters, Detail, Info, Instance, Instances, Interface, LoadBalancerInventory, LoadBalancerStatus,
    LoadBalancers, NodeLegacy, NodeSet, OwnedLoadBalancer, PersistentVolume, PersistentVolumeLabels, Provider, Result,
    Route, Routes, Service, Zone, Zones,
};

use super::Slot;

impl Provider for Slot {
    fn info(&self) -> Option<Arc<Info>> {
        self.active.load().as_ref().map(|active| Arc::clone(&active.info))
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.may_have(Interface::LoadBalancers).then_some(self)
    }

    fn load_balancer_inventory(&self) -> Option<&dyn LoadBalancerInventory> {
        self.may_have(Interface::LoadBalancerInventory).then_some(self)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.may_have(Interface::Instances).then_some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.may_have(Interface::Routes).then_some(self)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        self.may_have(Interface::Zones).then_some(self)
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        self.may_have(Interface::Clusters).then_some(self)
    }

    fn node_legacy(&self) -> Option<&dyn NodeLegacy> {
        self.may_have(Interface::NodeLegacy).then_some(self)
    }

    fn persistent_volume_labels(&self) -> Option<&dyn PersistentVolumeLabels> {
        self.may_have(Interface::PersistentVolumeLabels).then_some(self)
    }
}

#[async_trait]
impl LoadBalancers for Slot {
    async fn name(&self, call: &Call, cluster: &str, service: &Service) -> Result<String> {
        LoadBalancers::name(&self.hold(Interface::LoadBalancers)?.provider, call, cluster, service).await
    }

    async fn get(&self, call: &Call, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        self.hold(Interface::LoadBalancers)?.provider.get(call, cluster, service).await
    }

    async fn ensure(
        &self,
        call: &Call,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus> {
        self.hold(Interface::LoadBalancers)?.provider.ensure(call, cluster, service, nodes).await
    }

    async fn update(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
        self.hold(Interface::LoadBalancers)?.provider.update(call, cluster, service, nodes).await
    }

    async fn ensure_deleted(&self, call: &Call, cluster: &str, service: &Service) -> Result<()> {
        self.hold(Interface::LoadBalancers)?.provider.ensure_deleted(call, cluster, service).await
    }
}

#[async_trait]
impl LoadBalancerInventory for Slot {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        LoadBalancerInventory::list(&self.hold(Interface::LoadBalancerInventory)?.provider, call, cluster).await
    }

    async fn delete(&self, call: &Call, cluster: &str, name: &str) -> Result<()> {
        LoadBalancerInventory::delete(&self.hold(Interface::LoadBalancerInventory)?.provider, call, cluster, name).await
    }
}

#[async_trait]
impl Instances for Slot {
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        self.hold(Interface::Instances)?.provider.describe(call, nodes, detail).await
    }
}

#[async_trait]
impl Routes for Slot {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<Route>> {
        Routes::list(&self.hold(Interface::Routes)?.provider, call, cluster).await
    }

    async fn create(&self, call: &Call, cluster: &str, routes: &[(String, Route)]) -> Result<Vec<Result<()>>> {
        self.hold(Interface::Routes)?.provider.create(call, cluster, routes).await
    }

    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
        Routes::delete(&self.hold(Interface::Routes)?.provider, call, cluster, routes).await
    }
}

#[async_trait]
impl Zones for Slot {
    async fn current(&self, call: &Call) -> Result<Zone> {
        self.hold(Interface::Zones)?.provider.current(call).await
    }

    async fn by_provider_id(&self, call: &Call, provider_id: &str) -> Result<Zone> {
        self.hold(Interface::Zones)?.provider.by_provider_id(call, provider_id).await
    }

    async fn by_node_name(&self, call: &Call, node: &str) -> Result<Zone> {
        self.hold(Interface::Zones)?.provider.by_node_name(call, node).await
    }
}

#[async_trait]
impl Clusters for Slot {
    async fn list(&self, call: &Call) -> Result<Vec<String>> {
        Clusters::list(&self.hold(Interface::Clusters)?.provider, call).await
    }

    async fn master(&self, call: &Call, cluster: &str) -> Result<String> {
        self.hold(Interface::Clusters)?.provider.master(call, cluster).await
    }
}

#[async_trait]
impl NodeLegacy for Slot {
    async fn add_ssh_key_to_all_instances(&self, call: &Call, user: &str, key: &[u8]) -> Result<()> {
        self.hold(Interface::NodeLegacy)?.provider.add_ssh_key_to_all_instances(call, user, key).await
    }

    async fn current_node_name(&self, call: &Call, hostname: &str) -> Result<String> {
        self.hold(Interface::NodeLegacy)?.provider.current_node_name(call, hostname).await
    }

    async fn scrub_dns(
        &self,
        call: &Call,
        nameservers: &[String],
        searches: &[String],
    ) -> Result<(Vec<String>, Vec<String>)> {
        self.hold(Interface::NodeLegacy)?.provider.scrub_dns(call, nameservers, searches).await
    }
}

#[async_trait]
impl PersistentVolumeLabels for Slot {
    async fn labels(&self, call: &Call, cluster: &str, volume: &PersistentVolume) -> Result<BTreeMap<String, String>> {
        self.hold(Interface::PersistentVolumeLabels)?.provider.labels(call, cluster, volume).await
    }
}
