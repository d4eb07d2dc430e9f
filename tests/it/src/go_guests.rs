//! Guests in Go: what stock Go programs find in the sandbox, and the bindings of the Go SDK.

use std::{
    fs,
    path::Path,
    sync::{Arc, OnceLock},
};

use skysail_host::{CallRecorder, CompiledComponent, Engine, Limits, Release, Sandbox, SandboxedProvider};
use skysail_provider::{Call, Code, Error, Limit, LoadBalancers as _, Node, NodeSet, Service};

use crate::{
    components::{built, repository},
    probes::Setup,
};

fn service() -> Service {
    Service::new("default", "web", "0a1b")
}

/// The probe's machine code: it is made once, because a Go program is large.
fn compiled(sandbox: &Sandbox) -> &'static CompiledComponent {
    static COMPILED: OnceLock<CompiledComponent> = OnceLock::new();
    COMPILED.get_or_init(|| CompiledComponent::in_process(sandbox.wasmtime(), &built("probe-go")).unwrap())
}

struct Probe {
    provider: SandboxedProvider,
    _engine: Engine,
}

impl Probe {
    async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    async fn with(limits: Limits) -> Self {
        let engine = Engine::on_demand().unwrap();
        let setup = Setup { limits, ..Setup::of("probe", &[]) };
        let release = |sandbox: &Sandbox| Release::new(sandbox, compiled(sandbox), "sha256:probe").unwrap();
        let provider = setup.serve_release(&engine, &CallRecorder::default(), release).await;
        Self { provider, _engine: engine }
    }

    async fn call(&self, what: &str) -> Error {
        self.provider.get(&Call::default(), what, &service()).await.unwrap_err()
    }

    /// What the probe saw.
    async fn saw(&self, what: &str) -> String {
        let error = self.call(what).await;
        assert_eq!(error.code, Code::Invalid, "{error}");
        error.message
    }
}

#[tokio::test]
async fn a_go_program_finds_no_file_no_socket_and_an_empty_environment() {
    let probe = Probe::new().await;
    assert_eq!(probe.saw("files").await, "9 were refused");
    assert_eq!(probe.saw("sockets").await, "3 were refused");
    assert_eq!(probe.saw("environment").await, "0 []");
}

#[tokio::test]
async fn random_numbers_and_the_order_of_maps_differ_between_calls() {
    let probe = Probe::new().await;
    let (one, other) = (probe.saw("random").await, probe.saw("random").await);
    for (one, other) in one.split('|').zip(other.split('|')) {
        assert_ne!(one, other);
    }
}

#[tokio::test]
async fn a_sleep_takes_its_time_and_output_is_accepted() {
    let probe = Probe::new().await;
    assert_eq!(probe.saw("sleep").await, "true");
    assert_eq!(probe.saw("output").await, "done");
}

#[tokio::test]
async fn a_panic_in_go_says_where_and_why() {
    let error = Probe::new().await.call("panic").await;
    assert_eq!(error.code, Code::Trapped, "{error}");
    let reason = "main.go:";
    assert!(error.message.contains(reason) && error.message.contains("assignment to entry in nil map"), "{error}");
}

#[tokio::test]
async fn a_go_program_that_exits_or_waits_for_ever_ends_its_call_alone() {
    let probe = Probe::new().await;
    for what in ["exit", "deadlock"] {
        let error = probe.call(what).await;
        assert!(matches!(error.code, Code::Trapped | Code::Internal), "{what}: {error}");
        assert_eq!(probe.saw("environment").await, "0 []", "the next call");
    }
}

#[tokio::test]
async fn goroutines_without_end_meet_a_limit() {
    let probe = Probe::with(Limits { fuel: 200_000_000, ..Limits::default() }).await;
    let error = probe.call("goroutines").await;
    let limit = error.limit.map(|hit| hit.limit);
    assert!(matches!(limit, Some(Limit::Fuel | Limit::Memory)), "{error}");
    assert_eq!(probe.saw("environment").await, "0 []", "the next call");
}

#[tokio::test]
async fn the_collector_may_run_while_the_host_writes_into_the_guests_memory() {
    let node = |number: usize| {
        let name = format!("node-{number:03}");
        let labels = [("name", &name)].into();
        Arc::new(Node { provider_id: Some(format!("probe://{number}")), labels, name, ..Node::default() })
    };
    let nodes = NodeSet::new((0..300).map(node));
    let probe = Probe::new().await;
    let error = probe.provider.update(&Call::default(), "", &service(), &nodes).await.unwrap_err();
    assert_eq!(error.message, "900 nodes, collected: true");
}

#[tokio::test]
async fn requests_of_gos_http_client_go_through_the_host() {
    assert_eq!(Probe::new().await.saw("requests").await, "map[forbidden:3]");
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
