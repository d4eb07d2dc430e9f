//! The providers of one process: their names, claims and the signals of their releases.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skysail_provider::{Interface, Provider};
use tokio::sync::watch;

use crate::{
    findings::Findings,
    ownership::{Claim, LaneId},
    provider_addresses::ProviderAddresses,
};

/// One provider and its claims.
#[derive(Clone, Debug)]
pub struct ProviderEntry {
    /// The name that the operator gave the provider: log field, metric label, part of Event texts.
    pub name: String,
    /// The implementation.
    pub provider: Arc<dyn Provider>,
    /// Whether this provider owns Services without a class, and nodes that neither a provider ID
    /// nor a selector assigns. At most one provider is the default.
    pub default: bool,
    /// Labels that a node without provider ID must all carry to belong to this provider; an empty
    /// selector selects none.
    pub node_selector: BTreeMap<String, String>,
    /// Values of `spec.loadBalancerClass` that this provider claims.
    pub load_balancer_classes: Vec<String>,
    /// Schemes of `spec.providerID` that this provider claims. `None`: the schemes that its
    /// component declares.
    pub provider_id_schemes: Option<Vec<String>>,
    /// Schemes that the component declared before this process started. Without
    /// `provider_id_schemes` the provider has them until a release of it serves.
    pub remembered_schemes: Vec<String>,
    /// Prefixes of `spec.providerID` that this provider claims. The longest prefix of an ID wins
    /// over its scheme. With prefixes and without schemes here, the schemes that its component
    /// declares claim nothing.
    pub provider_id_prefixes: Vec<String>,
    /// The interfaces that the operator lists; empty: all that the component exports. The provider
    /// itself leaves the others out.
    pub interfaces: BTreeSet<Interface>,
    /// The addresses that the provider may assign to load balancers and nodes.
    pub addresses: ProviderAddresses,
    /// Whether the operator has paused the provider: no load balancer and no route is changed, and
    /// no node is deleted.
    pub paused: bool,
    /// What becomes of a load balancer whose Service has no annotation with a policy.
    pub deletion_policy: DeletionPolicy,
    /// Counts the releases that became active. After a change each object of this provider is
    /// reconciled once, spread over time.
    pub generation: watch::Receiver<u64>,
    /// Counts the rotations of the provider's credentials. After a change each object of this
    /// provider whose last call was denied is retried.
    pub rotations: watch::Receiver<u64>,
    /// Receives the findings of the controllers about this provider.
    pub findings: Findings,
}

/// What becomes of a load balancer when its Service is deleted or wants none any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// The provider deletes the load balancer.
    #[default]
    Delete,
    /// The load balancer stays, until a Service adopts it or a person deletes it.
    Retain,
}

/// All providers of the process, oldest first. If two providers claim the same class or scheme, the
/// older provider gets it.
#[derive(Clone, Debug, Default)]
pub struct Providers {
    entries: Arc<[ProviderEntry]>,
}

/// Why a set of providers was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvidersError {
    /// A name that is not valid in labels.
    #[error("provider name {0:?} is not valid; use 1 to 63 lower-case letters, digits or dashes")]
    Name(String),
    /// Two providers have the same name.
    #[error("two providers are named {0:?}; give each its own name")]
    Duplicate(String),
    /// Two providers are marked as default.
    #[error("the providers {0:?} and {1:?} are both marked as default; mark at most one")]
    TwoDefaults(String, String),
    /// More than [`Providers::MAX`] providers.
    #[error("{0} providers are configured, and one process runs at most {max}; remove providers", max = Providers::MAX)]
    TooMany(usize),
}

/// The maximum number of schemes, or classes, in one text: a component may declare hundreds.
const SHOWN_MAX: usize = 5;

impl Providers {
    /// The maximum number of providers in one process: each costs a few tasks, and no cluster spans
    /// more clouds.
    pub const MAX: usize = 64;

    /// Validates the set. `entries` are in the order of age, oldest first.
    ///
    /// # Errors
    /// An invalid or repeated name, two defaults, more than [`Self::MAX`] providers.
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

    /// The providers, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[ProviderEntry] {
        &self.entries
    }

    /// The claims of all providers. Each claim names its provider by the index in `entries`.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        claims(self.entries.iter().enumerate(), &[], |_| false)
    }
}

