//! A slot as a provider, as in `skysail-host`: each call goes to the release that serves when it
//! begins, and is repeated where that release is replaced and the call does not end in time.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use skysail_provider::{
    Call, Code, Detail, Error, Info, Instance, Instances, Interface, LoadBalancerInventory, LoadBalancerStatus,
    LoadBalancers, NewRoute, NodeSet, OwnedLoadBalancer, Provider, Result, Route, Routes, Service,
};
use skysail_slot::{Release as _, Share};

use crate::{referee::Referee, release::Release, slot::Slot};

/// The result of one call about several nodes.
type Answers = Result<Vec<Result<Instance>>>;

macro_rules! on {
    ($self:ident, $interface:ident, $uid:expr, |$provider:ident| $call:expr) => {
        loop {
            let release = $self.slot.hold(Interface::$interface, $uid)?;
            let mut under_way = UnderWay::begin(&$self.slot);
            let $provider = &release.provider;
            tokio::select! {
                biased;
                answer = $call => {
                    under_way.ended = true;
                    $self.slot.note(&release, stringify!($interface), &answer);
                    break answer;
                }
                () = release.over() => {
                    under_way.ended = true;
                    $self.repeats(&release);
                }
            }
        }
    };
}

/// A call. Dropped before its end, it was cancelled by its process.
struct UnderWay<'a> {
    slot: &'a Slot,
    ended: bool,
}

impl<'a> UnderWay<'a> {
    fn begin(slot: &'a Slot) -> Self {
        Self { slot, ended: false }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.slot.cancelled();
        }
    }
}

/// See the module.
pub(crate) struct SlotProvider {
    slot: Arc<Slot>,
    has_routes: bool,
    referee: Arc<Referee>,
}

impl SlotProvider {
    pub(crate) const fn new(slot: Arc<Slot>, has_routes: bool, referee: Arc<Referee>) -> Self {
        Self { slot, has_routes, referee }
    }

    /// The answers of one release for a part of the nodes. As in the host, a list of the wrong
    /// length is an error of the whole call.
    async fn described(&self, release: &Release, call: &Call, nodes: &NodeSet, detail: Detail) -> Answers {
        let answer = release.provider.describe(call, nodes, detail).await;
        let answer = answer.and_then(|answers| match answers.len() == nodes.len() {
            true => Ok(answers),
            false => Err(Error::new(Code::Internal, "an answer is missing")),
        });
        self.slot.note(release, "Instances", &answer);
        answer
    }

    /// The answers of both releases. Invariant: the failure of one costs the nodes of the other no
    /// answer.
    fn joined(&self, canary: &Share<Release>, nodes: &NodeSet, share: Answers, rest: Answers) -> Answers {
        let own = |answers: &Answers| answers.iter().flatten().filter(|answer| answer.is_ok()).count();
        let found = own(&share) + own(&rest);
        let joined = canary.join(nodes, share, rest);
        if own(&joined) < found {
            self.slot.story.violate(format_args!("{}: of {found} answers {} are left", self.slot.name, own(&joined)));
        }
        joined
    }

    fn repeats(&self, release: &Release) {
        self.slot.story.tell(&self.slot.name, format_args!("cancels a call of {release} and repeats it"));
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
        let answer = on!(self, LoadBalancers, Some(&service.uid), |provider| provider.get(call, cluster, service));
        if answer.is_err() {
            self.referee.may_delete_again(&service.uid);
        }
        answer
    }

    async fn ensure(
        &self,
        call: &Call,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus> {
        self.referee.may_delete_again(&service.uid);
        on!(self, LoadBalancers, Some(&service.uid), |provider| provider.ensure(call, cluster, service, nodes))
    }

    async fn update(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
        on!(self, LoadBalancers, Some(&service.uid), |provider| provider.update(call, cluster, service, nodes))
    }

    async fn ensure_deleted(&self, call: &Call, cluster: &str, service: &Service) -> Result<()> {
        let slot = (&*self.slot.name, self.slot.status().borrow().generation);
        let about = (service, uid(call).unwrap_or_default());
        self.referee.deletion_begins(slot, about);
        let answer =
            on!(self, LoadBalancers, Some(&service.uid), |provider| provider.ensure_deleted(call, cluster, service));
        match answer {
            Ok(()) => self.referee.deletion_succeeds(slot, about),
            Err(_) => self.referee.may_delete_again(&service.uid),
        }
        answer
    }
}

#[async_trait]
impl LoadBalancerInventory for SlotProvider {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        on!(self, LoadBalancerInventory, uid(call), |provider| LoadBalancerInventory::list(provider, call, cluster))
    }

    async fn delete(&self, call: &Call, cluster: &str, share: &OwnedLoadBalancer) -> Result<()> {
        on!(self, LoadBalancerInventory, uid(call), |provider| LoadBalancerInventory::delete(
            provider, call, cluster, share
        ))
    }
}

#[async_trait]
impl Instances for SlotProvider {
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Answers {
        loop {
            let routing = self.slot.routing();
            let canary = routing.canary_with(Interface::Instances);
            let parts = canary.map(|canary| (canary, canary.split(nodes)));
            let Some((canary, (share, rest))) = parts.filter(|(_, (share, _))| !share.is_empty()) else {
                drop(routing);
                return on!(self, Instances, None, |provider| provider.describe(call, nodes, detail));
            };
            let tried = &canary.release;
            self.slot.begins(&routing, tried)?;
            let active =
                if rest.is_empty() { Arc::clone(tried) } else { self.slot.hold(Interface::Instances, None)? };
            let of_rest = async {
                if rest.is_empty() { Ok(Vec::new()) } else { self.described(&active, call, &rest, detail).await }
            };
            let answers = async { tokio::join!(self.described(tried, call, &share, detail), of_rest) };
            tokio::select! {
                biased;
                (share, rest) = answers => return self.joined(canary, nodes, share, rest),
                () = tried.over() => self.repeats(tried),
                () = active.over() => self.repeats(&active),
            }
        }
    }
}

#[async_trait]
impl Routes for SlotProvider {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<Route>> {
        on!(self, Routes, uid(call), |provider| Routes::list(provider, call, cluster))
    }

    async fn create(&self, call: &Call, cluster: &str, routes: &[NewRoute]) -> Result<Vec<Result<()>>> {
        on!(self, Routes, uid(call), |provider| provider.create(call, cluster, routes))
    }

    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
        on!(self, Routes, uid(call), |provider| Routes::delete(provider, call, cluster, routes))
    }
}
