//! The provider itself: its identity and its interfaces.

use std::{fmt, sync::Arc};

use serde::Serialize;

use crate::{
    Clusters, Instances, LoadBalancerInventory, LoadBalancers, NodeLegacy, PersistentVolumeLabels, Routes, Zones,
};

/// The identity of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    /// As upstream's `ProviderName()`.
    pub name: String,
    /// Version of the component, shown to people.
    pub version: String,
    /// One line, shown to people.
    pub description: String,
    /// The schemes of this provider's IDs in `spec.providerID`, without `://`.
    pub provider_id_schemes: Vec<String>,
    /// As upstream's `HasClusterID()`.
    pub has_cluster_id: bool,
    /// At most one call of [`LoadBalancers::ensure`], [`LoadBalancers::update`],
    /// [`LoadBalancers::ensure_deleted`] and [`LoadBalancerInventory::delete`] may run at a time,
    /// across all Services.
    pub serial_load_balancers: bool,
    /// The maximum number of nodes in one call of [`Instances::describe`], 1 to
    /// [`crate::NODES_PER_PAGE`].
    pub page_nodes: usize,
}

/// The interfaces that a provider may have besides its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Interface {
    /// [`LoadBalancers`].
    LoadBalancers,
    /// [`LoadBalancerInventory`].
    LoadBalancerInventory,
    /// [`Instances`].
    Instances,
    /// [`Routes`].
    Routes,
    /// [`Zones`].
    Zones,
    /// [`Clusters`].
    Clusters,
    /// [`NodeLegacy`].
    NodeLegacy,
    /// [`PersistentVolumeLabels`].
    PersistentVolumeLabels,
}

impl Interface {
    /// All interfaces, in the order of declaration.
    pub const ALL: [Self; 8] = [
        Self::LoadBalancers,
        Self::LoadBalancerInventory,
        Self::Instances,
        Self::Routes,
        Self::Zones,
        Self::Clusters,
        Self::NodeLegacy,
        Self::PersistentVolumeLabels,
    ];

    /// Whether only tools call the interface: no controller does.
    #[must_use]
    pub const fn is_for_tools(self) -> bool {
        match self {
            Self::Zones | Self::Clusters | Self::NodeLegacy => true,
            Self::LoadBalancers
            | Self::LoadBalancerInventory
            | Self::Instances
            | Self::Routes
            | Self::PersistentVolumeLabels => false,
        }
    }

    /// The interface's name in the contract.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LoadBalancers => "load-balancers",
            Self::LoadBalancerInventory => "load-balancer-inventory",
            Self::Instances => "instances",
            Self::Routes => "routes",
            Self::Zones => "zones",
            Self::Clusters => "clusters",
            Self::NodeLegacy => "node-legacy",
            Self::PersistentVolumeLabels => "persistent-volume-labels",
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A cloud provider. Each interface is optional, as upstream's `(impl, supported)`.
///
/// The supported interfaces can change while the process runs: a swap can add one. So callers ask
/// before each use and do not keep the result. Dropping the future of a call cancels the call.
pub trait Provider: Send + Sync + fmt::Debug {
    /// The identity of the provider; none while no release serves.
    fn info(&self) -> Option<Arc<Info>>;

    /// Load balancers for Services.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// The load balancers that this cluster owns in the cloud.
    fn load_balancer_inventory(&self) -> Option<&dyn LoadBalancerInventory> {
        None
    }

    /// The cloud's machines behind the nodes.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    /// Routes to pods.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    /// The older look-up of zones.
    fn zones(&self) -> Option<&dyn Zones> {
        None
    }

    /// The older look-up of clusters.
    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }

    /// Functions that Kubernetes 1.6 called in in-tree providers.
    fn node_legacy(&self) -> Option<&dyn NodeLegacy> {
        None
    }

    /// Topology labels of volumes.
    fn persistent_volume_labels(&self) -> Option<&dyn PersistentVolumeLabels> {
        None
    }
}

impl dyn Provider + '_ {
    /// Whether the provider has this interface.
    #[must_use]
    pub fn has(&self, interface: Interface) -> bool {
        match interface {
            Interface::LoadBalancers => self.load_balancers().is_some(),
            Interface::LoadBalancerInventory => self.load_balancer_inventory().is_some(),
            Interface::Instances => self.instances().is_some(),
            Interface::Routes => self.routes().is_some(),
            Interface::Zones => self.zones().is_some(),
            Interface::Clusters => self.clusters().is_some(),
            Interface::NodeLegacy => self.node_legacy().is_some(),
            Interface::PersistentVolumeLabels => self.persistent_volume_labels().is_some(),
        }
    }
}
