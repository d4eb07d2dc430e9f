//! Upstream's older `Instances` and `Zones` (v1), as the contract's `instances`.
//!
//! A provider that was written before `InstancesV2` answers about one machine at a time, by
//! provider ID or by the node's name. Its author implements [`InstancesV1`], and [`describe`]
//! implements the contract's `instances`:
//!
//! ```
//! use skysail_guest_sdk::{Detail, Instance, Instances, NodeSet, Result, instances_v1::{self, InstancesV1}};
//! # use skysail_guest_sdk::{Error, NodeAddress};
//! # struct Cloud;
//! # impl Cloud { fn load() -> Result<Self> { Ok(Self) } }
//! # impl InstancesV1 for Cloud {
//! #     fn provider_name(&self) -> &str { "example" }
//! #     fn node_addresses(&self, _: &str) -> Result<Vec<NodeAddress>> { Ok(Vec::new()) }
//! #     fn node_addresses_by_provider_id(&self, _: &str) -> Result<Vec<NodeAddress>> { Ok(Vec::new()) }
//! #     fn instance_id(&self, name: &str) -> Result<String> { Ok(name.to_owned()) }
//! #     fn instance_type(&self, _: &str) -> Result<String> { Ok(String::new()) }
//! #     fn instance_type_by_provider_id(&self, _: &str) -> Result<String> { Ok(String::new()) }
//! #     fn instance_exists_by_provider_id(&self, _: &str) -> Result<bool> { Ok(true) }
//! #     fn instance_shutdown_by_provider_id(&self, _: &str) -> Result<bool> { Ok(false) }
//! # }
//! struct Example;
//!
//! impl Instances for Example {
//!     fn describe(nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
//!         Ok(instances_v1::describe(&Cloud::load()?, nodes, detail))
//!     }
//! }
//! ```
//!
//! The adapter acts as upstream's controllers do: it asks by provider ID first and then by name,
//! makes `<name>://<instance ID>` for a node without provider ID, and uses the same words in
//! errors. `InstanceNotFound` is `NotFound`, `NotImplemented` is `Unsupported`, and every other
//! error keeps its case of [`Error`].
//!
//! Each node costs two to four calls, one after the other, so a page of 500 nodes may meet the
//! limits `httpRequests` and `deadlineMs`. For a cloud that can list machines with one request,
//! implement `Instances` itself.

use crate::{Detail, Error, Instance, NodeAddress, NodeSet, Result, legacy::Zone, provider_id};

/// Key of [`Instance::extra`] for a cloud without IDs: the node is initialised without a provider
/// ID.
pub const WITHOUT_PROVIDER_ID: &str = "without-provider-id";

/// Upstream's `Instances`: each function is about one machine.
pub trait InstancesV1 {
    /// Upstream's `ProviderName()`: the scheme of provider IDs.
    fn provider_name(&self) -> &str;

    /// Addresses of a node by its name.
    ///
    /// # Errors
    ///
    /// `NotFound` where the machine does not exist.
    fn node_addresses(&self, name: &str) -> Result<Vec<NodeAddress>>;

    /// Addresses of a node by its provider ID.
    ///
    /// # Errors
    ///
    /// As [`InstancesV1::node_addresses`]; `Unsupported` leaves it to the name.
    fn node_addresses_by_provider_id(&self, provider_id: &str) -> Result<Vec<NodeAddress>>;

    /// The ID that the cloud gave the node's machine: the part of the provider ID after
    /// `<name>://`. A machine that is off has an ID, too.
    ///
    /// # Errors
    ///
    /// `NotFound` where the machine does not exist: the manager may then delete the node.
    /// `Unsupported` where the cloud has no IDs.
    fn instance_id(&self, name: &str) -> Result<String>;

    /// Type of a machine by its node's name; empty where it is unknown.
    ///
    /// # Errors
    ///
    /// As [`InstancesV1::node_addresses`].
    fn instance_type(&self, name: &str) -> Result<String>;

    /// Type of a machine by its provider ID; empty where it is unknown.
    ///
    /// # Errors
    ///
    /// As [`InstancesV1::node_addresses_by_provider_id`].
    fn instance_type_by_provider_id(&self, provider_id: &str) -> Result<String>;

    /// Whether the machine exists, on or off. False deletes the node: return it only where the
    /// cloud says so.
    ///
    /// # Errors
    ///
    /// Every failure that leaves the answer uncertain.
    fn instance_exists_by_provider_id(&self, provider_id: &str) -> Result<bool>;

    /// Whether the machine is off.
    ///
    /// # Errors
    ///
    /// `NotFound` and `Unsupported` mean that it is not.
    fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> Result<bool>;

    /// The older `Zones`; none where the cloud has no zones: then nodes get no labels of zone and
    /// region.
    fn zones(&self) -> Option<&dyn ZonesV1> {
        None
    }
}

/// Upstream's `Zones` without `GetZone`, which no controller calls.
pub trait ZonesV1 {
    /// Zone of a machine by its provider ID.
    ///
    /// # Errors
    ///
    /// `NotFound` where the machine does not exist; `Unsupported` leaves it to the name.
    fn zone_by_provider_id(&self, provider_id: &str) -> Result<Zone>;

