//! Tests of what is replaced, and of what remains.

use rstest::rstest;
use serde_json::{Value, json};

use super::Redaction;

fn redacted(text: &str) -> String {
    Redaction::new(false).unwrap().text(text)
}

#[rstest]
#[case::url("https://joe:s3cret@example.com/v2", "https://REDACTED@example.com/v2")]
#[case::url_with_an_at_sign("https://joe:p@s3cret@host/", "https://REDACTED@host/")]
#[case::query("GET /x?token=s3cret&page=2", "GET /x?token=REDACTED&page=2")]
#[case::signature("/blob?sv=1&sig=s3cret%3D&x=1", "/blob?sv=1&sig=REDACTED&x=1")]
#[case::ini("password = s3cret", "password = REDACTED")]
#[case::ini_with_a_prefix("trust-token=s3cret", "trust-token=REDACTED")]
#[case::variable("SCW_SECRET_KEY=s3cret", "SCW_SECRET_KEY=REDACTED")]
#[case::account_key("AccountName=a;AccountKey=s3cret==;x", "AccountName=a;AccountKey=REDACTED;x")]
#[case::json(r#"{"clientSecret": "s3cret", "a": 1}"#, r#"{"clientSecret": "REDACTED", "a": 1}"#)]
#[case::json_in_json(r#"{"msg":"{\"password\":\"s3cret\"}"}"#, r#"{"msg":"{\"password\":\"REDACTED\"}"}"#)]
#[case::logfmt_in_json(r#"{"msg":"password=\"s3cret\" a"}"#, r#"{"msg":"password=\"REDACTED\" a"}"#)]
#[case::escape_in_a_value(r#"token="abc\"s3cret" a"#, r#"token="REDACTED" a"#)]
#[case::yaml("a: 1\n  api_key: s3cret and more\nb: 2", "a: 1\n  api_key: REDACTED\nb: 2")]
#[case::log_line("2026-11-29T10:00:00Z password: s3cret", "2026-11-29T10:00:00Z password: REDACTED")]
#[case::rust_debug(r#"Login { user: "joe", password: "s3cret" }"#, r#"Login { user: "joe", password: "REDACTED" }"#)]
#[case::long_token("the token: s3cret-s3cret-s3cret", "the token: REDACTED")]
#[case::flag("run --auth-token s3cret-s3cret-s3cret now", "run --auth-token REDACTED now")]
#[case::header("Authorization: Basic czNjcmV0", "Authorization: REDACTED")]
#[case::header_of_go("map[Authorization:[Bearer s3cret] B:[c]]", "map[Authorization:REDACTED B:[c]]")]
#[case::header_in_json(r#"{"Authorization":["Basic s3cret"],"a":1}"#, r#"{"Authorization":REDACTED,"a":1}"#)]
#[case::other_scheme("authorization: ApiKey s3cret", "authorization: REDACTED")]
#[case::cookies("Cookie: a=1; session=s3cret", "Cookie: REDACTED")]
#[case::soap_session("Set-Cookie: vmware_soap_session=\"s3cret\"", "Set-Cookie: REDACTED\"REDACTED\"")]
#[case::session("vmware-api-session-id: s3cret", "vmware-api-session-id: REDACTED")]
#[case::keystone("X-Auth-Token: s3cret", "X-Auth-Token: REDACTED")]
#[case::bearer("sent bearer s3cret-s3cret-s3cret", "sent bearer REDACTED")]
#[case::basic("sent Basic czNjcmV0czNjcmV0", "sent Basic REDACTED")]
#[case::jwt("got eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln back", "got REDACTED back")]
#[case::aws("key AKIAIOSFODNN7EXAMPLE is gone", "key REDACTED is gone")]
#[case::github("used ghp_s3crets3cret", "used REDACTED")]
#[case::docker(r#"{"auths":{"a":{"auth":"s3cret"}}}"#, r#"{"auths":{"a":{"auth":"REDACTED"}}}"#)]
#[case::kubeconfig("client-key-data: LS0tLS1CRUdJTiBQUklWQVRF", "client-key-data: REDACTED")]
#[case::xml("<vim:password>s3cret</vim:password>", "<vim:password>REDACTED</vim:password>")]
#[case::pem("-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\nb", "REDACTED\nb")]
#[case::pem_in_json(r#"{"k":"-----BEGIN PRIVATE KEY-----\nMHcC\n"}"#, r#"{"k":"REDACTED"}"#)]
#[case::pem_that_was_cut_off("1.2Z -----BEGIN PRIVATE KEY-----\n1.3Z MHcC", "1.2Z REDACTED")]
fn what_looks_like_a_secret_is_replaced(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(redacted(text), expected);
    assert!(!redacted(text).contains("s3cret"), "{}", redacted(text));
}

