//! The endpoint `/providers`: the status of each provider in this process, with a provider file or
//! with objects, whether this process is the leader or not.
//!
//! The format is that of the objects of kind Provider. This module must not write to the API.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::resources::{ProviderState, until_something_changes};
use crate::{
    custom_resource::ProviderStatus,
    provider_file::{API_VERSION, KIND},
};

/// Longest pause between two updates of the statuses.
const NOTICE: Duration = Duration::from_secs(30);

/// The last status of each provider, by name, so that a condition keeps its transition time. Clones
/// share it.
#[derive(Clone)]
pub(super) struct ProviderStatuses {
    provider_states: watch::Receiver<Vec<ProviderState>>,
    said: Arc<Mutex<BTreeMap<String, ProviderStatus>>>,
}

impl ProviderStatuses {
    pub(super) fn new(provider_states: watch::Receiver<Vec<ProviderState>>) -> Self {
        let statuses = Self { provider_states, said: Arc::default() };
        statuses.notice();
        statuses
    }

    /// Updates the statuses after each change, until it is dropped. The transition time of a
    /// condition must not depend on when a client reads the endpoint.
    pub(super) async fn run(mut self) {
        loop {
            let mut provider_states = self.provider_states.borrow_and_update().clone();
            for provider_state in &mut provider_states {
                provider_state.seen();
            }
            self.notice();
            // The timeout is for a source whose task has ended: it must not delay a slot's changes.
            drop(
                tokio::time::timeout(NOTICE, until_something_changes(&mut self.provider_states, &mut provider_states))
                    .await,
            );
        }
    }

    /// The current list of `Provider`s, without the fields that only the API server has.
    pub(super) fn document(&self) -> Value {
        self.notice();
        let said = self.said();
        let provider_states = self.provider_states.borrow();
        let item = |provider_state: &ProviderState| {
            let status = ProviderStatus { calls: provider_state.calls(), ..said.get(provider_state.name())?.clone() };
            let metadata = json!({ "name": provider_state.name() });
            Some(json!({ "apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status }))
        };
        let items: Vec<Value> = provider_states.iter().filter_map(item).collect();
        json!({ "apiVersion": API_VERSION, "kind": format!("{KIND}List"), "metadata": {}, "items": items })
    }

    fn notice(&self) {
        let mut said = self.said();
        let provider_states = self.provider_states.borrow();
        let now = Timestamp::now();
        let status = |provider_state: &ProviderState| {
            let before = said.get(provider_state.name()).cloned().unwrap_or_default();
            (provider_state.name().to_owned(), provider_state.status(&before, now))
        };
        let after = provider_states.iter().map(status).collect();
        *said = after;
    }

    fn said(&self) -> MutexGuard<'_, BTreeMap<String, ProviderStatus>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        task::JoinSet,
        time::{interval, timeout},
    };

    use super::ProviderStatuses;
    use crate::commands::run::follow::tests::World;

    /// The transition time of a condition must not depend on when a client reads the endpoint.
    #[tokio::test]
    async fn a_change_is_recorded_without_a_request() {
        let world = World::new().await;
        let statuses = ProviderStatuses::new(world.provider_states());
        let mut recording = JoinSet::new();
        recording.spawn(statuses.clone().run());
        let recorded = async {
            let mut look = interval(Duration::from_millis(20));
            while statuses.said().get("sim").is_none_or(|said| said.source_failure.is_none()) {
                look.tick().await;
            }
        };
        timeout(Duration::from_secs(60), recorded).await.unwrap();
        assert_eq!(statuses.said()["sim"].source_failure.as_ref().unwrap().code, "SourceMissing");
    }
}
