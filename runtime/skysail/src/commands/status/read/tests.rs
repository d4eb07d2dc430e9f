//! Tests of the answers of a cluster and a manager, and of the errors about them.

use std::convert::Infallible;

use expect_test::{Expect, expect};
use http::{Request, Response};
use kube::{Client, client::Body};
use rstest::rstest;
use serde_json::{Value, json};
use tower::service_fn;

use super::{ANSWER_BYTES_MAX, asked, listed};
use crate::commands::status::ProviderList;

/// A server that always gives this answer.
fn server(status: u16, body: impl Into<Vec<u8>>) -> Client {
    let body = body.into();
    let service = service_fn(move |_: Request<Body>| {
        let answer = Response::builder().status(status).body(Body::from(body.clone())).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    Client::new(service, "default")
}

fn status(code: u16, reason: &str, message: &str) -> String {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "message": message, "code": code })
        .to_string()
}

fn item(status: &Value) -> Value {
    json!({
        "apiVersion": "skysail.dev/v1alpha1", "kind": "Provider", "metadata": { "name": "sim", "generation": 2 },
        "spec": {}, "status": status,
    })
}

async fn of_manager(code: u16, body: impl Into<Vec<u8>>) -> anyhow::Result<ProviderList> {
    asked(server(code, body), "https://m:1").await
}

#[rstest]
#[case::the_resource_is_not_defined(404, "404 page not found\n".to_owned(), expect!["the cluster has no resource providers.skysail.dev; if the manager has a provider file, ask the manager with --server https://HOST:10258, else install the CRD with `skysail crd | kubectl apply -f -`"])]
#[case::no_right(403, status(403, "Forbidden", "providers.skysail.dev is forbidden: User \"joe\" cannot list\u{1b}"), expect![[r#"this account has no permission to list Providers (providers.skysail.dev is forbidden: User "joe" cannot list ); give the account the permission, for example with `kubectl create clusterrole provider-reader --verb=list --resource=providers.skysail.dev` and a binding"#]])]
#[case::an_old_token(401, status(401, "Unauthorized", "Unauthorized"), expect!["401 Unauthorized: the API server rejected the credentials (Unauthorized); renew the credentials in the kubeconfig"])]
#[tokio::test]
async fn an_error_of_the_cluster_has_a_remedy(#[case] code: u16, #[case] body: String, #[case] expected: Expect) {
    let error = listed(server(code, body), &[]).await.unwrap_err();
    expected.assert_eq(&format!("{error:#}"));
}

#[tokio::test]
async fn a_cluster_is_read_with_fields_that_this_program_does_not_know() {
    let object = item(&json!({ "swaps": 2, "ofTomorrow": { "a": 1 } }));
    let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": [object] });
    let read = listed(server(200, list.to_string()), &[]).await.unwrap();
    assert_eq!(read.items[0].status.as_ref().unwrap().swaps, 2);
    assert_eq!(read.items[0].metadata.generation, Some(2));
    let other = json!({ "metadata": {}, "items": [item(&json!({ "swaps": "many" }))] });
    let error = listed(server(200, other.to_string()), &[]).await.unwrap_err();
    expect![[r#"Provider "sim" has a status that this version of skysail cannot read; use the version of the manager, or kubectl: invalid type: string "many", expected u64"#]].assert_eq(&format!("{error:#}"));
}

#[tokio::test]
async fn the_status_of_a_provider_that_is_not_named_need_not_be_valid() {
    let named = |name: &str, status: &Value| {
        let mut item = item(status);
        item["metadata"]["name"] = name.into();
        item
    };
    let items = [named("a", &json!({ "swaps": 3 })), named("b", &json!({ "swaps": "many" }))];
    let list = json!({ "metadata": {}, "items": items });
    let read = listed(server(200, list.to_string()), &["a".to_owned()]).await.unwrap();
    let swaps: Vec<_> = read.items.iter().map(|item| item.status.as_ref().map(|status| status.swaps)).collect();
    assert_eq!(swaps, [Some(3), None], "both are in the list, for the error about an unknown name");
    listed(server(200, list.to_string()), &["b".to_owned()]).await.unwrap_err();
}

#[rstest]
#[case::without_credentials(401, status(401, "Unauthorized", "Unauthorized"), expect!["401 Unauthorized: the manager at https://m:1 rejected the credentials (Unauthorized); give a token with --token-file, for example from `kubectl create token`, or a certificate with --client-certificate and --client-key"])]
#[case::no_right(403, status(403, "Forbidden", "forbidden: User \"joe\" cannot get path \"/providers\"\u{1b}"), expect![[r#"403 Forbidden: the manager at https://m:1 does not allow this account to get /providers (forbidden: User "joe" cannot get path "/providers" ); give the account the permission, for example with `kubectl create clusterrole skysail-status --verb=get --non-resource-url=/providers` and a binding; a request without a token or certificate is anonymous"#]])]
#[case::an_older_manager(404, "404 page not found\n".to_owned(), expect!["the server at https://m:1 has no path /providers: it is an older manager, or not a manager; check the port, which is that of --secure-port (default 10258)"])]
#[case::out_of_order(500, "oops".to_owned(), expect!["the manager at https://m:1 answers with 500 Internal Server Error; its log has the reason"])]
#[case::another_program(200, "<html>".to_owned(), expect!["the answer of https://m:1/providers is not that of a manager of this version; use the version of the manager: expected value at line 1 column 1"])]
#[tokio::test]
async fn an_error_of_a_manager_has_a_remedy(#[case] code: u16, #[case] body: String, #[case] expected: Expect) {
    expected.assert_eq(&format!("{:#}", of_manager(code, body).await.unwrap_err()));
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused() {
    let error = of_manager(200, vec![b' '; ANSWER_BYTES_MAX + 1]).await.unwrap_err();
    assert!(format!("{error:#}").contains("more than 8388608 bytes"), "{error:#}");
    let list = json!({ "kind": "ProviderList", "items": [item(&Value::Null)] });
    assert_eq!(of_manager(200, list.to_string()).await.unwrap().items.len(), 1);
    assert!(of_manager(200, "").await.is_err(), "an empty answer was accepted");
}
