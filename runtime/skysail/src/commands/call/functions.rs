//! The functions of the contract: their arguments from JSON, their results to JSON.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{Value, json};
use skysail_controllers::{provider_node, provider_service, provider_volume};
use skysail_host::slot::Slot;
use skysail_provider::{
    Call, Clusters, Code, Detail, Error, Instance, Instances as _, LoadBalancerInventory, LoadBalancers,
    NODES_PER_PAGE, NewRoute, NodeLegacy as _, NodeSet, OwnedLoadBalancer, PersistentVolume,
    PersistentVolumeLabels as _, Provider as _, Result, Route, Routes, Service, Zones as _,
};

use super::identity;
use crate::args::function_names;

/// One call, ready to be made.
#[derive(Clone, Debug)]
pub(super) enum Function {
    /// Needs no cloud-config.
    Identity(identity::Function),
    /// Needs a component that accepted its cloud-config.
    Provider(ProviderFunction),
}

/// A function of the provider with its arguments, as `--json` has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all_fields = "camelCase", deny_unknown_fields)]
pub(super) enum ProviderFunction {
    #[serde(rename = "load-balancers.name")]
    Name(OfService),
    #[serde(rename = "load-balancers.get")]
    Get(OfService),
    #[serde(rename = "load-balancers.ensure")]
    Ensure(WithNodes),
    #[serde(rename = "load-balancers.update")]
    Update(WithNodes),
    #[serde(rename = "load-balancers.ensure-deleted")]
    EnsureDeleted(OfService),
    #[serde(rename = "load-balancer-inventory.list")]
    InventoryList(OfCluster),
    #[serde(rename = "load-balancer-inventory.delete")]
    InventoryDelete {
        #[serde(default = "kubernetes")]
        cluster: String,
        name: String,
        service: Option<(String, String, String)>,
    },
    #[serde(rename = "instances.describe")]
    Instances {
        #[serde(deserialize_with = "nodes")]
        nodes: NodeSet,
        #[serde(default)]
        detail: DetailArgument,
    },
    #[serde(rename = "routes.list")]
    RoutesList(OfCluster),
    #[serde(rename = "routes.create")]
    RoutesCreate {
        #[serde(default = "kubernetes")]
        cluster: String,
        routes: Vec<NewRoute>,
    },
    #[serde(rename = "routes.delete")]
    RoutesDelete {
        #[serde(default = "kubernetes")]
        cluster: String,
        routes: Vec<Route>,
    },
    #[serde(rename = "zones.current")]
    ZonesCurrent {},
    #[serde(rename = "zones.by-provider-id")]
    ZonesByProviderId { provider_id: String },
    #[serde(rename = "zones.by-node-name")]
    ZonesByNodeName { node: String },
    #[serde(rename = "clusters.list")]
    ClustersList {},
    #[serde(rename = "clusters.master")]
    ClustersMaster(OfCluster),
    #[serde(rename = "node-legacy.add-ssh-key-to-all-instances")]
    AddSshKey { user: String, key: String },
    #[serde(rename = "node-legacy.current-node-name")]
    CurrentNodeName { hostname: String },
    #[serde(rename = "node-legacy.scrub-dns")]
    ScrubDns { nameservers: Vec<String>, searches: Vec<String> },
    #[serde(rename = "persistent-volume-labels.labels")]
    VolumeLabels {
        #[serde(default = "kubernetes")]
        cluster: String,
        #[serde(deserialize_with = "volume")]
        volume: Box<PersistentVolume>,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfCluster {
    #[serde(default = "kubernetes")]
    cluster: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfService {
    #[serde(default = "kubernetes")]
    cluster: String,
    #[serde(deserialize_with = "service")]
    service: Box<Service>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WithNodes {
    #[serde(default = "kubernetes")]
    cluster: String,
    #[serde(deserialize_with = "service")]
    service: Box<Service>,
    #[serde(deserialize_with = "nodes")]
    nodes: NodeSet,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum DetailArgument {
    State,
    #[default]
    Metadata,
}

fn kubernetes() -> String {
    "kubernetes".to_owned()
}

/// Reads the arguments of a function. Does not check whether the component exports the function.
pub(super) fn parse(function: &str, arguments: Value) -> anyhow::Result<Function> {
    if !function_names().any(|known| known == function) {
        bail!("the contract has no function {function:?}; 'skysail call --help' lists all functions");
    }
    let named = json!({ function: arguments });
    let parsed = match function.starts_with("identity.") {
        true => serde_json::from_value(named).map(Function::Identity),
        false => serde_json::from_value(named).map(Function::Provider),
    };
    parsed.with_context(|| format!("the arguments of {function} are wrong; 'skysail call --help' lists the arguments"))
}

/// Reads an argument that serde alone cannot read.
fn argument<'de, D: Deserializer<'de>, A: DeserializeOwned, T>(
    from: D,
    read: impl FnOnce(A) -> anyhow::Result<T>,
) -> std::result::Result<T, D::Error> {
    read(A::deserialize(from)?).map_err(|error| D::Error::custom(format!("{error:#}")))
}

fn volume<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Box<PersistentVolume>, D::Error> {
    argument(from, |object: Value| {
        let object: core::PersistentVolume =
            serde_json::from_value(object).context("volume is not a Kubernetes PersistentVolume")?;
        let volume = provider_volume(&object);
        volume.map(Box::new).context("volume has no source that a cloud provider serves (csi, or a cloud's own type); the manager would call no provider for it")
    })
}

fn service<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Box<Service>, D::Error> {
    argument(from, |object: Value| {
        let object: core::Service = serde_json::from_value(object).context("service is not a Kubernetes Service")?;
        let ObjectMeta { name, namespace, uid, .. } = &object.metadata;
        for (field, value) in [("name", name), ("namespace", namespace), ("uid", uid)] {
            if value.as_ref().is_none_or(String::is_empty) {
                bail!("service has no metadata.{field}; give the object as `kubectl get -o json` prints it");
            }
        }
        match provider_service(&object) {
            Ok(service) => Ok(Box::new(service)),
            Err(problems) => bail!("service: {}", problems.join("; ")),
        }
    })
}

fn nodes<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<NodeSet, D::Error> {
    let node = |(index, object)| {
        let object: core::Node =
            serde_json::from_value(object).with_context(|| format!("nodes[{index}] is not a Kubernetes Node"))?;
        if object.metadata.name.as_ref().is_none_or(String::is_empty) {
            bail!("nodes[{index}] has no metadata.name; give the object as `kubectl get -o json` prints it");
        }
        Ok(Arc::new(provider_node(&object)))
    };
    argument(from, |objects: Vec<Value>| {
        Ok(NodeSet::new(objects.into_iter().enumerate().map(node).collect::<anyhow::Result<Vec<_>>>()?))
    })
}

impl ProviderFunction {
    /// Makes the call.
    pub(super) async fn call(self, slot: &Slot, call: &Call) -> Result<Value> {
        match self {
            Self::Name(OfService { cluster, service }) => {
                value(LoadBalancers::name(slot, call, &cluster, &service).await?)
            }
            Self::Get(OfService { cluster, service }) => value(slot.get(call, &cluster, &service).await?),
            Self::EnsureDeleted(OfService { cluster, service }) => {
                value(slot.ensure_deleted(call, &cluster, &service).await?)
            }
            Self::Ensure(WithNodes { cluster, service, nodes }) => {
                value(slot.ensure(call, &cluster, &service, &nodes).await?)
            }
            Self::Update(WithNodes { cluster, service, nodes }) => {
                value(slot.update(call, &cluster, &service, &nodes).await?)
            }
            Self::InventoryList(OfCluster { cluster }) => {
                value(LoadBalancerInventory::list(slot, call, &cluster).await?)
            }
            Self::InventoryDelete { cluster, name, service } => {
                let share = OwnedLoadBalancer { name, service };
                value(LoadBalancerInventory::delete(slot, call, &cluster, &share).await?)
            }
            Self::Instances { nodes, detail } => {
                let detail = match detail {
                    DetailArgument::State => Detail::State,
                    DetailArgument::Metadata => Detail::Metadata,
                };
                value(each(describe(slot, call, &nodes, detail).await?))
            }
            Self::RoutesList(OfCluster { cluster }) => value(Routes::list(slot, call, &cluster).await?),
            Self::RoutesCreate { cluster, routes } => value(each(slot.create(call, &cluster, &routes).await?)),
            Self::RoutesDelete { cluster, routes } => value(each(Routes::delete(slot, call, &cluster, &routes).await?)),
            Self::ZonesCurrent {} => value(slot.current(call).await?),
            Self::ZonesByProviderId { provider_id } => value(slot.by_provider_id(call, &provider_id).await?),
            Self::ZonesByNodeName { node } => value(slot.by_node_name(call, &node).await?),
            Self::ClustersList {} => value(Clusters::list(slot, call).await?),
            Self::ClustersMaster(OfCluster { cluster }) => value(slot.master(call, &cluster).await?),
            Self::AddSshKey { user, key } => {
                value(slot.add_ssh_key_to_all_instances(call, &user, key.as_bytes()).await?)
            }
            Self::CurrentNodeName { hostname } => value(slot.current_node_name(call, &hostname).await?),
            Self::ScrubDns { nameservers, searches } => {
                let (nameservers, searches) = slot.scrub_dns(call, &nameservers, &searches).await?;
                Ok(json!({"nameservers": nameservers, "searches": searches}))
            }
            Self::VolumeLabels { cluster, volume } => value(slot.labels(call, &cluster, &volume).await?),
        }
    }
}

/// Describes the nodes in pages of the provider's size, up to the first page that fails.
async fn describe(slot: &Slot, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
    let page_nodes = slot.info().map_or(NODES_PER_PAGE, |info| info.page_nodes);
    if nodes.len() <= page_nodes {
        return slot.describe(call, nodes, detail).await;
    }
    let mut instances = Vec::with_capacity(nodes.len());
    for page in nodes.pages(page_nodes) {
        instances.extend(slot.describe(call, &page, detail).await?);
    }
    Ok(instances)
}

pub(super) fn value(answer: impl Serialize) -> Result<Value> {
    serde_json::to_value(answer)
        .map_err(|error| Error::new(Code::Internal, format!("cannot encode the answer: {error}")))
}

/// One entry for each result: the answer, or the code and the message of the error.
fn each<T: Serialize>(results: Vec<Result<T>>) -> Vec<Value> {
    let entry = |result: Result<T>| match result {
        Ok(answer) => json!({"ok": answer}),
        Err(Error { code, message, retry_after: Some(after), .. }) => {
            let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            json!({"error": {"code": code.category(), "message": message, "retryAfterMs": after}})
        }
        Err(error) => json!({"error": {"code": error.code.category(), "message": error.message}}),
    };
    results.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use wit_parser::{Resolve, WorldItem};

    use super::{function_names, parse};

    /// `<interface>.<function>` of everything that a component may export.
    fn functions_of_the_contract() -> BTreeSet<String> {
        let mut resolve = Resolve::default();
        let [_, package] = ["v0.1.0", "legacy-v0.1.0"].map(|folder| {
            let folder = format!("{}/../../wit/{folder}", env!("CARGO_MANIFEST_DIR"));
            resolve.push_dir(folder).expect("the contract parses").0
        });
        let world = resolve.select_world(&[package], Some("complete-provider")).expect("the world is there");
        let interfaces = resolve.worlds[world].exports.values().filter_map(|item| match item {
            WorldItem::Interface { id, .. } => Some(&resolve.interfaces[*id]),
            _ => None,
        });
        let functions = interfaces.flat_map(|interface| {
            let name = interface.name.as_deref().unwrap_or_default();
            interface.functions.keys().map(move |function| format!("{name}.{function}"))
        });
        functions.collect()
    }

    #[test]
    fn every_function_of_the_contract_can_be_called_and_is_in_the_help_text() {
        let contract = functions_of_the_contract();
        assert_eq!(function_names().map(str::to_owned).collect::<BTreeSet<_>>(), contract);
        for function in contract {
            let error = parse(&function, json!({"no-such-argument": 1})).expect_err("the argument is unknown");
            assert!(format!("{error:#}").contains("no-such-argument"), "{function}: {error:#}");
        }
    }

    #[test]
    fn an_object_without_its_identity_is_refused() {
        let ports = json!({"ports": [{"port": 80}]});
        let without_uid = json!({"service": {"metadata": {"name": "web", "namespace": "default"}, "spec": ports}});
        let error = parse("load-balancers.name", without_uid).unwrap_err();
        assert!(format!("{error:#}").contains("service has no metadata.uid"), "{error:#}");
        let error = parse("instances.describe", json!({"nodes": [{}]})).unwrap_err();
        assert!(format!("{error:#}").contains("nodes[0] has no metadata.name"), "{error:#}");
        let local = json!({"volume": {"metadata": {"name": "a"}, "spec": {"local": {"path": "/"}}}});
        let error = parse("persistent-volume-labels.labels", local).unwrap_err();
        assert!(format!("{error:#}").contains("volume has no source that a cloud provider serves"), "{error:#}");
    }

    #[test]
    fn the_error_about_an_unknown_function_says_how_to_list_the_functions() {
        for function in ["describe", "identity.nothing", "volumes.create"] {
            let error = parse(function, json!({})).expect_err("there is no such function");
            assert!(error.to_string().contains("skysail call --help"), "{error}");
        }
    }
}
