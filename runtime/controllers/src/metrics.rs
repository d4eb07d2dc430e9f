//! The metrics of the controllers, under upstream's names where upstream has the metric.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::{error::Error, names::controllers, queue::QueueMetrics};

/// Labels of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OutcomeLabels {
    pub(crate) controller: &'static str,
    pub(crate) provider: String,
    pub(crate) outcome: &'static str,
}

/// Label of a metric for one provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProviderLabels {
    pub(crate) provider: String,
}

/// Reports how many objects of a provider there are.
pub(crate) fn set_count(gauge: &Family<ProviderLabels, Gauge>, provider: &str, count: usize) {
    let labels = ProviderLabels { provider: provider.to_owned() };
    gauge.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
}

/// The trigger and the outcome of a pass over routes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RouteSyncLabels {
    pub(crate) trigger: &'static str,
    pub(crate) outcome: &'static str,
}

/// What the controllers count. Cloning is cheap and shares the counters.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    pub(crate) load_balancer_updates: Counter,
    pub(crate) node_sync_errors: Counter,
    pub(crate) node_sync_latency: Histogram,
    pub(crate) update_host_latency: Histogram,
    pub(crate) taint_removal_delay: Histogram,
    pub(crate) initial_sync_delay: Histogram,
    pub(crate) monitor_nodes_duration: Histogram,
    pub(crate) route_syncs: Family<RouteSyncLabels, Counter>,
    pub(crate) reconciles: Family<OutcomeLabels, Counter>,
    pub(crate) queues: QueueMetrics,
    pub(crate) node_set_size: Family<ProviderLabels, Gauge>,
    pub(crate) node_deletion_stopped: Family<ProviderLabels, Gauge>,
    pub(crate) node_deletion_stops: Family<ProviderLabels, Counter>,
    pub(crate) nodes_held: Family<ProviderLabels, Gauge>,
    pub(crate) drift_repairs: Family<ProviderLabels, Counter>,
    pub(crate) orphaned_load_balancers: Family<ProviderLabels, Gauge>,
    pub(crate) paused_services: Family<ProviderLabels, Gauge>,
    pub(crate) held_deletions: Family<ProviderLabels, Gauge>,
    pub(crate) retained_load_balancers: Family<ProviderLabels, Gauge>,
    pub(crate) events_written: Counter,
    pub(crate) events_dropped: Counter,
    /// Lanes of each provider name. A provider that is removed and added again has two for a
    /// moment.
    lanes: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl ControllerMetrics {
    /// Creates the metrics and registers them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        // Upstream: 1 s doubled, 15 buckets; and 1 s times four, 6 buckets.
        let latency = || Histogram::new(exponential_buckets(1.0, 2.0, 15));
        let delay = || Histogram::new(exponential_buckets(1.0, 4.0, 6));
        let metrics = Self {
            load_balancer_updates: Counter::default(),
            node_sync_errors: Counter::default(),
            node_sync_latency: latency(),
            update_host_latency: latency(),
            taint_removal_delay: delay(),
            initial_sync_delay: delay(),
            // Upstream: 1 ms doubled, 15 buckets.
            monitor_nodes_duration: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            route_syncs: Family::default(),
            reconciles: Family::default(),
            queues: QueueMetrics::register(registry),
            node_set_size: Family::default(),
            node_deletion_stopped: Family::default(),
            node_deletion_stops: Family::default(),
            nodes_held: Family::default(),
            drift_repairs: Family::default(),
            orphaned_load_balancers: Family::default(),
            paused_services: Family::default(),
            held_deletions: Family::default(),
            retained_load_balancers: Family::default(),
            events_written: Counter::default(),
            events_dropped: Counter::default(),
            lanes: Arc::default(),
        };
        metrics.register_upstream(registry);
        metrics.register_ours(registry);
        metrics.register_of_load_balancers(registry);
        metrics
    }

    /// One more lane of this name; see [`Self::release`].
    pub(crate) fn keep(&self, provider: &str) {
        *self.lanes().entry(provider.to_owned()).or_default() += 1;
    }

    /// Counts one lane of this name less; no task of that lane runs any more. The last lane removes
    /// the provider's series: each name would take memory and a place in every scrape for ever.
    pub(crate) fn release(&self, provider: &str) {
        // Held until the end: a lane of the same name may be added at this moment.
        let mut lanes = self.lanes();
        let Some(count) = lanes.get_mut(provider) else { return };
        *count -= 1;
        if *count == 0 {
            lanes.remove(provider);
            self.remove(provider);
        }
    }

    fn remove(&self, provider: &str) {
        for controller in controllers::ALL {
            for outcome in Error::categories().chain(["Ok"]) {
                self.reconciles.remove(&OutcomeLabels { controller, provider: provider.to_owned(), outcome });
            }
        }
        self.queues.remove(provider);
        let labels = ProviderLabels { provider: provider.to_owned() };
        let gauges = [
            &self.node_set_size,
            &self.node_deletion_stopped,
            &self.nodes_held,
            &self.orphaned_load_balancers,
            &self.paused_services,
            &self.held_deletions,
            &self.retained_load_balancers,
        ];
        for family in gauges {
            family.remove(&labels);
        }
        for family in [&self.node_deletion_stops, &self.drift_repairs] {
            family.remove(&labels);
        }
    }

    fn lanes(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register_upstream(&self, registry: &mut Registry) {
        registry.register(
            "service_controller_loadbalancer_sync",
            "Count of update calls for load balancers",
            self.load_balancer_updates.clone(),
        );
        registry.register(
            "service_controller_nodesync_error",
            "Count of failed updates of load balancers",
            self.node_sync_errors.clone(),
        );
        registry.register(
            "service_controller_nodesync_latency_seconds",
            "Time from a changed node set to the end of a Service's update",
            self.node_sync_latency.clone(),
        );
        registry.register(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "Time of one update call",
            self.update_host_latency.clone(),
        );
        registry.register(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Time from a node's creation to the removal of its taint",
            self.taint_removal_delay.clone(),
        );
        registry.register(
            "node_controller_initial_node_sync_delay_seconds",
            "Time from a node's creation to the end of its initialisation",
            self.initial_sync_delay.clone(),
        );
        registry.register(
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
            "Time of one pass of the lifecycle controller over the nodes of a provider",
            self.monitor_nodes_duration.clone(),
        );
        registry.register(
            "route_controller_route_sync",
            "Count of passes over the routes of a provider, by trigger and outcome",
            self.route_syncs.clone(),
        );
    }

    fn register_of_load_balancers(&self, registry: &mut Registry) {
        registry.register(
            "skysail_drift_repairs",
            "Count of periodic drift repairs of load balancers whose Service did not change, by provider",
            self.drift_repairs.clone(),
        );
        registry.register(
            "skysail_orphaned_load_balancers",
            "Count of load balancers in the cloud that no Service wants, by provider",
            self.orphaned_load_balancers.clone(),
        );
        registry.register(
            "skysail_paused_services",
            "Count of Services for which the manager changes nothing in the cloud, by provider",
            self.paused_services.clone(),
        );
        registry.register(
            "skysail_held_deletions",
            "Count of Services, routes and orphaned load balancers whose deletion the budget of deletions holds back, by provider",
            self.held_deletions.clone(),
        );
        registry.register(
            "skysail_retained_load_balancers",
            "Count of load balancers that stay in the cloud although their Service is gone, by provider",
            self.retained_load_balancers.clone(),
        );
    }

    fn register_ours(&self, registry: &mut Registry) {
        registry.register(
            "skysail_reconciles",
            "Count of reconciles by controller, provider and outcome",
            self.reconciles.clone(),
        );
        registry.register(
            "skysail_node_set_size",
            "Count of nodes that may back a provider's load balancers",
            self.node_set_size.clone(),
        );
        registry.register(
            "skysail_node_deletion_stopped",
            "Whether the breaker stops the deletion of a provider's nodes (1) or not (0)",
            self.node_deletion_stopped.clone(),
        );
        registry.register(
            "skysail_node_deletion_stops",
            "Count of times that the breaker stopped the deletion of a provider's nodes",
            self.node_deletion_stops.clone(),
        );
        registry.register(
            "skysail_nodes_held",
            "Count of nodes without a machine that the breaker keeps from deletion",
            self.nodes_held.clone(),
        );
        registry.register("skysail_events_written", "Count of Events written", self.events_written.clone());
        registry.register(
            "skysail_events_dropped",
            "Count of Events not written: queue full, too many Events for one object, or write failed",
            self.events_dropped.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::{ControllerMetrics, OutcomeLabels};

    #[test]
    fn the_names_are_upstreams_where_upstream_has_them() {
        let mut registry = Registry::default();
        let metrics = ControllerMetrics::register(&mut registry);
        let labels = OutcomeLabels { controller: "service-controller", provider: "a".to_owned(), outcome: "Ok" };
        metrics.reconciles.get_or_create(&labels).inc();
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let names: String =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|l| format!("{l}\n")).collect();
        expect![[r#"
            service_controller_loadbalancer_sync counter
            service_controller_nodesync_error counter
            service_controller_nodesync_latency_seconds histogram
            service_controller_update_loadbalancer_host_latency_seconds histogram
            node_controller_cloud_provider_taint_removal_delay_seconds histogram
            node_controller_initial_node_sync_delay_seconds histogram
            cloud_node_lifecycle_controller_monitor_nodes_duration_seconds histogram
            skysail_reconciles counter
            skysail_events_written counter
            skysail_events_dropped counter
        "#]]
        .assert_eq(&names);
        assert!(
            text.contains(r#"skysail_reconciles_total{controller="service-controller",provider="a",outcome="Ok"} 1"#)
        );
    }
}
