//! The operator's settings for the controllers. Defaults are those of upstream's flags, unless
//! stated otherwise.

use std::time::Duration;

use ipnet::IpNet;

/// Settings of all controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    /// `--cluster-name`: passed to load-balancer and route calls. Default `kubernetes`.
    pub cluster_name: String,
    /// `--leader-elect-resource-namespace`: the namespace of the ConfigMap with the retained load
    /// balancers. Default `kube-system`.
    pub namespace: String,
    /// Which controllers run. Default: all.
    pub controllers: EnabledControllers,
    /// `--controller-start-interval`: pause between the starts of two controllers. Default 0.
    pub controller_start_interval: Duration,
    /// `--concurrent-service-syncs`: Services of one provider that are reconciled at once. Default
    /// 10, upstream's is 1; 0 is taken as 1.
    pub concurrent_service_syncs: usize,
    /// `--concurrent-node-syncs`: nodes of one provider that are written at once after a batch was
    /// described. Default 10, upstream's is 1; 0 is taken as 1.
    pub concurrent_node_syncs: usize,
    /// `--concurrent-node-status-updates`: the same for the periodic pass over addresses. Default
    /// 0: as `concurrent_node_syncs`.
    pub concurrent_node_status_updates: usize,
    /// `--node-monitor-period`: pause between two passes of the lifecycle controller. Default 5 s.
    pub node_monitor_period: Duration,
    /// `--concurrent-node-lifecycle-syncs`: nodes of one provider that a pass of the lifecycle
    /// controller writes or deletes at once. Default 1, at least 1: the flag refuses 0, as
    /// upstream; here 0 is taken as 1.
    pub concurrent_node_lifecycle_syncs: usize,
    /// `--node-deletion-confirmations`: consecutive passes of the lifecycle controller that have to
    /// report a machine as missing before its node is deleted. Default 2; 1, and 0, is upstream's
    /// behaviour.
    pub node_deletion_confirmations: u32,
    /// `--node-deletion-max-percent`: the percentage of its peak by which our deletions may reduce
    /// the number of nodes of one provider within [`Self::node_deletion_window`]; rounded down, and
    /// always at least one node. Beyond it the breaker stops deletions. Default 34: one zone of
    /// three may be lost. 100 disables the breaker; the flag takes 1 to 100.
    pub node_deletion_percent_max: u8,
    /// `--node-deletion-window`: how long a deleted node counts, and how long a node that the
    /// breaker keeps has to be missing before it may be deleted within the budget. Default 6 h.
    pub node_deletion_window: Duration,
    /// `--node-status-update-frequency`: pause between two passes over all addresses. Default 5
    /// min.
    pub node_status_update_frequency: Duration,
    /// `--refresh-node-labels`: the pass over all addresses also updates the labels for type, zone
    /// and region and the provider's additional labels, even if another client wrote them. Default
    /// false: upstream sets them once, when a node is initialised.
    pub refresh_node_labels: bool,
    /// How long a node that was never initialised is kept although the provider does not find its
    /// machine. Default 5 min from when this process first saw the node: clouds list a new machine
    /// late.
    pub uninitialized_node_grace: Duration,
    /// `--configure-cloud-routes`: whether the route controller runs for providers that support
    /// routes. Default true.
    pub configure_cloud_routes: bool,
    /// `--cluster-cidr`, parsed by [`crate::parse_cluster_cidr`]: the networks of the pods. Default
    /// none: then no node gets a route, and an Event reports each provider that supports routes.
    pub cluster_cidrs: Vec<IpNet>,
    /// `--route-reconciliation-period`: from the begin of one pass over all routes to that of the
    /// next. Default 10 s.
    pub route_reconciliation_period: Duration,
    /// The feature gate `CloudControllerManagerWatchBasedRoutesReconciliation`: changes of nodes
    /// trigger passes, instead of the period. Default false.
    pub watch_based_routes: bool,
    /// Nodes that are queued for initialisation within this time share one provider call. Default
    /// 100 ms.
    pub node_batch_window: Duration,
    /// The node set of a provider is published when no node changed for this long. Default 2 s.
    pub node_set_quiet: Duration,
    /// The node set is published at the latest this long after the first change. Default 30 s.
    pub node_set_delay_max: Duration,
    /// The same after a node left the set, because load balancers still send traffic to it. Default
    /// 1 s.
    pub node_set_departure_delay_max: Duration,
    /// After a release became active, the provider's objects are reconciled over at most this time.
    /// Default 60 s.
    pub swap_spread_max: Duration,
    /// Each load balancer is ensured once in this period although its Service did not change, to
    /// repair drift in the cloud. Default 0: never.
    pub drift_repair_period: Duration,
    /// The maximum number of drift repairs that begin in a minute, for each provider. Default 60; 0
    /// is taken as 1.
    pub drift_repairs_per_minute: u32,
    /// Pause between two scans for orphaned load balancers. Default 10 min; 0 disables the scans.
    /// An orphan is reported after three scans.
    pub orphan_scan_period: Duration,
    /// Whether orphans are deleted too. Default: no.
    pub delete_orphans: bool,
    /// How long a shutdown waits for calls in flight before it cancels them. Default 10 s.
    pub shutdown_grace: Duration,
}

/// Which controllers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnabledControllers {
    /// `service-lb-controller`.
    pub service: bool,
    /// `cloud-node-controller`.
    pub cloud_node: bool,
    /// `cloud-node-lifecycle-controller`.
    pub cloud_node_lifecycle: bool,
    /// `node-route-controller`.
    pub route: bool,
}

impl EnabledControllers {
    /// Whether at least one runs.
    #[must_use]
    pub const fn any(self) -> bool {
        self.service || self.cloud_node || self.cloud_node_lifecycle || self.route
    }
}

impl Default for EnabledControllers {
    fn default() -> Self {
        Self { service: true, cloud_node: true, cloud_node_lifecycle: true, route: true }
    }
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            cluster_name: "kubernetes".to_owned(),
            namespace: "kube-system".to_owned(),
            controllers: EnabledControllers::default(),
            controller_start_interval: Duration::ZERO,
            concurrent_service_syncs: 10,
            concurrent_node_syncs: 10,
            concurrent_node_status_updates: 0,
            node_monitor_period: Duration::from_secs(5),
            concurrent_node_lifecycle_syncs: 1,
            node_deletion_confirmations: 2,
            node_deletion_percent_max: 34,
            node_deletion_window: Duration::from_hours(6),
            node_status_update_frequency: Duration::from_mins(5),
            refresh_node_labels: false,
            uninitialized_node_grace: Duration::from_mins(5),
            configure_cloud_routes: true,
            cluster_cidrs: Vec::new(),
            route_reconciliation_period: Duration::from_secs(10),
            watch_based_routes: false,
            node_batch_window: Duration::from_millis(100),
            node_set_quiet: Duration::from_secs(2),
            node_set_delay_max: Duration::from_secs(30),
            node_set_departure_delay_max: Duration::from_secs(1),
            swap_spread_max: Duration::from_mins(1),
            drift_repair_period: Duration::ZERO,
            drift_repairs_per_minute: 60,
            orphan_scan_period: Duration::from_mins(10),
            delete_orphans: false,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

impl ControllerSettings {
    /// Whether the route controller runs.
    pub(crate) const fn routes_enabled(&self) -> bool {
        self.controllers.route && self.configure_cloud_routes
    }

    /// Workers for the periodic addresses.
    pub(crate) fn node_status_writes(&self) -> usize {
        match self.concurrent_node_status_updates {
            0 => self.concurrent_node_syncs.max(1),
            n => n,
        }
    }
}
