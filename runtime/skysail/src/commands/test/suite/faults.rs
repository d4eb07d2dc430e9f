//! Requests of `ensure` that fail, one after the other: the component says why, and the next call
//! completes the work.

use anyhow::{Context as _, bail, ensure};
use skysail_host::{Disturbance, DisturbedRequest};
use skysail_provider::{Code, Error, Ingress, LoadBalancerStatus, NodeSet, Service};
use tokio::time::sleep;

use super::{Judged, Notes, Verdict};
use crate::commands::{
    call,
    test::{
        bench::{Bench, Made, pause},
        requests::{Sent, repeats},
    },
};

/// The failure in a message.
pub(super) fn name(disturbance: Disturbance) -> String {
    match disturbance {
        Disturbance::RateLimit => "429 with Retry-After".to_owned(),
        Disturbance::Status(status) => status.to_string(),
        Disturbance::CutBefore => "a cut connection".to_owned(),
        Disturbance::CutAfter => "a lost answer".to_owned(),
    }
}

/// The codes that the component may return.
const fn codes(disturbance: Disturbance) -> &'static [Code] {
    match disturbance {
        Disturbance::RateLimit => &[Code::RetryAfter],
        Disturbance::Status(_) | Disturbance::CutBefore | Disturbance::CutAfter => {
            &[Code::Unavailable, Code::RetryAfter]
        }
    }
}

pub(super) async fn rate_limit(bench: &mut Bench) -> Judged {
    each_request(bench, Disturbance::RateLimit).await
}

pub(super) async fn server_error(bench: &mut Bench) -> Judged {
    each_request(bench, Disturbance::Status(500)).await
}

pub(super) async fn outage(bench: &mut Bench) -> Judged {
    each_request(bench, Disturbance::Status(503)).await
}

pub(super) async fn cut_connection(bench: &mut Bench) -> Judged {
    each_request(bench, Disturbance::CutBefore).await
}

pub(super) async fn lost_answer(bench: &mut Bench) -> Judged {
    each_request(bench, Disturbance::CutAfter).await
}

/// One request fails, at each place in turn.
async fn each_request(bench: &mut Bench, disturbance: Disturbance) -> Judged {
    let (cluster, nodes, most) = (bench.plan.cluster.clone(), bench.plan.nodes.clone(), bench.plan.fault_requests);
    if most == 0 {
        return Ok(Verdict::NotTested("--fault-requests is 0".to_owned()));
    }
    let mut notes = Notes::default();
    let service = bench.service("faults");
    let entries = bench.inventory(&cluster).await?.map(|listed| listed.len());
    let whole = bench.ensure(&cluster, &service, &nodes).await?;
    bench.delete(&cluster, &service).await?;
    for place in 0..most {
        let Some((request, made)) = disturbed(bench, &service, &nodes, (place, disturbance)).await? else {
            if place == 0 {
                return Ok(Verdict::NotTested("`ensure` sent no request".to_owned()));
            }
            bench.delete(&cluster, &service).await?;
            return Ok(notes.verdict());
        };
        let there =
            format!("{} for request {} of `ensure` ({} {})", name(disturbance), place + 1, request.method, request.url);
        judge(disturbance, &request, &made).with_context(|| there.clone())?;
        completed(bench, &service, (&whole, entries), &mut notes).await.with_context(|| format!("after {there}"))?;
    }
    notes.add(format!("only the first {most} requests failed; --fault-requests lets more fail"));
    Ok(notes.verdict())
}

type Attempt = Made<Result<LoadBalancerStatus, Error>>;

/// Calls `ensure` until the request at this place has failed; none if the component finished
/// before.
async fn disturbed(
    bench: &mut Bench,
    service: &Service,
    nodes: &NodeSet,
    (place, disturbance): (u32, Disturbance),
) -> anyhow::Result<Option<(DisturbedRequest, Attempt)>> {
    let cluster = bench.plan.cluster.clone();
    bench.disturber.disturb(place, disturbance);
    let began = tokio::time::Instant::now();
    loop {
        let made = bench.ensure_once(&cluster, service, nodes).await?;
        if let Some(request) = bench.disturber.met() {
            bench.disturber.end();
            return Ok(Some((request, made)));
        }
        match &made.answer {
            Ok(_) => {
                bench.disturber.end();
                return Ok(None);
            }
            Err(error) if error.code == Code::RetryAfter && began.elapsed() < bench.plan.wait => {
                sleep(pause(error)).await;
            }
            Err(error) => bail!("no request failed, and `ensure` returned {}", call::failure(error)),
        }
    }
}

