//! A release beside the one that serves.

use std::sync::Arc;

use expect_test::{Expect, expect};
use skysail_provider::{Call, LoadBalancerInventory as _, Node, NodeSet, Service};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};

use super::{QuestionLog, SERVICES_MAX};
use crate::{
    Limits, SandboxOptions,
    credentials::Credentials,
    egress::{EgressPolicy, EgressRuleSpec, EgressSpec},
    http_client::HttpClient,
    slot::{
        Offered, OnDifference, PlanOptions, RolloutOptions, ShadowOptions, ShadowStatus, Slot, SlotOptions,
        tests::{check, offer, options, reconfigure, services, version},
    },
    test_guest::{GUEST, Guest, Inventory, component},
};

fn shadowed(on_difference: OnDifference) -> SlotOptions {
    let rollout = RolloutOptions { shadow: Some(ShadowOptions { on_difference }), ..RolloutOptions::default() };
    SlotOptions { rollout, ..options("") }
}

fn release(version: &'static str, inventory: Inventory) -> bytes::Bytes {
    component(&Guest { version, inventory, ..GUEST })
}

/// A slot whose first release has been asked for its load balancers.
async fn asked(on_difference: OnDifference, first: Inventory) -> Slot {
    let slot = Slot::new(services(), shadowed(on_difference)).unwrap();
    assert_eq!(offer(&slot, &release("1", first)).await, Ok(Offered::Activated));
    drop(slot.list(&Call::default(), "kubernetes").await);
    slot
}

fn told(slot: &Slot) -> ShadowStatus {
    slot.status().borrow().shadow.clone().unwrap()
}

#[tokio::test]
async fn a_release_that_answers_as_its_predecessor_does_serves() {
    let slot = asked(OnDifference::Refuse, Inventory::Name).await;
    assert_eq!(offer(&slot, &release("2", Inventory::Name)).await, Ok(Offered::Activated));
    let ShadowStatus { asked, unanswered, differing, differences, digest } = told(&slot);
    assert_eq!((asked, unanswered, differing, differences.len()), (1, 0, 0, 0));
    assert_eq!(digest, slot.status().borrow().active.as_ref().unwrap().digest);
}

#[tokio::test]
async fn a_difference_is_reported_and_refuses_the_release_only_where_that_is_wanted() {
    let slot = asked(OnDifference::Report, Inventory::Version).await;
    assert_eq!(offer(&slot, &release("2", Inventory::Version)).await, Ok(Offered::Activated));
    let shown = |slot: &Slot, expected: Expect| expected.assert_eq(&told(slot).differences.join("\n"));
    shown(
        &slot,
        expect![[
            r#"load-balancer-inventory.list: [{"name":"1","service":null}] before, [{"name":"2","service":null}] now"#
        ]],
    );
    assert_eq!(told(&slot).differing, 1);

    let slot = asked(OnDifference::Refuse, Inventory::Version).await;
    check(
        &offer(&slot, &release("2", Inventory::Version)).await.unwrap_err(),
        expect![[
            r#"ShadowDiffers after configChecked: file p.wasm: of 1 questions it answered 1 otherwise than the release that serves: load-balancer-inventory.list: [{"name":"1","service":null}] before, [{"name":"2","service":null}] now; offer a release that agrees, or set rollout.shadow.onDifference to Report"#
        ]],
    );
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
    assert_eq!(told(&slot).differing, 1);
    check(
        &offer(&slot, &release("3", Inventory::Denied)).await.unwrap_err(),
        expect![[
            r#"ShadowDiffers after configChecked: file p.wasm: of 1 questions it answered 1 otherwise than the release that serves: load-balancer-inventory.list: {"name":"1","service":null} before, now it fails (Denied: ); offer a release that agrees, or set rollout.shadow.onDifference to Report"#
        ]],
    );
    // The operator thinks otherwise.
    reconfigure(&slot, shadowed(OnDifference::Report)).await.unwrap();
    assert_eq!(version(&slot).await, Ok("3".to_owned()));
}

#[tokio::test]
async fn a_release_that_breaks_where_its_predecessor_answers_is_refused_in_any_case() {
    let slot = asked(OnDifference::Report, Inventory::Name).await;
    check(
        &offer(&slot, &release("2", Inventory::Trap)).await.unwrap_err(),
        expect![
            "ShadowBroken after configChecked: file p.wasm: it failed a call that the active release answered: load-balancer-inventory.list: the guest trapped: it panicked or aborted; offer a corrected release, or leave rollout.shadow out"
        ],
    );
    assert_eq!(version(&slot).await, Ok("1".to_owned()));
}

/// Without an answer of the predecessor, no difference counts against the release.
#[tokio::test]
async fn a_question_that_the_predecessor_cannot_answer_is_not_compared() {
    for first in [Inventory::Denied, Inventory::Trap] {
        let slot = asked(OnDifference::Refuse, first).await;
        assert_eq!(offer(&slot, &release("2", Inventory::Trap)).await, Ok(Offered::Activated));
        let ShadowStatus { asked, unanswered, differing, .. } = told(&slot);
        assert_eq!((asked, unanswered, differing), (1, 1, 0));
    }
}

/// A cloud that answers every request with 503: its port, and its task.
async fn failing_cloud() -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut task = JoinSet::new();
    task.spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(connection.read_u8().await.unwrap());
            }
            let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            connection.write_all(answer).await.unwrap();
        }
    });
    (port, task)
}

