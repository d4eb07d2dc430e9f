//! `spec.source`: where a provider's component comes from.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use kube::Client;
use schemars::JsonSchema;
use serde::Deserialize;
use skysail_host::{
    credentials::SecretKeyRef,
    egress::{CaBundleSpec, judge_public_address},
};
use skysail_sources::{
    ConfigMapReference, ConfigMapSource, Credentials, DockerConfig, FileSource, FileSourceSettings, Identity,
    OciSource, OciSourceSettings, Offers, PublicKey, Reference, Registry, RegistryOptions, SignaturePolicy, Signers,
    TrustRoot,
};

use super::{explain::Finding, schema::Check};
use crate::args::{object_name, parse_duration};

/// Longest CA bundle, in bytes; the system's own has a fifth of this.
const CA_BUNDLE_BYTES_MAX: u64 = 1 << 20;
/// Longest public key, in bytes: one of RSA with 8,192 bits has a fifth of this.
pub(crate) const KEY_BYTES_MAX: u64 = 8 << 10;

/// Where a provider's component comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ComponentSource {
    /// A file, or a key of a mounted folder.
    File(PathBuf),
    /// ConfigMaps, read through the Kubernetes API.
    ConfigMap(ConfigMapReference),
    /// A registry.
    Oci(Box<OciComponent>),
}

/// A component in a registry.
#[derive(Clone, Debug)]
pub(crate) struct OciComponent {
    reference: Reference,
    registry: Registry,
    settings: OciSourceSettings,
    /// All that the operator wrote, certificates and credentials included: equal where the sources
    /// are.
    written: (String, Option<Credentials>),
}

impl PartialEq for OciComponent {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for OciComponent {}

impl ComponentSource {
    /// Whether what was offered from there is as good as from here: all is the same but who asks.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Oci(one), Self::Oci(other)) => one.written.0 == other.written.0,
            _ => self == other,
        }
    }

    /// Whether it is read through the Kubernetes API.
    pub(crate) const fn needs_kubernetes(&self) -> bool {
        matches!(self, Self::ConfigMap(_))
    }

    /// What comes from there, now and whenever it changes; nothing at all where a cluster is needed
    /// and there is none.
    pub(crate) fn watch(&self, bytes_max: u64, kubernetes: Option<&Client>) -> Option<Offers> {
        Some(match self {
            Self::File(path) => {
                let settings = FileSourceSettings { bytes_max, ..FileSourceSettings::default() };
                FileSource::new(path.clone(), settings).watch()
            }
            Self::Oci(component) => {
                let OciComponent { reference, registry, settings, written: _ } = &**component;
                let settings = OciSourceSettings { bytes_max, ..settings.clone() };
                OciSource::new(registry.clone(), reference.clone(), settings).watch()
            }
            Self::ConfigMap(reference) => {
                ConfigMapSource::new(kubernetes?.clone(), reference.clone(), bytes_max).watch()
            }
        })
    }

    /// What its component is kept under on disk.
    pub(crate) fn kept_as(&self) -> String {
        match self {
            Self::File(path) => format!("file {}", path.display()),
            Self::ConfigMap(reference) => reference.to_string(),
            // What was not signed as is asked now is not what was kept.
            Self::Oci(component) => match &component.settings.signatures {
                None => format!("oci {}", component.reference.whole()),
                Some(policy) => format!("oci {}, signed by {policy}", component.reference.whole()),
            },
        }
    }

    /// The file, where it is one.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::File(path) => Some(path),
            Self::ConfigMap(_) | Self::Oci(_) => None,
        }
    }
}

/// Where a provider's component comes from: exactly one place.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Source {
    /// Path of a .wasm file in the manager's container, for example a key of a mounted ConfigMap.
    /// It is taken up again when it changes.
    file: Option<PathBuf>,
    /// One or several ConfigMaps, read and watched through the Kubernetes API. The manager's
    /// account needs the right to get, list and watch them.
    config_map: Option<ConfigMaps>,
    /// An artifact in an OCI registry.
    oci: Option<Oci>,
}

