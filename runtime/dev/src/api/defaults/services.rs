//! Defaults of Services, allocation of their addresses and ports, and their changes with the type.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::api::allocator::{Allocator, ports};
use crate::api::errors::Cause;
use crate::api::object::{self, has, list, remove, set, set_default, text};

/// Sets the fields that depend on others, on every write.
pub(crate) fn apply_defaults(new: &mut Value) {
    set_default(new, "/spec/sessionAffinity", "None");
    if text(new, "/spec/sessionAffinity") == "ClientIP" {
        set_default(new, "/spec/sessionAffinityConfig/clientIP/timeoutSeconds", 10800);
    } else {
        remove(new, "/spec/sessionAffinityConfig");
    }
    set_default(new, "/spec/type", "ClusterIP");
    for port in new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        set_default(port, "/protocol", "TCP");
        let same = port.get("port").cloned().unwrap_or_default();
        if matches!(port.get("targetPort"), None | Some(Value::Null)) || port.get("targetPort") == Some(&json!(0)) {
            set(port, "/targetPort", same);
        }
    }
    let service_type = text(new, "/spec/type").to_owned();
    if external(new) {
        set_default(new, "/spec/externalTrafficPolicy", "Cluster");
    }
    if service_type != "ExternalName" {
        set_default(new, "/spec/internalTrafficPolicy", "Cluster");
    }
    if service_type == "LoadBalancer" {
        set_default(new, "/spec/allocateLoadBalancerNodePorts", true);
    }
    status_defaults(new);
}

/// The default ipMode of an ingress address is VIP.
pub(crate) fn status_defaults(new: &mut Value) {
    set_default(new, "/status/loadBalancer", Value::Object(Map::new()));
    if text(new, "/spec/type") != "LoadBalancer" {
        return;
    }
    for entry in new.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut).into_iter().flatten() {
        if has(entry, "/ip") {
            set_default(entry, "/ipMode", "VIP");
        }
    }
}

fn external(service: &Value) -> bool {
    matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer") || has(service, "/spec/externalIPs")
}

fn uses_node_ports(service: &Value) -> bool {
    let allocates = service.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    match text(service, "/spec/type") {
        "NodePort" => true,
        "LoadBalancer" => allocates,
        _ => false,
    }
}

fn uses_health_check(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer" && text(service, "/spec/externalTrafficPolicy") == "Local"
}

/// Keeps allocations that the client did not repeat, and drops the fields of the old type.
pub(crate) fn carry_over(old: &Value, new: &mut Value) {
    set_default(new, "/spec/type", "ClusterIP");
    let (was, is) = (text(old, "/spec/type").to_owned(), text(new, "/spec/type").to_owned());
    let (ip_before, ip_after) = (text(old, "/spec/clusterIP"), text(new, "/spec/clusterIP").to_owned());
    if ip_before != ip_after && old.pointer("/spec/clusterIPs") == new.pointer("/spec/clusterIPs") {
        // An old client writes only the singular field; the plural field follows it.
        remove(new, "/spec/clusterIPs");
        if !ip_after.is_empty() {
            set(new, "/spec/clusterIPs", json!([ip_after]));
        }
    }
    if is != "ExternalName" && was != "ExternalName" {
        for path in ["/spec/clusterIP", "/spec/clusterIPs"] {
            if !has(new, path) {
                object::copy(old, new, path);
            }
        }
    }
    if uses_node_ports(old) && uses_node_ports(new) {
        keep_node_ports(old, new);
    }
    if uses_health_check(old) && uses_health_check(new) && !has(new, "/spec/healthCheckNodePort") {
        object::copy(old, new, "/spec/healthCheckNodePort");
    }
    drop_of_old_type(old, new);
    if is != "LoadBalancer" {
        set(new, "/status/loadBalancer", Value::Object(Map::new()));
    }
    apply_defaults(new);
    for path in ["/spec/ipFamilies", "/spec/ipFamilyPolicy"] {
        if is != "ExternalName" && was != "ExternalName" && !has(new, path) {
            object::copy(old, new, path);
        }
    }
}

