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

use super::resources::{Standing, until_something_changes};
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
    standings: watch::Receiver<Vec<Standing>>,
    said: Arc<Mutex<BTreeMap<String, ProviderStatus>>>,
}

impl ProviderStatuses {
    pub(super) fn new(standings: watch::Receiver<Vec<Standing>>) -> Self {
        let statuses = Self { standings, said: Arc::default() };
        statuses.notice();
        statuses
    }

    /// Updates the statuses after each change, until it is dropped. The transition time of a
    /// condition must not depend on when a client reads the endpoint.
    pub(super) async fn run(mut self) {
        loop {
            let mut standings = self.standings.borrow_and_update().clone();
            for standing in &mut standings {
                standing.seen();
            }
            self.notice();
            // The timeout is for a source whose task has ended: it must not delay a slot's changes.
            drop(tokio::time::timeout(NOTICE, until_something_changes(&mut self.standings, &mut standings)).await);
        }
    }

    /// The current list of `Provider`s, without the fields that only the API server has.
    pub(super) fn document(&self) -> Value {
        self.notice();
        let said = self.said();
        let standings = self.standings.borrow();
        let item = |standing: &Standing| {
            let status = ProviderStatus { calls: standing.calls(), ..said.get(standing.name())?.clone() };
            let metadata = json!({ "name": standing.name() });
            Some(json!({ "apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status }))
        };
        let items: Vec<Value> = standings.iter().filter_map(item).collect();
        json!({ "apiVersion": API_VERSION, "kind": format!("{KIND}List"), "metadata": {}, "items": items })
    }

    fn notice(&self) {
        let mut said = self.said();
        let standings = self.standings.borrow();
        let now = Timestamp::now();
        let status = |standing: &Standing| {
            let before = said.get(standing.name()).cloned().unwrap_or_default();
            (standing.name().to_owned(), standing.status(&before, now))
        };
        let after = standings.iter().map(status).collect();
        *said = after;
    }

    fn said(&self) -> MutexGuard<'_, BTreeMap<String, ProviderStatus>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use prometheus_client::registry::Registry;
    use tokio::{
        task::JoinSet,
        time::{interval, timeout},
    };

    use super::ProviderStatuses;
    use crate::{
        commands::run::follow::{Follow, FollowFile},
        provider_file,
        providers::{Fleet, services},
    };

    const PROVIDER: &str =
        "apiVersion: skysail.dev/v1alpha1\nkind: Provider\nmetadata: {name: sim}\nspec:\n  source: {file: sim.wasm}\n";

    /// The transition time of a condition must not depend on when a client reads the endpoint.
    #[tokio::test]
    async fn a_change_is_recorded_without_a_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("providers.yaml");
        fs::write(&path, PROVIDER).unwrap();
        let file = provider_file::load(&path).unwrap();
        let mut fleet = Fleet::new(services(&mut Registry::default()).unwrap());
        fleet.apply(file.providers).await.unwrap();
        let follow = Follow::File(FollowFile::new(&path, file.files, &fleet));
        let statuses = ProviderStatuses::new(follow.standings());
        let mut noticing = JoinSet::new();
        noticing.spawn(statuses.clone().run());
        let noticed = async {
            let mut look = interval(Duration::from_millis(20));
            while statuses.said().get("sim").is_none_or(|said| said.source_failure.is_none()) {
                look.tick().await;
            }
        };
        timeout(Duration::from_secs(60), noticed).await.unwrap();
        assert_eq!(statuses.said()["sim"].source_failure.as_ref().unwrap().code, "SourceMissing");
    }
}
