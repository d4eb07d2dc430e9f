//! The provider of a simulated cloud in one process, as a careful vendor would write it; some
//! releases of it trap.

use std::{collections::BTreeSet, fmt::Display, sync::Arc};

use async_trait::async_trait;
use skysail_provider::{
    Call, Code, Detail, Error, Info, Ingress, Instance, Instances, Interface, LoadBalancerInventory,
    LoadBalancerStatus, LoadBalancers, NODES_PER_PAGE, NewRoute, NodeSet, OwnedLoadBalancer, Result, Route, Routes,
    Service, Target,
};

use crate::{
    cloud::{Balancer, Cloud, CloudState, Lie, Sender, ports_of, seen},
    deletions::Deletions,
    link::Link,
    plan::CloudWeather,
    referee::{OngoingCall, Referee},
    release::Nature,
};

/// The invalid address that a faulty provider returns.
pub(crate) const JUNK: &str = "no-address";

/// One release of the provider of one cloud in one process.
pub(crate) struct CloudProvider {
    cloud: Arc<Cloud>,
    process: String,
    link: Arc<Link>,
    referee: Arc<Referee>,
    /// Those of the process, which outlive each release.
    deletions: Arc<Deletions>,
    pub(crate) info: Info,
    /// The digest of the release.
    digest: Arc<str>,
    nature: Nature,
}

/// One call in progress.
struct Entered<'a> {
    sender: Sender<'a>,
    cloud: &'a Arc<Cloud>,
    nature: Nature,
    referee: &'a Referee,
    deletions: &'a Deletions,
    call: &'a Call,
    _ongoing: Option<OngoingCall>,
}

impl Entered<'_> {
    async fn read<T>(&self, what: String, look: impl FnOnce(&CloudState) -> T) -> Result<T> {
        self.cloud.guest_fails().map_or(Ok(()), Err)?;
        self.cloud.read(&self.sender, what, look).await.map_err(|error| self.passed_on(error))
    }

    async fn write<T: Send + 'static>(
        &self,
        what: String,
        effect: impl FnOnce(&mut CloudState) -> T + Send + 'static,
    ) -> Result<T> {
        self.cloud.guest_fails().map_or(Ok(()), Err)?;
        self.cloud.write(&self.sender, what, effect).await.map_err(|error| self.passed_on(error))
    }

    /// A request that deletes something: only these count in the budget of deletions. As in the
    /// host, whose error about a deletion that is held back is the result of the call.
    async fn delete<T: Send + 'static>(
        &self,
        what: String,
        effect: impl FnOnce(&mut CloudState) -> T + Send + 'static,
    ) -> Result<T> {
        let Sender { process, link, fence } = &self.sender;
        link.run(std::future::ready(())).await;
        fence.check()?;
        if let Err(held) = self.deletions.take(self.call.lets_deletions_through) {
            self.cloud.tell(format_args!("{what} (for {process}) is held back: {held}"));
            return Err(held);
        }
        self.referee.deletion_leaves((process, &self.cloud.provider), self.call.object.as_ref());
        self.write(what, effect).await
    }

    /// What the guest makes of a request that failed.
    fn passed_on(&self, error: Error) -> Error {
        let seen = seen(&error);
        match self.nature {
            Nature::Careless if seen.cloud_failed || seen.denied => {
                Error::new(Code::Trapped, format!("the guest trapped: {}", error.message))
            }
            _ => error,
        }
    }
}

fn name_of(service: &Service) -> String {
    format!("lb-{}", service.uid)
}

fn status_of(address: String) -> LoadBalancerStatus {
    LoadBalancerStatus { ingress: vec![Ingress { ip: Some(address), ..Ingress::default() }] }
}

fn backends_of(nodes: &NodeSet) -> BTreeSet<String> {
    nodes.as_slice().iter().map(|node| node.name.clone()).collect()
}

impl CloudProvider {
    pub(crate) fn new(
        cloud: Arc<Cloud>,
        (process, link): (&str, Arc<Link>),
        (referee, deletions): (Arc<Referee>, Arc<Deletions>),
        (digest, nature): (Arc<str>, Nature),
    ) -> Self {
        let info = Info {
            name: cloud.name.to_owned(),
            version: "1.0.0".to_owned(),
            description: "simulated".to_owned(),
            provider_id_schemes: vec![cloud.scheme.to_owned()],
            has_cluster_id: true,
            serial_load_balancers: false,
            page_nodes: NODES_PER_PAGE,
        };
        Self { cloud, process: process.to_owned(), link, referee, deletions, info, digest, nature }
    }