fn keep_node_ports(old: &Value, new: &mut Value) {
    let before = list(old, "/spec/ports").to_vec();
    for port in new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let protocol = |p: &Value| Some(text(p, "/protocol").to_owned()).filter(|p| !p.is_empty());
        let same = |o: &&Value| {
            o.get("port") == port.get("port")
                && protocol(o).unwrap_or("TCP".into()) == protocol(port).unwrap_or("TCP".into())
        };
        let kept = before.iter().find(same).and_then(|o| o.get("nodePort")).cloned();
        if let (Some(kept), None) = (kept, port.get("nodePort")) {
            set(port, "/nodePort", kept);
        }
    }
}

/// Fields that a client kept from the old type, unchanged, are dropped instead of refused.
fn drop_of_old_type(old: &Value, new: &mut Value) {
    let is = text(new, "/spec/type").to_owned();
    let drop_unchanged = |new: &mut Value, path: &str| {
        if old.pointer(path) == new.pointer(path) {
            remove(new, path);
        }
    };
    if is == "ExternalName" && text(old, "/spec/type") != "ExternalName" {
        for path in ["/spec/clusterIP", "/spec/clusterIPs", "/spec/ipFamilies", "/spec/ipFamilyPolicy"] {
            drop_unchanged(new, path);
        }
        drop_unchanged(new, "/spec/internalTrafficPolicy");
    }
    let node_ports = |s: &Value| list(s, "/spec/ports").iter().map(|p| p.get("nodePort").cloned()).collect::<Vec<_>>();
    if uses_node_ports(old) && !uses_node_ports(new) && is != "LoadBalancer" && node_ports(old) == node_ports(new) {
        for port in new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            remove(port, "/nodePort");
        }
    }
    if uses_health_check(old) && !uses_health_check(new) {
        drop_unchanged(new, "/spec/healthCheckNodePort");
    }
    if is != "LoadBalancer" {
        drop_unchanged(new, "/spec/allocateLoadBalancerNodePorts");
        drop_unchanged(new, "/spec/loadBalancerClass");
    }
    if external(old) && !external(new) {
        drop_unchanged(new, "/spec/externalTrafficPolicy");
    }
}

/// Allocates the missing families, addresses and ports of a Service.
pub(crate) fn allocate(allocator: &Allocator, old: Option<&Value>, new: &mut Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if text(new, "/spec/type") == "ExternalName" {
        return causes;
    }
    cluster_ips(allocator, old, new, &mut causes);
    node_ports(allocator, old, new, &mut causes);
    causes
}

fn families(allocator: &Allocator, new: &mut Value, causes: &mut Vec<Cause>) -> Vec<String> {
    let served: Vec<&str> = allocator.families().collect();
    let policy = text(new, "/spec/ipFamilyPolicy").to_owned();
    let mut families: Vec<String> =
        list(new, "/spec/ipFamilies").iter().filter_map(|f| f.as_str().map(str::to_owned)).collect();
    if families.is_empty() {
        let given = list(new, "/spec/clusterIPs").iter().filter_map(Value::as_str);
        families = given
            .filter_map(|ip| ip.parse::<std::net::IpAddr>().ok())
            .map(|ip| if ip.is_ipv4() { "IPv4".to_owned() } else { "IPv6".to_owned() })
            .collect();
    }
    if families.is_empty() {
        families.extend(served.first().map(|f| (*f).to_owned()));
    }
    if let Some(unserved) = families.iter().find(|f| !served.contains(&f.as_str())) {
        let detail = "not configured on this cluster";
        causes.push(Cause::invalid("spec.ipFamilies[0]", &Value::from(unserved.as_str()), detail));
    }
    if policy.ends_with("DualStack") && families.len() == 1 {
        families.extend(served.iter().find(|f| !families.iter().any(|g| g == *f)).map(|f| (*f).to_owned()));
    }
    if policy == "RequireDualStack" && families.len() == 1 {
        let detail = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", &Value::from(policy.as_str()), detail));
    }
    let default = if families.len() == 2 { "RequireDualStack" } else { "SingleStack" };
    set_default(new, "/spec/ipFamilyPolicy", default);
    if text(new, "/spec/ipFamilyPolicy") == "SingleStack" {
        families.truncate(1);
    }
    set(new, "/spec/ipFamilies", families.clone());
    families
}

