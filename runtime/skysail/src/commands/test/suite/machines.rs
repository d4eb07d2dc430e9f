//! Machines: described by ID and by name, and `not-found` only where the cloud has none.

use std::sync::Arc;

use anyhow::{anyhow, bail, ensure};
use skysail_host::Disturbance;
use skysail_provider::{Code, Detail, Error, Instance, Node, NodeSet, Result};

use super::{Judged, Notes, Verdict};
use crate::commands::{call, test::bench::Bench};

/// More requests than a page of nodes needs.
const PLACES_MAX: u32 = 100;

const DISTURBANCES: [Disturbance; 5] = [
    Disturbance::RateLimit,
    Disturbance::Status(500),
    Disturbance::Status(503),
    Disturbance::CutBefore,
    Disturbance::CutAfter,
];

/// The answers for a set of nodes, in its order; none if the settings switch the interface off.
async fn described(
    bench: &mut Bench,
    nodes: &NodeSet,
    detail: Detail,
) -> anyhow::Result<Option<Vec<Result<Instance>>>> {
    let made = bench.machines(nodes, detail).await?;
    match made.answer {
        Ok(answers) => Ok(Some(answers)),
        Err(error) if error.code == Code::Unsupported => Ok(None),
        Err(error) => Err(anyhow!("`describe` returned {}", call::failure(&error))),
    }
}

fn switched_off() -> Verdict {
    Verdict::NotTested("the settings of the component switch `instances` off".to_owned())
}

/// The machines of the author, by ID and by name, with all fields and with the state alone.
pub(super) async fn known_machines_are_described(bench: &mut Bench) -> Judged {
    let (nodes, mut notes) = (bench.plan.nodes.clone(), Notes::default());
    for detail in [Detail::State, Detail::Metadata] {
        let Some(answers) = described(bench, &nodes, detail).await? else { return Ok(switched_off()) };
        for (node, answer) in nodes.as_slice().iter().zip(answers) {
            let id = node.provider_id.clone().unwrap_or_default();
            match answer {
                Ok(instance) if instance.provider_id == id || instance.without_provider_id => {}
                Ok(instance) => bail!("the machine {id} of {} was described as {:?}", node.name, instance.provider_id),
                Err(error) => {
                    bail!("the machine {id} of {} exists, and `describe` returned {}", node.name, call::failure(&error))
                }
            }
        }
    }
    let by_name = NodeSet::new(
        nodes
            .as_slice()
            .iter()
            .map(|node| Arc::new(Node { provider_id: None, addresses: Vec::new(), ..(**node).clone() })),
    );
    let answers = described(bench, &by_name, Detail::Metadata).await?.unwrap_or_default();
    for (node, answer) in nodes.as_slice().iter().zip(answers) {
        match answer {
            Ok(instance)
                if Some(&instance.provider_id) == node.provider_id.as_ref() || instance.without_provider_id => {}
            Ok(instance) => bail!(
                "the name {:?} is that of the machine {}, and by its name `describe` found {:?}",
                node.name,
                node.provider_id.as_deref().unwrap_or_default(),
                instance.provider_id
            ),
            Err(error) => notes.add(format!(
                "{} is not found by its name ({}); a node without a provider ID is initialised only if it is",
                node.name,
                call::failure(&error)
            )),
        }
    }
    Ok(notes.verdict())
}

/// Nodes for which no machine exists: a name that no machine has, an ID that was not given out, and
/// an ID of another provider.
fn unknown_nodes(known: &Node) -> [Node; 3] {
    let node = |name: &str, provider_id| Node { name: name.to_owned(), provider_id, ..Node::default() };
    [
        node("skysail-test-foreign", Some("elsewhere://1".to_owned())),
        node("skysail-test-never-by-id", known.provider_id.as_deref().map(another_id)),
        node("skysail-test-never-by-name", None),
    ]
}

/// An ID of the same form with other digits in its last part.
fn another_id(id: &str) -> String {
    let (start, last) = id.rsplit_once('/').map_or(("", id), |(start, last)| (start, last));
    let other = |c: char| c.to_digit(10).and_then(|digit| char::from_digit(9 - digit, 10)).unwrap_or(c);
    let start = if start.is_empty() { String::new() } else { format!("{start}/") };
    format!("{start}{}", last.chars().map(other).collect::<String>())
}