    /// Only the first cloud has routes.
    pub(crate) fn interfaces(&self) -> &'static [Interface] {
        const ALL: &[Interface] =
            &[Interface::LoadBalancers, Interface::LoadBalancerInventory, Interface::Instances, Interface::Routes];
        const NO_ROUTES: &[Interface] =
            &[Interface::LoadBalancers, Interface::LoadBalancerInventory, Interface::Instances];
        if self.cloud.has_routes { ALL } else { NO_ROUTES }
    }

    /// Checks in the order of the host: the fence, then the guest.
    async fn enter<'a>(&'a self, call: &'a Call, function: &str, service: Option<&Service>) -> Result<Entered<'a>> {
        self.link.run(std::future::ready(())).await;
        call.fence.check()?;
        let provider = &*self.cloud.provider;
        let about = service.zip(call.object.as_ref());
        if let Some(about) = about {
            self.referee.changes_for((&self.process, provider), function, about);
        }
        let process = (&*self.process, provider, &self.link);
        let ongoing = about.map(|about| self.referee.call_begins(process, function, about));
        if ["create-routes", "delete-routes", "delete"].contains(&function) {
            self.referee.changes(&self.process, self.cloud.name, function);
        }
        if service.is_none() {
            self.referee.spends(format!("calls of {function} of {}", self.cloud.name));
        }
        if self.nature == Nature::Traps {
            return Err(Error::new(Code::Trapped, "the guest trapped: unreachable"));
        }
        let sender = Sender { process: &self.process, link: &self.link, fence: &call.fence };
        let (referee, deletions) = (&*self.referee, &*self.deletions);
        Ok(Entered { sender, cloud: &self.cloud, nature: self.nature, referee, deletions, call, _ongoing: ongoing })
    }
}

#[async_trait]
impl LoadBalancers for CloudProvider {
    async fn name(&self, call: &Call, _cluster: &str, service: &Service) -> Result<String> {
        let _entered = self.enter(call, &format!("name for {}", service.name), None).await?;
        Ok(name_of(service))
    }

    async fn get(&self, call: &Call, _cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        let entered = self.enter(call, "get", Some(service)).await?;
        let name = name_of(service);
        let look = |state: &CloudState| {
            state.balancers.contains_key(&name).then(|| state.addresses.get(&name).cloned()).flatten()
        };
        let address = entered.read(format!("get {name}"), look).await?;
        let is_denied = self.lies(format_args!("{name} does not exist"), |weather| weather.lies_absent);
        let address = address.filter(|_| !is_denied);
        self.referee.got(&self.cloud.provider, &service.uid, address.is_none());
        Ok(address.map(status_of))
    }

