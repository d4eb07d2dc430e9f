//! `Provider`s as operators write them: YAML documents of a provider file, or objects of the
//! cluster ([`ProviderObject`]). Both have the same schema.
//!
//! A file is accepted as a whole or not at all; each object is accepted independently. Every error
//! names the place, the reason and the remedy. This module reads the file and the files that it
//! names (secrets, cloud-config, CA bundle) and starts nothing.

mod explain;
mod files;
mod object;
mod outline;
mod rollout;
mod schema;
mod source;
mod text;
mod vendor_config;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use explain::Explanation;
use outline::Outline;
use schema::{Carrier, Check, Document};
use schemars::{Schema, generate::SchemaSettings};
use skysail_controllers::{DeletionPolicy, ProviderAddresses};
use skysail_host::{
    Limits,
    credentials::Credentials,
    egress::{EgressPolicy, EgressSpec},
    http_client::{DeletionBudget, DeletionLimit},
    slot::RolloutOptions,
};
use skysail_provider::Interface;

use crate::output;

pub(crate) use self::{
    files::Files,
    object::{ProviderObject, claims_only},
    schema::environment,
    source::ComponentSource,
};
pub(crate) use self::{
    rollout::{ON_DIFFERENCE, PERCENT_MAX as CANARY_PERCENT_MAX, TIME_MAX as PROBATION_TIME_MAX},
    schema::{
        API_VERSION, CA_BUNDLE_BYTES_MAX, CLASS_BYTES_MAX, CONFIG_BYTES_MAX, DELETION_WINDOW_MAX, DELETION_WINDOW_MIN,
        KIND, PREFIX_BYTES_MAX, SCHEME_BYTES_MAX,
    },
    source::KEY_BYTES_MAX as SIGNATURE_KEY_BYTES_MAX,
    vendor_config::NAMES as VENDOR_FORMATS,
};

/// Largest provider file, in bytes. Typical files have a few hundred bytes; a wrong path (a disk
/// image) is refused before it is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Largest number of providers. A cluster spans two or three clouds, and each provider costs a
/// compiled component.
pub(crate) const PROVIDERS_MAX: usize = 32;

/// A provider as the operator describes it, checked, with the values of its credentials read.
#[derive(Debug)]
pub(crate) struct ProviderSpec {
    /// `metadata.name`.
    pub(crate) name: String,
    /// Whether the provider serves all objects that no other provider claims.
    pub(crate) default: bool,
    /// Load balancer classes that the provider claims.
    pub(crate) load_balancer_classes: BTreeSet<String>,
    /// Labels of the nodes without a provider ID that the provider claims.
    pub(crate) node_selector: Option<BTreeMap<String, String>>,
    /// Schemes of provider IDs that the provider claims; if empty, those of its component.
    pub(crate) provider_id_schemes: BTreeSet<String>,
    /// Prefixes of provider IDs that the provider claims.
    pub(crate) provider_id_prefixes: BTreeSet<String>,
    /// Interfaces of the component that are used; if empty, all that it exports.
    pub(crate) interfaces: BTreeSet<Interface>,
    /// Addresses that its load balancers and nodes may have.
    pub(crate) addresses: ProviderAddresses,
    /// Whether the controllers change nothing in its cloud and delete none of its nodes.
    pub(crate) paused: bool,
    /// What becomes of load balancers whose Service goes.
    pub(crate) deletion_policy: DeletionPolicy,
    /// Where the component comes from.
    pub(crate) source: ComponentSource,
    /// Cloud-config; empty if none is given.
    pub(crate) config: String,
    /// Requests that the component may send.
    pub(crate) egress: Arc<EgressPolicy>,
    /// How many deletions may leave in a window; none without a limit.
    pub(crate) deletion_limit: Option<DeletionLimit>,
    /// The budget that counts them. It stays while the provider does, whatever its settings.
    pub(crate) deletions: Arc<DeletionBudget>,
    /// Credentials that the host adds to requests.
    pub(crate) credentials: Arc<Credentials>,
    /// Limits of the sandbox.
    pub(crate) limits: Limits,
    /// A release may lack an interface that its predecessor had.
    pub(crate) allow_interface_loss: bool,
    /// A release may have another name or other provider-ID schemes than its predecessor.
    pub(crate) allow_identity_change: bool,
    /// A release may need an origin that no egress rule allows.
    pub(crate) allow_unmet_egress: bool,
    /// How a new release takes over.
    pub(crate) rollout: RolloutOptions,
    /// Digest of a release that was rolled back and is tried again.
    pub(crate) retry: Option<String>,
    /// Claims that another provider has.
    pub(crate) yields: Yields,
    /// Hash of the slot's settings, including the content of files. It does not include the claims,
    /// `paused`, `deletion_policy`, `deletion_limit`, the source, the values of credentials and
    /// `retry`, which change without a new slot.
    pub(crate) fingerprint: u64,
}

/// Claims of a provider that have no effect, because an older provider has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Yields {
    default: bool,
    schemes: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

