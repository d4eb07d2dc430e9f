//! The kept fields, one by one: a field that no step reads fails these tests.

use expect_test::expect;
use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::{Value, json};

use super::{trim_node, trim_service};

fn metadata() -> Value {
    json!({
        "name": "a", "namespace": "default", "generateName": "a-", "uid": "u", "resourceVersion": "7", "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
        "deletionGracePeriodSeconds": 30, "labels": { "l": "1" }, "annotations": { "a": "1" },
        "finalizers": ["x/y"], "selfLink": "/api",
        "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "q" }],
        "managedFields": [{ "manager": "kubelet", "operation": "Update", "fieldsV1": { "f:status": {} } }],
    })
}

#[test]
fn only_fields_of_a_service_that_a_step_reads_are_kept() {
    let mut service: Service = serde_json::from_value(json!({
        "metadata": metadata(),
        "spec": {
            "type": "LoadBalancer", "allocateLoadBalancerNodePorts": true, "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"], "externalIPs": ["192.0.2.1"], "externalName": "x.example",
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001, "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "loadBalancerClass": "x/y",
            "loadBalancerIP": "192.0.2.2", "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "ports": [{ "port": 80, "name": "http", "protocol": "TCP", "nodePort": 30000, "targetPort": "http", "appProtocol": "http" }],
            "publishNotReadyAddresses": true, "selector": { "app": "a" }, "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } }, "trafficDistribution": "PreferClose",
        },
        "status": {
            "conditions": [{ "type": "x", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            "loadBalancer": { "ingress": [{ "ip": "192.0.2.3" }] },
        },
    }))
    .unwrap();
    trim_service(&mut service);
    expect![[r#"{"apiVersion":"v1","kind":"Service","metadata":{"annotations":{"a":"1"},"deletionTimestamp":"2026-01-02T00:00:00Z","finalizers":["x/y"],"labels":{"l":"1"},"name":"a","namespace":"default","resourceVersion":"7","uid":"u"},"spec":{"allocateLoadBalancerNodePorts":true,"clusterIPs":["10.0.0.1"],"externalIPs":["192.0.2.1"],"externalTrafficPolicy":"Local","healthCheckNodePort":30001,"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","loadBalancerClass":"x/y","loadBalancerIP":"192.0.2.2","loadBalancerSourceRanges":["10.0.0.0/8"],"ports":[{"appProtocol":"http","name":"http","nodePort":30000,"port":80,"protocol":"TCP","targetPort":"http"}],"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}},"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.3"}]}}}"#]]
        .assert_eq(&serde_json::to_string(&service).unwrap());
}

#[test]
fn a_service_without_our_finalizer_keeps_its_identity_and_finalizers_and_one_with_it_its_spec() {
    let spec = json!({ "type": "ClusterIP", "ports": [{ "port": 80 }], "externalIPs": ["192.0.2.1"] });
    let status = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.3" }] } });
    let mut service: Service =
        serde_json::from_value(json!({ "metadata": metadata(), "spec": spec, "status": status })).unwrap();
    let mut left_behind = service.clone();
    trim_service(&mut service);
    expect![[r#"{"apiVersion":"v1","kind":"Service","metadata":{"finalizers":["x/y"],"name":"a","namespace":"default","resourceVersion":"7","uid":"u"}}"#]]
        .assert_eq(&serde_json::to_string(&service).unwrap());
    left_behind.metadata.finalizers = Some(vec!["service.kubernetes.io/load-balancer-cleanup".to_owned()]);
    trim_service(&mut left_behind);
    assert_eq!(serde_json::to_value(&left_behind).unwrap()["spec"], spec, "a provider needs the spec for the deletion");
}

/// A node as a kubelet reports it, with 50 images, which are most of its size.
fn whole_node() -> Node {
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "Kubelet", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let images: Vec<Value> = (0..50)
        .map(|n| json!({ "names": [format!("registry.example/image-{n}@sha256:{n:064}")], "sizeBytes": 1 }))
        .collect();
    serde_json::from_value(json!({
        "metadata": metadata(),
        "spec": {
            "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": "one://a", "unschedulable": true,
            "externalID": "e", "taints": [{ "key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }],
        },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }], "allocatable": { "cpu": "1" },
            "capacity": { "cpu": "1" }, "phase": "Running", "images": images, "volumesInUse": ["v"],
            "conditions": [condition("MemoryPressure"), condition("Ready"), condition("NetworkUnavailable")],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } }, "features": {}, "declaredFeatures": ["f"],
            "nodeInfo": {
                "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "c", "kernelVersion": "6", "kubeProxyVersion": "",
                "kubeletVersion": "v1", "machineID": "m", "operatingSystem": "linux", "osImage": "o", "systemUUID": "s",
            },
            "runtimeHandlers": [{ "name": "runc" }], "volumesAttached": [{ "name": "v", "devicePath": "/dev/v" }],
        },
    }))
    .unwrap()
}

#[test]
fn only_fields_of_a_node_that_a_step_reads_are_kept() {
    let mut node = whole_node();
    let whole = serde_json::to_string(&node).unwrap().len();
    trim_node(&mut node);
    let kept = serde_json::to_string(&node).unwrap();
    expect![[r#"{"apiVersion":"v1","kind":"Node","metadata":{"annotations":{"a":"1"},"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-02T00:00:00Z","labels":{"l":"1"},"name":"a","namespace":"default","resourceVersion":"7","uid":"u"},"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"],"providerID":"one://a","taints":[{"effect":"NoSchedule","key":"k","timeAdded":"2026-01-01T00:00:00Z"}]},"status":{"addresses":[{"address":"10.0.0.1","type":"InternalIP"}],"conditions":[{"reason":"Kubelet","status":"True","type":"Ready"},{"reason":"Kubelet","status":"True","type":"NetworkUnavailable"}],"nodeInfo":{"architecture":"","bootID":"","containerRuntimeVersion":"","kernelVersion":"","kubeProxyVersion":"","kubeletVersion":"","machineID":"","operatingSystem":"","osImage":"","systemUUID":"s"}}}"#]]
        .assert_eq(&kept);
    assert!(kept.len() * 5 < whole, "{} of {whole} bytes are kept", kept.len());
}
