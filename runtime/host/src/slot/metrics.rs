//! Metrics of slots.

use std::{collections::BTreeSet, sync::Arc};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::Stage;
use crate::series::SeriesByProvider;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabels {
    provider: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    provider: String,
    stage: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    provider: String,
    code: &'static str,
}

/// The metrics of all slots. Cloning shares them; the default is not registered anywhere.
#[derive(Clone, Debug, Default)]
pub struct SlotMetrics {
    swaps: Family<ProviderLabels, Counter>,
    refusals: Family<RefusalLabels, Counter>,
    rollbacks: Family<CodeLabels, Counter>,
    source_failures: Family<CodeLabels, Counter>,
    serving: Family<ProviderLabels, Gauge>,
    source_failing: Family<ProviderLabels, Gauge>,
    draining: Family<ProviderLabels, Gauge>,
    shadow_questions: Family<ProviderLabels, Counter>,
    shadow_differences: Family<ProviderLabels, Counter>,
    /// With the stages and codes of refusals, and the codes of rollbacks and source failures, which
    /// have no stage.
    providers: SeriesByProvider<(Option<&'static str>, &'static str)>,
}

impl SlotMetrics {
    /// Makes the metrics and registers them under `skysail_slot_…`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let r = registry.sub_registry_with_prefix("skysail_slot");
        r.register("swaps", "Count of releases that became active", metrics.swaps.clone());
        r.register(
            "refusals",
            "Count of offers that were refused, by the stage reached and the code",
            metrics.refusals.clone(),
        );
        r.register("rollbacks", "Count of releases that were rolled back, by the code", metrics.rollbacks.clone());
        r.register(
            "source_failures",
            "Count of times that a source had nothing to offer, by the code",
            metrics.source_failures.clone(),
        );
        r.register(
            "source_failing",
            "Whether the newest report of the source is a failure: 1 or 0",
            metrics.source_failing.clone(),
        );
        r.register("serving", "Whether a release serves: 1 or 0", metrics.serving.clone());
        r.register("draining", "Releases that serve no new call and still have one running", metrics.draining.clone());
        r.register(
            "shadow_questions",
            "Count of questions that a release and its predecessor were asked to compare them",
            metrics.shadow_questions.clone(),
        );
        r.register(
            "shadow_differences",
            "Count of questions to which a release and its predecessor had different answers",
            metrics.shadow_differences.clone(),
        );
        metrics
    }

    /// One more slot of this name; see [`Self::release`].
    pub(super) fn keep(&self, provider: &Arc<str>) {
        self.providers.keep(provider);
    }

    /// One slot of this name fewer. The last one removes the provider's series.
    pub(super) fn release(&self, provider: &str) {
        self.providers.release(provider, |codes| self.remove(provider, codes));
    }

    fn remove(&self, provider: &str, codes: BTreeSet<(Option<&'static str>, &'static str)>) {
        for (stage, code) in codes {
            let provider = provider.to_owned();
            if let Some(stage) = stage {
                self.refusals.remove(&RefusalLabels { provider, stage, code });
            } else {
                let labels = CodeLabels { provider, code };
                self.rollbacks.remove(&labels);
                self.source_failures.remove(&labels);
            }
        }
        let labels = labels(provider);
        for family in [&self.swaps, &self.shadow_questions, &self.shadow_differences] {
            family.remove(&labels);
        }
        for family in [&self.serving, &self.draining, &self.source_failing] {
            family.remove(&labels);
        }
    }

    pub(super) fn swapped(&self, provider: &str) {
        self.swaps.get_or_create(&labels(provider)).inc();
    }

    pub(super) fn refused(&self, provider: &str, stage: Stage, code: &'static str) {
        self.providers.note(provider, (Some(stage.name()), code));
        let labels = RefusalLabels { provider: provider.to_owned(), stage: stage.name(), code };
        self.refusals.get_or_create(&labels).inc();
    }

    pub(super) fn rolled_back(&self, provider: &str, code: &'static str) {
        self.providers.note(provider, (None, code));
        self.rollbacks.get_or_create(&CodeLabels { provider: provider.to_owned(), code }).inc();
    }

    pub(super) fn source_failed(&self, provider: &str, code: &'static str) {
        self.providers.note(provider, (None, code));
        self.source_failures.get_or_create(&CodeLabels { provider: provider.to_owned(), code }).inc();
    }

    pub(super) fn shadowed(&self, provider: &str, asked: u64, differing: u64) {
        self.shadow_questions.get_or_create(&labels(provider)).inc_by(asked);
        self.shadow_differences.get_or_create(&labels(provider)).inc_by(differing);
    }

    pub(super) fn serving(&self, provider: &str) -> Gauge {
        self.serving.get_or_create(&labels(provider)).clone()
    }

    pub(super) fn source_failing(&self, provider: &str) -> Gauge {
        self.source_failing.get_or_create(&labels(provider)).clone()
    }

    pub(super) fn draining(&self, provider: &str) -> Gauge {
        self.draining.get_or_create(&labels(provider)).clone()
    }
}

fn labels(provider: &str) -> ProviderLabels {
    ProviderLabels { provider: provider.to_owned() }
}
