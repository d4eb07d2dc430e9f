//! Load balancers and certificates of the project.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Answer, NOW, Outcome, Project, Refused, Running, machines, refused, started};

/// Name, services, targets and certificates of each type.
const TYPES: [(&str, usize, usize, usize); 3] = [("lb11", 5, 25, 10), ("lb21", 15, 75, 25), ("lb31", 30, 150, 50)];

/// The codes that refuse a request with status 422.
fn invalid(code: &'static str, message: &str) -> Refused {
    refused(422, code, message)
}

pub(super) fn types() -> Vec<Value> {
    let one = |(at, (name, services, targets, certificates)): (usize, &(&str, usize, usize, usize))| {
        json!({
            "id": at + 1, "name": name, "description": name.to_uppercase(), "max_connections": 10_000,
            "max_services": services, "max_targets": targets, "max_assigned_certificates": certificates,
            "deprecated": null, "prices": [],
        })
    };
    TYPES.iter().enumerate().map(one).collect()
}

fn kind(name: &Value) -> Result<Value, Refused> {
    let found = types().into_iter().find(|kind| kind["name"] == *name || kind["id"] == *name);
    found.ok_or_else(|| invalid("invalid_input", "invalid input in field 'load_balancer_type'"))
}

impl Project {
    pub(super) fn create_balancer(&mut self, body: &Value) -> Outcome {
        self.unique("load_balancers", &body["name"])?;
        if self.all("load_balancers").len() >= self.balancers_max {
            return Err(refused(403, "resource_limit_exceeded", "load balancer limit exceeded"));
        }
        let location = machines::location(&body["location"], &body["network_zone"])?;
        let id = self.new_id();
        let low = id % 250;
        let mut balancer = json!({
            "id": id, "name": body["name"], "created": NOW, "included_traffic": 0,
            "ingoing_traffic": null, "outgoing_traffic": null,
            "labels": body.get("labels").cloned().unwrap_or_else(|| json!({})),
            "load_balancer_type": kind(&body["load_balancer_type"])?, "location": location,
            "algorithm": body.get("algorithm").cloned().unwrap_or_else(|| json!({"type": "round_robin"})),
            "public_net": {
                "enabled": true,
                "ipv4": {"ip": format!("198.51.100.{low}"), "dns_ptr": format!("static.{low}.example.net")},
                "ipv6": {"ip": format!("2001:db8:1::{low:x}"), "dns_ptr": ""},
            },
            "private_net": [], "services": [], "targets": [], "protection": {"delete": false},
        });
        if let Some(network) = body.get("network").filter(|network| !network.is_null()) {
            self.attach(&mut balancer, &json!({"network": network}))?;
        }
        for service in body["services"].as_array().into_iter().flatten() {
            self.add_service(&mut balancer, service)?;
        }
        for target in body["targets"].as_array().into_iter().flatten() {
            self.add_target(&mut balancer, target)?;
        }
        if body["public_interface"] == false {
            disable_public(&mut balancer)?;
        }
        self.insert("load_balancers", id, balancer.clone());
        self.join_network(&balancer);
        let action = self.start("create_load_balancer", "load_balancers", id, Some(balancer.clone()));
        Ok(Answer { status: 201, body: json!({"load_balancer": balancer, "action": action}) })
    }

    pub(super) fn change_balancer(&mut self, id: u64, verb: &str, body: &Value) -> Outcome {
        let mut balancer = self.object("load_balancers", id)?;
        self.free("load_balancers", id)?;
        match verb {
            "add_service" => self.add_service(&mut balancer, body)?,
            "update_service" => self.update_service(&mut balancer, body)?,
            "delete_service" => delete_service(&mut balancer, &body["listen_port"])?,
            "add_target" => self.add_target(&mut balancer, body)?,
            "remove_target" => remove_target(&mut balancer, body)?,
            "attach_to_network" => self.attach(&mut balancer, body)?,
            "detach_from_network" => detach(&mut balancer, &body["network"])?,
            "change_algorithm" => balancer["algorithm"] = json!({"type": body["type"]}),
            "change_type" => change_type(&mut balancer, kind(&body["load_balancer_type"])?)?,
            "change_dns_ptr" => change_dns_ptr(&mut balancer, body)?,
            "change_protection" => balancer["protection"]["delete"] = body["delete"].clone(),
            "disable_public_interface" => disable_public(&mut balancer)?,
            "enable_public_interface" => balancer["public_net"]["enabled"] = json!(true),
            _ => return Err(refused(404, "not_found", "no such action")),
        }
        self.join_network(&balancer);
        Ok(started(&self.start(verb, "load_balancers", id, Some(balancer))))
    }

