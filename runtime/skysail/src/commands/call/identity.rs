//! The functions of `identity`. They are called without a valid cloud-config, because their answers
//! help to write one.

use std::sync::Arc;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};
use skysail_host::{
    Problem, Release, Sandbox, SandboxOptions, Severity,
    admission::{digest_of, digest_text},
    check_config, describe,
    jail::CompileLimits,
    origins,
    slot::{Offer, SlotServices},
};
use skysail_provider::Result;

use super::functions::value;

/// A function of `identity` with its arguments, as `--json` has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Function {
    #[serde(rename = "identity.describe")]
    Describe {},
    #[serde(rename = "identity.check-config")]
    CheckConfig { text: Option<String> },
    #[serde(rename = "identity.origins")]
    Origins { text: Option<String> },
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
    /// Makes the call and turns its answer into JSON. `config` is the text to check if the
    /// arguments have none.
    pub(super) async fn call(self, loaded: &Loaded, config: &str) -> Result<Value> {
        let Loaded { sandbox, release } = loaded;
        match self {
            Self::Describe {} => value(describe(sandbox, release).await?),
            Self::CheckConfig { text } => {
                let text = text.as_deref().unwrap_or(config);
                Ok(check_config(sandbox, release, text).await?.into_iter().map(problem).collect())
            }
            Self::Origins { text } => {
                let origins = origins(sandbox, release, text.as_deref().unwrap_or(config)).await?;
                Ok(origins.iter().map(ToString::to_string).collect())
            }
        }
    }
}

/// Whether the answer of `check-config` has a problem for which a slot refuses the component.
pub(super) fn has_fatal_problem(answer: &Value) -> bool {
    answer.as_array().into_iter().flatten().any(|problem| problem["severity"] == "fatal")
}

fn problem(problem: Problem) -> Value {
    let Problem { severity, line, key, message } = problem;
    let severity = match severity {
        Severity::Warning => "warning",
        Severity::Fatal => "fatal",
    };
    json!({"severity": severity, "line": line, "key": key, "message": message})
}
