//! Tests of applying objects to a real fleet, with Secrets of a fake API server that can fail.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client,
    api::DynamicObject,
    client::Body,
    runtime::{reflector::store::Writer, watcher},
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};
use tower::service_fn;

use super::super::{Resources, api_resource};
use crate::{
    commands::run::entries,
    custom_resource::ProviderStatus,
    provider_file::PROVIDERS_MAX,
    providers::{Fleet, Problem, services},
};

/// The API server's answer about the only Secret: the token, another key, no UTF-8 text, 404, 403
/// or 500.
#[derive(Clone)]
enum Secret {
    Token(&'static str),
    OtherKey,
    NoText,
    Absent,
    Forbidden,
    OutOfOrder,
}

struct World {
    writer: Writer<DynamicObject>,
    resources: Resources,
    fleet: Fleet,
    secret: Arc<Mutex<Secret>>,
    /// Number of requests for the Secret.
    asked: Arc<AtomicU64>,
}

impl World {
    fn new() -> Self {
        let writer = Writer::new(api_resource());
        let secret = Arc::new(Mutex::new(Secret::Token("the-first-value")));
        let (said, asked) = (Arc::clone(&secret), Arc::<AtomicU64>::default());
        let count = Arc::clone(&asked);
        let api = service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            let answer = answer(&said.lock().unwrap());
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        let (_, touched) = watch::channel(0);
        let resources = Resources::of(Client::new(api, "default"), writer.as_reader(), touched, JoinSet::new());
        Self { writer, resources, fleet: Fleet::new(services(&mut Registry::default()).unwrap()), secret, asked }
    }

    fn say(&self, secret: Secret) {
        *self.secret.lock().unwrap() = secret;
    }

    fn write(&mut self, uid: &str, generation: i64, more: &Value) {
        let object = provider(&format!("p{}", uid.split('-').next().unwrap()), uid, generation, more);
        self.writer.apply_watcher_event(&watcher::Event::Apply(object));
    }

    fn delete(&mut self, uid: &str) {
        let object = provider(&format!("p{}", uid.split('-').next().unwrap()), uid, 1, &json!({}));
        self.writer.apply_watcher_event(&watcher::Event::Delete(object));
    }

    /// Name and problem of each refused object.
    async fn look(&mut self) -> Vec<(String, String)> {
        self.resources.look(&mut self.fleet, true).await;
        let provider_states = self.resources.provider_states.borrow();
        let reason = |problem: &Problem| match problem {
            Problem::Refused(reason) | Problem::ClaimsDropped(reason) => reason.clone(),
        };
        provider_states.iter().filter_map(|s| Some((s.name.clone(), s.problem.as_ref().map(reason)?))).collect()
    }

