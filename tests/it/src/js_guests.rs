//! Guests in JavaScript: what programs find in the sandbox, and the types of the JavaScript SDK.

use std::{
    fs,
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

/// The probe's machine code: it is made once.
fn compiled(sandbox: &Sandbox) -> &'static CompiledComponent {
    static COMPILED: OnceLock<CompiledComponent> = OnceLock::new();
    COMPILED.get_or_init(|| CompiledComponent::in_process(sandbox.wasmtime(), &built("probe-js")).unwrap())
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
async fn a_program_in_javascript_has_nothing_that_reaches_outside() {
    assert_eq!(Probe::new().await.saw("outside").await, "");
}

/// The component is a snapshot: the engine's own random numbers are the same in each call.
#[tokio::test]
async fn random_numbers_of_javascript_differ_between_calls() {
    let probe = Probe::new().await;
    let (one, other) = (probe.saw("random").await, probe.saw("random").await);
    for (one, other) in one.split('|').zip(other.split('|')) {
        assert_ne!(one, other);
    }
}

#[tokio::test]
async fn the_clock_of_javascript_goes_on_after_the_build() {
    assert_eq!(Probe::new().await.saw("clock").await, "true");
}

#[tokio::test]
async fn output_of_javascript_is_accepted() {
    assert_eq!(Probe::new().await.saw("output").await, "done");
}

#[tokio::test]
async fn an_exception_says_where_and_why() {
    let probe = Probe::new().await;
    for (what, reasons) in [
        (
            "exception",
            ["TypeError: cannot read property 'member' of undefined", "at exception (componentize-qjs:user.js:"],
        ),
        ("rejection", ["the result of get", "a Promise: the functions of a provider are synchronous"]),
        ("not an error", ["uncaught text", "load-balancers"]),
    ] {
        let error = probe.call(what).await;
        assert_eq!(error.code, Code::Trapped, "{error}");
        for reason in reasons {
            assert!(error.message.contains(reason), "{what}: {error}");
        }
    }
}

#[tokio::test]
async fn javascript_without_end_meets_a_limit() {
    let probe = Probe::with(Limits { fuel: 200_000_000, ..Limits::default() }).await;
    for (what, limit) in [("loop", Limit::Fuel), ("memory", Limit::Memory), ("recursion", Limit::Stack)] {
        let error = probe.call(what).await;
        assert_eq!(error.limit.map(|hit| hit.limit), Some(limit), "{what}: {error}");
        assert_eq!(probe.saw("clock").await, "true", "the next call");
    }
}

#[tokio::test]
async fn javascript_reads_node_sets_and_gives_them_back_in_time() {
    let node = |number: usize| {
        let name = format!("node-{number:03}");
        let labels = [("name", &name)].into();
        Arc::new(Node { provider_id: Some(format!("probe://{number}")), labels, name, ..Node::default() })
    };
    let nodes = NodeSet::new((0..300).map(node));
    let probe = Probe::new().await;
    for _ in 0..2 {
        let error = probe.provider.update(&Call::default(), "", &service(), &nodes).await.unwrap_err();
        assert_eq!(error.message, "300 of 300 nodes, null, null");
        probe.provider.ensure(&Call::default(), "", &service(), &nodes).await.unwrap();
    }
}

#[tokio::test]
async fn requests_of_javascript_go_through_the_host() {
    assert_eq!(Probe::new().await.saw("requests").await, "denied,denied,denied");
}

#[tokio::test]
async fn texts_of_javascript_come_back_as_they_were() {
    assert_eq!(Probe::new().await.saw("text").await, "equal");
}

/// A change of the contract has to reach the JavaScript SDK, whose users have no generator.
#[test]
fn the_javascript_sdk_has_the_types_of_the_contract() {
    let committed = fs::read_to_string(repository().join("guest-sdk/js/src/contract.ts")).unwrap_or_default();
    let remedy = "run `skysail-componentize js-types guest-sdk/js/src/contract.ts`";
    assert!(
        committed == skysail_componentize::js_types().unwrap(),
        "contract.ts is not what the contract says: {remedy}"
    );
}
