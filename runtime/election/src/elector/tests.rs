//! Elections on the in-memory API, under a paused clock. B19 is the case about leaders.
//! IDs: tests/conformance/README.md; lessons: deploy/docs/lessons.md.

mod race;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{ConfigMap, Event},
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;
use skysail_dev::api::{ApiError, ApiOptions, ApiServer, Fault, RequestInfo};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Elector, ElectorOptions};
use crate::{Clock, ElectionConfig, ElectionMetrics, Health, Leader, Timing};

const S: Duration = Duration::from_secs(1);

/// A machine's clocks: tokio's clock with an offset, a rate, and another wall-clock time.
#[derive(Clone)]
struct TestClock {
    began: Instant,
    ahead: Arc<AtomicU64>,
    speed: f64,
    wrong_by: SignedDuration,
}

impl TestClock {
    fn new() -> Self {
        Self { began: Instant::now(), ahead: Arc::default(), speed: 1.0, wrong_by: SignedDuration::ZERO }
    }

    /// Freezes the process for this time, unnoticed by its timers.
    fn freeze(&self, time: Duration) {
        self.ahead.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn elapsed(&self) -> Duration {
        self.began.elapsed().mul_f64(self.speed) + Duration::from_millis(self.ahead.load(Ordering::SeqCst))
    }

    fn now(&self) -> Timestamp {
        let epoch = ApiOptions::default().epoch;
        epoch + SignedDuration::try_from(self.began.elapsed()).unwrap() + self.wrong_by
    }
}

struct World {
    server: Arc<ApiServer>,
    metrics: ElectionMetrics,
    registry: Registry,
    began: Instant,
}

impl World {
    fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = ElectionMetrics::register(&mut registry);
        Self { server: ApiServer::new(&ApiOptions::default()), metrics, registry, began: Instant::now() }
    }

    fn elector_with(&self, identity: &str, clock: TestClock) -> Elector {
        let config = ElectionConfig {
            namespace: "kube-system".to_owned(),
            lease: "ccm".to_owned(),
            identity: identity.to_owned(),
            timing: Timing::default(),
        };
        let client = self.server.client();
        Elector::new(ElectorOptions { client, config, clock: Arc::new(clock), metrics: self.metrics.clone() })
    }

    fn elector(&self, identity: &str) -> Elector {
        self.elector_with(identity, TestClock::new())
    }

    async fn lead(&self, identity: &str) -> Leader {
        lead(self.elector(identity)).await
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.server.client(), "kube-system")
    }

    async fn spec(&self) -> LeaseSpec {
        self.leases().get("ccm").await.unwrap().spec.unwrap()
    }

    async fn events(&self) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.server.client(), "kube-system");
        api.list(&ListParams::default()).await.unwrap().items
    }

    fn disturb(&self, judge: impl Fn(&RequestInfo) -> Fault + Send + Sync + 'static) {
        self.server.set_faults(Some(Arc::new(judge)));
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics().lines().any(|found| found == line)
    }
}

/// Takes the lease, within 100 s.
async fn lead(elector: Elector) -> Leader {
    timeout(S * 100, elector.acquire(&CancellationToken::new()))
        .await
        .expect("the candidate should have acquired the lease")
        .unwrap()
}

fn internal() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "etcd is away")
}

fn conflict() -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "Conflict", "the object has been modified")
}

fn no_answer() -> ApiError {
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", "the server was not able to return a response in time")
}

