//! Servers and networks of the project, and the catalogs that the vendor's SDK reads.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use serde_json::{Value, json};

use super::{Answer, NOW, Outcome, Project, Refused, balancers, refused, started};

/// The most routes of a network.
const ROUTES_MAX: usize = 100;

/// Name, country and network zone of each location.
const LOCATIONS: [(&str, &str, &str); 4] = [
    ("fsn1", "DE", "eu-central"),
    ("nbg1", "DE", "eu-central"),
    ("hel1", "FI", "eu-central"),
    ("ash", "US", "us-east"),
];

/// The entries of a read-only collection.
pub(super) fn catalog(name: &str) -> Vec<Value> {
    match name {
        "locations" => locations(),
        "load_balancer_types" => balancers::types(),
        "server_types" => vec![server_type()],
        _ => vec![image()],
    }
}

fn locations() -> Vec<Value> {
    let one = |(at, (name, country, zone)): (usize, &(&str, &str, &str))| {
        json!({
            "id": at + 1, "name": name, "description": name, "country": country, "city": name, "latitude": 50.5,
            "longitude": 12.5, "network_zone": zone,
        })
    };
    LOCATIONS.iter().enumerate().map(one).collect()
}

/// The location of this name or ID, or the first one of the zone.
pub(super) fn location(name: &Value, zone: &Value) -> Result<Value, Refused> {
    let is = |one: &Value| {
        let id = one["id"].to_string();
        if name.is_null() { one["network_zone"] == *zone } else { one["name"] == *name || *name == id.as_str() }
    };
    let found = locations().into_iter().find(is);
    found.ok_or_else(|| refused(422, "invalid_input", "invalid input in field 'location'"))
}

fn server_type() -> Value {
    json!({
        "id": 22, "name": "cpx11", "description": "CPX 11", "category": "Shared vCPU", "cores": 2, "memory": 2,
        "disk": 40, "deprecated": false, "deprecation": null, "prices": [], "storage_type": "local",
        "cpu_type": "shared", "architecture": "x86",
        "locations": [{"id": 1, "name": "fsn1", "deprecation": null, "available": true, "recommended": true}],
    })
}

fn image() -> Value {
    json!({
        "id": 114_690_387, "type": "system", "status": "available", "name": "debian-12", "description": "Debian 12",
        "image_size": null, "disk_size": 5, "created": NOW, "created_from": null, "bound_to": null,
        "os_flavor": "debian", "os_version": "12", "rapid_deploy": true, "protection": {"delete": false},
        "deprecated": null, "deleted": null, "labels": {}, "architecture": "x86",
    })
}

impl Project {
    pub(super) fn create_server(&mut self, body: &Value) -> Outcome {
        self.unique("servers", &body["name"])?;
        let place = if body["location"].is_null() { json!("fsn1") } else { body["location"].clone() };
        let location = location(&place, &Value::Null)?;
        let id = self.new_id();
        let (high, low) = (id / 250 % 250, id % 250);
        let has = |family: &str| body["public_net"][format!("enable_{family}")] != false;
        let ipv4 = json!({
            "id": id, "ip": format!("203.{}.113.{low}", high % 100), "blocked": false, "dns_ptr": "static.example.net",
        });
        let ipv6 = json!({"id": id, "ip": format!("2001:db8:{id:x}::/64"), "blocked": false, "dns_ptr": []});
        let mut server = json!({
            "id": id, "name": body["name"], "status": "running", "created": NOW, "locked": false,
            "labels": body.get("labels").cloned().unwrap_or_else(|| json!({})), "server_type": server_type(),
            "image": image(), "iso": null, "location": location, "datacenter": datacenter(&location),
            "public_net": {
                "ipv4": if has("ipv4") { ipv4 } else { Value::Null }, "ipv6": if has("ipv6") { ipv6 } else { Value::Null },
                "floating_ips": [], "firewalls": [],
            },
            "private_net": [], "protection": {"delete": false, "rebuild": false}, "backup_window": null,
            "rescue_enabled": false, "primary_disk_size": 40, "volumes": [], "load_balancers": [],
            "placement_group": null, "included_traffic": 0, "ingoing_traffic": 0, "outgoing_traffic": 0,
        });
        for network in body["networks"].as_array().into_iter().flatten() {
            self.attach_server(&mut server, &json!({"network": network}))?;
        }
        self.insert("servers", id, server.clone());
        let action = self.start("create_server", "servers", id, Some(server.clone()));
        let body = json!({"server": server, "action": action, "next_actions": [], "root_password": null});
        Ok(Answer { status: 201, body })
    }

