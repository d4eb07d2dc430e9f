//! Load balancers that no Service wants.

use std::time::Duration;

use expect_test::expect;
use prometheus_client::encoding::text::encode;
use serde_json::json;
use skysail_provider::{Code, Error, OwnedLoadBalancer};

use skysail_test_conformance::world::{Cloud, S, World, pass};

const PERIOD: Duration = Duration::from_mins(10);

async fn scanning(delete: bool, clouds: Vec<Cloud>) -> World {
    let world = World::with(clouds).set(|settings| {
        settings.orphan_scan_period = PERIOD;
        settings.delete_orphans = delete;
    });
    let mut world = world.start().await;
    world.add_service("web", json!({})).await;
    pass(S).await;
    drop(world.transcript().await);
    world
}

fn one() -> Vec<Cloud> {
    vec![Cloud::new("fake").default_of_all()]
}

fn orphan(name: &str) -> OwnedLoadBalancer {
    let service = ("default".to_owned(), "old".to_owned(), "uid-1".to_owned());
    OwnedLoadBalancer { name: name.to_owned(), service: Some(service) }
}

/// Also whether anything was deleted.
async fn told(world: &mut World) -> bool {
    let transcript = world.transcript().await;
    assert!(!transcript.contains("delete-owned"), "{transcript}");
    transcript.contains("OrphanedLoadBalancer")
}

fn gauge(world: &World) -> String {
    let mut text = String::new();
    assert!(encode(&mut text, &world.registry).is_ok());
    text.lines().find(|line| line.starts_with("skysail_orphaned_load_balancers{")).unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_told_once_after_three_scans_and_stays() {
    let mut world = scanning(false, one()).await;
    world.fake().leave_behind(orphan("lb-old"));
    pass(2 * PERIOD).await;
    assert!(!told(&mut world).await);
    world.after(PERIOD, expect![[r#"
        provider list-owned
        provider name default/web
        event kube-system Warning OrphanedLoadBalancer x1: The provider fake has a load balancer lb-old, made for the Service default/old with the UID uid-1, and no Service wants it. If no other cluster in the same account is named "kubernetes" too, delete it: skysail orphans --cluster-name kubernetes --delete lb-old
    "#]]).await;
    assert_eq!(gauge(&world), "skysail_orphaned_load_balancers{provider=\"fake\"} 1");
    pass(6 * PERIOD).await;
    assert!(!told(&mut world).await, "once");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_counts_for_nothing() {
    let mut world = scanning(true, one()).await;
    world.fake().leave_behind(orphan("lb-old"));
    pass(2 * PERIOD).await;
    world.fake().fail_always("list-owned", Some(Error::new(Code::Denied, "the token expired")));
    pass(5 * PERIOD).await;
    assert!(!told(&mut world).await);
    world.fake().fail_always("list-owned", None);
    world.fake().fail_next("name", Error::new(Code::Internal, "a name failed"));
    pass(PERIOD).await;
    assert!(!told(&mut world).await);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_missing_three_times_in_a_row_is_no_orphan() {
    let mut world = scanning(true, one()).await;
    for _ in 0..3 {
        world.fake().leave_behind(orphan("lb-old"));
        pass(2 * PERIOD).await;
        world.fake().forget_left_behind();
        pass(PERIOD).await;
    }
    assert!(!told(&mut world).await);
}

/// Its finalizer was taken away, it is not ensured yet, it is being deleted, its class is another
/// provider's: each wants what it has.
#[tokio::test(start_paused = true)]
async fn what_a_service_may_want_is_never_an_orphan() {
    let clouds = vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")];
    let mut world = scanning(true, clouds).await;
    world.clouds[1].fake.fail_always("ensure", Some(Error::new(Code::Denied, "the token expired")));
    world.clouds[1].fake.fail_always("get", Some(Error::new(Code::Denied, "the token expired")));
    for name in ["unensured", "going"] {
        world.add_service(name, json!({ "loadBalancerClass": "two.example/lb" })).await;
        pass(S).await;
        let object = world.we(world.services().get(name)).await;
        let service = ("default".to_owned(), name.to_owned(), object.metadata.uid.unwrap());
        for cloud in &world.clouds {
            cloud.fake.leave_behind(OwnedLoadBalancer { name: format!("lb-{name}"), service: Some(service.clone()) });
        }
    }
    world.delete_service("going").await;
    world.add_service("strange", json!({ "loadBalancerClass": "metallb.example/lb" })).await;
    let uid = world.we(world.services().get("strange")).await.metadata.uid.unwrap();
    let name: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
    world.clouds[0].fake.leave_behind(OwnedLoadBalancer { name, service: None });
    pass(5 * PERIOD).await;
    assert!(!told(&mut world).await);
}

/// The same name in the same namespace is another Service.
#[tokio::test(start_paused = true)]
async fn what_an_earlier_service_of_the_name_left_is_an_orphan() {
    let mut world = scanning(false, one()).await;
    let service = ("default".to_owned(), "web".to_owned(), "uid-of-the-earlier-one".to_owned());
    world.fake().leave_behind(OwnedLoadBalancer { name: "lb-earlier".to_owned(), service: Some(service) });
    pass(3 * PERIOD).await;
    assert!(told(&mut world).await);
}

#[tokio::test(start_paused = true)]
async fn orphans_are_deleted_where_the_operator_asks_for_it_and_the_rest_stays() {
    let mut world = scanning(true, one()).await;
    let before = world.fake().cloud();
    world.fake().leave_behind(orphan("lb-old"));
    world.fake().fail_next("delete-owned", Error::new(Code::Unavailable, "busy"));
    pass(2 * PERIOD).await;
    assert!(!told(&mut world).await);
    world.after(2 * PERIOD, expect![[r#"
        provider list-owned
        provider name default/web
        provider delete-owned lb-old
        provider list-owned
        provider name default/web
        provider delete-owned lb-old
        event kube-system Warning OrphanedLoadBalancer x1: The provider fake has a load balancer lb-old, made for the Service default/old with the UID uid-1, and no Service wants it. If no other cluster in the same account is named "kubernetes" too, delete it: skysail orphans --cluster-name kubernetes --delete lb-old
        event kube-system Normal DeletedOrphanedLoadBalancer x1: Deleted the load balancer lb-old of the provider fake, which no Service wanted
    "#]]).await;
    assert_eq!(gauge(&world), "skysail_orphaned_load_balancers{provider=\"fake\"} 0");
    assert_eq!(world.fake().cloud(), before);
}
