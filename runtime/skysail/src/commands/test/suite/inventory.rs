//! The inventory of load balancers: what the cluster has, and nothing of another cluster.

use anyhow::{anyhow, ensure};
use skysail_provider::{Call, Code, OwnedLoadBalancer, Provider, Result};

use super::{Judged, Notes, Verdict};
use crate::commands::{
    call,
    test::bench::{Bench, missing},
};

/// The entries that are new.
fn added(before: &[OwnedLoadBalancer], after: &[OwnedLoadBalancer]) -> Vec<OwnedLoadBalancer> {
    after.iter().filter(|entry| !before.contains(entry)).cloned().collect()
}

async fn delete(provider: &dyn Provider, cluster: &str, share: &OwnedLoadBalancer) -> Result<()> {
    let inventory = provider.load_balancer_inventory().ok_or_else(|| missing("load-balancer-inventory"))?;
    inventory.delete(&Call::default(), cluster, share).await
}

/// One entry for a load balancer of each cluster; a deletion in one cluster leaves the other's.
pub(super) async fn of_this_cluster(bench: &mut Bench) -> Judged {
    let (cluster, second, nodes) = (bench.plan.cluster.clone(), bench.second_cluster(), bench.plan.nodes.clone());
    let (ours, theirs) = (bench.service("inventory"), bench.second_service("inventory-2"));
    let mut notes = Notes::default();
    if bench.provider().load_balancers().is_none() {
        return Ok(Verdict::NotTested("the component does not export load-balancers, whose work is listed".to_owned()));
    }
    let Some(before) = bench.inventory(&cluster).await? else {
        return Ok(Verdict::NotTested("the settings of the component switch the inventory off".to_owned()));
    };
    if !before.is_empty() {
        notes.add(format!("the inventory of {cluster} had entries before the run; `skysail orphans` deletes them"));
    }
    let before_there = bench.inventory(&second).await?.unwrap_or_default();
    bench.ensure(&cluster, &ours, &nodes).await?;
    let made_there = bench.ensure(&second, &theirs, &nodes).await?;
    let (name, uid) = (name_of(bench, &cluster, &ours).await?, &ours.uid);
    let listed = bench.inventory(&cluster).await?.unwrap_or_default();
    let new = added(&before, &listed);
    let [owned] = new.as_slice() else {
        return Err(anyhow!("after one `ensure` the inventory of the cluster has {} new entries: {new:?}", new.len()));
    };
    ensure!(owned.name == name, "the entry has the name {:?}, and `name` returns {name:?}", owned.name);
    ensure!(
        owned.service.as_ref().is_none_or(|(_, _, of)| of == uid),
        "the entry belongs to {:?}, and the Service has the UID {uid}",
        owned.service
    );
    let new_there = added(&before_there, &bench.inventory(&second).await?.unwrap_or_default());
    let [foreign] = new_there.as_slice() else {
        return Err(anyhow!("the inventory of the second cluster has {} new entries: {new_there:?}", new_there.len()));
    };
    let refused = bench.call(async |provider| delete(&*provider, &cluster, foreign).await).await?.answer;
    if let Err(error) = refused {
        ensure!(
            error.code == Code::Denied,
            "the deletion of another cluster's entry returned {}; the right answer is Denied, or ok without a deletion",
            call::failure(&error)
        );
    }
    let after = bench.ensure(&second, &theirs, &nodes).await?;
    notes.nothing_changed(
        "`ensure` after the deletion of its entry in the name of another cluster",
        &after.requests,
        &made_there.requests,
    )?;
    for _ in 0..2 {
        bench
            .settled("load-balancer-inventory.delete", async |provider| delete(&*provider, &cluster, owned).await)
            .await?;
    }
    let left = added(&before, &bench.inventory(&cluster).await?.unwrap_or_default());
    ensure!(left.is_empty(), "the inventory still has {left:?} after its deletion");
    let found = bench.get(&cluster, &ours).await?;
    ensure!(found.is_none(), "`get` returned {found:?} after the deletion of the entry");
    bench.delete(&cluster, &ours).await?;
    bench.delete(&second, &theirs).await?;
    Ok(notes.verdict())
}

async fn name_of(bench: &mut Bench, cluster: &str, service: &skysail_provider::Service) -> anyhow::Result<String> {
    let name = async |provider: std::sync::Arc<dyn Provider>| {
        let balancers = provider.load_balancers().ok_or_else(|| missing("load-balancers"))?;
        balancers.name(&Call::default(), cluster, service).await
    };
    Ok(bench.settled("name", name).await?.answer)
}