    pub(super) fn change_server(&mut self, id: u64, verb: &str, body: &Value) -> Outcome {
        let mut server = self.object("servers", id)?;
        self.free("servers", id)?;
        match verb {
            "attach_to_network" => self.attach_server(&mut server, body)?,
            "detach_from_network" => self.detach_server(&mut server, &body["network"]),
            "poweroff" | "shutdown" => server["status"] = json!("off"),
            "poweron" => server["status"] = json!("running"),
            _ => return Err(refused(404, "not_found", "no such action")),
        }
        Ok(started(&self.start(verb, "servers", id, Some(server))))
    }

    fn attach_server(&mut self, server: &mut Value, body: &Value) -> Result<(), Refused> {
        let network_id = body["network"].as_u64().unwrap_or(0);
        let mut network = self.object("networks", network_id)?;
        let ip = address_in(self, &network, &body["ip"], &Value::Null)?;
        let net = json!({"network": network_id, "ip": ip, "alias_ips": [], "mac_address": "86:00:ff:2a:7d:e1"});
        if let (Some(nets), Some(members)) = (server["private_net"].as_array_mut(), network["servers"].as_array_mut()) {
            nets.push(net);
            members.push(server["id"].clone());
        }
        self.insert("networks", network_id, network);
        Ok(())
    }

    fn detach_server(&mut self, server: &mut Value, network: &Value) {
        if let Some(nets) = server["private_net"].as_array_mut() {
            nets.retain(|net| net["network"] != *network);
        }
        let id = server["id"].clone();
        for other in self.collections.entry("networks").or_default().values_mut() {
            if let Some(members) = other["servers"].as_array_mut().filter(|_| true) {
                members.retain(|member| *member != id);
            }
        }
    }

    /// Removes a server from networks and load balancers, as the cloud does.
    pub(super) fn forget_server(&mut self, id: u64) {
        for (collection, list) in [("networks", "servers"), ("load_balancers", "targets")] {
            for object in self.collections.entry(collection).or_default().values_mut() {
                if let Some(list) = object[list].as_array_mut() {
                    list.retain(|entry| *entry != id && entry["server"]["id"] != id);
                }
            }
        }
    }

    pub(super) fn create_network(&mut self, body: &Value) -> Outcome {
        self.unique("networks", &body["name"])?;
        range(&body["ip_range"])?;
        let id = self.new_id();
        let mut network = json!({
            "id": id, "name": body["name"], "ip_range": body["ip_range"], "created": NOW, "subnets": [],
            "labels": body.get("labels").cloned().unwrap_or_else(|| json!({})), "routes": [], "servers": [],
            "load_balancers": [], "protection": {"delete": false}, "expose_routes_to_vswitch": false,
        });
        for subnet in body["subnets"].as_array().into_iter().flatten() {
            add_subnet(&mut network, subnet)?;
        }
        self.insert("networks", id, network.clone());
        Ok(Answer { status: 201, body: json!({"network": network}) })
    }

    pub(super) fn change_network(&mut self, id: u64, verb: &str, body: &Value) -> Outcome {
        let mut network = self.object("networks", id)?;
        self.free("networks", id)?;
        match verb {
            "add_subnet" => add_subnet(&mut network, body)?,
            "add_route" => add_route(&mut network, body)?,
            "delete_route" => {
                let Some(routes) = network["routes"].as_array_mut() else { return Ok(started(&Value::Null)) };
                let before = routes.len();
                routes.retain(|route| route != body);
                if routes.len() == before {
                    return Err(refused(404, "not_found", "route not found"));
                }
            }
            _ => return Err(refused(404, "not_found", "no such action")),
        }
        Ok(started(&self.start(verb, "networks", id, Some(network))))
    }
}

