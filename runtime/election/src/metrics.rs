//! The metrics of elections, under upstream's names.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Label with the name of the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LeaseLabels {
    pub(crate) name: String,
}

/// The metrics of elections. Cloning is cheap and shares them.
#[derive(Clone, Debug, Default)]
pub struct ElectionMetrics {
    pub(crate) master_status: Family<LeaseLabels, Gauge>,
    pub(crate) slowpath: Family<LeaseLabels, Counter>,
}

impl ElectionMetrics {
    /// Creates the metrics and registers them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "leader_election_master_status",
            "Whether this process holds the lease: 1, or 0 while it stands by",
            metrics.master_status.clone(),
        );
        registry.register(
            "leader_election_slowpath",
            "Count of renewals that had to read the lease first, because the lease had changed or expired",
            metrics.slowpath.clone(),
        );
        metrics
    }

    pub(crate) fn leads(&self, lease: &str, leads: bool) {
        let labels = LeaseLabels { name: lease.to_owned() };
        self.master_status.get_or_create(&labels).set(i64::from(leads));
    }

    pub(crate) fn slowpath(&self, lease: &str) {
        self.slowpath.get_or_create(&LeaseLabels { name: lease.to_owned() }).inc();
    }
}
