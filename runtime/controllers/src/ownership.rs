//! Which provider owns a node or a Service. Pure: the result depends on claims and fields only.
//!
//! Ownership is decided first: the controllers never write an object without an owner or with two
//! claimants, and never ask a provider about it.
//!
//! # A node without provider ID
//! Nothing in the node's spec names its cloud. The provider that owns such a node when it is
//! initialised holds it from then on, also after a restart of the manager: the node controller
//! writes the provider's name into [`names::NODE_PROVIDER_ANNOTATION`]. Claims decide only about a
//! node that no provider holds, so neither an added provider nor an edited selector takes a node
//! from another provider.

use std::collections::BTreeMap;

use skysail_provider::{Node, ProviderId, StringMap};

use crate::names;

/// Identifies a lane within a manager. IDs are never reused, also not by the lane of a provider
/// that replaces another.
pub(crate) type LaneId = usize;

/// The claims of one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The provider.
    pub(crate) lane: LaneId,
    /// The name that the operator gave the provider.
    pub(crate) name: String,
    /// Schemes of `spec.providerID`, without `://`; none before they are settled.
    pub(crate) schemes: Vec<String>,
    /// Prefixes of `spec.providerID`, always of the operator.
    pub(crate) prefixes: Vec<String>,
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
    /// Whether the provider's load balancers are in use; otherwise it owns no Service.
    pub(crate) serves_services: bool,
}

impl Claim {
    pub(crate) fn schemes(&self) -> &[String] {
        &self.schemes
    }

    pub(crate) fn prefixes(&self) -> &[String] {
        &self.prefixes
    }

    pub(crate) fn classes(&self) -> &[String] {
        &self.load_balancer_classes
    }

    fn selects(&self, labels: &StringMap) -> bool {
        !self.node_selector.is_empty() && self.node_selector.iter().all(|(k, v)| labels.get(k) == Some(v.as_str()))
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
    /// The node's provider ID has no scheme and no claimed prefix.
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

/// The owner of a node: by its provider ID. Without a provider ID the provider that holds the node,
/// then by selector, then the default provider.
///
/// `former` is the owner of the initialised node so far. It counts until the annotation is written.
pub(crate) fn node_owner(claims: &[Claim], node: &Node, former: Option<LaneId>) -> Owner {
    if let Some(id) = provider_id(node) {
        return id_owner(claims, id);
    }
    if let Some(holder) = holder(claims, node, former) {
        return Owner::Provider(holder.lane);
    }
    match only(claims, |claim| claim.selects(&node.labels)) {
        Owner::Unowned => only(claims, |claim| claim.default),
        owner => owner,
    }
}

/// A name of a provider that does not exist counts as missing.
fn holder<'a>(claims: &'a [Claim], node: &Node, former: Option<LaneId>) -> Option<&'a Claim> {
    let name = node.annotations.get(names::NODE_PROVIDER_ANNOTATION);
    let named = claims.iter().find(|claim| name == Some(claim.name.as_str()));
    named.or_else(|| claims.iter().find(|claim| former == Some(claim.lane)))
}

/// Whether the annotation of a node without provider ID does not name its owner yet.
pub(crate) fn lacks_holder(claims: &[Claim], node: &Node, owner: Owner) -> bool {
    let owner = claims.iter().find(|claim| owner == Owner::Provider(claim.lane));
    let name = node.annotations.get(names::NODE_PROVIDER_ANNOTATION);
    provider_id(node).is_none() && owner.is_some_and(|owner| name != Some(owner.name.as_str()))
}

/// The providers whose selectors select this node without provider ID, which another provider
/// holds.
pub(crate) fn also_selected_by<'a>(
    claims: &'a [Claim],
    node: &'a Node,
    owner: Owner,
) -> impl Iterator<Item = LaneId> + 'a {
    let holder = owner.provider().filter(|_| provider_id(node).is_none());
    let others = claims.iter().filter(move |claim| holder.is_some_and(|holder| holder != claim.lane));
    others.filter(|claim| claim.selects(&node.labels)).map(|claim| claim.lane)
}

fn provider_id(node: &Node) -> Option<&str> {
    node.provider_id.as_deref().filter(|id| !id.is_empty())
}

/// The owner of a provider ID: by its longest claimed prefix, else by its scheme.
pub(crate) fn id_owner(claims: &[Claim], id: &str) -> Owner {
    let longest = |claim: &Claim| claim.prefixes.iter().filter(|prefix| id.starts_with(*prefix)).map(String::len).max();
    if let Some(length) = claims.iter().filter_map(longest).max() {
        return only(claims, |claim| longest(claim) == Some(length));
    }
    match id.parse::<ProviderId>() {
        Ok(id) => only(claims, |claim| claim.schemes.iter().any(|scheme| scheme == id.scheme())),
        Err(_) => Owner::Malformed,
    }
}

/// The owner of a Service of type LoadBalancer: by its class; without a class the default provider.
pub(crate) fn service_owner(claims: &[Claim], class: Option<&str>) -> Owner {
    match class {
        Some(class) => {
            only(claims, |claim| claim.serves_services && claim.load_balancer_classes.iter().any(|c| c == class))
        }
        None => only(claims, |claim| claim.serves_services && claim.default),
    }
}

