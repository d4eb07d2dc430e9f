//! Tests of a good component in the host through the provider traits.

use std::sync::Arc;

use prometheus_client::{encoding::text::encode, registry::Registry};
use skysail_host::{
    CallMetrics, CallOutcome, CallRecorder, Engine, Limits, Release, ReleaseError, Sandbox, SandboxOptions,
    SandboxedProvider, Severity, check_config, describe,
};
use skysail_provider::{
    AddressKind, Call, Code, Detail, Instances as _, Interface, LoadBalancers as _, NODES_PER_PAGE, Node, NodeAddress,
    NodeSet, Provider as _, Service,
};

use crate::{
    components::{built, hand_written},
    probes::Setup,
};

fn service(uid: &str) -> Service {
    Service::new("default", "web", uid)
}

fn nodes(count: usize) -> NodeSet {
    NodeSet::new((0..count).map(|n| {
        let address = NodeAddress { kind: AddressKind::InternalIp, address: format!("10.0.{}.{}", n / 250, n % 250) };
        Arc::new(Node { name: format!("node-{n:04}"), addresses: vec![address], ..Node::default() })
    }))
}

fn sandbox(engine: &Engine) -> Arc<Sandbox> {
    let options =
        SandboxOptions { name: "dummy".to_owned(), limits: Limits::default(), config: String::new(), http: None };
    Sandbox::new(engine, CallRecorder::default(), options).unwrap()
}

