//! The schema of one document, and the step from what is written to what is meant.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use serde_saphyr::Spanned;
use skysail_host::{
    Limits,
    credentials::{BasicSpec, ClientCertificateSpec, CredentialSpec, Credentials, HeaderSpec, ValueFrom},
    egress::{CaBundleSpec, EgressPolicy, EgressSpec},
};

use super::{Files, ProviderFileError, ProviderSpec, wrong};

const API_VERSION: &str = "skysail.dev/v1alpha1";
const KIND: &str = "Provider";
/// Longest cloud-config, in bytes: it reaches the guest in one piece, and a ConfigMap ends at 1 MiB.
pub(super) const CONFIG_BYTES_MAX: u64 = 256 << 10;

/// Longest CA bundle, in bytes; the system's own has a fifth of this.
const CA_BUNDLE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    pub(super) api_version: Spanned<String>,
    pub(super) kind: Spanned<String>,
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Metadata {
    pub(super) name: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spec {
    pub(super) default: Option<Spanned<bool>>,
    #[serde(default)]
    load_balancer_classes: Vec<Spanned<String>>,
    node_selector: Option<NodeSelector>,
    source: Source,
    config: Option<Spanned<String>>,
    config_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    egress: EgressSpec,
    /// By name.
    #[serde(default)]
    credentials: BTreeMap<String, CredentialSpec>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    allow_interface_loss: bool,
    #[serde(default)]
    allow_identity_change: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeSelector {
    match_labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Source {
    file: PathBuf,
}

/// The parser's reason without its drawing of the text, on one line.
pub(super) fn reason(error: &serde_saphyr::Error) -> String {
    error.without_snippet().to_string().lines().next().unwrap_or("not readable as YAML").to_owned()
}

/// Checks one document and reads what it names.
pub(super) fn check(document: Document, path: &Path, files: &mut Files) -> Result<ProviderSpec, ProviderFileError> {
    Check { path, files, name: String::new() }.document(document)
}

/// Where a check stands: what its errors begin with.
struct Check<'a> {
    path: &'a Path,
    files: &'a mut Files,
    name: String,
}

type Checked<T> = Result<T, ProviderFileError>;

impl Check<'_> {
    fn document(mut self, document: Document) -> Checked<ProviderSpec> {
        let Document { api_version, kind, metadata, spec } = document;
        if api_version.value != API_VERSION || kind.value != KIND {
            let reason = format!(
                "{} of {} is not what this file holds; write apiVersion: {API_VERSION} and kind: {KIND}",
                kind.value, api_version.value
            );
            return Err(self.error(Some(api_version.referenced.line()), "kind", reason));
        }
        let line = metadata.name.referenced.line();
        let name = metadata.name.value;
        if !is_dns_label(&name) {
            let reason = format!(
                "{name:?} is not a name; use at most 63 lower-case letters, digits and dashes, and begin with a letter"
            );
            return Err(self.error(Some(line), "metadata.name", reason));
        }
        self.name = name;
        self.spec(spec)
    }

    fn spec(mut self, spec: Spec) -> Checked<ProviderSpec> {
        let config = self.config(spec.config, spec.config_file)?;
        let egress_spec = self.egress(spec.egress)?;
        let written = format!("{egress_spec:?}{:?}{:?}", spec.credentials, spec.limits);
        let egress = EgressPolicy::new(&egress_spec).map_err(|error| self.error(None, "spec.egress", chain(&error)))?;
        let credentials = self.credentials(spec.credentials)?;
        spec.limits.validate().map_err(|error| self.error(None, "spec.limits", chain(&error)))?;
        let load_balancer_classes = self.classes(spec.load_balancer_classes)?;
        if spec.node_selector.as_ref().is_some_and(|selector| selector.match_labels.is_empty()) {
            let reason = "it selects every node; name a label, or mark the provider as default instead".to_owned();
            return Err(self.error(None, "spec.nodeSelector.matchLabels", reason));
        }
        let component = self.resolve(&spec.source.file);
        let flags = (spec.allow_interface_loss, spec.allow_identity_change);
        let mut fingerprint = DefaultHasher::new();
        (written, &config, flags).hash(&mut fingerprint);
        Ok(ProviderSpec {
            name: self.name,
            default: spec.default.is_some_and(|default| default.value),
            load_balancer_classes,
            node_selector: spec.node_selector.map(|selector| selector.match_labels),
            component,
            config,
            egress: Arc::new(egress),
            credentials: Arc::new(credentials),
            limits: spec.limits,
            allow_interface_loss: spec.allow_interface_loss,
            allow_identity_change: spec.allow_identity_change,
            fingerprint: fingerprint.finish(),
        })
    }

    fn classes(&self, classes: Vec<Spanned<String>>) -> Checked<BTreeSet<String>> {
        let mut checked = BTreeSet::new();
        for class in classes {
            let line = Some(class.referenced.line());
            if class.value.is_empty() || class.value.len() > 253 {
                let reason = format!("{:?} cannot be a class; use a name such as example.com/fast", class.value);
                return Err(self.error(line, "spec.loadBalancerClasses", reason));
            }
            checked.insert(class.value);
        }
        Ok(checked)
    }

    fn config(&mut self, text: Option<Spanned<String>>, file: Option<Spanned<PathBuf>>) -> Checked<String> {
        match (text, file) {
            (Some(text), Some(_)) => {
                let reason = "config and configFile are both there; keep one".to_owned();
                Err(self.error(Some(text.referenced.line()), "spec.config", reason))
            }
            (Some(text), None) => Ok(text.value),
            (None, Some(file)) => {
                let line = Some(file.referenced.line());
                self.text(&file.value, CONFIG_BYTES_MAX).map_err(|reason| self.error(line, "spec.configFile", reason))
            }
            (None, None) => Ok(String::new()),
        }
    }

    /// The rules with the certificates' text in place of the file that holds it.
    fn egress(&mut self, mut egress: EgressSpec) -> Checked<EgressSpec> {
        if let Some(CaBundleSpec::File(file)) = &egress.ca_bundle {
            let read = self.text(file, CA_BUNDLE_BYTES_MAX);
            let pem = read.map_err(|reason| self.error(None, "spec.egress.caBundle.file", reason))?;
            egress.ca_bundle = Some(CaBundleSpec::Pem(pem));
        }
        Ok(egress)
    }

    fn credentials(&mut self, mut specs: BTreeMap<String, CredentialSpec>) -> Checked<Credentials> {
        for value in specs.values_mut().flat_map(values_of) {
            if let ValueFrom::File(file) = value {
                *file = self.resolve(file);
                // Only to be remembered: the host reads it again, and says what is wrong with it.
                drop(self.files.text(file, Credentials::VALUE_BYTES_MAX));
            }
        }
        Credentials::load(specs, &environment).map_err(|error| self.error(None, "spec", chain(&error)))
    }

    /// A file that the provider file names.
    fn text(&mut self, file: &Path, bytes_max: u64) -> Result<String, String> {
        let file = self.resolve(file);
        self.files.text(&file, bytes_max).map_err(|reason| format!("{} {reason}", file.display()))
    }

    /// Relative paths start at the provider file.
    fn resolve(&self, file: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| file.to_owned(), |folder| folder.join(file))
    }

    fn error(&self, line: Option<u64>, place: &str, reason: String) -> ProviderFileError {
        let place = if self.name.is_empty() { place.to_owned() } else { format!("provider {:?}: {place}", self.name) };
        wrong(self.path, line, &place, reason)
    }
}

fn is_dns_label(name: &str) -> bool {
    name.len() <= 63
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// The environment of this process.
#[expect(clippy::disallowed_methods, reason = "the operator's configuration names the variable")]
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Every value that a credential names.
fn values_of(spec: &mut CredentialSpec) -> impl Iterator<Item = &mut ValueFrom> {
    let CredentialSpec { origins: _, bearer, header, basic, client_certificate } = spec;
    let header = header.as_mut().map(|HeaderSpec { name: _, value }| value);
    let basic = basic.as_mut().map(|BasicSpec { username: _, password }| password);
    let (certificate, key) =
        client_certificate.as_mut().map(|ClientCertificateSpec { certificate, key }| (certificate, key)).unzip();
    [bearer.as_mut(), header, basic, certificate, key].into_iter().flatten()
}

/// An error with its causes, on one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
