//! The slot as a provider: each call goes to the release that serves when it begins.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use skysail_provider::{
    Call, Clusters, Code, Detail, Error, Info, Instance, Instances, Interface, LoadBalancerInventory,
    LoadBalancerStatus, LoadBalancers, NewRoute, NodeLegacy, NodeSet, OwnedLoadBalancer, PersistentVolume,
    PersistentVolumeLabels, Provider, Result, Route, Routes, Service, Zone, Zones,
};
use tokio::time::{Instant, timeout};

use super::Slot;

/// See [`with_late_canary`].
const CANARY_LATE: Duration = Duration::from_secs(5);

/// Runs a call on the release that serves the object. If the release or its settings are replaced,
/// and the call does not end within the drain time, the call is cancelled and repeated on the
/// release that serves the object at that time.
macro_rules! on {
    ($slot:ident, $interface:ident, $uid:expr, |$provider:ident, $call:ident| $called:expr) => {
        loop {
            let release = $slot.hold(Interface::$interface, $uid)?;
            let ($provider, $call) = (&release.provider, &$call.attempt());
            match release.until_over($call, $called).await {
                Some(answer) => break answer,
                None => $slot.repeats(&release),
            }
        }
    };
}

/// As [`on`], for calls that change load balancers: each waits for its turn.
macro_rules! in_turn {
    ($slot:ident, $interface:ident, $uid:expr, |$provider:ident, $call:ident| $called:expr) => {
        loop {
            let (_turn, release) = $slot.turn(Interface::$interface, $uid).await?;
            let ($provider, $call) = (&release.provider, &$call.attempt());
            match release.until_over($call, $called).await {
                Some(answer) => break answer,
                None => $slot.repeats(&release),
            }
        }
    };
}

/// The answers of a canary and of the release beside it. A canary that is later than the other
/// release by [`CANARY_LATE`], and by more time than that release took, is cancelled: the nodes of
/// the other release do not wait for it.
async fn with_late_canary<T>(
    canary: impl Future<Output = Result<T>>,
    other: impl Future<Output = Result<T>>,
) -> (Result<T>, Result<T>) {
    let (began, mut canary, mut other) = (Instant::now(), pin!(canary), pin!(other));
    tokio::select! {
        biased;
        of_canary = &mut canary => (of_canary, other.await),
        of_other = &mut other => {
            let took = began.elapsed();
            let in_time = timeout(took.max(CANARY_LATE), canary).await;
            let late = || {
                let text = format!("the canary did not answer within {} s; the release beside it answered after {} s", began.elapsed().as_secs(), took.as_secs());
                Err(Error::new(Code::DeadlineExceeded, text))
            };
            (in_time.unwrap_or_else(|_elapsed| late()), of_other)
        }
    }
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
        on!(self, LoadBalancers, Some(&service.uid), |provider, call| LoadBalancers::name(
            provider, call, cluster, service
        ))
    }

    async fn get(&self, call: &Call, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        self.memory.service(call, cluster, service);
        on!(self, LoadBalancers, Some(&service.uid), |provider, call| provider.get(call, cluster, service))
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
        in_turn!(self, LoadBalancers, Some(&service.uid), |provider, call| provider
            .ensure(call, cluster, service, nodes))
    }

    async fn update(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
        self.memory.service(call, cluster, service);
        self.memory.backends(call, cluster, service, nodes);
        in_turn!(self, LoadBalancers, Some(&service.uid), |provider, call| provider
            .update(call, cluster, service, nodes))
    }

    async fn ensure_deleted(&self, call: &Call, cluster: &str, service: &Service) -> Result<()> {
        self.memory.forget(&service.uid);
        in_turn!(self, LoadBalancers, Some(&service.uid), |provider, call| provider
            .ensure_deleted(call, cluster, service))
    }
}

#[async_trait]
impl LoadBalancerInventory for Slot {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        self.memory.inventory(call, cluster);
        on!(self, LoadBalancerInventory, uid(call), |provider, call| LoadBalancerInventory::list(
            provider, call, cluster
        ))
    }

    async fn delete(&self, call: &Call, cluster: &str, share: &OwnedLoadBalancer) -> Result<()> {
        in_turn!(self, LoadBalancerInventory, uid(call), |provider, call| LoadBalancerInventory::delete(
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
                return on!(self, Instances, None, |provider, call| provider.describe(call, nodes, detail));
            };
            let (tried, call) = (&canary.release, &call.attempt());
            let active = if rest.is_empty() { Arc::clone(tried) } else { self.hold(Interface::Instances, None)? };
            let of_share = tried.provider.describe(call, &share, detail);
            let answers = async {
                if rest.is_empty() {
                    return (of_share.await, Ok(Vec::new()));
                }
                with_late_canary(of_share, active.provider.describe(call, &rest, detail)).await
            };
            let both = active.until_over(call, answers);
            match tried.until_over(call, both).await.flatten() {
                Some((share, rest)) => return canary.join(nodes, share, rest),
                None => self.repeats(tried),
            }
        }
    }
}

