//! Rules of Services: ports, types, and the fields that follow the type.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::api::errors::Cause;
use crate::api::object::{has, list, text};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(crate) fn validate(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let service_type = text(new, "/spec/type");
    if !TYPES.contains(&service_type) {
        causes.push(Cause::unsupported("spec.type", &Value::from(service_type), &TYPES));
    }
    ports(new, service_type, &mut causes);
    addresses(new, service_type, &mut causes);
    policies(new, service_type, &mut causes);
    load_balancer(new, old, service_type, &mut causes);
    if let Some(old) = old {
        immutable(new, old, &mut causes);
    }
    causes
}

fn ports(new: &Value, service_type: &str, causes: &mut Vec<Cause>) {
    let ports = list(new, "/spec/ports");
    let headless = text(new, "/spec/clusterIP") == "None";
    if ports.is_empty() && !headless && service_type != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    let (mut names, mut keys, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        let (name, protocol) = (text(port, "/name"), text(port, "/protocol"));
        let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
        if ports.len() > 1 && name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !name.is_empty() && !super::is_label(name, 63) {
            causes.push(Cause::invalid(format!("{at}.name"), &Value::from(name), super::LABEL));
        }
        if !name.is_empty() && !names.insert(name) {
            causes.push(Cause::duplicate(format!("{at}.name"), &Value::from(name)));
        }
        if !(1..=65535).contains(&number) {
            causes.push(Cause::invalid(format!("{at}.port"), &Value::from(number), PORT_RANGE));
        }
        if !PROTOCOLS.contains(&protocol) {
            causes.push(Cause::unsupported(format!("{at}.protocol"), &Value::from(protocol), &PROTOCOLS));
        }
        target_port(port, &at, causes);
        if let Some(node_port) = port.get("nodePort").and_then(Value::as_i64) {
            if !matches!(service_type, "NodePort" | "LoadBalancer") {
                let detail = format!("may not be used when `type` is '{service_type}'");
                causes.push(Cause::forbidden(format!("{at}.nodePort"), &detail));
            }
            if !node_ports.insert((protocol, node_port)) {
                causes.push(Cause::duplicate(format!("{at}.nodePort"), &Value::from(node_port)));
            }
        }
        if !keys.insert((protocol, number)) {
            let value = serde_json::json!({"port": number, "protocol": protocol});
            causes.push(Cause::duplicate(at, &value));
        }
    }
}

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

fn target_port(port: &Value, at: &str, causes: &mut Vec<Cause>) {
    let field = format!("{at}.targetPort");
    match port.get("targetPort") {
        Some(Value::Number(n)) if !n.as_i64().is_some_and(|n| (1..=65535).contains(&n)) => {
            causes.push(Cause::invalid(field, &Value::Number(n.clone()), PORT_RANGE));
        }
        Some(Value::String(name)) if !super::is_label(name, 15) || !name.contains(|c: char| c.is_ascii_lowercase()) => {
            let detail = "must be a port name of at most 15 lower case alphanumeric characters or '-'";
            causes.push(Cause::invalid(field, &Value::from(name.as_str()), detail));
        }
        _ => {}
    }
}

fn addresses(new: &Value, service_type: &str, causes: &mut Vec<Cause>) {
    if service_type == "ExternalName" {
        let name = text(new, "/spec/externalName").trim_end_matches('.');
        if name.is_empty() {
            causes.push(Cause::required("spec.externalName", ""));
        } else if !super::is_subdomain(name) {
            causes.push(Cause::invalid("spec.externalName", &Value::from(name), super::SUBDOMAIN));
        }
        if has(new, "/spec/clusterIP") {
            let detail = "may not be set when `type` is 'ExternalName'";
            causes.push(Cause::forbidden("spec.clusterIPs", detail));
        }
    }
    for (index, ip) in list(new, "/spec/externalIPs").iter().enumerate() {
        if ip.as_str().unwrap_or_default().parse::<IpAddr>().is_err() {
            causes.push(Cause::invalid(format!("spec.externalIPs[{index}]"), ip, IP));
        }
    }
    for (index, ip) in list(new, "/spec/clusterIPs").iter().enumerate() {
        let ip_text = ip.as_str().unwrap_or_default();
        if ip_text != "None" && ip_text.parse::<IpAddr>().is_err() {
            causes.push(Cause::invalid(format!("spec.clusterIPs[{index}]"), ip, IP));
        }
    }
    if service_type == "LoadBalancer" && text(new, "/spec/clusterIP") == "None" {
        let detail = "may not be set to 'None' for LoadBalancer services";
        causes.push(Cause::invalid("spec.clusterIPs[0]", &Value::from("None"), detail));
    }
}

const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

