//! The functions of `identity`. They are called without a valid cloud-config, because their answers
//! help to write one.

use std::sync::Arc;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;
use skysail_host::{
    Answer as _, Release, Sandbox, SandboxOptions,
    admission::{digest_of, digest_text},
    check_config, describe,
    jail::CompileLimits,
    origins,
    slot::{Offer, SlotServices},
};
use skysail_provider::Result;

/// A function of `identity` with its arguments, as `--json` has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::commands) enum Function {
    #[serde(rename = "identity.describe")]
    Describe {},
    #[serde(rename = "identity.check-config")]
    CheckConfig { text: Option<String> },
    #[serde(rename = "identity.origins")]
    Origins { text: Option<String> },
}

/// A component that is loaded but does not serve.
pub(in crate::commands) struct Loaded {
    pub(in crate::commands) sandbox: Arc<Sandbox>,
    pub(in crate::commands) release: Release,
}

/// Compiles and links a component, as a slot does.
///
/// # Errors
/// The component is refused.
pub(in crate::commands) async fn load(
    services: &SlotServices,
    options: SandboxOptions,
    offer: Offer,
) -> anyhow::Result<Loaded> {
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
    pub(in crate::commands) async fn call(self, loaded: &Loaded, config: &str) -> Result<Value> {
        let Loaded { sandbox, release } = loaded;
        match self {
            Self::Describe {} => Ok(describe(sandbox, release).await?.json()),
            Self::CheckConfig { text } => {
                let text = text.as_deref().unwrap_or(config);
                Ok(check_config(sandbox, release, text).await?.json())
            }
            Self::Origins { text } => {
                let origins = origins(sandbox, release, text.as_deref().unwrap_or(config)).await?;
                Ok(origins.json())
            }
        }
    }
}

/// Whether the answer of `check-config` has a problem for which a slot refuses the component.
pub(in crate::commands) fn has_fatal_problem(answer: &Value) -> bool {
    answer.as_array().into_iter().flatten().any(|problem| problem["severity"] == "fatal")
}