    async fn ensure(
        &self,
        call: &Call,
        _cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus> {
        let entered = self.enter(call, "ensure", Some(service)).await?;
        let (name, uid) = (name_of(service), service.uid.clone());
        let object_uid = call.object.as_ref().map_or_else(|| uid.clone(), |object| object.uid.clone());
        let referee = Arc::clone(&self.referee);
        let key = name.clone();
        let take = move |state: &mut CloudState| {
            referee.made_for(&uid, &object_uid);
            state.take_address(&key)
        };
        let address = entered.write(format!("take address {name}"), take).await?;
        let balancer =
            Balancer { service: service.uid.clone(), ports: ports_of(service), backends: backends_of(nodes) };
        let (what, request) = (name.clone(), format!("put {name} {:?} -> {:?}", balancer.ports, balancer.backends));
        let referee = Arc::clone(&self.referee);
        let put = move |state: &mut CloudState| {
            state.without_pool.remove(&name);
            if let Some(before) = state.balancers.get(&name) {
                referee.backends_change(&name, &before.backends, &balancer.backends);
            }
            state.balancers.insert(name, balancer);
        };
        entered.write(request, put).await?;
        self.referee.ensured((&self.cloud.provider, &service.uid), &self.digest);
        if self.lies(format_args!("the status of {what} is no status"), |weather| weather.lies_status) {
            return Ok(self.no_status(service));
        }
        Ok(status_of(address))
    }

    async fn update(&self, call: &Call, _cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()> {
        let entered = self.enter(call, "update", Some(service)).await?;
        let (name, backends) = (name_of(service), backends_of(nodes));
        if self.lies(format_args!("{name} does not exist"), |weather| weather.lies_absent) {
            return Err(absent());
        }
        let (what, referee) = (format!("set backends {name} {backends:?}"), Arc::clone(&self.referee));
        let put = move |state: &mut CloudState| match state.balancers.get_mut(&name) {
            Some(_) if state.without_pool.contains(&name) => {
                Err(Error::new(Code::Internal, "400 the load balancer has no backend pool"))
            }
            Some(balancer) => {
                referee.backends_change(&name, &balancer.backends, &backends);
                balancer.backends = backends;
                Ok(())
            }
            None => Err(absent()),
        };
        entered.write(what, put).await?
    }

    async fn ensure_deleted(&self, call: &Call, _cluster: &str, service: &Service) -> Result<()> {
        let (entered, name) = (self.enter(call, "ensure-deleted", Some(service)).await?, name_of(service));
        if self.lies(format_args!("{name} is deleted"), |weather| weather.lies_deleted) {
            self.referee.left_behind(&service.uid);
            return Ok(());
        }
        entered.delete_balancer(name).await
    }
}

impl Entered<'_> {
    /// Deletes without a read before, because a read may return an old state.
    async fn delete_balancer(&self, name: String) -> Result<()> {
        let key = name.clone();
        self.delete(format!("delete {name}"), move |state| state.balancers.remove(&key)).await?;
        let what = format!("give back address {name}");
        self.delete(what, move |state| state.addresses.remove(&name)).await?;
        Ok(())
    }
}

#[async_trait]
impl LoadBalancerInventory for CloudProvider {
    async fn list(&self, call: &Call, _cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        let entered = self.enter(call, "list", None).await?;
        let owned = |name: &String| OwnedLoadBalancer { name: name.clone(), service: None };
        // A load balancer that exists only in parts is listed, too.
        let all = |state: &CloudState| {
            let names: BTreeSet<&String> = state.balancers.keys().chain(state.addresses.keys()).collect();
            names.into_iter().map(owned).collect()
        };
        let mut listed: Vec<_> = entered.read("list load balancers".to_owned(), all).await?;
        self.omit_one_of(&mut listed);
        Ok(listed)
    }

    async fn delete(&self, call: &Call, _cluster: &str, share: &OwnedLoadBalancer) -> Result<()> {
        let entered = self.enter(call, "delete", None).await?;
        self.referee.deletes_orphan((&self.process, &self.cloud.provider), &share.name);
        entered.delete_balancer(share.name.clone()).await
    }
}

#[async_trait]
impl Instances for CloudProvider {
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        let entered = self.enter(call, "describe", None).await?;
        let one = |state: &CloudState, node: &skysail_provider::Node| {
            let id = state.behind(node.provider_id.as_deref().unwrap_or_default(), &node.name);
            id.and_then(|id| state.instance(id)).ok_or_else(missing)
        };
        let look = |state: &CloudState| nodes.as_slice().iter().map(|node| one(state, node)).collect();
        let mut answers = entered.read(format!("list machines for {} nodes", nodes.len()), look).await?;
        let lie = self.cloud.lie();
        if let Some(lie) = lie {
            self.lie(lie, &mut answers);
        }
        if answers.len() == nodes.len() {
            for (node, answer) in nodes.as_slice().iter().zip(&answers) {
                let is_missing = answer.as_ref().is_err_and(|error| error.code == Code::NotFound);
                let asked = (self.process.as_str(), node.uid.as_str());
                self.referee.answered(asked, is_missing, (lie, detail == Detail::State));
            }
        }
        Ok(answers)
    }
}

fn absent() -> Error {
    Error::new(Code::NotFound, "404 no such load balancer")
}

fn missing() -> Error {
    Error::new(Code::NotFound, "404 no such machine")
}

impl CloudProvider {
    /// Whether the provider lies now: what it says, and at which share.
    fn lies(&self, what: impl Display, share: impl FnOnce(&CloudWeather) -> f64) -> bool {
        let lies = self.cloud.lies(share);
        if lies {
            self.cloud.tell(format_args!("lies to {}: {what}", self.process));
        }
        lies
    }

