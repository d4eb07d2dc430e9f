//! Load balancers that outlive their Service: what is retained, who may adopt it, and what an
//! orphan is no more.

use std::{collections::BTreeMap, time::Duration};

use expect_test::expect;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use prometheus_client::encoding::text::encode;
use rstest::rstest;
use serde_json::{Value, json};
use skysail_controllers::{DeletionPolicy, Finding};
use skysail_dev::api::{ApiError, Fault, RequestInfo};
use skysail_provider::{Code, Error};

use skysail_test_conformance::world::{Cloud, S, World, pass};

const PERIOD: Duration = Duration::from_mins(10);
const MINUTE: Duration = Duration::from_mins(1);
const POLICY: &str = "skysail.dev/deletion-policy";
const ADOPT: &str = "skysail.dev/adopt-load-balancer";
const NAME: &str = "skysail-retained-load-balancers";

fn annotated(name: &str, value: impl Into<Value>) -> Value {
    json!({ "metadata": { "annotations": { name: value.into() } } })
}

fn service(name: &str, annotations: Value) -> Service {
    let object = json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
    });
    serde_json::from_value(object).unwrap()
}

/// What tests of this module do in a world.
struct Cluster(World);

impl Cluster {
    async fn start(world: World) -> Self {
        world.add_node("a").await;
        Self(world.start().await)
    }

    async fn new() -> Self {
        Self::start(World::new()).await
    }

    fn services_of(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.0.client.clone(), namespace)
    }

    fn records(&self) -> Api<ConfigMap> {
        Api::namespaced(self.0.client.clone(), "kube-system")
    }

    async fn create_in(&self, namespace: &str, name: &str, annotations: Value) -> String {
        let api = self.services_of(namespace);
        let object = self.0.as_user(api.create(&PostParams::default(), &service(name, annotations))).await;
        pass(5 * S).await;
        object.metadata.uid.unwrap()
    }

    /// Creates a Service, which then has its load balancer if it may have one; returns its UID.
    async fn create(&self, name: &str, annotations: Value) -> String {
        self.create_in("default", name, annotations).await
    }

    /// A Service that was deleted, and whose load balancer is retained; returns its UID.
    async fn retained(&mut self, name: &str) -> String {
        let uid = self.create(name, json!({ POLICY: "Retain" })).await;
        self.delete(name).await;
        drop(self.0.transcript().await);
        uid
    }

    async fn delete(&self, name: &str) {
        self.0.delete_service(name).await;
        pass(5 * S).await;
    }

    async fn patch(&self, name: &str, patch: Value) {
        self.0.patch_service(name, patch).await;
        pass(5 * S).await;
    }

    /// The load balancers of the first cloud: the Service that ensured each last, and its address.
    fn cloud(&self) -> Vec<String> {
        let all = self.0.fake().cloud();
        let address = |lb: &skysail_provider::fake::FakeLoadBalancer| lb.status.ingress[0].ip.clone().unwrap();
        all.values().map(|lb| format!("{} {}", lb.service, address(lb))).collect()
    }

    /// The entries of the ConfigMap without names and times, by their UIDs.
    async fn recorded(&self) -> BTreeMap<String, String> {
        let object = self.0.as_user(self.records().get_opt(NAME)).await;
        let data = object.and_then(|object| object.data).unwrap_or_default();
        let shown = |(key, text): (String, String)| {
            let record: Value = serde_json::from_str(&text).unwrap();
            let state = if record["inUse"] == json!(true) { "in use by" } else { "retained of" };
            let (namespace, name) = (record["namespace"].as_str().unwrap(), record["service"].as_str().unwrap());
            (key.split_once('.').unwrap().1.to_owned(), format!("{state} {namespace}/{name}"))
        };
        data.into_iter().map(shown).collect()
    }

    async fn record_of(&self, uid: &str) -> Option<String> {
        self.recorded().await.remove(uid)
    }

    /// Replaces an entry of the ConfigMap, as a person does.
    async fn write_record(&self, key: &str, text: Value) {
        let patch = json!({ "data": { key: text } });
        self.0.as_user(self.records().patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))).await;
        pass(5 * S).await;
    }

    /// The provider's calls that change something, since the last time.
    async fn changes(&mut self) -> Vec<String> {
        let text = self.0.transcript().await;
        let changes = ["provider ensure", "provider update", "provider delete"];
        text.lines().filter(|line| changes.iter().any(|change| line.starts_with(change))).map(str::to_owned).collect()
    }

    async fn events(&mut self, reason: &str) -> Vec<String> {
        let text = self.0.transcript().await;
        text.lines().filter(|line| line.starts_with("event ") && line.contains(reason)).map(str::to_owned).collect()
    }

    /// The problem of a Service that gets no load balancer.
    async fn refusal(&mut self, name: &str) -> String {
        let events = self.events("SyncLoadBalancerFailed").await;
        let own: Vec<_> = events.into_iter().filter(|event| event.starts_with(&format!("event {name} "))).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        own[0].clone()
    }

    fn metric(&self, line: &str) -> bool {
        let mut text = String::new();
        assert!(encode(&mut text, &self.0.registry).is_ok());
        text.lines().any(|l| l == line)
    }

    /// A new process, which knows the API and the cloud only.
    async fn another_process(mut self) -> Self {
        self.0.forget();
        Self(self.0.restart(|_| {}).await)
    }
}

