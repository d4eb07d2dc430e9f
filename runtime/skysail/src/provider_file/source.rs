//! `spec.source`: where a provider's component comes from.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use kube::Client;
use schemars::JsonSchema;
use serde::Deserialize;
use skysail_host::{
    credentials::SecretKeyRef,
    egress::{CaBundleSpec, Proxy, judge_public_address},
};
use skysail_sources::{
    ConfigMapReference, ConfigMapSource, DockerConfig, FileSource, FileSourceSettings, Identity, OciSource,
    OciSourceSettings, Offers, PublicKey, Reference, Registry, RegistryCredentials, RegistryOptions, SignaturePolicy,
    Signers, TrustRoot,
};

use super::{explain::Explanation, schema::Check};
use crate::args::{object_name, parse_duration};

/// Largest CA bundle, in bytes; that of the system has a fifth of this.
const CA_BUNDLE_BYTES_MAX: u64 = 1 << 20;
/// Largest public key, in bytes: an RSA key with 8,192 bits has a fifth of this.
pub(crate) const KEY_BYTES_MAX: u64 = 8 << 10;

/// Where a provider's component comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ComponentSource {
    /// No source, so that the provider never has a release.
    None,
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
    /// All settings, including certificates and credentials, to compare sources.
    written: (String, Option<RegistryCredentials>),
}

impl PartialEq for OciComponent {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for OciComponent {}

impl ComponentSource {
    /// Whether the sources differ at most in their credentials, so that offers of one are also
    /// offers of the other.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Oci(one), Self::Oci(other)) => one.written.0 == other.written.0,
            _ => self == other,
        }
    }

    /// Whether the source is read through the Kubernetes API.
    pub(crate) const fn needs_kubernetes(&self) -> bool {
        matches!(self, Self::ConfigMap(_))
    }

    /// The components that the source offers, now and after each change; `None` without a source,
    /// or if the source needs a cluster and there is none.
    pub(crate) fn watch(&self, bytes_max: u64, kubernetes: Option<&Client>) -> Option<Offers> {
        Some(match self {
            Self::None => return None,
            Self::File(path) => {
                let settings = FileSourceSettings { bytes_max, ..FileSourceSettings::default() };
                FileSource::new(path.clone(), settings).watch()
            }
            Self::Oci(component) => {
                let OciComponent { reference, registry, settings, .. } = &**component;
                let settings = OciSourceSettings { bytes_max, ..settings.clone() };
                OciSource::new(registry.clone(), reference.clone(), settings).watch()
            }
            Self::ConfigMap(reference) => {
                ConfigMapSource::new(kubernetes?.clone(), reference.clone(), bytes_max).watch()
            }
        })
    }

    /// The key of the component in the archive on disk.
    pub(crate) fn kept_as(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::File(path) => format!("file {}", path.display()),
            Self::ConfigMap(reference) => reference.to_string(),
            // Policy and mirrors are part of the key: a component that was archived under another
            // policy, or that another mirror sent, must not serve.
            Self::Oci(component) => {
                let OciComponent { reference, registry, settings, .. } = &**component;
                let mirrors: String = registry.mirrors().iter().map(|host| format!(", mirror {host}")).collect();
                let policy = settings.signatures.as_ref().map(|policy| format!(", signed by {policy}"));
                format!("oci {}{mirrors}{}", reference.whole(), policy.unwrap_or_default())
            }
        }
    }
}

/// Source of the component: exactly one of the fields.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Source {
    /// Path of a .wasm file in the manager's container, for example a key of a mounted ConfigMap.
    /// It is loaded again when it changes.
    file: Option<PathBuf>,
    /// One or several ConfigMaps, read and watched through the Kubernetes API. The manager's
    /// account needs permission to get, list and watch them.
    config_map: Option<ConfigMaps>,
    /// An artifact in an OCI registry.
    oci: Option<Oci>,
}

/// A component in ConfigMaps.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigMaps {
    /// Namespace of the ConfigMaps.
    namespace: String,
    /// Name of the ConfigMap with the whole component. Write name or names.
    name: Option<String>,
    /// Names of the ConfigMaps with the parts of the component, in order: 1 to 64. Each ConfigMap
    /// has the digest of the whole component in its annotation skysail.dev/component-digest.
    names: Option<Vec<String>>,
    /// Key of binaryData with the component, which may be compressed with gzip. Default: the only
    /// key.
    key: Option<String>,
}

