//! A slot as a provider, as in `skysail-host`: each call goes to the release that serves when it
//! begins, and is repeated where that release is replaced and the call does not end in time.

use std::{fmt, iter::repeat_n, sync::Arc};

use async_trait::async_trait;
use skysail_provider::{
    Call, Code, Detail, Error, Info, Instance, Instances, Interface, LoadBalancerInventory, LoadBalancerStatus,
    LoadBalancers, Node, NodeSet, OwnedLoadBalancer, Provider, Result, Route, Routes, Service,
};
use skysail_slot::Release as _;

use crate::{release::Release, slot::Slot};

macro_rules! on {
    ($self:ident, $interface:ident, $uid:expr, |$provider:ident| $call:expr) => {
        loop {
            let release = $self.slot.hold(Interface::$interface, $uid)?;
            let $provider = &release.provider;
            tokio::select! {
                biased;
                answer = $call => {
                    release.note(stringify!($interface), &answer);
                    break answer;
                }
                () = release.over() => $self.repeats(&release),
            }
        }
    };
}

/// See the module.
pub(crate) struct SlotProvider {
    slot: Arc<Slot>,
    has_routes: bool,
}

impl SlotProvider {
    pub(crate) const fn new(slot: Arc<Slot>, has_routes: bool) -> Self {
        Self { slot, has_routes }
    }

    fn repeats(&self, release: &Release) {
        self.slot.story.tell(&self.slot.name, format_args!("cancels a call of {release} and repeats it"));
    }

    /// The answers of one release for its nodes.
    async fn described(
        &self,
        release: &Release,
        call: &Call,
        nodes: &NodeSet,
        detail: Detail,
    ) -> Vec<Result<Instance>> {
        let answer = release.provider.describe(call, nodes, detail).await;
        release.note("Instances", &answer);
        match answer {
            Ok(answers) if answers.len() == nodes.len() => answers,
            Ok(_) => repeat_n(Err(Error::new(Code::Internal, "an answer is missing")), nodes.len()).collect(),
            Err(error) => repeat_n(Err(error), nodes.len()).collect(),
        }
    }
}

impl fmt::Debug for SlotProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotProvider").field("slot", &self.slot.name).finish_non_exhaustive()
    }
}

fn uid(call: &Call) -> Option<&str> {
    call.object.as_ref().map(|object| object.uid.as_str())
}

impl Provider for SlotProvider {
    fn info(&self) -> Option<Arc<Info>> {
        self.slot.routing().active.map(|active| Arc::new(active.info().clone()))
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    fn load_balancer_inventory(&self) -> Option<&dyn LoadBalancerInventory> {
        Some(self)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.has_routes.then_some(self as &dyn Routes)
    }
}

#[async_trait]
impl LoadBalancers for SlotProvider {
    async fn name(&self, call: &Call, cluster: &str, service: &Service) -> Result<String> {
        on!(self, LoadBalancers, Some(&service.uid), |provider| LoadBalancers::name(provider, call, cluster, service))
    }

    async fn get(&self, call: &Call, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        on!(self, LoadBalancers, Some(&service.uid), |provider| provider.get(call, cluster, service))
    }

    async fn ensure(
        &self,
        call: &Call,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus> {
        on!(self, LoadBalancers, Some(&service.uid), |provider| provider.ensure(call, cluster, service, nodes))
    }

    async fn update(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
        on!(self, LoadBalancers, Some(&service.uid), |provider| provider.update(call, cluster, service, nodes))
    }

    async fn ensure_deleted(&self, call: &Call, cluster: &str, service: &Service) -> Result<()> {
        on!(self, LoadBalancers, Some(&service.uid), |provider| provider.ensure_deleted(call, cluster, service))
    }
}

#[async_trait]
impl LoadBalancerInventory for SlotProvider {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        on!(self, LoadBalancerInventory, uid(call), |provider| LoadBalancerInventory::list(provider, call, cluster))
    }

    async fn delete(&self, call: &Call, cluster: &str, name: &str) -> Result<()> {
        on!(self, LoadBalancerInventory, uid(call), |provider| LoadBalancerInventory::delete(
            provider, call, cluster, name
        ))
    }
}

#[async_trait]
impl Instances for SlotProvider {
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        loop {
            let canary = self.slot.routing().canary_with(Interface::Instances).cloned();
            let is_its = |node: &Node| canary.as_ref().is_some_and(|canary| canary.serves(&node.uid));
            let (share, rest): (Vec<_>, Vec<_>) = nodes.as_slice().iter().cloned().partition(|node| is_its(node));
            let Some(canary) = canary.as_ref().filter(|_| !share.is_empty()) else {
                return on!(self, Instances, None, |provider| provider.describe(call, nodes, detail));
            };
            let active = self.slot.hold(Interface::Instances, None)?;
            let (share, rest) = (NodeSet::new(share), NodeSet::new(rest));
            let answers = async {
                let share = self.described(&canary.release, call, &share, detail).await;
                if rest.is_empty() {
                    (share, Vec::new())
                } else {
                    (share, self.described(&active, call, &rest, detail).await)
                }
            };
            let (share, rest) = tokio::select! {
                biased;
                answers = answers => answers,
                () = canary.release.over() => {
                    self.repeats(&canary.release);
                    continue;
                }
                () = active.over() => {
                    self.repeats(&active);
                    continue;
                }
            };
            let (mut share, mut rest) = (share.into_iter(), rest.into_iter());
            let each = nodes.as_slice().iter();
            return Ok(each.filter_map(|node| if is_its(node) { share.next() } else { rest.next() }).collect());
        }
    }
}

#[async_trait]
impl Routes for SlotProvider {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<Route>> {
        on!(self, Routes, uid(call), |provider| Routes::list(provider, call, cluster))
    }

    async fn create(&self, call: &Call, cluster: &str, routes: &[(String, Route)]) -> Result<Vec<Result<()>>> {
        on!(self, Routes, uid(call), |provider| provider.create(call, cluster, routes))
    }

    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
        on!(self, Routes, uid(call), |provider| Routes::delete(provider, call, cluster, routes))
    }
}
