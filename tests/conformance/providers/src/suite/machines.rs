//! Machines: found by ID and by name, and `NotFound` only where the cloud has none.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use skysail_provider::{Code, Detail, Error, Instance, NODES_PER_PAGE, Node, NodeSet, Provider as _};

use crate::{
    cloud::Cloud,
    proxy::{Judge, Reply, Verdict},
    world::{World, set},
};

/// More machines than a page of most clouds has.
const MANY: usize = 1_050;

/// The most fuel of one call for a whole page of nodes: a tenth of the default limit of a call.
const PAGE_FUEL_MAX: u64 = 100_000_000;

type Answers = Vec<Result<Instance, Error>>;

/// The code of each inner error; none for a machine.
fn codes(answers: &Answers) -> Vec<Option<Code>> {
    answers.iter().map(|answer| answer.as_ref().err().map(|error| error.code)).collect()
}

/// The answer for a node. Nodes are sorted by name, and some clouds choose the names.
fn of<'a>(node: &Node, nodes: &NodeSet, answers: &'a Answers) -> Option<&'a Result<Instance, Error>> {
    let place = nodes.as_slice().iter().position(|one| one.name == node.name)?;
    answers.get(place)
}

fn code(answer: Option<&Result<Instance, Error>>) -> Option<Code> {
    answer.and_then(|answer| answer.as_ref().err()).map(|error| error.code)
}

/// The node as kubelet registers it: without a provider ID.
fn uninitialised(node: &Node) -> Node {
    Node { provider_id: None, addresses: Vec::new(), ..node.clone() }
}

/// A running, a stopped and a deleted machine, by ID and by name.
///
/// # Errors
/// The provider does otherwise.
pub async fn machines_are_found_by_id_and_by_name<C: Cloud>() -> Result<()> {
    let world = World::<C>::start().await?;
    let names = ["node-gone", "node-off", "node-on"].map(str::to_owned);
    let machines = world.cloud.add_machines(&names).await?;
    let [gone, off, on] = machines.as_slice() else { anyhow::bail!("the cloud made {} machines", machines.len()) };
    world.cloud.stop_machine(off).await?;
    world.cloud.delete_machine(gone).await?;
    let nodes = set(machines.clone());
    for detail in [Detail::State, Detail::Metadata] {
        let answers = world.machines(&nodes, detail).await?;
        let [gone, off, on] = [gone, off, on].map(|node| of(node, &nodes, &answers));
        ensure!(code(gone) == Some(Code::NotFound), "a deleted machine by ID, {detail:?}: {gone:?}");
        for (name, answer, down) in [("a stopped", off, true), ("a running", on, false)] {
            let shutdown = answer.and_then(|answer| answer.as_ref().ok()).map(|instance| instance.shutdown);
            ensure!(shutdown == Some(down), "{name} machine by ID, {detail:?}: {answer:?}");
        }
    }
    let answers = world.machines(&set(vec![uninitialised(on)]), Detail::Metadata).await?;
    let [Ok(found)] = answers.as_slice() else { anyhow::bail!("by name: {answers:?}") };
    ensure!(Some(&found.provider_id) == on.provider_id.as_ref(), "by name the ID is {:?}", found.provider_id);
    for address in &on.addresses {
        ensure!(found.addresses.contains(address), "{address:?} is missing in {:?}", found.addresses);
    }
    let never = Node { name: "node-never".to_owned(), ..Node::default() };
    let foreign = Node { provider_id: Some("elsewhere://1".to_owned()), ..uninitialised(on) };
    let nodes = set(vec![never.clone(), foreign.clone()]);
    let answers = world.machines(&nodes, Detail::State).await?;
    let [never, foreign] = [never, foreign].map(|node| code(of(&node, &nodes, &answers)));
    let unknown = if C::KNOWS_ALL_NAMES { Code::NotFound } else { Code::Unavailable };
    ensure!([never, foreign] == [Some(unknown), Some(Code::Invalid)], "{answers:?}");
    world.proxy.clear();
    let answers = world.machines(&set(Vec::new()), Detail::State).await?;
    ensure!(answers.is_empty(), "an empty page has {} answers", answers.len());
    Ok(())
}

