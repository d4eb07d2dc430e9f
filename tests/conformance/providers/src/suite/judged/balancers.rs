//! What the component leaves in the cloud, compared with what the vendor's Go provider leaves.

use std::{fmt::Write as _, sync::Arc};

use anyhow::{Context as _, Error, Result, bail, ensure};
use skysail_provider::{NodeSet, Service};

use super::{differences, without};
use crate::{
    cloud::{COMPARED_NODES, Change, Cloud, Difference, JudgedBalancers, Shared},
    proxy::{Proxy, Request},
    suite::{
        accounts::{Cases, in_accounts},
        balancers::{sharing, web},
        same,
    },
    vendor::Vendor,
    world::{World, line, one_less, set},
};

/// The component and the vendor's provider before one cloud.
struct Both<C> {
    world: World<C>,
    vendor: Vendor,
    /// Between the vendor's provider and the cloud.
    proxy: Proxy,
    nodes: NodeSet,
    empty: Vec<String>,
}

/// Requests of each call, a line each ([`distinct`]).
struct Requests {
    new: Vec<String>,
    unchanged: Vec<String>,
    one_node_less: Vec<String>,
}

impl Requests {
    /// The calls that need more requests than the other's, with the requests of both.
    fn beyond<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = String> + use<'a> {
        let calls = [
            ("new", &self.new, &other.new),
            ("unchanged", &self.unchanged, &other.unchanged),
            ("one node less", &self.one_node_less, &other.one_node_less),
        ];
        calls.into_iter().filter(|(_, ours, theirs)| ours.len() > theirs.len()).map(|(call, ours, theirs)| {
            format!("{call}: the component needs the requests {ours:#?}, the vendor's provider {theirs:#?}")
        })
    }

    fn counts(&self) -> [usize; 3] {
        [&self.new, &self.unchanged, &self.one_node_less].map(Vec::len)
    }
}

/// What one of both makes of a Service.
struct Made {
    requests: Requests,
    /// In the cloud after `ensure`.
    ensured: Vec<String>,
    /// In the cloud after `update` to one node less.
    updated: Vec<String>,
    /// In the cloud after `update` to all nodes.
    whole: Vec<String>,
}

/// For each Service the component and the vendor's provider leave the same in the cloud; each finds
/// nothing to write where it takes over from the other; the component needs no more requests.
///
/// # Errors
/// All differences without a reason, a line each.
pub async fn the_component_does_what_the_vendors_provider_does<C: JudgedBalancers + 'static>() -> Result<()> {
    in_accounts(C::compared().into_iter().enumerate().collect(), compare_each::<C>).await
}

/// Compares the Services that are left, until none is; the value has the differences.
async fn compare_each<C: JudgedBalancers>(cases: Arc<Cases<(usize, Change)>>) -> Result<String> {
    let (mut found, mut clean) = (String::new(), None);
    while let Some((number, (name, change))) = cases.take() {
        // What one leaves is nothing to the next: another account if it leaves anything.
        let both = match clean.take() {
            Some(both) => both,
            None => Both::<C>::start().await?,
        };
        let mut service = web(&both.world.cloud, "web");
        // No two Services of a cluster ever have the same UID.
        service.uid = format!("{number:08}-0000-4000-8000-000000000000");
        change(&mut service);
        both.world.cloud.require(&mut service);
        match both.compare(name, &service).await {
            Ok(()) if both.world.cloud.balancers().await? == both.empty => clean = Some(both),
            Ok(()) => {}
            Err(error) => write!(found, "\n{name}: {error:#}")?,
        }
    }
    Ok(found)
}

/// A Service that changes ends alike, whichever of both carries out the change.
///
/// # Errors
/// All differences without a reason, a line each.
pub async fn the_component_changes_what_the_vendors_provider_changes<C: JudgedBalancers>() -> Result<()> {
    let (mut found, both) = (String::new(), Both::<C>::start().await?);
    for (name, change) in both.world.cloud.changes() {
        let before = web(&both.world.cloud, "web");
        let mut after = before.clone();
        change(&mut after);
        both.world.cloud.require(&mut after);
        if let Err(error) = both.compare_change(name, &before, &after).await {
            write!(found, "\n{name}: {error:#}")?;
        }
        same("what the former change leaves", &both.world.cloud.balancers().await?, &both.empty)?;
    }
    ensure!(found.is_empty(), "{found}");
    Ok(())
}