impl ProviderEntry {
    /// A provider that claims only what its component declares, and whose release and credentials
    /// never change.
    pub fn new(name: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        Self {
            name: name.into(),
            provider,
            default: false,
            node_selector: BTreeMap::new(),
            load_balancer_classes: Vec::new(),
            provider_id_schemes: None,
            remembered_schemes: Vec::new(),
            provider_id_prefixes: Vec::new(),
            interfaces: BTreeSet::new(),
            addresses: ProviderAddresses::default(),
            paused: false,
            deletion_policy: DeletionPolicy::default(),
            generation: watch::channel(0).1,
            rotations: watch::channel(0).1,
            findings: Findings::default(),
        }
    }

    /// The schemes in its spec, otherwise those that its component declares; none without either.
    fn wanted_schemes(&self) -> Option<Vec<String>> {
        let listed = self.provider_id_schemes.clone();
        // The prefixes say which IDs of its schemes it claims.
        let listed = listed.or_else(|| (!self.provider_id_prefixes.is_empty()).then(Vec::new));
        listed.or_else(|| Some(self.provider.info()?.provider_id_schemes.clone()))
    }

    /// An explanation, if the component declares schemes that the provider's spec does not list.
    pub(crate) fn ignored_schemes(&self) -> Option<String> {
        let (info, pinned) = (self.provider.info()?, self.provider_id_schemes.as_ref()?);
        let ignored = info.provider_id_schemes.iter().filter(|scheme| !pinned.contains(scheme));
        let ignored: Vec<String> = ignored.take(SHOWN_MAX).map(|scheme| format!("{scheme:?}")).collect();
        (!ignored.is_empty()).then(|| {
            format!(
                "The component of the provider {} ({} {}) declares provider-ID schemes that its spec.providerIdSchemes does not list, so they are ignored: \
                 {}. If it is the right component, add them to spec.providerIdSchemes",
                self.name,
                info.name,
                info.version,
                ignored.join(", ")
            )
        })
    }

    /// Whether the operator wants this interface of the provider.
    fn wants(&self, interface: Interface) -> bool {
        self.interfaces.is_empty() || self.interfaces.contains(&interface)
    }

    /// An explanation, if the provider's spec lists interfaces that its component does not export.
    pub(crate) fn missing_interfaces(&self) -> Option<String> {
        let info = self.provider.info()?;
        let missing = self.interfaces.iter().filter(|interface| !self.provider.has(**interface));
        let missing: Vec<&str> = missing.map(|interface| interface.name()).collect();
        (!missing.is_empty()).then(|| {
            format!(
                "The component of the provider {} ({} {}) does not export interfaces that its spec.interfaces lists: {}. Remove them from spec.interfaces, or use a \
                 component that exports them",
                self.name,
                info.name,
                info.version,
                missing.join(", ")
            )
        })
    }

    /// An explanation, if an older provider has a class or scheme that this provider claims. `name`
    /// returns the name of a provider.
    pub(crate) fn claims_taken(&self, older: &[Claim], name: impl Fn(LaneId) -> Option<String>) -> Option<String> {
        let taken = |field: fn(&Claim) -> &[String], wanted: Vec<String>, what: &'static str| {
            let owned = wanted.into_iter().filter_map(move |wish| Some((holder(older, field, &wish)?, wish)));
            let shown = owned.filter_map(|(owner, wish)| Some((name(owner)?, wish))).take(SHOWN_MAX);
            shown.map(|(owner, wish)| format!("the older provider {owner} has the {what} {wish:?}")).collect::<Vec<_>>()
        };
        let classes = taken(Claim::classes, self.load_balancer_classes.clone(), "class");
        let schemes = taken(Claim::schemes, self.wanted_schemes().unwrap_or_default(), "provider-ID scheme");
        let prefixes = taken(Claim::prefixes, self.provider_id_prefixes.clone(), "provider-ID prefix");
        let all = [classes, schemes, prefixes].concat();
        (!all.is_empty()).then(|| {
            format!(
                "The provider {} claims classes, schemes or prefixes that an older provider has: {}. Give each provider its own spec.loadBalancerClasses, \
                 spec.providerIdSchemes and spec.providerIdPrefixes, or delete one of the two",
                self.name,
                all.join("; ")
            )
        })
    }
}

