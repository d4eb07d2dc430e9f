//! The schema of one document, and the check that turns a document into a [`ProviderSpec`].

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use serde::Deserialize;
use skysail_controllers::{DeletionPolicy, ProviderAddresses};
use skysail_host::{
    Limits, LimitsError,
    credentials::{CredentialSpec, Credentials, Secret, SecretKeyRef, SecretValues, ValueFrom},
    egress::{CaBundleSpec, EgressPolicy, EgressSpec},
    http_client::{DeletionBudget, DeletionLimit},
};
use skysail_provider::Interface;

use crate::args::parse_duration;

use super::{
    Files, ProviderSpec, Yields,
    explain::Explanation,
    outline::Outline,
    rollout::Rollout,
    source::Source,
    vendor_config::{Beside, Parts, VendorConfig},
};

pub(crate) use skysail_controllers::names::{PROVIDER_API_VERSION as API_VERSION, PROVIDER_KIND as KIND};

/// Largest cloud-config, in bytes: the guest gets it in one piece, and a ConfigMap has at most 1
/// MiB.
pub(crate) const CONFIG_BYTES_MAX: u64 = 256 << 10;

/// Longest load balancer class, in bytes: a domain and a name, as a Kubernetes label.
pub(crate) const CLASS_BYTES_MAX: usize = 253;
/// Longest prefix of a provider ID, in bytes: a scheme, a region and a project.
pub(crate) const PREFIX_BYTES_MAX: usize = 253;
/// Longest scheme, in bytes; those of the large clouds have a dozen.
pub(crate) const SCHEME_BYTES_MAX: usize = 63;
/// The window of `deletionBudget` by default, and its bounds. A longer one would not outlive the
/// processes that count.
const DELETION_WINDOW: Duration = Duration::from_hours(1);
pub(crate) const DELETION_WINDOW_MIN: Duration = Duration::from_secs(1);
pub(crate) const DELETION_WINDOW_MAX: Duration = Duration::from_hours(24);
/// Largest CA bundle, in bytes; that of the system has a fifth of this.
pub(crate) const CA_BUNDLE_BYTES_MAX: u64 = 1 << 20;

const FILE_IN_AN_OBJECT: &str = "an object in the cluster must not name a file or an environment variable of the manager; write configMap or oci for a component, secretKeyRef for a secret, and the text itself for everything else";
const METADATA_IN_AN_OBJECT: &str = "it would give the role of the manager's machine to everyone who may write Providers; write the provider in a provider file, or use webIdentity";
const SECRET_IN_A_FILE: &str =
    "a provider file cannot name a Secret of the cluster; mount the Secret and write file with its path";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    api_version: String,
    kind: String,
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Metadata {
    pub(super) name: String,
}

