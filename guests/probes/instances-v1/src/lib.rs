//! A provider with upstream's older `Instances` and `Zones`, through the SDK's adapter. The names
//! of the nodes decide the answers of its cloud.

use skysail_guest_sdk::{
    AddressKind, Detail, Error, Identity, Info, Instance, Instances, NodeAddress, NodeSet, Problem, Result,
    instances_v1::{self, InstancesV1, ZonesV1},
    legacy::Zone,
    provider, provider_id,
};

struct Probe;
provider!(Probe: identity, instances);

impl Identity for Probe {
    fn describe() -> Info {
        Info::new("v1", "0.1.0", "A provider of upstream's older interface")
    }
    fn check_config(_text: String) -> Vec<Problem> {
        Vec::new()
    }
    fn origins(_text: String) -> Vec<String> {
        Vec::new()
    }
}

impl Instances for Probe {
    fn describe(nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        Ok(instances_v1::describe(&Cloud, nodes, detail))
    }
}

struct Cloud;

impl Cloud {
    /// Of a provider ID; `by-name` is found by its name only.
    fn machine(id: &str) -> Result<&str> {
        match provider_id::parse("v1", id)? {
            "by-name" => Err(Error::Unsupported("unimplemented".to_owned())),
            machine => Ok(machine),
        }
    }
}

impl InstancesV1 for Cloud {
    fn provider_name(&self) -> &str {
        "v1"
    }
    fn node_addresses(&self, name: &str) -> Result<Vec<NodeAddress>> {
        Ok(vec![NodeAddress::new(AddressKind::Hostname, name)])
    }
    fn node_addresses_by_provider_id(&self, id: &str) -> Result<Vec<NodeAddress>> {
        Ok(vec![NodeAddress::new(AddressKind::InternalDns, format!("{}.internal", Self::machine(id)?))])
    }
    fn instance_id(&self, name: &str) -> Result<String> {
        match name {
            "never" => Err(Error::NotFound("instance not found".to_owned())),
            "refused" => Err(Error::Denied("the token expired".to_owned())),
            "without-id" => Err(Error::Unsupported("unimplemented".to_owned())),
            name => Ok(name.to_owned()),
        }
    }
    fn instance_type(&self, _name: &str) -> Result<String> {
        Ok("type-by-name".to_owned())
    }
    fn instance_type_by_provider_id(&self, id: &str) -> Result<String> {
        Self::machine(id).map(|_| "type-by-id".to_owned())
    }
    fn instance_exists_by_provider_id(&self, id: &str) -> Result<bool> {
        Ok(provider_id::parse("v1", id)? != "gone")
    }
    fn instance_shutdown_by_provider_id(&self, id: &str) -> Result<bool> {
        Ok(Self::machine(id)? == "off")
    }
    fn zones(&self) -> Option<&dyn ZonesV1> {
        Some(self)
    }
}

impl ZonesV1 for Cloud {
    fn zone_by_provider_id(&self, id: &str) -> Result<Zone> {
        Self::machine(id).map(|_| Zone { failure_domain: "z1".to_owned(), region: "r1".to_owned() })
    }
    fn zone_by_node_name(&self, _name: &str) -> Result<Zone> {
        Ok(Zone { failure_domain: "z2".to_owned(), region: "r1".to_owned() })
    }
}