fn policies(new: &Value, service_type: &str, causes: &mut Vec<Cause>) {
    let mut one_of = |path: &str, supported: &[&str]| {
        let value = text(new, path);
        if !value.is_empty() && !supported.contains(&value) {
            let field = path.trim_start_matches('/').replace('/', ".");
            causes.push(Cause::unsupported(field, &Value::from(value), supported));
        }
    };
    one_of("/spec/sessionAffinity", &["ClientIP", "None"]);
    one_of("/spec/externalTrafficPolicy", &["Cluster", "Local"]);
    one_of("/spec/internalTrafficPolicy", &["Cluster", "Local"]);
    one_of("/spec/ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    let external = matches!(service_type, "NodePort" | "LoadBalancer") || has(new, "/spec/externalIPs");
    if has(new, "/spec/externalTrafficPolicy") && !external {
        let value = Value::from(text(new, "/spec/externalTrafficPolicy"));
        let detail = "may only be set for externally-accessible services";
        causes.push(Cause::invalid("spec.externalTrafficPolicy", &value, detail));
    }
    let health_check = service_type == "LoadBalancer" && text(new, "/spec/externalTrafficPolicy") == "Local";
    if let (Some(port), false) = (new.pointer("/spec/healthCheckNodePort"), health_check) {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid("spec.healthCheckNodePort", port, detail));
    }
}

fn load_balancer(new: &Value, old: Option<&Value>, service_type: &str, causes: &mut Vec<Cause>) {
    let is_load_balancer = service_type == "LoadBalancer";
    let only = "may only be used when `type` is 'LoadBalancer'";
    for (path, field) in [
        ("/spec/loadBalancerClass", "spec.loadBalancerClass"),
        ("/spec/allocateLoadBalancerNodePorts", "spec.allocateLoadBalancerNodePorts"),
        ("/spec/loadBalancerSourceRanges", "spec.LoadBalancerSourceRanges"),
    ] {
        if has(new, path) && !is_load_balancer {
            causes.push(Cause::forbidden(field, only));
        }
    }
    let class = text(new, "/spec/loadBalancerClass");
    if !class.is_empty() && !super::is_qualified_name(class) {
        causes.push(Cause::invalid("spec.loadBalancerClass", &Value::from(class), super::NAME_PART));
    }
    let was = old.filter(|o| is_load_balancer && text(o, "/spec/type") == "LoadBalancer");
    if was.is_some_and(|o| text(o, "/spec/loadBalancerClass") != class) {
        // Also from none to one: controllers decide ownership once, when the Service becomes a load
        // balancer.
        let shown = if class.is_empty() { Value::Null } else { Value::from(class) };
        causes.push(Cause::invalid("spec.loadBalancerClass", &shown, "may not change once set"));
    }
    for (index, range) in list(new, "/spec/loadBalancerSourceRanges").iter().enumerate() {
        let cidr = range.as_str().unwrap_or_default().trim();
        if cidr.parse::<ipnet::IpNet>().is_err() {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            causes.push(Cause::invalid(format!("spec.LoadBalancerSourceRanges[{index}]"), range, detail));
        }
    }
    status(new, is_load_balancer, causes);
}

fn status(new: &Value, is_load_balancer: bool, causes: &mut Vec<Cause>) {
    let ingress = list(new, "/status/loadBalancer/ingress");
    if !ingress.is_empty() && !is_load_balancer {
        let detail = "may only be used when `spec.type` is \"LoadBalancer\"";
        causes.push(Cause::forbidden("status.loadBalancer.ingress", detail));
    }
    for (index, entry) in ingress.iter().enumerate() {
        let at = format!("status.loadBalancer.ingress[{index}]");
        let (ip, host) = (text(entry, "/ip"), text(entry, "/hostname"));
        if !ip.is_empty() && ip.parse::<IpAddr>().is_err() {
            causes.push(Cause::invalid(format!("{at}.ip"), &Value::from(ip), IP));
        }
        if !host.is_empty() && (!super::is_subdomain(host) || host.parse::<IpAddr>().is_ok()) {
            causes.push(Cause::invalid(format!("{at}.hostname"), &Value::from(host), super::SUBDOMAIN));
        }
        let mode = text(entry, "/ipMode");
        if !mode.is_empty() && ip.is_empty() {
            causes.push(Cause::forbidden(format!("{at}.ipMode"), "may not be specified when `ip` is not set"));
        }
        if !mode.is_empty() && !matches!(mode, "VIP" | "Proxy") {
            causes.push(Cause::unsupported(format!("{at}.ipMode"), &Value::from(mode), &["Proxy", "VIP"]));
        }
    }
}

fn immutable(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let (before, after) = (text(old, "/spec/clusterIP"), text(new, "/spec/clusterIP"));
    let both = text(old, "/spec/type") != "ExternalName" && text(new, "/spec/type") != "ExternalName";
    if both && !before.is_empty() && before != after {
        let value = Value::from(list(new, "/spec/clusterIPs").to_vec());
        let detail = if after.is_empty() { "primary clusterIP can not be unset" } else { "may not change once set" };
        causes.push(Cause::invalid("spec.clusterIPs[0]", &value, detail));
    }
}