/// The current claims of each provider. The oldest provider gets everything that it claims, each
/// younger one the rest: an added provider takes nothing from existing ones.
///
/// A provider claims the schemes in its spec, otherwise those that its component declares. Without
/// a release it keeps its schemes of `before`, so that no node changes its owner while a release is
/// being replaced, and after a start its remembered schemes.
///
/// After a start, the release of a younger provider may serve first. Its schemes are settled when
/// those of all older providers are, except of older providers without remembered schemes that
/// no provider awaits any longer (`awaited` is false).
pub(crate) fn claims<'a>(
    oldest_first: impl IntoIterator<Item = (LaneId, &'a ProviderEntry)>,
    before: &[Claim],
    awaited: impl Fn(LaneId) -> bool,
) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    let mut older_may_declare = false;
    for (lane, entry) in oldest_first {
        let known = before.iter().find(|claim| claim.lane == lane && claim.settled);
        let remembered = || Some(entry.remembered_schemes.clone()).filter(|schemes| !schemes.is_empty());
        let wanted = entry.wanted_schemes().or_else(|| Some(known?.schemes.clone())).or_else(remembered);
        // Without a scheme nothing can be disputed: prefixes are the operator's.
        let is_of_prefixes = wanted.as_ref().is_some_and(Vec::is_empty) && !entry.provider_id_prefixes.is_empty();
        let settled = wanted.is_some() && (known.is_some() || !older_may_declare || is_of_prefixes);
        older_may_declare |= wanted.is_none() && awaited(lane);
        let schemes = wanted.filter(|_| settled).unwrap_or_default().into_iter();
        let schemes = schemes.filter(|scheme| holder(&claims, Claim::schemes, scheme).is_none());
        let prefixes = entry.provider_id_prefixes.iter();
        let prefixes = prefixes.filter(|prefix| holder(&claims, Claim::prefixes, prefix).is_none());
        let classes = entry.load_balancer_classes.iter();
        let classes = classes.filter(|class| holder(&claims, Claim::classes, class).is_none());
        let claim = Claim {
            lane,
            name: entry.name.clone(),
            schemes: schemes.collect(),
            prefixes: prefixes.cloned().collect(),
            settled,
            disputable: !is_of_prefixes && claims.iter().any(|older| !older.settled),
            node_selector: entry.node_selector.clone(),
            load_balancer_classes: classes.cloned().collect(),
            default: entry.default,
            serves_services: entry.wants(Interface::LoadBalancers),
        };
        claims.push(claim);
    }
    claims
}

/// The provider that has this class, scheme or prefix.
fn holder(claims: &[Claim], field: fn(&Claim) -> &[String], name: &str) -> Option<LaneId> {
    claims.iter().find(|claim| field(claim).iter().any(|known| known == name)).map(|claim| claim.lane)
}

