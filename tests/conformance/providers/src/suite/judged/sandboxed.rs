//! The vendor's Go provider as a component, compared with the same code as a program: each in an
//! account of its own, step by step.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use anyhow::{Result, bail, ensure};
use skysail_provider::{NodeSet, Service};

use crate::{
    cloud::{COMPARED_NODES, Change, Sandboxed},
    proxy::{Proxy, Request},
    suite::{
        accounts::{Cases, in_accounts},
        balancers::web,
        same,
    },
    vendor::Vendor,
    world::{World, line, one_less, set},
};

/// For each Service of the table, the code in the sandbox does what it does as a program.
///
/// # Errors
/// All differences without a reason, a line each.
pub async fn the_vendors_code_serves_in_the_sandbox_as_it_does_elsewhere<C: Sandboxed + 'static>() -> Result<()> {
    let steps: Steps<C> = |account, change| {
        let mut service = web(account, "web");
        change(&mut service);
        account.require(&mut service);
        let (ensure, delete) = (Step::Ensure(service.clone()), Step::Delete(service.clone()));
        let update = |nodes| Step::Update(service.clone(), nodes);
        vec![
            ("new", ensure.clone()),
            ("unchanged", ensure),
            ("one node less", update(Nodes::OneLess)),
            ("all nodes", update(Nodes::All)),
            ("deleted", delete),
        ]
    };
    in_accounts(C::compared(), move |cases| compare_each(cases, steps)).await
}

/// For each change of a Service, the code in the sandbox does what it does as a program.
///
/// # Errors
/// All differences without a reason, a line each.
pub async fn the_vendors_code_changes_in_the_sandbox_what_it_changes_elsewhere<C: Sandboxed + 'static>() -> Result<()> {
    let steps: Steps<C> = |account, change| {
        let before = web(account, "web");
        let mut after = before.clone();
        change(&mut after);
        account.require(&mut after);
        let delete = Step::Delete(after.clone());
        vec![("before the change", Step::Ensure(before)), ("changed", Step::Ensure(after)), ("deleted", delete)]
    };
    in_accounts(C::start().await?.changes(), move |cases| compare_each(cases, steps)).await
}

/// What a controller asks for.
#[derive(Clone, Debug)]
enum Step {
    Ensure(Service),
    Update(Service, Nodes),
    Delete(Service),
}

#[derive(Clone, Copy, Debug)]
enum Nodes {
    All,
    OneLess,
}

impl Nodes {
    fn of(self, nodes: &NodeSet) -> NodeSet {
        match self {
            Self::All => nodes.clone(),
            Self::OneLess => one_less(nodes),
        }
    }
}

