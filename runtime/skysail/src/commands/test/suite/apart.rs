//! The load balancers of two Services do not meet: each is created and deleted without a change of
//! the other.

use anyhow::ensure;
use skysail_provider::Service;

use super::{Judged, Notes};
use crate::commands::test::bench::Bench;

/// A Service in its cluster.
type Of<'a> = (&'a str, &'a Service);

/// Two Services of one cluster.
pub(super) async fn two_services(bench: &mut Bench) -> Judged {
    let (cluster, one, other) = (bench.plan.cluster.clone(), bench.service("one"), bench.second_service("other"));
    are_apart(bench, (&cluster, &one), (&cluster, &other)).await
}

/// Services with the same namespace and name in two clusters. Their UIDs differ, and their node
/// ports, because both clusters have the same machines here.
pub(super) async fn two_clusters(bench: &mut Bench) -> Judged {
    let (cluster, second, ours) = (bench.plan.cluster.clone(), bench.second_cluster(), bench.service("clusters"));
    let theirs = Service { name: ours.name.clone(), ..bench.second_service("second-cluster") };
    are_apart(bench, (&cluster, &ours), (&second, &theirs)).await
}

/// Services with the longest names that Kubernetes allows, which differ in their last character.
pub(super) async fn the_longest_names(bench: &mut Bench) -> Judged {
    let cluster = bench.plan.cluster.clone();
    let long = |last: char, service: Service| Service {
        namespace: "s".repeat(63),
        name: format!("{}{last}", "n".repeat(62)),
        ..service
    };
    let (one, other) = (long('a', bench.service("long-a")), long('b', bench.second_service("long-b")));
    are_apart(bench, (&cluster, &one), (&cluster, &other)).await
}

async fn are_apart(bench: &mut Bench, one: Of<'_>, other: Of<'_>) -> Judged {
    let (nodes, mut notes) = (bench.plan.nodes.clone(), Notes::default());
    let first = bench.ensure(one.0, one.1, &nodes).await?;
    let second = bench.ensure(other.0, other.1, &nodes).await?;
    let again = bench.ensure(one.0, one.1, &nodes).await?;
    notes.nothing_changed("`ensure` beside another load balancer", &again.requests, &first.requests)?;
    ensure!(
        again.answer == first.answer,
        "another load balancer changed the status from {:?} to {:?}",
        first.answer,
        again.answer
    );
    // The older one is deleted, and the younger one stays as it is.
    bench.delete(one.0, one.1).await?;
    let found = bench.get(one.0, one.1).await?;
    ensure!(found.is_none(), "`get` returned {found:?} for a deleted load balancer beside another one");
    let stays = bench.get(other.0, other.1).await?;
    ensure!(
        stays.as_ref() == Some(&second.answer),
        "the deletion of another load balancer changed the status from {:?} to {stays:?}",
        second.answer
    );
    let after = bench.ensure(other.0, other.1, &nodes).await?;
    notes.nothing_changed("`ensure` after the deletion of another load balancer", &after.requests, &second.requests)?;
    bench.delete(other.0, other.1).await?;
    Ok(notes.verdict())
}
