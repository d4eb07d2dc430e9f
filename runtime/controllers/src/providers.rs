//! The providers of one process: names, what each claims, and the signal that its release changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skysail_provider::Provider;
use tokio::sync::watch;

use crate::{ownership::Claim, provider_addresses::ProviderAddresses};

/// One provider and what it claims.
#[derive(Clone, Debug)]
pub struct ProviderEntry {
    /// The operator's name for it: log field, metric label, part of Event texts.
    pub name: String,
    /// What is called.
    pub provider: Arc<dyn Provider>,
    /// Takes Services without a class, and nodes that neither a provider ID nor a selector assigns. At most one of all.
    pub default: bool,
    /// Labels that a node without provider ID must all carry to be this provider's; empty selects none.
    pub node_selector: BTreeMap<String, String>,
    /// Values of `spec.loadBalancerClass` that are this provider's.
    pub load_balancer_classes: Vec<String>,
    /// Schemes of `spec.providerID` that are this provider's and nobody else's, whatever components say; none: those that its component describes and no
    /// other provider pins.
    pub provider_id_schemes: Option<Vec<String>>,
    /// The addresses that it may give to load balancers and nodes.
    pub addresses: ProviderAddresses,
    /// Counts the releases that became active. A change makes each object of this provider reconcile once, spread out.
    pub generation: watch::Receiver<u64>,
    /// Counts the rotations of its credentials. At a change each object of this provider whose last call was denied is tried again.
    pub rotations: watch::Receiver<u64>,
}

/// All providers of the process.
#[derive(Clone, Debug, Default)]
pub struct Providers {
    entries: Arc<[ProviderEntry]>,
}

/// Why a set of providers was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvidersError {
    /// A name that labels and texts cannot carry.
    #[error("provider name {0:?} is not 1 to 63 lower-case letters, digits or dashes")]
    Name(String),
    /// Two of one name.
    #[error("two providers are named {0:?}; give each a name of its own")]
    Duplicate(String),
    /// Two defaults.
    #[error("{0:?} and {1:?} are both marked default; mark at most one")]
    TwoDefaults(String, String),
    /// Too many.
    #[error("{0} providers; at most {max} fit into one process", max = Providers::MAX)]
    TooMany(usize),
}

/// Most schemes in one Event: a component may describe hundreds.
const SCHEMES_SHOWN_MAX: usize = 5;

impl Providers {
    /// Most providers in one process: each costs a handful of tasks, and no cluster spans this many clouds.
    pub const MAX: usize = 64;

    /// Checks what can be known before anything runs. Overlapping classes, selectors and schemes are judged object by object.
    ///
    /// # Errors
    /// A bad or repeated name, two defaults, more than [`Self::MAX`].
    pub fn new(entries: Vec<ProviderEntry>) -> Result<Self, ProvidersError> {
        if entries.len() > Self::MAX {
            return Err(ProvidersError::TooMany(entries.len()));
        }
        let mut names = BTreeSet::new();
        for entry in &entries {
            if !is_provider_name(&entry.name) {
                return Err(ProvidersError::Name(entry.name.clone()));
            }
            if !names.insert(&entry.name) {
                return Err(ProvidersError::Duplicate(entry.name.clone()));
            }
        }
        let mut defaults = entries.iter().filter(|entry| entry.default);
        if let (Some(one), Some(other)) = (defaults.next(), defaults.next()) {
            return Err(ProvidersError::TwoDefaults(one.name.clone(), other.name.clone()));
        }
        Ok(Self { entries: entries.into() })
    }

    /// In the order given; an index into it stands for a provider everywhere in this crate.
    #[must_use]
    pub fn entries(&self) -> &[ProviderEntry] {
        &self.entries
    }

    /// The index of the provider of that name.
    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name == name)
    }

    /// The provider that a scheme is pinned to.
    fn pinned_by(&self, scheme: &str) -> Option<&ProviderEntry> {
        self.entries.iter().find(|entry| entry.provider_id_schemes.iter().flatten().any(|pinned| pinned == scheme))
    }

    /// The schemes that a provider's component describes and that count for nothing, with the reason and the way out.
    pub(crate) fn ignored_schemes(&self, entry: &ProviderEntry) -> Option<String> {
        let info = entry.provider.info()?;
        let name = &entry.name;
        let whose = |scheme: &String| match self.pinned_by(scheme) {
            Some(owner) if owner.name == *name => None,
            Some(owner) => Some(format!("{scheme:?} is pinned to the provider {}", owner.name)),
            None if entry.provider_id_schemes.is_none() => None,
            None => Some(format!("{scheme:?} is not in its spec.providerIdSchemes")),
        };
        let ignored: Vec<String> = info.provider_id_schemes.iter().filter_map(whose).take(SCHEMES_SHOWN_MAX).collect();
        (!ignored.is_empty()).then(|| {
            format!(
                "The component of the provider {name} ({} {}) describes provider-ID schemes that count for nothing: {}. If it is the right component, mend \
                 spec.providerIdSchemes in the provider file",
                info.name,
                info.version,
                ignored.join("; ")
            )
        })
    }

    /// What each claims now. Schemes that the operator pinned are their provider's, whatever a component says and whether one serves. Of the others, a
    /// provider that serves nothing keeps those of `before`: a node does not change hands because a release is being replaced.
    pub(crate) fn claims(&self, before: &[Claim]) -> Vec<Claim> {
        let claim = |(index, entry): (usize, &ProviderEntry)| Claim {
            schemes: match (&entry.provider_id_schemes, entry.provider.info()) {
                (Some(pinned), _) => pinned.clone(),
                (None, Some(info)) => {
                    let schemes = info.provider_id_schemes.iter();
                    schemes.filter(|scheme| self.pinned_by(scheme).is_none()).cloned().collect()
                }
                (None, None) => before.get(index).map(|claim| claim.schemes.clone()).unwrap_or_default(),
            },
            node_selector: entry.node_selector.clone(),
            load_balancer_classes: entry.load_balancer_classes.clone(),
            default: entry.default,
        };
        self.entries.iter().enumerate().map(claim).collect()
    }
}

