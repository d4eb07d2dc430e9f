//! Tests of the webhooks, from the request of the API server to the answer of a provider.

use std::sync::Arc;

use serde_json::{Value, json};
use skysail_controllers::{ProviderEntry, Providers};
use skysail_provider::{Code, Error, fake::FakeProvider};
use skysail_serving::webhook::{AdmissionRequest, AdmissionResponse, WebhookError};
use tokio::sync::watch;

use super::all;

const ZONE: &str = "topology.kubernetes.io/zone";

fn fake() -> FakeProvider {
    let fake = FakeProvider::new("fake");
    fake.add_volume("vol-1", [(ZONE, "z1")]);
    fake
}

fn providers(fake: &FakeProvider) -> Providers {
    let entry = ProviderEntry { default: true, ..ProviderEntry::new("fake", Arc::new(fake.clone())) };
    Providers::new(vec![entry]).unwrap()
}

fn request(operation: &str, kind: &str, handle: &str) -> AdmissionRequest {
    let object = json!({ "metadata": { "name": "a" }, "spec": { "cinder": { "volumeID": handle } } });
    let request = json!({
        "uid": "1", "operation": operation, "kind": { "group": "", "version": "v1", "kind": kind },
        "resource": { "group": "", "version": "v1", "resource": "persistentvolumes" }, "name": "a", "object": object,
    });
    serde_json::from_value(request).unwrap()
}

async fn handle(providers: Providers, request: AdmissionRequest) -> Result<AdmissionResponse, WebhookError> {
    let webhooks = all(watch::channel(providers).1, "kubernetes".to_owned());
    webhooks[0].handle(request).await
}

#[tokio::test]
async fn a_volume_that_is_created_is_patched() {
    let answer = handle(providers(&fake()), request("CREATE", "PersistentVolume", "vol-1")).await.unwrap();
    assert!(answer.allowed && answer.message.is_none());
    let paths = |patch: Value| patch.as_array().unwrap().iter().map(|op| op["path"].clone()).collect::<Vec<_>>();
    assert_eq!(paths(answer.patch.unwrap()), ["/metadata/labels", "/spec/nodeAffinity"]);
}

#[tokio::test]
async fn other_operations_and_kinds_are_allowed_without_a_call_of_a_provider() {
    let fake = fake();
    for (operation, kind) in [("UPDATE", "PersistentVolume"), ("DELETE", "PersistentVolume"), ("CREATE", "Pod")] {
        let answer = handle(providers(&fake), request(operation, kind, "vol-1")).await.unwrap();
        assert_eq!(answer, AdmissionResponse::allow(), "{operation} {kind}");
    }
    assert_eq!(fake.take_calls(), Vec::<String>::new());
}

#[tokio::test]
async fn a_volume_that_the_cloud_does_not_have_is_denied_with_the_providers_message() {
    let answer = handle(providers(&fake()), request("CREATE", "PersistentVolume", "vol-2")).await.unwrap();
    assert_eq!(answer, AdmissionResponse::deny("no volume \"vol-2\""));
}

/// After an error the `failurePolicy` of the webhook configuration decides.
#[tokio::test]
async fn a_provider_that_cannot_answer_is_an_error_and_not_a_decision() {
    let fake = fake();
    fake.fail_always("labels", Some(Error::new(Code::Unavailable, "503")));
    let error = handle(providers(&fake), request("CREATE", "PersistentVolume", "vol-1")).await.unwrap_err();
    assert_eq!(error.to_string(), "the provider could not locate the volume: 503");
    let error = handle(Providers::default(), request("CREATE", "PersistentVolume", "vol-1")).await.unwrap_err();
    assert_eq!(error.to_string(), "the manager is starting and has no providers yet");
}
