//! Looks up the machines of many nodes in pages (provider).

use std::{net::IpAddr, sync::Arc};

use skysail_provider::{AddressKind, Code, Detail, Error, Instance, Interface, NODES_PER_PAGE, NodeSet, Result};

use crate::{context::Context, lane::Lane, names::controllers};

/// One result for each node, in the order of the set. If a whole page failed, each of its nodes
/// gets the page's error. If the provider's settings switch the look-up off, the results say
/// nothing, and [`Lane::instances`] is none afterwards.
pub(crate) async fn describe(
    context: &Context,
    lane: &Arc<Lane>,
    nodes: &NodeSet,
    detail: Detail,
) -> Vec<Result<Instance>> {
    let mut results = Vec::with_capacity(nodes.len());
    let page_nodes = lane.provider.info().map_or(NODES_PER_PAGE, |info| info.page_nodes);
    for page in nodes.pages(page_nodes) {
        if let Some(error) = refusal_of_pages(lane) {
            results.extend((0..page.len()).map(|_| Err(error.clone())));
        } else {
            results.extend(describe_page(context, lane, page, detail).await);
        }
    }
    results
}

/// One result for each node of the page. If the guest traps or exceeds a limit, the function asks
/// for each half separately, and halves again while only one half fails: one node that crashes the
/// guest (its kubelet writes its annotations) must not block the look-up of hundreds of others. If
/// both halves fail, the cause is not a single node, and the function stops after three calls;
/// otherwise a page costs two calls for each halving, at most 18 more.
async fn describe_page(context: &Context, lane: &Arc<Lane>, page: NodeSet, detail: Detail) -> Vec<Result<Instance>> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut rest = page;
    let mut answer = ask(context, lane, &rest, detail).await;
    while rest.len() > 1 && answer.as_ref().is_err_and(breaks_the_guest) && !lane.stop.is_cancelled() {
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

/// Whether a single node may have caused the error. An error that the provider returns, an
/// unreachable cloud and a deadline are not caused by a node.
fn breaks_the_guest(error: &Error) -> bool {
    matches!(error.code, Code::Trapped | Code::LimitExceeded)
}

fn halves(nodes: &NodeSet) -> (NodeSet, NodeSet) {
    let (left, right) = nodes.as_slice().split_at(nodes.len() / 2);
    (NodeSet::new(left.iter().cloned()), NodeSet::new(right.iter().cloned()))
}

/// One call of `instances.describe`; returns exactly one result for each node.
async fn ask(context: &Context, lane: &Arc<Lane>, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
    // A call about many nodes names no object.
    let call = context.call(lane, None);
    // Fetched for each call, because a swap may replace the release in between.
    let answer = match lane.provider.instances() {
        Some(instances) => instances.describe(&call, nodes, detail).await,
        None => Err(Error::new(Code::NotServing, "the provider has no instances, or no release of it serves")),
    };
    if !context.is_configured(lane, controllers::CLOUD_NODE, (Interface::Instances, &answer)) {
        return Err(switched_off());
    }
    match answer {
        Ok(results) if results.len() != nodes.len() => {
            let text = format!("the provider returned {} results for {} nodes", results.len(), nodes.len());
            Err(Error::new(Code::Internal, &text))
        }
        // NotFound for the whole call says nothing about a single machine and must never count as
        // "the machine does not exist".
        Err(error) if error.code == Code::NotFound => Err(Error::new(
            Code::Internal,
            format!(
                "the provider returned NotFound for the whole call instead of for each node, so no node is treated as missing: {}",
                error.message
            ),
        )),
        Ok(results) => Ok(results.into_iter().map(|result| judged_for(context, lane, result, detail)).collect()),
        Err(error) => Err(error),
    }
}

/// Why no further page may be sent. A provider that was removed is not called again, and a shutdown
/// starts nothing new.
fn refusal_of_pages(lane: &Lane) -> Option<Error> {
    if lane.stop.is_cancelled() {
        let text = "the provider was removed, or the manager is shutting down";
        return Some(Error::new(Code::NotServing, text));
    }
    lane.off_for(Interface::Instances).map(|_| switched_off())
}

fn switched_off() -> Error {
    Error::new(Code::NotServing, "the settings of the provider do not configure instances")
}

/// Checks the addresses of a machine, unless only its state was asked for.
fn judged_for(context: &Context, lane: &Arc<Lane>, result: Result<Instance>, detail: Detail) -> Result<Instance> {
    match detail {
        Detail::Metadata => result.and_then(|instance| judged(context, lane, instance)),
        Detail::State => result,
    }
}

/// Rejects a machine with an address that the provider may not assign to a node.
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