/// Two Services share a load balancer: whichever of both serves them, each step ends alike.
///
/// # Errors
/// The component does otherwise.
pub async fn the_component_shares_as_the_vendors_provider_does<C: JudgedBalancers + Shared>() -> Result<()> {
    let both = Both::<C>::start().await?;
    let Both { world, vendor, nodes, empty, .. } = &both;
    let one = web(&world.cloud, "web");
    let mut theirs = Vec::new();
    let served = vendor.ensure(&one, nodes)?.map_err(Error::msg)?;
    let other = sharing(&world.cloud).await?;
    let served_other = vendor.ensure(&other, nodes)?.map_err(Error::msg)?;
    theirs.push(world.cloud.balancers().await?);
    vendor.ensure_deleted(&served_other)?.map_err(Error::msg)?;
    theirs.push(world.cloud.balancers().await?);
    let served_other = vendor.ensure(&other, nodes)?.map_err(Error::msg)?;
    vendor.ensure_deleted(&served)?.map_err(Error::msg)?;
    theirs.push(world.cloud.balancers().await?);
    vendor.ensure_deleted(&served_other)?.map_err(Error::msg)?;
    theirs.push(world.cloud.balancers().await?);

    let mut ours = Vec::new();
    world.ensure(&one, nodes).await?;
    let other = sharing(&world.cloud).await?;
    world.ensure(&other, nodes).await?;
    ours.push(world.cloud.balancers().await?);
    world.ensure_deleted(&other).await?;
    ours.push(world.cloud.balancers().await?);
    world.ensure(&other, nodes).await?;
    world.ensure_deleted(&one).await?;
    ours.push(world.cloud.balancers().await?);
    world.ensure_deleted(&other).await?;
    ours.push(world.cloud.balancers().await?);

    let steps = ["a second Service", "the second one deleted", "the first one deleted", "both deleted"];
    for ((step, ours), theirs) in steps.into_iter().zip(&ours).zip(&theirs) {
        same(step, &without::<C>(step, ours), &without::<C>(step, theirs))?;
    }
    same("the cloud at the end", &world.cloud.balancers().await?, empty)
}

/// What the deletion of a changed Service leaves in the cloud on purpose is the same, whichever of
/// both has served it.
///
/// # Errors
/// The component does otherwise.
pub async fn a_deletion_leaves_what_the_vendors_provider_leaves<C: JudgedBalancers>(
    change: fn(&mut Service),
) -> Result<()> {
    let both = Both::<C>::start().await?;
    let Both { world, vendor, nodes, empty, .. } = &both;
    ensure!(empty.is_empty(), "the account has something: {empty:?}");
    let mut service = web(&world.cloud, "web");
    change(&mut service);
    let served = vendor.ensure(&service, nodes)?.map_err(Error::msg)?;
    vendor.ensure_deleted(&served)?.map_err(Error::msg)?;
    let theirs = world.cloud.balancers().await?;
    ensure!(!theirs.is_empty(), "the vendor's provider leaves nothing");
    world.ensure(&service, nodes).await?;
    world.ensure_deleted(&service).await?;
    let mut twice = [theirs.as_slice(), &theirs].concat();
    twice.sort();
    same("what both leave", &world.cloud.balancers().await?, &twice)
}

/// The requests. Equal reads one after the other ask whether the cloud has finished, and depend on
/// the time that the cloud takes: they count as one.
fn distinct<C: Cloud>(requests: &[Request]) -> Vec<String> {
    let is_equal = |one: &Request, other: &Request| {
        (&one.method, &one.path, &one.body) == (&other.method, &other.path, &other.body)
    };
    let distinct = requests.chunk_by(|one, other| !C::is_write(one) && is_equal(one, other));
    distinct.filter_map(|equal| equal.first().map(line)).collect()
}