/// The probe `regression` must pass every check until it is called; otherwise tests of the rollback
/// would show a refusal instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn regression_has_the_identity_of_simcloud_and_traps_when_called() {
    let (engine, recorder) = (Engine::on_demand().unwrap(), CallRecorder::default());
    let wasm = [built("simcloud"), built("probe-regression")];
    let [good, bad] = wasm.each_ref().map(|wasm| Setup::of("simcloud", wasm));
    let (good, bad) = (good.serve(&engine, &recorder).await, bad.serve(&engine, &recorder).await);
    let identity = |provider: &SandboxedProvider| {
        let info = provider.info().unwrap();
        (info.name.clone(), info.provider_id_schemes.clone())
    };
    assert_eq!(identity(&good), identity(&bad));
    let error = bad.ensure(&Call::default(), "kubernetes", &service("a"), &nodes(1)).await.unwrap_err();
    assert_eq!(error.code, Code::Trapped, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_is_a_provider_with_the_interfaces_it_exports() {
    let mut registry = Registry::default();
    let recorder = CallRecorder::new(CallMetrics::register(&mut registry));
    let mut records = recorder.subscribe();
    let engine = Engine::new().unwrap();
    let dummy = Setup::of("dummy", &built("dummy")).serve(&engine, &recorder).await;
    assert_eq!(dummy.info().unwrap().name, "dummy");
    assert_eq!(dummy.release().interfaces(), [Interface::LoadBalancers, Interface::Instances]);
    assert!(dummy.load_balancers().is_some() && dummy.routes().is_none() && dummy.zones().is_none());
    let status = dummy.ensure(&Call::default(), "kubernetes", &service("a"), &nodes(3)).await.unwrap();
    assert!(status.ingress[0].ip.as_ref().unwrap().starts_with("203.0.113."));
    assert_eq!(records.recv().await.unwrap().function, "identity.describe");
    let record = records.recv().await.unwrap();
    assert_eq!((record.function, &record.outcome), ("load-balancers.ensure", &CallOutcome::Ok));
    assert!(record.digest.starts_with("sha256:") && record.fuel > 100 && record.memory_peak > 0);
    assert!(!record.guest.is_zero() && record.guest <= record.wall);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let line = r#"skysail_provider_calls_total{provider="dummy",function="load-balancers.ensure",outcome="Ok"} 1"#;
    assert!(text.contains(line), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_with_more_nodes_than_a_page_is_refused() {
    let recorder = CallRecorder::default();
    let engine = Engine::new().unwrap();
    let dummy = Setup::of("dummy", &built("dummy")).serve(&engine, &recorder).await;
    let answers = dummy.describe(&Call::default(), &nodes(NODES_PER_PAGE), Detail::Metadata).await.unwrap();
    assert_eq!(answers.len(), 500);
    let last = answers.last().unwrap().as_ref().unwrap();
    assert_eq!((last.provider_id.as_str(), last.addresses[0].address.as_str()), ("dummy://node-0499", "10.0.1.249"));
    let error = dummy.describe(&Call::default(), &nodes(501), Detail::Metadata).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::Invalid, "instances.describe was called with 501 nodes; use pages of at most 500 nodes",)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_validates_the_cloud_config() {
    let engine = Engine::new().unwrap();
    let sandbox = sandbox(&engine);
    let release = Release::from_wasm(&sandbox, &built("dummy")).unwrap();
    assert_eq!(check_config(&sandbox, &release, "").await.unwrap(), []);
    let problems = check_config(&sandbox, &release, "[LoadBalancer]\npool = nonsense\n").await.unwrap();
    assert_eq!((problems[0].severity, problems[0].line), (Severity::Fatal, Some(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_work_the_same_without_a_pool() {
    let engine = Engine::on_demand().unwrap();
    assert_eq!((engine.allocation().name(), engine.live()), ("onDemand", None));
    let dummy = Setup::of("dummy", &built("dummy")).serve(&engine, &CallRecorder::default()).await;
    dummy.ensure(&Call::default(), "kubernetes", &service("a"), &nodes(1)).await.unwrap();
    let limits = Limits { fuel: 1_000_000, ..Limits::default() };
    let fuel =
        Setup { limits, ..Setup::of("fuel", &built("probe-fuel")) }.serve(&engine, &CallRecorder::default()).await;
    let error = skysail_provider::Clusters::master(&fuel, &Call::default(), "attack").await.unwrap_err();
    assert_eq!(error.code, Code::LimitExceeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_no_longer_fits_into_the_pool_runs_on_demand() {
    let engine = Engine::new().unwrap();
    let of = |calls| {
        let limits = Limits { concurrent_calls: calls, ..Limits::default() };
        let options = SandboxOptions { name: "many".to_owned(), limits, config: String::new(), http: None };
        Sandbox::new(&engine, CallRecorder::default(), options).unwrap()
    };
    // Each sandbox has one additional place for admission: these four sandboxes fill the pool of
    // 256.
    let mut sandboxes: Vec<_> = (0..4).map(|_| of(63)).collect();
    assert!(sandboxes.iter().all(|sandbox| sandbox.allocation().name() == "pooling"));
    assert_eq!(of(1).allocation().name(), "onDemand");
    sandboxes.pop();
    assert_eq!(of(63).allocation().name(), "pooling");
}

#[test]
fn a_file_that_is_no_component_is_refused_with_the_reason() {
    let engine = Engine::on_demand().unwrap();
    let sandbox = sandbox(&engine);
    let refused = |wasm: &[u8]| Release::from_wasm(&sandbox, wasm).unwrap_err();
    let native = sandbox.wasmtime().precompile_component(&built("dummy")).unwrap();
    assert!(matches!(refused(&native), ReleaseError::Precompiled));
    assert!(matches!(refused(b"hello"), ReleaseError::Compile(_)));
    assert!(matches!(refused(b""), ReleaseError::Compile(_)));
    assert!(matches!(refused(&wat::parse_str("(module)").unwrap()), ReleaseError::Compile(_)));
    assert!(matches!(refused(&built("dummy")[..2000]), ReleaseError::Compile(_)));
    assert!(matches!(refused(&wat::parse_str("(component)").unwrap()), ReleaseError::NoIdentity));
    let unknown = r#"(component (import "wasi:filesystem/types@0.2.0" (instance (export "x" (func)))))"#;
    assert!(matches!(refused(&wat::parse_str(unknown).unwrap()), ReleaseError::Link(_)));
    let memories: String = "(memory 1)".repeat(5);
    let many = format!("(component (core module $m {memories}) (core instance (instantiate $m)))");
    let error = refused(&wat::parse_str(many).unwrap());
    assert!(matches!(error, ReleaseError::Memories { count: 5 }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_with_an_invalid_description_is_refused() {
    let engine = Engine::on_demand().unwrap();
    let sandbox = sandbox(&engine);
    let good = Release::from_wasm(&sandbox, &hand_written("instances")).unwrap();
    assert_eq!(describe(&sandbox, &good).await.unwrap().name, "probe");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn names_cost_does_not_depend_on_other_fields_of_a_node() {
    let recorder = CallRecorder::default();
    let mut records = recorder.subscribe();
    let probe = Setup::of("names", &built("probe-names")).serve(&Engine::new().unwrap(), &recorder).await;
    assert_eq!(records.recv().await.unwrap().function, "identity.describe");
    let names_alone = nodes(2000);
    let heavy = |node: &Arc<Node>| {
        let label = |n: usize| (format!("example.com/label-{n}"), "a value of some length".to_owned());
        Arc::new(Node { labels: (0..12).map(label).collect(), ..Node::clone(node) })
    };
    let whole = NodeSet::new(names_alone.as_slice().iter().map(heavy));
    let mut costs = Vec::new();
    // Many calls, because the fuel must not depend on ticks of the epoch during the call.
    for nodes in [&names_alone, &whole].into_iter().cycle().take(40) {
        let status = probe.ensure(&Call::default(), "kubernetes", &service("a"), nodes).await.unwrap();
        // Nine bytes for each name: the guest has read all names.
        assert_eq!(status.ingress[0].hostname.as_deref(), Some("names-18000.example.com"));
        let record = records.recv().await.unwrap();
        costs.push((record.fuel, record.memory_peak));
    }
    assert!(costs.iter().all(|cost| *cost == costs[0]), "fuel and memory of the guest: {costs:?}");
}