fn judge(disturbance: Disturbance, request: &DisturbedRequest, made: &Attempt) -> anyhow::Result<()> {
    let DisturbedRequest { method, url } = request;
    let writes = |sent: &&Sent| sent.writes && (&sent.method, &sent.url) == (method, url);
    match &made.answer {
        // A read that only saves work may fail, and a request may be repeated within the call.
        Ok(_) => ensure!(
            made.requests.iter().find(writes).is_none() || repeats(&made.requests, method, url),
            "`ensure` returned ok, although its write failed and was not repeated"
        ),
        Err(error) if codes(disturbance).contains(&error.code) => {}
        Err(error) => {
            let right: Vec<_> = codes(disturbance).iter().map(|code| code.category()).collect();
            bail!("`ensure` returned {}; the right code is {}", call::failure(error), right.join(" or "))
        }
    }
    Ok(())
}

/// The next `ensure` ends as one without a failure, and a deletion leaves nothing.
async fn completed(
    bench: &mut Bench,
    service: &Service,
    (whole, entries): (&Made<LoadBalancerStatus>, Option<usize>),
    notes: &mut Notes,
) -> anyhow::Result<()> {
    let (cluster, nodes) = (bench.plan.cluster.clone(), bench.plan.nodes.clone());
    let next = bench.ensure(&cluster, service, &nodes).await?;
    ensure!(
        form(&next.answer) == form(&whole.answer),
        "the next `ensure` returned {:?}, and without the failure {:?}",
        next.answer,
        whole.answer
    );
    let idle = bench.ensure(&cluster, service, &nodes).await?;
    let before = [whole.requests.clone(), next.requests].concat();
    notes.nothing_changed("the `ensure` after the next one", &idle.requests, &before)?;
    if let (Some(entries), Some(listed)) = (entries, bench.inventory(&cluster).await?) {
        ensure!(
            listed.len() == entries + 1,
            "the inventory has {} entries for one load balancer: {listed:?}",
            listed.len().saturating_sub(entries)
        );
    }
    bench.delete(&cluster, service).await?;
    let found = bench.get(&cluster, service).await?;
    ensure!(found.is_none(), "`get` returned {found:?} after `ensure-deleted`");
    if let (Some(entries), Some(listed)) = (entries, bench.inventory(&cluster).await?) {
        ensure!(listed.len() == entries, "the inventory still lists {listed:?} after `ensure-deleted`");
    }
    Ok(())
}

/// A status without its addresses, which differ between two load balancers.
fn form(status: &LoadBalancerStatus) -> Vec<Ingress> {
    let form = |ingress: &Ingress| Ingress {
        ip: ingress.ip.as_ref().map(|_| String::new()),
        hostname: ingress.hostname.as_ref().map(|_| String::new()),
        ..ingress.clone()
    };
    status.ingress.iter().map(form).collect()
}

#[cfg(test)]
mod tests {
    use skysail_host::{Disturbance, DisturbedRequest};
    use skysail_provider::{Code, Error, LoadBalancerStatus};

    use super::judge;
    use crate::commands::test::{bench::Made, requests::Sent};

    fn judged(disturbance: Disturbance, method: &str, times: usize, answer: Result<(), Code>) -> Option<String> {
        let url = "https://cloud.example.com/a".to_owned();
        let sent =
            Sent { method: method.to_owned(), url: url.clone(), body: None, status: None, writes: method != "GET" };
        let made = Made {
            answer: answer.map(|()| LoadBalancerStatus::default()).map_err(|code| Error::new(code, "why")),
            requests: vec![sent; times],
        };
        judge(disturbance, &DisturbedRequest { method: method.to_owned(), url }, &made)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn the_right_code_depends_on_the_failure_and_is_never_not_found() {
        for disturbance in [Disturbance::Status(500), Disturbance::CutBefore, Disturbance::CutAfter] {
            assert_eq!(judged(disturbance, "GET", 1, Err(Code::Unavailable)), None);
            let wrong = judged(disturbance, "GET", 1, Err(Code::NotFound)).unwrap();
            assert_eq!(wrong, "`ensure` returned NotFound: why; the right code is Unavailable or RetryAfter");
        }
        assert_eq!(judged(Disturbance::RateLimit, "PUT", 1, Err(Code::RetryAfter)), None);
        let wrong = judged(Disturbance::RateLimit, "PUT", 1, Err(Code::Unavailable)).unwrap();
        assert_eq!(wrong, "`ensure` returned Unavailable: why; the right code is RetryAfter");
    }

    #[test]
    fn a_call_may_succeed_if_a_read_failed_or_a_write_was_repeated() {
        assert_eq!(judged(Disturbance::Status(503), "GET", 1, Ok(())), None);
        assert_eq!(judged(Disturbance::Status(503), "PUT", 2, Ok(())), None);
        let lost = judged(Disturbance::Status(503), "PUT", 1, Ok(())).unwrap();
        assert_eq!(lost, "`ensure` returned ok, although its write failed and was not repeated");
    }
}
