//! Which provider owns a node or a Service. Pure: it decides from claims and fields, and touches
//! nothing.
//!
//! Ownership comes before everything else: an object that nobody owns, or that two claim, is never
//! written and never asked about.

use std::collections::BTreeMap;

use skysail_provider::{ProviderId, StringMap};

/// Names a lane within a manager. No two lanes have the same, also where one takes the place of
/// another.
pub(crate) type LaneId = usize;

/// What one provider claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Who claims it.
    pub(crate) lane: LaneId,
    /// Schemes of `spec.providerID`, without `://`.
    pub(crate) schemes: Vec<String>,
    /// Labels that an uninitialised node must all carry; empty claims none.
    pub(crate) node_selector: BTreeMap<String, String>,
    /// Values of `spec.loadBalancerClass`.
    pub(crate) load_balancer_classes: Vec<String>,
    /// Takes what names nobody.
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

/// The verdict: a lane, or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Exactly one claims it.
    Provider(LaneId),
    /// Nobody claims it.
    Nobody,
    /// These two claim it (there may be more), so nobody acts.
    Contested(LaneId, LaneId),
    /// The node's provider ID has no scheme.
    Malformed,
}

impl Owner {
    /// The provider that may act.
    pub(crate) const fn provider(self) -> Option<LaneId> {
        match self {
            Self::Provider(lane) => Some(lane),
            Self::Nobody | Self::Contested(..) | Self::Malformed => None,
        }
    }
}

/// Who owns a node: by the scheme of its provider ID; without one by selector; else the default.
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
                Owner::Nobody => only(claims, |claim| claim.default),
                owner => owner,
            }
        }
    }
}

/// Who owns a Service of type LoadBalancer: by its class; without one the default.
pub(crate) fn service_owner(claims: &[Claim], class: Option<&str>) -> Owner {
    match class {
        Some(class) => only(claims, |claim| claim.load_balancer_classes.iter().any(|c| c == class)),
        None => only(claims, |claim| claim.default),
    }
}

/// Who is asked about a volume: by the scheme of the cloud's name for it, as
/// `aws://us-east-1a/vol-1`; where nobody has it, the default.
pub(crate) fn volume_owner(claims: &[Claim], handle: &str) -> Owner {
    let scheme = handle.parse::<ProviderId>().ok();
    let claimed = |claim: &Claim| scheme.as_ref().is_some_and(|id| claim.schemes.iter().any(|s| s == id.scheme()));
    match only(claims, claimed) {
        Owner::Nobody => only(claims, |claim| claim.default),
        owner => owner,
    }
}

fn only(claims: &[Claim], claimed: impl Fn(&Claim) -> bool) -> Owner {
    let mut found = claims.iter().filter(|claim| claimed(claim)).map(|claim| claim.lane);
    match (found.next(), found.next()) {
        (None, _) => Owner::Nobody,
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
        check_node(Some("other://1"), Some("d"), Owner::Nobody);
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
    fn without_a_default_a_node_that_nobody_selects_is_nobodys() {
        assert_eq!(node_owner(&claims()[1..], None, &StringMap::default()), Owner::Nobody);
    }

    #[test]
    fn a_volume_goes_to_the_scheme_of_its_handle_and_else_to_the_default() {
        let owner = |handle| volume_owner(&claims(), handle);
        assert_eq!(owner("b://zone/vol-1"), Owner::Provider(1));
        assert_eq!(owner("a://zone/vol-1"), Owner::Contested(0, 3));
        assert_eq!(owner("vol-1"), Owner::Provider(0));
        assert_eq!(owner("https://account.example/disk.vhd"), Owner::Provider(0), "not every URL is a provider's");
        assert_eq!(volume_owner(&claims()[1..], "vol-1"), Owner::Nobody);
    }

    #[test]
    fn a_class_decides_and_no_class_means_the_default() {
        assert_eq!(service_owner(&claims(), Some("b.example/lb")), Owner::Provider(1));
        assert_eq!(service_owner(&claims(), None), Owner::Provider(0));
        assert_eq!(service_owner(&claims(), Some("metallb")), Owner::Nobody);
        assert_eq!(service_owner(&claims(), Some("shared.example/lb")), Owner::Contested(2, 3));
        assert_eq!(service_owner(&claims()[1..], None), Owner::Nobody);
    }
}