/// A machine that was created again under the name of a node is not the node's machine.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_machine_that_was_created_again_is_another_one<C: Cloud>() -> Result<()> {
    let world = World::<C>::start().await?;
    let old = world.nodes(&["node-a"]).await?;
    let node = old.as_slice().first().context("the cloud made no machine")?;
    world.cloud.delete_machine(node).await?;
    let new = world.nodes(&["node-a"]).await?;
    let answers = world.machines(&old, Detail::State).await?;
    ensure!(codes(&answers) == [Some(Code::NotFound)], "the old ID: {answers:?}");
    let answers = world.machines(&new, Detail::State).await?;
    ensure!(codes(&answers) == [None], "the new ID: {answers:?}");
    Ok(())
}

/// Whatever one request of the look-up meets, no machine that exists is reported as gone.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_failure_of_any_request_makes_no_machine_not_found<C: Cloud>() -> Result<()> {
    let world = World::<C>::start().await?;
    let nodes = world.nodes(&["node-a", "node-b"]).await?;
    let by_name = set(nodes.as_slice().iter().map(|node| uninitialised(node)).collect());
    let html = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
    let always = |verdict: Verdict| -> Judge { Arc::new(move |_| verdict.clone()) };
    let answer = |status: u16, body: &str| always(Verdict::Answer(Reply::new(status, body)));
    let failures: [(&str, Judge); 9] = [
        ("a cut connection", always(Verdict::CutBefore)),
        ("a lost answer", always(Verdict::CutAfter)),
        ("503", answer(503, html)),
        ("429", Arc::new(|request| Verdict::Answer(C::throttled(request)))),
        ("403", answer(403, "{}")),
        ("404 of a gateway", answer(404, html)),
        ("200 with HTML", answer(200, html)),
        ("200 with an empty object", answer(200, "{}")),
        ("200 with nothing", answer(200, "")),
    ];
    for (name, failure) in failures {
        for nodes in [&nodes, &by_name] {
            for place in 0.. {
                let failure = Arc::clone(&failure);
                // Everything fails from the place on, so that no confirming request can help.
                world.proxy.decide(
                    move |request| {
                        if request.number >= place { failure(request) } else { Verdict::Pass }
                    },
                );
                let answers = world.machines(nodes, Detail::Metadata).await;
                let requests = world.proxy.take().len();
                world.proxy.pass();
                let gone = |answers: &Answers| codes(answers).contains(&Some(Code::NotFound));
                ensure!(
                    !answers.as_ref().is_ok_and(gone),
                    "{name} from request {place} on: a machine that exists is reported as gone: {answers:?}"
                );
                if requests <= place {
                    break;
                }
                let whole = |answers: &Answers| answers.iter().all(Result::is_ok);
                ensure!(
                    !answers.as_ref().is_ok_and(whole) || place > 0,
                    "{name} at every request: the provider described machines all the same: {answers:?}"
                );
            }
        }
    }
    Ok(())
}

/// A refused credential is `Denied` and never `NotFound`.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_refused_credential_is_denied<C: Cloud>() -> Result<()> {
    let world = World::<C>::start().await?;
    let nodes = world.nodes(&["node-a"]).await?;
    world.machines(&nodes, Detail::State).await?;
    world.cloud.revoke_credential().await?;
    let answers = world.machines(&nodes, Detail::State).await;
    let code = match &answers {
        Err(error) => Some(error.code),
        Ok(answers) => answers.first().and_then(|answer| answer.as_ref().err()).map(|error| error.code),
    };
    ensure!(code == Some(Code::Denied), "with a revoked credential: {answers:?}");
    Ok(())
}

/// More machines than a page of the cloud: each is found, in pages of nodes as the controllers make
/// them.
///
/// # Errors
/// The provider does otherwise.
pub async fn machines_beyond_a_thousand_are_found<C: Cloud>() -> Result<()> {
    let world = World::<C>::start().await?;
    let nodes = world.cloud.add_numbered_machines(MANY).await?;
    ensure!(nodes.len() == MANY, "the cloud made {} of {MANY} machines", nodes.len());
    let page = world.provider.info().map_or(NODES_PER_PAGE, |info| info.page_nodes);
    for by_name in [false, true] {
        for chunk in nodes.chunks(page) {
            let chunk = chunk.iter().map(|node| if by_name { uninitialised(node) } else { node.clone() });
            let chunk = NodeSet::new(chunk.map(Arc::new));
            let answers = world.machines(&chunk, Detail::State).await?;
            for (node, answer) in chunk.as_slice().iter().zip(&answers) {
                ensure!(answer.is_ok(), "{}, by name: {by_name}: {answer:?}", node.name);
            }
        }
    }
    Ok(())
}