/// The steps of a case in this account, each with its name.
type Steps<C> = fn(&C, fn(&mut Service)) -> Vec<(&'static str, Step)>;

/// What a step did.
#[derive(Debug)]
struct Done {
    error: Option<String>,
    requests: Vec<Request>,
    /// In the cloud after the step.
    left: Vec<String>,
}

/// Compares the cases that are left, until none is; the value has the differences.
async fn compare_each<C: Sandboxed>(cases: Arc<Cases<Change>>, steps: Steps<C>) -> Result<String> {
    let (mut found, mut clean) = (String::new(), None);
    while let Some((name, change)) = cases.take() {
        // What the code leaves is nothing to the next case: other accounts if it leaves anything.
        let both = match clean.take() {
            Some(both) => both,
            None => Both::<C>::start().await?,
        };
        let Both { component, program } = &both;
        let ours = component.run(steps(&component.world.cloud, change)).await?;
        let theirs = program.run(steps(&program.cloud, change)).await?;
        let is_clean = ours.iter().chain(&theirs).all(|(_, done)| done.error.is_none());
        if let Err(error) = compare::<C>(name, &ours, &theirs) {
            write!(found, "\n{name}: {error:#}")?;
        } else if is_clean && both.is_empty().await? {
            clean = Some(both);
        }
    }
    Ok(found)
}

/// The code as a component and as a program.
struct Both<C> {
    component: Component<C>,
    program: Program<C>,
}

struct Component<C> {
    world: World<C>,
    nodes: NodeSet,
    empty: Vec<String>,
}

struct Program<C> {
    cloud: C,
    nodes: NodeSet,
    vendor: Vendor,
    /// Between the program and the cloud.
    proxy: Proxy,
}

impl<C: Sandboxed> Both<C> {
    async fn start() -> Result<Self> {
        let world = World::<C>::start().await?;
        let nodes = set(world.cloud.add_numbered_machines(COMPARED_NODES).await?);
        let empty = world.cloud.balancers().await?;
        let component = Component { world, nodes, empty };
        let cloud = C::start().await?;
        let nodes = set(cloud.add_numbered_machines(COMPARED_NODES).await?);
        let proxy = Proxy::start(&cloud.services(), C::HTTPS).await?;
        let vendor = Vendor::open(&cloud.vendor(proxy.origins())?, &nodes)?;
        Ok(Self { component, program: Program { cloud, nodes, vendor, proxy } })
    }

    async fn is_empty(&self) -> Result<bool> {
        let Self { component, program } = self;
        let left = [component.world.cloud.balancers().await?, program.cloud.balancers().await?];
        Ok(left.iter().all(|left| *left == component.empty))
    }
}

impl<C: Sandboxed> Component<C> {
    async fn run(&self, steps: Vec<(&'static str, Step)>) -> Result<Vec<(&'static str, Done)>> {
        let Self { world, nodes, .. } = self;
        let mut all = Vec::new();
        for (name, step) in steps {
            world.proxy.clear();
            let (call, result) = match step {
                Step::Ensure(service) => ("ensure", world.ensure(&service, nodes).await.map(drop)),
                Step::Update(service, some) => ("update", world.update(&service, &some.of(nodes)).await),
                Step::Delete(service) => ("ensure-deleted", world.ensure_deleted(&service).await),
            };
            let error = result.err().map(|error| of_the_vendor(call, &format!("{error:#}")));
            all.push((name, Done { error, requests: world.proxy.take(), left: world.cloud.balancers().await? }));
        }
        Ok(all)
    }
}

/// The error of the vendor's code, of which the adapter makes the code `unavailable`. Every other
/// one has another text than that of the program.
fn of_the_vendor(call: &str, error: &str) -> String {
    let own = error.strip_prefix(call).and_then(|rest| rest.strip_prefix(": "));
    own.and_then(|own| own.strip_suffix(" [Unavailable]")).unwrap_or(error).to_owned()
}

impl<C: Sandboxed> Program<C> {
    async fn run(&self, steps: Vec<(&'static str, Step)>) -> Result<Vec<(&'static str, Done)>> {
        let Self { cloud, nodes, vendor, proxy } = self;
        let mut all = Vec::new();
        for (name, step) in steps {
            proxy.clear();
            let result = match step {
                Step::Ensure(service) => vendor.ensure(&service, nodes)?.map(drop),
                Step::Update(service, some) => vendor.update(&service, &some.of(nodes))?,
                Step::Delete(service) => vendor.ensure_deleted(&service)?,
            };
            all.push((name, Done { error: result.err(), requests: proxy.take(), left: cloud.balancers().await? }));
        }
        Ok(all)
    }
}

fn compare<C: Sandboxed>(name: &str, ours: &[(&str, Done)], theirs: &[(&str, Done)]) -> Result<()> {
    let mut problems = Vec::new();
    for ((step, ours), (_, theirs)) in ours.iter().zip(theirs) {
        tracing::info!(name, step, ours = ours.requests.len(), theirs = theirs.requests.len(), "requests");
        let (failed, fails) = (ours.error.as_deref().map(C::failure), theirs.error.as_deref().map(C::failure));
        if failed != fails {
            problems.push(format!("{step}: in the sandbox {:?}, elsewhere {:?}", ours.error, theirs.error));
        }
        if let Err(error) = same(step, &ours.left, &theirs.left) {
            problems.push(error.to_string());
        }
        if let Err(error) = compare_requests::<C>(&ours.requests, &theirs.requests) {
            problems.push(format!("{step}: {error}"));
        }
    }
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n  ")) }
}

/// Both send the same requests, but for one more of each that a call begins with.
fn compare_requests<C: Sandboxed>(ours: &[Request], theirs: &[Request]) -> Result<()> {
    let count = |requests: &[Request]| {
        let mut count = BTreeMap::<String, usize>::new();
        requests.iter().for_each(|request| *count.entry(C::operation(request)).or_default() += 1);
        count
    };
    let (of_ours, of_theirs) = (count(ours), count(theirs));
    let names: BTreeSet<&String> = of_ours.keys().chain(of_theirs.keys()).collect();
    let mut differ = String::new();
    for name in names {
        let number = |count: &BTreeMap<String, usize>| count.get(name).copied().unwrap_or_default();
        let (one, other) = (number(&of_ours), number(&of_theirs));
        let is_again = one == other + 1 && C::ASKED_AGAIN.iter().any(|(asked, _)| asked == name);
        if one != other && !is_again {
            write!(differ, " {name} {one} times and not {other};")?;
        }
    }
    let lines = |requests: &[Request]| requests.iter().map(line).collect::<Vec<_>>();
    ensure!(differ.is_empty(), "in the sandbox{differ}\n{:#?}\n{:#?}", lines(ours), lines(theirs));
    Ok(())
}
