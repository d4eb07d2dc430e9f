//! What the component leaves in the cloud, compared with what the vendor's Go provider leaves.

use std::fmt::Write as _;

use anyhow::{Context as _, Error, Result, bail, ensure};
use skysail_provider::{NodeSet, Service};

use super::{balancers::web, same};
use crate::{
    cloud::{Difference, Judged},
    proxy::Proxy,
    vendor::Vendor,
    world::{World, line},
};

/// Nodes of the cluster.
const NODES: usize = 20;

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
pub async fn the_component_does_what_the_vendors_provider_does<C: Judged>() -> Result<()> {
    let mut found = String::new();
    for (name, change) in C::compared() {
        // An account for each Service: what one leaves is nothing to the next.
        let both = Both::<C>::start().await?;
        let mut service = web(&both.world.cloud, "web");
        change(&mut service);
        if let Err(error) = both.compare(name, &service).await {
            write!(found, "\n{name}: {error:#}")?;
        }
    }
    ensure!(found.is_empty(), "{found}");
    Ok(())
}

impl<C: Judged> Both<C> {
    async fn start() -> Result<Self> {
        let world = World::<C>::start().await?;
        let names: Vec<String> = (0..NODES).map(|n| format!("node-{n}")).collect();
        let nodes = world.nodes(&names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let proxy = Proxy::start(&world.cloud.services(), false).await?;
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
        if let Err(refused) = vendor.ensure(service, nodes)? {
            let ours = world.ensure(service, nodes).await;
            world.ensure_deleted(service).await?;
            vendor.ensure_deleted(service)?.map_err(Error::msg)?;
            ensure!(
                ours.is_err() || differences::<C>(name).any(|one| one.lines.is_empty()),
                "the vendor's provider refuses this Service, and the component serves it: {refused}"
            );
            return Ok(());
        }
        let new = self.proxy.take().len();
        let made_by_vendor = world.cloud.balancers().await?;
        vendor.ensure(service, nodes)?.map_err(Error::msg).context("a second call of the vendor's provider")?;
        let again = self.proxy.take();
        let theirs = Requests { new, unchanged: again.len() };
        let usual: Vec<String> = again.iter().filter(|request| C::is_write(request)).map(line).collect();
        world.proxy.clear();
        world.ensure(service, nodes).await.context("the component takes over")?;
        let taken_over = world.writes();
        let after = world.cloud.balancers().await?;
        world.ensure_deleted(service).await.context("the component deletes what the vendor's provider has made")?;

        // Then the component, from which the vendor's provider takes over.
        world.proxy.clear();
        world.ensure(service, nodes).await.context("the component begins")?;
        let new = world.proxy.take().len();
        let made = world.cloud.balancers().await?;
        world.ensure(service, nodes).await.context("a second call of the component")?;
        let ours = Requests { new, unchanged: world.proxy.take().len() };
        self.proxy.clear();
        vendor.ensure(service, nodes)?.map_err(Error::msg).context("the vendor's provider takes over")?;
        let back: Vec<String> = self.proxy.take().iter().filter(|request| C::is_write(request)).map(line).collect();
        let after_back = world.cloud.balancers().await?;
        vendor.ensure_deleted(service)?.map_err(Error::msg).context("the vendor's provider deletes")?;
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
}

/// What may differ for the Service of this name.
fn differences<C: Judged>(name: &str) -> impl Iterator<Item = &'static Difference> {
    C::differences().iter().filter(move |one| one.services.contains(&name))
}

/// The lines that have to be equal.
fn without<C: Judged>(name: &str, lines: &[String]) -> Vec<String> {
    let differs = |text: &str| differences::<C>(name).any(|one| one.lines.iter().any(|part| text.contains(part)));
    lines.iter().filter(|line| !differs(line)).cloned().collect()
}
