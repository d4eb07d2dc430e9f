//! Tests of the bundle of a cluster that answers some requests and refuses others.

use std::{convert::Infallible, io::Read as _, os::unix::fs::PermissionsExt as _};

use expect_test::expect;
use flate2::read::GzDecoder;
use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::service_fn;

use super::{archive::Bundle, new_beside, read, redact::Redaction, services, write};
use crate::args::ObjectPath;

fn list(items: &[Value]) -> (u16, String) {
    (200, json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items }).to_string())
}

fn refused(code: u16, message: &str) -> (u16, String) {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code });
    (code, status.to_string())
}

/// As in a list of the API server: without its kind.
fn object(name: &str, more: Value) -> Value {
    let mut object = json!({ "metadata": { "name": name, "managedFields": [] } });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

fn namespaced(mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!("shop");
    object
}

fn path(name: &str) -> ObjectPath {
    ObjectPath { namespace: "shop".to_owned(), name: name.to_owned() }
}

/// What the API server answers. Everything that is secret there is `s3cret`.
fn answer(path: &str, query: &str) -> (u16, String) {
    let about = |kind: &str| object(kind, json!({ "regarding": { "kind": kind }, "note": "token=s3cret" }));
    match path {
        "/apis/skysail.dev/v1alpha1/providers" => {
            list(&[object("sim", json!({ "spec": { "config": "s3cret" }, "status": { "swaps": 2 } }))])
        }
        "/api/v1/nodes" => refused(403, "nodes is forbidden\u{1b}[2J"),
        "/api/v1/services" => list(&[
            namespaced(object("web", json!({ "spec": { "type": "LoadBalancer" } }))),
            object("internal", json!({ "spec": { "type": "ClusterIP" } })),
        ]),
        "/apis/events.k8s.io/v1/events" => list(&[about("Node"), about("Pod")]),
        "/api/v1/namespaces/sky/pods" => {
            let status = json!([{ "name": "skysail", "restartCount": 1 }, { "name": "sidecar", "restartCount": 0 }]);
            let spec = json!({ "containers": [{ "env": [{ "name": "A", "value": "s3cret" }] }] });
            list(&[object("pod-1", json!({ "spec": spec, "status": { "containerStatuses": status } }))])
        }
        "/api/v1/namespaces/sky/pods/pod-1/log" if query.contains("previous=true") => refused(400, "no previous log"),
        "/api/v1/namespaces/sky/pods/pod-1/log" => (200, format!("{query}\npassword=s3cret\n")),
        "/api/v1/namespaces/sky/pods/https:pod-1:10258/proxy/readyz" => (500, "[-]watches failed\n".to_owned()),
        "/api/v1/namespaces/sky/pods/https:pod-1:10258/proxy/livez" => refused(403, "pods/proxy is forbidden"),
        _ => list(&[]),
    }
}

async fn bundle(redaction: &Redaction) -> Bundle<'_> {
    let service = service_fn(|request: Request<Body>| async move {
        let uri = request.uri();
        let (status, body) = answer(uri.path(), uri.query().unwrap_or_default());
        Ok::<_, Infallible>(Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap())
    });
    let client = Client::new(service, "default");
    let cluster = read::Cluster { client: &client, namespace: "sky", selector: "a=b", redaction };
    let mut bundle = Bundle::new(redaction);
    let services = cluster.read(&mut bundle).await;
    assert_eq!(services, [path("web")]);
    bundle
}

