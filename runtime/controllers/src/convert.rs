//! Converts Kubernetes nodes to the types of the provider contract and back. Pure.

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{AddressKind, Node, NodeAddress, ObjectReference, StringMap, SystemUuid};

use crate::names;

/// The fields of a node that providers read.
#[must_use]
pub fn node(object: &core::Node) -> Node {
    let spec = object.spec.as_ref();
    let pod_cidrs = spec.and_then(|spec| spec.pod_cidrs.clone());
    Node {
        name: object.metadata.name.clone().unwrap_or_default(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        provider_id: provider_id(object).map(str::to_owned),
        addresses: addresses(object),
        labels: object.metadata.labels.as_ref().map(StringMap::from).unwrap_or_default(),
        annotations: object.metadata.annotations.as_ref().map(StringMap::from).unwrap_or_default(),
        pod_cidrs: pod_cidrs.or_else(|| Some(vec![spec?.pod_cidr.clone()?])).unwrap_or_default(),
        ready: is_ready(object),
        system_uuid: system_uuid(object).map(SystemUuid::from),
    }
}

/// `status.nodeInfo.systemUUID`; none if it is empty.
fn system_uuid(object: &core::Node) -> Option<&str> {
    let info = object.status.as_ref()?.node_info.as_ref()?;
    Some(info.system_uuid.as_str()).filter(|uuid| !uuid.is_empty())
}

/// `spec.providerID`; none if it is empty.
pub(crate) fn provider_id(object: &core::Node) -> Option<&str> {
    object.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}

/// `status.addresses`, in order.
pub(crate) fn addresses(object: &core::Node) -> Vec<NodeAddress> {
    let addresses = object.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    addresses.iter().map(|a| NodeAddress { kind: address_kind(&a.type_), address: a.address.clone() }).collect()
}

/// Addresses as `status.addresses` spells them.
pub(crate) fn to_core_addresses(addresses: &[NodeAddress]) -> Vec<core::NodeAddress> {
    let address = |a: &NodeAddress| core::NodeAddress { type_: a.kind.as_str().to_owned(), address: a.address.clone() };
    addresses.iter().map(address).collect()
}

/// Whether the condition `Ready` is True; an absent or Unknown condition counts as not ready.
pub(crate) fn is_ready(object: &core::Node) -> bool {
    let conditions = object.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The node's taints.
pub(crate) fn taints(object: &core::Node) -> &[core::Taint] {
    object.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether the node has the taint for uninitialized nodes. As upstream, value and effect are
/// ignored.
pub(crate) fn is_uninitialized(object: &core::Node) -> bool {
    taints(object).iter().any(|taint| taint.key == names::UNINITIALIZED_TAINT)
}

/// Whether the node has the shutdown taint. As upstream, key and effect are compared.
pub(crate) fn is_shutdown_tainted(object: &core::Node) -> bool {
    crate::taints::exists(taints(object), &shutdown_taint())
}

/// The taint of a node whose machine is off; without a value, as upstream.
pub(crate) fn shutdown_taint() -> core::Taint {
    let (key, effect) = (names::SHUTDOWN_TAINT.to_owned(), names::SHUTDOWN_TAINT_EFFECT.to_owned());
    core::Taint { key, effect, value: None, time_added: None }
}

/// The node as the subject of calls and Events.
pub(crate) fn node_reference(node: &Node) -> ObjectReference {
    ObjectReference { kind: "Node", namespace: String::new(), name: node.name.clone(), uid: node.uid.clone() }
}

/// The Service as the subject of calls and Events.
pub(crate) fn service_reference(object: &core::Service) -> ObjectReference {
    ObjectReference {
        kind: "Service",
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
    }
}

fn address_kind(name: &str) -> AddressKind {
    match name {
        "Hostname" => AddressKind::Hostname,
        "InternalIP" => AddressKind::InternalIp,
        "ExternalIP" => AddressKind::ExternalIp,
        "InternalDNS" => AddressKind::InternalDns,
        "ExternalDNS" => AddressKind::ExternalDns,
        other => AddressKind::Other(other.to_owned()),
    }
}

/// For people: `namespace/name`, or the name alone.
pub(crate) fn shown(object: &ObjectReference) -> String {
    match object.namespace.as_str() {
        "" => object.name.clone(),
        namespace => format!("{namespace}/{}", object.name),
    }
}