    fn add_service(&self, balancer: &mut Value, body: &Value) -> Result<(), Refused> {
        let mut service = body.clone();
        if is_http(&service) {
            let mut http = json!({
                "cookie_name": "HCLBSTICKY", "cookie_lifetime": 300, "certificates": [], "redirect_http": false,
                "sticky_sessions": false,
            });
            merge(&mut http, &body["http"]);
            service["http"] = http;
        } else if let Some(service) = service.as_object_mut() {
            service.remove("http");
        }
        complete_check(&mut service);
        self.check_service(balancer, &service, None)?;
        let most = balancer["load_balancer_type"]["max_services"].as_u64();
        let Some(services) = balancer["services"].as_array_mut() else { return Ok(()) };
        if u64::try_from(services.len()).ok() >= most {
            return Err(refused(403, "resource_limit_exceeded", "load balancer service limit exceeded"));
        }
        services.push(service);
        Ok(())
    }

    fn update_service(&self, balancer: &mut Value, body: &Value) -> Result<(), Refused> {
        let port = &body["listen_port"];
        let mut services = balancer["services"].as_array().cloned().unwrap_or_default();
        let Some(service) = services.iter_mut().find(|service| service["listen_port"] == *port) else {
            return Err(refused(404, "not_found", "service not found"));
        };
        merge(service, body);
        if is_http(service) {
            let mut http = json!({
                "cookie_name": "HCLBSTICKY", "cookie_lifetime": 300, "certificates": [], "redirect_http": false,
                "sticky_sessions": false,
            });
            merge(&mut http, &service["http"]);
            service["http"] = http;
        } else if let Some(service) = service.as_object_mut() {
            service.remove("http");
        }
        complete_check(service);
        let service = service.clone();
        self.check_service(balancer, &service, Some(port))?;
        balancer["services"] = json!(services);
        Ok(())
    }

    fn check_service(&self, balancer: &Value, service: &Value, itself: Option<&Value>) -> Result<(), Refused> {
        let others = balancer["services"].as_array().into_iter().flatten();
        let others: Vec<_> = others.filter(|other| Some(&other["listen_port"]) != itself).collect();
        let redirects = |service: &Value| service["protocol"] == "https" && service["http"]["redirect_http"] == true;
        let ports = |service: &Value| -> BTreeSet<u64> {
            let port = service["listen_port"].as_u64();
            port.into_iter().chain(redirects(service).then_some(80)).collect()
        };
        let mine = ports(service);
        if others.iter().any(|other| !ports(other).is_disjoint(&mine)) {
            return Err(invalid("source_port_already_used", "the source port is already in use"));
        }
        let certificates = service["http"]["certificates"].as_array().cloned().unwrap_or_default();
        if service["protocol"] == "https" && certificates.is_empty() {
            return Err(invalid("invalid_input", "invalid input in field 'http.certificates'"));
        }
        for id in certificates.iter().map(|id| id.as_u64().unwrap_or(0)) {
            let certificate = self.object("certificates", id)?;
            if certificate["certificate"].is_null() {
                return Err(invalid("invalid_input", "certificate is not issued"));
            }
        }
        Ok(())
    }

