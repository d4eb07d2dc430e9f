//! Changes of ports: each is carried out, and the way back ends where it began.

use anyhow::{Context as _, bail, ensure};
use skysail_provider::{Code, LoadBalancerStatus, Protocol, Service, ServicePort};

use super::{Judged, Notes};
use crate::commands::{
    call,
    test::{
        bench::{Bench, Made},
        requests::{Sent, mentions},
    },
};

/// A change of a Service.
struct Change {
    name: &'static str,
    change: fn(&mut Service),
    /// Words of the Service that the change replaces; none if every cloud has to be told.
    words: Option<fn(&Service) -> Vec<String>>,
}

const CHANGES: [Change; 9] = [
    Change {
        name: "another port",
        change: |service| each(service, |port| port.port = port.port.wrapping_add(1).max(1)),
        words: Some(|service| service.ports.iter().map(|port| port.port.to_string()).collect()),
    },
    Change { name: "another node port", change: |service| each(service, other_node_port), words: Some(node_ports) },
    Change {
        name: "exchanged node ports",
        change: |service| {
            if let [one, other, ..] = service.ports.as_mut_slice() {
                std::mem::swap(&mut one.node_port, &mut other.node_port);
            }
        },
        words: Some(node_ports),
    },
    Change {
        name: "another name of a port",
        change: |service| each(service, |port| port.name.push('x')),
        words: UNTOLD,
    },
    Change {
        name: "another target port",
        change: |service| each(service, |port| "8081".clone_into(&mut port.target_port)),
        words: UNTOLD,
    },
    Change {
        name: "another application protocol",
        change: |service| each(service, |port| port.app_protocol = Some("kubernetes.io/h2c".to_owned())),
        words: UNTOLD,
    },
    Change {
        name: "another protocol",
        change: |service| each(service, other_protocol),
        words: Some(|service| service.ports.iter().map(|port| format!("{:?}", port.protocol).to_lowercase()).collect()),
    },
    Change { name: "one port less", change: |service| service.ports.truncate(1), words: None },
    Change { name: "one port more", change: one_more, words: None },
];

/// Load balancers that forward to node ports need not know the field.
const UNTOLD: Option<fn(&Service) -> Vec<String>> = Some(|_| Vec::new());

fn each(service: &mut Service, change: impl Fn(&mut ServicePort)) {
    service.ports.iter_mut().for_each(change);
}

fn node_ports(service: &Service) -> Vec<String> {
    service.ports.iter().filter(|port| port.node_port > 0).map(|port| port.node_port.to_string()).collect()
}

const fn other_node_port(port: &mut ServicePort) {
    if port.node_port > 0 {
        port.node_port = port.node_port.saturating_add(200);
    }
}

const fn other_protocol(port: &mut ServicePort) {
    port.protocol = match port.protocol {
        Protocol::Tcp => Protocol::Udp,
        Protocol::Udp | Protocol::Sctp => Protocol::Tcp,
    };
}

fn one_more(service: &mut Service) {
    let last = service.ports.last().cloned();
    service.ports.extend(last.map(|last| ServicePort {
        name: format!("{}-more", last.name),
        port: last.port.wrapping_add(3).max(1),
        node_port: if last.node_port > 0 { last.node_port.saturating_add(300) } else { 0 },
        ..last
    }));
}

/// Every field of a port, one more and one less.
pub(super) async fn every_field_of_a_port(bench: &mut Bench) -> Judged {
    let (cluster, nodes, service) = (bench.plan.cluster.clone(), bench.plan.nodes.clone(), bench.service("ports"));
    let mut notes = Notes::default();
    let mut current = bench.ensure(&cluster, &service, &nodes).await?;
    let creation = current.requests.clone();
    for change in &CHANGES {
        let mut changed = service.clone();
        (change.change)(&mut changed);
        if changed == service {
            continue;
        }
        current = carried_out(bench, &service, &changed, (change, &creation, &current), &mut notes)
            .await
            .with_context(|| change.name)?;
    }
    bench.delete(&cluster, &service).await?;
    Ok(notes.verdict())
}

type Created = Made<LoadBalancerStatus>;

/// Changes the Service and takes the change back; returns the last `ensure` of the first Service.
async fn carried_out(
    bench: &mut Bench,
    service: &Service,
    changed: &Service,
    (change, creation, first): (&Change, &[Sent], &Created),
    notes: &mut Notes,
) -> anyhow::Result<Created> {
    let (cluster, nodes) = (bench.plan.cluster.clone(), bench.plan.nodes.clone());
    let must_write = change.words.is_none_or(|words| words(service).iter().any(|word| mentions(creation, word)));
    let has_written = |requests: &[Sent]| !must_write || requests.iter().any(|request| request.writes);
    let attempt = bench.ensure_once(&cluster, changed, &nodes).await?;
    let forth = match attempt.answer {
        Ok(answer) => Made { answer, requests: attempt.requests },
        Err(error) if matches!(error.code, Code::Invalid | Code::Unsupported) => {
            notes.add(format!("{}: refused with {}", change.name, call::failure(&error)));
            let back = bench.ensure(&cluster, service, &nodes).await?;
            notes.nothing_changed("`ensure` after a refused change", &back.requests, &first.requests)?;
            return Ok(Made { answer: back.answer, requests: [first.requests.clone(), back.requests].concat() });
        }
        Err(error) if error.code == Code::RetryAfter => {
            let rest = bench.ensure(&cluster, changed, &nodes).await?;
            Made { answer: rest.answer, requests: [attempt.requests, rest.requests].concat() }
        }
        Err(error) => bail!("`ensure` returned {}", call::failure(&error)),
    };
    ensure!(has_written(&forth.requests), "`ensure` of the changed Service sent no write, so that the change is lost");
    let again = bench.ensure(&cluster, changed, &nodes).await?;
    notes.nothing_changed("a second `ensure` of the changed Service", &again.requests, &forth.requests)?;
    let back = bench.ensure(&cluster, service, &nodes).await?;
    ensure!(
        has_written(&back.requests),
        "`ensure` of the Service as it was before sent no write, so that the change stays"
    );
    let again = bench.ensure(&cluster, service, &nodes).await?;
    notes.nothing_changed("a second `ensure` of the Service as it was before", &again.requests, &back.requests)?;
    ensure!(
        again.answer == back.answer,
        "a second `ensure` returned another status: {:?}, and the first {:?}",
        again.answer,
        back.answer
    );
    Ok(back)
}

#[cfg(test)]
mod tests {
    use super::{CHANGES, ServicePort};
    use crate::commands::test::input;

    #[test]
    fn every_change_changes_the_default_service_and_keeps_its_ports_apart() {
        let service = input::service(None).unwrap();
        for change in &CHANGES {
            let mut changed = service.clone();
            (change.change)(&mut changed);
            assert_ne!(changed, service, "{}", change.name);
            for key in [|port: &ServicePort| port.port, |port: &ServicePort| port.node_port] {
                let mut numbers: Vec<_> = changed.ports.iter().map(key).collect();
                numbers.sort_unstable();
                numbers.dedup();
                assert_eq!(numbers.len(), changed.ports.len(), "{}", change.name);
            }
        }
    }
}