    fn knows(&self, value: &str) -> bool {
        self.fleet.served["p1"].spec.credentials.redact(value) != value
    }
}

fn answer(secret: &Secret) -> Response<Body> {
    let (status, body) = match secret {
        Secret::Token(token) => {
            (200, json!({ "metadata": { "name": "cloud" }, "data": { "token": STANDARD.encode(token) } }))
        }
        Secret::OtherKey => (200, json!({ "metadata": { "name": "cloud" }, "data": { "password": "YQ==" } })),
        Secret::NoText => (200, json!({ "metadata": { "name": "cloud" }, "data": { "token": "/w==" } })),
        Secret::Forbidden => (403, json!({ "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403 })),
        Secret::Absent => (404, json!({ "status": "Failure", "reason": "NotFound", "message": "no", "code": 404 })),
        Secret::OutOfOrder => (500, json!({ "status": "Failure", "reason": "Internal", "message": "no", "code": 500 })),
    };
    Response::builder().status(status).body(Body::from(body.to_string().into_bytes())).unwrap()
}

/// An object with an unreachable oci source. Its creation time is the number in its name.
fn provider(name: &str, uid: &str, generation: i64, more: &Value) -> DynamicObject {
    let secret = json!({ "namespace": "default", "name": "cloud", "key": "token" });
    let mut spec = json!({
        "source": { "oci": { "reference": "127.0.0.1:1/sim:v1" } },
        "credentials": { "api": { "origins": ["https://api.example.com"], "bearer": { "secretKeyRef": secret } } },
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let second: u32 = name.trim_start_matches('p').parse().unwrap();
    let created = format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60);
    let metadata = json!({ "name": name, "uid": uid, "generation": generation, "creationTimestamp": created });
    serde_json::from_value(json!({
        "apiVersion": "skysail.dev/v1alpha1", "kind": "Provider", "metadata": metadata, "spec": spec,
    }))
    .unwrap()
}

#[tokio::test]
async fn a_changed_secret_is_used_without_a_swap_and_an_unreadable_one_keeps_its_value() {
    let mut world = World::new();
    world.write("1", 1, &json!({}));
    assert_eq!(world.look().await, []);
    assert!(world.knows("the-first-value"));
    let slot = Arc::clone(&world.fleet.served["p1"].slot);

    world.say(Secret::Token("the-second-value"));
    assert_eq!(world.look().await, []);
    assert!(world.knows("the-second-value") && Arc::ptr_eq(&slot, &world.fleet.served["p1"].slot));

    world.say(Secret::OutOfOrder);
    assert_eq!(world.look().await, []);
    assert!(world.knows("the-second-value"));

    world.say(Secret::Absent);
    let [(_, reason)] = &*world.look().await else { panic!("it is gone") };
    assert_eq!(reason, "Secret default/cloud does not exist; create it");
    assert!(world.knows("the-second-value"), "the last valid settings stay in force");
    world.say(Secret::Token("the-third-value"));
    assert_eq!(world.look().await, []);
}

/// The first request of a start is answered, and then the API server is gone.
#[tokio::test(start_paused = true)]
async fn a_start_ends_if_no_list_of_providers_arrives() {
    let first = Arc::new(AtomicU64::new(0));
    let api = service_fn(move |_: Request<Body>| {
        let is_first = first.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if !is_first {
                std::future::pending::<()>().await;
            }
            let list =
                json!({ "apiVersion": "skysail.dev/v1alpha1", "kind": "ProviderList", "metadata": {}, "items": [] });
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    let ended = Resources::start(Client::new(api, "default")).await.map(drop);
    assert_eq!(
        ended.unwrap_err().to_string(),
        "the API server sent no list of Providers within 30 s; the log has the reason if it refused the list"
    );
}

/// Each reason has another remedy.
#[tokio::test]
async fn a_secret_without_a_value_is_reported_with_its_reason() {
    let mut world = World::new();
    world.write("1", 1, &json!({}));
    for (secret, reason) in [
        (Secret::Absent, "Secret default/cloud does not exist; create it"),
        (Secret::Forbidden, "this account has no permission to get the Secret default/cloud; grant it"),
        (Secret::OtherKey, "Secret default/cloud has no key \"token\"; add the key"),
        (Secret::NoText, "Secret default/cloud has no UTF-8 text under the key \"token\"; replace the value"),
    ] {
        world.say(secret);
        let [(_, problem)] = &*world.look().await else { panic!("{reason}") };
        assert!(problem.starts_with(reason), "{problem}");
    }
}

/// Each write of a status triggers the watch.
#[tokio::test]
async fn a_change_outside_of_the_spec_reads_no_secret() {
    let mut world = World::new();
    world.write("1", 1, &json!({}));
    assert_eq!(world.look().await, []);
    let asked = world.asked.load(Ordering::SeqCst);
    world.write("1", 1, &json!({}));
    world.resources.look(&mut world.fleet, false).await;
    assert_eq!(world.asked.load(Ordering::SeqCst), asked);
    world.write("1", 2, &json!({ "config": "new" }));
    world.resources.look(&mut world.fleet, false).await;
    assert_eq!((world.asked.load(Ordering::SeqCst), &*world.fleet.served["p1"].spec.config), (asked + 1, "new"));
}

#[tokio::test]
async fn a_secret_that_could_not_be_read_yet_is_not_reported_as_missing() {
    let mut world = World::new();
    world.say(Secret::OutOfOrder);
    world.write("1", 1, &json!({}));
    let [(_, reason)] = &*world.look().await else { panic!("it cannot be known") };
    assert!(reason.contains("cannot be read now"), "{reason}");
    let left_out = world.resources.left_out();
    assert!(left_out().unwrap().starts_with("p1 is not served: Secret default/cloud"));
    world.say(Secret::Token("the-first-value"));
    assert_eq!(world.look().await, []);
    assert!(world.knows("the-first-value") && left_out().is_none());
}

#[tokio::test]
async fn an_invalid_object_keeps_its_last_valid_settings_and_a_recreated_object_has_none() {
    let mut world = World::new();
    world.write("1", 1, &json!({ "config": "good" }));
    assert_eq!(world.look().await, []);
    world.write("1", 2, &json!({ "config": "new", "limits": { "fuel": 1 } }));
    assert_eq!(world.look().await.len(), 1);
    assert_eq!(world.fleet.served["p1"].spec.config, "good");

    let controlled = world.fleet.ownership();
    world.delete("1");
    world.write("1-again", 1, &json!({ "limits": { "fuel": 1 } }));
    assert_eq!(world.look().await.len(), 1);
    assert_ne!(world.fleet.ownership(), controlled, "the controllers leave the slot of the deleted one");
    let served = &world.fleet.served["p1"];
    assert!(!served.has_settings() && served.spec.config.is_empty(), "it has only the name of the deleted one");
    let left_out = world.resources.left_out();
    assert!(left_out().is_some());
    world.delete("1-again");
    assert_eq!(world.look().await, []);
    assert!(left_out().unwrap().contains("the cluster has no Provider"));
}

/// The manager starts, and the older object cannot be served. A younger one must not take its
/// Services and nodes.
#[tokio::test]
async fn an_object_that_is_refused_at_the_start_keeps_its_claims_until_it_is_served() {
    let mut world = World::new();
    let selector = json!({ "matchLabels": { "cloud": "a" } });
    let claims = json!({
        "default": true, "loadBalancerClasses": ["x/lb"], "providerIdSchemes": ["cloud"], "nodeSelector": selector,
    });
    world.say(Secret::Absent);
    world.write("1", 1, &claims);
    world.write("2", 1, &json!({ "default": true, "providerIdSchemes": ["cloud", "other"], "credentials": {} }));
    let refused = world.look().await;
    let reasons: Vec<_> = refused.iter().map(|(name, reason)| (&**name, reason.split(';').next().unwrap())).collect();
    assert_eq!(
        reasons,
        [("p1", "Secret default/cloud does not exist"), ("p2", "spec.default: provider \"p1\" is the default already"),]
    );
    let claimed = world.fleet.ownership();
    let left_out = world.resources.left_out();
    assert_eq!(left_out().unwrap(), "p1 is not served: Secret default/cloud does not exist; create it");
    let ready = world.resources.provider_states.borrow()[0].status(&ProviderStatus::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(ready.conditions[0].message, "no release serves: Secret default/cloud does not exist; create it",);

    world.say(Secret::Token("the-first-value"));
    assert_eq!(world.look().await.len(), 1, "the younger one is still not the default");
    assert!(world.knows("the-first-value") && left_out().is_none());
    assert_eq!(world.fleet.ownership(), claimed);
}

/// The registry is down at the start: without the remembered schemes a younger provider would have
/// the nodes half a minute later.
#[tokio::test]
async fn the_controllers_get_the_schemes_that_the_status_of_an_object_remembers() {
    let mut world = World::new();
    let mut object = provider("p1", "1", 1, &json!({}));
    object.data["status"] = json!({ "providerIdSchemes": ["cloud"], "swaps": 1 });
    world.writer.apply_watcher_event(&watcher::Event::Apply(object));
    world.write("2", 1, &json!({}));
    assert_eq!(world.look().await, []);
    let providers = entries(&world.fleet).unwrap();
    let remembered: Vec<_> = providers.entries().iter().map(|entry| entry.remembered_schemes.clone()).collect();
    assert_eq!(remembered, [vec!["cloud".to_owned()], vec![]]);
}

/// Each edit of a wrong object counts, because nothing else is in force.
#[tokio::test]
async fn the_claims_of_an_object_that_was_never_valid_are_read_each_by_itself() {
    let mut world = World::new();
    let mut claims = async |generation, more: Value| {
        world.write("1", generation, &more);
        assert_eq!(world.look().await.len(), 1);
        let spec = &world.fleet.served["p1"].spec;
        (spec.default, spec.load_balancer_classes.len(), spec.provider_id_schemes.len(), spec.node_selector.clone())
    };
    let labels = |labels: Value| json!({ "matchLabels": labels });
    assert_eq!(
        claims(1, json!({ "default": true, "loadBalancerClasses": "x/lb", "nodeSelector": labels(json!({})) })).await,
        (true, 0, 0, None)
    );
    let selected = [("cloud".to_owned(), "a".to_owned())].into();
    assert_eq!(
        claims(
            2,
            json!({ "default": 1, "providerIdSchemes": ["a", "b"], "nodeSelector": labels(json!({ "cloud": "a" })) })
        )
        .await,
        (false, 0, 2, Some(selected))
    );
    assert_eq!(
        claims(3, json!({ "loadBalancerClasses": ["x/lb"], "limits": { "fuel": 1 } })).await,
        (false, 1, 0, None)
    );
}

/// A refused object may also have lost a claim; the refusal is what its owner has to mend first.
#[tokio::test]
async fn a_refusal_is_not_hidden_by_a_claim_that_another_one_has() {
    let mut world = World::new();
    world.write("1", 1, &json!({ "default": true }));
    world.write("2", 1, &json!({ "default": true, "limits": { "fuel": 1 } }));
    let [(name, reason)] = &*world.look().await else { panic!("one is refused") };
    assert_eq!(name, "p2");
    assert!(reason.starts_with("spec.limits.fuel"), "{reason}");
}

#[tokio::test]
async fn the_oldest_objects_are_served_and_the_older_object_gets_a_claim() {
    let mut world = World::new();
    for number in 1..=PROVIDERS_MAX + 1 {
        world.write(&number.to_string(), 1, &json!({ "default": number >= PROVIDERS_MAX - 1 }));
    }
    let refused = world.look().await;
    let names: Vec<_> = refused.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["p32", "p33"]);
    assert!(refused[0].1.contains("provider \"p31\" is the default already"), "{refused:?}");
    assert!(refused[1].1.contains("more than 32 Providers"), "{refused:?}");
    assert_eq!(world.fleet.served.len(), PROVIDERS_MAX);
}