#[rstest]
#[case::prose("cannot renew the token: 401 Unauthorized")]
#[case::place_in_rust("panicked at skysail_openstack::token::renew")]
#[case::no_value(r#"{"token":null,"secret": false}"#)]
#[case::provider_id("openstack://region/0a1b")]
#[case::certificate("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----")]
#[case::reference("secretKeyRef: {name: cloud}")]
#[case::flag("--authorization-kubeconfig=/etc/kubeconfig")]
fn other_text_remains(#[case] text: &str) {
    assert_eq!(redacted(text), text);
}

#[test]
fn a_private_key_without_its_end_takes_no_other_lines_of_a_log_with_it() {
    let text = "no -----BEGIN PRIVATE KEY-----, found \"x\"\n{\"level\":\"INFO\"}\n";
    assert_eq!(redacted(text), "no REDACTED, found \"x\"\n{\"level\":\"INFO\"}\n");
}

fn object(mut object: Value, with_config: bool) -> Value {
    Redaction::new(with_config).unwrap().object(&mut object);
    object
}

#[test]
fn an_object_keeps_its_state_and_loses_secrets_and_what_is_long() {
    let whole = json!({"spec": {"config": "s3cret"}}).to_string();
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": whole, "objectset.rio.cattle.io/applied": "s3cret".repeat(400), "example.com/password": "s3cret", "b": "c"});
    let header = json!({"name": "Authorization", "value": "s3cret"});
    let container = json!({
        "env": [{"name": "A", "value": "s3cret"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
        "args": ["--token=s3cret", "--password", "s3cret", "--verbose", "yes"],
        "httpHeaders": [header], "passwords": ["s3cret", 5], "token": true, "secret": {"secretName": "cloud"},
    });
    let credentials = json!({"api": {"bearer": {"secretKeyRef": {"name": "cloud", "key": "token"}}}});
    let whole = json!({
        "kind": "Provider",
        "metadata": {"name": "a", "managedFields": [1], "annotations": annotations},
        "spec": {"config": "s3cret", "credentials": credentials, "containers": [container]},
        "status": {"images": [1], "message": "password=s3cret", "ready": true},
    });
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": "REDACTED", "objectset.rio.cattle.io/applied": "REDACTED", "example.com/password": "REDACTED", "b": "c"});
    let container = json!({
        "env": [{"name": "A", "value": "REDACTED"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
        "args": ["--token=REDACTED", "--password", "REDACTED", "--verbose", "yes"],
        "httpHeaders": [{"name": "Authorization", "value": "REDACTED"}], "passwords": ["REDACTED", "REDACTED"], "token": true, "secret": {"secretName": "cloud"},
    });
    let expected = json!({
        "kind": "Provider",
        "metadata": {"name": "a", "annotations": annotations},
        "spec": {"config": "REDACTED", "credentials": credentials, "containers": [container]},
        "status": {"message": "password=REDACTED", "ready": true},
    });
    assert_eq!(object(whole, false), expected);
}

#[test]
fn a_cloud_config_that_is_wanted_remains_without_its_secrets() {
    let config = "region = a\npassword = my s3cret pass\ntoken: |\n  s3cret\n  s3cret\nsecret:\n  s3cret\nzone: b";
    let kept = object(json!({"kind": "Provider", "spec": {"config": config}}), true);
    assert_eq!(kept["spec"]["config"], "region = a\npassword = REDACTED\ntoken: REDACTED\nsecret: REDACTED\nzone: b");
    let other = object(json!({"kind": "Other", "spec": {"config": "a"}}), false);
    assert_eq!(other["spec"]["config"], "a");
}
