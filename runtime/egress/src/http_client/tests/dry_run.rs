//! A dry run: reads are sent, writes that the rules allow are held back and recorded.

use bytes::Bytes;
use skysail_provider::{Call, DryRun};

use super::{Answers, Server, client, get, local_credentials, ok, sent, with_credential, with_header};
use crate::http_client::{FailureKind, HttpBudget, HttpClient, HttpLimits, HttpRequest};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A client whose rules allow `/rest` by method, and `/query` with the reads of a query API.
fn dry_client(server: &Server) -> HttpClient {
    let origin = format!("http://{}", server.address);
    let rules = format!(
        r#"[{{"origins": ["{origin}"], "pathPrefixes": ["/rest"], "methods": ["GET", "PUT"]}},
            {{"origins": ["{origin}"], "pathPrefixes": ["/query"], "reads": ["Action=Describe*"]}}]"#
    );
    let egress = format!(r#"{{"rules": {rules}, "allowCidrs": ["127.0.0.1/32"]}}"#);
    client(&egress, local_credentials(server), Answers::new(&[]))
}

fn dry_budget() -> (HttpBudget, DryRun) {
    let run = DryRun::default();
    let call = Call { dry_run: Some(run.clone()), ..Call::default() };
    (HttpBudget::new(HttpLimits::default(), None, &call), run)
}

fn request(method: &str, url: String, body: &'static str) -> HttpRequest {
    HttpRequest { method: method.to_owned(), body: Some(Bytes::from_static(body.as_bytes())), ..get(url) }
}

#[tokio::test]
async fn a_dry_run_sends_reads_and_holds_back_what_the_rules_allow_to_change() {
    let server = Server::start(|_| ok("old")).await;
    let (client, (budget, run)) = (dry_client(&server), dry_budget());
    sent(&client, &budget, get(server.url("/rest/lb"))).await.unwrap();
    let describe = with_header(request("POST", server.url("/query"), "Action=DescribeVpcs"), FORM.0, FORM.1);
    sent(&client, &budget, describe).await.unwrap();
    let put = with_credential(request("PUT", server.url("/rest/lb"), "new"), "api");
    let delete = with_header(request("POST", server.url("/query"), "Action=DeleteVpc"), FORM.0, FORM.1);
    for write in [put, delete] {
        let failure = sent(&client, &budget, write).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Forbidden);
        assert!(failure.message.contains("dry run"), "{failure:?}");
    }
    // No rule allows it, so no manager would send it.
    sent(&client, &budget, request("DELETE", server.url("/rest/lb"), "")).await.unwrap_err();
    let (held, omitted) = run.held();
    let shown: Vec<_> = held.iter().map(|held| (held.method.as_str(), held.read.as_deref())).collect();
    assert_eq!((shown.as_slice(), omitted), ([("PUT", Some(b"old".as_slice())), ("POST", None)].as_slice(), 0));
    assert!(!format!("{held:?}").contains(super::TOKEN));
    assert_eq!(server.requests().len(), 2, "{:?}", server.requests());
}

#[tokio::test]
async fn a_call_that_only_reads_sends_the_reads_of_a_query_api() {
    let server = Server::start(|_| ok("")).await;
    let client = dry_client(&server);
    let budget = HttpBudget::reading(HttpLimits::default(), None, &Call::default());
    let form = |body| with_header(request("POST", server.url("/query"), body), FORM.0, FORM.1);
    sent(&client, &budget, form("Action=DescribeVpcs")).await.unwrap();
    let failure = sent(&client, &budget, form("Action=DeleteVpc")).await.unwrap_err();
    assert!(failure.message.contains("egress.rules[].reads"), "{failure:?}");
    assert_eq!(server.requests().len(), 1);
}
