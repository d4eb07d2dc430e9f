//! Which provider owns a node or a Service. Pure: the result depends on claims and fields only.
//!
//! Ownership is decided first: the controllers never write an object without an owner or with two
//! claimants, and never ask a provider about it.

use std::collections::BTreeMap;

use skysail_provider::{ProviderId, StringMap};

/// Identifies a lane within a manager. IDs are never reused, also not by the lane of a provider
/// that replaces another.
pub(crate) type LaneId = usize;

/// The claims of one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The provider.
    pub(crate) lane: LaneId,
    /// Schemes of `spec.providerID`, without `://`; none before they are settled.
    pub(crate) schemes: Vec<String>,
    /// Whether the schemes are decided. They are not while no release has declared them, and while
    /// an older provider may still declare the same ones.
    pub(crate) settled: bool,
    /// Whether an older provider may still declare the same schemes, however long it has not
    /// served: no node is deleted because of this claim.
    pub(crate) disputable: bool,
    /// Labels that an uninitialised node must all carry; an empty selector claims no node.
    pub(crate) node_selector: BTreeMap<String, String>,
    /// Values of `spec.loadBalancerClass`.
    pub(crate) load_balancer_classes: Vec<String>,
    /// Whether the provider owns objects that name no provider.
    pub(crate) default: bool,
}

impl Claim {
    pub(crate) fn schemes(&self) -> &[String] {
        &self.schemes
    }

    pub(crate) fn classes(&self) -> &[String] {
        &self.load_balancer_classes
    }
}

/// The owner of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Exactly one provider claims the object.
    Provider(LaneId),
    /// No provider claims the object.
    Unowned,
    /// These two providers, and perhaps more, claim the object, so none acts.
    Contested(LaneId, LaneId),
    /// The node's provider ID has no scheme.
    Malformed,
}

impl Owner {
    /// The provider that may act.
    pub(crate) const fn provider(self) -> Option<LaneId> {
        match self {
            Self::Provider(lane) => Some(lane),
            Self::Unowned | Self::Contested(..) | Self::Malformed => None,
        }
    }
}

/// The owner of a node: by the scheme of its provider ID; without a provider ID by selector, then
/// the default provider.
pub(crate) fn node_owner(claims: &[Claim], provider_id: Option<&str>, labels: &StringMap) -> Owner {
    match provider_id.filter(|id| !id.is_empty()) {
        Some(id) => match id.parse::<ProviderId>() {
            Ok(id) => only(claims, |claim| claim.schemes.iter().any(|scheme| scheme == id.scheme())),
            Err(_) => Owner::Malformed,
        },
        None => {
            let selected = |claim: &Claim| {
                !claim.node_selector.is_empty()
                    && claim.node_selector.iter().all(|(k, v)| labels.get(k) == Some(v.as_str()))
            };
            match only(claims, selected) {
                Owner::Unowned => only(claims, |claim| claim.default),
                owner => owner,
            }
        }
    }
}

/// The owner of a Service of type LoadBalancer: by its class; without a class the default provider.
pub(crate) fn service_owner(claims: &[Claim], class: Option<&str>) -> Owner {
    match class {
        Some(class) => only(claims, |claim| claim.load_balancer_classes.iter().any(|c| c == class)),
        None => only(claims, |claim| claim.default),
    }
}

/// The provider that is asked about a volume: by the scheme of the volume handle, such as
/// `aws://us-east-1a/vol-1`; without a claim the default provider.
pub(crate) fn volume_owner(claims: &[Claim], handle: &str) -> Owner {
    let scheme = handle.parse::<ProviderId>().ok();
    let claimed = |claim: &Claim| scheme.as_ref().is_some_and(|id| claim.schemes.iter().any(|s| s == id.scheme()));
    match only(claims, claimed) {
        Owner::Unowned => only(claims, |claim| claim.default),
        owner => owner,
    }
}

fn only(claims: &[Claim], claimed: impl Fn(&Claim) -> bool) -> Owner {
    let mut found = claims.iter().filter(|claim| claimed(claim)).map(|claim| claim.lane);
    match (found.next(), found.next()) {
        (None, _) => Owner::Unowned,
        (Some(lane), None) => Owner::Provider(lane),
        (Some(first), Some(second)) => Owner::Contested(first, second),
    }
}

#[cfg(test)]
mod tests {
    use skysail_provider::StringMap;

    use super::{Claim, Owner, node_owner, service_owner, volume_owner};

    fn claims() -> Vec<Claim> {
        let claim = |lane, scheme: &str, pool: Option<&str>, class: &str, default| Claim {
            lane,
            schemes: vec![scheme.to_owned()],
            settled: true,
            disputable: false,
            node_selector: pool.map(|pool| ("pool".to_owned(), pool.to_owned())).into_iter().collect(),
            load_balancer_classes: vec![class.to_owned()],
            default,
        };
        vec![
            claim(0, "a", None, "a.example/lb", true),
            claim(1, "b", Some("b"), "b.example/lb", false),
            claim(2, "c", Some("b"), "shared.example/lb", false),
            claim(3, "a", Some("d"), "shared.example/lb", false),
        ]
    }

    #[track_caller]
    fn check_node(provider_id: Option<&str>, pool: Option<&str>, owner: Owner) {
        let labels = pool.map(|pool| ("pool", pool)).into_iter().collect();
        assert_eq!(node_owner(&claims(), provider_id, &labels), owner);
    }

    #[test]
    fn a_provider_id_decides_before_any_selector() {
        check_node(Some("b://1"), Some("d"), Owner::Provider(1));
        check_node(Some("other://1"), Some("d"), Owner::Unowned);
        check_node(Some("a://1"), None, Owner::Contested(0, 3));
        check_node(Some("i-123"), Some("d"), Owner::Malformed);
    }

    #[test]
    fn a_node_without_provider_id_goes_to_the_selector_and_then_to_the_default() {
        check_node(None, Some("d"), Owner::Provider(3));
        check_node(Some(""), None, Owner::Provider(0));
        check_node(None, Some("elsewhere"), Owner::Provider(0));
        check_node(None, Some("b"), Owner::Contested(1, 2));
    }

    #[test]
    fn without_a_default_provider_a_node_that_no_selector_matches_has_no_owner() {
        assert_eq!(node_owner(&claims()[1..], None, &StringMap::default()), Owner::Unowned);
    }

    #[test]
    fn a_volume_goes_to_the_scheme_of_its_handle_and_else_to_the_default() {
        let owner = |handle| volume_owner(&claims(), handle);
        assert_eq!(owner("b://zone/vol-1"), Owner::Provider(1));
        assert_eq!(owner("a://zone/vol-1"), Owner::Contested(0, 3));
        assert_eq!(owner("vol-1"), Owner::Provider(0));
        assert_eq!(
            owner("https://account.example/disk.vhd"),
            Owner::Provider(0),
            "a URL without a claimed scheme goes to the default provider"
        );
        assert_eq!(volume_owner(&claims()[1..], "vol-1"), Owner::Unowned);
    }

    #[test]
    fn a_class_decides_and_no_class_means_the_default() {
        assert_eq!(service_owner(&claims(), Some("b.example/lb")), Owner::Provider(1));
        assert_eq!(service_owner(&claims(), None), Owner::Provider(0));
        assert_eq!(service_owner(&claims(), Some("metallb")), Owner::Unowned);
        assert_eq!(service_owner(&claims(), Some("shared.example/lb")), Owner::Contested(2, 3));
        assert_eq!(service_owner(&claims()[1..], None), Owner::Unowned);
    }
}
