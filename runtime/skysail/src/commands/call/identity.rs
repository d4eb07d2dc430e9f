//! The functions of `identity`. They are called without a valid cloud-config, because their answers
//! help to write one.

use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Value, json};
use skysail_host::{
    Problem, Release, Sandbox, SandboxOptions, Severity,
    admission::{digest_of, digest_text},
    check_config, describe,
    jail::CompileLimits,
    slot::{Offer, SlotServices},
};
use skysail_provider::Result;

use super::functions::value;

/// One call, ready to be made.
#[derive(Debug)]
pub(super) enum Function {
    Describe,
    CheckConfig { text: String },
}

/// A component that is loaded but does not serve.
pub(super) struct Loaded {
    sandbox: Arc<Sandbox>,
    release: Release,
}

/// Compiles and links a component, as a slot does.
///
/// # Errors
/// The component is refused.
pub(super) async fn load(services: &SlotServices, options: SandboxOptions, offer: Offer) -> anyhow::Result<Loaded> {
    let Offer { bytes, origin } = offer;
    let sandbox =
        Sandbox::new(&services.engine, services.recorder.clone(), options).context("cannot make the sandbox")?;
    let (digest, limits) = (digest_of(&bytes), CompileLimits::from(sandbox.limits()));
    let compiled = services.compiler.compile(sandbox.wasmtime(), (bytes, digest), limits, || {}).await;
    let compiled = compiled.with_context(|| origin.clone())?;
    let release = Release::new(&sandbox, &compiled.component, &digest_text(&digest)).context(origin)?;
    Ok(Loaded { sandbox, release })
}

impl Function {
    /// Makes the call and turns its answer into JSON.
    pub(super) async fn call(self, loaded: &Loaded) -> Result<Value> {
        let Loaded { sandbox, release } = loaded;
        match self {
            Self::Describe => value(describe(sandbox, release).await?),
            Self::CheckConfig { text } => {
                Ok(check_config(sandbox, release, &text).await?.into_iter().map(problem).collect())
            }
        }
    }
}

fn problem(problem: Problem) -> Value {
    let Problem { severity, line, key, message } = problem;
    let severity = match severity {
        Severity::Warning => "warning",
        Severity::Fatal => "fatal",
    };
    json!({"severity": severity, "line": line, "key": key, "message": message})
}
