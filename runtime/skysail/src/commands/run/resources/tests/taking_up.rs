//! Objects in the store and Secrets of an API server that has its moods, taken up by a real fleet.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response};
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
    provider_file::PROVIDERS_MAX,
    providers::{Complaint, Fleet, services},
};

/// What the API server says of the only Secret: its token, that it has another key or no text, that
/// there is none, that this account may not read it, or that the server is out of order.
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
    /// How often it was asked for.
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

    /// What was refused of each.
    async fn look(&mut self) -> Vec<(String, String)> {
        self.resources.look(&mut self.fleet, true).await;
        let standings = self.resources.standings.borrow();
        let reason = |complaint: &Complaint| match complaint {
            Complaint::Refused(reason) | Complaint::GaveUp(reason) => reason.clone(),
        };
        standings.iter().filter_map(|s| Some((s.name.clone(), s.complaint.as_ref().map(reason)?))).collect()
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

/// Named after the first part of its UID. Of an oci source, which nobody answers; the number is its
/// age, too.
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
async fn a_secret_that_changes_is_used_without_a_swap_and_one_that_cannot_be_read_is_as_it_was() {
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
    assert!(world.knows("the-second-value"), "what was good stays in force");
    world.say(Secret::Token("the-third-value"));
    assert_eq!(world.look().await, []);
}

/// Each has another remedy.
#[tokio::test]
async fn a_secret_without_a_value_is_reported_with_its_reason() {
    let mut world = World::new();
    world.write("1", 1, &json!({}));
    for (secret, reason) in [
        (Secret::Absent, "Secret default/cloud does not exist; create it"),
        (Secret::Forbidden, "Secret default/cloud may not be read by this account; let the account get it"),
        (Secret::OtherKey, "Secret default/cloud has no key \"token\"; add the key"),
        (Secret::NoText, "Secret default/cloud has no UTF-8 text under the key \"token\"; replace the value"),
    ] {
        world.say(secret);
        let [(_, told)] = &*world.look().await else { panic!("{reason}") };
        assert!(told.starts_with(reason), "{told}");
    }
}

/// Each status that is written is a change to the watch.
#[tokio::test]
async fn a_change_of_nothing_that_counts_reads_no_secret() {
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
async fn a_secret_that_nobody_has_read_yet_is_not_taken_for_one_that_is_not_there() {
    let mut world = World::new();
    world.say(Secret::OutOfOrder);
    world.write("1", 1, &json!({}));
    let [(_, reason)] = &*world.look().await else { panic!("it cannot be known") };
    assert!(reason.contains("cannot be read now"), "{reason}");
    let left_out = world.resources.left_out();
    assert!(left_out().unwrap().starts_with("p1 is left out: Secret default/cloud"));
    world.say(Secret::Token("the-first-value"));
    assert_eq!(world.look().await, []);
    assert!(world.knows("the-first-value") && left_out().is_none());
}

#[tokio::test]
async fn a_wrong_object_keeps_what_was_good_of_it_and_nothing_of_another_one() {
    let mut world = World::new();
    world.write("1", 1, &json!({ "config": "good" }));
    assert_eq!(world.look().await, []);
    world.write("1", 2, &json!({ "config": "new", "limits": { "fuel": 1 } }));
    assert_eq!(world.look().await.len(), 1);
    assert_eq!(world.fleet.served["p1"].spec.config, "good");

    world.delete("1");
    world.write("1-again", 1, &json!({ "limits": { "fuel": 1 } }));
    assert_eq!(world.look().await.len(), 1);
    assert!(world.fleet.served.is_empty(), "it has the name of another, and nothing else");
    let left_out = world.resources.left_out();
    assert!(left_out().is_some());
    world.delete("1-again");
    assert_eq!(world.look().await, []);
    assert!(left_out().unwrap().contains("the cluster has no Provider"));
}

#[tokio::test]
async fn the_oldest_are_taken_up_and_the_older_one_has_the_claim() {
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
