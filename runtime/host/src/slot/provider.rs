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
        LoadBalancers::name(&self.hold(Interface::LoadBalancers, Some(&service.uid))?.provider, call, cluster, service)
            .await
    }

    async fn get(&self, call: &Call, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        self.memory.service(call, cluster, service);
        self.hold(Interface::LoadBalancers, Some(&service.uid))?.provider.get(call, cluster, service).await
    }

    async fn ensure(
        &self,
        call: &Call,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus> {
        self.memory.service(call, cluster, service);
        self.hold(Interface::LoadBalancers, Some(&service.uid))?.provider.ensure(call, cluster, service, nodes).await
    }

    async fn update(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
        self.memory.service(call, cluster, service);
        self.hold(Interface::LoadBalancers, Some(&service.uid))?.provider.update(call, cluster, service, nodes).await
    }

    async fn ensure_deleted(&self, call: &Call, cluster: &str, service: &Service) -> Result<()> {
        self.memory.forget(&service.uid);
        self.hold(Interface::LoadBalancers, Some(&service.uid))?.provider.ensure_deleted(call, cluster, service).await
    }
}

#[async_trait]
impl LoadBalancerInventory for Slot {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        self.memory.inventory(call, cluster);
        LoadBalancerInventory::list(&self.hold(Interface::LoadBalancerInventory, uid(call))?.provider, call, cluster)
            .await
    }

    async fn delete(&self, call: &Call, cluster: &str, name: &str) -> Result<()> {
        LoadBalancerInventory::delete(
            &self.hold(Interface::LoadBalancerInventory, uid(call))?.provider,
            call,
            cluster,
            name,
        )
        .await
    }
}

#[async_trait]
impl Instances for Slot {
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        self.memory.nodes(call, nodes, detail);
        let Some(canary) = self.canary_with(Interface::Instances) else {
            return self.hold(Interface::Instances, None)?.provider.describe(call, nodes, detail).await;
        };
        let (share, rest): (Vec<_>, Vec<_>) =
            nodes.as_slice().iter().cloned().partition(|node| canary.serves(&node.uid));
        let (share, rest) = (NodeSet::new(share), NodeSet::new(rest));
        if share.is_empty() {
            return self.hold(Interface::Instances, None)?.provider.describe(call, nodes, detail).await;
        }
        if rest.is_empty() {
            return canary.release().provider.describe(call, nodes, detail).await;
        }
        let active = self.hold(Interface::Instances, None)?;
        // Where one of both has no answer there is none: taken apart, an error about all nodes would look like one about each of them.
        let (share, rest) = tokio::join!(
            canary.release().provider.describe(call, &share, detail),
            active.provider.describe(call, &rest, detail)
        );
        let (share, rest) = (share?, rest?);
        let (mut share, mut rest) = (share.into_iter(), rest.into_iter());
        // Both keep the order of the nodes.
        Ok(nodes
            .as_slice()
            .iter()
            .filter_map(|node| if canary.serves(&node.uid) { share.next() } else { rest.next() })
            .collect())
    }
}

#[async_trait]
impl Routes for Slot {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<Route>> {
        self.memory.routes(call, cluster);
        Routes::list(&self.hold(Interface::Routes, uid(call))?.provider, call, cluster).await
    }

    async fn create(&self, call: &Call, cluster: &str, routes: &[(String, Route)]) -> Result<Vec<Result<()>>> {
        self.hold(Interface::Routes, uid(call))?.provider.create(call, cluster, routes).await
    }

    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
        Routes::delete(&self.hold(Interface::Routes, uid(call))?.provider, call, cluster, routes).await
    }
}

#[async_trait]
impl Zones for Slot {
    async fn current(&self, call: &Call) -> Result<Zone> {
        self.hold(Interface::Zones, uid(call))?.provider.current(call).await
    }

    async fn by_provider_id(&self, call: &Call, provider_id: &str) -> Result<Zone> {
        self.hold(Interface::Zones, uid(call))?.provider.by_provider_id(call, provider_id).await
    }

    async fn by_node_name(&self, call: &Call, node: &str) -> Result<Zone> {
        self.hold(Interface::Zones, uid(call))?.provider.by_node_name(call, node).await
    }
}

#[async_trait]
impl Clusters for Slot {
    async fn list(&self, call: &Call) -> Result<Vec<String>> {
        Clusters::list(&self.hold(Interface::Clusters, uid(call))?.provider, call).await
    }

    async fn master(&self, call: &Call, cluster: &str) -> Result<String> {
        self.hold(Interface::Clusters, uid(call))?.provider.master(call, cluster).await
    }
}

#[async_trait]
impl NodeLegacy for Slot {
    async fn add_ssh_key_to_all_instances(&self, call: &Call, user: &str, key: &[u8]) -> Result<()> {
        self.hold(Interface::NodeLegacy, uid(call))?.provider.add_ssh_key_to_all_instances(call, user, key).await
    }

    async fn current_node_name(&self, call: &Call, hostname: &str) -> Result<String> {
        self.hold(Interface::NodeLegacy, uid(call))?.provider.current_node_name(call, hostname).await
    }

    async fn scrub_dns(
        &self,
        call: &Call,
        nameservers: &[String],
        searches: &[String],
    ) -> Result<(Vec<String>, Vec<String>)> {
        self.hold(Interface::NodeLegacy, uid(call))?.provider.scrub_dns(call, nameservers, searches).await
    }
}

#[async_trait]
impl PersistentVolumeLabels for Slot {
    async fn labels(&self, call: &Call, cluster: &str, volume: &PersistentVolume) -> Result<BTreeMap<String, String>> {
        self.hold(Interface::PersistentVolumeLabels, uid(call))?.provider.labels(call, cluster, volume).await
    }
}

fn uid(call: &Call) -> Option<&str> {
    call.object.as_ref().map(|object| object.uid.as_str())
}
