//! The storage form of a node: the provider's [`Node`], and a [`Rest`] that only the controllers
//! read.
//!
//! The API's own type takes some 1.5 KiB before the first string, and would store labels,
//! annotations and addresses a second time.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node as Object, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use skysail_provider::{Node, StringMap, SystemUuid};

use crate::convert;

/// The fields of a trimmed object that [`Node`] does not have.
#[derive(Debug)]
pub(super) struct Rest {
    resource_version: Option<String>,
    created: Option<Time>,
    deleted: Option<Time>,
    taints: Box<[Taint]>,
    /// Type, status, reason.
    conditions: Box<[(String, String, Option<String>)]>,
}

impl Rest {
    pub(super) fn of(object: &Object) -> Self {
        let ObjectMeta { resource_version, creation_timestamp, deletion_timestamp, .. } = &object.metadata;
        let conditions = object.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        Self {
            resource_version: resource_version.clone(),
            created: creation_timestamp.clone(),
            deleted: deletion_timestamp.clone(),
            taints: convert::taints(object).into(),
            conditions: conditions.iter().map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone())).collect(),
        }
    }
}

/// Rebuilds the trimmed object.
pub(super) fn object(node: &Node, rest: &Rest) -> Object {
    let map = |map: &StringMap| Some(BTreeMap::from(map)).filter(|map| !map.is_empty());
    let condition = |(type_, status, reason): &(String, String, Option<String>)| NodeCondition {
        type_: type_.clone(),
        status: status.clone(),
        reason: reason.clone(),
        ..NodeCondition::default()
    };
    let info = |uuid: &SystemUuid| NodeSystemInfo { system_uuid: uuid.to_string(), ..NodeSystemInfo::default() };
    Object {
        metadata: ObjectMeta {
            name: Some(node.name.clone()),
            uid: Some(node.uid.clone()),
            resource_version: rest.resource_version.clone(),
            creation_timestamp: rest.created.clone(),
            deletion_timestamp: rest.deleted.clone(),
            labels: map(&node.labels),
            annotations: map(&node.annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            pod_cidr: node.pod_cidrs.first().cloned(),
            pod_cidrs: some(&node.pod_cidrs),
            provider_id: node.provider_id.clone(),
            taints: some(&rest.taints),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: some(&convert::to_core_addresses(&node.addresses)),
            conditions: some(&rest.conditions.iter().map(condition).collect::<Vec<_>>()),
            node_info: node.system_uuid.as_ref().map(info),
            ..NodeStatus::default()
        }),
    }
}

fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    Some(list.to_vec()).filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node as Object;
    use serde_json::json;

    use super::{Rest, object};
    use crate::{convert, trim};

    #[test]
    fn the_object_comes_back_as_it_was_trimmed() {
        let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": "Kubelet", "message": "m" });
        let mut whole: Object = serde_json::from_value(json!({
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z", "labels": { "l": "1", "m": "" }, "annotations": { "a": "1" },
            },
            "spec": {
                "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"], "providerID": "one://a",
                "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }],
            },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "Weird", "address": "x" }],
                "conditions": [condition("MemoryPressure"), condition("Ready"), condition("NetworkUnavailable")],
                "nodeInfo": {
                    "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "x://1", "kernelVersion": "6.1",
                    "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": "m", "operatingSystem": "linux",
                    "osImage": "x", "systemUUID": "00a1b2c3-0405-4607-8899-0a0b0c0d0e0f",
                },
            },
        }))
        .unwrap();
        trim::trim_node(&mut whole);
        assert_eq!(object(&convert::node(&whole), &Rest::of(&whole)), whole);
    }
}