/// A component in ConfigMaps.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigMaps {
    /// The namespace that the ConfigMaps are in.
    namespace: String,
    /// The ConfigMap that holds the whole component. Write this or names.
    name: Option<String>,
    /// The ConfigMaps that hold the component's parts, in their order: 1 to 64. Each part carries
    /// the digest of the whole component in its annotation skysail.dev/component-digest.
    names: Option<Vec<String>>,
    /// The key of binaryData that holds the component, which may be compressed with gzip. Default:
    /// the only key that there is.
    key: Option<String>,
}

/// A component in a registry.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Oci {
    /// The artifact: ghcr.io/org/provider:v1. A tag is followed; a reference by digest (…@sha256:…)
    /// is final.
    reference: String,
    /// How often the tag is looked up, give or take a tenth, as a duration such as 30s, 5m or
    /// 1h30m. At least 1s. Default: 1m.
    poll_interval: Option<String>,
    /// Longest time for one look-up with its download, as a duration such as 30s or 5m. Default:
    /// 5m.
    timeout: Option<String>,
    /// Who asks. Default: nobody in particular.
    credentials: Option<CredentialsFrom>,
    /// Certificates of authorities that are trusted beside the system's when the registry is asked.
    ca_bundle: Option<CaBundleSpec>,
    /// Hosts that are asked first, in this order, as in a reference: mirror.local:5000. The
    /// registry itself is asked last.
    #[serde(default)]
    mirrors: Vec<String>,
    /// Hosts that are spoken to without TLS, as in a reference: mirror.local:5000. Default: none.
    #[serde(default, rename = "plainHTTP")]
    plain_http: BTreeSet<String>,
    /// Hosts in a private network that the registry may lead to, and that may be told its
    /// credentials: token services and blob stores. Without it, it may lead to public addresses
    /// only. Default: none.
    #[serde(default)]
    trusted_hosts: BTreeSet<String>,
    /// Who has to have signed the artifact, before anything of it is read. Without it anybody may
    /// have made it.
    signatures: Option<Signatures>,
}

/// Whose signatures an artifact has to have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Signatures {
    /// Public keys of those who may sign, as cosign public-key prints them: at most 16, none twice.
    #[serde(default)]
    keys: Vec<KeyFrom>,
    /// Those who may sign without a key, with a certificate of Fulcio: at most 16, none twice.
    #[serde(default)]
    identities: Vec<IdentitySpec>,
    /// Whom to believe about the certificates and times of identities. It has to be there where
    /// there are identities; nothing is fetched.
    trust_root: Option<TrustRootFrom>,
    /// How many of the keys and identities have to have signed: 1 up to their number. Default: 1.
    require: Option<usize>,
}

/// Who may sign without a key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IdentitySpec {
    /// The issuer of tokens who knows them, exactly as the certificate has it, with its scheme. 1
    /// to 1024 bytes.
    issuer: String,
    /// Their name there, exactly as the certificate has it: an address, or the URI of a workflow
    /// with its ref. 1 to 1024 bytes.
    subject: String,
}

/// Where a `trusted_root.json` of Sigstore is: exactly one place. What it has is what is asked for:
/// where it has transparency logs or certificate logs, a signature needs an entry there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum TrustRootFrom {
    /// Path of the file, at most 256 KiB. It is read again when it changes.
    File(PathBuf),
    /// The text itself, at most 256 KiB.
    Json(String),
}

/// Where a public key is: exactly one place. Keys of the kinds P-256, P-384 and RSA are known.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum KeyFrom {
    /// Path of a file with the key as PEM, at most 8 KiB.
    File(PathBuf),
    /// The key itself as PEM, at most 8 KiB.
    Pem(String),
}

