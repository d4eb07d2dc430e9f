//! The registry connection of `push` and `pull`.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use skysail_host::{
    egress::{Proxy, judge_public_address},
    read_file,
};
use skysail_sources::{
    DockerConfig, Reference, Registry, RegistryCredentials, RegistryFailure, RegistryOptions, TargetRefusal,
};

use crate::{
    args::RegistryArgs,
    exit::{MarkExt as _, Reason},
    provider_file::environment,
    text_file,
};

/// Longest time of a whole push or pull.
pub(super) const TIMEOUT: Duration = Duration::from_mins(10);

/// Parses the reference and configures the connection; no request is sent.
///
/// # Errors
/// The reference or a flag is invalid.
pub(super) fn open(reference: &str, args: RegistryArgs) -> anyhow::Result<(Reference, Registry)> {
    let parsed: Reference = reference
        .parse()
        .map_err(|error| anyhow!("{reference:?} is not a reference ({error}); write ghcr.io/org/provider:v1"))
        .or_exit(Reason::Usage)?;
    let RegistryArgs { registry_config, plain_http, registry_ca, trusted_host, registry_proxy, component_bytes: _ } =
        args;
    let proxy =
        registry_proxy.map(|text| Proxy::parse(&text).map_err(|reason| anyhow!("--registry-proxy: {text:?} {reason}")));
    let proxy = proxy.transpose().or_exit(Reason::Usage)?;
    let ca_bundle = match registry_ca {
        Some(file) => Some(text_file::read("--registry-ca", &file, "PEM certificates").or_exit(Reason::Usage)?),
        None => None,
    };
    if let Some(file) = &registry_config {
        is_docker_config(file).or_exit(Reason::Usage)?;
    }
    let options = RegistryOptions {
        host: parsed.resolve_registry().to_owned(),
        mirrors: Vec::new(),
        plain_http: plain_http.into_iter().collect(),
        // The user of this command chose the proxy.
        trusted_hosts: trusted_host.into_iter().chain(proxy.as_ref().map(|proxy| proxy.host().to_owned())).collect(),
        ca_bundle,
        credentials: registry_config.or_else(docker_config).map(RegistryCredentials::File),
        proxy,
        judge: Arc::new(judge_public_address),
    };
    let registry = Registry::new(options).map_err(|error| {
        let of_the_ca_bundle = error.is_of_the_ca_bundle();
        if of_the_ca_bundle { anyhow!(error).context("--registry-ca") } else { anyhow!(error) }
    });
    Ok((parsed, registry.or_exit(Reason::Usage)?))
}

/// The failure with its causes and the remedy, which names the flags of these commands.
pub(super) fn with_remedy(failure: RegistryFailure) -> anyhow::Error {
    let remedy = remedy(&failure);
    let error = anyhow::Error::from(failure);
    remedy.map_or_else(|| anyhow!("{error:#}"), |remedy| anyhow!("{error:#}; {remedy}"))
}

fn remedy(failure: &RegistryFailure) -> Option<Cow<'static, str>> {
    let text = match failure {
        RegistryFailure::NotFound { .. } => "push it, or correct the reference",
        RegistryFailure::Unauthorized { host, .. } => {
            let text = format!("log in with docker login, or give credentials for {host} with --registry-config");
            return Some(format!("{text}, or correct them").into());
        }
        RegistryFailure::Forbidden { .. } => {
            "ask the registry's administrator for the permission, or use another account"
        }
        RegistryFailure::TooManyRequests { .. } => "try again after that time",
        RegistryFailure::NotTls { .. } => "if plain HTTP is intended, name the host with --plain-http",
        RegistryFailure::TooSlow { .. } => "try again",
        RegistryFailure::Unreachable { .. } => {
            "check the host name, the network and, if the registry has a private CA, --registry-ca"
        }
        RegistryFailure::RefusedTarget { why: TargetRefusal::NotHttps, .. } => {
            "if plain HTTP is intended, name that host with --plain-http"
        }
        RegistryFailure::RefusedTarget {
            why: TargetRefusal::Address(_) | TargetRefusal::CredentialsOfAnother, ..
        } => "if you trust that host, name it with --trusted-host",
        RegistryFailure::TooLarge { .. } => {
            "build the component smaller (release profile, opt-level \"s\", stripped), or raise --component-bytes"
        }
        RegistryFailure::Unsigned { artifact } => {
            return Some(
                format!(
                    "sign the artifact with cosign sign REFERENCE@{artifact}, or pull it without --key and --certificate-identity"
                )
                .into(),
            );
        }
        RegistryFailure::WronglySigned { .. } => {
            "sign the artifact with the expected keys or identities, or correct --key or --certificate-identity"
        }
        // These texts name no field of a Provider.
        other => return other.remedy(),
    };
    Some(text.into())
}