/// A component in a registry.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Oci {
    /// Reference of the artifact: ghcr.io/org/provider:v1. A tag is polled; a reference with a
    /// digest (…@sha256:…) never changes.
    reference: String,
    /// Interval at which the tag is polled, give or take a tenth, as a duration such as 30s, 5m or
    /// 1h30m. At least 1s. Default: 1m.
    poll_interval: Option<String>,
    /// Longest time of one poll with its download, as a duration such as 30s or 5m. Default: 5m.
    timeout: Option<String>,
    /// Credentials for the registry. Default: anonymous.
    credentials: Option<CredentialsFrom>,
    /// CA certificates that are trusted for the registry, in addition to those of the system.
    ca_bundle: Option<CaBundleSpec>,
    /// Hosts that are tried before the registry, in this order, as in a reference:
    /// mirror.local:5000.
    #[serde(default)]
    mirrors: Vec<String>,
    /// Hosts to connect to without TLS, as in a reference: mirror.local:5000. Default: none.
    #[serde(default, rename = "plainHTTP")]
    plain_http: BTreeSet<String>,
    /// Hosts with private addresses to which the registry may redirect, and which may get its
    /// credentials: token services and blob stores. Other hosts must have public addresses.
    /// Default: none.
    #[serde(default)]
    trusted_hosts: BTreeSet<String>,
    /// Proxy for all requests to the registry and to the hosts that it names:
    /// `http://proxy.example.com:3128`. The proxy resolves the names, so its rules have to refuse
    /// internal addresses. A private proxy has to be one of the trustedHosts. Default: none.
    proxy: Option<String>,
    /// Signatures that the artifact must have. They are verified before the component is read.
    /// Default: signatures are not verified.
    signatures: Option<Signatures>,
}

/// Signatures that an artifact must have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Signatures {
    /// Public keys of the signers, as cosign public-key prints them: at most 16, without
    /// duplicates.
    #[serde(default)]
    keys: Vec<KeyFrom>,
    /// Identities of the signers of keyless signatures, with a certificate of Fulcio: at most 16,
    /// without duplicates.
    #[serde(default)]
    identities: Vec<IdentitySpec>,
    /// Trusted root that verifies the certificates and times of identities. Required with
    /// identities. Skysail does not download one.
    trust_root: Option<TrustRootFrom>,
    /// Number of keys and identities that must have signed: 1 up to their number. Default: 1.
    require: Option<usize>,
}

/// Identity of a signer without a key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IdentitySpec {
    /// OIDC issuer of the identity, exactly as in the certificate, with its scheme. 1 to 1024
    /// bytes.
    issuer: String,
    /// Subject of the identity, exactly as in the certificate: an e-mail address, or the URI of a
    /// workflow with its ref. 1 to 1024 bytes.
    subject: String,
}

/// Where a `trusted_root.json` of Sigstore is: exactly one of the fields. If it names transparency
/// logs or certificate logs, a signature needs an entry there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum TrustRootFrom {
    /// Path of the file, at most 256 KiB. It is read again when it changes.
    File(PathBuf),
    /// Content of the trusted root, at most 256 KiB.
    Json(String),
}

/// Where a public key is: exactly one of the fields. P-256, P-384 and RSA keys are supported.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum KeyFrom {
    /// Path of a file with the key as PEM, at most 8 KiB.
    File(PathBuf),
    /// Key as PEM, at most 8 KiB.
    Pem(String),
}

/// Where the credentials for a registry are.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum CredentialsFrom {
    /// Path of a Docker configuration, as docker login writes it or a mounted Secret of type
    /// kubernetes.io/dockerconfigjson has it; at most 1 MiB. It is read at each log-in.
    File(PathBuf),
    /// Key of a Secret with a Docker configuration; a Secret of type
    /// kubernetes.io/dockerconfigjson has the key .dockerconfigjson.
    SecretKeyRef(SecretKeyRef),
}

impl Source {
    /// The Secret that the source names.
    pub(super) fn secret(&self) -> Option<&SecretKeyRef> {
        match self.oci.as_ref()?.credentials.as_ref()? {
            CredentialsFrom::SecretKeyRef(secret) => Some(secret),
            CredentialsFrom::File(_) => None,
        }
    }
}

