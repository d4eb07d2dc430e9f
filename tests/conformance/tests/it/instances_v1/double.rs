//! Upstream's test double for `Instances` and `Zones`, behind the SDK's adapter and the conversions
//! that the host does in production.

use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use skysail_guest_sdk::{
    self as sdk,
    instances_v1::{self, InstancesV1, ZonesV1},
};
use skysail_provider::{
    AddressKind, Call, Code, Detail, Error, Info, Instance, Instances, NODES_PER_PAGE, NodeAddress, NodeSet, Provider,
    Result,
};

type Answer<T> = sdk::Result<T>;

/// The cloud's answers, the same for every machine.
pub(super) struct Knobs {
    pub(super) addresses: Vec<sdk::NodeAddress>,
    pub(super) instance_id: Answer<String>,
    pub(super) instance_type: Answer<String>,
    pub(super) exists: Answer<bool>,
    pub(super) shutdown: Answer<bool>,
    pub(super) zone: Option<sdk::legacy::Zone>,
}

/// A cloud with upstream's older interface.
#[derive(Clone)]
pub(super) struct Double {
    name: String,
    pub(super) knobs: Arc<Mutex<Knobs>>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl std::fmt::Debug for Double {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Double").finish_non_exhaustive()
    }
}

impl Double {
    pub(super) fn new(name: &str, knobs: Knobs) -> Self {
        Self { name: name.to_owned(), knobs: Arc::new(Mutex::new(knobs)), calls: Arc::default() }
    }

    /// The calls since the last call.
    pub(super) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    fn asked(&self, call: &str) -> MutexGuard<'_, Knobs> {
        self.calls.lock().unwrap().push(call.to_owned());
        self.knobs.lock().unwrap()
    }
}

impl InstancesV1 for Double {
    fn provider_name(&self) -> &str {
        &self.name
    }
    fn node_addresses(&self, _name: &str) -> Answer<Vec<sdk::NodeAddress>> {
        Ok(self.asked("node-addresses").addresses.clone())
    }
    fn node_addresses_by_provider_id(&self, _id: &str) -> Answer<Vec<sdk::NodeAddress>> {
        Ok(self.asked("node-addresses-by-provider-id").addresses.clone())
    }
    fn instance_id(&self, _name: &str) -> Answer<String> {
        self.asked("instance-id").instance_id.clone()
    }
    fn instance_type(&self, _name: &str) -> Answer<String> {
        self.asked("instance-type").instance_type.clone()
    }
    fn instance_type_by_provider_id(&self, _id: &str) -> Answer<String> {
        self.asked("instance-type-by-provider-id").instance_type.clone()
    }
    fn instance_exists_by_provider_id(&self, _id: &str) -> Answer<bool> {
        self.asked("instance-exists-by-provider-id").exists.clone()
    }
    fn instance_shutdown_by_provider_id(&self, id: &str) -> Answer<bool> {
        let knobs = self.asked("instance-shutdown-by-provider-id");
        if id.is_empty() { Err(sdk::Error::Internal("the ID is empty".to_owned())) } else { knobs.shutdown.clone() }
    }
    fn zones(&self) -> Option<&dyn ZonesV1> {
        self.knobs.lock().unwrap().zone.is_some().then_some(self)
    }
}

impl ZonesV1 for Double {
    fn zone_by_provider_id(&self, _id: &str) -> Answer<sdk::legacy::Zone> {
        Ok(self.asked("get-zone-by-provider-id").zone.clone().unwrap())
    }
    fn zone_by_node_name(&self, _name: &str) -> Answer<sdk::legacy::Zone> {
        Ok(self.asked("get-zone-by-node-name").zone.clone().unwrap())
    }
}

impl Provider for Double {
    fn info(&self) -> Option<Arc<Info>> {
        Some(Arc::new(Info {
            name: self.name.clone(),
            version: "0.0.0".to_owned(),
            description: "upstream's older interface".to_owned(),
            provider_id_schemes: vec![self.name.clone()],
            has_cluster_id: true,
            serial_load_balancers: false,
            page_nodes: NODES_PER_PAGE,
        }))
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
}

#[async_trait]
impl Instances for Double {
    async fn describe(&self, _call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        let detail = match detail {
            Detail::State => sdk::Detail::State,
            Detail::Metadata => sdk::Detail::Metadata,
        };
        let one = |node: &Arc<skysail_provider::Node>| {
            instances_v1::describe_node(self, &node.name, node.provider_id.as_deref(), detail)
                .map(instance)
                .map_err(error)
        };
        Ok(nodes.as_slice().iter().map(one).collect())
    }
}

fn instance(instance: sdk::Instance) -> Instance {
    let sdk::Instance { provider_id, shutdown, instance_type, zone, region, addresses, labels, extra } = instance;
    Instance {
        provider_id,
        without_provider_id: extra.iter().any(|(key, _)| key == instances_v1::WITHOUT_PROVIDER_ID),
        shutdown,
        instance_type,
        zone,
        region,
        addresses: addresses.into_iter().map(address).collect(),
        labels: labels.into_iter().collect(),
    }
}

fn address(address: sdk::NodeAddress) -> NodeAddress {
    let kind = match address.kind {
        sdk::AddressKind::Hostname => AddressKind::Hostname,
        sdk::AddressKind::InternalIp => AddressKind::InternalIp,
        sdk::AddressKind::ExternalIp => AddressKind::ExternalIp,
        sdk::AddressKind::InternalDns => AddressKind::InternalDns,
        sdk::AddressKind::ExternalDns => AddressKind::ExternalDns,
        sdk::AddressKind::Other(kind) => AddressKind::Other(kind),
    };
    NodeAddress { kind, address: address.address }
}

fn error(error: sdk::Error) -> Error {
    let code = match &error {
        sdk::Error::NotFound(_) => Code::NotFound,
        sdk::Error::Unsupported(_) => Code::Unsupported,
        sdk::Error::Denied(_) => Code::Denied,
        _ => Code::Internal,
    };
    Error::new(code, error.message())
}
