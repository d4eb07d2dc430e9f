//! Calls the functions of the interface `identity`: before a release may serve, it describes
//! itself, validates a cloud-config and names the origins that it requires under that cloud-config.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use skysail_provider::{Call, Info, Result};

use crate::{
    Answer, Release, Sandbox,
    call::{Failed, Function, Guest, Purpose, Request, run},
    convert,
    egress::Origin,
    imports::HttpAccess,
};

/// Severity of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The provider works with this cloud-config.
    Warning,
    /// The provider cannot work with this cloud-config: the release, or the new cloud-config, is
    /// refused.
    Fatal,
}

/// One problem that a provider found in a cloud-config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Severity.
    pub severity: Severity,
    /// Line of the cloud-config, from 1; none if unknown.
    pub line: Option<u32>,
    /// Key or section; empty if unknown.
    pub key: String,
    /// The text for people.
    pub message: String,
}

impl Answer for Vec<Problem> {
    fn json(&self) -> Value {
        let problem = |Problem { severity, line, key, message }: &Problem| {
            let severity = match severity {
                Severity::Warning => "warning",
                Severity::Fatal => "fatal",
            };
            json!({"severity": severity, "line": line, "key": key, "message": message})
        };
        self.iter().map(problem).collect()
    }
}

/// Calls `identity.describe`, under all limits and without HTTP.
///
/// # Errors
/// Those of the sandbox; [`skysail_provider::Code::Internal`] if the result breaks the contract.
pub async fn describe(sandbox: &Arc<Sandbox>, release: &Release) -> Result<Info> {
    Ok(try_describe(sandbox, release).await?)
}

/// As [`describe`], with the fault of a failure.
pub(crate) async fn try_describe(sandbox: &Arc<Sandbox>, release: &Release) -> Result<Info, Failed> {
    let indices = &release.exports().identity;
    ask(
        (sandbox, release),
        ("identity.describe", &|| json!({})),
        |Guest { store, instance, env: _ }| {
            Box::pin(async move { indices.load(&mut *store, instance)?.call_describe(store).await })
        },
        convert::info,
    )
    .await
}

/// Calls `identity.check-config`, under all limits and without HTTP. An empty result means that the
/// cloud-config is valid.
///
/// # Errors
/// As [`describe`].
pub async fn check_config(sandbox: &Arc<Sandbox>, release: &Release, text: &str) -> Result<Vec<Problem>> {
    Ok(try_check_config(sandbox, release, text).await?)
}

/// As [`check_config`], with the fault of a failure.
pub(crate) async fn try_check_config(
    sandbox: &Arc<Sandbox>,
    release: &Release,
    text: &str,
) -> Result<Vec<Problem>, Failed> {
    let indices = &release.exports().identity;
    ask(
        (sandbox, release),
        ("identity.check-config", &|| json!({"text": text})),
        |Guest { store, instance, env: _ }| {
            Box::pin(async move { indices.load(&mut *store, instance)?.call_check_config(store, text).await })
        },
        convert::problems,
    )
    .await
}

/// Calls `identity.origins`, under all limits and without HTTP: the origins that the component
/// requires under this cloud-config, which `check-config` accepted.
///
/// # Errors
/// As [`describe`].
pub async fn origins(sandbox: &Arc<Sandbox>, release: &Release, text: &str) -> Result<Vec<Origin>> {
    Ok(try_origins(sandbox, release, text).await?)
}

/// As [`origins`], with the fault of a failure.
pub(crate) async fn try_origins(sandbox: &Arc<Sandbox>, release: &Release, text: &str) -> Result<Vec<Origin>, Failed> {
    let indices = &release.exports().identity;
    ask(
        (sandbox, release),
        ("identity.origins", &|| json!({"text": text})),
        |Guest { store, instance, env: _ }| {
            Box::pin(async move { indices.load(&mut *store, instance)?.call_origins(store, text).await })
        },
        convert::origins,
    )
    .await
}

/// Calls a function of the interface, under all limits and without HTTP.
async fn ask<'env, R: Send, T: Answer + Send>(
    (sandbox, release): (&Arc<Sandbox>, &Release),
    function: Function<'_>,
    guest: impl for<'s> FnOnce(Guest<'s, 'env>) -> BoxFuture<'s, wasmtime::Result<R>> + Send,
    judge: impl FnOnce(R) -> Result<T> + Send,
) -> Result<T, Failed> {
    let (call, http) = (Call::default(), HttpAccess::None);
    let request = Request { sandbox, release, call: &call, function, http, purpose: Purpose::Admitting };
    run(request, guest, judge).await
}
