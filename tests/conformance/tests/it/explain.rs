//! The explanation of a Service in each state in which a person asks for it.

use std::{fmt::Write as _, future::pending};

use expect_test::{Expect, expect};
use serde_json::json;
use skysail_controllers::{LastOutcome, LoadBalancerRecord, QueueStatus, ServiceExplanation, Unexplained};
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{Cloud, S, World, pass};

/// The explanation of a Service, a line for each part.
fn told(world: &World, name: &str) -> String {
    let ServiceExplanation { object, owner, provider, load_balancer, plan, queue, last_outcome, .. } =
        world.explainer.service("default", name).unwrap();
    let mut text = String::new();
    let mut line = |name: &str, value: String| writeln!(text, "{name}: {value}").unwrap();
    line("owner", format!("{}: {}", owner.provider.unwrap_or("none".to_owned()), owner.reason));
    if let Some(object) = object {
        let deleting = if object.deleting { " deleting" } else { "" };
        line("object", format!("{:?} {:?}{deleting}", object.ingress, object.finalizers));
    }
    if let Some(provider) = provider {
        line("provider", format!("{} {:?} {:?} nodes", provider.name, provider.release, provider.nodes));
    }
    if let Some(LoadBalancerRecord { provider, state, nodes, ingress, status_written, .. }) = load_balancer {
        line("made", format!("{state} by {provider}, nodes {nodes:?}, {ingress:?}, written {status_written:?}"));
    }
    line("plan", format!("{}: {}", plan.step, plan.reason));
    if let Some(QueueStatus { place, since_ms, due_in_ms, explanation, failures, api_failures, denied }) = queue {
        let numbers = format!("failures {failures} api {api_failures} denied {denied}");
        line("queue", format!("{place:?} since {since_ms:?} due {due_in_ms:?}, {numbers}: {explanation}"));
    }
    if let Some(LastOutcome { ago_ms, provider, step, code, message }) = last_outcome {
        line("last", format!("{ago_ms} ms ago {step} by {provider}: {code} {}", message.unwrap_or_default()));
    }
    text
}

fn check(world: &World, name: &str, expected: Expect) {
    expected.assert_eq(&told(world, name));
}