/// The part of a provider's spec that the controllers use; the slot uses the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    name: String,
    default: bool,
    load_balancer_classes: BTreeSet<String>,
    node_selector: Option<BTreeMap<String, String>>,
    provider_id_schemes: Option<BTreeSet<String>>,
    provider_id_prefixes: BTreeSet<String>,
    interfaces: BTreeSet<Interface>,
    addresses: ProviderAddresses,
    paused: bool,
    deletion_policy: DeletionPolicy,
}

impl ProviderSpec {
    /// A provider of that name with default limits, without source, cloud-config and egress.
    ///
    /// # Errors
    /// None in practice: the empty egress policy is valid.
    pub(crate) fn closed(name: &str) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            default: false,
            load_balancer_classes: BTreeSet::new(),
            node_selector: None,
            provider_id_schemes: BTreeSet::new(),
            provider_id_prefixes: BTreeSet::new(),
            interfaces: BTreeSet::new(),
            addresses: ProviderAddresses::default(),
            paused: false,
            deletion_policy: DeletionPolicy::default(),
            source: ComponentSource::None,
            config: String::new(),
            egress: Arc::new(EgressPolicy::new(&EgressSpec::default())?),
            deletion_limit: None,
            deletions: Arc::default(),
            credentials: Arc::new(Credentials::none()),
            limits: Limits::default(),
            allow_interface_loss: false,
            allow_identity_change: false,
            allow_unmet_egress: false,
            rollout: RolloutOptions::default(),
            retry: None,
            yields: Yields::default(),
            fingerprint: 0,
        })
    }

    /// Suspends all claims that one of `others` has, until the other provider drops them. Returns
    /// these claims and the remedy.
    pub(crate) fn yield_to(&mut self, others: &[Claims]) -> Option<String> {
        self.yields = Yields::default();
        let mut given_up = Vec::new();
        if self.default
            && let Some(other) = others.iter().find(|other| other.default)
        {
            self.yields.default = true;
            given_up.push(format!(
                "spec.default: provider {:?} is the default already; at most one provider can be the default, so set spec.default of one of them to false",
                other.name
            ));
        }
        for scheme in &self.provider_id_schemes {
            let owner = others.iter().find(|other| other.provider_id_schemes.iter().flatten().any(|own| own == scheme));
            if let Some(owner) = owner {
                self.yields.schemes.insert(scheme.clone());
                given_up.push(format!(
                    "spec.providerIdSchemes: provider {:?} has {scheme:?} already; a node has one owner, so give the scheme to one provider",
                    owner.name
                ));
            }
        }
        for prefix in &self.provider_id_prefixes {
            if let Some(owner) = others.iter().find(|other| other.provider_id_prefixes.contains(prefix)) {
                self.yields.prefixes.insert(prefix.clone());
                given_up.push(format!(
                    "spec.providerIdPrefixes: provider {:?} has {prefix:?} already; a node has one owner, so give the prefix to one provider",
                    owner.name
                ));
            }
        }
        (!given_up.is_empty()).then(|| given_up.join("; "))
    }

    /// Whether the provider serves all objects that no other provider claims.
    pub(crate) const fn is_default(&self) -> bool {
        self.default && !self.yields.default
    }

    /// The schemes in the spec without suspended ones; `None` if the spec names no scheme, so that
    /// those of the component count.
    pub(crate) fn pinned_schemes(&self) -> Option<BTreeSet<String>> {
        let pinned = || self.provider_id_schemes.difference(&self.yields.schemes).cloned().collect();
        (!self.provider_id_schemes.is_empty()).then(pinned)
    }

    /// The prefixes in the spec without suspended ones.
    pub(crate) fn prefixes(&self) -> BTreeSet<String> {
        self.provider_id_prefixes.difference(&self.yields.prefixes).cloned().collect()
    }

    /// The claims, for the controllers.
    pub(crate) fn claims(&self) -> Claims {
        Claims {
            name: self.name.clone(),
            default: self.is_default(),
            load_balancer_classes: self.load_balancer_classes.clone(),
            node_selector: self.node_selector.clone(),
            provider_id_schemes: self.pinned_schemes(),
            provider_id_prefixes: self.prefixes(),
            interfaces: self.interfaces.clone(),
            addresses: self.addresses.clone(),
            paused: self.paused,
            deletion_policy: self.deletion_policy,
        }
    }
}

/// A valid provider file.
#[derive(Debug)]
pub(crate) struct ProviderFile {
    /// At least one; names differ, at most one is the default.
    pub(crate) providers: Vec<ProviderSpec>,
    /// Every file that was read: after a change of one, the provider file is read again.
    pub(crate) files: Files,
}

/// An error in a provider file.
#[derive(Debug)]
pub(crate) struct ProviderFileError {
    file: PathBuf,
    /// 1-based line; `None` if the error is about the whole file or another file.
    line: Option<u64>,
    /// For example `provider "sim": spec.credentials[0].bearer.file`.
    place: String,
    reason: String,
    /// Every file that was read before the error.
    files: Files,
}