/// Checks the file of `--registry-config`, even if the registry needs no credentials.
fn is_docker_config(file: &Path) -> anyhow::Result<()> {
    let shown = file.display();
    // The file is read again at each log-in, so a pipe is refused.
    let bytes_max = DockerConfig::BYTES_MAX;
    let text = read_file(file, bytes_max).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.with_context(|| {
        format!("--registry-config: {shown} is not a regular UTF-8 file of at most {bytes_max} bytes; name a Docker configuration")
    })?;
    let config = DockerConfig::new(&text, &shown.to_string());
    config.check().map_err(|reason| anyhow!("--registry-config: {reason}"))
}

/// The file in which `docker login` stores its configuration, if it exists.
fn docker_config() -> Option<PathBuf> {
    let folder = environment("DOCKER_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(environment("HOME")?).join(".docker")))?;
    Some(folder.join("config.json")).filter(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use skysail_host::egress::judge_public_address;
    use skysail_sources::{Digest, RegistryFailure, TargetRefusal};

    use super::{is_docker_config, with_remedy};

    #[test]
    fn an_error_about_an_invalid_docker_configuration_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        let error = || is_docker_config(&file).unwrap_err().to_string();
        assert!(error().ends_with("bytes; name a Docker configuration"), "{}", error());
        fs::write(&file, "[]").unwrap();
        assert!(error().contains("config.json is not a Docker configuration"), "{}", error());
        fs::write(&file, r#"{"auths": {}}"#).unwrap();
        is_docker_config(&file).unwrap();
    }

    /// A user of `skysail push` has no object of kind Provider whose fields could be set.
    #[test]
    fn a_remedy_names_flags_and_no_fields_of_a_provider() {
        let (host, what, artifact) = ("ghcr.io".to_owned(), "manifest v1".to_owned(), Digest::of(b"it"));
        let private = judge_public_address([10, 0, 0, 1].into()).unwrap_err();
        let (private, plain) = (TargetRefusal::Address(private), TargetRefusal::NotHttps);
        let failures = [
            (RegistryFailure::NotFound { host: host.clone(), what: what.clone() }, "correct the reference"),
            (RegistryFailure::Unauthorized { host: host.clone(), how: "without credentials" }, "--registry-config"),
            (RegistryFailure::Forbidden { host: host.clone(), what }, "for the permission"),
            (
                RegistryFailure::TooManyRequests { host: host.clone(), retry_after: Some(Duration::from_secs(5)) },
                "try again after that time",
            ),
            (
                RegistryFailure::RefusedTarget { host: host.clone(), to: "10.0.0.1".to_owned(), why: private },
                "--trusted-host",
            ),
            (
                RegistryFailure::RefusedTarget { host: host.clone(), to: "10.0.0.1".to_owned(), why: plain },
                "--plain-http",
            ),
            (RegistryFailure::NotTls { host }, "--plain-http"),
            (RegistryFailure::TooLarge { size: 2, max: 1 }, "--component-bytes"),
            (RegistryFailure::Unsigned { artifact }, "without --key and --certificate-identity"),
            (
                RegistryFailure::WronglySigned {
                    artifact,
                    seen: 1,
                    signers: 0,
                    required: 1,
                    why: "is wrong".to_owned(),
                },
                "correct --key or --certificate-identity",
            ),
        ];
        for (failure, flag) in failures {
            let text = with_remedy(failure).to_string();
            assert!(text.contains(flag), "{flag} is not in: {text}");
            for field in ["source.oci", "componentBytes", "pollInterval", "caBundle", "allowCidrs", "the manager"] {
                assert!(!text.contains(field), "{text}");
            }
        }
    }
}