/// Settings of a provider: the Services and nodes that it claims, its component, and the egress
/// rules, credentials and limits of the component.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spec {
    /// Whether the provider serves the Services and nodes that no other provider claims. At most
    /// one provider of a cluster can be the default. Default: false.
    #[serde(default)]
    pub(super) default: bool,
    /// Load balancer classes that the provider claims, as in spec.loadBalancerClass of a Service,
    /// for example example.com/fast. Each has 1 to 253 characters. Default: none.
    #[serde(default)]
    load_balancer_classes: Vec<String>,
    /// Selector of the nodes without a provider ID that the provider claims. Without this field it
    /// claims no such node, unless it is the default provider.
    node_selector: Option<NodeSelector>,
    /// Schemes of provider IDs that the provider claims: the nodes whose provider ID begins with
    /// one of them belong to the provider. For example aws for aws:///…, incus for incus://…. If
    /// two providers claim a scheme, the older provider gets it. Default: the schemes that the
    /// component names.
    #[serde(default)]
    pub(super) provider_id_schemes: Vec<String>,
    /// Prefixes of provider IDs that the provider claims: a scheme with a region, so that two
    /// providers of one scheme serve different regions, or the beginning of IDs without a scheme,
    /// such as cn-hangzhou. for cn-hangzhou.i-abc. The longest prefix of an ID wins over its
    /// scheme. A provider with prefixes claims only those schemes that providerIdSchemes names. If
    /// two providers claim a prefix, the older provider gets it. Default: none.
    #[serde(default)]
    pub(super) provider_id_prefixes: Vec<String>,
    /// Interfaces of the component that the manager uses. An interface that is left out counts as
    /// not exported; without load-balancers, the provider's Services get no finalizer and no load
    /// balancer. Default: all that the component exports.
    #[serde(default)]
    interfaces: Vec<UsedInterface>,
    /// CIDRs of the addresses that the provider's load balancers may have; at most 64. Loopback
    /// addresses are allowed only if they are named here; link-local addresses are always refused.
    /// Default: every address that is not special.
    #[serde(default)]
    load_balancer_cidrs: Vec<String>,
    /// CIDRs of the addresses that the provider's nodes may have; at most 64. Loopback and
    /// link-local addresses are allowed only if they are named here. Default: every address that is
    /// not special.
    #[serde(default)]
    node_cidrs: Vec<String>,
    /// Whether the provider is paused: the manager creates, changes and deletes no load balancer
    /// and no route of the provider, and deletes none of its nodes. Nodes are initialised and
    /// updated, and releases are rolled out. The annotation skysail.dev/paused of a Service, which
    /// is true or false, decides for that Service. Default: false.
    // Optional, so that the API server writes no default into stored objects: an older manager
    // would refuse the field.
    paused: Option<bool>,
    /// What becomes of a load balancer when its Service is deleted, or changes its type: Delete, or
    /// Retain, after which it stays until a Service adopts it or a person deletes it. The
    /// annotation skysail.dev/deletion-policy of a Service, which is Delete or Retain, decides for
    /// that Service. Default: Delete.
    // Optional, as `paused`. `bounds.rs` has the values.
    #[schemars(with = "Option<String>")]
    deletion_policy: Option<DeletionPolicySpec>,
    /// How many requests that delete something the provider may send in a window; further ones
    /// wait, with the Services that need them. Default: no limit.
    deletion_budget: Option<DeletionBudgetSpec>,
    /// Source of the component: exactly one of the fields. The source is watched, and a new
    /// component is rolled out while the manager runs.
    source: Source,
    /// Cloud-config, in the format of the component; at most 256 KiB. Do not write secrets here;
    /// use credentials. Default: empty.
    config: Option<String>,
    /// File with the cloud-config, in place of config; at most 256 KiB. It is read again when it
    /// changes.
    config_file: Option<PathBuf>,
    /// The configuration of a vendor's own manager, in place of config: the secrets in it become a
    /// credential, and the rest is the cloud-config.
    vendor_config: Option<VendorConfig>,
    /// HTTP requests that the component may send. Default: none.
    #[serde(default)]
    egress: EgressSpec,
    /// Credentials that the host adds to the component's requests, by a name of 1 to 63 letters,
    /// digits, dashes, underscores and dots; at most 32. The component knows the names and never
    /// sees a value.
    #[serde(default)]
    credentials: BTreeMap<String, CredentialSpec>,
    /// Limits of the sandbox. A limit that is left out has its default.
    #[serde(default)]
    limits: Limits,
    /// Whether a new release may lack an interface of its predecessor, such as load-balancers or
    /// routes. If false, such a release is refused. Default: false.
    #[serde(default)]
    allow_interface_loss: bool,
    /// Whether a new release may have another name, or other schemes of provider IDs, than its
    /// predecessor. If false, such a release is refused. Default: false.
    #[serde(default)]
    allow_identity_change: bool,
    /// Whether a new release or a new cloud-config may serve although the component then requires
    /// an origin that no egress rule allows. If false, the release or the cloud-config is refused.
    /// Default: false.
    #[serde(default)]
    allow_unmet_egress: bool,
    /// How a new release replaces its predecessor.
    #[serde(default)]
    rollout: Rollout,
}

/// What becomes of a load balancer whose Service goes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) enum DeletionPolicySpec {
    Delete,
    Retain,
}

/// How many requests that delete something may be sent. These are requests with the method DELETE,
/// and those that egress.rules[].deletes names.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeletionBudgetSpec {
    /// Number of requests in a window: 0 to 10000. With 0 each deletion waits until a person lets
    /// its Service through, by the annotation skysail.dev/allow-deletion.
    deletions: u32,
    /// Length of the window, as a duration such as 10m or 1h; 1s to 24h. Default: 1h.
    window: Option<String>,
}

