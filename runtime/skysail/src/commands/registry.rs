//! What `push` and `pull` share: a reference, and the registry that it names.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use skysail_host::{egress::judge_public_address, read_file};
use skysail_sources::{
    Credentials, DockerConfig, Reference, Registry, RegistryFailure, RegistryOptions, TargetRefusal,
};

use crate::{
    args::RegistryArgs,
    exit::{MarkExt as _, Reason},
    provider_file::environment,
    text_file,
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
    let RegistryArgs { registry_config, plain_http, registry_ca, trusted_host, component_bytes: _ } = args;
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
        trusted_hosts: trusted_host.into_iter().collect(),
        ca_bundle,
        credentials: registry_config.or_else(docker_config).map(Credentials::File),
        judge: Arc::new(judge_public_address),
    };
    let registry = Registry::new(options).map_err(|error| {
        let of_the_ca_bundle = error.is_of_the_ca_bundle();
        if of_the_ca_bundle { anyhow!(error).context("--registry-ca") } else { anyhow!(error) }
    });
    Ok((parsed, registry.or_exit(Reason::Usage)?))
}

/// What is wrong, with its causes, and the way out by the flags of these commands.
pub(super) fn told(failure: RegistryFailure) -> anyhow::Error {
    let way_out = way_out(&failure);
    let wrong = anyhow::Error::from(failure);
    way_out.map_or_else(|| anyhow!("{wrong:#}"), |way_out| anyhow!("{wrong:#}: {way_out}"))
}

fn way_out(failure: &RegistryFailure) -> Option<Cow<'static, str>> {
    let text = match failure {
        RegistryFailure::NotFound { .. } => "push it, or correct the reference",
        RegistryFailure::Unauthorized { host, .. } => {
            let text = format!("log in with docker login, or give a configuration for {host} by --registry-config");
            return Some(format!("{text}, or correct it").into());
        }
        RegistryFailure::Forbidden { .. } => "ask the registry's operator for access, or log in with another account",
        RegistryFailure::TooManyRequests { .. } => "try again then",
        RegistryFailure::NotTls { .. } => "name it by --plain-http if plain HTTP is meant",
        RegistryFailure::TooSlow { .. } => "try again",
        RegistryFailure::Unreachable { .. } => {
            "check the name, the network and, with a certificate of your own, --registry-ca"
        }
        RegistryFailure::RefusedTarget { why: TargetRefusal::NotHttps, .. } => {
            "name that host by --plain-http if this is meant"
        }
        RegistryFailure::RefusedTarget {
            why: TargetRefusal::Address(_) | TargetRefusal::CredentialsOfAnother, ..
        } => "name that host by --trusted-host if this is meant",
        RegistryFailure::TooLarge { .. } => {
            "build it smaller (release profile, opt-level \"s\", stripped), or allow more by --component-bytes"
        }
        RegistryFailure::Unsigned { artifact } => {
            return Some(
                format!(
                    "sign it with cosign sign REFERENCE@{artifact}, or pull it without --key and --certificate-identity"
                )
                .into(),
            );
        }
        RegistryFailure::WronglySigned { .. } => {
            "sign it with the trusted keys or identities, or correct --key or --certificate-identity"
        }
        // Nothing of a Provider is in these.
        other => return other.remedy(),
    };
    Some(text.into())
}

/// One that is named has to be one, also where the registry asks for no log-in.
fn is_docker_config(file: &Path) -> anyhow::Result<()> {
    let shown = file.display();
    // Regular: it is read again at each log-in, which a pipe cannot be.
    let bytes_max = DockerConfig::BYTES_MAX;
    let text = read_file(file, bytes_max).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.with_context(|| {
        format!("--registry-config: {shown} is no regular file with a text of at most {bytes_max} bytes: name a Docker configuration")
    })?;
    let config = DockerConfig::new(&text, &shown.to_string());
    config.check().map_err(|reason| anyhow!("--registry-config: {reason}"))
}

/// Where `docker login` keeps its configuration, if it has one.
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

    use super::{is_docker_config, told};

    #[test]
    fn a_configuration_that_is_none_is_told_with_its_flag() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        let told = || is_docker_config(&file).unwrap_err().to_string();
        assert!(told().ends_with("bytes: name a Docker configuration"), "{}", told());
        fs::write(&file, "[]").unwrap();
        assert!(
            told().ends_with("config.json is not a Docker configuration: write {\"auths\": …} into it"),
            "{}",
            told()
        );
        fs::write(&file, r#"{"auths": {}}"#).unwrap();
        is_docker_config(&file).unwrap();
    }

    /// A person who pushes by hand has no Provider whose fields could be set.
    #[test]
    fn a_failure_names_flags_and_no_fields() {
        let (host, what, artifact) = ("ghcr.io".to_owned(), "manifest v1".to_owned(), Digest::of(b"it"));
        let private = judge_public_address([10, 0, 0, 1].into()).unwrap_err();
        let (private, plain) = (TargetRefusal::Address(private), TargetRefusal::NotHttps);
        let failures = [
            (RegistryFailure::NotFound { host: host.clone(), what: what.clone() }, "correct the reference"),
            (RegistryFailure::Unauthorized { host: host.clone(), how: "without credentials" }, "--registry-config"),
            (RegistryFailure::Forbidden { host: host.clone(), what }, "for access"),
            (
                RegistryFailure::TooManyRequests { host: host.clone(), retry_after: Some(Duration::from_secs(5)) },
                "try again then",
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
            let text = told(failure).to_string();
            assert!(text.contains(flag), "{flag} is not in: {text}");
            for field in ["source.oci", "componentBytes", "pollInterval", "caBundle", "allowCidrs", "the manager"] {
                assert!(!text.contains(field), "{text}");
            }
        }
    }
}
