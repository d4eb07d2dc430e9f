//! Guests in Go: what stock Go programs find in the sandbox, and the bindings of the Go SDK.

use std::{fs, path::Path};

use skysail_host::Limits;
use skysail_provider::{Call, Code, Limit, LoadBalancers as _};

use crate::{
    components::repository,
    language_probe::{Language, nodes, service},
};

static GO: Language = Language::new("probe-go");

/// No variable of the environment, and the name of the program as the only argument.
const HAS_A_NAME_ALONE: &str = r#"0 ["provider"]"#;

#[tokio::test]
async fn a_go_program_finds_no_file_no_socket_and_an_empty_environment() {
    let probe = GO.probe().await;
    assert_eq!(probe.saw("files").await, "9 were refused");
    assert_eq!(probe.saw("sockets").await, "3 were refused");
    assert_eq!(probe.saw("environment").await, HAS_A_NAME_ALONE);
}

#[tokio::test]
async fn random_numbers_and_the_order_of_maps_differ_between_calls() {
    let probe = GO.probe().await;
    let (one, other) = (probe.saw("random").await, probe.saw("random").await);
    for (one, other) in one.split('|').zip(other.split('|')) {
        assert_ne!(one, other);
    }
}

#[tokio::test]
async fn a_sleep_takes_its_time_and_output_is_accepted() {
    let probe = GO.probe().await;
    assert_eq!(probe.saw("sleep").await, "true");
    assert_eq!(probe.saw("output").await, "done");
}

#[tokio::test]
async fn a_panic_in_go_says_where_and_why() {
    let error = GO.probe().await.call("panic").await;
    assert_eq!(error.code, Code::Trapped, "{error}");
    let reason = "main.go:";
    assert!(error.message.contains(reason) && error.message.contains("assignment to entry in nil map"), "{error}");
    // From the sidecar, without the functions of Go's runtime and of the SDK.
    assert!(error.message.contains("; in main.probe.GetLoadBalancer ← "), "{error}");
}

#[tokio::test]
async fn a_go_program_that_exits_or_waits_for_ever_ends_its_call_alone() {
    let probe = GO.probe().await;
    for what in ["exit", "deadlock"] {
        let error = probe.call(what).await;
        assert!(matches!(error.code, Code::Trapped | Code::Internal), "{what}: {error}");
        assert!(what != "exit" || error.message.contains("; in main.probe.GetLoadBalancer"), "{error}");
        assert_eq!(probe.saw("environment").await, HAS_A_NAME_ALONE, "the next call");
    }
}

#[tokio::test]
async fn goroutines_without_end_meet_a_limit() {
    let probe = GO.probe_with(Limits { fuel: 200_000_000, ..Limits::default() }).await;
    let error = probe.call("goroutines").await;
    let limit = error.limit.map(|hit| hit.limit);
    assert!(matches!(limit, Some(Limit::Fuel | Limit::Memory)), "{error}");
    assert_eq!(probe.saw("environment").await, HAS_A_NAME_ALONE, "the next call");
}

#[tokio::test]
async fn the_collector_may_run_while_the_host_writes_into_the_guests_memory() {
    let nodes = nodes();
    let probe = GO.probe().await;
    let error = probe.provider.update(&Call::default(), "", &service(), &nodes).await.unwrap_err();
    assert_eq!(error.message, "900 nodes, collected: true");
}

#[tokio::test]
async fn requests_of_gos_http_client_go_through_the_host() {
    assert_eq!(GO.probe().await.saw("requests").await, "map[forbidden:3]");
}

/// A change of the contract has to reach the Go SDK, whose users have no generator.
#[test]
fn the_go_sdk_has_the_bindings_of_the_contract() {
    let folder = repository().join("guest-sdk/go/internal/wit");
    let bindings = skysail_componentize::go_bindings().unwrap();
    let remedy = "run `skysail-componentize go-bindings guest-sdk/go/internal/wit`";
    for (path, text) in &bindings {
        let committed = fs::read_to_string(folder.join(path)).unwrap_or_default();
        assert!(committed == *text, "{path} is not what the contract says: {remedy}");
    }
    let mut files = Vec::new();
    for part in ["imports", "exports"] {
        files_below(&folder, Path::new(part), &mut files);
    }
    let stale: Vec<_> = files.iter().filter(|path| !bindings.contains_key(*path)).collect();
    assert!(stale.is_empty(), "the contract has no {stale:?}: delete them");
}

fn files_below(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            files_below(root, &path, found);
        } else {
            found.push(path.to_str().unwrap().to_owned());
        }
    }
}
