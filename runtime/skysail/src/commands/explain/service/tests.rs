//! Tests of the answers of a manager, and of the errors about them.

use std::convert::Infallible;

use expect_test::{Expect, expect};
use http::{Request, Response};
use kube::{Client, client::Body};
use rstest::rstest;
use serde_json::{Value, json};
use tower::service_fn;

use super::asked;
use crate::{args::ObjectPath, commands::run::ServiceDocument};

/// What the command makes of this answer.
async fn answered(status: u16, body: String) -> anyhow::Result<ServiceDocument> {
    let service = service_fn(move |request: Request<Body>| {
        assert_eq!(request.uri().path(), "/services/shop/web");
        let answer = Response::builder().status(status).body(Body::from(body.clone().into_bytes())).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    let path = ObjectPath { namespace: "shop".to_owned(), name: "web".to_owned() };
    asked(&Client::new(service, "default"), "https://m:1", &path).await
}

fn status(code: u16, message: &str, details: &Value) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "", "message": message,
        "details": details, "code": code,
    })
    .to_string()
}

#[rstest]
#[case::no_such_service(404, status(404, "there is no Service shop/web\u{1b}", &json!({ "kind": "services", "name": "web" })), expect!["there is no Service shop/web ; check the name and the namespace: kubectl get services --all-namespaces"])]
#[case::an_older_manager(404, "404 page not found\n".to_owned(), expect!["the server at https://m:1 has no path /services/shop/web: it is an older manager, or not a manager; check the port, which is that of --secure-port (default 10258)"])]
#[case::an_api_server(404, status(404, "the server could not find the requested resource", &json!({})), expect!["the server at https://m:1 has no path /services/shop/web: it is an older manager, or not a manager; check the port, which is that of --secure-port (default 10258)"])]
#[case::another_replica(503, status(503, "this manager is not the leader; ask host_1, which holds the Lease kube-system/a", &json!({})), expect!["the manager at https://m:1 does not know: this manager is not the leader; ask host_1, which holds the Lease kube-system/a"])]
#[case::without_credentials(401, status(401, "Unauthorized", &json!({})), expect!["401 Unauthorized: the manager at https://m:1 rejected the credentials (Unauthorized); give a token with --token-file, for example from `kubectl create token`, or a certificate with --client-certificate and --client-key"])]
#[case::no_right(403, status(403, "forbidden: User \"joe\" cannot get path \"/services/shop/web\"", &json!({})), expect![[r#"403 Forbidden: the manager at https://m:1 does not allow this account to get /services/shop/web (forbidden: User "joe" cannot get path "/services/shop/web"); give the account the permission, for example with `kubectl create clusterrole skysail-status --verb=get --non-resource-url='/services/*'` and a binding; a request without a token or certificate is anonymous"#]])]
#[case::another_program(200, "<html>".to_owned(), expect!["the answer of https://m:1/services/shop/web is not that of a manager of this version; use the version of the manager: expected value at line 1 column 1"])]
#[tokio::test]
async fn an_error_of_a_manager_has_a_remedy(#[case] code: u16, #[case] body: String, #[case] expected: Expect) {
    expected.assert_eq(&format!("{:#}", answered(code, body).await.unwrap_err()));
}

#[tokio::test]
async fn a_document_is_read_with_fields_that_this_program_does_not_know() {
    let document = json!({
        "namespace": "shop", "name": "web", "owner": { "reason": "none" }, "ofTomorrow": { "a": 1 },
        "plan": { "step": "Nothing", "reason": "none" }, "calls": [],
    });
    let read = answered(200, document.to_string()).await.unwrap();
    assert_eq!(read.explanation.name, "web");
}