fn cluster_ips(allocator: &Allocator, old: Option<&Value>, new: &mut Value, causes: &mut Vec<Cause>) {
    let primary = text(new, "/spec/clusterIP").to_owned();
    let families = families(allocator, new, causes);
    if !primary.is_empty() && list(new, "/spec/clusterIPs").is_empty() {
        set(new, "/spec/clusterIPs", json!([primary]));
    }
    let first = list(new, "/spec/clusterIPs").first().and_then(Value::as_str).unwrap_or_default().to_owned();
    if primary.is_empty() && !first.is_empty() {
        set(new, "/spec/clusterIP", first.clone());
    }
    if primary == "None" || first == "None" {
        return;
    }
    let mut ips: Vec<String> =
        list(new, "/spec/clusterIPs").iter().filter_map(|ip| ip.as_str().map(str::to_owned)).collect();
    let had: Vec<Value> = old.map(|o| list(o, "/spec/clusterIPs").to_vec()).unwrap_or_default();
    for (index, ip) in ips.iter().enumerate().filter(|(_, ip)| !had.iter().any(|h| h == *ip)) {
        causes.extend(allocator.ip_fault(ip, &format!("spec.clusterIPs[{index}]")));
    }
    ips.truncate(families.len());
    for family in families.iter().skip(ips.len()) {
        match allocator.next_ip(family) {
            Some(ip) => ips.push(ip.to_string()),
            None => {
                let detail = "failed to allocate IP: range is full";
                causes.push(Cause::invalid("spec.clusterIPs", &Value::Null, detail));
            }
        }
    }
    if let Some(first) = ips.first() {
        set(new, "/spec/clusterIP", first.clone());
        set(new, "/spec/clusterIPs", ips);
    }
}

fn node_ports(allocator: &Allocator, old: Option<&Value>, new: &mut Value, causes: &mut Vec<Cause>) {
    let had: BTreeSet<u16> = old.map(ports).unwrap_or_default().into_iter().collect();
    let mut taken: BTreeSet<u16> = ports(new).into_iter().collect();
    let needs = uses_node_ports(new);
    let needs_health_check = uses_health_check(new);
    // One number serves one port in several protocols.
    let mut by_port: Vec<(i64, u64)> = Vec::new();
    for (index, port) in new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
    {
        let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
        match port.get("nodePort").and_then(Value::as_i64).filter(|p| *p != 0) {
            Some(asked) => {
                if !u16::try_from(asked).is_ok_and(|p| had.contains(&p)) {
                    causes.extend(allocator.port_fault(asked, &format!("spec.ports[{index}].nodePort")));
                }
                by_port.push((number, asked.unsigned_abs()));
            }
            None if needs => {
                let shared = by_port.iter().find(|(n, _)| *n == number).and_then(|(_, p)| u16::try_from(*p).ok());
                let Some(free) = shared.or_else(|| allocator.next_port(&taken)) else {
                    causes.push(exhausted(&format!("spec.ports[{index}].nodePort")));
                    continue;
                };
                taken.insert(free);
                by_port.push((number, u64::from(free)));
                set(port, "/nodePort", free);
            }
            None => {}
        }
    }
    if !needs_health_check {
        return;
    }
    match new.pointer("/spec/healthCheckNodePort").and_then(Value::as_i64).filter(|p| *p != 0) {
        Some(asked) if !u16::try_from(asked).is_ok_and(|p| had.contains(&p)) => {
            causes.extend(allocator.port_fault(asked, "spec.healthCheckNodePort"));
        }
        Some(_) => {}
        None => match allocator.next_port(&taken) {
            Some(free) => set(new, "/spec/healthCheckNodePort", free),
            None => causes.push(exhausted("spec.healthCheckNodePort")),
        },
    }
}

fn exhausted(field: &str) -> Cause {
    Cause::invalid(field, &Value::Null, "failed to allocate a nodePort: range is full")
}