#[tokio::test(start_paused = true)]
async fn a_service_with_its_load_balancer() {
    let world = World::new();
    assert_eq!(world.explainer.service("default", "web"), Err(Unexplained::NotRunning));
    world.add_node("a").await;
    let world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(30 * S).await;
    check(
        &world,
        "web",
        expect![[r#"
        owner: fake: the Service has no class, and fake is the default provider
        object: ["203.0.113.1"] ["service.kubernetes.io/load-balancer-cleanup"]
        provider: fake Some("fake 0.0.0") Some(1) nodes
        made: Serving by fake, nodes Some("Current"), Some(["203.0.113.1"]), written Some(true)
        plan: Nothing: the load balancer is as the Service, the nodes and the release require
        queue: Absent since None due None, failures 0 api 0 denied false: a change of the Service, of the nodes or of the release begins the next run
        last: 30000 ms ago Ensure by fake: Ok 
    "#]],
    );
    assert_eq!(world.explainer.service("default", "other"), Err(Unexplained::Unknown));
    assert_eq!(world.explainer.service("other", "web"), Err(Unexplained::Unknown));
    world.delete_service("web").await;
    pass(5 * S).await;
    assert_eq!(world.explainer.service("default", "web"), Err(Unexplained::Unknown), "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_the_next_try() {
    let world = World::new().start().await;
    world.fake().fail_always("ensure", Some(Error::new(Code::Unavailable, "the cloud answered 503")));
    world.add_service("web", json!({})).await;
    pass(17 * S).await;
    check(
        &world,
        "web",
        expect![[r#"
        owner: fake: the Service has no class, and fake is the default provider
        object: [] ["service.kubernetes.io/load-balancer-cleanup"]
        provider: fake Some("fake 0.0.0") Some(0) nodes
        made: Unsettled by fake, nodes None, None, written None
        plan: Ensure: no ensure has succeeded since the last ensure or deletion began
        queue: Waiting since None due Some(18000), failures 3 api 0 denied false: the wait ends earlier at a change of the Service or of the release
        last: 2000 ms ago Ensure by fake: Unavailable failed to ensure load balancer: the cloud answered 503
    "#]],
    );
    world.fake().fail_always("ensure", Some(Error::new(Code::Denied, "the token is revoked")));
    pass(60 * S).await;
    check(
        &world,
        "web",
        expect![[r#"
        owner: fake: the Service has no class, and fake is the default provider
        object: [] ["service.kubernetes.io/load-balancer-cleanup"]
        provider: fake Some("fake 0.0.0") Some(0) nodes
        made: Unsettled by fake, nodes None, None, written None
        plan: Ensure: no ensure has succeeded since the last ensure or deletion began
        queue: Waiting since None due Some(258000), failures 4 api 0 denied true: the wait ends earlier at a change of the Service or of the release, or at a rotation of the credentials
        last: 42000 ms ago Ensure by fake: Denied failed to ensure load balancer: the token is revoked
    "#]],
    );
}

/// The load balancer of the last successful ensure serves.
#[tokio::test(start_paused = true)]
async fn a_change_that_fails_names_its_fields() {
    let world = World::new().start().await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    world.fake().fail_always("ensure", Some(Error::new(Code::Unsupported, "no UDP")));
    let ports = json!([{ "port": 53, "protocol": "UDP" }]);
    world.patch_service("web", json!({ "spec": { "ports": ports } })).await;
    pass(5 * S).await;
    check(
        &world,
        "web",
        expect![[r#"
        owner: fake: the Service has no class, and fake is the default provider
        object: ["203.0.113.1"] ["service.kubernetes.io/load-balancer-cleanup"]
        provider: fake Some("fake 0.0.0") Some(0) nodes
        made: Unsettled by fake, nodes Some("Current"), None, written None
        plan: Ensure: the last ensure has not succeeded, and the load balancer of the ensure before it serves; fields that differ: spec.ports
        queue: Waiting since None due Some(1795000), failures 1 api 0 denied false: the wait ends earlier at a change of the Service, of the nodes or of the release
        last: 5000 ms ago Ensure by fake: Unsupported failed to ensure load balancer: no UDP
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_invalid() {
    let world = World::new().without_validation().start().await;
    world.add_service("web", json!({ "loadBalancerSourceRanges": ["10.0.0.0"] })).await;
    pass(5 * S).await;
    check(
        &world,
        "web",
        expect![[r#"
        owner: fake: the Service has no class, and fake is the default provider
        object: [] []
        provider: fake Some("fake 0.0.0") Some(0) nodes
        plan: Refuse: the Service is invalid, so no provider is called: source range "10.0.0.0" is not a CIDR; correct the Service
        queue: Waiting since None due Some(1795000), failures 1 api 0 denied false: the wait ends earlier at a change of the Service, of the nodes or of the release
        last: 5000 ms ago Refuse by fake: Invalid failed to read the Service: source range "10.0.0.0" is not a CIDR
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_class_two_providers_list() {
    let world = World::with(vec![Cloud::new("one").class("a.example/lb"), Cloud::new("two").class("a.example/lb")]);
    let world = world.start().await;
    world.add_service("web", json!({ "loadBalancerClass": "a.example/lb" })).await;
    pass(5 * S).await;
    check(
        &world,
        "web",
        expect![[r#"
        owner: one: one claims the class "a.example/lb"; younger providers list the class too and do not get it: two. Give each provider its own spec.loadBalancerClasses
        object: ["203.0.113.1"] ["service.kubernetes.io/load-balancer-cleanup"]
        provider: one Some("one 0.0.0") Some(0) nodes
        made: Serving by one, nodes Some("Current"), Some(["203.0.113.1"]), written Some(true)
        plan: Nothing: the load balancer is as the Service, the nodes and the release require
        queue: Absent since None due None, failures 0 api 0 denied false: a change of the Service, of the nodes or of the release begins the next run
        last: 5000 ms ago Ensure by one: Ok 
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn services_without_an_owner() {
    let world = World::with(vec![Cloud::new("one").class("a.example/lb")]).start().await;
    world.add_service("foreign", json!({ "loadBalancerClass": "metallb.example/lb" })).await;
    world.add_service("plain", json!({})).await;
    world.add_service("internal", json!({ "type": "ClusterIP" })).await;
    pass(5 * S).await;
    check(
        &world,
        "foreign",
        expect![[r#"
        owner: none: no provider claims the class "metallb.example/lb"; if another controller serves the class, ask that controller, or add the class to spec.loadBalancerClasses of its Provider. Claimed classes: "a.example/lb"
        object: [] []
        plan: Nothing: no provider owns the Service
    "#]],
    );
    check(
        &world,
        "plain",
        expect![[r#"
        owner: none: the Service has no class, and no provider is the default; set spec.default of one Provider, or give the Service the class of a provider
        object: [] []
        plan: Nothing: no provider owns the Service
    "#]],
    );
    check(
        &world,
        "internal",
        expect![[r#"
        owner: none: spec.type is not LoadBalancer, so no provider owns the Service
        object: [] []
        plan: Nothing: the Service wants no load balancer: spec.type is not LoadBalancer
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_deletion_waits_for_the_cloud() {
    let world = World::new().start().await;
    world.add_service("web", json!({})).await;
    pass(5 * S).await;
    world.fake().fail_always("ensure-deleted", Some(Error::new(Code::Unavailable, "the cloud answered 503")));
    world.delete_service("web").await;
    pass(8 * S).await;
    check(
        &world,
        "web",
        expect![[r#"
        owner: fake: the Service has no class, and fake is the default provider
        object: ["203.0.113.1"] ["service.kubernetes.io/load-balancer-cleanup"] deleting
        provider: fake Some("fake 0.0.0") Some(0) nodes
        made: Unsettled by fake, nodes None, None, written None
        plan: Cleanup: the Service is being deleted, and the finalizer service.kubernetes.io/load-balancer-cleanup waits for the deletion of the load balancer; fake deletes the load balancer
        queue: Waiting since None due Some(7000), failures 2 api 0 denied false: the wait ends earlier at a change of the Service or of the release
        last: 3000 ms ago Cleanup by fake: Unavailable failed to delete load balancer: the cloud answered 503
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_provider_is_removed() {
    let mut world = World::with(vec![Cloud::new("one").class("a.example/lb")]).start().await;
    world.add_service("web", json!({ "loadBalancerClass": "a.example/lb" })).await;
    pass(5 * S).await;
    world.edit(Vec::clear).await;
    check(
        &world,
        "web",
        expect![[r#"
        owner: none: This Service's load balancer belongs to the provider one, which is removed, so Skysail cannot delete it, and the finalizer stays on the Service. Add the provider one again, with the class "a.example/lb"; or delete the load balancer by hand, and then remove service.kubernetes.io/load-balancer-cleanup from metadata.finalizers: kubectl edit service web --namespace default
        object: ["203.0.113.1"] ["service.kubernetes.io/load-balancer-cleanup"]
        made: Serving by one, nodes None, Some(["203.0.113.1"]), written Some(true)
        plan: Nothing: the provider one, which made the load balancer, is removed, and no other provider owns the Service; add the provider one again
        last: 5500 ms ago Ensure by one: Ok 
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn services_in_work_and_behind_it() {
    let world = World::new().start().await;
    world.fake().on_call(|_| Box::pin(pending()));
    world.add_service("first", json!({})).await;
    world.add_service("second", json!({})).await;
    pass(5 * S).await;
    check(
        &world,
        "first",
        expect![[r#"
        owner: fake: the Service has no class, and fake is the default provider
        object: [] ["service.kubernetes.io/load-balancer-cleanup"]
        provider: fake Some("fake 0.0.0") Some(0) nodes
        made: Unsettled by fake, nodes None, None, written None
        plan: Ensure: no ensure has succeeded since the last ensure or deletion began
        queue: Running since Some(5000) due None, failures 0 api 0 denied false: a run is in progress
    "#]],
    );
    check(
        &world,
        "second",
        expect![[r#"
        owner: fake: the Service has no class, and fake is the default provider
        object: [] []
        provider: fake Some("fake 0.0.0") Some(0) nodes
        plan: Ensure: this process has not ensured the load balancer yet
        queue: Ready since Some(5000) due None, failures 0 api 0 denied false: all workers are busy, and 0 Services wait before this one
    "#]],
    );
}