    fn add_target(&self, balancer: &mut Value, body: &Value) -> Result<(), Refused> {
        let private = body["use_private_ip"] == true;
        let mut target = json!({"type": body["type"], "use_private_ip": private, "health_status": []});
        if body["type"] == "server" {
            let id = body["server"]["id"].as_u64().unwrap_or(0);
            let server = self.object("servers", id)?;
            let networks = |object: &Value| -> BTreeSet<u64> {
                let nets = object["private_net"].as_array().into_iter().flatten();
                nets.filter_map(|net| net["network"].as_u64()).collect()
            };
            if private && networks(balancer).is_empty() {
                return Err(invalid(
                    "load_balancer_not_attached_to_network",
                    "load balancer is not attached to a network",
                ));
            }
            if private && networks(balancer).is_disjoint(&networks(&server)) {
                return Err(invalid("server_not_attached_to_network", "server is not attached to the same network"));
            }
            if !private && balancer["public_net"]["enabled"] == false {
                return Err(invalid("load_balancer_public_interface_disabled", "the public interface is disabled"));
            }
            if !private && server["public_net"]["ipv4"].is_null() {
                return Err(invalid("missing_ipv4", "server has no public IPv4"));
            }
            target["server"] = json!({"id": id});
        } else {
            target[body["type"].as_str().unwrap_or("ip")] = body[body["type"].as_str().unwrap_or("ip")].clone();
        }
        let most = balancer["load_balancer_type"]["max_targets"].as_u64();
        let Some(targets) = balancer["targets"].as_array_mut() else { return Ok(()) };
        if targets.iter().any(|other| is_same_target(other, &target)) {
            return Err(invalid("target_already_defined", "the target is already defined"));
        }
        if u64::try_from(targets.len()).ok() >= most {
            return Err(refused(403, "resource_limit_exceeded", "load balancer target limit exceeded"));
        }
        targets.push(target);
        Ok(())
    }

    fn attach(&self, balancer: &mut Value, body: &Value) -> Result<(), Refused> {
        let network = self.object("networks", body["network"].as_u64().unwrap_or(0))?;
        if balancer["private_net"].as_array().is_some_and(|nets| !nets.is_empty()) {
            return Err(invalid("load_balancer_already_attached", "load balancer is already attached to a network"));
        }
        let ip = machines::address_in(self, &network, &body["ip"], &body["ip_range"])?;
        balancer["private_net"] = json!([{"network": network["id"], "ip": ip}]);
        Ok(())
    }

    /// Enters a load balancer into the lists of its networks, and removes it from the others.
    fn join_network(&mut self, balancer: &Value) {
        let nets = balancer["private_net"].as_array().cloned().unwrap_or_default();
        let id = &balancer["id"];
        for network in self.collections.entry("networks").or_default().values_mut() {
            let joined = nets.iter().any(|net| net["network"] == network["id"]);
            let Some(members) = network["load_balancers"].as_array_mut() else { continue };
            members.retain(|member| member != id);
            members.extend(joined.then(|| id.clone()));
        }
    }

    pub(super) fn forget_balancer(&mut self, id: u64) {
        self.join_network(&json!({"id": id, "private_net": []}));
    }

    pub(super) fn is_certificate_used(&self, id: u64) -> bool {
        let services = |balancer: &Value| balancer["services"].as_array().cloned().unwrap_or_default();
        let balancers = self.all("load_balancers");
        let mut used = balancers.iter().flat_map(|balancer| services(balancer));
        used.any(|service| {
            service["http"]["certificates"].as_array().is_some_and(|ids| ids.iter().any(|used| *used == id))
        })
    }

    pub(super) fn create_certificate(&mut self, body: &Value) -> Outcome {
        self.unique("certificates", &body["name"])?;
        let id = self.new_id();
        let managed = body["type"] == "managed";
        let issued = |issuance: &str, pem: Value| {
            let status = json!({"issuance": issuance, "renewal": "unavailable", "error": null});
            json!({
                "id": id, "name": body["name"], "type": if managed { "managed" } else { "uploaded" }, "created": NOW,
                "labels": body.get("labels").cloned().unwrap_or_else(|| json!({})), "certificate": pem,
                "domain_names": body.get("domain_names").cloned().unwrap_or_else(|| json!(["example.com"])),
                "fingerprint": null, "not_valid_after": null, "not_valid_before": null, "used_by": [],
                "status": if managed { status } else { Value::Null },
            })
        };
        if !managed {
            let certificate = issued("completed", body["certificate"].clone());
            self.insert("certificates", id, certificate.clone());
            return Ok(Answer { status: 201, body: json!({"certificate": certificate, "action": null}) });
        }
        let pending = issued("pending", Value::Null);
        self.insert("certificates", id, pending.clone());
        let (becomes, error) = if self.issue_fails {
            let mut failed = issued("failed", Value::Null);
            failed["status"]["error"] = json!({"code": "dns_zone_not_found", "message": "DNS zone not found"});
            (failed, Some(("dns_zone_not_found", "DNS zone not found")))
        } else {
            (issued("completed", json!("-----BEGIN CERTIFICATE-----")), None)
        };
        let collection = "certificates";
        let left = self.action_requests;
        let running = Running { action: Value::Null, left, collection, id, becomes: Some(becomes), error };
        let action = self.start_or_fail("create_certificate", running);
        Ok(Answer { status: 201, body: json!({"certificate": pending, "action": action}) })
    }
}