impl<C: JudgedBalancers> Both<C> {
    async fn start() -> Result<Self> {
        let world = World::<C>::start().await?;
        let nodes = set(world.cloud.add_members(COMPARED_NODES).await?);
        let proxy = Proxy::start(&world.cloud.services(), C::HTTPS).await?;
        let vendor = Vendor::open(&world.cloud.vendor(proxy.origins())?, &nodes)?;
        let empty = world.cloud.balancers().await?;
        Ok(Self { world, vendor, proxy, nodes, empty })
    }

    /// What the vendor's provider makes of a Service for which it was called once since the proxy
    /// was cleared, and what a second call writes. All nodes serve at the end.
    async fn vendor_alone(&self, service: &Service) -> Result<(Made, Vec<String>)> {
        let Self { world, vendor, proxy, nodes, .. } = self;
        let new = distinct::<C>(&proxy.take());
        let ensured = world.cloud.balancers().await?;
        vendor.ensure(service, nodes)?.map_err(Error::msg).context("a second call of the vendor's provider")?;
        let again = proxy.take();
        let usual = again.iter().filter(|request| C::is_write(request)).map(line).collect();
        let update = |nodes: &NodeSet| {
            vendor.update(service, nodes)?.map_err(Error::msg).context("the vendor's provider updates")
        };
        update(&one_less(nodes))?;
        let one_node_less = distinct::<C>(&proxy.take());
        let updated = world.cloud.balancers().await?;
        update(nodes)?;
        let whole = world.cloud.balancers().await?;
        let requests = Requests { new, unchanged: distinct::<C>(&again), one_node_less };
        Ok((Made { requests, ensured, updated, whole }, usual))
    }

    /// What the component makes of a new Service. All nodes serve at the end.
    async fn component_alone(&self, service: &Service) -> Result<Made> {
        let Self { world, nodes, .. } = self;
        world.proxy.clear();
        world.ensure(service, nodes).await.context("the component begins")?;
        let new = distinct::<C>(&world.proxy.take());
        let ensured = world.cloud.balancers().await?;
        world.ensure(service, nodes).await.context("a second call of the component")?;
        let unchanged = distinct::<C>(&world.proxy.take());
        world.update(service, &one_less(nodes)).await.context("the component updates")?;
        let one_node_less = distinct::<C>(&world.proxy.take());
        let updated = world.cloud.balancers().await?;
        world.update(service, nodes).await.context("the component updates to all nodes")?;
        let whole = world.cloud.balancers().await?;
        Ok(Made { requests: Requests { new, unchanged, one_node_less }, ensured, updated, whole })
    }

