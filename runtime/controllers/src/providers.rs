//! The providers of one process: names, what each claims, and the signal that its release changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skysail_provider::Provider;
use tokio::sync::watch;

use crate::{
    findings::Findings,
    ownership::{Claim, LaneId},
    provider_addresses::ProviderAddresses,
};

/// One provider and what it claims.
#[derive(Clone, Debug)]
pub struct ProviderEntry {
    /// The operator's name for it: log field, metric label, part of Event texts.
    pub name: String,
    /// What is called.
    pub provider: Arc<dyn Provider>,
    /// Takes Services without a class, and nodes that neither a provider ID nor a selector assigns.
    /// At most one of all.
    pub default: bool,
    /// Labels that a node without provider ID must all carry to be this provider's; empty selects
    /// none.
    pub node_selector: BTreeMap<String, String>,
    /// Values of `spec.loadBalancerClass` that are this provider's.
    pub load_balancer_classes: Vec<String>,
    /// Schemes of `spec.providerID` that this provider claims, whatever its component says; none:
    /// those that its component describes.
    pub provider_id_schemes: Option<Vec<String>>,
    /// The addresses that it may give to load balancers and nodes.
    pub addresses: ProviderAddresses,
    /// Counts the releases that became active. A change makes each object of this provider
    /// reconcile once, spread out.
    pub generation: watch::Receiver<u64>,
    /// Counts the rotations of its credentials. At a change each object of this provider whose last
    /// call was denied is tried again.
    pub rotations: watch::Receiver<u64>,
    /// Where the controllers write what keeps the provider from its objects.
    pub findings: Findings,
}

/// All providers of the process, oldest first: of two that claim the same class or scheme, the
/// older one has it.
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

/// Most schemes, or classes, in one text: a component may describe hundreds.
const SHOWN_MAX: usize = 5;

impl Providers {
    /// Most providers in one process: each costs a handful of tasks, and no cluster spans this many
    /// clouds.
    pub const MAX: usize = 64;

    /// Checks what can be known before anything runs. The order is that of age, oldest first.
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

    /// Oldest first.
    #[must_use]
    pub fn entries(&self) -> &[ProviderEntry] {
        &self.entries
    }

    /// What each has now, named by its place.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        claims(self.entries.iter().enumerate(), &[])
    }
}

impl ProviderEntry {
    /// The schemes that it pins, else those that its component describes; none without either.
    fn wanted_schemes(&self) -> Option<Vec<String>> {
        self.provider_id_schemes.clone().or_else(|| Some(self.provider.info()?.provider_id_schemes.clone()))
    }

    /// The schemes that the component describes and that the provider's own pins leave out, with
    /// the remedy.
    pub(crate) fn ignored_schemes(&self) -> Option<String> {
        let (info, pinned) = (self.provider.info()?, self.provider_id_schemes.as_ref()?);
        let ignored = info.provider_id_schemes.iter().filter(|scheme| !pinned.contains(scheme));
        let ignored: Vec<String> = ignored.take(SHOWN_MAX).map(|scheme| format!("{scheme:?}")).collect();
        (!ignored.is_empty()).then(|| {
            format!(
                "The component of the provider {} ({} {}) describes provider-ID schemes that its spec.providerIdSchemes does not name, so they are ignored: \
                 {}. If it is the right component, add them to spec.providerIdSchemes",
                self.name,
                info.name,
                info.version,
                ignored.join(", ")
            )
        })
    }

    /// What it claims and one of these older claims has, with the remedy; `name` names a provider.
    pub(crate) fn claims_taken(&self, older: &[Claim], name: impl Fn(LaneId) -> Option<String>) -> Option<String> {
        let taken = |field: fn(&Claim) -> &[String], wanted: Vec<String>, what: &'static str| {
            let owned = wanted.into_iter().filter_map(move |wish| Some((holder(older, field, &wish)?, wish)));
            let shown = owned.filter_map(|(owner, wish)| Some((name(owner)?, wish))).take(SHOWN_MAX);
            shown.map(|(owner, wish)| format!("the older provider {owner} has the {what} {wish:?}")).collect::<Vec<_>>()
        };
        let classes = taken(Claim::classes, self.load_balancer_classes.clone(), "class");
        let schemes = taken(Claim::schemes, self.wanted_schemes().unwrap_or_default(), "provider-ID scheme");
        let all = [classes, schemes].concat();
        (!all.is_empty()).then(|| {
            format!(
                "The provider {} claims what an older provider has: {}. Give each provider its own spec.loadBalancerClasses and spec.providerIdSchemes, or \
                 delete one of the two",
                self.name,
                all.join("; ")
            )
        })
    }
}