#[tokio::test]
async fn what_cannot_be_read_is_missing_with_its_reason_and_the_rest_is_there() {
    expect![[r#"
        providers.yaml                   objects: 1
        services.yaml                    objects: 1
        events.yaml                      objects: 1
        leases.yaml                      objects: 0
        deployments.yaml                 objects: 0
        pods.yaml                        objects: 1
        logs/pod-1_skysail.log           lines: 2
        logs/pod-1_sidecar.log           lines: 2
        health/pod-1_readyz.txt          lines: 1
        nodes.yaml                       missing: 403: nodes is forbidden [2J
        logs/pod-1_skysail.previous.log  missing: 400 Bad Request: no previous log
        health/pod-1_livez.txt           missing: 403 Forbidden: pods/proxy is forbidden
    "#]]
    .assert_eq(&bundle(&Redaction::new(false).unwrap()).await.contents());
}

#[tokio::test]
async fn the_archive_has_all_files_in_one_folder_and_no_secret() {
    let redaction = Redaction::new(false).unwrap();
    let archive = bundle(&redaction).await.archive("skysail-support-1", "head\n", 1).unwrap();
    let (mut paths, mut all) = (Vec::new(), String::new());
    for file in tar::Archive::new(GzDecoder::new(&*archive)).entries().unwrap() {
        let mut file = file.unwrap();
        paths.push(file.path().unwrap().display().to_string());
        file.read_to_string(&mut all).unwrap();
    }
    assert_eq!(paths.len(), 10);
    assert!(paths.iter().all(|path| path.starts_with("skysail-support-1/")), "{paths:?}");
    assert_eq!(paths[0], "skysail-support-1/contents.txt");
    assert!(all.starts_with("head\n\nproviders.yaml ") && !all.contains("s3cret"), "{all}");
    for kept in [
        "kind: Provider",
        "swaps: 2",
        "name: web",
        "regarding",
        "password=REDACTED",
        "container=skysail&timestamps=true",
        "[-]watches failed",
    ] {
        assert!(all.contains(kept), "{kept}: {all}");
    }
    assert!(!all.contains("name: internal") && !all.contains("kind: Pod\n    "), "{all}");
}

#[tokio::test]
async fn what_a_manager_says_is_redacted_too_and_what_it_refuses_is_missing() {
    let service = service_fn(|request: Request<Body>| async move {
        let (status, body) = match request.uri().path() {
            "/configz" => (200, r#"{"token": "s3cret"}"#.to_owned()),
            "/metrics" => refused(403, "forbidden"),
            "/providers" => (404, "404 page not found".to_owned()),
            path => (200, format!("{path} ok\n")),
        };
        Ok::<_, Infallible>(Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap())
    });
    let redaction = Redaction::new(false).unwrap();
    let mut bundle = Bundle::new(&redaction);
    read::of_manager(&Client::new(service, "default"), "https://m:1", &redaction, &mut bundle).await;
    expect![[r#"
        manager/livez.txt      lines: 1
        manager/readyz.txt     lines: 1
        manager/configz.txt    lines: 1
        manager/providers.txt  missing: 404 Not Found
        manager/metrics.txt    missing: 403 Forbidden: forbidden
    "#]]
    .assert_eq(&bundle.contents());
}

#[test]
fn only_this_account_can_read_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bundle.tar.gz");
    for bytes in [b"one", b"two"] {
        write(new_beside(&file).unwrap(), &file, bytes).unwrap();
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"two");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    let error = new_beside(&folder.path().join("absent/bundle.tar.gz")).unwrap_err().to_string();
    assert!(
        error.starts_with("--file: cannot create a file in ") && error.ends_with("absent: entity not found"),
        "{error}"
    );
}

/// A manager's answer about a Service: its plan, and how its last run ended.
fn document(name: &str, step: &str, failed: Option<&str>) -> String {
    let object =
        json!({ "uid": "u", "wantsLoadBalancer": true, "deleting": false, "finalizers": [], "ingress": ["1.2.3.4"] });
    let outcome = json!({ "agoMs": 1, "provider": "sim", "step": step, "code": "Denied", "message": failed });
    json!({
        "namespace": "shop", "name": name, "object": object, "owner": { "provider": "sim", "reason": "default" },
        "plan": { "step": step, "reason": "r" }, "lastOutcome": outcome, "calls": [],
    })
    .to_string()
}

/// The files of the Services and what is missing, from a manager that answers like this.
async fn of_services(names: &[&str], answer: impl Fn(&str) -> (u16, String) + Clone + Send + 'static) -> String {
    let service = service_fn(move |request: Request<Body>| {
        let (status, body) = answer(request.uri().path());
        let answer = Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    let redaction = Redaction::new(false).unwrap();
    let mut bundle = Bundle::new(&redaction);
    let paths: Vec<ObjectPath> = names.iter().map(|name| path(name)).collect();
    services::add((&Client::new(service, "default"), "https://m:1"), &redaction, &paths, &mut bundle).await;
    let archive = bundle.archive("b", "", 1).unwrap();
    let mut all = String::new();
    for file in tar::Archive::new(GzDecoder::new(&*archive)).entries().unwrap() {
        file.unwrap().read_to_string(&mut all).unwrap();
    }
    all
}

#[tokio::test]
async fn a_service_that_is_not_settled_is_explained_without_secrets_and_the_others_are_left_out() {
    let all = of_services(&["web", "settled", "gone", "failing"], |path| match path {
        "/services/shop/web" => (200, document("web", "Ensure", None)),
        "/services/shop/settled" => (200, document("settled", "Nothing", None)),
        "/services/shop/failing" => (200, document("failing", "Nothing", Some("401: password=s3cret"))),
        _ => {
            let details = json!({ "kind": "services", "name": "gone" });
            let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "message": "there is no Service", "details": details, "code": 404 });
            (404, status.to_string())
        }
    })
    .await;
    assert!(
        all.contains("manager/services/shop/web.txt") && all.contains("manager/services/shop/failing.txt"),
        "{all}"
    );
    assert!(all.contains("Service shop/web: has a step to do") && all.contains("password=REDACTED"), "{all}");
    assert!(!all.contains("settled") && !all.contains("gone") && !all.contains("s3cret"), "{all}");
}

#[tokio::test]
async fn pages_are_bounded_and_a_manager_that_does_not_know_is_asked_once() {
    let names: Vec<String> = (0..150).map(|number| format!("web-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = of_services(&names, |path| (200, document(path.rsplit('/').next().unwrap(), "Ensure", None))).await;
    assert_eq!(all.matches("manager/services/shop/").count(), 100, "{all}");
    assert!(all.contains("missing: more than 100 Services are not settled"), "{all}");
    let all = of_services(&names, |_| refused(503, "this manager is not the leader; ask host_1")).await;
    assert_eq!(
        all.matches("missing: the manager at https://m:1 does not know: this manager is not the leader").count(),
        1,
        "{all}"
    );
}