fn datacenter(location: &Value) -> Value {
    json!({
        "id": 4, "name": "fsn1-dc14", "description": "Falkenstein 1 virtual DC 14", "location": location,
        "server_types": {"supported": [22], "available": [22], "available_for_migration": [22]},
    })
}

fn add_subnet(network: &mut Value, body: &Value) -> Result<(), Refused> {
    let (first, _) = range(&body["ip_range"])?;
    if !contains(&network["ip_range"], first)? {
        return Err(refused(422, "invalid_input", "the subnet is not within the network"));
    }
    let subnet = json!({
        "type": body["type"], "ip_range": body["ip_range"], "network_zone": body["network_zone"],
        "gateway": Ipv4Addr::from_bits(first.to_bits() + 1).to_string(), "vswitch_id": null,
    });
    if let Some(subnets) = network["subnets"].as_array_mut() {
        subnets.push(subnet);
    }
    Ok(())
}

fn add_route(network: &mut Value, body: &Value) -> Result<(), Refused> {
    range(&body["destination"])?;
    let gateway = body["gateway"].as_str().and_then(|gateway| gateway.parse().ok());
    let gateway: Ipv4Addr = gateway.ok_or_else(|| refused(422, "invalid_input", "invalid input in field 'gateway'"))?;
    if !contains(&network["ip_range"], gateway)? {
        return Err(refused(422, "invalid_input", "the gateway is not within the network"));
    }
    let Some(routes) = network["routes"].as_array_mut() else { return Ok(()) };
    if routes.iter().any(|route| route["destination"] == body["destination"]) {
        return Err(refused(422, "invalid_input", "a route with this destination exists"));
    }
    if routes.len() >= ROUTES_MAX {
        return Err(refused(403, "resource_limit_exceeded", "network route limit exceeded"));
    }
    routes.push(json!({"destination": body["destination"], "gateway": body["gateway"]}));
    Ok(())
}

/// The wanted or the first free address of a network's subnets.
pub(super) fn address_in(project: &Project, network: &Value, ip: &Value, within: &Value) -> Result<String, Refused> {
    let used: BTreeSet<&str> = ["servers", "load_balancers"]
        .into_iter()
        .flat_map(|collection| project.all(collection))
        .flat_map(|object| object["private_net"].as_array().into_iter().flatten())
        .filter(|net| net["network"] == network["id"])
        .filter_map(|net| net["ip"].as_str())
        .collect();
    if let Some(ip) = ip.as_str() {
        let address: Ipv4Addr = ip.parse().map_err(|_| refused(422, "invalid_input", "invalid input in field 'ip'"))?;
        if used.contains(ip) || !contains(&network["ip_range"], address)? {
            return Err(refused(422, "ip_not_available", "the IP is not available"));
        }
        return Ok(ip.to_owned());
    }
    let subnets = network["subnets"].as_array().into_iter().flatten().map(|subnet| &subnet["ip_range"]);
    for subnet in subnets.filter(|range| within.is_null() || within == *range) {
        let (first, size) = range(subnet)?;
        let free = (2..size.saturating_sub(1)).map(|at| Ipv4Addr::from_bits(first.to_bits() + at).to_string());
        if let Some(ip) = free.into_iter().find(|ip| !used.contains(ip.as_str())) {
            return Ok(ip);
        }
    }
    Err(refused(422, "no_subnet_available", "no subnet or IP is available"))
}

/// The first address and the size of a range of IPv4 addresses.
fn range(text: &Value) -> Result<(Ipv4Addr, u32), Refused> {
    let invalid = || refused(422, "invalid_input", format!("invalid IP range {text}"));
    let (address, prefix) = text.as_str().and_then(|text| text.split_once('/')).ok_or_else(invalid)?;
    let address = match address.parse().map_err(|_| invalid())? {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => return Err(invalid()),
    };
    let prefix: u32 = prefix.parse().ok().filter(|prefix| (1..=32).contains(prefix)).ok_or_else(invalid)?;
    Ok((address, 1_u32.checked_shl(32 - prefix).unwrap_or(u32::MAX)))
}

fn contains(text: &Value, address: Ipv4Addr) -> Result<bool, Refused> {
    let (first, size) = range(text)?;
    Ok(address.to_bits().checked_sub(first.to_bits()).is_some_and(|at| at < size))
}