/// What each provider has now. The oldest provider has all that it claims, and each younger one
/// what is left: a provider that is added takes nothing from those that are there.
///
/// A provider claims the schemes that it pins, else those that its component describes. Without a
/// release it keeps the schemes of `before`: a node does not change hands because a release is
/// being replaced.
pub(crate) fn claims<'a>(
    oldest_first: impl IntoIterator<Item = (LaneId, &'a ProviderEntry)>,
    before: &[Claim],
) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    for (lane, entry) in oldest_first {
        let known = || Some(before.iter().find(|claim| claim.lane == lane)?.schemes.clone());
        let schemes = entry.wanted_schemes().or_else(known).unwrap_or_default();
        let schemes = schemes.into_iter().filter(|scheme| holder(&claims, Claim::schemes, scheme).is_none());
        let classes = entry.load_balancer_classes.iter();
        let classes = classes.filter(|class| holder(&claims, Claim::classes, class).is_none());
        let claim = Claim {
            lane,
            schemes: schemes.collect(),
            node_selector: entry.node_selector.clone(),
            load_balancer_classes: classes.cloned().collect(),
            default: entry.default,
        };
        claims.push(claim);
    }
    claims
}

/// Who has this name in that field.
fn holder(claims: &[Claim], field: fn(&Claim) -> &[String], name: &str) -> Option<LaneId> {
    claims.iter().find(|claim| field(claim).iter().any(|known| known == name)).map(|claim| claim.lane)
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

    use super::{Findings, ProviderAddresses, ProviderEntry, Providers, ProvidersError, claims};

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
            findings: Findings::default(),
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
        let before = providers.claims();
        fake.stop();
        assert_eq!(claims(providers.entries().iter().enumerate(), &before), before);
    }

    fn pinned(fake: &FakeProvider, name: &str, schemes: &[&str]) -> ProviderEntry {
        let provider_id_schemes = schemes.iter().map(|scheme| (*scheme).to_owned()).collect::<Vec<_>>();
        let provider_id_schemes = Some(provider_id_schemes).filter(|schemes| !schemes.is_empty());
        ProviderEntry { provider: Arc::new(fake.clone()), provider_id_schemes, ..entry(name, false) }
    }

    fn schemes(providers: &Providers) -> Vec<Vec<String>> {
        providers.claims().into_iter().map(|claim| claim.schemes).collect()
    }

    fn taken(providers: &Providers, index: usize) -> Option<String> {
        let name = |index: usize| Some(providers.entries()[index].name.clone());
        providers.entries()[index].claims_taken(&providers.claims()[..index], name)
    }

    /// The owner's component is missing at the start, and the other component says that the nodes
    /// are its own.
    #[test]
    fn an_older_provider_has_its_pinned_scheme_even_while_nothing_serves_and_another_describes_it() {
        let (owner, other) = (FakeProvider::new("cloud"), FakeProvider::new("cloud"));
        owner.stop();
        let providers = Providers::new(vec![pinned(&owner, "a", &["cloud"]), pinned(&other, "b", &[])]).unwrap();
        assert_eq!(schemes(&providers), [vec!["cloud".to_owned()], vec![]]);
        let finding = taken(&providers, 1).unwrap();
        assert!(finding.contains("the older provider a has the provider-ID scheme \"cloud\""), "{finding}");
        assert_eq!(taken(&providers, 0), None);
    }

    /// Review W1: two accounts of one cloud, and neither provider pins a scheme.
    #[test]
    fn of_two_components_that_describe_one_scheme_the_older_provider_has_it() {
        let fake = FakeProvider::new("cloud");
        for pin in [&[][..], &["cloud"]] {
            let providers = Providers::new(vec![pinned(&fake, "a", &[]), pinned(&fake, "b", pin)]).unwrap();
            assert_eq!(schemes(&providers), [vec!["cloud".to_owned()], vec![]]);
            assert!(taken(&providers, 1).unwrap().contains("the older provider a has the provider-ID scheme"));
        }
    }

    /// Review W2.
    #[test]
    fn of_two_that_claim_one_class_the_older_provider_has_it() {
        let class = |name: &str| ProviderEntry { load_balancer_classes: vec!["x/lb".to_owned()], ..entry(name, false) };
        let providers = Providers::new(vec![class("a"), class("b")]).unwrap();
        let classes: Vec<_> = providers.claims().into_iter().map(|claim| claim.load_balancer_classes).collect();
        assert_eq!(classes, [vec!["x/lb".to_owned()], vec![]]);
        let finding = taken(&providers, 1).unwrap();
        assert!(finding.contains("the older provider a has the class \"x/lb\""), "{finding}");
    }

    #[test]
    fn what_a_component_describes_beyond_its_pins_is_ignored_and_reported() {
        let fake = FakeProvider::new("more");
        let providers = Providers::new(vec![pinned(&fake, "a", &["mine"])]).unwrap();
        assert_eq!(schemes(&providers), [vec!["mine".to_owned()]]);
        let finding = providers.entries()[0].ignored_schemes().unwrap();
        assert!(finding.contains("spec.providerIdSchemes does not name") && finding.contains("\"more\""), "{finding}");
    }
}