#[tokio::test(start_paused = true)]
async fn b19_the_lease_is_written_as_client_go_writes_it() {
    let world = World::new();
    let leader = world.lead("host_1").await;
    let lease = world.leases().get("ccm").await.unwrap();
    let managers: BTreeSet<_> =
        lease.metadata.managed_fields.unwrap().into_iter().map(|f| f.manager.unwrap()).collect();
    assert_eq!(managers, BTreeSet::from(["skysail".to_owned()]));
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("host_1"));
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(0)));
    assert!(spec.acquire_time.is_some() && spec.acquire_time == spec.renew_time);
    sleep(S).await;
    let event = world.events().await.remove(0);
    assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Normal"), Some("LeaderElection")));
    assert_eq!(event.message.as_deref(), Some("host_1 became leader"));
    let about = event.involved_object;
    assert_eq!((about.kind.as_deref(), about.api_version.as_deref()), (Some("Lease"), Some("coordination.k8s.io/v1")));
    assert!(world.metric(r#"leader_election_master_status{name="ccm"} 1"#));
    assert!(leader.fence().check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn b19_a_leader_renews_every_two_seconds_by_one_write() {
    let world = World::new();
    let leader = world.lead("a").await;
    let (first, gets) = (world.spec().await, world.server.requests().count("get", "leases"));
    sleep(S * 60).await;
    assert_eq!(world.server.requests().count("get", "leases"), gets);
    assert_eq!(world.server.requests().count("update", "leases"), 29);
    let spec = world.spec().await;
    assert!(spec.renew_time > first.renew_time);
    assert_eq!((spec.acquire_time, spec.lease_transitions), (first.acquire_time, Some(0)));
    assert!(leader.fence().check().is_ok());
}

/// A difference of an hour between the wall clocks makes no difference.
#[tokio::test(start_paused = true)]
async fn b19_a_candidate_waits_a_lease_duration_by_its_own_clock_after_a_crash() {
    for hours in [-1, 1] {
        let world = World::new();
        let leader = world.lead("a").await;
        let clock = TestClock { wrong_by: SignedDuration::from_hours(hours), ..TestClock::new() };
        let fence = leader.fence().clone();
        let mut waiting = tokio::task::JoinSet::new();
        waiting.spawn(lead(world.elector_with("b", clock)));
        sleep(S * 30).await;
        assert!(waiting.try_join_next().is_none(), "the leader renews");
        drop(leader);
        let crashed = Instant::now();
        let second = waiting.join_next().await.unwrap().unwrap();
        let gap = crashed.elapsed();
        assert!((S * 13..S * 15 + S / 100).contains(&gap), "after {gap:?}");
        assert!(fence.check().is_err() && second.fence().check().is_ok());
        let spec = world.spec().await;
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("b"), Some(1)));
    }
}

/// The candidate sees each renewal, so it knows when the last one expires: a change of the leader
/// after a crash takes no longer than the lease lasts.
#[tokio::test(start_paused = true)]
async fn b19_a_candidate_takes_the_lease_when_it_expires() {
    let world = World::new();
    let leader = world.lead("a").await;
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(lead(world.elector("b")));
    sleep(S * 5).await;
    let asked = world.server.requests().count("get", "leases");
    sleep(S * 60 + S / 2).await;
    assert_eq!(
        world.server.requests().count("get", "leases"),
        asked,
        "a candidate that sees each renewal need not read the lease"
    );
    let renewed = world.spec().await.renew_time.unwrap().0;
    drop(leader);
    waiting.join_next().await.unwrap().unwrap();
    let acquired = world.spec().await.acquire_time.unwrap().0;
    let gap = Duration::try_from(acquired.duration_since(renewed)).unwrap();
    assert!((S * 15..S * 15 + S / 100).contains(&gap), "after {gap:?}");
}

/// Without a working watch (refused, broken repeatedly, or unanswered) the candidate reads the
/// lease every two to four seconds, as client-go does.
#[tokio::test(start_paused = true)]
async fn b19_a_candidate_without_a_working_watch_reads_the_lease_instead() {
    let forbidden = || Fault::Refuse(ApiError::new(StatusCode::FORBIDDEN, "Forbidden", "no watch on leases"));
    for fault in [forbidden(), Fault::DropWatchAfter(0), Fault::Latency(S * 3600)] {
        let world = World::new();
        let judged = fault.clone();
        world.disturb(move |request| if request.verb == "watch" { judged.clone() } else { Fault::None });
        let leader = world.lead("a").await;
        let mut waiting = tokio::task::JoinSet::new();
        waiting.spawn(lead(world.elector("b")));
        sleep(S * 60).await;
        assert!(waiting.try_join_next().is_none(), "the leader renews: {fault:?}");
        let renewed = world.spec().await.renew_time.unwrap().0;
        drop(leader);
        waiting.join_next().await.unwrap().unwrap();
        let acquired = world.spec().await.acquire_time.unwrap().0;
        let gap = Duration::try_from(acquired.duration_since(renewed)).unwrap();
        assert!((S * 15..S * 20).contains(&gap), "after {gap:?}: {fault:?}");
    }
}

/// Both candidates wait for the same moment.
#[tokio::test(start_paused = true)]
async fn b19_of_two_candidates_one_takes_the_lease_and_the_other_stands_by() {
    let world = World::new();
    let leader = world.lead("a").await;
    let mut waiting = tokio::task::JoinSet::new();
    for name in ["b", "c"] {
        waiting.spawn(lead(world.elector(name)));
    }
    sleep(S * 31).await;
    drop(leader);
    let crashed = Instant::now();
    let second = waiting.join_next().await.unwrap().unwrap();
    assert!(crashed.elapsed() < S * 15, "{:?}", crashed.elapsed());
    sleep(S * 30).await;
    assert!(waiting.try_join_next().is_none() && second.fence().check().is_ok());
    assert_eq!(world.spec().await.lease_transitions, Some(1));
}

/// Lesson 45: upstream keeps the lease, so no replica acts until it expires.
#[tokio::test(start_paused = true)]
async fn b19_a_lease_that_is_released_is_taken_at_once() {
    let world = World::new();
    let leader = world.lead("a").await;
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(lead(world.elector("b")));
    sleep(S * 30).await;
    let fence = leader.fence().clone();
    leader.release().await.unwrap();
    let released = Instant::now();
    assert!(fence.check().is_err());
    waiting.join_next().await.unwrap().unwrap();
    assert!(released.elapsed() < S / 10, "{:?}", released.elapsed());
    let messages: Vec<_> = world.events().await.into_iter().filter_map(|event| event.message).collect();
    assert!(messages.contains(&"a stopped leading".to_owned()), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn b19_without_permission_to_watch_a_released_lease_is_found_by_reading_it() {
    let world = World::new();
    world.disturb(|request| match request.verb {
        "watch" => Fault::Refuse(ApiError::new(StatusCode::FORBIDDEN, "Forbidden", "no watch on leases")),
        _ => Fault::None,
    });
    let leader = world.lead("a").await;
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(lead(world.elector("b")));
    sleep(S * 30).await;
    leader.release().await.unwrap();
    let released = Instant::now();
    waiting.join_next().await.unwrap().unwrap();
    assert!(released.elapsed() < S * 5, "{:?}", released.elapsed());
}

/// Nothing is written after the release, not even by the leader's client.
#[tokio::test(start_paused = true)]
async fn b19_the_release_is_the_last_write() {
    let world = World::new();
    let leader = world.lead("a").await;
    let maps: Api<ConfigMap> =
        Api::namespaced(crate::fenced(&world.server.client(), leader.fence().clone()), "default");
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "m" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    leader.release().await.unwrap();
    assert!(maps.delete("m", &DeleteParams::default()).await.is_err());
    let writes = world.server.requests().recent().into_iter().map(|request| request.info);
    let writes: Vec<_> = writes.filter(|info| !matches!(info.verb, "get" | "list" | "watch")).collect();
    let last = writes.last().unwrap();
    assert_eq!((last.verb, last.resource.as_str()), ("update", "leases"), "{writes:?}");
    let spec = world.spec().await;
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some(""), Some(1)));
    assert!(world.metric(r#"leader_election_master_status{name="ccm"} 0"#));
}

#[tokio::test(start_paused = true)]
async fn b19_a_leader_that_cannot_renew_is_lost_after_the_renew_deadline_and_writes_nothing_more() {
    let world = World::new();
    let mut leader = world.lead("a").await;
    sleep(S * 20).await;
    world.disturb(|_| Fault::Refuse(internal()));
    let cut_off = Instant::now();
    let lost = leader.lost().await;
    // The last renewal was up to two seconds before.
    assert!((S * 8..=S * 10).contains(&cut_off.elapsed()), "{:?}", cut_off.elapsed());
    assert!(leader.fence().check().is_err());
    assert_eq!(lost.to_string(), "leader election lost: lease ccm: failed to read the lease: etcd is away");
    world.server.set_faults(None);
    let revision = world.server.revision();
    sleep(S * 60).await;
    assert_eq!(world.server.revision(), revision, "not even the Event \"stopped leading\", which upstream writes");
    assert!(world.metric(r#"leader_election_master_status{name="ccm"} 0"#));
}

#[tokio::test(start_paused = true)]
async fn b19_an_api_that_does_not_answer_loses_the_lease_within_the_renew_deadline() {
    let world = World::new();
    let mut leader = world.lead("a").await;
    world.disturb(|_| Fault::Latency(S * 3600));
    leader.lost().await;
    assert!(world.began.elapsed() <= S * 10, "{:?}", world.began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn b19_a_leader_survives_failed_renewals_whether_carried_out_or_not() {
    for fault in [Fault::Refuse(internal()), Fault::Refuse(conflict()), Fault::LoseAnswer(no_answer())] {
        let world = World::new();
        let leader = world.lead("a").await;
        let turns = AtomicU64::new(0);
        let judged = fault.clone();
        // Two of three writes fail.
        world.disturb(move |request| match request.verb {
            "update" if turns.fetch_add(1, Ordering::SeqCst) % 3 != 2 => judged.clone(),
            _ => Fault::None,
        });
        sleep(S * 120).await;
        assert!(leader.fence().check().is_ok(), "{fault:?}");
        assert_eq!(world.spec().await.lease_transitions, Some(0));
        world.server.set_faults(None);
        let slow = r#"leader_election_slowpath_total{name="ccm"} "#;
        assert!(world.metrics().lines().any(|line| line.starts_with(slow)), "{}", world.metrics());
        leader.release().await.unwrap();
        assert_eq!(world.spec().await.holder_identity.as_deref(), Some(""), "{fault:?}");
    }
}

/// A process that takes the lease ends our leadership at the next renewal, long before the renew
/// deadline.
#[tokio::test(start_paused = true)]
async fn b19_a_leader_whose_lease_was_taken_ends_at_once() {
    let world = World::new();
    let mut leader = world.lead("a").await;
    let patch = json!({ "spec": { "holderIdentity": "thief" } });
    world.leases().patch("ccm", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let lost = leader.lost().await;
    assert!(world.began.elapsed() < S * 3);
    assert_eq!(lost.reason, r#""thief" holds the lease"#);
    assert_eq!(world.spec().await.holder_identity.as_deref(), Some("thief"));
}

#[tokio::test(start_paused = true)]
async fn b19_a_deleted_lease_is_created_again() {
    let world = World::new();
    let leader = world.lead("a").await;
    world.leases().delete("ccm", &DeleteParams::default()).await.unwrap();
    sleep(S * 3).await;
    assert_eq!(world.spec().await.holder_identity.as_deref(), Some("a"));
    assert!(leader.fence().check().is_ok());
}

/// The leader must not write a Lease without a holder, which another candidate would take at once.
#[tokio::test(start_paused = true)]
async fn b19_a_leader_that_first_fails_to_create_a_deleted_lease_again_remains_the_holder() {
    let world = World::new();
    let leader = world.lead("a").await;
    world.leases().delete("ccm", &DeleteParams::default()).await.unwrap();
    world.disturb(|request| match request.verb {
        "create" => Fault::Refuse(internal()),
        _ => Fault::None,
    });
    sleep(S * 3).await;
    assert!(world.leases().get_opt("ccm").await.unwrap().is_none());
    world.disturb(|_| Fault::None);
    sleep(S * 3).await;
    assert_eq!(world.spec().await.holder_identity.as_deref(), Some("a"));
    assert!(leader.fence().check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn b19_a_lease_that_is_deleted_is_not_taken_while_the_fence_of_its_holder_is_open() {
    let world = World::new();
    let leader = world.lead("a").await;
    let (candidate, stop) = (world.elector("b"), CancellationToken::new());
    let mut candidate = std::pin::pin!(candidate.acquire(&stop));
    assert!(timeout(S, &mut candidate).await.is_err(), "b stands by");
    world.leases().delete("ccm", &DeleteParams::default()).await.unwrap();
    assert!(timeout(S * 60, &mut candidate).await.is_err(), "a has created the lease again");
    assert!(leader.fence().check().is_ok());
    drop(leader);
    world.leases().delete("ccm", &DeleteParams::default()).await.unwrap();
    // The last renewal of `a` was at most two seconds ago, and its fence is open for ten.
    assert!(timeout(S * 12, &mut candidate).await.is_err());
    assert!(timeout(S * 5, &mut candidate).await.unwrap().is_some());
}

/// The process was frozen for longer than the lease duration: it must not try to renew first.
#[tokio::test(start_paused = true)]
async fn b19_a_leader_that_was_frozen_finds_the_fence_closed_before_it_does_anything() {
    let world = World::new();
    let clock = TestClock::new();
    let mut leader = lead(world.elector_with("a", clock.clone())).await;
    let revision = world.server.revision();
    clock.freeze(S * 60);
    assert!(leader.fence().check().is_err());
    let lost = leader.lost().await;
    assert_eq!(lost.reason, "this process was frozen or suspended");
    assert_eq!(world.server.revision(), revision, "not even the Event \"became leader\"");
}

/// The renewal was sent in time and answered late.
#[tokio::test(start_paused = true)]
async fn b19_a_renewal_counts_from_when_it_was_sent() {
    let world = World::new();
    let leader = world.lead("a").await;
    world.disturb(|request| match request.verb {
        "update" => Fault::Latency(S * 4),
        _ => Fault::None,
    });
    // Sent at 2 s, answered at 6 s; requests fail from 7 s on.
    sleep(S * 7).await;
    world.disturb(|_| Fault::Refuse(internal()));
    sleep(S * 4).await;
    assert!(leader.fence().check().is_ok(), "until 12 s");
    sleep(S + S / 10).await;
    assert!(leader.fence().check().is_err());
}

#[tokio::test(start_paused = true)]
async fn b19_the_health_check_fails_only_for_a_leader_20_s_after_its_lease_expired() {
    let world = World::new();
    let clock = TestClock::new();
    let elector = world.elector_with("a", clock.clone());
    let health: Health = elector.health();
    clock.freeze(S * 100);
    assert_eq!(health.check(), Ok(()), "a replica that stands by is healthy");
    let leader = lead(elector).await;
    clock.freeze(S * 35);
    assert_eq!(health.check(), Ok(()));
    clock.freeze(S + S);
    assert_eq!(health.check(), Err("failed election to renew leadership on lease ccm".to_owned()));
    drop(leader);
}

#[tokio::test(start_paused = true)]
async fn b19_a_stopped_candidate_does_not_take_the_lease() {
    let world = World::new();
    let _leader = world.lead("a").await;
    let stop = CancellationToken::new();
    let mut waiting = tokio::task::JoinSet::new();
    let (elector, stopped) = (world.elector("b"), stop.clone());
    waiting.spawn(async move { elector.acquire(&stopped).await.is_none() });
    sleep(S * 5).await;
    stop.cancel();
    assert!(waiting.join_next().await.unwrap().unwrap());
    assert_eq!(world.spec().await.holder_identity.as_deref(), Some("a"));
}