/// `not-found` says that a machine certainly does not exist; the ID of another provider is
/// `invalid`.
pub(super) async fn a_machine_that_never_was_is_not_found(bench: &mut Bench) -> Judged {
    let mut notes = Notes::default();
    let nodes = bench.plan.nodes.clone();
    let known = nodes.as_slice().first().ok_or_else(|| anyhow!("no machine is named"))?;
    let unknown = NodeSet::new(unknown_nodes(known).map(Arc::new));
    let Some(answers) = described(bench, &unknown, Detail::State).await? else { return Ok(switched_off()) };
    for (node, answer) in unknown.as_slice().iter().zip(answers) {
        let what = match &node.provider_id {
            Some(id) => format!("the machine {id}"),
            None => format!("a machine of the name {:?}", node.name),
        };
        let is_foreign = node.name == "skysail-test-foreign";
        match answer {
            Err(error) if is_foreign && error.code == Code::Invalid => {}
            Err(error) if !is_foreign && matches!(error.code, Code::NotFound | Code::Invalid) => {}
            // The name may be known only while the machine runs.
            Err(error) if node.provider_id.is_none() && error.code == Code::Unavailable => notes.add(format!(
                "{what} is {}, so that a node whose machine is gone before it is initialised stays",
                call::failure(&error)
            )),
            Err(error) if is_foreign => bail!(
                "{what} belongs to another provider, and `describe` returned {}; the right code is Invalid",
                call::failure(&error)
            ),
            Err(error) => bail!(
                "{what} never existed, and `describe` returned {}; the right code is NotFound",
                call::failure(&error)
            ),
            Ok(instance) if node.provider_id.as_ref() == Some(&instance.provider_id) && !is_foreign => {
                notes.add(format!("{what} exists by chance, so that no unknown ID was tested"));
            }
            Ok(instance) => bail!("{what} never existed, and `describe` described {:?}", instance.provider_id),
        }
    }
    Ok(notes.verdict())
}

/// Known and unknown machines in one page, and an empty page.
pub(super) async fn a_page_has_one_answer_for_each_node(bench: &mut Bench) -> Judged {
    let known = bench.plan.nodes.clone();
    let first = known.as_slice().first().ok_or_else(|| anyhow!("no machine is named"))?;
    let page = bench.provider().info().map_or(1, |info| info.page_nodes);
    let both = known.as_slice().iter().cloned().chain(unknown_nodes(first).map(Arc::new));
    let both = NodeSet::new(both.take(page.max(2)));
    if both.len() > page {
        return Ok(Verdict::NotTested(format!("the component asks for pages of {page} node")));
    }
    let Some(answers) = described(bench, &both, Detail::State).await? else { return Ok(switched_off()) };
    ensure!(answers.len() == both.len(), "a page of {} nodes has {} answers", both.len(), answers.len());
    for (node, answer) in both.as_slice().iter().zip(answers) {
        let is_known = known.as_slice().iter().any(|known| known.name == node.name);
        let id = answer.as_ref().ok().map(|instance| &instance.provider_id);
        ensure!(
            !is_known || id == node.provider_id.as_ref() || answer.as_ref().is_ok_and(|one| one.without_provider_id),
            "beside nodes without a machine, the answer for {} is {answer:?}",
            node.name
        );
    }
    let answers = described(bench, &NodeSet::new([]), Detail::State).await?.unwrap_or_default();
    ensure!(answers.is_empty(), "a page without nodes has {} answers", answers.len());
    Ok(Verdict::Passed)
}

/// Whatever a request of the look-up meets, no machine that exists is reported as gone: the host
/// would delete its node.
pub(super) async fn a_failed_request_makes_no_machine_not_found(bench: &mut Bench) -> Judged {
    let (nodes, mut reached) = (bench.plan.nodes.clone(), false);
    for disturbance in DISTURBANCES {
        for place in 0..PLACES_MAX {
            bench.disturber.disturb(place, disturbance);
            let made = bench.machines(&nodes, Detail::Metadata).await;
            let met = bench.disturber.met();
            bench.disturber.end();
            let Some(request) = met else { break };
            reached = true;
            let there = format!("{} for {} {}", super::faults::name(disturbance), request.method, request.url);
            let answers = match made?.answer {
                Err(error) => vec![Err(error)],
                Ok(answers) => answers,
            };
            let gone =
                |answer: &&Result<Instance, Error>| answer.as_ref().is_err_and(|error| error.code == Code::NotFound);
            if let Some(Err(error)) = answers.iter().find(gone) {
                bail!(
                    "{there}: `describe` reported a machine that exists as gone ({}), and the host would delete its node",
                    call::failure(error)
                );
            }
            wait_as_told(&answers).await;
        }
    }
    Ok(if reached { Verdict::Passed } else { Verdict::NotTested("`describe` sent no request".to_owned()) })
}

/// The component may remember a rate limit until its end.
async fn wait_as_told(answers: &[Result<Instance, Error>]) {
    let waits = answers.iter().filter_map(|answer| answer.as_ref().err()?.retry_after);
    if let Some(wait) = waits.max() {
        tokio::time::sleep(wait.min(std::time::Duration::from_secs(5))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::another_id;

    #[test]
    fn another_id_has_the_same_form_and_other_digits() {
        for (id, other) in [
            ("harbor://m-1", "harbor://m-8"),
            ("aws:///eu-west-1a/i-0abc", "aws:///eu-west-1a/i-9abc"),
            ("cn-hangzhou.i-20", "cn-hangzhou.i-79"),
        ] {
            assert_eq!(another_id(id), other);
        }
    }
}