/// The provider that is asked about a volume: by the volume handle, such as
/// `aws://us-east-1a/vol-1`, as by a provider ID; without a claim the default provider.
pub(crate) fn volume_owner(claims: &[Claim], handle: &str) -> Owner {
    match id_owner(claims, handle) {
        Owner::Unowned | Owner::Malformed => only(claims, |claim| claim.default),
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
    use skysail_provider::Node;

    use super::{Claim, Owner, also_selected_by, lacks_holder, node_owner, service_owner, volume_owner};
    use crate::names::NODE_PROVIDER_ANNOTATION;

    fn claims() -> Vec<Claim> {
        let claim = |lane, scheme: &str, pool: Option<&str>, class: &str, default| Claim {
            lane,
            name: format!("p{lane}"),
            schemes: vec![scheme.to_owned()],
            prefixes: Vec::new(),
            settled: true,
            disputable: false,
            node_selector: pool.map(|pool| ("pool".to_owned(), pool.to_owned())).into_iter().collect(),
            load_balancer_classes: vec![class.to_owned()],
            default,
            serves_services: true,
        };
        vec![
            claim(0, "a", None, "a.example/lb", true),
            claim(1, "b", Some("b"), "b.example/lb", false),
            claim(2, "c", Some("b"), "shared.example/lb", false),
            claim(3, "a", Some("d"), "shared.example/lb", false),
        ]
    }

    fn node(provider_id: Option<&str>, pool: Option<&str>, named: Option<&str>) -> Node {
        Node {
            provider_id: provider_id.map(str::to_owned),
            labels: pool.map(|pool| ("pool", pool)).into_iter().collect(),
            annotations: named.map(|name| (NODE_PROVIDER_ANNOTATION, name)).into_iter().collect(),
            ..Node::default()
        }
    }

    #[track_caller]
    fn check_node(provider_id: Option<&str>, pool: Option<&str>, owner: Owner) {
        assert_eq!(node_owner(&claims(), &node(provider_id, pool, None), None), owner);
    }

    #[test]
    fn a_provider_id_decides_before_any_selector() {
        check_node(Some("b://1"), Some("d"), Owner::Provider(1));
        check_node(Some("other://1"), Some("d"), Owner::Unowned);
        check_node(Some("a://1"), None, Owner::Contested(0, 3));
        check_node(Some("i-123"), Some("d"), Owner::Malformed);
    }

    /// Two regions of one cloud, and IDs without a scheme.
    #[test]
    fn the_longest_prefix_of_a_provider_id_wins_over_its_scheme() {
        let claim = |lane, prefixes: &[&str]| Claim {
            lane,
            prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
            ..Claim::default()
        };
        let all = vec![
            Claim { schemes: vec!["openstack".to_owned()], default: true, ..claim(0, &[]) },
            claim(1, &["openstack://east/", "cn-hangzhou."]),
            claim(2, &["openstack://east/special/", "openstack://we"]),
        ];
        for (id, owner) in [
            ("openstack://east/1", Owner::Provider(1)),
            ("openstack://east/special/1", Owner::Provider(2)),
            ("openstack://west/1", Owner::Provider(2)),
            ("openstack:///1", Owner::Provider(0)),
            ("openstack://east", Owner::Provider(0)),
            ("cn-hangzhou.i-abc", Owner::Provider(1)),
            ("cn-shanghai.i-abc", Owner::Malformed),
            ("other://1", Owner::Unowned),
        ] {
            assert_eq!(node_owner(&all, &node(Some(id), None, None), None), owner, "{id}");
        }
        assert_eq!(volume_owner(&all, "openstack://east/vol-1"), Owner::Provider(1));
        assert_eq!(volume_owner(&all, "cn-shanghai.vol-1"), Owner::Provider(0));
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
        assert_eq!(node_owner(&claims()[1..], &Node::default(), None), Owner::Unowned);
    }

    #[test]
    fn the_provider_that_holds_a_node_without_provider_id_comes_before_every_selector() {
        let owner = |node: &Node, former| node_owner(&claims(), node, former);
        let named = node(None, Some("d"), Some("p1"));
        assert_eq!(owner(&named, None), Owner::Provider(1));
        assert_eq!(owner(&named, Some(2)), Owner::Provider(1), "the annotation comes before the memory");
        assert_eq!(owner(&node(None, Some("b"), None), Some(2)), Owner::Provider(2), "contested without a holder");
        for gone in [node(None, Some("d"), Some("gone")), node(None, Some("d"), None)] {
            assert_eq!(owner(&gone, Some(9)), Owner::Provider(3), "the holder is removed");
        }
        assert_eq!(owner(&node(Some("b://1"), None, Some("p0")), Some(0)), Owner::Provider(1), "the scheme decides");
    }

    #[test]
    fn the_annotation_is_lacking_until_it_names_the_owner() {
        let lacks = |node: &Node| lacks_holder(&claims(), node, node_owner(&claims(), node, None));
        assert!(lacks(&node(None, Some("d"), None)) && lacks(&node(None, None, Some("gone"))));
        assert!(!lacks(&node(None, Some("d"), Some("p3"))) && !lacks(&node(Some("b://1"), None, None)));
        assert!(!lacks(&node(None, Some("b"), None)), "a contested node has no owner");
    }

    #[test]
    fn each_provider_whose_selector_selects_a_held_node_is_named() {
        let named =
            |node: &Node| also_selected_by(&claims(), node, node_owner(&claims(), node, None)).collect::<Vec<_>>();
        assert_eq!(named(&node(None, Some("b"), Some("p0"))), [1, 2]);
        assert_eq!(named(&node(None, Some("b"), Some("p1"))), [2]);
        assert!(named(&node(None, Some("d"), None)).is_empty() && named(&node(None, None, Some("p1"))).is_empty());
        assert!(named(&node(Some("b://1"), Some("d"), None)).is_empty());
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
