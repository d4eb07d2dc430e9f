//! The budget of deletions, against a real server.

use std::{sync::Arc, time::Duration};

use skysail_provider::Call;

use super::{Answers, Server, budget, client, credentials, get, local, ok, send, sent};
use crate::http_client::{DeletionBudget, DeletionLimit, FailureKind, HttpBudget, HttpLimits, HttpRequest};

/// What the budget holds back is not sent; another provider's budget is another one.
#[tokio::test]
async fn deletions_beyond_the_budget_of_the_provider_are_refused_and_not_sent() {
    let server = Server::start(|_| ok("")).await;
    let egress = format!(
        r#"{{"rules": [{{"origins": ["http://{}"], "deletes": ["Action=Delete*"]}}], "allowCidrs": ["127.0.0.1/32"]}}"#,
        server.address
    );
    let deletions = Arc::new(DeletionBudget::default());
    deletions.limit_to(Some(DeletionLimit { deletions: 2, window: Duration::from_secs(3600) }));
    let client = client(&egress, credentials("{}"), Answers::new(&[])).with_deletions(Arc::clone(&deletions));
    let request = |method: &str, action: &str| HttpRequest {
        method: method.to_owned(),
        ..get(server.url(&format!("/?Action={action}")))
    };
    let delete = || request("DELETE", "Anything");
    assert!(send(&client, request("POST", "DeleteVpc")).await.is_ok());
    assert!(send(&client, delete()).await.is_ok());
    let call = budget();
    for refused in [delete(), request("POST", "DeleteVpc"), request("POST", "Create&Action=DeleteVpc")] {
        let failure = sent(&client, &call, refused).await.unwrap_err();
        assert_eq!((failure.kind, failure.limit), (FailureKind::Limited, None), "{failure}");
    }
    let usage = call.usage();
    assert_eq!((usage.refused, usage.failed, usage.denied, usage.bytes_sent), (3, 0, 0, 0));
    assert_eq!(usage.held_deletion.unwrap().limit.deletions, 2);
    assert!(send(&client, request("POST", "CreateVpc")).await.is_ok(), "other requests leave");
    assert!(send(&client, get(server.url("/?Action=DescribeVpcs"))).await.is_ok());
    assert_eq!(server.requests().len(), 4);
    // A call that is let through, and new settings with the same budget.
    let through = Call { lets_deletions_through: true, ..Call::default() };
    let through = HttpBudget::new(HttpLimits::default(), None, &through);
    assert!(sent(&client, &through, delete()).await.is_ok());
    let edited = local(&server).with_deletions(deletions);
    assert!(send(&edited, delete()).await.is_err());
    assert!(send(&local(&server), delete()).await.is_ok(), "no budget");
}

/// A request that reached nobody has deleted nothing.
#[tokio::test]
async fn a_deletion_that_was_not_sent_does_not_count() {
    let egress = r#"{"rules": [{"origins": ["http://127.0.0.1:1"]}], "allowCidrs": ["127.0.0.1/32"]}"#;
    let deletions = Arc::new(DeletionBudget::default());
    deletions.limit_to(Some(DeletionLimit { deletions: 1, window: Duration::from_secs(3600) }));
    let client = client(egress, credentials("{}"), Answers::new(&[])).with_deletions(Arc::clone(&deletions));
    let request = HttpRequest { method: "DELETE".to_owned(), ..get("http://127.0.0.1:1/") };
    assert_eq!(send(&client, request).await.unwrap_err().kind, FailureKind::Unreachable);
    assert!(deletions.take(false).is_ok());
    assert!(deletions.take(false).is_err());
}
