//! Every string of the controllers that Kubernetes or a person can see; identical to upstream's
//! string where upstream has one. "Ours" marks strings that upstream does not have.

/// The field manager in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "skysail";

/// Group and version of the resource that describes a provider.
pub const PROVIDER_API_VERSION: &str = "skysail.dev/v1alpha1";
/// Kind of the resource that describes a provider.
pub const PROVIDER_KIND: &str = "Provider";

/// Keeps a Service until its load balancer is deleted.
pub const LOAD_BALANCER_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Ours: the provider that made a Service's load balancer, by its name in the provider file.
/// Written and removed with [`LOAD_BALANCER_FINALIZER`].
pub const LOAD_BALANCER_PROVIDER_ANNOTATION: &str = "skysail.dev/load-balancer-provider";
/// Ours: the object and the class for which the load balancer was made, `UID` or `UID CLASS`.
///
/// After a start, another class in the annotation than in the Service means that the user changed
/// the class, and not that the provider gave up its claim. Another UID means that a user copied the
/// annotation with the manifest. Written and removed with [`LOAD_BALANCER_FINALIZER`].
pub const LOAD_BALANCER_MADE_FOR_ANNOTATION: &str = "skysail.dev/load-balancer-made-for";
/// Ours: `true` on a Service pauses the Service: the manager makes no call for it that changes the
/// cloud. `false` lets the Service through while its provider is paused. Any other value counts as
/// `true`.
pub const PAUSED_ANNOTATION: &str = "skysail.dev/paused";
/// Ours: what becomes of the load balancer when the Service goes or wants none any more: `Delete`
/// or `Retain`. Any other value counts as `Retain`. Comes before the provider's policy.
pub const DELETION_POLICY_ANNOTATION: &str = "skysail.dev/deletion-policy";
/// Ours: the UID of a retained load balancer, which the Service takes in place of a new one.
pub const ADOPT_LOAD_BALANCER_ANNOTATION: &str = "skysail.dev/adopt-load-balancer";
/// Ours: the ConfigMap with the records of the load balancers that outlive their Service.
pub const RETAINED_CONFIG_MAP: &str = "skysail-retained-load-balancers";
/// The older way to restrict the clients of a load balancer; comma separated CIDRs.
pub const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// Excludes a node from all load balancers.
pub const EXCLUDE_FROM_LOAD_BALANCERS_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The cluster autoscaler is about to delete the node.
pub const CLUSTER_AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// The kubelet sets the taint (`--cloud-provider=external`); the node controller removes it when
/// the node is initialised.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The node's machine is off.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// The effect of [`SHUTDOWN_TAINT`].
pub const SHUTDOWN_TAINT_EFFECT: &str = "NoSchedule";
/// The kubelet's `--node-ip`: one IP, or two of different families separated by a comma.
pub const PROVIDED_NODE_IP_ANNOTATION: &str = "alpha.kubernetes.io/provided-node-ip";

/// Ours: the provider that holds a node without provider ID, by the name that the operator gave it.
///
/// Written when the provider initialises the node, or first owns an initialised one. An
/// operator who writes another provider's name gives the node to that provider.
pub const NODE_PROVIDER_ANNOTATION: &str = "skysail.dev/node-provider";
/// Ours: `true` lets deletions through that would wait.
///
/// On a node, the deletion of the node when its machine does not exist, even while the breaker
/// stops deletions. On a Service, the deletions of its calls, even while the budget of deletions is
/// used up.
pub const ALLOW_DELETION_ANNOTATION: &str = "skysail.dev/allow-deletion";

/// Type of the machine.
pub const INSTANCE_TYPE_LABEL: &str = "node.kubernetes.io/instance-type";
/// Type of the machine, older spelling.
pub const BETA_INSTANCE_TYPE_LABEL: &str = "beta.kubernetes.io/instance-type";
/// Marks a volume as provisioned dynamically; the value names the provisioner.
pub const PROVISIONED_BY_ANNOTATION: &str = "pv.kubernetes.io/provisioned-by";
/// Zone of the machine.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Zone of the machine, older spelling.
pub const BETA_ZONE_LABEL: &str = "failure-domain.beta.kubernetes.io/zone";
/// Region of the machine.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// Region of the machine, older spelling.
pub const BETA_REGION_LABEL: &str = "failure-domain.beta.kubernetes.io/region";

