//! Trims cached objects (pure) to the fields that a step reads.
//!
//! Most of the data of a watch is not used: images, volumes and heartbeats of a kubelet, and
//! `managedFields`. The patterns name every field of the API's types, so that a new field does not
//! compile until its author decides. A step that needs one more field replaces its `_`.
//!
//! A trimmed list must not be written back, except the lists that are kept complete (taints,
//! addresses, finalizers).

use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Service, ServiceSpec, ServiceStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::service_spec::is_whole;

/// The conditions that a step reads.
const CONDITIONS: [&str; 2] = ["Ready", "NetworkUnavailable"];

/// Trims a node before it is cached.
pub(crate) fn trim_node(node: &mut Node) {
    let Node { metadata, spec, status } = std::mem::take(node);
    *node = Node {
        metadata: ObjectMeta { finalizers: None, ..kept_metadata(metadata) },
        spec: spec.map(kept_node_spec),
        status: status.map(kept_node_status),
    };
}

/// Trims a Service before it is cached. Of a Service that is neither of type LoadBalancer nor has
/// our finalizer, only its identity, its finalizers and its cluster IPs are kept.
pub(crate) fn trim_service(service: &mut Service) {
    let concerns_us = is_whole(service);
    let Service { metadata, spec, status } = std::mem::take(service);
    if !concerns_us {
        let ObjectMeta { finalizers, name, namespace, resource_version, uid, .. } = metadata;
        service.metadata = ObjectMeta { finalizers, name, namespace, resource_version, uid, ..ObjectMeta::default() };
        // No provider may assign these addresses.
        let cluster_ips = spec.and_then(|spec| spec.cluster_ips);
        service.spec = cluster_ips.map(|ips| ServiceSpec { cluster_ips: Some(ips), ..ServiceSpec::default() });
        return;
    }
    *service = Service {
        metadata: ObjectMeta { creation_timestamp: None, ..kept_metadata(metadata) },
        spec: spec.map(kept_service_spec),
        status: status
            .map(|ServiceStatus { conditions: _, load_balancer }| ServiceStatus { conditions: None, load_balancer }),
    };
}

fn kept_metadata(metadata: ObjectMeta) -> ObjectMeta {
    let ObjectMeta {
        annotations,
        creation_timestamp,
        deletion_grace_period_seconds: _,
        deletion_timestamp,
        finalizers,
        generate_name: _,
        generation: _,
        labels,
        managed_fields: _,
        name,
        namespace,
        owner_references: _,
        resource_version,
        self_link: _,
        uid,
    } = metadata;
    ObjectMeta {
        annotations,
        creation_timestamp,
        deletion_timestamp,
        finalizers,
        labels,
        name,
        namespace,
        resource_version,
        uid,
        ..ObjectMeta::default()
    }
}

fn kept_node_spec(spec: NodeSpec) -> NodeSpec {
    let NodeSpec { config_source: _, external_id: _, pod_cidr, pod_cidrs, provider_id, taints, unschedulable: _ } =
        spec;
    NodeSpec { pod_cidr, pod_cidrs, provider_id, taints, ..NodeSpec::default() }
}

fn kept_node_status(status: NodeStatus) -> NodeStatus {
    let NodeStatus {
        addresses,
        allocatable: _,
        capacity: _,
        conditions,
        config: _,
        daemon_endpoints: _,
        declared_features: _,
        features: _,
        images: _,
        node_info,
        phase: _,
        runtime_handlers: _,
        volumes_attached: _,
        volumes_in_use: _,
    } = status;
    let conditions = conditions.map(|conditions| {
        conditions.into_iter().filter(|c| CONDITIONS.contains(&c.type_.as_str())).map(kept_condition).collect()
    });
    let node_info = node_info.and_then(kept_node_info);
    NodeStatus { addresses, conditions, node_info, ..NodeStatus::default() }
}

fn kept_node_info(info: NodeSystemInfo) -> Option<NodeSystemInfo> {
    let NodeSystemInfo {
        architecture: _,
        boot_id: _,
        container_runtime_version: _,
        kernel_version: _,
        kube_proxy_version: _,
        kubelet_version: _,
        machine_id: _,
        operating_system: _,
        os_image: _,
        swap: _,
        system_uuid,
    } = info;
    (!system_uuid.is_empty()).then(|| NodeSystemInfo { system_uuid, ..NodeSystemInfo::default() })
}

fn kept_condition(condition: NodeCondition) -> NodeCondition {
    let NodeCondition { last_heartbeat_time: _, last_transition_time: _, message: _, reason, status, type_ } =
        condition;
    NodeCondition { reason, status, type_, ..NodeCondition::default() }
}

fn kept_service_spec(spec: ServiceSpec) -> ServiceSpec {
    let ServiceSpec {
        allocate_load_balancer_node_ports,
        cluster_ip: _,
        cluster_ips,
        external_ips,
        external_name: _,
        external_traffic_policy,
        health_check_node_port,
        internal_traffic_policy,
        ip_families,
        ip_family_policy,
        load_balancer_class,
        load_balancer_ip,
        load_balancer_source_ranges,
        ports,
        publish_not_ready_addresses: _,
        selector: _,
        session_affinity,
        session_affinity_config,
        traffic_distribution: _,
        type_,
    } = spec;
    ServiceSpec {
        allocate_load_balancer_node_ports,
        cluster_ips,
        external_ips,
        external_traffic_policy,
        health_check_node_port,
        internal_traffic_policy,
        ip_families,
        ip_family_policy,
        load_balancer_class,
        load_balancer_ip,
        load_balancer_source_ranges,
        ports,
        session_affinity,
        session_affinity_config,
        type_,
        ..ServiceSpec::default()
    }
}

#[cfg(test)]
mod tests;