/// An interface of a component that the manager uses.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum UsedInterface {
    LoadBalancers,
    LoadBalancerInventory,
    Instances,
    Routes,
    PersistentVolumeLabels,
}

pub(super) fn interfaces(used: Vec<UsedInterface>) -> BTreeSet<Interface> {
    let interface = |used| match used {
        UsedInterface::LoadBalancers => Interface::LoadBalancers,
        UsedInterface::LoadBalancerInventory => Interface::LoadBalancerInventory,
        UsedInterface::Instances => Interface::Instances,
        UsedInterface::Routes => Interface::Routes,
        UsedInterface::PersistentVolumeLabels => Interface::PersistentVolumeLabels,
    };
    used.into_iter().map(interface).collect()
}

/// Selector of the nodes without a provider ID that the provider claims.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeSelector {
    /// Labels and their values that a node must have; at least one.
    pub(super) match_labels: BTreeMap<String, String>,
}

/// Where a document comes from, which decides what it may name.
pub(super) enum Carrier<'a> {
    /// A provider file may name other files, relative to its folder. Each file is recorded.
    File { path: &'a Path, files: &'a mut Files },
    /// An account with write access to objects must not read the manager's files and variables
    /// through an object. This includes component files, because a refusal shows the first bytes
    /// and the digest of a file.
    Object { secrets: &'a SecretValues },
}

/// Checks one document and reads what it names.
pub(super) struct Check<'a> {
    carrier: Carrier<'a>,
    outline: &'a Outline,
    /// Number of the document in the outline.
    document: usize,
    /// Name of the provider, with which errors begin; empty until the name was checked.
    name: String,
}

type Checked<T> = Result<T, Explanation>;

