//! Tests of the selection of webhooks and of their answers over HTTPS.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prometheus_client::{encoding::text::encode, registry::Registry};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{AdmissionRequest, AdmissionResponse, Webhook, WebhookError, WebhookMetrics, Webhooks};
use crate::{
    SecureServer,
    limits::{BODIES, REVIEW_BYTES_MAX, REVIEW_PARTS_MAX},
    options::SecureServingOptions,
    testing::{Ask, Served, loopback},
};

/// Denies objects named `bad`, fails on `broken`, and labels all others.
struct Judge {
    name: &'static str,
    path: &'static str,
}

#[async_trait::async_trait]
impl Webhook for Judge {
    fn name(&self) -> &str {
        self.name
    }

    fn path(&self) -> &str {
        self.path
    }

    async fn handle(&self, request: AdmissionRequest) -> Result<AdmissionResponse, WebhookError> {
        match request.name.as_str() {
            "bad" => Ok(AdmissionResponse::deny("it is bad")),
            "broken" => Err(WebhookError("the cloud does not answer".to_owned())),
            _ => Ok(AdmissionResponse::patch(
                json!([{ "op": "add", "path": "/metadata/labels", "value": request.object }]),
            )),
        }
    }
}

fn known() -> Vec<Arc<dyn Webhook>> {
    vec![Arc::new(Judge { name: "foo", path: "/foo" }), Arc::new(Judge { name: "bar", path: "/bar" })]
}

fn select(patterns: &[&str], registry: &mut Registry) -> Result<Webhooks, String> {
    let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    Webhooks::select(&known(), &patterns, WebhookMetrics::register(registry)).map_err(|error| error.to_string())
}

#[rstest]
#[case::o8_both_named_is_both(&["foo", "bar"], "{\"foo\", \"bar\"}")]
#[case::o8_one_named_is_one(&["foo"], "{\"foo\"}")]
#[case::o8_one_named_and_the_other_negated_is_one(&["foo", "-bar"], "{\"foo\"}")]
#[case::o8_only_a_negation_is_none(&["-foo"], "{}")]
#[case::o8_a_star_is_both(&["*"], "{\"foo\", \"bar\"}")]
#[case::nothing_is_none(&[], "{}")]
#[case::a_star_without_one(&["*", "-bar"], "{\"foo\"}")]
#[case::the_first_word_about_one_counts(&["foo", "-foo"], "{\"foo\"}")]
fn webhooks_are_selected_by_name(#[case] patterns: &[&str], #[case] expected: &str) {
    assert_eq!(format!("{:?}", select(patterns, &mut Registry::default()).unwrap()), expected);
}

#[test]
fn the_error_of_an_unknown_webhook_lists_the_known_webhooks() {
    let error = select(&["-baz"], &mut Registry::default()).unwrap_err();
    assert_eq!(error, "--webhooks \"-baz\": there is no such webhook; known: foo, bar");
}

#[tokio::test]
async fn o8_without_a_selected_webhook_the_port_is_not_bound() {
    let options = loopback(SecureServingOptions::webhooks());
    let webhooks = select(&["-foo"], &mut Registry::default()).unwrap();
    assert!(SecureServer::webhooks(&options, &webhooks).unwrap().is_none());
    std::net::TcpListener::bind((options.bind_address, options.secure_port)).unwrap();
    let off = SecureServingOptions { secure_port: 0, ..options };
    let webhooks = select(&["*"], &mut Registry::default()).unwrap();
    assert!(SecureServer::webhooks(&off, &webhooks).unwrap().is_none());
}

fn serve(registry: &mut Registry) -> Served {
    let webhooks = select(&["foo"], registry).unwrap();
    let options = loopback(SecureServingOptions::webhooks());
    Served::new(SecureServer::webhooks(&options, &webhooks).unwrap().unwrap())
}

fn review(name: &str) -> String {
    let kind = json!({ "group": "", "version": "v1", "kind": "PersistentVolume" });
    let request = json!({
        "uid": "705ab4f5", "operation": "CREATE", "name": name, "kind": kind, "resource": kind, "object": { "a": "b" },
    });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request }).to_string()
}

