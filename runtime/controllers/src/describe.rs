//! Looks up the machines of many nodes in pages (provider).

use std::{net::IpAddr, sync::Arc};

use skysail_provider::{AddressKind, Code, Detail, Error, Instance, NODES_PER_PAGE, NodeSet, Result};

use crate::{context::Context, lane::Lane};

/// One result for each node, in the order of the set; where a page failed as a whole, its error for
/// each of its nodes.
pub(crate) async fn describe(
    context: &Context,
    lane: &Arc<Lane>,
    nodes: &NodeSet,
    detail: Detail,
) -> Vec<Result<Instance>> {
    let mut results = Vec::with_capacity(nodes.len());
    for page in nodes.pages(NODES_PER_PAGE) {
        results.extend(describe_page(context, lane, page, detail).await);
    }
    results
}

/// One result for each node of the page. Where the guest breaks on it, the halves are asked about,
/// and so on while only one of the two breaks: a node that no provider can stand (its annotations
/// are its kubelet's to write) must not keep hundreds of others from their machines. Where both
/// halves break it is not one node's doing, and three calls have shown it; else a page costs two
/// calls for each halving, 18 at most.
async fn describe_page(context: &Context, lane: &Arc<Lane>, page: NodeSet, detail: Detail) -> Vec<Result<Instance>> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut rest = page;
    let mut answer = ask(context, lane, &rest, detail).await;
    while rest.len() > 1 && answer.as_ref().is_err_and(breaks_the_guest) {
        let (left, right) = halves(&rest);
        match (ask(context, lane, &left, detail).await, ask(context, lane, &right, detail).await) {
            (Err(_), Err(_)) => break,
            (Ok(results), other) => {
                before.extend(results);
                (rest, answer) = (right, other);
            }
            (other, Ok(mut results)) => {
                results.append(&mut after);
                after = results;
                (rest, answer) = (left, other);
            }
        }
    }
    before.extend(answer.unwrap_or_else(|error| (0..rest.len()).map(|_| Err(error.clone())).collect()));
    before.extend(after);
    before
}

/// One of its nodes may have done it. What a provider says in order, a cloud that does not answer
/// and a deadline are no node's doing.
fn breaks_the_guest(error: &Error) -> bool {
    matches!(error.code, Code::Trapped | Code::LimitExceeded)
}

fn halves(nodes: &NodeSet) -> (NodeSet, NodeSet) {
    let (left, right) = nodes.as_slice().split_at(nodes.len() / 2);
    (NodeSet::new(left.iter().cloned()), NodeSet::new(right.iter().cloned()))
}

/// One call; its results are as many as the nodes.
async fn ask(context: &Context, lane: &Arc<Lane>, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
    // Many nodes are no one object.
    let call = context.call(lane, None);
    // Asked again for each call: a swap may come in between.
    let answer = match lane.provider.instances() {
        Some(instances) => instances.describe(&call, nodes, detail).await,
        None => Err(Error::new(Code::NotServing, "the provider has no instances, or no release of it serves")),
    };
    match answer {
        Ok(results) if results.len() != nodes.len() => {
            let text = format!("the provider gave {} results for {} nodes", results.len(), nodes.len());
            Err(Error::new(Code::Internal, &text))
        }
        // NotFound of the whole call is no word about any one machine: it must never read as
        // "gone".
        Err(error) if error.code == Code::NotFound => {
            Err(Error::new(Code::Internal, format!("the look-up itself was not found: {}", error.message)))
        }
        Ok(results) => Ok(results.into_iter().map(|result| judged_for(context, lane, result, detail)).collect()),
        Err(error) => Err(error),
    }
}

/// Only where more than its existence is asked: otherwise its addresses are not needed.
fn judged_for(context: &Context, lane: &Arc<Lane>, result: Result<Instance>, detail: Detail) -> Result<Instance> {
    match detail {
        Detail::Metadata => result.and_then(|instance| judged(context, lane, instance)),
        Detail::State => result,
    }
}

/// A machine whose addresses the provider may give to a node.
fn judged(context: &Context, lane: &Arc<Lane>, instance: Instance) -> Result<Instance> {
    let rules = lane.addresses();
    let is_ip = |kind: &AddressKind| matches!(kind, AddressKind::InternalIp | AddressKind::ExternalIp);
    let ips = instance.addresses.iter().filter(|address| is_ip(&address.kind));
    let refusal = ips
        .filter_map(|address| address.address.parse::<IpAddr>().ok())
        .find_map(|ip| rules.refuse_node(ip).or_else(|| context.refuse_cluster_ip(ip)));
    match refusal {
        Some(refusal) => Err(Error::new(Code::Internal, format!("the machine's address {refusal}"))),
        None => Ok(instance),
    }
}
