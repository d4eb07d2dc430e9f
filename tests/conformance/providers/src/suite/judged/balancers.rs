//! What the component leaves in the cloud, compared with what the vendor's Go provider leaves.

use std::fmt::Write as _;

use anyhow::{Context as _, Error, Result, bail, ensure};
use skysail_provider::{NodeSet, Service};

use super::{differences, without};
use crate::{
    cloud::{COMPARED_NODES, Difference, JudgedBalancers},
    proxy::Proxy,
    suite::{balancers::web, same},
    vendor::Vendor,
    world::{World, line, set},
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

/// Requests of one call.
#[derive(Clone, Copy, Debug)]
struct Requests {
    new: usize,
    unchanged: usize,
}

/// For each Service the component and the vendor's provider leave the same in the cloud; each finds
/// nothing to write where it takes over from the other; the component needs no more requests.
///
/// # Errors
/// All differences without a reason, a line each.
pub async fn the_component_does_what_the_vendors_provider_does<C: JudgedBalancers>() -> Result<()> {
    let (mut found, mut clean) = (String::new(), None);
    for (number, (name, change)) in C::compared().into_iter().enumerate() {
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
            Ok(()) => clean = Some(both),
            Err(error) => write!(found, "\n{name}: {error:#}")?,
        }
    }
    ensure!(found.is_empty(), "{found}");
    Ok(())
}

impl<C: JudgedBalancers> Both<C> {
    async fn start() -> Result<Self> {
        let world = World::<C>::start().await?;
        let nodes = set(world.cloud.add_numbered_machines(COMPARED_NODES).await?);
        let proxy = Proxy::start(&world.cloud.services(), C::HTTPS).await?;
        let vendor = Vendor::open(&world.cloud.vendor(proxy.origins())?, &nodes)?;
        let empty = world.cloud.balancers().await?;
        Ok(Self { world, vendor, proxy, nodes, empty })
    }

    async fn compare(&self, name: &str, service: &Service) -> Result<()> {
        let Self { world, vendor, nodes, empty, .. } = self;
        for Difference { reason, .. } in differences::<C>(name) {
            tracing::info!(name, reason, "differs on purpose");
        }
        // First the vendor's provider, from which the component takes over.
        self.proxy.clear();
        let theirs = vendor.ensure(service, nodes)?;
        let new = self.proxy.take().len();
        let made_by_vendor = world.cloud.balancers().await?;
        let served = match theirs {
            Ok(served) => served,
            Err(refused) => return self.compare_refusals(name, service, &refused).await,
        };
        vendor.ensure(&served, nodes)?.map_err(Error::msg).context("a second call of the vendor's provider")?;
        let again = self.proxy.take();
        let theirs = Requests { new, unchanged: again.len() };
        let usual: Vec<String> = again.iter().filter(|request| C::is_write(request)).map(line).collect();
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
        world.proxy.clear();
        world.ensure(service, nodes).await.context("the component begins")?;
        let new = world.proxy.take().len();
        let made = world.cloud.balancers().await?;
        world.ensure(service, nodes).await.context("a second call of the component")?;
        let ours = Requests { new, unchanged: world.proxy.take().len() };
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
        compare("the component alone", &made, &made_by_vendor);
        compare("writes of the component that takes over", &taken_over, &[]);
        compare("the component after the vendor's provider", &after, &made_by_vendor);
        compare("the vendor's provider after the component", &after_back, &made);
        compare("what the component's deletion leaves", &left_by_component, empty);
        compare("what the vendor's deletion leaves", &left, empty);
        let (back, usual) = (without::<C>(name, &back), without::<C>(name, &usual));
        if back.len() > usual.len() {
            problems.push(format!(
                "the vendor's provider takes over and writes {back:#?}; its second call writes {usual:#?}"
            ));
        }
        if ours.new > theirs.new || ours.unchanged > theirs.unchanged {
            problems.push(format!("the component needs {ours:?}, the vendor's provider {theirs:?}"));
        }
        tracing::info!(name, ?ours, ?theirs, "requests");
        if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n  ")) }
    }
    /// After a refusal of the vendor's provider: the component refuses, too, unless there is a
    /// reason.
    async fn compare_refusals(&self, name: &str, service: &Service, refused: &str) -> Result<()> {
        let Self { world, vendor, nodes, .. } = self;
        let ours = world.ensure(service, nodes).await;
        world.ensure_deleted(service).await?;
        vendor.ensure_deleted(service)?.map_err(Error::msg)?;
        let (left, empty) = (world.cloud.balancers().await?, &self.empty);
        same("what both leave after a refusal", &left, empty)?;
        ensure!(
            ours.is_err() || differences::<C>(name).any(|one| one.lines.is_empty()),
            "the vendor's provider refuses this Service, and the component serves it: {refused}"
        );
        Ok(())
    }
}
