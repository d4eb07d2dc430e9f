//! Which providers have metric series. The series of a provider that is gone are removed: names of
//! providers come and go, and each name would take memory and a place in every scrape for ever.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The providers with series, and the further labels of those series that `L` stands for. Cloning
/// shares it.
#[derive(Clone, Debug)]
pub(crate) struct SeriesByProvider<L>(Arc<Mutex<BTreeMap<Arc<str>, Series<L>>>>);

#[derive(Debug)]
struct Series<L> {
    /// Sandboxes or slots of this name. New settings bring a new sandbox before the old one goes.
    users: usize,
    labels: BTreeSet<L>,
}

impl<L> Default for SeriesByProvider<L> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<L: Ord> SeriesByProvider<L> {
    /// One more user of the provider's series.
    pub(crate) fn keep(&self, provider: &Arc<str>) {
        let none = || Series { users: 0, labels: BTreeSet::new() };
        self.all().entry(Arc::clone(provider)).or_insert_with(none).users += 1;
    }

    /// The provider has series with these labels.
    pub(crate) fn note(&self, provider: &str, labels: L) {
        if let Some(series) = self.all().get_mut(provider) {
            series.labels.insert(labels);
        }
    }

    /// One user fewer; the last one removes the series.
    pub(crate) fn release(&self, provider: &str, remove: impl FnOnce(BTreeSet<L>)) {
        let mut all = self.all();
        let Some(series) = all.get_mut(provider) else { return };
        series.users -= 1;
        if series.users == 0 {
            // Under the lock: a provider of the same name may be added at this moment.
            remove(all.remove(provider).map(|series| series.labels).unwrap_or_default());
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Series<L>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use skysail_provider::{Call, Clusters as _};

    use crate::{
        CallMetrics, CallRecorder, Engine, Limits, Panics, SandboxOptions,
        jail::Compiler,
        slot::{Offer, Slot, SlotMetrics, SlotOptions, SlotServices, SourceFailure},
        test_guest::{GUEST, component},
    };

    /// The series of a provider, without their values.
    fn series(registry: &Registry, provider: &str) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let label = format!("provider=\"{provider}\"");
        let names = text.lines().filter(|line| line.contains(&label)).filter_map(|line| line.rsplit_once(' '));
        let mut names: Vec<_> = names.map(|(name, _)| name.replace(provider, "PROVIDER")).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_removed_provider_has_no_series_once_its_last_call_has_ended() {
        let mut registry = Registry::default();
        let services = SlotServices {
            engine: Engine::on_demand().unwrap(),
            recorder: CallRecorder::new(CallMetrics::register(&mut registry)),
            compiler: Compiler::in_process_for_trusted_components(),
            metrics: SlotMetrics::register(&mut registry),
            panics: Panics::default(),
        };
        let slot = async |name: &str| {
            let limits = Limits { fuel: 100_000, ..Limits::default() };
            let sandbox = SandboxOptions { name: name.to_owned(), limits, config: String::new(), http: None };
            let slot = Slot::new(services.clone(), SlotOptions::new(sandbox)).unwrap();
            let offer = |bytes| slot.offer(Offer { bytes, origin: "file p.wasm".to_owned() });
            offer(component(&GUEST)).await.unwrap();
            offer(Bytes::from_static(b"no component")).await.unwrap_err();
            slot.source_failed(SourceFailure { code: "FileUnreadable", reason: "gone".to_owned() }).await;
            slot.master(&Call::default(), "x").await.unwrap();
            slot
        };
        let end = async |slot: Slot| {
            drop(slot);
            // The runtime drops the slot's task.
            tokio::task::yield_now().await;
        };
        let (removed, stays) = (slot("removed").await, slot("stays").await);
        let all = series(&registry, "stays");
        assert!(all.len() > 30 && all == series(&registry, "removed"), "{all:#?}");
        let under_way = removed.serving().unwrap();
        end(removed).await;
        under_way.master(&Call::default(), "x").await.unwrap();
        assert!(series(&registry, "removed").iter().all(|name| name.starts_with("skysail_provider_")));
        drop(under_way);
        assert_eq!(series(&registry, "removed"), [""; 0]);
        assert_eq!(series(&registry, "stays"), all);
        // Under the same name, beside one that is on its way out.
        let second = slot("stays").await;
        end(stays).await;
        assert_eq!(series(&registry, "stays"), all);
        end(second).await;
        assert_eq!(series(&registry, "stays"), [""; 0]);
    }
}
