//! What `push` and `pull` share: a reference, and the registry that it names.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use skysail_host::egress::judge_public_address;
use skysail_sources::{Credentials, Reference, Registry, RegistryOptions};

use crate::{
    args::RegistryArgs,
    exit::{MarkExt as _, Reason},
    provider_file::environment,
};

/// What a push or a pull may take in all.
pub(super) const TIMEOUT: Duration = Duration::from_mins(10);

/// Reads the reference and sets up the connection; nothing is sent yet.
///
/// # Errors
/// The reference or a flag is wrong.
pub(super) fn open(reference: &str, args: RegistryArgs) -> anyhow::Result<(Reference, Registry)> {
    let parsed: Reference = reference
        .parse()
        .map_err(|error| anyhow!("{reference:?} is no reference ({error}): write ghcr.io/org/provider:v1"))
        .or_exit(Reason::Usage)?;
    let RegistryArgs { registry_config, plain_http, registry_ca, trusted_host } = args;
    let ca_bundle = match registry_ca {
        Some(file) => {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()));
            Some(text.or_exit(Reason::Usage)?)
        }
        None => None,
    };
    let options = RegistryOptions {
        host: parsed.resolve_registry().to_owned(),
        mirrors: Vec::new(),
        plain_http: plain_http.into_iter().collect(),
        trusted_hosts: trusted_host.into_iter().collect(),
        ca_bundle,
        credentials: registry_config.or_else(docker_config).map(Credentials::File),
        judge: Arc::new(judge_public_address),
    };
    let registry = Registry::new(options).or_exit(Reason::Usage)?;
    Ok((parsed, registry))
}

/// Where `docker login` keeps its configuration, if it has one.
fn docker_config() -> Option<PathBuf> {
    let folder = environment("DOCKER_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(environment("HOME")?).join(".docker")))?;
    Some(folder.join("config.json")).filter(|file| file.is_file())
}
