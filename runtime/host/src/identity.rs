//! What a release says about itself and about a cloud-config, before it may serve.

use std::sync::Arc;

use skysail_provider::{Call, Info, Result};

use crate::{
    Release, Sandbox,
    call::{Failed, Guest, Purpose, Request, run},
    convert,
    imports::HttpAccess,
};

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The provider can work with it.
    Warning,
    /// The provider cannot work with it: the release, or the new cloud-config, is refused.
    Fatal,
}

/// One finding of a provider about a cloud-config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad.
    pub severity: Severity,
    /// Of the cloud-config, from 1; none where unknown.
    pub line: Option<u32>,
    /// Key or section; empty where unknown.
    pub key: String,
    /// For people.
    pub message: String,
}

/// Asks a release who it is, under all limits and without HTTP.
///
/// # Errors
/// Those of the sandbox; [`skysail_provider::Code::Internal`] where the answer breaks the contract.
pub async fn describe(sandbox: &Arc<Sandbox>, release: &Release) -> Result<Info> {
    Ok(try_describe(sandbox, release).await?)
}

/// As [`describe`], with the fault of a failure.
pub(crate) async fn try_describe(sandbox: &Arc<Sandbox>, release: &Release) -> Result<Info, Failed> {
    let indices = &release.exports().identity;
    let call = Call::default();
    let (function, http) = ("identity.describe", HttpAccess::None);
    let request = Request { sandbox, release, call: &call, function, http, purpose: Purpose::Admitting };
    run(
        request,
        |Guest { store, instance, env: _ }| {
            Box::pin(async move { indices.load(&mut *store, instance)?.call_describe(store).await })
        },
        convert::info,
    )
    .await
}

/// Asks a release what is wrong with a cloud-config, under all limits and without HTTP. An empty
/// answer means that it is good.
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
    let call = Call::default();
    let (function, http) = ("identity.check-config", HttpAccess::None);
    let request = Request { sandbox, release, call: &call, function, http, purpose: Purpose::Admitting };
    run(
        request,
        |Guest { store, instance, env: _ }| {
            Box::pin(async move { indices.load(&mut *store, instance)?.call_check_config(store, text).await })
        },
        convert::problems,
    )
    .await
}
