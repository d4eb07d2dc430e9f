//! The slot as a provider: each call goes to the release that serves when it begins.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use skysail_provider::{
    Call, Clusters, Detail, Info, Instance, Instances, Interface, LoadBalancerInventory, LoadBalancerStatus,
    LoadBalancers, NewRoute, NodeLegacy, NodeSet, OwnedLoadBalancer, PersistentVolume, PersistentVolumeLabels,
    Provider, Result, Route, Routes, Service, Zone, Zones,
};

use super::Slot;

/// A call on the release that serves the object. Where that release is replaced and the call does
/// not end in time, the call is repeated on the release that serves then.
macro_rules! on {
    ($slot:ident, $interface:ident, $uid:expr, |$provider:ident| $call:expr) => {
        loop {
            let release = $slot.hold(Interface::$interface, $uid)?;
            let $provider = &release.provider;
            tokio::select! {
                biased;
                answer = $call => break answer,
                () = release.over() => $slot.repeats(&release),
            }
        }
    };
}

/// As [`on`], for calls that change load balancers: each waits for its turn.
macro_rules! in_turn {
    ($slot:ident, $interface:ident, $uid:expr, |$provider:ident| $call:expr) => {
        loop {
            let (_turn, release) = $slot.turn(Interface::$interface, $uid).await?;
            let $provider = &release.provider;
            tokio::select! {
                biased;
                answer = $call => break answer,
                () = release.over() => $slot.repeats(&release),
            }
        }
    };
}

impl Provider for Slot {
    fn info(&self) -> Option<Arc<Info>> {
        self.routing.load().active.as_ref().map(|active| Arc::clone(&active.info))
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
        on!(self, LoadBalancers, Some(&service.uid), |provider| LoadBalancers::name(provider, call, cluster, service))
    }

    async fn get(&self, call: &Call, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        self.memory.service(call, cluster, service);
        on!(self, LoadBalancers, Some(&service.uid), |provider| provider.get(call, cluster, service))
    }

    async fn ensure(
        &self,
        call: &Call,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus> {
        self.memory.service(call, cluster, service);
        self.memory.backends(call, cluster, service, nodes);
        in_turn!(self, LoadBalancers, Some(&service.uid), |provider| provider.ensure(call, cluster, service, nodes))
    }

    async fn update(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
        self.memory.service(call, cluster, service);
        self.memory.backends(call, cluster, service, nodes);
        in_turn!(self, LoadBalancers, Some(&service.uid), |provider| provider.update(call, cluster, service, nodes))
    }

    async fn ensure_deleted(&self, call: &Call, cluster: &str, service: &Service) -> Result<()> {
        self.memory.forget(&service.uid);
        in_turn!(self, LoadBalancers, Some(&service.uid), |provider| provider.ensure_deleted(call, cluster, service))
    }
}

#[async_trait]
impl LoadBalancerInventory for Slot {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        self.memory.inventory(call, cluster);
        on!(self, LoadBalancerInventory, uid(call), |provider| LoadBalancerInventory::list(provider, call, cluster))
    }

    async fn delete(&self, call: &Call, cluster: &str, share: &OwnedLoadBalancer) -> Result<()> {
        in_turn!(self, LoadBalancerInventory, uid(call), |provider| LoadBalancerInventory::delete(
            provider, call, cluster, share
        ))
    }
}

#[async_trait]
impl Instances for Slot {
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        self.memory.nodes(call, nodes, detail);
        loop {
            let canary = self.routing.load().canary_with(Interface::Instances).cloned();
            let parts = canary.as_ref().map(|canary| (canary, canary.split(nodes)));
            let Some((canary, (share, rest))) = parts.filter(|(_, (share, _))| !share.is_empty()) else {
                drop(canary);
                return on!(self, Instances, None, |provider| provider.describe(call, nodes, detail));
            };
            let tried = &canary.release;
            let active = if rest.is_empty() { Arc::clone(tried) } else { self.hold(Interface::Instances, None)? };
            let of_rest = async {
                if rest.is_empty() { Ok(Vec::new()) } else { active.provider.describe(call, &rest, detail).await }
            };
            let answers = async { tokio::join!(tried.provider.describe(call, &share, detail), of_rest) };
            tokio::select! {
                biased;
                (share, rest) = answers => return canary.join(nodes, share, rest),
                () = tried.over() => self.repeats(tried),
                () = active.over() => self.repeats(&active),
            }
        }
    }
}

#[async_trait]
impl Routes for Slot {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<Route>> {
        self.memory.routes(call, cluster);
        on!(self, Routes, uid(call), |provider| Routes::list(provider, call, cluster))
    }

    async fn create(&self, call: &Call, cluster: &str, routes: &[NewRoute]) -> Result<Vec<Result<()>>> {
        on!(self, Routes, uid(call), |provider| provider.create(call, cluster, routes))
    }

    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
        on!(self, Routes, uid(call), |provider| Routes::delete(provider, call, cluster, routes))
    }
}

#[async_trait]
impl Zones for Slot {
    async fn current(&self, call: &Call) -> Result<Zone> {
        on!(self, Zones, uid(call), |provider| provider.current(call))
    }

    async fn by_provider_id(&self, call: &Call, provider_id: &str) -> Result<Zone> {
        on!(self, Zones, uid(call), |provider| provider.by_provider_id(call, provider_id))
    }

    async fn by_node_name(&self, call: &Call, node: &str) -> Result<Zone> {
        on!(self, Zones, uid(call), |provider| provider.by_node_name(call, node))
    }
}

#[async_trait]
impl Clusters for Slot {
    async fn list(&self, call: &Call) -> Result<Vec<String>> {
        on!(self, Clusters, uid(call), |provider| Clusters::list(provider, call))
    }

    async fn master(&self, call: &Call, cluster: &str) -> Result<String> {
        on!(self, Clusters, uid(call), |provider| provider.master(call, cluster))
    }
}

#[async_trait]
impl NodeLegacy for Slot {
    async fn add_ssh_key_to_all_instances(&self, call: &Call, user: &str, key: &[u8]) -> Result<()> {
        on!(self, NodeLegacy, uid(call), |provider| provider.add_ssh_key_to_all_instances(call, user, key))
    }

    async fn current_node_name(&self, call: &Call, hostname: &str) -> Result<String> {
        on!(self, NodeLegacy, uid(call), |provider| provider.current_node_name(call, hostname))
    }

    async fn scrub_dns(
        &self,
        call: &Call,
        nameservers: &[String],
        searches: &[String],
    ) -> Result<(Vec<String>, Vec<String>)> {
        on!(self, NodeLegacy, uid(call), |provider| provider.scrub_dns(call, nameservers, searches))
    }
}

#[async_trait]
impl PersistentVolumeLabels for Slot {
    async fn labels(&self, call: &Call, cluster: &str, volume: &PersistentVolume) -> Result<BTreeMap<String, String>> {
        on!(self, PersistentVolumeLabels, uid(call), |provider| provider.labels(call, cluster, volume))
    }
}

fn uid(call: &Call) -> Option<&str> {
    call.object.as_ref().map(|object| object.uid.as_str())
}