/// Whatever the guest makes of the failed request: it is not the release's fault.
#[tokio::test]
async fn an_answer_after_a_request_that_the_cloud_failed_is_not_compared() {
    let (port, _task) = failing_cloud().await;
    let rules = vec![EgressRuleSpec { origins: vec![format!("http://127.0.0.1:{port}")], ..EgressRuleSpec::default() }];
    let egress = EgressSpec { rules, allow_cidrs: vec!["127.0.0.1/32".to_owned()], ..EgressSpec::default() };
    let policy = Arc::new(EgressPolicy::new(&egress).unwrap());
    let http = Arc::new(HttpClient::new(policy, Arc::new(Credentials::none()), &Limits::default().http()).unwrap());
    for traps in [true, false] {
        let SlotOptions { sandbox, rollout, .. } = shadowed(OnDifference::Refuse);
        let sandbox = SandboxOptions { http: Some(Arc::clone(&http)), ..sandbox };
        let slot = Slot::new(services(), SlotOptions { rollout, ..SlotOptions::new(sandbox) }).unwrap();
        offer(&slot, &release("1", Inventory::Name)).await.unwrap();
        slot.list(&Call::default(), "kubernetes").await.unwrap();
        let second = release("2", Inventory::AfterRequest { port, traps });
        assert_eq!(offer(&slot, &second).await, Ok(Offered::Activated));
        let ShadowStatus { asked, unanswered, differing, .. } = told(&slot);
        assert_eq!((asked, unanswered, differing), (1, 1, 0), "traps: {traps}");
    }
}

#[tokio::test]
async fn nothing_is_asked_that_the_controllers_did_not_ask_or_that_one_of_both_does_not_have() {
    let slot = Slot::new(services(), shadowed(OnDifference::Refuse)).unwrap();
    offer(&slot, &release("1", Inventory::Version)).await.unwrap();
    assert_eq!(offer(&slot, &release("2", Inventory::Version)).await, Ok(Offered::Activated));
    assert_eq!(told(&slot).asked, 0);
    let slot = Slot::new(services(), shadowed(OnDifference::Refuse)).unwrap();
    offer(&slot, &component(&GUEST)).await.unwrap();
    slot.list(&Call::default(), "kubernetes").await.unwrap_err();
    assert_eq!(offer(&slot, &release("2", Inventory::Version)).await, Ok(Offered::Activated));
    assert_eq!(told(&slot).asked, 0);
}

#[tokio::test]
async fn new_settings_do_not_ask_the_release_that_serves_to_agree_with_itself() {
    let slot = asked(OnDifference::Refuse, Inventory::Version).await;
    reconfigure(&slot, SlotOptions { allow_interface_loss: true, ..shadowed(OnDifference::Refuse) }).await.unwrap();
    assert_eq!(slot.status().borrow().shadow, None);
}

fn service(number: usize) -> Service {
    Service::new("", &number.to_string(), &number.to_string())
}

#[test]
fn the_last_services_are_remembered_and_one_that_is_deleted_is_not() {
    let rollout = &shadowed(OnDifference::Report).rollout;
    let memory = QuestionLog::default();
    memory.service(&Call::default(), "c", &service(0));
    assert_eq!(memory.questions(rollout).len(), 0, "no shadow run needs it");
    memory.keeps(true);
    for number in 0..SERVICES_MAX + 2 {
        memory.service(&Call::default(), "c", &service(number));
    }
    memory.service(&Call::default(), "c", &service(2));
    memory.forget(&(SERVICES_MAX + 1).to_string());
    let shown: Vec<_> = memory.questions(rollout).iter().map(super::Question::shown).collect();
    assert_eq!(shown.len(), SERVICES_MAX - 1);
    assert_eq!(shown[0], "load-balancers.get of Service /2");
    assert!(!shown.contains(&"load-balancers.get of Service /1".to_owned()));
    memory.keeps(true);
    assert_eq!(memory.questions(rollout).len(), SERVICES_MAX - 1);
    memory.keeps(false);
    assert_eq!(memory.questions(rollout).len(), 0);
}

/// The last Services with their nodes; one that is deleted is not asked for.
#[test]
fn a_plan_asks_for_the_last_nodes_of_each_service_and_for_nothing_else() {
    let rollout =
        &RolloutOptions { plan: Some(PlanOptions { on_writes: OnDifference::Report }), ..RolloutOptions::default() };
    let memory = QuestionLog::default();
    memory.keeps(true);
    let call = Call::default();
    for number in [0, 1, 0] {
        let nodes = (0..number + 1).map(|index| Arc::new(Node { name: format!("n{index}"), ..Node::default() }));
        memory.service(&call, "kubernetes", &service(number));
        memory.backends(&call, "kubernetes", &service(number), &NodeSet::new(nodes));
    }
    let shown = || -> Vec<String> { memory.questions(rollout).iter().map(super::Question::shown).collect() };
    let of =
        |question: &str, name: &str| question.contains(&format!("dry run of load-balancers.ensure of Service {name}"));
    let questions = shown();
    assert_eq!(questions.len(), 2, "{questions:?}");
    let first = service(0);
    assert!(of(&questions[0], &format!("{}/{} with 1 nodes", first.namespace, first.name)), "{questions:?}");
    memory.forget(&first.uid);
    assert_eq!(shown().len(), 1);
}