impl Check<'_> {
    pub(super) fn source(&mut self, source: Source) -> Result<ComponentSource, Explanation> {
        match source {
            Source { file: Some(file), config_map: None, oci: None } => {
                Ok(ComponentSource::File(self.resolve("spec.source.file", &file)?))
            }
            Source { file: None, config_map: Some(maps), oci: None } => self.config_maps(maps),
            Source { file: None, config_map: None, oci: Some(oci) } => {
                Ok(ComponentSource::Oci(Box::new(self.oci(oci)?)))
            }
            Source { file: None, config_map: None, oci: None } => {
                let reason = "the source is empty; write exactly one of file, configMap and oci";
                Err(self.invalid_field("spec.source", reason.to_owned()))
            }
            Source { .. } => Err(self.invalid_field(
                "spec.source",
                "the source names several places; write exactly one of file, configMap and oci".to_owned(),
            )),
        }
    }

    fn config_maps(&self, maps: ConfigMaps) -> Result<ComponentSource, Explanation> {
        let ConfigMaps { namespace, name, names, key } = maps;
        let names = match (name, names) {
            (Some(name), None) => vec![name],
            (None, Some(names)) if (1..=ConfigMapReference::PARTS_MAX).contains(&names.len()) => names,
            (None, Some(names)) => {
                let reason =
                    format!("{} names are not allowed; write 1 to {}", names.len(), ConfigMapReference::PARTS_MAX);
                return Err(self.invalid_field("spec.source.configMap.names", reason));
            }
            (Some(_), Some(_)) | (None, None) => {
                let reason =
                    "write exactly one of name (one ConfigMap) and names (the ConfigMaps of the parts, in order)"
                        .to_owned();
                return Err(self.invalid_field("spec.source.configMap", reason));
            }
        };
        let named = [("namespace", &namespace)].into_iter().chain(names.iter().map(|name| ("name", name)));
        for (field, text) in named {
            object_name(text)
                .map_err(|reason| self.invalid_field(&format!("spec.source.configMap.{field}"), reason))?;
        }
        Ok(ComponentSource::ConfigMap(ConfigMapReference { namespace, names, key }))
    }

    fn oci(&mut self, mut oci: Oci) -> Result<OciComponent, Explanation> {
        let reference: Reference = oci.reference.parse().map_err(|error| {
            let reason = format!("{:?} is not a reference ({error}); write ghcr.io/org/provider:v1", oci.reference);
            self.invalid_field("spec.source.oci.reference", reason)
        })?;
        let defaults = OciSourceSettings::default();
        let poll = self.duration("pollInterval", oci.poll_interval.as_deref(), defaults.poll)?;
        if poll < OciSourceSettings::POLL_MIN {
            let reason = format!("{poll:?} is too short; write at least {:?}", OciSourceSettings::POLL_MIN);
            return Err(self.invalid_field("spec.source.oci.pollInterval", reason));
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
        let proxy = oci.proxy.as_deref().map(|text| {
            Proxy::parse(text)
                .map_err(|reason| self.invalid_field("spec.source.oci.proxy", format!("{text:?} {reason}")))
        });
        let proxy = proxy.transpose()?;
        if let Some(proxy) = &proxy
            && self.is_file()
        {
            // The operator wrote the file; an object has to name a private proxy in trustedHosts.
            oci.trusted_hosts.insert(proxy.host().to_owned());
        }
        let written = (format!("{oci:?}{ca_bundle:?}{signatures:?}"), credentials.clone());
        let registry = Registry::new(RegistryOptions {
            host: reference.resolve_registry().to_owned(),
            mirrors: oci.mirrors,
            plain_http: oci.plain_http,
            trusted_hosts: oci.trusted_hosts,
            ca_bundle,
            credentials,
            proxy,
            judge: Arc::new(judge_public_address),
        });
        let registry = registry.map_err(|error| {
            let place = if error.is_of_the_ca_bundle() { "spec.source.oci.caBundle" } else { "spec.source.oci" };
            self.invalid_field(place, format!("{:#}", anyhow::Error::from(error)))
        })?;
        let settings = OciSourceSettings { poll, timeout, signatures, ..defaults };
        Ok(OciComponent { reference, registry, settings, written })
    }

    fn registry_credentials(&mut self, from: &CredentialsFrom) -> Result<RegistryCredentials, Explanation> {
        match from {
            CredentialsFrom::File(file) => {
                // The source reads the file at each log-in; this read only checks the file.
                self.text("spec.source.oci.credentials.file", file, DockerConfig::BYTES_MAX)?;
                Ok(RegistryCredentials::File(self.resolve("spec.source.oci.credentials.file", file)?))
            }
            CredentialsFrom::SecretKeyRef(secret) => {
                let text = self.secret("spec.source.oci.credentials.secretKeyRef", secret)?;
                let origin = format!("Secret {}/{}", secret.namespace, secret.name);
                Ok(RegistryCredentials::Text(DockerConfig::new(text.expose(), &origin)))
            }
        }
    }

    fn signatures(&mut self, signatures: &Signatures) -> Result<SignaturePolicy, Explanation> {
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
            keys.push(
                PublicKey::from_pem(&pem).map_err(|error| self.invalid_field(&field, format!("it holds {error}")))?,
            );
        }
        let identity = |IdentitySpec { issuer, subject }: &IdentitySpec| Identity {
            issuer: issuer.clone(),
            subject: subject.clone(),
        };
        let identities = signatures.identities.iter().map(identity).collect();
        let trust_root = signatures.trust_root.as_ref().map(|from| self.trust_root(from)).transpose()?;
        let signers = Signers { keys, identities, trust_root };
        let policy = SignaturePolicy::new(signers, signatures.require.unwrap_or(1));
        policy.map_err(|error| self.invalid_field(FIELD, error.to_string()))
    }

    fn trust_root(&mut self, from: &TrustRootFrom) -> Result<TrustRoot, Explanation> {
        const FIELD: &str = "spec.source.oci.signatures.trustRoot";
        let (field, json) = match from {
            TrustRootFrom::File(file) => {
                let field = format!("{FIELD}.file");
                let json = self.text(&field, file, TrustRoot::BYTES_MAX)?;
                (field, json)
            }
            TrustRootFrom::Json(json) => (format!("{FIELD}.json"), json.clone()),
        };
        TrustRoot::from_json(&json).map_err(|error| self.invalid_field(&field, format!("it is {error}")))
    }

    fn duration(&self, field: &str, text: Option<&str>, default: Duration) -> Result<Duration, Explanation> {
        let Some(text) = text else { return Ok(default) };
        parse_duration(text).map_err(|reason| self.invalid_field(&format!("spec.source.oci.{field}"), reason))
    }
}

#[cfg(test)]
mod tests;