fn is_http(service: &Value) -> bool {
    service["protocol"] == "http" || service["protocol"] == "https"
}

/// Gives a health check with HTTP its defaults, and removes them from one without.
fn complete_check(service: &mut Value) {
    let check = &mut service["health_check"];
    if check["protocol"] == "http" {
        let mut http =
            json!({"domain": null, "path": "/", "response": "", "status_codes": ["2??", "3??"], "tls": false});
        merge(&mut http, &check["http"]);
        check["http"] = http;
    } else if let Some(check) = check.as_object_mut() {
        check.remove("http");
    }
}

/// Replaces the members that the change has, and keeps the others.
fn merge(value: &mut Value, change: &Value) {
    match (value, change) {
        (Value::Object(members), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(members.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
        (_, Value::Null) => {}
        (value, change) => *value = change.clone(),
    }
}

fn is_same_target(one: &Value, other: &Value) -> bool {
    ["type", "server", "ip", "label_selector"].iter().all(|key| one[*key] == other[*key])
}

fn delete_service(balancer: &mut Value, port: &Value) -> Result<(), Refused> {
    remove(&mut balancer["services"], |service| service["listen_port"] == *port, "service not found")
}

fn remove_target(balancer: &mut Value, body: &Value) -> Result<(), Refused> {
    remove(&mut balancer["targets"], |target| is_same_target(target, body), "target not found")
}

fn detach(balancer: &mut Value, network: &Value) -> Result<(), Refused> {
    remove(&mut balancer["private_net"], |net| net["network"] == *network, "load balancer is not attached")?;
    if let Some(targets) = balancer["targets"].as_array_mut() {
        targets.retain(|target| target["use_private_ip"] == false);
    }
    Ok(())
}

fn remove(list: &mut Value, is: impl Fn(&Value) -> bool, missing: &str) -> Result<(), Refused> {
    let Some(list) = list.as_array_mut() else { return Ok(()) };
    let before = list.len();
    list.retain(|entry| !is(entry));
    if list.len() == before { Err(refused(404, "not_found", missing)) } else { Ok(()) }
}

fn change_type(balancer: &mut Value, kind: Value) -> Result<(), Refused> {
    let fits = |list: &str, most: &str| {
        let used = balancer[list].as_array().and_then(|list| u64::try_from(list.len()).ok());
        used <= kind[most].as_u64()
    };
    if !fits("services", "max_services") || !fits("targets", "max_targets") {
        return Err(invalid("invalid_load_balancer_type", "the type does not fit for the load balancer"));
    }
    balancer["load_balancer_type"] = kind;
    Ok(())
}

fn change_dns_ptr(balancer: &mut Value, body: &Value) -> Result<(), Refused> {
    let family = if body["ip"].as_str().is_some_and(|ip| ip.contains(':')) { "ipv6" } else { "ipv4" };
    let address = &mut balancer["public_net"][family];
    if address["ip"] != body["ip"] {
        return Err(refused(404, "not_found", "ip not found"));
    }
    address["dns_ptr"] = body["dns_ptr"].clone();
    Ok(())
}

fn disable_public(balancer: &mut Value) -> Result<(), Refused> {
    if balancer["private_net"].as_array().is_none_or(Vec::is_empty) {
        return Err(invalid("load_balancer_not_attached_to_network", "load balancer is not attached to a network"));
    }
    if balancer["targets"].as_array().is_some_and(|all| all.iter().any(|one| one["use_private_ip"] == false)) {
        return Err(invalid("targets_without_use_private_ip", "a target uses the public IP"));
    }
    balancer["public_net"]["enabled"] = json!(false);
    Ok(())
}