/// Where the credentials for a registry are.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum CredentialsFrom {
    /// Path of a Docker configuration, as docker login or a mounted Secret of type
    /// kubernetes.io/dockerconfigjson has it; at most 1 MiB. It is read at each log-in.
    File(PathBuf),
    /// A key of a Secret with a Docker configuration, as those of type
    /// kubernetes.io/dockerconfigjson have it under .dockerconfigjson.
    SecretKeyRef(SecretKeyRef),
}

impl Source {
    /// The Secret that it names.
    pub(super) fn secret(&self) -> Option<&SecretKeyRef> {
        match self.oci.as_ref()?.credentials.as_ref()? {
            CredentialsFrom::SecretKeyRef(secret) => Some(secret),
            CredentialsFrom::File(_) => None,
        }
    }
}

impl Check<'_> {
    pub(super) fn source(&mut self, source: Source) -> Result<ComponentSource, Finding> {
        match source {
            Source { file: Some(file), config_map: None, oci: None } => {
                Ok(ComponentSource::File(self.resolve("spec.source.file", &file)?))
            }
            Source { file: None, config_map: Some(maps), oci: None } => self.config_maps(maps),
            Source { file: None, config_map: None, oci: Some(oci) } => {
                Ok(ComponentSource::Oci(Box::new(self.oci(oci)?)))
            }
            Source { file: None, config_map: None, oci: None } => {
                let reason =
                    "it names no place; write file: with a path, configMap: with a name, or oci: with a reference";
                Err(self.wrong("spec.source", reason.to_owned()))
            }
            Source { .. } => {
                Err(self
                    .wrong("spec.source", "it names several places; keep one of file, configMap and oci".to_owned()))
            }
        }
    }

    fn config_maps(&self, maps: ConfigMaps) -> Result<ComponentSource, Finding> {
        let ConfigMaps { namespace, name, names, key } = maps;
        let names = match (name, names) {
            (Some(name), None) => vec![name],
            (None, Some(names)) if (1..=ConfigMapReference::PARTS_MAX).contains(&names.len()) => names,
            (None, Some(names)) => {
                let reason = format!("{} names; there are 1 to {}", names.len(), ConfigMapReference::PARTS_MAX);
                return Err(self.wrong("spec.source.configMap.names", reason));
            }
            (Some(_), Some(_)) | (None, None) => {
                let reason = "write name: with the ConfigMap, or names: with those of its parts, in order".to_owned();
                return Err(self.wrong("spec.source.configMap", reason));
            }
        };
        let named = [("namespace", &namespace)].into_iter().chain(names.iter().map(|name| ("name", name)));
        for (field, text) in named {
            object_name(text).map_err(|reason| self.wrong(&format!("spec.source.configMap.{field}"), reason))?;
        }
        Ok(ComponentSource::ConfigMap(ConfigMapReference { namespace, names, key }))
    }

    fn oci(&mut self, mut oci: Oci) -> Result<OciComponent, Finding> {
        let reference: Reference = oci.reference.parse().map_err(|error| {
            let reason = format!("{:?} is no reference ({error}); write ghcr.io/org/provider:v1", oci.reference);
            self.wrong("spec.source.oci.reference", reason)
        })?;
        let defaults = OciSourceSettings::default();
        let poll = self.duration("pollInterval", oci.poll_interval.as_deref(), defaults.poll)?;
        if poll < OciSourceSettings::POLL_MIN {
            let reason = format!("{poll:?} is too often; the shortest is {:?}", OciSourceSettings::POLL_MIN);
            return Err(self.wrong("spec.source.oci.pollInterval", reason));
        }
        let timeout = self.duration("timeout", oci.timeout.as_deref(), defaults.timeout)?;
        let ca_bundle = match oci.ca_bundle.take() {
            Some(CaBundleSpec::File(file)) => {
                Some(self.text("spec.source.oci.caBundle.file", &file, CA_BUNDLE_BYTES_MAX)?)
            }
            Some(CaBundleSpec::Pem(pem)) => Some(pem),
            None => None,
        };
        let credentials = oci.credentials.as_ref().map(|from| self.registry_credentials(from)).transpose()?;
        let signatures = oci.signatures.take().map(|signatures| self.signatures(&signatures)).transpose()?;
        let written = (format!("{oci:?}{ca_bundle:?}{signatures:?}"), credentials.clone());
        let registry = Registry::new(RegistryOptions {
            host: reference.resolve_registry().to_owned(),
            mirrors: oci.mirrors,
            plain_http: oci.plain_http,
            trusted_hosts: oci.trusted_hosts,
            ca_bundle,
            credentials,
            judge: Arc::new(judge_public_address),
        });
        let registry = registry.map_err(|error| {
            let place = if error.is_of_the_ca_bundle() { "spec.source.oci.caBundle" } else { "spec.source.oci" };
            self.wrong(place, format!("{:#}", anyhow::Error::from(error)))
        })?;
        let settings = OciSourceSettings { poll, timeout, signatures, ..defaults };
        Ok(OciComponent { reference, registry, settings, written })
    }

    fn registry_credentials(&mut self, from: &CredentialsFrom) -> Result<Credentials, Finding> {
        match from {
            CredentialsFrom::File(file) => {
                // The source reads it at each log-in; here it is known to be there.
                self.text("spec.source.oci.credentials.file", file, DockerConfig::BYTES_MAX)?;
                Ok(Credentials::File(self.resolve("spec.source.oci.credentials.file", file)?))
            }
            CredentialsFrom::SecretKeyRef(secret) => {
                let text = self.secret("spec.source.oci.credentials.secretKeyRef", secret)?;
                let origin = format!("Secret {}/{}", secret.namespace, secret.name);
                Ok(Credentials::Text(DockerConfig::new(text.expose(), &origin)))
            }
        }
    }

    fn signatures(&mut self, signatures: &Signatures) -> Result<SignaturePolicy, Finding> {
        const FIELD: &str = "spec.source.oci.signatures";
        let mut keys = Vec::new();
        for (index, key) in signatures.keys.iter().enumerate() {
            let (field, pem) = match key {
                KeyFrom::File(file) => {
                    let field = format!("{FIELD}.keys[{index}].file");
                    let pem = self.text(&field, file, KEY_BYTES_MAX)?;
                    (field, pem)
                }
                KeyFrom::Pem(pem) => (format!("{FIELD}.keys[{index}].pem"), pem.clone()),
            };
            keys.push(PublicKey::from_pem(&pem).map_err(|error| self.wrong(&field, format!("it holds {error}")))?);
        }
        let identity = |IdentitySpec { issuer, subject }: &IdentitySpec| Identity {
            issuer: issuer.clone(),
            subject: subject.clone(),
        };
        let identities = signatures.identities.iter().map(identity).collect();
        let trust_root = signatures.trust_root.as_ref().map(|from| self.trust_root(from)).transpose()?;
        let signers = Signers { keys, identities, trust_root };
        let policy = SignaturePolicy::new(signers, signatures.require.unwrap_or(1));
        policy.map_err(|error| self.wrong(FIELD, error.to_string()))
    }

    fn trust_root(&mut self, from: &TrustRootFrom) -> Result<TrustRoot, Finding> {
        const FIELD: &str = "spec.source.oci.signatures.trustRoot";
        let (field, json) = match from {
            TrustRootFrom::File(file) => {
                let field = format!("{FIELD}.file");
                let json = self.text(&field, file, TrustRoot::BYTES_MAX)?;
                (field, json)
            }
            TrustRootFrom::Json(json) => (format!("{FIELD}.json"), json.clone()),
        };
        TrustRoot::from_json(&json).map_err(|error| self.wrong(&field, format!("it holds {error}")))
    }

    fn duration(&self, field: &str, text: Option<&str>, default: Duration) -> Result<Duration, Finding> {
        let Some(text) = text else { return Ok(default) };
        parse_duration(text).map_err(|reason| self.wrong(&format!("spec.source.oci.{field}"), reason))
    }
}

#[cfg(test)]
mod tests;
