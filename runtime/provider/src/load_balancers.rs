//! Load balancers for Services, as upstream's `LoadBalancer`.

use async_trait::async_trait;
use serde::Serialize;

use crate::{Call, LoadBalancerStatus, NodeSet, Result, Service};

/// Load balancers. The caller serialises the calls of one Service; every function may be repeated
/// at any time.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// The load balancer's name in the cloud; constant for the life of the Service.
    ///
    /// # Errors
    /// Only those of the sandbox.
    async fn name(&self, call: &Call, cluster: &str, service: &Service) -> Result<String>;

    /// What the cloud has now; none where there is nothing. As `GetLoadBalancer`.
    ///
    /// # Errors
    /// Never [`crate::Code::NotFound`]: absence is an answer.
    async fn get(&self, call: &Call, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>>;

    /// Creates or changes until the cloud has what the Service asks for. As `EnsureLoadBalancer`.
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

    /// Brings the backends to these nodes. As `UpdateLoadBalancer`.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`] where the load balancer is gone and `ensure` has to be called;
    /// else as `ensure`.
    async fn update(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<()>;

    /// Removes everything; ok only when nothing is left. As `EnsureLoadBalancerDeleted`.
    ///
    /// # Errors
    /// Never [`crate::Code::NotFound`]: absence is the aim.
    async fn ensure_deleted(&self, call: &Call, cluster: &str, service: &Service) -> Result<()>;
}

/// A load balancer that this cluster owns in the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedLoadBalancer {
    /// As [`LoadBalancers::name`].
    pub name: String,
    /// Namespace, name and uid of the Service, where the cloud remembers them.
    pub service: Option<(String, String, String)>,
}

/// What this cluster owns in the cloud. Upstream has no such interface.
#[async_trait]
pub trait LoadBalancerInventory: Send + Sync {
    /// Every load balancer of this cluster, and no other cluster's.
    ///
    /// # Errors
    /// `Denied`, `RetryAfter`, `Unavailable`, `Internal`, those of the sandbox.
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<OwnedLoadBalancer>>;

    /// Deletes one of them by name; an absent one is ok.
    ///
    /// # Errors
    /// As `list`; `Denied` also where the name is another cluster's.
    async fn delete(&self, call: &Call, cluster: &str, name: &str) -> Result<()>;
}