/// Whether the name is valid in labels and annotations: 1 to 63 lower-case letters, digits and
/// dashes.
pub(crate) fn is_provider_name(name: &str) -> bool {
    let well_formed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= 63 && name.chars().all(well_formed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skysail_provider::{Interface, Node, fake::FakeProvider};

    use super::{Claim, ProviderEntry, Providers, ProvidersError, claims};
    use crate::ownership::{Owner, node_owner, service_owner};

    fn entry(name: &str, default: bool) -> ProviderEntry {
        ProviderEntry { default, ..ProviderEntry::new(name, Arc::new(FakeProvider::new("fake"))) }
    }

    #[test]
    fn an_invalid_set_of_providers_is_refused_before_anything_runs() {
        let refusal = |entries| Providers::new(entries).unwrap_err();
        assert_eq!(refusal(vec![entry("A b", true)]), ProvidersError::Name("A b".to_owned()));
        assert_eq!(refusal(vec![entry("a", true), entry("a", false)]), ProvidersError::Duplicate("a".to_owned()));
        let both = ProvidersError::TwoDefaults("a".to_owned(), "b".to_owned());
        assert_eq!(refusal(vec![entry("a", true), entry("b", true)]), both);
        assert!(Providers::new(vec![entry("a", true), entry("b", false)]).is_ok());
    }

    #[test]
    fn a_provider_without_a_serving_release_keeps_its_schemes() {
        let fake = FakeProvider::new("fake");
        let providers =
            Providers::new(vec![ProviderEntry { provider: Arc::new(fake.clone()), ..entry("a", true) }]).unwrap();
        let before = providers.claims();
        fake.stop();
        assert_eq!(claims(providers.entries().iter().enumerate(), &before, |_| true), before);
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

    /// The owner's component is missing at the start, and the other component declares the same
    /// scheme.
    #[test]
    fn an_older_provider_has_its_pinned_scheme_even_while_nothing_serves_and_another_declares_it() {
        let (owner, other) = (FakeProvider::new("cloud"), FakeProvider::new("cloud"));
        owner.stop();
        let providers = Providers::new(vec![pinned(&owner, "a", &["cloud"]), pinned(&other, "b", &[])]).unwrap();
        assert_eq!(schemes(&providers), [vec!["cloud".to_owned()], vec![]]);
        let finding = taken(&providers, 1).unwrap();
        assert!(finding.contains("the older provider a has the provider-ID scheme \"cloud\""), "{finding}");
        assert_eq!(taken(&providers, 0), None);
    }

    /// Two accounts of one cloud, and neither provider pins a scheme.
    #[test]
    fn of_two_components_that_declare_one_scheme_the_older_provider_has_it() {
        let fake = FakeProvider::new("cloud");
        for pin in [&[][..], &["cloud"]] {
            let providers = Providers::new(vec![pinned(&fake, "a", &[]), pinned(&fake, "b", pin)]).unwrap();
            assert_eq!(schemes(&providers), [vec!["cloud".to_owned()], vec![]]);
            assert!(taken(&providers, 1).unwrap().contains("the older provider a has the provider-ID scheme"));
        }
    }

    /// After a start the younger provider's release serves first.
    #[test]
    fn a_younger_provider_gets_no_scheme_while_the_older_provider_may_declare_it() {
        let fakes = [FakeProvider::new("cloud"), FakeProvider::new("cloud")];
        let [older, younger] = &fakes;
        for pin in [&[][..], &["cloud"]] {
            older.stop();
            let providers = Providers::new(vec![pinned(older, "a", &[]), pinned(younger, "b", pin)]).unwrap();
            let now = |before: &[Claim], awaited: bool| {
                claims(providers.entries().iter().enumerate(), before, |lane| lane == 0 && awaited)
            };
            let shown = |claims: &[Claim]| -> Vec<(bool, usize)> {
                claims.iter().map(|claim| (claim.settled, claim.schemes.len())).collect()
            };
            let first = now(&[], true);
            assert_eq!(shown(&first), [(false, 0), (false, 0)]);
            let late = now(&first, false);
            assert_eq!(shown(&late), [(false, 0), (true, 1)], "no provider awaits the older one any longer");
            assert!(late[1].disputable);
            older.start();
            let both = now(&first, true);
            assert_eq!(shown(&both), [(true, 1), (true, 0)]);
            assert!(!both[1].disputable);
            older.stop();
            assert_eq!(now(&both, true), both);
        }
    }

    /// However long the older provider does not serve.
    #[test]
    fn an_older_provider_has_its_remembered_schemes_until_its_release_declares_others() {
        let (older, younger) = (FakeProvider::new("cloud"), FakeProvider::new("cloud"));
        older.stop();
        let remembered_schemes = vec!["cloud".to_owned()];
        let older_entry = ProviderEntry { remembered_schemes, ..pinned(&older, "a", &[]) };
        let providers = Providers::new(vec![older_entry, pinned(&younger, "b", &[])]).unwrap();
        assert_eq!(schemes(&providers), [vec!["cloud".to_owned()], vec![]]);
        assert!(providers.claims().iter().all(|claim| claim.settled && !claim.disputable));
        older.start();
        older.describe_schemes(&["other"]);
        let after = claims(providers.entries().iter().enumerate(), &providers.claims(), |_| false);
        let after: Vec<_> = after.into_iter().map(|claim| claim.schemes).collect();
        assert_eq!(after, [vec!["other".to_owned()], vec!["cloud".to_owned()]]);
    }

    #[test]
    fn of_two_providers_that_claim_one_class_the_older_provider_has_it() {
        let class = |name: &str| ProviderEntry { load_balancer_classes: vec!["x/lb".to_owned()], ..entry(name, false) };
        let providers = Providers::new(vec![class("a"), class("b")]).unwrap();
        let classes: Vec<_> = providers.claims().into_iter().map(|claim| claim.load_balancer_classes).collect();
        assert_eq!(classes, [vec!["x/lb".to_owned()], vec![]]);
        let finding = taken(&providers, 1).unwrap();
        assert!(finding.contains("the older provider a has the class \"x/lb\""), "{finding}");
    }

    /// Two regions of one cloud with the same component.
    #[test]
    fn a_provider_with_prefixes_claims_no_declared_scheme_and_does_not_wait() {
        let (older, younger) = (FakeProvider::new("cloud"), FakeProvider::new("cloud"));
        older.stop();
        let region = |name: &str, fake: &FakeProvider, prefixes: &[&str]| ProviderEntry {
            provider_id_prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
            ..pinned(fake, name, &[])
        };
        let all = vec![region("a", &older, &[]), region("b", &younger, &["cloud://east/"])];
        let providers = Providers::new(all.clone()).unwrap();
        let claims = claims(providers.entries().iter().enumerate(), &[], |_| true);
        assert_eq!((claims[0].settled, claims[1].settled, claims[1].disputable), (false, true, false));
        older.start();
        assert_eq!(schemes(&providers), [vec!["cloud".to_owned()], vec![]]);
        assert_eq!((taken(&providers, 1), providers.entries()[1].ignored_schemes()), (None, None));
        let third = region("c", &younger, &["cloud://west/", "cloud://east/"]);
        let providers = Providers::new([all, vec![third]].concat()).unwrap();
        let prefixes: Vec<_> = providers.claims().into_iter().map(|claim| claim.prefixes).collect();
        assert_eq!(prefixes, [vec![], vec!["cloud://east/".to_owned()], vec!["cloud://west/".to_owned()]]);
        let finding = taken(&providers, 2).unwrap();
        assert!(finding.contains("the older provider b has the provider-ID prefix \"cloud://east/\""), "{finding}");
    }

    #[test]
    fn schemes_that_a_component_declares_beyond_its_pins_are_ignored_and_reported() {
        let fake = FakeProvider::new("more");
        let providers = Providers::new(vec![pinned(&fake, "a", &["mine"])]).unwrap();
        assert_eq!(schemes(&providers), [vec!["mine".to_owned()]]);
        let finding = providers.entries()[0].ignored_schemes().unwrap();
        assert!(finding.contains("spec.providerIdSchemes does not list") && finding.contains("\"more\""), "{finding}");
    }

    #[test]
    fn an_interface_that_the_spec_lists_and_the_component_lacks_is_reported() {
        let fake = FakeProvider::new("cloud").without_routes();
        let of = |interfaces: &[Interface]| ProviderEntry {
            provider: Arc::new(fake.clone()),
            interfaces: interfaces.iter().copied().collect(),
            ..entry("a", true)
        };
        assert_eq!(of(&[]).missing_interfaces(), None);
        assert_eq!(of(&[Interface::Instances]).missing_interfaces(), None);
        let finding = of(&[Interface::Instances, Interface::Routes]).missing_interfaces().unwrap();
        assert!(finding.contains("spec.interfaces lists: routes. Remove"), "{finding}");
        fake.stop();
        assert_eq!(of(&[Interface::Routes]).missing_interfaces(), None, "unknown without a release");
    }

    #[test]
    fn a_provider_whose_load_balancers_are_left_out_owns_no_service() {
        for (interfaces, owner) in [(&[][..], Owner::Provider(0)), (&[Interface::Instances][..], Owner::Unowned)] {
            let one = ProviderEntry {
                interfaces: interfaces.iter().copied().collect(),
                load_balancer_classes: vec!["x/lb".to_owned()],
                ..entry("a", true)
            };
            let claims = Providers::new(vec![one]).unwrap().claims();
            for class in [None, Some("x/lb")] {
                assert_eq!(service_owner(&claims, class), owner, "{interfaces:?}");
            }
            assert_eq!(node_owner(&claims, &Node::default(), None), Owner::Provider(0));
        }
    }
}