#[tokio::test(start_paused = true)]
async fn a_retained_load_balancer_stays_and_the_event_says_how_to_get_it_back() {
    let mut cluster = Cluster::new().await;
    let uid = cluster.create("web", json!({ POLICY: "Retain" })).await;
    drop(cluster.0.transcript().await);
    let explained = cluster.0.explainer.service("default", "web").unwrap().deletion_policy.unwrap();
    assert!(explained.starts_with("Retain (the annotation skysail.dev/deletion-policy)"), "{explained}");
    cluster.delete("web").await;
    let transcript = cluster.0.transcript().await.replace(&uid, "UID").replace(&uid.replace('-', "")[..31], "NAME");
    expect![[r#"
        provider get default/web
        provider name default/web
        api create configmaps 
        api patch services/status web
        api patch services/status web
        event web Normal LoadBalancerRetained x1: The load balancer aNAME (203.0.113.1) of the provider fake stays in the cloud, because the deletion policy is Retain: the annotation skysail.dev/deletion-policy. To use it again, create a Service in the namespace default with the annotation skysail.dev/adopt-load-balancer: UID. To delete it, delete that Service with the annotation skysail.dev/deletion-policy: Delete, or: skysail orphans --delete aNAME
    "#]]
    .assert_eq(&transcript);
    assert_eq!(
        (cluster.0.state("web").await.as_str(), cluster.cloud()),
        ("gone", vec!["default/web 203.0.113.1".to_owned()])
    );
    assert!(cluster.metric(r#"skysail_retained_load_balancers{provider="fake"} 1"#));
    let finding = cluster.0.clouds[0].finding(Finding::LoadBalancersRetained).unwrap();
    assert!(finding.contains(&format!("with the UID {uid} of the former Service default/web")), "{finding}");
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("retained of default/web"));
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_the_provider_counts_without_an_annotation() {
    let mut cloud = Cloud::new("fake").default_of_all();
    cloud.retain(DeletionPolicy::Retain);
    let mut cluster = Cluster::start(World::with(vec![cloud])).await;
    let uid = cluster.create("web", json!({})).await;
    cluster.create("gone", json!({ POLICY: "Delete" })).await;
    cluster.delete("web").await;
    cluster.delete("gone").await;
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
    assert_eq!(cluster.recorded().await.into_keys().collect::<Vec<_>>(), [uid]);
    let events = cluster.events("LoadBalancerRetained").await;
    assert!(events[0].contains("Retain: spec.deletionPolicy of the Provider fake."), "{events:?}");
    // The policy counts at the time of the deletion.
    cluster.create("late", json!({})).await;
    cluster.0.edit(|clouds| clouds[0].retain(DeletionPolicy::Delete)).await;
    cluster.delete("late").await;
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
}

/// A policy that cannot be read deletes nothing.
#[tokio::test(start_paused = true)]
async fn an_unclear_policy_retains_with_a_warning() {
    let mut cluster = Cluster::new().await;
    cluster.create("web", json!({ POLICY: "delete" })).await;
    let events = cluster.events("InvalidDeletionPolicy").await;
    expect![[r#"event web Warning InvalidDeletionPolicy x1: The annotation skysail.dev/deletion-policy is "delete", which is neither "Delete" nor "Retain", so the load balancer of this Service will stay when the Service goes. Correct it: kubectl annotate --overwrite service web --namespace default skysail.dev/deletion-policy=Retain"#]]
        .assert_eq(&events.join("\n"));
    cluster.delete("web").await;
    assert_eq!(cluster.cloud().len(), 1);
    let events = cluster.events("LoadBalancerRetained").await;
    assert!(
        events[0].contains("Warning LoadBalancerRetained") && events[0].contains("counts as \"Retain\""),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_adopts_what_it_names_and_deletes_it_in_the_end() {
    let mut cluster = Cluster::new().await;
    let uid = cluster.retained("web").await;
    cluster.create("next", json!({ ADOPT: uid })).await;
    assert_eq!(cluster.changes().await, ["provider ensure default/web ports=80/TCP nodes=a"]);
    let state = cluster.0.state("next").await;
    assert_eq!(state, r#"["203.0.113.1"] ["service.kubernetes.io/load-balancer-cleanup"]"#, "the same address");
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("in use by default/next"));
    assert!(cluster.metric(r#"skysail_retained_load_balancers{provider="fake"} 0"#));
    let explained = cluster.0.explainer.service("default", "next").unwrap().deletion_policy.unwrap();
    assert!(
        explained.contains(&format!("has adopted the load balancer that was made for the Service with the UID {uid}"))
    );
    cluster.patch("next", json!({ "spec": { "ports": [{ "port": 81 }] } })).await;
    cluster.delete("next").await;
    assert!(cluster.cloud().is_empty() && cluster.recorded().await.is_empty());
    assert_eq!(cluster.0.state("next").await, "gone");
}

/// Whatever becomes of the annotation: the record decides.
#[tokio::test(start_paused = true)]
async fn an_adopted_load_balancer_is_its_services_also_without_the_annotation_and_in_the_next_process() {
    let mut cluster = Cluster::new().await;
    let uid = cluster.retained("web").await;
    cluster.create("next", json!({ ADOPT: uid })).await;
    cluster.patch("next", annotated(ADOPT, Value::Null)).await;
    let cluster = cluster.another_process().await;
    cluster.patch("next", json!({ "spec": { "ports": [{ "port": 81 }] } })).await;
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
    cluster.patch("next", annotated(POLICY, "Retain")).await;
    cluster.delete("next").await;
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("retained of default/next"));
    let cluster = cluster.another_process().await;
    cluster.create("third", json!({ ADOPT: uid })).await;
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
    let cluster = cluster.another_process().await;
    cluster.delete("third").await;
    assert!(cluster.cloud().is_empty() && cluster.recorded().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_user_of_another_namespace_gets_nothing_and_learns_nothing() {
    let mut cluster = Cluster::new().await;
    let uid = cluster.retained("web").await;
    let namespaces: Api<Namespace> = Api::all(cluster.0.client.clone());
    let other: Namespace = serde_json::from_value(json!({ "metadata": { "name": "attacker" } })).unwrap();
    cluster.0.as_user(namespaces.create(&PostParams::default(), &other)).await;
    cluster.create_in("attacker", "web", json!({ ADOPT: uid })).await;
    let about_another = cluster.refusal("web").await.replace(&uid, "UID");
    let none = "00000000-0000-0000-0000-000000000000";
    cluster.create_in("attacker", "none", json!({ ADOPT: none })).await;
    let about_none = cluster.refusal("none").await.replace(none, "UID").replace("none", "web");
    assert_eq!(about_another, about_none);
    assert!(about_none.contains("no retained load balancer with this UID in the namespace attacker"), "{about_none}");
    assert_eq!((cluster.cloud().len(), cluster.changes().await.len()), (1, 0));
    // Neither does a deletion.
    let api = cluster.services_of("attacker");
    let finalizer = json!({ "metadata": { "finalizers": ["service.kubernetes.io/load-balancer-cleanup"] } });
    cluster.0.as_user(api.patch("web", &PatchParams::default(), &Patch::Merge(&finalizer))).await;
    cluster.0.as_user(api.delete("web", &DeleteParams::default())).await;
    pass(MINUTE).await;
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("retained of default/web"));
}

#[tokio::test(start_paused = true)]
async fn the_load_balancer_of_a_living_service_and_what_is_no_uid_are_not_adopted() {
    let mut cluster = Cluster::new().await;
    let uid = cluster.create("web", json!({})).await;
    drop(cluster.0.transcript().await);
    for (name, value) in [("live", uid.as_str()), ("junk", "../web"), ("empty", ""), ("long", &"a".repeat(5000))] {
        cluster.create(name, json!({ ADOPT: value })).await;
        let refusal = cluster.refusal(name).await;
        let way_out = format!("kubectl annotate service {name} --namespace default {ADOPT}-");
        assert!(refusal.contains(ADOPT) && refusal.contains(&way_out), "{refusal}");
        assert!(refusal.len() < 800, "{}", refusal.len());
        assert_eq!(cluster.0.state(name).await, "[] []");
    }
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
    // The way out.
    cluster.patch("live", annotated(ADOPT, Value::Null)).await;
    assert_eq!(cluster.cloud().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn of_two_services_one_gets_it() {
    let mut cluster = Cluster::start(World::new().set(|settings| settings.concurrent_service_syncs = 10)).await;
    let uid = cluster.retained("web").await;
    let api = cluster.services_of("default");
    for number in 0..5 {
        let object = service(&format!("next-{number}"), json!({ ADOPT: uid }));
        cluster.0.as_user(api.create(&PostParams::default(), &object)).await;
    }
    pass(MINUTE).await;
    assert_eq!(cluster.cloud().len(), 1);
    let mut with_address = Vec::new();
    for number in 0..5 {
        let name = format!("next-{number}");
        if cluster.0.state(&name).await.contains("203.0.113.1") {
            with_address.push(name);
        }
    }
    assert_eq!(with_address.len(), 1, "{with_address:?}");
    assert_eq!(cluster.record_of(&uid).await, Some(format!("in use by default/{}", with_address[0])));
    // One after the other gets it when it is free again.
    cluster.patch(&with_address[0], annotated(POLICY, "Retain")).await;
    cluster.delete(&with_address[0]).await;
    pass(MINUTE).await;
    let next = cluster.record_of(&uid).await.unwrap();
    assert!(next.starts_with("in use by default/next-") && !next.ends_with(&with_address[0]), "{next}");
    assert_eq!(cluster.cloud().len(), 1);
}

/// A Service is replaced by one of another name in one step, as `kubectl apply --prune` does.
#[tokio::test(start_paused = true)]
async fn a_service_that_asks_too_early_gets_it_as_soon_as_it_is_retained() {
    let cluster = Cluster::new().await;
    let uid = cluster.create("web", json!({ POLICY: "Retain" })).await;
    cluster.create("next", json!({ ADOPT: uid })).await;
    assert_eq!(cluster.0.state("next").await, "[] []");
    cluster.delete("web").await;
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
    assert!(cluster.0.state("next").await.contains("203.0.113.1"));
}

/// Otherwise the Service would leave its own load balancer behind.
#[tokio::test(start_paused = true)]
async fn a_service_with_a_load_balancer_adopts_no_other_one_and_its_nodes_stay_current() {
    let mut cluster = Cluster::new().await;
    let uid = cluster.retained("web").await;
    cluster.create("busy", json!({})).await;
    drop(cluster.0.transcript().await);
    cluster.patch("busy", annotated(ADOPT, uid.as_str())).await;
    let refusal = cluster.refusal("busy").await;
    assert!(refusal.contains("has, or may have, the load balancer with the UID"), "{refusal}");
    cluster.0.add_node("b").await;
    pass(MINUTE).await;
    assert_eq!(cluster.changes().await, ["provider update default/busy nodes=a,b"]);
    let cluster = cluster.another_process().await;
    pass(MINUTE).await;
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("retained of default/web"));
    // With its type its own load balancer goes, and then it may have the other one.
    cluster.patch("busy", json!({ "spec": { "type": "ClusterIP" } })).await;
    cluster.patch("busy", json!({ "spec": { "type": "LoadBalancer" } })).await;
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("in use by default/busy"));
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_a_service_of_another_provider_names_the_one_that_has_it() {
    let clouds = vec![Cloud::new("fake").default_of_all(), Cloud::new("two").class("two.example/lb")];
    let mut cluster = Cluster::start(World::with(clouds)).await;
    let uid = cluster.retained("web").await;
    let api = cluster.services_of("default");
    let mut object = service("next", json!({ ADOPT: uid }));
    object.spec.as_mut().unwrap().load_balancer_class = Some("two.example/lb".to_owned());
    cluster.0.as_user(api.create(&PostParams::default(), &object)).await;
    pass(5 * S).await;
    let refusal = cluster.refusal("next").await;
    assert!(
        refusal.contains("is a retained load balancer of the provider fake, and this Service is of the provider two"),
        "{refusal}"
    );
    assert!(cluster.0.clouds[1].fake.cloud().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_type_retains_and_takes_back() {
    let cluster = Cluster::new().await;
    let uid = cluster.create("web", json!({ POLICY: "Retain" })).await;
    cluster.patch("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    assert_eq!(cluster.0.state("web").await, "[] []");
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("retained of default/web"));
    let cluster2 = cluster.another_process().await;
    cluster2.patch("web", json!({ "spec": { "type": "LoadBalancer" } })).await;
    assert_eq!(cluster2.cloud(), ["default/web 203.0.113.1"]);
    assert!(cluster2.recorded().await.is_empty(), "the provider finds it by the Service's own UID");
}

/// The first Service still exists, and its UID is the one by which the provider finds what another
/// Service has.
#[tokio::test(start_paused = true)]
async fn the_first_service_neither_uses_nor_deletes_what_another_one_has_adopted() {
    let mut cluster = Cluster::new().await;
    let uid = cluster.create("web", json!({ POLICY: "Retain" })).await;
    cluster.patch("web", json!({ "spec": { "type": "ClusterIP" } })).await;
    cluster.create("next", json!({ ADOPT: uid })).await;
    drop(cluster.0.transcript().await);
    cluster.patch("web", json!({ "spec": { "type": "LoadBalancer" } })).await;
    let refusal = cluster.refusal("web").await;
    assert!(refusal.contains("\"next\" has adopted the load balancer that was made for this Service"), "{refusal}");
    let mut cluster = cluster.another_process().await;
    drop(cluster.0.transcript().await);
    for patch in [
        json!({ "metadata": { "annotations": { POLICY: "Delete" }, "finalizers": ["service.kubernetes.io/load-balancer-cleanup"] } }),
        json!({ "spec": { "type": "ClusterIP" } }),
    ] {
        cluster.patch("web", patch).await;
    }
    cluster.delete("web").await;
    pass(MINUTE).await;
    assert_eq!(cluster.0.state("web").await, "gone");
    assert_eq!(cluster.changes().await, Vec::<String>::new());
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
}

/// Some providers find a load balancer by the name of its Service.
#[tokio::test(start_paused = true)]
async fn a_new_service_of_the_former_name_neither_uses_nor_deletes_what_is_retained() {
    let mut cluster = Cluster::new().await;
    cluster.0.fake().name_by_service();
    let uid = cluster.retained("web").await;
    cluster.create("next", json!({ ADOPT: uid })).await;
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"], "the provider gets the name, too");
    drop(cluster.0.transcript().await);
    cluster.create("web", json!({})).await;
    let refusal = cluster.refusal("web").await;
    assert!(
        refusal.contains("the load balancer \"default-web\", which it made for a former Service default/web"),
        "{refusal}"
    );
    let finalizer = json!({ "metadata": { "finalizers": ["service.kubernetes.io/load-balancer-cleanup"] } });
    cluster.patch("web", finalizer).await;
    cluster.delete("web").await;
    pass(MINUTE).await;
    assert_eq!((cluster.0.state("web").await.as_str(), cluster.changes().await.len()), ("gone", 0));
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
    cluster.delete("next").await;
    assert!(cluster.cloud().is_empty() && cluster.recorded().await.is_empty());
    cluster.create("web", json!({})).await;
    assert_eq!(cluster.cloud().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn retained_load_balancers_are_no_orphans_until_their_record_is_removed() {
    let world = World::new().set(|settings| {
        settings.orphan_scan_period = PERIOD;
        settings.delete_orphans = true;
    });
    let mut cluster = Cluster::start(world).await;
    let uid = cluster.retained("web").await;
    let adopted = cluster.retained("shop").await;
    cluster.create("next", json!({ ADOPT: adopted })).await;
    drop(cluster.0.transcript().await);
    pass(6 * PERIOD).await;
    let mut cluster = cluster.another_process().await;
    pass(6 * PERIOD).await;
    let text = cluster.0.transcript().await;
    assert!(!text.contains("delete-owned") && !text.contains("Orphaned"), "{text}");
    assert_eq!(cluster.cloud().len(), 2);
    // Nobody knows what an entry protects that cannot be read.
    cluster.write_record(&format!("fake.{uid}"), json!("{")).await;
    pass(6 * PERIOD).await;
    assert_eq!(cluster.cloud().len(), 2);
    cluster.write_record(&format!("fake.{uid}"), Value::Null).await;
    pass(6 * PERIOD).await;
    assert_eq!(cluster.cloud(), ["default/shop 203.0.113.2"]);
}

/// The finalizer of a Service is removed by force, and the Service goes without a deletion.
#[tokio::test(start_paused = true)]
async fn what_a_service_had_adopted_that_went_by_force_is_retained_again() {
    let mut cluster = Cluster::new().await;
    let uid = cluster.retained("web").await;
    cluster.create("next", json!({ ADOPT: uid, POLICY: "Retain" })).await;
    drop(cluster.0.transcript().await);
    cluster.stop().await;
    cluster.patch("next", json!({ "metadata": { "finalizers": null } })).await;
    cluster.delete("next").await;
    let mut cluster = cluster.another_process_after_stop().await;
    pass(MINUTE).await;
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("retained of default/next"));
    assert_eq!(cluster.changes().await, Vec::<String>::new());
    // While a process runs, the ledger knows the Service and its policy.
    cluster.create("third", json!({ ADOPT: uid, POLICY: "Retain" })).await;
    cluster.delete_by_force("third").await;
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("retained of default/third"));
    cluster.create("fourth", json!({ ADOPT: uid })).await;
    cluster.delete_by_force("fourth").await;
    assert!(cluster.cloud().is_empty() && cluster.recorded().await.is_empty());
}

/// The adoption is recorded before the finalizer is written, and the Service wants no load balancer
/// any more before the write succeeds: no other Service would get the load balancer, and no process
/// would delete it.
#[rstest]
#[tokio::test(start_paused = true)]
async fn what_a_service_adopted_before_it_wants_none_any_more_follows_its_policy(
    #[values("Retain", "Delete")] policy: &str,
    #[values(false, true)] restarts: bool,
) {
    let mut cluster = Cluster::new().await;
    let uid = cluster.retained("web").await;
    cluster.0.disturb(refuse_writes_of_services);
    cluster.create("next", json!({ ADOPT: uid, POLICY: policy })).await;
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("in use by default/next"));
    if restarts {
        cluster.stop().await;
    }
    cluster.patch("next", json!({ "spec": { "type": "ClusterIP" } })).await;
    cluster.0.disturb(|_: &RequestInfo| Fault::None);
    let cluster = if restarts { cluster.another_process_after_stop().await } else { cluster };
    pass(PERIOD).await;
    match policy {
        "Retain" => {
            assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("retained of default/next"));
            assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
        }
        _ => assert!(cluster.cloud().is_empty() && cluster.recorded().await.is_empty()),
    }
    assert!(!cluster.0.state("next").await.contains("load-balancer-cleanup"));
    cluster.create("third", json!({ ADOPT: uid })).await;
    let is_adopted = cluster.record_of(&uid).await.as_deref() == Some("in use by default/third");
    assert_eq!(is_adopted, policy == "Retain");
}

/// The same where the Service goes to another provider.
#[tokio::test(start_paused = true)]
async fn what_a_service_adopted_before_it_has_another_class_is_deleted_by_its_provider() {
    let clouds = vec![Cloud::new("fake").default_of_all(), Cloud::new("two").class("two.example/lb")];
    let mut cluster = Cluster::start(World::with(clouds)).await;
    let uid = cluster.retained("web").await;
    cluster.0.disturb(refuse_writes_of_services);
    cluster.create("next", json!({ ADOPT: uid })).await;
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("in use by default/next"));
    for spec in
        [json!({ "type": "NodePort" }), json!({ "type": "LoadBalancer", "loadBalancerClass": "two.example/lb" })]
    {
        cluster.patch("next", json!({ "spec": spec, "metadata": { "annotations": { ADOPT: null } } })).await;
    }
    cluster.0.disturb(|_: &RequestInfo| Fault::None);
    pass(PERIOD).await;
    assert!(cluster.cloud().is_empty() && cluster.recorded().await.is_empty());
    assert_eq!(cluster.0.clouds[1].fake.cloud().len(), 1);
}

/// The first list of Services comes before the records. The type of the Service, and so the claims,
/// no longer name the provider.
#[tokio::test(start_paused = true)]
async fn an_adopted_load_balancer_is_deleted_though_the_records_come_after_the_services() {
    let mut cluster = Cluster::new().await;
    let uid = cluster.retained("web").await;
    cluster.create("next", json!({ ADOPT: uid })).await;
    assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
    cluster.stop().await;
    cluster.patch("next", json!({ "spec": { "type": "ClusterIP" } })).await;
    cluster.0.disturb(|request: &RequestInfo| match (request.verb, &*request.resource) {
        ("get" | "list", "configmaps") => Fault::Latency(2 * S),
        _ => Fault::None,
    });
    let cluster = cluster.another_process_after_stop().await;
    pass(MINUTE).await;
    assert!(cluster.cloud().is_empty() && cluster.recorded().await.is_empty(), "{:?}", cluster.cloud());
}

fn refuse_writes_of_services(request: &RequestInfo) -> Fault {
    match (request.verb, &*request.resource) {
        ("patch", "services") => {
            Fault::Refuse(ApiError::new(500_u16.try_into().unwrap(), "InternalError", "etcdserver: leader changed"))
        }
        _ => Fault::None,
    }
}

impl Cluster {
    /// The process ends; what people do from now on, it does not see.
    async fn stop(&mut self) {
        self.0.stop.cancel();
        self.0.running.join_next().await;
    }

    /// No `ensure` of this cloud succeeds any more.
    fn no_ensure(&self, cloud: usize) {
        let error = Error::new(Code::Unavailable, "the address is taken, the load balancer not made");
        self.0.clouds[cloud].fake.fail_always("ensure", Some(error));
    }

    async fn another_process_after_stop(mut self) -> Self {
        self.0.forget();
        self.0.stop = tokio_util::sync::CancellationToken::new();
        Self(self.0.start().await)
    }

    /// Removes the finalizer and the object while the provider does not answer.
    async fn delete_by_force(&self, name: &str) {
        let api = self.services_of("default");
        self.0.fake().fail_always("get", Some(Error::new(Code::Unavailable, "the cloud is away")));
        self.0.as_user(api.delete(name, &DeleteParams::default())).await;
        pass(S).await;
        let patch = json!({ "metadata": { "finalizers": null } });
        self.0.as_user(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
        pass(S).await;
        self.0.fake().fail_always("get", None);
        pass(PERIOD).await;
    }
}

/// The finalizer waits for the record: nothing else would keep the load balancer from being
/// forgotten.
#[tokio::test(start_paused = true)]
async fn the_finalizer_stays_until_the_record_is_written() {
    let mut cluster = Cluster::new().await;
    cluster.create("web", json!({ POLICY: "Retain" })).await;
    cluster.0.disturb(|request: &RequestInfo| match (request.verb, &*request.resource) {
        ("create" | "patch" | "update", "configmaps") => {
            Fault::Refuse(ApiError::new(403_u16.try_into().unwrap(), "Forbidden", "no right to write configmaps"))
        }
        _ => Fault::None,
    });
    cluster.delete("web").await;
    pass(MINUTE).await;
    assert!(cluster.0.state("web").await.contains("load-balancer-cleanup"));
    let events = cluster.events("SyncLoadBalancerFailed").await;
    assert!(events[0].contains("no right to write configmaps"), "{events:?}");
    cluster.0.disturb(|_: &RequestInfo| Fault::None);
    pass(PERIOD).await;
    assert_eq!(cluster.0.state("web").await, "gone");
    assert_eq!(cluster.cloud().len(), 1);
    assert_eq!(cluster.recorded().await.len(), 1);
}

/// A cloud may return stale data.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_a_look_up_misses_is_recorded_all_the_same() {
    let cluster = Cluster::new().await;
    let uid = cluster.create("web", json!({ POLICY: "Retain" })).await;
    cluster.0.fake().make_get_blind();
    cluster.delete("web").await;
    assert_eq!(cluster.record_of(&uid).await.as_deref(), Some("retained of default/web"));
}

/// An `ensure` that failed may have taken an address, which would be left behind. The process that
/// called it deletes it, or the next process, which finds the finalizer.
#[tokio::test(start_paused = true)]
async fn what_nobody_has_seen_an_address_of_is_deleted_under_each_policy() {
    for restarts in [false, true] {
        let mut cluster = Cluster::new().await;
        cluster.no_ensure(0);
        cluster.create("web", json!({ POLICY: "Retain" })).await;
        if restarts {
            cluster.stop().await;
        }
        drop(cluster.0.transcript().await);
        cluster.delete("web").await;
        if restarts {
            cluster = cluster.another_process_after_stop().await;
        }
        pass(MINUTE).await;
        let last = cluster.changes().await.pop();
        assert_eq!(last.as_deref(), Some("provider ensure-deleted default/web"), "restarts: {restarts}");
        assert_eq!((cluster.0.state("web").await.as_str(), cluster.recorded().await.len()), ("gone", 0));
    }
}

/// The status says nothing about it: it is emptied with the type, and the class changes only with
/// the type.
#[tokio::test(start_paused = true)]
async fn a_former_provider_that_has_only_a_part_deletes_it_under_each_policy() {
    let clouds = vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")];
    let mut cluster = Cluster::start(World::with(clouds)).await;
    cluster.no_ensure(0);
    cluster.create("web", json!({ POLICY: "Retain" })).await;
    cluster.stop().await;
    cluster.patch("web", json!({ "spec": { "type": "NodePort" } })).await;
    let class = "two.example/lb";
    cluster.patch("web", json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": class } })).await;
    drop(cluster.0.fake().take_calls());
    let cluster = cluster.another_process_after_stop().await;
    pass(MINUTE).await;
    let calls = cluster.0.fake().calls();
    let changes: Vec<_> = calls.iter().filter(|call| call.starts_with("ensure")).collect();
    assert_eq!(changes, ["ensure-deleted default/web"]);
    assert_eq!((cluster.0.clouds[1].fake.cloud().len(), cluster.recorded().await.len()), (1, 0));
}

/// Anyone who may create Services may name any provider in an annotation.
#[tokio::test(start_paused = true)]
async fn a_service_that_never_had_a_load_balancer_leaves_no_record() {
    let mut cluster = Cluster::new().await;
    cluster.stop().await;
    for (name, kind) in [("port", "NodePort"), ("lb", "LoadBalancer")] {
        let uid = cluster.create(name, json!({ POLICY: "Retain", "skysail.dev/load-balancer-provider": "fake" })).await;
        let finalizer = "service.kubernetes.io/load-balancer-cleanup";
        let annotations = json!({ "skysail.dev/load-balancer-made-for": uid });
        let metadata = json!({ "annotations": annotations, "finalizers": [finalizer] });
        cluster.patch(name, json!({ "metadata": metadata, "spec": { "type": kind } })).await;
    }
    cluster.delete("lb").await;
    let cluster = cluster.another_process_after_stop().await;
    pass(MINUTE).await;
    assert_eq!((cluster.0.state("port").await.as_str(), cluster.0.state("lb").await.as_str()), ("[] []", "gone"));
    assert!(cluster.recorded().await.is_empty());
}

/// The new Service has no address in its status yet, and users know the one of the load balancer.
#[tokio::test(start_paused = true)]
async fn what_was_adopted_or_taken_back_stays_also_before_it_is_ensured() {
    for adopts in [true, false] {
        let mut cluster = Cluster::new().await;
        let uid = cluster.create("web", json!({ POLICY: "Retain" })).await;
        cluster.patch("web", json!({ "spec": { "type": "ClusterIP" } })).await;
        cluster.no_ensure(0);
        cluster.0.fake().make_get_blind();
        let name = if adopts { "next" } else { "web" };
        match adopts {
            true => drop(cluster.create(name, json!({ ADOPT: uid, POLICY: "Retain" })).await),
            false => cluster.patch(name, json!({ "spec": { "type": "LoadBalancer" } })).await,
        }
        drop(cluster.0.transcript().await);
        cluster.delete(name).await;
        pass(MINUTE).await;
        assert_eq!(cluster.changes().await, Vec::<String>::new());
        assert_eq!(cluster.record_of(&uid).await, Some(format!("retained of default/{name}")));
        assert_eq!(cluster.cloud(), ["default/web 203.0.113.1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_delays_the_record_and_a_pause_holds_it_back() {
    let mut cluster = Cluster::new().await;
    cluster.create("web", json!({ POLICY: "Retain" })).await;
    cluster.0.fake().fail_next("name", Error::new(Code::Internal, "a name failed"));
    cluster.patch("web", annotated("skysail.dev/paused", "true")).await;
    cluster.delete("web").await;
    pass(MINUTE).await;
    assert!(cluster.recorded().await.is_empty());
    cluster.patch("web", annotated("skysail.dev/paused", Value::Null)).await;
    pass(MINUTE).await;
    assert_eq!((cluster.recorded().await.len(), cluster.cloud().len()), (1, 1));
    assert_eq!(cluster.0.state("web").await, "gone");
    let events = cluster.events("SyncLoadBalancerFailed").await;
    assert!(events[0].contains("a name failed"), "{events:?}");
}

/// Nothing says which of the two made the load balancer.
#[tokio::test(start_paused = true)]
async fn of_several_providers_that_one_retains_which_has_the_load_balancer() {
    let mut clouds = vec![Cloud::new("one").default_of_all(), Cloud::new("two").class("two.example/lb")];
    clouds.iter_mut().for_each(|cloud| cloud.retain(DeletionPolicy::Retain));
    let cluster = Cluster::start(World::with(clouds)).await;
    let uid = cluster.create("web", json!({})).await;
    let nobody = json!({ "metadata": { "annotations": { "skysail.dev/load-balancer-provider": null, "skysail.dev/load-balancer-made-for": null } }, "spec": { "type": "ClusterIP" } });
    let mut cluster = cluster;
    cluster.stop().await;
    cluster.patch("web", nobody).await;
    let cluster = cluster.another_process_after_stop().await;
    pass(MINUTE).await;
    assert_eq!(cluster.0.state("web").await, "[] []");
    let data = cluster.0.as_user(cluster.records().get(NAME)).await.data.unwrap();
    assert_eq!(data.into_keys().collect::<Vec<_>>(), [format!("one.{uid}")]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_no_record() {
    let mut cluster = Cluster::new().await;
    cluster.create("web", json!({ POLICY: "Retain" })).await;
    cluster.stop().await;
    cluster.0.delete_service("web").await;
    let objects = cluster.0.dry_run().await;
    let web: Vec<_> = objects.iter().filter(|object| object.name == "default/web").collect();
    assert!(web.len() == 1 && web[0].requests.is_empty() && web[0].failures.is_empty(), "{web:?}");
    assert!(web[0].writes.iter().all(|write| write.path.ends_with("/services/web/status")), "{web:?}");
    assert!(cluster.recorded().await.is_empty());
}