async fn post(served: &Served, path: &str, body: &str) -> (u16, String) {
    let headers = &[("content-type", "application/json")];
    served.ask(None, &Ask { method: "POST", path, headers, body }).await
}

#[tokio::test]
async fn a_decision_has_the_uid_of_its_request() {
    let served = serve(&mut Registry::default());
    let (status, body) = post(&served, "/foo", &review("good")).await;
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&answer["apiVersion"], &answer["kind"]), (&json!("admission.k8s.io/v1"), &json!("AdmissionReview")));
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("705ab4f5"), &json!(true)));
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(patch[0]["value"], json!({ "a": "b" }));
    let (status, body) = post(&served, "/foo", &review("bad")).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    let denied = json!({ "uid": "705ab4f5", "allowed": false, "status": { "message": "it is bad" } });
    assert_eq!((status, &answer["response"]), (200, &denied));
}

#[tokio::test]
async fn an_invalid_review_is_400_and_a_failing_webhook_is_500() {
    let mut registry = Registry::default();
    let served = serve(&mut registry);
    let json = &[("content-type", "application/json")][..];
    let charset = &[("content-type", "application/json; charset=utf-8")][..];
    let good = review("good");
    let without_request = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#;
    let old = good.replace("/v1\"", "/v1beta1\"");
    let large = "x".repeat(REVIEW_BYTES_MAX + 1);
    // Each item would take 632 bytes of memory.
    let bomb =
        good.replace(r#""object":{"a":"b"}"#, &format!(r#""object":[{}{{}}]"#, "{\"\":0},".repeat(REVIEW_PARTS_MAX)));
    let talkative = json!({ "apiVersion": "v1", "kind": "A".repeat(1 << 20) }).to_string();
    let forged = good.replace("\"CREATE\"", &json!(format!("\n2026 ERROR {}", "x".repeat(1 << 20))).to_string());
    assert!(forged.len() > 1 << 20);
    for (method, headers, body, said) in [
        ("GET", json, good.as_str(), "expected POST"),
        ("PUT", json, &good, "expected POST"),
        ("POST", charset, &good, "expected the content type"),
        ("POST", &[][..], &good, "expected the content type"),
        ("POST", json, "", "the body is empty"),
        ("POST", json, "{", "not an AdmissionReview"),
        ("POST", json, without_request, "has no request"),
        ("POST", json, &old, "v1beta1"),
        ("POST", json, &large, "cannot be read"),
        ("POST", json, &bomb, "members and items"),
        ("POST", json, &talkative, "expected an AdmissionReview"),
        ("POST", json, &forged, "not an AdmissionReview"),
    ] {
        let (status, text) = served.ask(None, &Ask { method, path: "/foo", headers, body }).await;
        assert_eq!(status, 400, "{method} {said}: {text}");
        assert!(text.contains(said) && text.len() < 1_000, "{said:?} in {text:?}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert_eq!(post(&served, "/foo", &review("broken")).await, (500, "the cloud does not answer\n".to_owned()));
    assert_eq!(post(&served, "/bar", &review("good")).await.0, 404, "it is not selected");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        r#"cloud_provider_webhook_request_total{code="400",webhook="foo"} 12"#,
        r#"cloud_provider_webhook_request_total{code="500",webhook="foo"} 1"#,
        r#"cloud_provider_webhook_request_duration_seconds_count{code="400",webhook="foo"} 12"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

/// As many bodies as there are reviews at once, of which only the first byte arrives.
#[tokio::test]
async fn a_review_does_not_wait_for_the_slow_bodies_of_others() {
    let served = serve(&mut Registry::default());
    let mut slow = Vec::new();
    for _ in 0..BODIES.address - 1 {
        let mut stream = served.connect(None, &["http/1.1"]).await;
        let head = "POST /foo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        slow.push(stream);
    }
    let (status, text) = post(&served, "/foo", &review("good")).await;
    assert_eq!(status, 200, "{text}");
}
