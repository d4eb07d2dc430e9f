//! The functions of the contract: their arguments from JSON, their results to JSON.

mod arguments;

use std::sync::Arc;

use anyhow::{Context as _, bail};
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use skysail_controllers::{provider_node, provider_service, provider_volume};
use skysail_host::slot::Slot;
use skysail_provider::{
    Call, Clusters, Code, Detail, Error, Instance, Instances as _, LoadBalancerInventory, LoadBalancers,
    NODES_PER_PAGE, NodeLegacy as _, NodeSet, PersistentVolume, PersistentVolumeLabels as _, Result, Route, Routes,
    Service, Zones as _,
};

use self::arguments::{
    BackendsArgument, ClusterArgument, CreateRoutesArgument, DeleteRoutesArgument, DetailArgument, DnsArgument,
    HostnameArgument, InstancesArgument, NamedArgument, NodeArgument, Nothing, ProviderIdArgument, ServiceArgument,
    SshKeyArgument, TextArgument, VolumeArgument,
};
use super::identity;

/// One call, ready to be made.
#[derive(Debug)]
pub(super) enum Function {
    /// Needs no cloud-config.
    Identity(identity::Function),
    /// Needs a release that serves.
    Provider(ProviderFunction),
}

/// A call of a provider's optional interface.
#[derive(Debug)]
pub(super) enum ProviderFunction {
    LoadBalancer { verb: LoadBalancerVerb, cluster: String, service: Box<Service> },
    Backends { verb: BackendsVerb, cluster: String, service: Box<Service>, nodes: NodeSet },
    InventoryList { cluster: String },
    InventoryDelete { cluster: String, name: String },
    Instances { nodes: NodeSet, detail: Detail },
    RoutesList { cluster: String },
    RoutesCreate { cluster: String, routes: Vec<(String, Route)> },
    RoutesDelete { cluster: String, routes: Vec<Route> },
    ZonesCurrent,
    ZonesByProviderId { provider_id: String },
    ZonesByNodeName { node: String },
    ClustersList,
    ClustersMaster { cluster: String },
    AddSshKey { user: String, key: String },
    CurrentNodeName { hostname: String },
    ScrubDns { nameservers: Vec<String>, searches: Vec<String> },
    VolumeLabels { cluster: String, volume: Box<PersistentVolume> },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LoadBalancerVerb {
    Name,
    Get,
    EnsureDeleted,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum BackendsVerb {
    Ensure,
    Update,
}

/// Parses the function and its arguments; nothing is called yet.
///
/// # Errors
/// The function is unknown, or the arguments do not fit it.
pub(super) fn parse(function: &str, arguments: Value, config: &str) -> anyhow::Result<Function> {
    let Some((interface, name)) = function.split_once('.') else {
        bail!("{function:?} is not <interface>.<function>; 'skysail call --help' lists them");
    };
    let what = || format!("the arguments of {function}; 'skysail call --help' lists them");
    let parsed = match interface {
        "identity" => identity(name, arguments, config).map(|function| function.map(Function::Identity)),
        _ => provider(interface, name, arguments).map(|function| function.map(Function::Provider)),
    };
    match parsed.with_context(what)? {
        Some(function) => Ok(function),
        None => bail!("the contract has no function {function}; 'skysail call --help' lists them"),
    }
}

fn read<T: DeserializeOwned>(arguments: Value) -> anyhow::Result<T> {
    Ok(serde_json::from_value(arguments)?)
}

fn identity(name: &str, arguments: Value, config: &str) -> anyhow::Result<Option<identity::Function>> {
    Ok(Some(match name {
        "describe" => {
            let Nothing {} = read(arguments)?;
            identity::Function::Describe
        }
        "check-config" => {
            let TextArgument { text } = read(arguments)?;
            identity::Function::CheckConfig { text: text.unwrap_or_else(|| config.to_owned()) }
        }
        _ => return Ok(None),
    }))
}

/// A function of an optional interface; `None` if the contract has no such function.
type Parsed = anyhow::Result<Option<ProviderFunction>>;

fn provider(interface: &str, name: &str, arguments: Value) -> Parsed {
    match interface {
        "load-balancers" => load_balancers(name, arguments),
        "load-balancer-inventory" => inventory(name, arguments),
        "instances" => instances(name, arguments),
        "routes" => routes(name, arguments),
        "zones" => zones(name, arguments),
        "clusters" => clusters(name, arguments),
        "node-legacy" => node_legacy(name, arguments),
        "persistent-volume-labels" => volumes(name, arguments),
        _ => Ok(None),
    }
}

fn load_balancers(name: &str, arguments: Value) -> Parsed {
    let verb = match name {
        "name" => LoadBalancerVerb::Name,
        "get" => LoadBalancerVerb::Get,
        "ensure-deleted" => LoadBalancerVerb::EnsureDeleted,
        "ensure" => return backends(BackendsVerb::Ensure, arguments),
        "update" => return backends(BackendsVerb::Update, arguments),
        _ => return Ok(None),
    };
    let ServiceArgument { cluster, service: object } = read(arguments)?;
    Ok(Some(ProviderFunction::LoadBalancer { verb, cluster, service: service(object)? }))
}

fn backends(verb: BackendsVerb, arguments: Value) -> Parsed {
    let BackendsArgument { cluster, service: object, nodes: objects } = read(arguments)?;
    Ok(Some(ProviderFunction::Backends { verb, cluster, service: service(object)?, nodes: nodes(objects)? }))
}

fn inventory(name: &str, arguments: Value) -> Parsed {
    Ok(Some(match name {
        "list" => {
            let ClusterArgument { cluster } = read(arguments)?;
            ProviderFunction::InventoryList { cluster }
        }
        "delete" => {
            let NamedArgument { cluster, name } = read(arguments)?;
            ProviderFunction::InventoryDelete { cluster, name }
        }
        _ => return Ok(None),
    }))
}

fn instances(name: &str, arguments: Value) -> Parsed {
    if name != "describe" {
        return Ok(None);
    }
    let InstancesArgument { nodes: objects, detail } = read(arguments)?;
    let detail = match detail {
        DetailArgument::State => Detail::State,
        DetailArgument::Metadata => Detail::Metadata,
    };
    Ok(Some(ProviderFunction::Instances { nodes: nodes(objects)?, detail }))
}

fn routes(name: &str, arguments: Value) -> Parsed {
    Ok(Some(match name {
        "list" => {
            let ClusterArgument { cluster } = read(arguments)?;
            ProviderFunction::RoutesList { cluster }
        }
        "create" => {
            let CreateRoutesArgument { cluster, routes } = read(arguments)?;
            ProviderFunction::RoutesCreate {
                cluster,
                routes: routes.into_iter().map(hinted).collect::<anyhow::Result<_>>()?,
            }
        }
        "delete" => {
            let DeleteRoutesArgument { cluster, routes } = read(arguments)?;
            ProviderFunction::RoutesDelete { cluster, routes }
        }
        _ => return Ok(None),
    }))
}

/// A route and its name hint.
fn hinted(mut route: Value) -> anyhow::Result<(String, Route)> {
    let hint = route.as_object_mut().and_then(|route| route.remove("nameHint"));
    let hint = hint.context("a route to be created needs a nameHint")?;
    Ok((serde_json::from_value(hint).context("nameHint is a string")?, read(route)?))
}

fn zones(name: &str, arguments: Value) -> Parsed {
    Ok(Some(match name {
        "current" => {
            let Nothing {} = read(arguments)?;
            ProviderFunction::ZonesCurrent
        }
        "by-provider-id" => {
            let ProviderIdArgument { provider_id } = read(arguments)?;
            ProviderFunction::ZonesByProviderId { provider_id }
        }
        "by-node-name" => {
            let NodeArgument { node } = read(arguments)?;
            ProviderFunction::ZonesByNodeName { node }
        }
        _ => return Ok(None),
    }))
}

fn clusters(name: &str, arguments: Value) -> Parsed {
    Ok(Some(match name {
        "list" => {
            let Nothing {} = read(arguments)?;
            ProviderFunction::ClustersList
        }
        "master" => {
            let ClusterArgument { cluster } = read(arguments)?;
            ProviderFunction::ClustersMaster { cluster }
        }
        _ => return Ok(None),
    }))
}

fn node_legacy(name: &str, arguments: Value) -> Parsed {
    Ok(Some(match name {
        "add-ssh-key-to-all-instances" => {
            let SshKeyArgument { user, key } = read(arguments)?;
            ProviderFunction::AddSshKey { user, key }
        }
        "current-node-name" => {
            let HostnameArgument { hostname } = read(arguments)?;
            ProviderFunction::CurrentNodeName { hostname }
        }
        "scrub-dns" => {
            let DnsArgument { nameservers, searches } = read(arguments)?;
            ProviderFunction::ScrubDns { nameservers, searches }
        }
        _ => return Ok(None),
    }))
}

fn volumes(name: &str, arguments: Value) -> Parsed {
    if name != "labels" {
        return Ok(None);
    }
    let VolumeArgument { cluster, volume: object } = read(arguments)?;
    Ok(Some(ProviderFunction::VolumeLabels { cluster, volume: volume(object)? }))
}

fn volume(object: Value) -> anyhow::Result<Box<PersistentVolume>> {
    let object: core::PersistentVolume =
        serde_json::from_value(object).context("volume is not a Kubernetes PersistentVolume")?;
    let volume = provider_volume(&object);
    volume.map(Box::new).context("volume is not a cloud volume; the manager would call no provider for it")
}

fn service(object: Value) -> anyhow::Result<Box<Service>> {
    let object: core::Service = serde_json::from_value(object).context("service is not a Kubernetes Service")?;
    let ObjectMeta { name, namespace, uid, .. } = &object.metadata;
    for (field, value) in [("name", name), ("namespace", namespace), ("uid", uid)] {
        // Load balancers are named after these fields: without one the name could be another's.
        if value.as_ref().is_none_or(String::is_empty) {
            bail!("service has no metadata.{field}; give the object as `kubectl get -o json` prints it");
        }
    }
    match provider_service(&object) {
        Ok(service) => Ok(Box::new(service)),
        Err(problems) => bail!("service: {}", problems.join("; ")),
    }
}

fn nodes(objects: Vec<Value>) -> anyhow::Result<NodeSet> {
    let node = |(index, object)| {
        let object: core::Node =
            serde_json::from_value(object).with_context(|| format!("nodes[{index}] is not a Kubernetes Node"))?;
        if object.metadata.name.as_ref().is_none_or(String::is_empty) {
            bail!("nodes[{index}] has no metadata.name; give the object as `kubectl get -o json` prints it");
        }
        Ok(Arc::new(provider_node(&object)))
    };
    Ok(NodeSet::new(objects.into_iter().enumerate().map(node).collect::<anyhow::Result<Vec<_>>>()?))
}

impl ProviderFunction {
    /// Makes the call and turns its answer into JSON.
    pub(super) async fn call(self, slot: &Slot, call: &Call) -> Result<Value> {
        match self {
            Self::LoadBalancer { verb: LoadBalancerVerb::Name, cluster, service } => {
                value(LoadBalancers::name(slot, call, &cluster, &service).await?)
            }
            Self::LoadBalancer { verb: LoadBalancerVerb::Get, cluster, service } => {
                value(slot.get(call, &cluster, &service).await?)
            }
            Self::LoadBalancer { verb: LoadBalancerVerb::EnsureDeleted, cluster, service } => {
                value(slot.ensure_deleted(call, &cluster, &service).await?)
            }
            Self::Backends { verb: BackendsVerb::Ensure, cluster, service, nodes } => {
                value(slot.ensure(call, &cluster, &service, &nodes).await?)
            }
            Self::Backends { verb: BackendsVerb::Update, cluster, service, nodes } => {
                value(slot.update(call, &cluster, &service, &nodes).await?)
            }
            Self::InventoryList { cluster } => value(LoadBalancerInventory::list(slot, call, &cluster).await?),
            Self::InventoryDelete { cluster, name } => {
                value(LoadBalancerInventory::delete(slot, call, &cluster, &name).await?)
            }
            Self::Instances { nodes, detail } => value(each(describe(slot, call, &nodes, detail).await?)),
            Self::RoutesList { cluster } => value(Routes::list(slot, call, &cluster).await?),
            Self::RoutesCreate { cluster, routes } => value(each(slot.create(call, &cluster, &routes).await?)),
            Self::RoutesDelete { cluster, routes } => value(each(Routes::delete(slot, call, &cluster, &routes).await?)),
            Self::ZonesCurrent => value(slot.current(call).await?),
            Self::ZonesByProviderId { provider_id } => value(slot.by_provider_id(call, &provider_id).await?),
            Self::ZonesByNodeName { node } => value(slot.by_node_name(call, &node).await?),
            Self::ClustersList => value(Clusters::list(slot, call).await?),
            Self::ClustersMaster { cluster } => value(slot.master(call, &cluster).await?),
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

/// Describes the nodes in pages of the contract's size, up to the first page that fails.
async fn describe(slot: &Slot, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
    if nodes.len() <= NODES_PER_PAGE {
        return slot.describe(call, nodes, detail).await;
    }
    let mut instances = Vec::with_capacity(nodes.len());
    for page in nodes.pages(NODES_PER_PAGE) {
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

    use super::{super::help::function_names, parse};

    /// `<interface>.<function>` of everything that a component may export.
    fn functions_of_the_contract() -> BTreeSet<String> {
        let mut resolve = Resolve::default();
        let (package, _) =
            resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/v0.1.0")).expect("the contract parses");
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
            let error = parse(&function, json!({"no-such-argument": 1}), "").expect_err("the argument is unknown");
            assert!(format!("{error:#}").contains("no-such-argument"), "{function}: {error:#}");
        }
    }

    #[test]
    fn an_object_without_its_identity_is_refused() {
        let ports = json!({"ports": [{"port": 80}]});
        let without_uid = json!({"service": {"metadata": {"name": "web", "namespace": "default"}, "spec": ports}});
        let error = parse("load-balancers.name", without_uid, "").unwrap_err();
        assert!(format!("{error:#}").contains("service has no metadata.uid"), "{error:#}");
        let error = parse("instances.describe", json!({"nodes": [{}]}), "").unwrap_err();
        assert!(format!("{error:#}").contains("nodes[0] has no metadata.name"), "{error:#}");
        let local = json!({"volume": {"metadata": {"name": "a"}, "spec": {"local": {"path": "/"}}}});
        let error = parse("persistent-volume-labels.labels", local, "").unwrap_err();
        assert!(format!("{error:#}").contains("volume is not a cloud volume"), "{error:#}");
    }

    #[test]
    fn the_error_about_an_unknown_function_says_how_to_list_the_functions() {
        for function in ["describe", "identity.nothing", "volumes.create"] {
            let error = parse(function, json!({}), "").expect_err("there is no such function");
            assert!(error.to_string().contains("skysail call --help"), "{error}");
        }
    }
}