#[async_trait]
impl Routes for Slot {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<Route>> {
        self.memory.routes(call, cluster);
        on!(self, Routes, uid(call), |provider, call| Routes::list(provider, call, cluster))
    }

    async fn create(&self, call: &Call, cluster: &str, routes: &[NewRoute]) -> Result<Vec<Result<()>>> {
        on!(self, Routes, uid(call), |provider, call| provider.create(call, cluster, routes))
    }

    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
        on!(self, Routes, uid(call), |provider, call| Routes::delete(provider, call, cluster, routes))
    }
}

#[async_trait]
impl Zones for Slot {
    async fn current(&self, call: &Call) -> Result<Zone> {
        on!(self, Zones, uid(call), |provider, call| provider.current(call))
    }

    async fn by_provider_id(&self, call: &Call, provider_id: &str) -> Result<Zone> {
        on!(self, Zones, uid(call), |provider, call| provider.by_provider_id(call, provider_id))
    }

    async fn by_node_name(&self, call: &Call, node: &str) -> Result<Zone> {
        on!(self, Zones, uid(call), |provider, call| provider.by_node_name(call, node))
    }
}

#[async_trait]
impl Clusters for Slot {
    async fn list(&self, call: &Call) -> Result<Vec<String>> {
        on!(self, Clusters, uid(call), |provider, call| Clusters::list(provider, call))
    }

    async fn master(&self, call: &Call, cluster: &str) -> Result<String> {
        on!(self, Clusters, uid(call), |provider, call| provider.master(call, cluster))
    }
}

#[async_trait]
impl NodeLegacy for Slot {
    async fn add_ssh_key_to_all_instances(&self, call: &Call, user: &str, key: &[u8]) -> Result<()> {
        on!(self, NodeLegacy, uid(call), |provider, call| provider.add_ssh_key_to_all_instances(call, user, key))
    }

    async fn current_node_name(&self, call: &Call, hostname: &str) -> Result<String> {
        on!(self, NodeLegacy, uid(call), |provider, call| provider.current_node_name(call, hostname))
    }

    async fn scrub_dns(
        &self,
        call: &Call,
        nameservers: &[String],
        searches: &[String],
    ) -> Result<(Vec<String>, Vec<String>)> {
        on!(self, NodeLegacy, uid(call), |provider, call| provider.scrub_dns(call, nameservers, searches))
    }
}

#[async_trait]
impl PersistentVolumeLabels for Slot {
    async fn labels(&self, call: &Call, cluster: &str, volume: &PersistentVolume) -> Result<BTreeMap<String, String>> {
        on!(self, PersistentVolumeLabels, uid(call), |provider, call| provider.labels(call, cluster, volume))
    }
}

fn uid(call: &Call) -> Option<&str> {
    call.object.as_ref().map(|object| object.uid.as_str())
}

#[cfg(test)]
mod tests {
    use std::{future, time::Duration};

    use skysail_provider::{Code, Error, Result};
    use tokio::time::{Instant, sleep};

    use super::{CANARY_LATE, with_late_canary};

    async fn after(seconds: u64) -> Result<u64> {
        sleep(Duration::from_secs(seconds)).await;
        Ok(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn the_nodes_of_the_other_release_do_not_wait_for_a_canary_that_hangs() {
        for (other, waits) in [(1, CANARY_LATE.as_secs()), (20, 20)] {
            let began = Instant::now();
            let (canary, answer) = with_late_canary(future::pending(), after(other)).await;
            assert_eq!((canary.map_err(|error: Error| error.code), answer), (Err(Code::DeadlineExceeded), Ok(other)));
            assert_eq!(began.elapsed().as_secs(), other + waits);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_canary_that_is_a_little_late_answers() {
        assert_eq!(with_late_canary(after(5), after(1)).await, (Ok(5), Ok(1)));
        assert_eq!(with_late_canary(after(1), after(30)).await, (Ok(1), Ok(30)));
    }
}