/// The first call for a whole page of nodes, when the provider remembers nothing. Equal answers of
/// the cloud cost equal fuel.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_page_of_nodes_costs_at_most_100_million_units_of_fuel<C: Cloud>() -> Result<()> {
    the_first_page_costs_little_fuel(&World::<C>::start().await?).await
}

/// As [`a_page_of_nodes_costs_at_most_100_million_units_of_fuel`], in a world of one's own.
///
/// # Errors
/// The provider does otherwise.
pub async fn the_first_page_costs_little_fuel<C: Cloud>(world: &World<C>) -> Result<()> {
    let page = world.provider.info().map_or(NODES_PER_PAGE, |info| info.page_nodes);
    let nodes = set(world.cloud.add_numbered_machines(page).await?);
    let answers = world.machines(&nodes, Detail::Metadata).await?;
    ensure!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    let calls = world.release.calls();
    let describe = calls.iter().find(|calls| calls.function == "instances.describe").context("no call was counted")?;
    let fuel = describe.fuel_max;
    ensure!(fuel <= PAGE_FUEL_MAX, "{page} nodes cost {fuel} units of fuel");
    Ok(())
}

/// Machines that are deleted while the list is read do not make others disappear from it.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_list_that_changes_while_it_is_read_loses_no_machine<C: Cloud + 'static>() -> Result<()> {
    let world = World::<C>::start().await?;
    let all = world.cloud.add_numbered_machines(MANY).await?;
    // The first machines of the list disappear, which moves all later ones to earlier pages.
    let (leaving, staying) = all.split_at(40);
    let nodes = set(staying.iter().rev().take(NODES_PER_PAGE / 2).cloned().collect());
    let World { cloud, proxy, provider, call, .. } = &world;
    let mut leaving = leaving.chunks(10);
    let (asked, mut changes) = tokio::sync::mpsc::channel::<tokio::sync::oneshot::Sender<()>>(1);
    proxy.set(move |_| {
        let asked = asked.clone();
        Box::pin(async move {
            let (done, waiting) = tokio::sync::oneshot::channel();
            if asked.send(done).await.is_ok() {
                waiting.await.ok();
            }
            Verdict::Pass
        })
    });
    let instances = provider.instances().context("the component has no instances")?;
    let look_up = instances.describe(call, &nodes, Detail::State);
    tokio::pin!(look_up);
    let answers = loop {
        tokio::select! {
            answers = &mut look_up => break answers?,
            Some(done) = changes.recv() => {
                for node in leaving.next().unwrap_or_default() {
                    cloud.delete_machine(node).await?;
                }
                done.send(()).ok();
            }
        }
    };
    for (node, answer) in nodes.as_slice().iter().zip(&answers) {
        let gone = answer.as_ref().is_err_and(|error| error.code == Code::NotFound);
        ensure!(!gone, "{} exists and is reported as gone: {answer:?}", node.name);
    }
    Ok(())
}

/// A list that lags behind shows a new machine late, and a deleted one for a while: the new machine
/// is not reported as gone.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_list_that_lags_behind_makes_no_new_machine_not_found<C: Cloud + 'static>() -> Result<()> {
    let world = World::<C>::start().await?;
    // More than a provider may look up one by one.
    let old = world.cloud.add_numbered_machines(30).await?;
    for by_name in [false, true] {
        let as_wanted = |node: &Node| if by_name { uninitialised(node) } else { node.clone() };
        world.proxy.lag_behind(C::is_write);
        world.machines(&set(old.iter().map(as_wanted).collect()), Detail::Metadata).await?;
        let new = world.cloud.add_machines(&[format!("new-{by_name}")]).await?;
        world.proxy.fall_behind();
        let nodes = set(old.iter().chain(&new).map(as_wanted).collect());
        let answers = world.machines(&nodes, Detail::Metadata).await?;
        for node in &new {
            let answer = of(node, &nodes, &answers);
            ensure!(code(answer) != Some(Code::NotFound), "a new machine, by name: {by_name}: {answer:?}");
        }
        world.proxy.pass();
        let answers = world.machines(&nodes, Detail::State).await?;
        ensure!(answers.iter().all(Result::is_ok), "after the list has caught up, by name: {by_name}: {answers:?}");
    }
    Ok(())
}