    fn omit_one_of<T>(&self, listed: &mut Vec<T>) {
        if !listed.is_empty() && self.lies("an entry does not exist", |weather| weather.lies_unlisted) {
            listed.remove(self.cloud.below(listed.len()));
        }
    }

    /// A status that must not reach this Service.
    fn no_status(&self, service: &Service) -> LoadBalancerStatus {
        let ip = |ip: &str| Ingress { ip: Some(ip.to_owned()), ..Ingress::default() };
        let hostname = |name: &str| Ingress { hostname: Some(name.to_owned()), ..Ingress::default() };
        let ingress = match self.cloud.below(5) {
            0 => vec![ip(JUNK)],
            1 => vec![ip(self.referee.cluster_ip(&service.uid).as_deref().unwrap_or(JUNK))],
            2 => vec![hostname("no host name")],
            3 => vec![Ingress::default()],
            _ => vec![ip("100.127.0.1"); 65],
        };
        LoadBalancerStatus { ingress }
    }

    fn lie(&self, lie: Lie, answers: &mut Vec<Result<Instance>>) {
        self.cloud.tell(format_args!("answers {} with the lie {lie:?}", self.process));
        let count = answers.len().max(1);
        match lie {
            Lie::AllMissing => answers.iter_mut().for_each(|answer| *answer = Err(missing())),
            Lie::OneMissing(number) => {
                if let Some(answer) = answers.get_mut(number % count) {
                    *answer = Err(missing());
                }
            }
            Lie::Junk => {
                for address in answers.iter_mut().flatten().flat_map(|instance| &mut instance.addresses) {
                    JUNK.clone_into(&mut address.address);
                }
            }
            Lie::Swapped => answers.rotate_left(1 % count),
            Lie::Short => drop(answers.pop()),
        }
    }
}

#[async_trait]
impl Routes for CloudProvider {
    async fn list(&self, call: &Call, _cluster: &str) -> Result<Vec<Route>> {
        let entered = self.enter(call, "list-routes", None).await?;
        let look = |state: &CloudState| {
            let route = |(cidr, target): (&String, &String)| Route {
                name: target.clone(),
                target: state.machines.get(target).map_or(Target::None, |machine| Target::Node(machine.name.clone())),
                destination_cidr: cidr.clone(),
                blackhole: !state.machines.contains_key(target),
                ..Route::default()
            };
            state.routes.iter().map(route).collect()
        };
        let mut listed: Vec<_> = entered.read("list routes".to_owned(), look).await?;
        self.omit_one_of(&mut listed);
        Ok(listed)
    }

    async fn create(&self, call: &Call, _cluster: &str, routes: &[NewRoute]) -> Result<Vec<Result<()>>> {
        let entered = self.enter(call, "create-routes", None).await?;
        let mut results = Vec::new();
        for route in routes {
            let (cidr, node) = (route.destination_cidr.clone(), route.node.clone());
            let what = format!("create route {cidr} -> {node}");
            let make = move |state: &mut CloudState| {
                let target = state.machine_named(&node).cloned();
                let target = target.ok_or_else(|| Error::new(Code::NotFound, "404 no such machine"))?;
                if state.routes.get(&cidr).is_some_and(|present| *present != target) {
                    return Err(Error::new(Code::Unavailable, "409 the destination has another route"));
                }
                state.routes.insert(cidr, target);
                Ok(())
            };
            results.push(entered.write(what, make).await.and_then(|made| made));
        }
        Ok(results)
    }

    async fn delete(&self, call: &Call, _cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
        let entered = self.enter(call, "delete-routes", None).await?;
        let mut results = Vec::new();
        for route in routes {
            // A route is identified by its target: a new route to another target is kept.
            let (cidr, target) = (route.destination_cidr.clone(), route.name.clone());
            let what = format!("delete route {cidr} -> {target}");
            let delete = move |state: &mut CloudState| {
                if state.routes.get(&cidr) == Some(&target) {
                    state.routes.remove(&cidr);
                }
            };
            match entered.delete(what, delete).await {
                Err(held) if held.holds_deletion => return Err(held),
                result => results.push(result),
            }
        }
        Ok(results)
    }
}
