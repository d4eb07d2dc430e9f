//! Services: defaults, allocation, rules, and changes of type.

use serde_json::{Value, json};

use crate::env::Env;

fn service(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

pub(crate) async fn a_service_gets_its_defaults(env: &Env) {
    let body = service("s", json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
    let made = env.post(&env.core("services"), &body).await.ok();
    let mut spec = made["spec"].clone();
    let (ip, port) = (spec["clusterIP"].take(), spec["ports"][0]["nodePort"].take());
    assert!(ip.as_str().unwrap().starts_with("10."), "{ip}");
    assert!((30000..=32767).contains(&port.as_i64().unwrap()), "{port}");
    assert_eq!(spec["clusterIPs"].take(), json!([ip]));
    let expected = json!({
        "allocateLoadBalancerNodePorts": true, "clusterIP": null, "clusterIPs": null,
        "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "LoadBalancer",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": null}],
    });
    assert_eq!(spec, expected);
    assert_eq!(made["status"], json!({"loadBalancer": {}}));
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    let made = env.post(&env.core("services"), &service("local", local)).await.ok();
    assert!((30000..=32767).contains(&made["spec"]["healthCheckNodePort"].as_i64().unwrap()));
    let without = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]});
    let made = env.post(&env.core("services"), &service("without", without)).await.ok();
    assert!(made["spec"]["ports"][0]["nodePort"].is_null());
    let sticky = json!({"sessionAffinity": "ClientIP", "clusterIP": "None", "ports": [{"port": 80}]});
    let made = env.post(&env.core("services"), &service("sticky", sticky)).await.ok();
    assert_eq!(made["spec"]["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
    assert_eq!(made["spec"]["clusterIPs"], json!(["None"]));
}

/// The controllers write finalizers and who holds a load balancer there, so that they need no right
/// to change Services.
pub(crate) async fn metadata_is_written_through_the_status_and_the_spec_is_not(env: &Env) {
    env.post(&env.core("services"), &service("s", json!({"ports": [{"port": 80}]}))).await.ok();
    let path = env.core("services/s/status");
    let metadata = json!({"finalizers": ["example.test/a"], "annotations": {"example.test/holder": "one"}});
    let patch = json!({"metadata": metadata, "spec": {"ports": [{"port": 81}]}});
    let shown = env.patch("merge", &path, &patch).await.ok();
    assert_eq!(shown["metadata"]["finalizers"], json!(["example.test/a"]));
    assert_eq!(shown["metadata"]["annotations"], json!({"example.test/holder": "one"}));
    assert_eq!(shown["spec"]["ports"][0]["port"], 80);
    let patch = json!({"metadata": {"finalizers": [], "annotations": {"example.test/holder": null, "example.test/never": null}}});
    let shown = env.patch("merge", &path, &patch).await.ok();
    assert!(shown["metadata"]["finalizers"].is_null() && shown["metadata"]["annotations"].is_null(), "{shown}");
}

pub(crate) async fn a_type_change_frees_what_belonged_to_it(env: &Env) {
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "example.test/lb", "ports": [{"port": 80}]});
    env.post(&env.core("services"), &service("s", spec)).await.ok();
    let path = env.core("services/s");
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    env.patch("merge", &format!("{path}/status"), &status).await.ok();
    let shown = env.patch("merge", &path, &json!({"spec": {"type": "ClusterIP"}})).await.ok();
    for field in ["loadBalancerClass", "allocateLoadBalancerNodePorts", "externalTrafficPolicy"] {
        assert!(shown["spec"][field].is_null(), "{field} in {shown}");
    }
    assert!(shown["spec"]["ports"][0]["nodePort"].is_null());
    assert_eq!(shown["status"], json!({"loadBalancer": {}}));
    let shown = env.patch("merge", &path, &json!({"spec": {"type": "NodePort"}})).await.ok();
    assert!(shown["spec"]["ports"][0]["nodePort"].is_number());
    let external = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let shown = env.patch("merge", &path, &external).await.ok();
    assert!(shown["spec"]["clusterIP"].is_null(), "{shown}");
    let shown = env.patch("merge", &path, &json!({"spec": {"type": "ClusterIP", "externalName": null}})).await.ok();
    assert!(shown["spec"]["clusterIP"].is_string(), "{shown}");
}

pub(crate) async fn service_rules_are_enforced(env: &Env) {
    let services = env.core("services");
    for (spec, message) in [
        (json!({}), "spec.ports: Required value"),
        (
            json!({"ports": [{"port": 0}]}),
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (json!({"ports": [{"port": 1}, {"port": 2, "name": "b"}]}), "spec.ports[0].name: Required value"),
        (
            json!({"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]}),
            "spec.ports[1].name: Duplicate value: \"a\"",
        ),
        (
            json!({"ports": [{"port": 1, "protocol": "ICMP"}]}),
            "Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (json!({"type": "Nonsense", "ports": [{"port": 1}]}), "spec.type: Unsupported value: \"Nonsense\""),
        (
            json!({"ports": [{"port": 1, "nodePort": 30001}]}),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            json!({"loadBalancerClass": "a/b", "ports": [{"port": 1}]}),
            "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 80}]}),
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        (json!({"type": "ExternalName"}), "spec.externalName: Required value"),
    ] {
        env.post(&services, &service("s", spec)).await.refused(422, "Invalid", message);
    }
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    env.post(&services, &service("s", spec)).await.ok();
    let path = env.core("services/s");
    for (patch, message) in [
        (
            json!({"clusterIP": "10.96.0.77"}),
            "spec.clusterIPs[0]: Invalid value: [\"10.96.0.77\"]: may not change once set",
        ),
        (
            json!({"loadBalancerClass": "a/b"}),
            "spec.loadBalancerClass: Invalid value: \"a/b\": may not change once set",
        ),
    ] {
        env.patch("merge", &path, &json!({"spec": patch})).await.refused(422, "Invalid", message);
    }
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "not-an-ip"}]}}});
    env.patch("merge", &format!("{path}/status"), &status).await.refused(
        422,
        "Invalid",
        "status.loadBalancer.ingress[0].ip: Invalid value",
    );
}

pub(crate) async fn node_ports_are_unique_and_come_back(env: &Env) {
    let first = service("a", json!({"type": "NodePort", "ports": [{"port": 80}]}));
    let made = env.post(&env.core("services"), &first).await.ok();
    let port = made["spec"]["ports"][0]["nodePort"].clone();
    let same = service("b", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}));
    env.post(&env.core("services"), &same).await.refused(422, "Invalid", "provided port is already allocated");
    let update = json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}});
    let shown = env.patch("merge", &env.core("services/a"), &update).await.ok();
    assert_eq!(shown["spec"]["ports"][0]["nodePort"], port, "an update that leaves it out keeps it");
    env.delete(&env.core("services/a"), &Value::Null).await.ok();
    env.post(&env.core("services"), &same).await.ok();
}