/// An Event without an object of its own is about this Namespace, which represents the cluster.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// Reasons of Events; upstream's, unless marked "Ours".
pub mod reasons {
    /// An ensure begins.
    pub const ENSURING_LOAD_BALANCER: &str = "EnsuringLoadBalancer";
    /// The provider ensured the load balancer.
    pub const ENSURED_LOAD_BALANCER: &str = "EnsuredLoadBalancer";
    /// A deletion begins.
    pub const DELETING_LOAD_BALANCER: &str = "DeletingLoadBalancer";
    /// The load balancer is deleted from the cloud.
    pub const DELETED_LOAD_BALANCER: &str = "DeletedLoadBalancer";
    /// The deletion of a load balancer failed after the Service's object was deleted.
    pub const DELETE_LOAD_BALANCER_FAILED: &str = "DeleteLoadBalancerFailed";
    /// A reconcile failed.
    pub const SYNC_LOAD_BALANCER_FAILED: &str = "SyncLoadBalancerFailed";
    /// No node is eligible.
    pub const UNAVAILABLE_LOAD_BALANCER: &str = "UnAvailableLoadBalancer";
    /// The backends were updated to the node set.
    pub const UPDATED_LOAD_BALANCER: &str = "UpdatedLoadBalancer";
    /// The backends could not be updated to the node set.
    pub const UPDATE_LOAD_BALANCER_FAILED: &str = "UpdateLoadBalancerFailed";
    /// A node was initialised.
    pub const SYNCED: &str = "Synced";
    /// A node's object is about to be deleted.
    pub const DELETING_NODE: &str = "DeletingNode";
    /// A node's object could not be deleted.
    pub const DELETING_NODE_FAILED: &str = "DeletingNodeFailed";
    /// Ours: so many machines of a provider are missing that the breaker stops the deletion of its
    /// nodes. About the Namespace `kube-system`.
    pub const NODE_DELETION_STOPPED: &str = "NodeDeletionStopped";
    /// Ours: the breaker allows deletions again. About the Namespace `kube-system`.
    pub const NODE_DELETION_RESUMED: &str = "NodeDeletionResumed";
    /// Ours: the machine of this node is missing, and the breaker or a pause of the provider keeps
    /// the node.
    pub const NODE_DELETION_HELD: &str = "NodeDeletionHeld";
    /// Ours: a node could not be initialised; upstream only logs it.
    pub const INITIALIZING_NODE_FAILED: &str = "InitializingNodeFailed";
    /// Ours: another controller undoes our writes to a node each time.
    pub const NODE_WRITE_CONFLICT: &str = "NodeWriteConflict";
    /// Ours: the data that a provider returned for an initialised node, or the node's annotation,
    /// is invalid; upstream only logs it.
    pub const UPDATING_NODE_FAILED: &str = "UpdatingNodeFailed";
    /// Ours: the cloud does not return some of a node's addresses any more.
    pub const NODE_ADDRESSES_REMOVED: &str = "NodeAddressesRemoved";
    /// Ours: two providers claim the object, so none acts.
    pub const PROVIDER_CONFLICT: &str = "ProviderConflict";
    /// Ours: a Service has a load balancer that no provider manages.
    pub const UNCLAIMED_LOAD_BALANCER: &str = "UnclaimedLoadBalancer";
    /// Ours: another controller undoes our writes to a Service each time.
    pub const SERVICE_WRITE_CONFLICT: &str = "ServiceWriteConflict";
    /// Ours: the provider that made the load balancer is removed, and another provider takes over
    /// the Service.
    pub const LOAD_BALANCER_LEFT_BEHIND: &str = "LoadBalancerLeftBehind";
    /// Ours: a Service or a provider is paused. About the Service, or the Namespace `kube-system`.
    pub const PAUSED: &str = "Paused";
    /// Ours: the pause of a Service or of a provider has ended.
    pub const RESUMED: &str = "Resumed";
    /// Ours: the budget of deletions is used up, and a deletion waits until the window has room.
    /// About the Service, the node of a route, or the Namespace `kube-system`.
    pub const DELETION_HELD: &str = "DeletionHeld";
    /// Ours: a load balancer stays in the cloud although its Service goes.
    pub const LOAD_BALANCER_RETAINED: &str = "LoadBalancerRetained";
    /// Ours: a Service has taken a retained load balancer.
    pub const LOAD_BALANCER_ADOPTED: &str = "LoadBalancerAdopted";
    /// Ours: the deletion policy of a Service is neither `Delete` nor `Retain`.
    pub const INVALID_DELETION_POLICY: &str = "InvalidDeletionPolicy";
    /// Ours: a provider claims a class or a scheme that an older provider has.
    pub const CLAIM_TAKEN: &str = "ClaimTaken";
    /// Ours: a component declares provider-ID schemes that its provider's settings do not list.
    pub const FOREIGN_PROVIDER_ID_SCHEME: &str = "ForeignProviderIDScheme";
    /// Ours: the cloud has a load balancer of this cluster that no Service wants.
    pub const ORPHANED_LOAD_BALANCER: &str = "OrphanedLoadBalancer";
    /// Ours: an orphaned load balancer was deleted, because the operator enabled that.
    pub const DELETED_ORPHAN: &str = "DeletedOrphanedLoadBalancer";
    /// Ours: a node's provider ID has no scheme, so no provider can own the node.
    pub const INVALID_PROVIDER_ID: &str = "InvalidProviderID";
    /// A route to a node could not be made.
    pub const FAILED_TO_CREATE_ROUTE: &str = "FailedToCreateRoute";
    /// Ours: a pod CIDR of a node cannot be routed as it stands.
    pub const INVALID_POD_CIDR: &str = "InvalidPodCIDR";
    /// Ours: a provider supports routes, but the cluster CIDR is not configured.
    pub const ROUTES_NOT_CONFIGURED: &str = "RoutesNotConfigured";
    /// Ours: a provider's settings list interfaces that its component does not export.
    pub const INTERFACE_NOT_EXPORTED: &str = "InterfaceNotExported";
    /// Ours: the settings of a provider switch one of its interfaces off. About the Namespace
    /// `kube-system`.
    pub const INTERFACE_NOT_CONFIGURED: &str = "InterfaceNotConfigured";
    /// Ours: replaces a provider's reason that is not CamelCase.
    pub const PROVIDER_EVENT: &str = "ProviderEvent";
}

/// The node condition of the route controller, and its reasons.
pub mod conditions {
    /// True while the node's pods cannot be reached; the node gets a taint of the same name.
    pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";
    /// All routes of the node exist.
    pub const ROUTE_CREATED: &str = "RouteCreated";
    /// Routes of the node are missing.
    pub const NO_ROUTE_CREATED: &str = "NoRouteCreated";
}

/// Names of the controllers as in upstream's Events, flags and metrics.
pub mod controllers {
    /// Source of the service controller's Events.
    pub const SERVICE: &str = "service-controller";
    /// Source of the node controller's Events.
    pub const CLOUD_NODE: &str = "cloud-node-controller";
    /// Source of the lifecycle controller's Events.
    pub const CLOUD_NODE_LIFECYCLE: &str = "cloud-node-lifecycle-controller";
    /// Source of the route controller's Events; as upstream, `--controllers` uses another name,
    /// `node-route-controller`.
    pub const ROUTE: &str = "route_controller";
    /// All of them.
    pub const ALL: [&str; 4] = [SERVICE, CLOUD_NODE, CLOUD_NODE_LIFECYCLE, ROUTE];
}
