//! The probe of a language: a guest that does what programs of the language do elsewhere. The name
//! of the cluster in a call is what it does, and the error of the call is what it saw.

use std::sync::{Arc, OnceLock};

use skysail_host::{
    CallRecord, CallRecorder, CompiledComponent, Engine, Limits, Release, Sandbox, SandboxedProvider,
    admission::{digest_of, digest_text},
    symbols::SymbolFiles,
};
use skysail_provider::{Call, Code, Error, LoadBalancers as _, Node, NodeSet, Service};
use tokio::sync::broadcast;

use crate::{
    components::{built, symbols},
    probes::Setup,
};

pub(crate) fn service() -> Service {
    Service::new("default", "web", "0a1b")
}

/// A component and its machine code, which is made once: programs of these languages are large.
pub(crate) struct Language {
    component: &'static str,
    compiled: OnceLock<CompiledComponent>,
}

impl Language {
    pub(crate) const fn new(component: &'static str) -> Self {
        Self { component, compiled: OnceLock::new() }
    }

    fn compiled(&self, sandbox: &Sandbox) -> &CompiledComponent {
        self.compiled.get_or_init(|| CompiledComponent::in_process(sandbox.wasmtime(), &built(self.component)).unwrap())
    }

    pub(crate) async fn probe(&self) -> LanguageProbe {
        self.probe_with(Limits::default()).await
    }

    pub(crate) async fn probe_with(&self, limits: Limits) -> LanguageProbe {
        let engine = Engine::on_demand().unwrap();
        let setup = Setup { limits, ..Setup::of("probe", &[]) };
        let digest = digest_text(&digest_of(&built(self.component)));
        let release = |sandbox: &Sandbox| Release::new(sandbox, self.compiled(sandbox), &digest).unwrap();
        let symbols = Arc::new(SymbolFiles::new(vec![symbols(self.component)]));
        let recorder = CallRecorder::default().with_symbols(symbols);
        let provider = setup.serve_release(&engine, &recorder, release).await;
        LanguageProbe { provider, records: recorder.subscribe(), _engine: engine }
    }
}

pub(crate) struct LanguageProbe {
    pub(crate) provider: SandboxedProvider,
    /// The calls after the start.
    pub(crate) records: broadcast::Receiver<Arc<CallRecord>>,
    _engine: Engine,
}

impl LanguageProbe {
    pub(crate) async fn call(&self, what: &str) -> Error {
        self.provider.get(&Call::default(), what, &service()).await.unwrap_err()
    }

    /// What the probe saw.
    pub(crate) async fn saw(&self, what: &str) -> String {
        let error = self.call(what).await;
        assert_eq!(error.code, Code::Invalid, "{error}");
        error.message
    }
}

/// 300 nodes, each with a provider ID and with its name as a label.
pub(crate) fn nodes() -> NodeSet {
    let node = |number: usize| {
        let name = format!("node-{number:03}");
        let labels = [("name", &name)].into();
        Arc::new(Node { provider_id: Some(format!("probe://{number}")), labels, name, ..Node::default() })
    };
    NodeSet::new((0..300).map(node))
}
