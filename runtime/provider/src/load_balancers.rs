//! Load balancers for Services, as upstream's `LoadBalancer`.

use async_trait::async_trait;
use serde::Serialize;

use crate::{Call, LoadBalancerStatus, NodeSet, Result, Service};

/// Load balancers. The caller serialises the calls of one Service, and where
/// [`crate::Info::serial_load_balancers`] is set the calls of all Services; every function may be
/// repeated at any time.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// The load balancer's name in the cloud, for people. It may change and be shared.
    ///
    /// # Errors
    /// Only those of the sandbox.
    async fn name(&self, call: &Call, cluster: &str, service: &Service) -> Result<String>;

    /// The current load balancer in the cloud; none if there is none. As `GetLoadBalancer`.
    ///
    /// # Errors
    /// Never [`crate::Code::NotFound`].
    async fn get(&self, call: &Call, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>>;

    /// Creates or updates the load balancer until it matches the Service. As `EnsureLoadBalancer`.
    ///
    /// # Errors
    /// Every code.
    async fn ensure(
        &self,
        call: &Call,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus>;

    /// Makes these nodes the backends. As `UpdateLoadBalancer`.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`] if the load balancer does not exist and the caller has to call
    /// `ensure`; otherwise as `ensure`.
    async fn update(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()>;

    /// Deletes everything, or this Service's share; ok only when nothing is left except what the
    /// user asked to keep. As `EnsureLoadBalancerDeleted`.
    ///
    /// # Errors
    /// Never [`crate::Code::NotFound`].
    async fn ensure_deleted(&self, call: &Call, cluster: &str, service: &Service) -> Result<()>;
}

/// A load balancer that this cluster owns in the cloud, or one Service's share of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedLoadBalancer {
    /// As [`LoadBalancers::name`]; the same for all shares of a load balancer.
    pub name: String,
    /// Namespace, name and UID of the Service, if the cloud stores them.
    pub service: Option<(String, String, String)>,
}

/// The load balancers that this cluster owns in the cloud. Upstream has no such interface.
#[async_trait]
pub trait LoadBalancerInventory: Send + Sync {
    /// Every load balancer of this cluster and of no other cluster; one entry for each share.
    ///
    /// # Errors
    /// `Denied`, `RetryAfter`, `Unavailable`, `Internal`, those of the sandbox; `Unsupported` if
    /// the provider's settings switch this interface off.
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<OwnedLoadBalancer>>;

    /// Deletes one entry of the list, and no share of another Service; ok if it does not exist.
    ///
    /// # Errors
    /// As `list`; `Denied` also if the load balancer belongs to another cluster.
    async fn delete(&self, call: &Call, cluster: &str, share: &OwnedLoadBalancer) -> Result<()>;
}