    async fn compare(&self, name: &str, service: &Service) -> Result<()> {
        let Self { world, vendor, nodes, empty, .. } = self;
        for Difference { reason, .. } in differences::<C>(name) {
            tracing::info!(name, reason, "differs on purpose");
        }
        // First the vendor's provider, from which the component takes over.
        self.proxy.clear();
        let served = match vendor.ensure(service, nodes)? {
            Ok(served) => served,
            Err(refused) => return self.compare_refusals(name, service, &refused).await,
        };
        let (theirs, usual) = self.vendor_alone(&served).await?;
        world.proxy.clear();
        if let Err(refused) = world.ensure(&served, nodes).await {
            vendor.ensure_deleted(&served)?.map_err(Error::msg).context("the vendor's provider deletes")?;
            ensure!(
                differences::<C>(name).any(|one| one.lines.is_empty()),
                "the component refuses a Service that the vendor's provider serves: {refused:#}"
            );
            return Ok(());
        }
        let taken_over = world.writes();
        let after = world.cloud.balancers().await?;
        world.ensure_deleted(&served).await.context("the component deletes what the vendor's provider has made")?;
        let left_by_component = world.cloud.balancers().await?;

        // Then the component, from which the vendor's provider takes over.
        let ours = self.component_alone(service).await?;
        self.proxy.clear();
        let back = vendor.ensure(service, nodes)?.map_err(Error::msg);
        let served = back.context("the vendor's provider takes over")?;
        let back: Vec<String> = self.proxy.take().iter().filter(|request| C::is_write(request)).map(line).collect();
        let after_back = world.cloud.balancers().await?;
        vendor.ensure_deleted(&served)?.map_err(Error::msg).context("the vendor's provider deletes")?;
        let left = world.cloud.balancers().await?;

        let mut problems = Vec::new();
        let mut compare = |what: &str, actual: &[String], expected: &[String]| {
            let (actual, expected) = (without::<C>(name, actual), without::<C>(name, expected));
            if let Err(error) = same(what, &actual, &expected) {
                problems.push(error.to_string());
            }
        };
        compare("the component alone", &ours.ensured, &theirs.ensured);
        compare("the component's update", &ours.updated, &theirs.updated);
        compare("the component's update to all nodes", &ours.whole, &ours.ensured);
        compare("writes of the component that takes over", &taken_over, &[]);
        compare("the component after the vendor's provider", &after, &theirs.whole);
        compare("the vendor's provider after the component", &after_back, &ours.whole);
        compare("what the component's deletion leaves", &left_by_component, empty);
        compare("what the vendor's deletion leaves", &left, empty);
        let (back, usual) = (without::<C>(name, &back), without::<C>(name, &usual));
        if back.len() > usual.len() {
            problems.push(format!(
                "the vendor's provider takes over and writes {back:#?}; its second call writes {usual:#?}"
            ));
        }
        let (ours, theirs) = (ours.requests, theirs.requests);
        problems.extend(ours.beyond(&theirs));
        tracing::info!(name, ours = ?ours.counts(), theirs = ?theirs.counts(), "requests");
        if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n  ")) }
    }

    async fn compare_change(&self, name: &str, before: &Service, after: &Service) -> Result<()> {
        let Self { world, vendor, nodes, .. } = self;
        let served = vendor.ensure(before, nodes)?.map_err(Error::msg).context("the vendor's provider begins")?;
        // The provider's own annotations stay.
        let mut changed = after.clone();
        let is_own = |(key, _): &(&String, &String)| !before.annotations.contains_key(*key);
        let own = served.annotations.iter().filter(is_own).map(|(key, value)| (key.clone(), value.clone()));
        changed.annotations.extend(own);
        let theirs = vendor.ensure(&changed, nodes)?;
        let changed_by_vendor = world.cloud.balancers().await?;
        vendor.ensure_deleted(&changed)?.map_err(Error::msg).context("the vendor's provider deletes")?;

        world.ensure(before, nodes).await.context("the component begins")?;
        let ours = world.ensure(after, nodes).await;
        let made = world.cloud.balancers().await?;
        world.ensure_deleted(after).await.context("the component deletes")?;
        let case = format!("change to {name}");
        let either = differences::<C>(name).chain(differences::<C>(&case)).any(|one| one.lines.is_empty());
        match (ours, theirs) {
            (Ok(_), Ok(_)) => {}
            (Err(_), Err(_)) => return Ok(()),
            _ if either => return Ok(()),
            (ours, theirs) => bail!("the component: {ours:?}, the vendor's provider: {theirs:?}"),
        }
        let without = |lines: &[String]| without::<C>(&case, &without::<C>(name, lines));
        same("the change by the component", &without(&made), &without(&changed_by_vendor))
    }

    /// After a refusal of the vendor's provider: the component refuses, too, unless there is a
    /// reason.
    async fn compare_refusals(&self, name: &str, service: &Service, refused: &str) -> Result<()> {
        let Self { world, vendor, nodes, .. } = self;
        vendor.ensure_deleted(service)?.map_err(Error::msg)?;
        let before = world.cloud.balancers().await?;
        let ours = world.ensure(service, nodes).await;
        world.ensure_deleted(service).await?;
        let left = without::<C>(name, &world.cloud.balancers().await?);
        same("what the component leaves after a refusal", &left, &without::<C>(name, &before))?;
        ensure!(
            ours.is_err() || differences::<C>(name).any(|one| one.lines.is_empty()),
            "the vendor's provider refuses this Service, and the component serves it: {refused}"
        );
        Ok(())
    }
}
