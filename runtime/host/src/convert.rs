//! Converts between the contract's types and those of `skysail-provider`, field by field.
//!
//! Every conversion destructures without `..`, so a new field is a compile error here. Data from a
//! guest is validated: a text that is too long, a list that is too long, a control character or an
//! invisible one makes the whole result invalid. Values that machines read are never truncated.

mod from_guest;
mod to_guest;

pub(crate) use self::{
    from_guest::{
        address_kind, cluster_names, info, instances, load_balancer_name, origins, owned, problems, result, results,
        routes, short, status, texts, volume_labels, zone,
    },
    to_guest::{
        detail, new_route_to_guest, node_bytes, node_to_guest, route_to_guest, service_to_guest, volume_to_guest,
    },
};

/// The key in the `extra` of `identity.describe` whose value is
/// [`skysail_provider::Info::page_nodes`].
const PAGE_NODES: &str = "page-nodes";
/// The key in a node's `extra` whose value is [`skysail_provider::Node::system_uuid`].
const SYSTEM_UUID: &str = "system-uuid";
/// The key in a route's `extra` whose value `true` stands for
/// [`skysail_provider::Route::enable_node_addresses`].
const ENABLE_NODE_ADDRESSES: &str = "enable-node-addresses";

#[cfg(test)]
mod tests;