impl ProviderFileError {
    /// The files that were read: after a change of one, the provider file may be valid.
    pub(crate) const fn files(&self) -> &Files {
        &self.files
    }
}

impl fmt::Display for ProviderFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, place, reason, files: _ } = self;
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        let place = if place.is_empty() { String::new() } else { format!(": {place}") };
        // A key may contain any character.
        f.write_str(&output::plain(&format!("{}{line}{place}: {reason}", file.to_string_lossy())))
    }
}

impl std::error::Error for ProviderFileError {}

/// Reads and checks a provider file with everything that it names.
///
/// # Errors
/// The first error in the file.
pub(crate) fn load(path: &Path) -> Result<ProviderFile, ProviderFileError> {
    let mut files = Files::default();
    match read(path, &mut files) {
        Ok(providers) => Ok(ProviderFile { providers, files }),
        Err(error) => Err(ProviderFileError { files, ..error }),
    }
}

fn read(path: &Path, files: &mut Files) -> Result<Vec<ProviderSpec>, ProviderFileError> {
    let wrong = |Explanation { line, place, reason }| ProviderFileError {
        file: path.to_owned(),
        line,
        place,
        reason,
        files: Files::default(),
    };
    let whole = |reason| wrong(Explanation { line: None, place: String::new(), reason });
    let text = files.text(path, FILE_BYTES_MAX).map_err(whole)?;
    let outline = Outline::of(&text).map_err(|error| wrong(explain::syntax(&error)))?;
    let documents: Vec<Document> =
        serde_saphyr::from_multiple(&text).map_err(|error| wrong(explain::schema(&outline, &error)))?;
    if documents.is_empty() {
        return Err(whole("the file has no provider; write at least one document of kind Provider".to_owned()));
    }
    if documents.len() > PROVIDERS_MAX {
        return Err(whole(format!(
            "the file has {} providers, but at most {PROVIDERS_MAX} are allowed; remove some",
            documents.len()
        )));
    }
    check_together(&outline, &documents).map_err(wrong)?;
    let check = |(number, document)| {
        let carrier = Carrier::File { path, files: &mut *files };
        Check::new(carrier, (&outline, number)).document(document)
    };
    documents.into_iter().enumerate().map(check).collect::<Result<_, _>>().map_err(wrong)
}

/// The schema of `spec`, generated from the types that read a provider file.
pub(crate) fn spec_schema(settings: SchemaSettings) -> Schema {
    settings.into_generator().into_root_schema_for::<schema::Spec>()
}

/// Reads a cloud-config.
///
/// # Errors
/// The file cannot be read; the text does not contain the path.
pub(crate) fn read_config(path: &Path) -> Result<String, String> {
    text::read(path, schema::CONFIG_BYTES_MAX)
}

/// The rules that span several documents.
fn check_together(outline: &Outline, documents: &[Document]) -> Result<(), Explanation> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut default: Option<(&str, usize)> = None;
    let mut claims: BTreeMap<(&str, &str), (&str, usize)> = BTreeMap::new();
    let line = |number: usize, place: &str| outline.line(number, place);
    let shown =
        |number: usize, place: &str| line(number, place).map_or_else(String::new, |line| format!(" of line {line}"));
    for (number, document) in documents.iter().enumerate() {
        let name = document.metadata.name.as_str();
        if let Some(first) = names.insert(name, number) {
            let reason = format!("the provider{} has the same name; give each its own", shown(first, "metadata.name"));
            let place = format!("provider {name:?}: metadata.name");
            return Err(Explanation { line: line(number, "metadata.name"), place, reason });
        }
        if document.spec.default
            && let Some((other, first)) = default.replace((name, number))
        {
            let reason = format!(
                "provider {other:?}{} is the default already; at most one provider can be the default, so set spec.default of one of them to false",
                shown(first, "spec.default")
            );
            let place = format!("provider {name:?}: spec.default");
            return Err(Explanation { line: line(number, "spec.default"), place, reason });
        }
        let schema::Spec { provider_id_schemes, provider_id_prefixes, .. } = &document.spec;
        for (field, what, claimed) in [
            ("spec.providerIdSchemes", "scheme", provider_id_schemes),
            ("spec.providerIdPrefixes", "prefix", provider_id_prefixes),
        ] {
            for (index, claim) in claimed.iter().enumerate() {
                let Some((other, first)) = claims.insert((what, claim), (name, number)) else { continue };
                let path = format!("{field}[{index}]");
                let place = format!("provider {name:?}: {path}");
                let reason = if first == number {
                    format!("{claim:?} is listed twice; remove one of the two entries")
                } else {
                    let first = shown(first, field);
                    format!(
                        "provider {other:?} has {claim:?} already{first}; a node has one owner, so give the {what} to one provider"
                    )
                };
                return Err(Explanation { line: line(number, &path), place, reason });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