impl<'a> Check<'a> {
    pub(super) const fn new(carrier: Carrier<'a>, (outline, document): (&'a Outline, usize)) -> Self {
        Self { carrier, outline, document, name: String::new() }
    }

    pub(super) fn document(mut self, document: Document) -> Checked<ProviderSpec> {
        let Document { api_version, kind, metadata: Metadata { name }, spec } = document;
        if api_version != API_VERSION {
            let reason = format!("{api_version:?} is not supported; write {API_VERSION}");
            return Err(self.invalid_field("apiVersion", reason));
        }
        if kind != KIND {
            return Err(self.invalid_field("kind", format!("{kind:?} is not supported; write {KIND}")));
        }
        if !is_dns_label(&name) {
            let reason = format!(
                "{name:?} is not a name; use at most 63 lower-case letters, digits and dashes, and begin with a letter"
            );
            return Err(self.invalid_field("metadata.name", reason));
        }
        self.name = name;
        self.spec(spec)
    }

    fn spec(mut self, spec: Spec) -> Checked<ProviderSpec> {
        let parts = match self.vendor_config(&spec)? {
            Some(parts) => parts,
            None => Parts { config: self.config(spec.config, spec.config_file.as_deref())?, ..Parts::default() },
        };
        let Parts { config, credentials, values, ca } = parts;
        let mut egress_spec = self.egress(spec.egress)?;
        if egress_spec.ca_bundle.is_none() {
            egress_spec.ca_bundle = ca.map(CaBundleSpec::Pem);
        }
        let written = format!("{egress_spec:?}{:?}{credentials:?}{:?}", spec.credentials, spec.limits);
        let egress = EgressPolicy::new(&egress_spec).map_err(|error| self.of_host("spec.egress.", error))?;
        let credentials = self.credentials(spec.credentials, (credentials, values))?;
        spec.limits.validate().map_err(|error| self.invalid_limits(&error))?;
        let load_balancer_classes = self.classes(spec.load_balancer_classes)?;
        if spec.node_selector.as_ref().is_some_and(|selector| selector.match_labels.is_empty()) {
            let reason = "matchLabels is empty and would select every node; name a label, or set spec.default instead"
                .to_owned();
            return Err(self.invalid_field("spec.nodeSelector.matchLabels", reason));
        }
        let provider_id_schemes = self.schemes(spec.provider_id_schemes)?;
        let provider_id_prefixes = self.prefixes(spec.provider_id_prefixes)?;
        let addresses = ProviderAddresses::new(&spec.load_balancer_cidrs, &spec.node_cidrs)
            .map_err(|error| self.invalid_field(&format!("spec.{}", error.place), error.to_string()))?;
        let deletion_limit = self.deletion_limit(spec.deletion_budget.as_ref())?;
        let source = self.source(spec.source)?;
        let rollout = self.rollout(&spec.rollout)?;
        let retry = self.retry(&spec.rollout)?;
        let interfaces = interfaces(spec.interfaces);
        let flags = (spec.allow_interface_loss, spec.allow_identity_change, spec.allow_unmet_egress, &rollout);
        let mut fingerprint = DefaultHasher::new();
        // Which prefixes the provider claims is no setting of its slot.
        let has_prefixes = !provider_id_prefixes.is_empty();
        (written, &config, &interfaces, has_prefixes, flags).hash(&mut fingerprint);
        Ok(ProviderSpec {
            name: self.name,
            default: spec.default,
            load_balancer_classes,
            node_selector: spec.node_selector.map(|selector| selector.match_labels),
            provider_id_schemes,
            provider_id_prefixes,
            interfaces,
            addresses,
            paused: spec.paused.unwrap_or_default(),
            deletion_policy: match spec.deletion_policy {
                None | Some(DeletionPolicySpec::Delete) => DeletionPolicy::Delete,
                Some(DeletionPolicySpec::Retain) => DeletionPolicy::Retain,
            },
            source,
            config,
            egress: Arc::new(egress),
            deletion_limit,
            deletions: Arc::default(),
            credentials: Arc::new(credentials),
            limits: spec.limits,
            allow_interface_loss: spec.allow_interface_loss,
            allow_identity_change: spec.allow_identity_change,
            allow_unmet_egress: spec.allow_unmet_egress,
            rollout,
            retry,
            yields: Yields::default(),
            fingerprint: fingerprint.finish(),
        })
    }

    fn deletion_limit(&self, budget: Option<&DeletionBudgetSpec>) -> Checked<Option<DeletionLimit>> {
        let Some(DeletionBudgetSpec { deletions, window }) = budget else { return Ok(None) };
        let max = DeletionBudget::DELETIONS_MAX;
        if *deletions > max {
            let reason = format!(
                "{deletions} is more than {max}, the most that can be counted; leave deletionBudget out to allow every deletion"
            );
            return Err(self.invalid_field("spec.deletionBudget.deletions", reason));
        }
        let place = "spec.deletionBudget.window";
        let window = match window {
            None => DELETION_WINDOW,
            Some(text) => parse_duration(text).map_err(|reason| self.invalid_field(place, reason))?,
        };
        if !(DELETION_WINDOW_MIN..=DELETION_WINDOW_MAX).contains(&window) {
            return Err(self.invalid_field(place, "a window has 1s to 24h; write 10m or 1h".to_owned()));
        }
        Ok(Some(DeletionLimit { deletions: *deletions, window }))
    }

    fn classes(&self, classes: Vec<String>) -> Checked<BTreeSet<String>> {
        if let Some(index) = classes.iter().position(|class| class.is_empty() || class.len() > CLASS_BYTES_MAX) {
            let reason = format!("a class has 1 to {CLASS_BYTES_MAX} bytes; use a name such as example.com/fast");
            return Err(self.invalid_field(&format!("spec.loadBalancerClasses[{index}]"), reason));
        }
        Ok(classes.into_iter().collect())
    }

    fn schemes(&self, schemes: Vec<String>) -> Checked<BTreeSet<String>> {
        let is_scheme = |scheme: &String| {
            let length = (1..=SCHEME_BYTES_MAX).contains(&scheme.len());
            length && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'+'))
        };
        if let Some(index) = schemes.iter().position(|scheme| !is_scheme(scheme)) {
            let reason =
                "the value is no scheme; write the text before :// in spec.providerID of a node, such as aws or incus"
                    .to_owned();
            return Err(self.invalid_field(&format!("spec.providerIdSchemes[{index}]"), reason));
        }
        Ok(schemes.into_iter().collect())
    }

    fn prefixes(&self, prefixes: Vec<String>) -> Checked<BTreeSet<String>> {
        let is_prefix = |prefix: &String| {
            (1..=PREFIX_BYTES_MAX).contains(&prefix.len()) && prefix.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if let Some(index) = prefixes.iter().position(|prefix| !is_prefix(prefix)) {
            let reason = format!(
                "a prefix has 1 to {PREFIX_BYTES_MAX} visible ASCII characters; write the beginning of spec.providerID of a node, such as openstack://region/"
            );
            return Err(self.invalid_field(&format!("spec.providerIdPrefixes[{index}]"), reason));
        }
        Ok(prefixes.into_iter().collect())
    }

    fn config(&mut self, text: Option<String>, file: Option<&Path>) -> Checked<String> {
        match (text, file) {
            (Some(_), Some(_)) => {
                Err(self.invalid_field("spec.config", "config and configFile are both set; keep one".to_owned()))
            }
            (Some(text), None) => Ok(text),
            (None, Some(file)) => self.text("spec.configFile", file, CONFIG_BYTES_MAX),
            (None, None) => Ok(String::new()),
        }
    }

    /// Takes the vendor's file apart.
    fn vendor_config(&mut self, spec: &Spec) -> Checked<Option<Parts>> {
        let Some(vendor) = &spec.vendor_config else { return Ok(None) };
        if spec.config.is_some() || spec.config_file.is_some() {
            let reason = "config and vendorConfig are both set; keep one".to_owned();
            return Err(self.invalid_field("spec.vendorConfig", reason));
        }
        let text = match (&vendor.file, &vendor.secret_key_ref) {
            (Some(file), None) => self.text("spec.vendorConfig.file", file, CONFIG_BYTES_MAX)?,
            (None, Some(secret)) => self.secret("spec.vendorConfig.secretKeyRef", secret)?.expose().to_owned(),
            _ => {
                let reason = "exactly one of file and secretKeyRef has to be set".to_owned();
                return Err(self.invalid_field("spec.vendorConfig", reason));
            }
        };
        let credential = vendor.credential.clone().unwrap_or_else(|| vendor.format.name().to_owned());
        if spec.credentials.contains_key(&credential) {
            let reason = format!("the file makes a credential {credential:?}, which credentials has too; rename one");
            return Err(self.invalid_field("spec.vendorConfig.credential", reason));
        }
        let origins = spec.egress.rules.iter().flat_map(|rule| &rule.origins).cloned().collect::<BTreeSet<_>>();
        let origins = origins.into_iter().collect();
        let beside = Beside { credential, origins, has_ca_bundle: spec.egress.ca_bundle.is_some() };
        let parts = vendor.format.take_apart(&text, &beside);
        parts.map(Some).map_err(|reason| self.invalid_field("spec.vendorConfig", reason))
    }

    /// Replaces the file of the CA bundle by its content.
    fn egress(&mut self, mut egress: EgressSpec) -> Checked<EgressSpec> {
        if let Some(CaBundleSpec::File(file)) = &egress.ca_bundle {
            let pem = self.text("spec.egress.caBundle.file", file, CA_BUNDLE_BYTES_MAX)?;
            egress.ca_bundle = Some(CaBundleSpec::Pem(pem));
        }
        Ok(egress)
    }

    /// Reads the values of all credentials: those of the document, and those of a vendor's file.
    fn credentials(
        &mut self,
        mut specs: BTreeMap<String, CredentialSpec>,
        (vendors, mut values): (BTreeMap<String, CredentialSpec>, SecretValues),
    ) -> Checked<Credentials> {
        for (name, spec) in &mut specs {
            if !self.is_file() && spec.aws.as_ref().is_some_and(|aws| aws.instance_metadata.is_some()) {
                let place = format!("spec.credentials.{name}.aws.instanceMetadata");
                return Err(self.invalid_field(&place, METADATA_IN_AN_OBJECT.to_owned()));
            }
            for (field, value) in spec.values_mut() {
                self.value(&format!("spec.credentials.{name}.{field}"), value)?;
            }
        }
        if let Carrier::Object { secrets } = &self.carrier {
            values.extend(secrets.iter().map(|(place, secret)| (place.clone(), secret.clone())));
        }
        specs.extend(vendors);
        Credentials::load(&specs, &environment, &values).map_err(|error| self.of_host("spec.", error))
    }

    /// Checks that the carrier may name this place. A file is read once, and its path is made
    /// absolute to the folder of the provider file.
    fn value(&mut self, place: &str, value: &mut ValueFrom) -> Checked<()> {
        match (&self.carrier, value) {
            (Carrier::File { .. }, ValueFrom::File(file)) => {
                let place = format!("{place}.file");
                self.text(&place, file, Credentials::VALUE_BYTES_MAX)?;
                *file = self.resolve(&place, file)?;
                Ok(())
            }
            (Carrier::File { .. }, ValueFrom::Env(_)) | (Carrier::Object { .. }, ValueFrom::SecretKeyRef(_)) => Ok(()),
            (Carrier::File { .. }, ValueFrom::SecretKeyRef(_)) => {
                Err(self.invalid_field(&format!("{place}.secretKeyRef"), SECRET_IN_A_FILE.to_owned()))
            }
            (Carrier::Object { .. }, ValueFrom::File(_)) => {
                Err(self.invalid_field(&format!("{place}.file"), FILE_IN_AN_OBJECT.to_owned()))
            }
            (Carrier::Object { .. }, ValueFrom::Env(_)) => {
                Err(self.invalid_field(&format!("{place}.env"), FILE_IN_AN_OBJECT.to_owned()))
            }
        }
    }

    /// Whether the document is one of a provider file.
    pub(super) const fn is_file(&self) -> bool {
        matches!(self.carrier, Carrier::File { .. })
    }

    /// The content of a file that the provider file names.
    pub(super) fn text(&mut self, place: &str, file: &Path, bytes_max: u64) -> Checked<String> {
        let file = self.resolve(place, file)?;
        let Carrier::File { files, .. } = &mut self.carrier else {
            return Err(self.invalid_field(place, FILE_IN_AN_OBJECT.to_owned()));
        };
        let read = files.text(&file, bytes_max);
        read.map_err(|reason| self.invalid_field(place, format!("{} {reason}", file.display())))
    }

    /// Relative paths start at the provider file.
    pub(super) fn resolve(&self, place: &str, file: &Path) -> Checked<PathBuf> {
        match &self.carrier {
            Carrier::File { path, .. } => Ok(path.parent().map_or_else(|| file.to_owned(), |folder| folder.join(file))),
            Carrier::Object { .. } => Err(self.invalid_field(place, FILE_IN_AN_OBJECT.to_owned())),
        }
    }

    /// The value of a Secret that the object names.
    pub(super) fn secret(&self, place: &str, secret: &SecretKeyRef) -> Checked<&Secret> {
        let Carrier::Object { secrets } = &self.carrier else {
            return Err(self.invalid_field(place, SECRET_IN_A_FILE.to_owned()));
        };
        secrets.get(secret).ok_or_else(|| self.invalid_field(place, secret.missing()))
    }

    /// An error about egress or credentials: its text begins with the place below `root`.
    fn of_host(&self, root: &str, error: impl Into<anyhow::Error>) -> Explanation {
        let text = format!("{:#}", error.into());
        let (place, reason) = text.split_once(": ").unwrap_or(("", &text));
        self.invalid_field(&format!("{root}{place}"), reason.to_owned())
    }

    /// The place of the first problem, with the text of all; each problem begins with its key.
    fn invalid_limits(&self, error: &LimitsError) -> Explanation {
        let key = error.problems.first().and_then(|problem| problem.split(' ').next()).unwrap_or_default();
        self.invalid_field(&format!("spec.limits.{key}"), error.to_string())
    }

    pub(super) fn invalid_field(&self, path: &str, reason: String) -> Explanation {
        let place = if self.name.is_empty() { path.to_owned() } else { format!("provider {:?}: {path}", self.name) };
        Explanation { line: self.outline.line(self.document, path), place, reason }
    }
}

pub(super) fn is_dns_label(name: &str) -> bool {
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

/// The Secrets that a document names.
pub(super) fn secrets_of(spec: &mut Spec) -> BTreeSet<SecretKeyRef> {
    let values = spec.credentials.values_mut().flat_map(CredentialSpec::values_mut);
    let values = values.filter_map(|(_, value)| match value {
        ValueFrom::SecretKeyRef(secret) => Some(secret.clone()),
        ValueFrom::File(_) | ValueFrom::Env(_) => None,
    });
    let vendors = spec.vendor_config.as_ref().and_then(|vendor| vendor.secret_key_ref.clone());
    values.chain(spec.source.secret().cloned()).chain(vendors).collect()
}
