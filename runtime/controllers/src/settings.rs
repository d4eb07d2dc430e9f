//! What an operator may set for the controllers. Defaults are those of upstream's flags where
//! upstream has the flag and nothing else is said.

use std::time::Duration;

use ipnet::IpNet;

/// Settings of all controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    /// `--cluster-name`: passed to load-balancer and route calls. Default `kubernetes`.
    pub cluster_name: String,
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
    /// `--concurrent-node-status-updates`: the same for the periodic addresses. Default 0: as
    /// `concurrent_node_syncs`.
    pub concurrent_node_status_updates: usize,
    /// `--node-monitor-period`: pause between two passes of the lifecycle controller. Default 5 s.
    pub node_monitor_period: Duration,
    /// `--concurrent-node-lifecycle-syncs`: nodes of one provider that a pass of the lifecycle
    /// controller writes or deletes at once. Default 1, at least 1: the flag refuses 0, as
    /// upstream; here 0 is taken as 1.
    pub concurrent_node_lifecycle_syncs: usize,
    /// `--node-deletion-confirmations`: passes of the lifecycle controller in a row that have to
    /// say that a machine is gone before its node goes. Default 2; 1, and 0, is upstream's
    /// behaviour.
    pub node_deletion_confirmations: u32,
    /// `--node-deletion-max-percent`: by how much of its highest number the nodes of one provider
    /// may fall within [`Self::node_deletion_window`] by our deletions; rounded down, and always by
    /// one node. Beyond it a breaker stops deletions. Default 34: a zone of three may be lost. 100
    /// never stops; the flag takes 1 to 100.
    pub node_deletion_percent_max: u8,
    /// `--node-deletion-window`: how long a deleted node counts, and how long a node that the
    /// breaker holds has to be missing before it goes within the budget. Default 6 h.
    pub node_deletion_window: Duration,
    /// `--node-status-update-frequency`: pause between two passes over all addresses. Default 5
    /// min.
    pub node_status_update_frequency: Duration,
    /// `--refresh-node-labels`: the pass over all addresses also sets the labels for type, zone and
    /// region and those that the provider gives beside, where they differ, also where somebody else
    /// wrote them. Default false: upstream sets them once, when a node is initialised.
    pub refresh_node_labels: bool,
    /// How long a node that was never initialised is kept although the cloud does not know its
    /// machine. Default 5 min, counted from when this process first saw it: clouds list a new
    /// machine late.
    pub uninitialized_node_grace: Duration,
    /// `--configure-cloud-routes`: whether nodes get routes at all, where their provider has
    /// routes. Default true.
    pub configure_cloud_routes: bool,
    /// `--cluster-cidr`, read by [`crate::parse_cluster_cidr`]: where pods get their addresses
    /// from. Default none: then no node gets a route, and a provider that has routes gets an Event.
    pub cluster_cidrs: Vec<IpNet>,
    /// `--route-reconciliation-period`: from the begin of one pass over all routes to that of the
    /// next. Default 10 s.
    pub route_reconciliation_period: Duration,
    /// The gate `CloudControllerManagerWatchBasedRoutesReconciliation`: passes follow changes of
    /// nodes in place of the period. Default false.
    pub watch_based_routes: bool,
    /// Nodes that ask for initialisation within this time share one provider call. Default 100 ms.
    pub node_batch_window: Duration,
    /// The node set of a provider is published when no node changed for this long. Default 2 s.
    pub node_set_quiet: Duration,
    /// It is published at the latest this long after the first change. Default 30 s.
    pub node_set_delay_max: Duration,
    /// The same where a node left the set: load balancers still lead there. Default 1 s.
    pub node_set_departure_delay_max: Duration,
    /// After a release became active, the provider's objects are reconciled over at most this time.
    /// Default 60 s.
    pub swap_spread_max: Duration,
    /// Each load balancer is ensured once in this time though nothing changed, so that one that was
    /// changed behind our back comes back. Default 0: never.
    pub drift_repair_period: Duration,
    /// Most of these that begin in a minute, for each provider. Default 60; 0 is taken as 1.
    pub drift_repairs_per_minute: u32,
    /// Pause between two looks for load balancers that no Service wants. Default 10 min; 0: none.
    /// An orphan is reported after three looks.
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
