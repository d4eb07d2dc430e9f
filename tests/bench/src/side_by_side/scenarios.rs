//! Scenarios on a running cluster: nodes are deleted while others register.

use anyhow::{Context as _, Result};
use tokio::time::{Instant, timeout};

use super::{
    contestant::{Contestant, Programs},
    figures::Figures,
    run::{Before, Marks, Task, done},
    world::{Size, World},
};

/// Nodes that exist before the others register.
const FIRST_NODES: usize = 20;
/// Steps of a rolling replacement, as a machine deployment does with its surge.
const STEPS: usize = 20;

/// A node is deleted when a quarter of `size.nodes` new ones is initialised; `backends_s` is the
/// time from then until no load balancer leads to it.
///
/// # Errors
/// As [`super::measure`].
pub async fn measure_deletion(programs: &Programs, contestant: Contestant, size: Size, task: &Task) -> Result<Figures> {
    let world = World::new(Size { nodes: FIRST_NODES, ..size }, task.latency).await?;
    let mut process = world.start(programs, contestant)?;
    done(&world, &mut process, Instant::now(), task).await?;
    let before = Before::now(&world, Some(&process)).await?;
    let work = async {
        let numbers = FIRST_NODES..FIRST_NODES + size.nodes;
        let deletion = async {
            world.until_nodes_initialised(numbers.clone(), size.nodes / 4).await?;
            let deleted = world.machines.get(..1).context("no node to delete")?;
            let address = deleted.first().context("no node to delete")?.private_address;
            world.remove_nodes(deleted).await?;
            let begun = Instant::now();
            let out = world.until(|cloud| cloud.virtual_servers_behind(address) == 0).await;
            anyhow::Ok((begun, out - begun))
        };
        // The other nodes keep registering.
        let ((), measured) = tokio::try_join!(world.add_nodes(numbers.clone()), deletion)?;
        anyhow::Ok(measured)
    };
    let ended = timeout(task.limit, work).await;
    process.still_runs().with_context(|| world.log_tail())?;
    let (begun, out) =
        ended.with_context(|| format!("the node is still a backend; the manager said:\n{}", world.log_tail()))??;
    let marks = Marks { backends: out, cpu: process.cpu()?, ..Marks::default() };
    before.finish(&world, &process, begun, (marks, task.idle)).await
}

/// Replaces `replaced` nodes in twenty steps: new nodes register, and when they are initialised, as
/// many old nodes are deleted.
///
/// `backends_s` is the time until every load balancer leads to exactly the nodes that are left.
///
/// # Errors
/// As [`super::measure`].
pub async fn measure_replacement(
    programs: &Programs,
    contestant: Contestant,
    (size, replaced): (Size, usize),
    task: &Task,
) -> Result<Figures> {
    let world = World::new(size, task.latency).await?;
    let mut process = world.start(programs, contestant)?;
    done(&world, &mut process, Instant::now(), task).await?;
    let before = Before::now(&world, Some(&process)).await?;
    let begun = Instant::now();
    let mut marks = Marks::default();
    let work = async {
        let replaced = world.machines.get(..replaced).context("more nodes to replace than there are")?;
        let mut next = size.nodes;
        for old in replaced.chunks(replaced.len().div_ceil(STEPS).max(1)) {
            let numbers = next..next + old.len();
            next = numbers.end;
            world.add_nodes(numbers.clone()).await?;
            world.until_nodes_initialised(numbers, old.len()).await?;
            world.remove_nodes(old).await?;
        }
        marks.nodes = begun.elapsed();
        world.until_exact().await;
        marks.backends = begun.elapsed();
        anyhow::Ok(())
    };
    let ended = timeout(task.limit, work).await;
    process.still_runs().with_context(|| world.log_tail())?;
    ended.with_context(|| format!("not done after {:?}; the manager said:\n{}", task.limit, world.log_tail()))??;
    let marks = Marks { cpu: process.cpu()?, ..marks };
    before.finish(&world, &process, begun, (marks, task.idle)).await
}
