//! Load balancers: created once, with the backends of `update`, deleted completely.

use anyhow::ensure;
use skysail_provider::{Call, Code, NodeSet};

use super::{Judged, Notes};
use crate::commands::{
    call,
    test::{
        bench::{Bench, missing},
        requests::Sent,
    },
};

/// The second of two equal calls writes nothing and returns the same status, and `get` agrees.
pub(super) async fn a_second_ensure_changes_nothing(bench: &mut Bench) -> Judged {
    let (cluster, nodes, service) = (bench.plan.cluster.clone(), bench.plan.nodes.clone(), bench.service("twice"));
    let mut notes = Notes::default();
    let before = bench.get(&cluster, &service).await?;
    ensure!(before.is_none(), "`get` returned a load balancer before the first `ensure`: {before:?}");
    let first = bench.ensure(&cluster, &service, &nodes).await?;
    ensure!(!first.answer.ingress.is_empty(), "`ensure` returned a status without an ingress");
    let second = bench.ensure(&cluster, &service, &nodes).await?;
    notes.nothing_changed("the second `ensure`", &second.requests, &first.requests)?;
    ensure!(
        second.answer == first.answer,
        "the second `ensure` returned another status: {:?}, and the first {:?}",
        second.answer,
        first.answer
    );
    let found = bench.get(&cluster, &service).await?;
    ensure!(
        found.as_ref() == Some(&first.answer),
        "`get` returned another status than `ensure`: {found:?}, and `ensure` {:?}",
        first.answer
    );
    bench.delete(&cluster, &service).await?;
    Ok(notes.verdict())
}

/// `update` leaves nothing to do for `ensure`, also with no nodes; without a load balancer it
/// returns `not-found`.
pub(super) async fn update_changes_the_backends(bench: &mut Bench) -> Judged {
    let (cluster, nodes, service) = (bench.plan.cluster.clone(), bench.plan.nodes.clone(), bench.service("update"));
    let mut notes = Notes::default();
    let missing = bench.call(async |provider| {
        let balancers = provider.load_balancers().ok_or_else(|| missing("load-balancers"))?;
        balancers.update(&Call::default(), &cluster, &service, &nodes).await
    });
    let missing = missing.await?.answer;
    ensure!(
        missing.as_ref().err().map(|error| error.code) == Some(Code::NotFound),
        "`update` without a load balancer returned {}, and the host calls `ensure` only after `not-found`",
        missing.as_ref().map_or_else(call::failure, |()| "ok".to_owned())
    );
    let (one, none) = (bench.one_node(), NodeSet::new([]));
    let mut sets = vec![("no nodes", &none), ("one node", &one)];
    match nodes.len() {
        1 => notes.add("with one machine no backend is replaced by another; name a second one with --node"),
        _ => sets.insert(0, ("all nodes", &nodes)),
    }
    bench.ensure(&cluster, &service, &one).await?;
    for (what, set) in sets {
        let update = bench.update(&service, set).await?;
        let ensure = bench.ensure(&cluster, &service, set).await?;
        let what = format!("`ensure` after `update` to {what}");
        notes.nothing_changed(&what, &ensure.requests, &update.requests)?;
    }
    bench.delete(&cluster, &service).await?;
    Ok(notes.verdict())
}

/// A deletion needs no load balancer, may be repeated, and `get` finds none afterwards.
pub(super) async fn a_deletion_may_be_repeated(bench: &mut Bench) -> Judged {
    let (cluster, nodes, service) = (bench.plan.cluster.clone(), bench.plan.nodes.clone(), bench.service("delete"));
    let mut notes = Notes::default();
    let never = bench.delete(&cluster, &service).await?;
    notes.nothing_changed("`ensure-deleted` for a Service that never had a load balancer", &never.requests, &[])?;
    let creation = bench.ensure(&cluster, &service, &nodes).await?;
    let deletion = bench.delete(&cluster, &service).await?;
    let found = bench.get(&cluster, &service).await?;
    ensure!(found.is_none(), "`get` returned a load balancer after `ensure-deleted`: {found:?}");
    let again = bench.delete(&cluster, &service).await?;
    notes.nothing_changed("the second `ensure-deleted`", &again.requests, &[])?;
    let has_written = |requests: &[Sent]| requests.iter().any(|request| request.writes);
    ensure!(
        has_written(&deletion.requests) || !has_written(&creation.requests),
        "`ensure-deleted` sent no write, so that the load balancer still exists"
    );
    Ok(notes.verdict())
}