/// What labels, annotations and texts can carry: 1 to 63 lower-case letters, digits and dashes.
pub(crate) fn is_provider_name(name: &str) -> bool {
    let well_formed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= 63 && name.chars().all(well_formed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skysail_provider::fake::FakeProvider;
    use tokio::sync::watch;

    use super::{ProviderAddresses, ProviderEntry, Providers, ProvidersError};

    fn entry(name: &str, default: bool) -> ProviderEntry {
        ProviderEntry {
            name: name.to_owned(),
            provider: Arc::new(FakeProvider::new("fake")),
            default,
            node_selector: [].into(),
            load_balancer_classes: vec![],
            provider_id_schemes: None,
            addresses: ProviderAddresses::default(),
            generation: watch::channel(0).1,
            rotations: watch::channel(0).1,
        }
    }

    #[test]
    fn what_cannot_work_is_refused_before_anything_runs() {
        let refusal = |entries| Providers::new(entries).unwrap_err();
        assert_eq!(refusal(vec![entry("A b", true)]), ProvidersError::Name("A b".to_owned()));
        assert_eq!(refusal(vec![entry("a", true), entry("a", false)]), ProvidersError::Duplicate("a".to_owned()));
        let both = ProvidersError::TwoDefaults("a".to_owned(), "b".to_owned());
        assert_eq!(refusal(vec![entry("a", true), entry("b", true)]), both);
        assert!(Providers::new(vec![entry("a", true), entry("b", false)]).is_ok());
    }

    #[test]
    fn a_provider_that_serves_nothing_keeps_the_schemes_it_had() {
        let fake = FakeProvider::new("fake");
        let providers =
            Providers::new(vec![ProviderEntry { provider: Arc::new(fake.clone()), ..entry("a", true) }]).unwrap();
        let before = providers.claims(&[]);
        fake.stop();
        assert_eq!(providers.claims(&before), before);
    }

    fn pinned(fake: &FakeProvider, name: &str, schemes: &[&str]) -> ProviderEntry {
        let provider_id_schemes = schemes.iter().map(|scheme| (*scheme).to_owned()).collect::<Vec<_>>();
        let provider_id_schemes = Some(provider_id_schemes).filter(|schemes| !schemes.is_empty());
        ProviderEntry { provider: Arc::new(fake.clone()), provider_id_schemes, ..entry(name, false) }
    }

    fn schemes(providers: &Providers, before: &[super::Claim]) -> Vec<Vec<String>> {
        providers.claims(before).into_iter().map(|claim| claim.schemes).collect()
    }

    /// The rightful owner's component is missing at the start, and another one says that the nodes are its own.
    #[test]
    fn a_pinned_scheme_is_its_providers_even_while_nothing_serves_and_another_describes_it() {
        let (rightful, thief) = (FakeProvider::new("cloud"), FakeProvider::new("cloud"));
        rightful.stop();
        let providers = Providers::new(vec![pinned(&rightful, "a", &["cloud"]), pinned(&thief, "b", &[])]).unwrap();
        assert_eq!(schemes(&providers, &[]), [vec!["cloud".to_owned()], vec![]]);
        let finding = providers.ignored_schemes(&providers.entries()[1]).unwrap();
        assert!(finding.contains("\"cloud\" is pinned to the provider a"), "{finding}");
        assert_eq!(providers.ignored_schemes(&providers.entries()[0]), None);
    }

    #[test]
    fn what_a_component_describes_beyond_its_pins_counts_for_nothing_and_is_said() {
        let fake = FakeProvider::new("more");
        let providers = Providers::new(vec![pinned(&fake, "a", &["mine"])]).unwrap();
        assert_eq!(schemes(&providers, &[]), [vec!["mine".to_owned()]]);
        let finding = providers.ignored_schemes(&providers.entries()[0]).unwrap();
        assert!(finding.contains("\"more\" is not in its spec.providerIdSchemes"), "{finding}");
    }
}
