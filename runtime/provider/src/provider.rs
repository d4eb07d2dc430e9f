//! The provider itself: who it is and which interfaces it has.

use std::{fmt, sync::Arc};

use serde::Serialize;

use crate::{
    Clusters, Instances, LoadBalancerInventory, LoadBalancers, NodeLegacy, PersistentVolumeLabels, Routes, Zones,
};

/// Who a provider is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    /// As upstream's `ProviderName()`.
    pub name: String,
    /// Of the component, for people.
    pub version: String,
    /// One line for people.
    pub description: String,
    /// Schemes of `spec.providerID` that are this provider's, without `://`.
    pub provider_id_schemes: Vec<String>,
    /// As upstream's `HasClusterID()`.
    pub has_cluster_id: bool,
    /// Origins that it cannot do without, such as `https://api.example.com`.
    pub egress: Vec<String>,
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

/// A cloud provider. Each interface is there or not, as upstream's `(impl, supported)`.
///
/// What a provider supports may change while the process runs: a hot swap can add an interface. So
/// callers ask each time and keep no answer. All calls are cancelled by dropping their future.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Who the provider is; none while nothing serves.
    fn info(&self) -> Option<Arc<Info>>;

    /// Load balancers for Services.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// What this cluster owns in the cloud.
    fn load_balancer_inventory(&self) -> Option<&dyn LoadBalancerInventory> {
        None
    }

    /// The machines behind nodes.
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

    /// What Kubernetes 1.6 asked of in-tree providers.
    fn node_legacy(&self) -> Option<&dyn NodeLegacy> {
        None
    }

    /// Where volumes are.
    fn persistent_volume_labels(&self) -> Option<&dyn PersistentVolumeLabels> {
        None
    }
}
