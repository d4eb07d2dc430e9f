//! The adapter, question by question: what upstream's controllers did with v1.

use std::cell::RefCell;

use super::{InstancesV1, WITHOUT_PROVIDER_ID, ZonesV1, describe_node, instance_provider_id};
use crate::{AddressKind, Detail, Error, NodeAddress, Result, legacy::Zone};

/// Answers of one machine; a test sets `Err`.
struct Cloud {
    id: Result<String>,
    by_id: Result<()>,
    by_name: Result<()>,
    exists: Result<bool>,
    shutdown: Result<bool>,
    zones: bool,
    calls: RefCell<Vec<&'static str>>,
}

fn cloud() -> Cloud {
    Cloud {
        id: Ok("12345".to_owned()),
        by_id: Ok(()),
        by_name: Ok(()),
        exists: Ok(true),
        shutdown: Ok(false),
        zones: true,
        calls: RefCell::default(),
    }
}

impl Cloud {
    fn call<T>(&self, name: &'static str, answer: &Result<()>, value: T) -> Result<T> {
        self.calls.borrow_mut().push(name);
        answer.clone().map(|()| value)
    }
}

impl InstancesV1 for Cloud {
    fn provider_name(&self) -> &str {
        "fake"
    }
    fn node_addresses(&self, name: &str) -> Result<Vec<NodeAddress>> {
        self.call("addresses", &self.by_name, vec![NodeAddress::new(AddressKind::Hostname, name)])
    }
    fn node_addresses_by_provider_id(&self, id: &str) -> Result<Vec<NodeAddress>> {
        self.call("addresses-by-id", &self.by_id, vec![NodeAddress::new(AddressKind::Hostname, id)])
    }
    fn instance_id(&self, _name: &str) -> Result<String> {
        self.id.clone()
    }
    fn instance_type(&self, _name: &str) -> Result<String> {
        self.call("type", &self.by_name, "by-name".to_owned())
    }
    fn instance_type_by_provider_id(&self, _id: &str) -> Result<String> {
        self.call("type-by-id", &self.by_id, "by-id".to_owned())
    }
    fn instance_exists_by_provider_id(&self, _id: &str) -> Result<bool> {
        self.calls.borrow_mut().push("exists");
        self.exists.clone()
    }
    fn instance_shutdown_by_provider_id(&self, _id: &str) -> Result<bool> {
        self.calls.borrow_mut().push("shutdown");
        self.shutdown.clone()
    }
    fn zones(&self) -> Option<&dyn ZonesV1> {
        self.zones.then_some(self)
    }
}

impl ZonesV1 for Cloud {
    fn zone_by_provider_id(&self, _id: &str) -> Result<Zone> {
        let zone = Zone { failure_domain: "z-id".to_owned(), region: "r".to_owned() };
        self.call("zone-by-id", &self.by_id, zone)
    }
    fn zone_by_node_name(&self, _name: &str) -> Result<Zone> {
        let zone = Zone { failure_domain: "z-name".to_owned(), region: "r".to_owned() };
        self.call("zone", &self.by_name, zone)
    }
}

fn denied() -> Error {
    Error::Denied("expired".to_owned())
}

fn unsupported() -> Error {
    Error::Unsupported("unimplemented".to_owned())
}

fn gone() -> Error {
    Error::NotFound("instance not found".to_owned())
}

#[test]
fn a_node_is_described_by_its_id_and_then_by_its_name() {
    let good = cloud();
    let instance = describe_node(&good, "n", Some("fake://1"), Detail::Metadata).unwrap();
    assert_eq!((&*instance.provider_id, &*instance.instance_type, &*instance.zone), ("fake://1", "by-id", "z-id"));
    assert_eq!((&*instance.addresses[0].address, instance.extra.len()), ("fake://1", 0));
    assert_eq!(good.calls.take(), ["addresses-by-id", "type-by-id", "zone-by-id"]);

    let by_name = Cloud { by_id: Err(unsupported()), ..cloud() };
    let instance = describe_node(&by_name, "n", Some("fake://1"), Detail::Metadata).unwrap();
    assert_eq!((&*instance.provider_id, &*instance.instance_type, &*instance.zone), ("fake://1", "by-name", "z-name"));
    assert_eq!(instance.addresses[0].address, "n");
}

#[test]
fn without_zones_a_node_has_none() {
    let instance = describe_node(&Cloud { zones: false, ..cloud() }, "n", None, Detail::Metadata).unwrap();
    assert_eq!((&*instance.provider_id, &*instance.zone, &*instance.region), ("fake://12345", "", ""));
}

#[test]
fn a_cloud_without_ids_says_so_and_is_asked_by_name_only() {
    let cloud = Cloud { id: Err(unsupported()), ..cloud() };
    let instance = describe_node(&cloud, "n", None, Detail::Metadata).unwrap();
    assert_eq!(cloud.calls.take(), ["addresses", "type", "zone"]);
    assert_eq!(instance.provider_id, "");
    assert_eq!(instance.extra, [(WITHOUT_PROVIDER_ID.to_owned(), "true".to_owned())]);
    assert_eq!(describe_node(&cloud, "n", None, Detail::State), Err(unsupported()));
}

#[test]
fn two_failures_are_one_text_and_gone_only_if_both_say_so() {
    let both = |by_id, by_name| {
        describe_node(&Cloud { by_id: Err(by_id), by_name: Err(by_name), ..cloud() }, "n", None, Detail::Metadata)
    };
    let text = |by_id: &str, by_name: &str| {
        format!("error fetching node by provider ID: {by_id}, and error by node name: {by_name}")
    };
    assert_eq!(both(denied(), gone()), Err(Error::Denied(text("expired", "instance not found"))));
    assert_eq!(both(gone(), denied()), Err(Error::Denied(text("instance not found", "expired"))));
    assert_eq!(both(unsupported(), gone()), Err(Error::NotFound(text("unimplemented", "instance not found"))));
    assert_eq!(both(gone(), gone()), Err(Error::NotFound(text("instance not found", "instance not found"))));
}

#[test]
fn only_a_machine_that_does_not_exist_is_gone() {
    let state = |cloud: Cloud| describe_node(&cloud, "n", Some("fake://1"), Detail::State);
    assert!(state(Cloud { exists: Ok(false), ..cloud() }).unwrap_err().is_not_found());
    assert_eq!(state(Cloud { exists: Err(denied()), ..cloud() }), Err(denied()));
    for error in [gone(), unsupported()] {
        assert!(!state(Cloud { shutdown: Err(error), ..cloud() }).unwrap().shutdown);
    }
    assert_eq!(state(Cloud { shutdown: Err(denied()), ..cloud() }), Err(denied()));
    assert!(state(Cloud { shutdown: Ok(true), ..cloud() }).unwrap().shutdown);
    let absent = Cloud { exists: Ok(false), ..cloud() };
    drop(describe_node(&absent, "n", None, Detail::State));
    assert_eq!(absent.calls.take(), ["exists"], "then nothing asks whether it is off");
}

#[test]
fn errors_of_the_instance_id_have_upstreams_words() {
    let id = |error| instance_provider_id(&Cloud { id: Err(error), ..cloud() }, "n").unwrap_err();
    assert_eq!((id(gone()), id(unsupported())), (gone(), unsupported()));
    assert_eq!(id(denied()).message(), "failed to get instance ID from cloud provider: expired");
}