    /// Zone of a machine by its node's name.
    ///
    /// # Errors
    ///
    /// As [`ZonesV1::zone_by_provider_id`].
    fn zone_by_node_name(&self, name: &str) -> Result<Zone>;
}

/// Implements `instances.describe`. Reads two columns of the set.
pub fn describe(cloud: &impl InstancesV1, nodes: &NodeSet, detail: Detail) -> Vec<Result<Instance>> {
    let columns = nodes.names().into_iter().zip(nodes.provider_ids());
    columns.map(|(name, id)| describe_node(cloud, &name, id.as_deref(), detail)).collect()
}

/// One node, by its name and, if any, its provider ID. Only [`Detail::State`] asks whether the
/// machine is off, as upstream does.
///
/// # Errors
///
/// `NotFound` where the machine certainly does not exist; else the error of the cloud.
pub fn describe_node(cloud: &impl InstancesV1, name: &str, known_id: Option<&str>, detail: Detail) -> Result<Instance> {
    let id = match known_id.filter(|id| !id.is_empty()) {
        Some(id) => Ok(id.to_owned()),
        None => instance_provider_id(cloud, name),
    };
    match (detail, id) {
        (Detail::State, id) => state(cloud, id?),
        (Detail::Metadata, Ok(id)) => metadata(cloud, name, Some(id)),
        // A cloud without IDs finds addresses by name.
        (Detail::Metadata, Err(Error::Unsupported(_))) => metadata(cloud, name, None),
        (Detail::Metadata, Err(error)) => Err(error),
    }
}

/// `<name>://<instance ID>` of a node that has no provider ID yet, as upstream's
/// `GetInstanceProviderID`.
///
/// # Errors
///
/// `NotFound` and `Unsupported` unchanged; any other error with a text before it.
pub fn instance_provider_id(cloud: &impl InstancesV1, name: &str) -> Result<String> {
    match cloud.instance_id(name) {
        Ok(id) => Ok(provider_id::format(cloud.provider_name(), &id)),
        Err(error @ (Error::NotFound(_) | Error::Unsupported(_))) => Err(error),
        Err(error) => Err(error.context("failed to get instance ID from cloud provider")),
    }
}

/// Asks whether the machine exists, and then whether it is off.
fn state(cloud: &impl InstancesV1, id: String) -> Result<Instance> {
    if !cloud.instance_exists_by_provider_id(&id)? {
        return Err(Error::NotFound(format!("the cloud has no machine {id:?}")));
    }
    let shutdown = match cloud.instance_shutdown_by_provider_id(&id) {
        Ok(shutdown) => shutdown,
        Err(Error::NotFound(_) | Error::Unsupported(_)) => false,
        Err(error) => return Err(error),
    };
    Ok(Instance { shutdown, ..Instance::new(id) })
}

fn metadata(cloud: &impl InstancesV1, name: &str, id: Option<String>) -> Result<Instance> {
    let by_id = id.as_deref();
    let addresses = either(
        by_id.map(|id| cloud.node_addresses_by_provider_id(id)),
        || cloud.node_addresses(name),
        ("error fetching node by provider ID: ", ", and error by node name: "),
    )?;
    let instance_type = either(
        by_id.map(|id| cloud.instance_type_by_provider_id(id)),
        || cloud.instance_type(name),
        ("InstanceType: Error fetching by providerID: ", " Error fetching by NodeName: "),
    )?;
    let zone = cloud.zones().map(|zones| {
        either(
            by_id.map(|id| zones.zone_by_provider_id(id)),
            || zones.zone_by_node_name(name),
            ("Zone: Error fetching by providerID: ", " Error fetching by NodeName: "),
        )
    });
    let Zone { failure_domain: zone, region } =
        zone.transpose()?.unwrap_or(Zone { failure_domain: String::new(), region: String::new() });
    let extra = match id {
        Some(_) => Vec::new(),
        None => vec![(WITHOUT_PROVIDER_ID.to_owned(), "true".to_owned())],
    };
    Ok(Instance { addresses, instance_type, zone, region, extra, ..Instance::new(id.unwrap_or_default()) })
}

/// The answer by provider ID (none where there is no ID), else the one by name, else both errors in
/// one text.
fn either<T>(by_id: Option<Result<T>>, by_name: impl FnOnce() -> Result<T>, (words, and): (&str, &str)) -> Result<T> {
    let id_error = match by_id {
        Some(Ok(answer)) => return Ok(answer),
        Some(Err(error)) => error,
        None => return by_name(),
    };
    by_name().map_err(|name_error| {
        let text = format!("{words}{}{and}{}", id_error.message(), name_error.message());
        // "Gone" and "cannot" are only true if the other question did not fail in another way.
        let keeps_id_error = matches!(name_error, Error::NotFound(_) | Error::Unsupported(_))
            && !matches!(id_error, Error::NotFound(_) | Error::Unsupported(_));
        if keeps_id_error { id_error } else { name_error }.with_message(text)
    })
}

#[cfg(test)]
mod tests;
