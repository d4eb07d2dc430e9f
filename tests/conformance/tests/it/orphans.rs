//! Orphans: load balancers that no Service wants.

use std::time::Duration;

use expect_test::expect;
use kube::api::{Patch, PatchParams};
use prometheus_client::encoding::text::encode;
use serde_json::json;
use skysail_provider::{Code, Error, OwnedLoadBalancer};

use skysail_test_conformance::world::{Cloud, S, World, pass};

const PERIOD: Duration = Duration::from_mins(10);

async fn scanning(delete: bool, clouds: Vec<Cloud>) -> World {
    let world = World::with(clouds).set(|settings| {
        settings.orphan_scan_period = PERIOD;
        settings.delete_orphans = delete;
        "north".clone_into(&mut settings.cluster_name);
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

/// Whether an orphan was reported; asserts that nothing was deleted.
async fn reported(world: &mut World) -> bool {
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
async fn an_orphan_is_reported_once_after_three_scans_and_stays() {
    let mut world = scanning(false, one()).await;
    world.fake().leave_behind(orphan("lb-old"));
    pass(2 * PERIOD).await;
    assert!(!reported(&mut world).await);
    world.after(PERIOD, expect![[r#"
        provider list-owned
        provider name default/web
        event kube-system Warning OrphanedLoadBalancer x1: The provider fake has a load balancer lb-old, made for the Service default/old with the UID uid-1, and no Service wants it. If no other cluster in the same account is named "north" too, delete it: skysail orphans --cluster-name north --delete lb-old
    "#]]).await;
    assert_eq!(gauge(&world), "skysail_orphaned_load_balancers{provider=\"fake\"} 1");
    pass(6 * PERIOD).await;
    assert!(!reported(&mut world).await, "reported once");
}

#[tokio::test(start_paused = true)]
async fn a_scan_whose_calls_fail_does_not_count() {
    let mut world = scanning(true, one()).await;
    world.fake().leave_behind(orphan("lb-old"));
    pass(2 * PERIOD).await;
    world.fake().fail_always("list-owned", Some(Error::new(Code::Denied, "the token expired")));
    pass(5 * PERIOD).await;
    assert!(!reported(&mut world).await);
    world.fake().fail_always("list-owned", None);
    world.fake().fail_next("name", Error::new(Code::Internal, "a name failed"));
    pass(PERIOD).await;
    assert!(!reported(&mut world).await);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_must_be_unwanted_in_three_consecutive_scans() {
    let mut world = scanning(true, one()).await;
    for _ in 0..3 {
        world.fake().leave_behind(orphan("lb-old"));
        pass(2 * PERIOD).await;
        world.fake().forget_left_behind();
        pass(PERIOD).await;
    }
    assert!(!reported(&mut world).await);
}

/// A Service may want its load balancer also if it is not ensured yet or is being deleted, and if
/// its class belongs to another provider or to none.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_a_service_may_want_is_never_an_orphan() {
    let clouds = vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")];
    let mut world = scanning(true, clouds).await;
    world.clouds[1].fake.fail_always("ensure", Some(Error::new(Code::Denied, "the token expired")));
    world.clouds[1].fake.fail_always("get", Some(Error::new(Code::Denied, "the token expired")));
    for name in ["unensured", "going"] {
        world.add_service(name, json!({ "loadBalancerClass": "two.example/lb" })).await;
        pass(S).await;
        let object = world.as_user(world.services().get(name)).await;
        let service = ("default".to_owned(), name.to_owned(), object.metadata.uid.unwrap());
        for cloud in &world.clouds {
            cloud.fake.leave_behind(OwnedLoadBalancer { name: format!("lb-{name}"), service: Some(service.clone()) });
        }
    }
    world.delete_service("going").await;
    world.add_service("strange", json!({ "loadBalancerClass": "metallb.example/lb" })).await;
    let uid = world.as_user(world.services().get("strange")).await.metadata.uid.unwrap();
    let name: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
    world.clouds[0].fake.leave_behind(OwnedLoadBalancer { name, service: None });
    pass(5 * PERIOD).await;
    assert!(!reported(&mut world).await);
}

/// A Service with the same name and another UID is another Service.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_of_an_earlier_service_with_the_same_name_is_an_orphan() {
    let mut world = scanning(false, one()).await;
    let service = ("default".to_owned(), "web".to_owned(), "uid-of-the-earlier-one".to_owned());
    world.fake().leave_behind(OwnedLoadBalancer { name: "lb-earlier".to_owned(), service: Some(service) });
    pass(3 * PERIOD).await;
    assert!(reported(&mut world).await);
}

#[tokio::test(start_paused = true)]
async fn only_orphans_are_deleted_and_only_if_the_operator_enables_it() {
    let mut world = scanning(true, one()).await;
    let before = world.fake().cloud();
    world.fake().leave_behind(orphan("lb-old"));
    world.fake().fail_next("delete-owned", Error::new(Code::Unavailable, "busy"));
    pass(2 * PERIOD).await;
    assert!(!reported(&mut world).await);
    world.after(2 * PERIOD, expect![[r#"
        provider list-owned
        provider name default/web
        provider delete-owned lb-old of default/old
        provider list-owned
        provider name default/web
        provider delete-owned lb-old of default/old
        event kube-system Warning OrphanedLoadBalancer x1: The provider fake has a load balancer lb-old, made for the Service default/old with the UID uid-1, and no Service wants it. If no other cluster in the same account is named "north" too, delete it: skysail orphans --cluster-name north --delete lb-old
        event kube-system Normal DeletedOrphanedLoadBalancer x1: Deleted the orphaned load balancer lb-old of the provider fake
    "#]]).await;
    assert_eq!(gauge(&world), "skysail_orphaned_load_balancers{provider=\"fake\"} 0");
    assert_eq!(world.fake().cloud(), before);
}

async fn deletions(world: &mut World) -> usize {
    world.transcript().await.lines().filter(|line| line.contains("delete-owned")).count()
}

/// The load balancer is gone, and its security group can be deleted a minute later.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_has_begun_is_repeated_though_the_list_lacks_the_load_balancer() {
    let mut world = scanning(true, one()).await;
    world.fake().leave_behind(orphan("lb-old"));
    world.fake().fail_next("delete-owned", Error::retry_after(S, "the security group is still in use"));
    pass(3 * PERIOD).await;
    assert_eq!(deletions(&mut world).await, 1);
    world.fake().forget_left_behind();
    pass(PERIOD).await;
    assert_eq!(deletions(&mut world).await, 1, "asked again");
    pass(5 * PERIOD).await;
    assert_eq!(deletions(&mut world).await, 0, "all is deleted");
    assert_eq!(gauge(&world), "skysail_orphaned_load_balancers{provider=\"fake\"} 0");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_failed_often_is_repeated_after_the_load_balancer_is_gone() {
    let mut world = scanning(true, one()).await;
    world.fake().leave_behind(orphan("lb-old"));
    world.fake().fail_always("delete-owned", Some(Error::new(Code::Denied, "a person protects it")));
    pass(10 * PERIOD).await;
    world.fake().fail_always("delete-owned", None);
    world.fake().fail_next("delete-owned", Error::retry_after(S, "the security group is still in use"));
    drop(world.transcript().await);
    pass(PERIOD).await;
    world.fake().forget_left_behind();
    pass(5 * PERIOD).await;
    assert_eq!(deletions(&mut world).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_always_fails_is_not_repeated_for_ever_for_a_load_balancer_that_is_gone() {
    let mut world = scanning(true, one()).await;
    world.fake().leave_behind(orphan("lb-old"));
    world.fake().fail_always("delete-owned", Some(Error::new(Code::Internal, "it cannot be found")));
    pass(3 * PERIOD).await;
    world.fake().forget_left_behind();
    assert_eq!(deletions(&mut world).await, 1);
    pass(20 * PERIOD).await;
    assert_eq!(deletions(&mut world).await, 3);
}

/// The list lacks the load balancer, so that only its name shows who uses the next one.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_has_begun_ends_when_a_service_has_the_name_of_the_load_balancer() {
    let mut world = scanning(true, one()).await;
    world.add_service("late", json!({ "type": "ClusterIP" })).await;
    let uid = world.as_user(world.services().get("late")).await.metadata.uid.unwrap();
    let name: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
    world.fake().leave_behind(OwnedLoadBalancer { name, service: None });
    world.fake().fail_next("delete-owned", Error::retry_after(S, "the security group is still in use"));
    pass(3 * PERIOD).await;
    assert_eq!(deletions(&mut world).await, 1);
    world.fake().forget_left_behind();
    let patch = json!({ "spec": { "type": "LoadBalancer" } });
    world.as_user(world.services().patch("late", &PatchParams::default(), &Patch::Merge(patch))).await;
    pass(20 * PERIOD).await;
    assert_eq!(deletions(&mut world).await, 0);
}

/// The share of a Service of this name and UID in the load balancer `lb-shared`.
fn share(service: &str, uid: &str) -> OwnedLoadBalancer {
    let service = ("default".to_owned(), service.to_owned(), uid.to_owned());
    OwnedLoadBalancer { name: "lb-shared".to_owned(), service: Some(service) }
}

/// The first Service of a shared load balancer was deleted while no manager ran.
#[tokio::test(start_paused = true)]
async fn no_share_of_a_load_balancer_that_a_service_uses_is_deleted() {
    let mut world = scanning(true, one()).await;
    let uid = world.as_user(world.services().get("web")).await.metadata.uid.unwrap();
    world.fake().leave_behind(share("old", "uid-1"));
    world.fake().leave_behind(share("web", &uid));
    pass(3 * PERIOD).await;
    let transcript = world.transcript().await;
    assert!(transcript.contains("made for the Service default/old with the UID uid-1, and no Service wants it. Another Service uses the same load balancer, so Skysail does not delete this Service's share by itself. If no other"), "{transcript}");
    pass(20 * PERIOD).await;
    assert!(!world.transcript().await.contains("delete-owned"));
    // The last user is gone: both shares go, each by itself.
    world.delete_service("web").await;
    pass(4 * PERIOD).await;
    let calls: Vec<_> = world.fake().calls().into_iter().filter(|call| call.starts_with("delete-owned")).collect();
    assert_eq!(calls, ["delete-owned lb-shared of default/old", "delete-owned lb-shared of default/web"]);
}

/// A user chose the name, and another Service had the load balancer before.
#[tokio::test(start_paused = true)]
async fn no_share_of_a_load_balancer_whose_name_a_service_has_is_deleted() {
    let mut world = scanning(true, one()).await;
    let uid = world.as_user(world.services().get("web")).await.metadata.uid.unwrap();
    let name: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
    world.fake().leave_behind(OwnedLoadBalancer { name, ..share("old", "uid-1") });
    pass(20 * PERIOD).await;
    assert!(!world.transcript().await.contains("delete-owned"));
    assert_eq!(world.fake().cloud().len(), 1);
}

/// A scan of many Services lasts minutes, and a user may choose the name of a load balancer that
/// an earlier Service left behind.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_a_service_begins_to_use_during_the_scan_is_not_deleted() {
    let mut world = scanning(true, one()).await;
    world.add_service("late", json!({ "type": "ClusterIP" })).await;
    let uid = world.as_user(world.services().get("late")).await.metadata.uid.unwrap();
    let name: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
    world.fake().leave_behind(OwnedLoadBalancer { name: name.clone(), service: None });
    pass(2 * PERIOD).await;
    let services = world.services();
    world.fake().on_call(move |line| {
        let (services, is_list) = (services.clone(), line == "list-owned");
        Box::pin(async move {
            if is_list {
                let patch = json!({ "spec": { "type": "LoadBalancer" } });
                services.patch("late", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
                pass(10 * S).await;
            }
        })
    });
    pass(PERIOD).await;
    let calls = world.fake().calls();
    assert!(calls.iter().any(|call| call.starts_with("ensure default/late")), "{calls:?}");
    assert!(!calls.iter().any(|call| call.starts_with("delete-owned")), "{calls:?}");
    assert!(world.state("late").await.contains("203.0.113."));
    drop(world.transcript().await);
    pass(20 * PERIOD).await;
    assert!(!world.fake().calls().iter().any(|call| call.starts_with("delete-owned")));
}
