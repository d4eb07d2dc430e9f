//! Writes what became of each `Provider` into its status, and tells of it in Events: the one
//! process that leads does.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::{FutureExt as _, select_all};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
    runtime::reflector::{ObjectRef, Store},
};
use serde_json::json;
use skysail_controllers::{Events, Notice, names::FIELD_MANAGER};
use skysail_provider::ObjectReference;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};

use super::{
    Standing, api_resource, events,
    status::{Said, status_of},
};
use crate::{
    custom_resource::ProviderStatus,
    provider_file::{API_VERSION, KIND},
};

/// So long changes of a slot are gathered: a release goes through its stages within milliseconds,
/// and each write is one of all watchers'.
const GATHER: Duration = Duration::from_millis(250);

/// As often what stands in the API is compared again, whatever happens: somebody else may have
/// written it, or a write failed.
const REPEAT: Duration = Duration::from_secs(30);

/// Figures alone are written so often at most: they change with every call, and each write is one
/// of all watchers'.
const FIGURES: Duration = Duration::from_mins(1);

/// After its start a process waits so long for the source of a Provider, before it says anything
/// else of it than the process before it did.
const FIRST_WORD: Duration = Duration::from_mins(1);

/// Reports on all `Provider`s.
pub(crate) struct Reporter {
    store: Store<DynamicObject>,
    standings: watch::Receiver<Vec<Standing>>,
    /// What was written last and when, by UID: the store may not have it yet.
    written: BTreeMap<String, (ProviderStatus, Instant)>,
    began: Instant,
}

impl Reporter {
    pub(super) fn new(store: Store<DynamicObject>, standings: watch::Receiver<Vec<Standing>>) -> Self {
        Self { store, standings, written: BTreeMap::new(), began: Instant::now() }
    }

    /// Reports until it is dropped.
    pub(crate) async fn run(mut self, client: Client, events: Events) {
        let api: Api<DynamicObject> = Api::all_with(client, &api_resource());
        let mut repeat = tokio::time::interval_at(Instant::now() + REPEAT, REPEAT);
        repeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut again = false;
        loop {
            let mut standings = self.standings.borrow_and_update().clone();
            for standing in &mut standings {
                let slot = standing.slot.as_mut().map(|slot| slot.borrow_and_update().clone());
                let heard = standing.heard.as_mut().is_none_or(|heard| *heard.borrow_and_update());
                if let Some(findings) = &mut standing.findings {
                    findings.mark_unchanged();
                }
                let said = slot.as_ref().map(|slot| Said { slot, heard });
                self.report(&api, &events, (standing, said), again).await;
            }
            self.written.retain(|uid, _| standings.iter().any(|standing| standing.uid == *uid));
            again = tokio::select! {
                () = until_something_changes(&mut self.standings, &mut standings) => false,
                _ = repeat.tick() => true,
            };
        }
    }

    /// Writes the status where it says something else than was written last; `again`: than what
    /// stands there.
    async fn report(
        &mut self,
        api: &Api<DynamicObject>,
        events: &Events,
        (standing, said): (&Standing, Option<Said<'_>>),
        again: bool,
    ) {
        let Standing { name, uid, .. } = standing;
        let object = self.store.get(&ObjectRef::new_with(name, api_resource()));
        let Some(object) = object.filter(|object| object.uid().as_ref() == Some(uid)) else { return };
        let stands = written_in(&object);
        let written = self.written.get(uid);
        let before = written.map_or(&stands, |(status, _)| status).clone();
        let waits = said.is_some_and(|said| !said.heard) && self.began.elapsed() < FIRST_WORD;
        let mut after = status_of(standing, said, &before, Timestamp::now());
        let is_other = |after: &ProviderStatus| *after != before || (again && *after != stands);
        // What is written in any case is written whole.
        if is_other(&after) || written.is_none_or(|(_, at)| at.elapsed() >= FIGURES) {
            after.calls = standing.figures.now();
        }
        // A source that the process before this one had heard: its last word still stands.
        let is_said = !is_other(&after);
        if is_said || (waits && before.observed_generation == after.observed_generation) {
            return;
        }
        let patch = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            // Another object of that name is none of ours.
            "metadata": { "name": name, "uid": uid },
            "status": after,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match api.patch_status(name, &params, &Patch::Apply(patch)).await {
            Ok(_) => {
                for (kind, reason, message) in events::of(&before, &after) {
                    let object =
                        ObjectReference { kind: KIND, namespace: String::new(), name: name.clone(), uid: uid.clone() };
                    events.emit(Notice {
                        source: Arc::from(FIELD_MANAGER),
                        object,
                        kind,
                        reason: reason.to_owned(),
                        message,
                    });
                }
                self.written.insert(uid.clone(), (after, Instant::now()));
            }
            // It is gone, or is another one: a standing that changes soon.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => tracing::warn!(provider.name = name, "its status cannot be written: {error}"),
        }
    }
}

/// Waits until one of these says something else, or there are others; then until all is gathered
/// that belongs to it.
pub(in crate::commands::run) async fn until_something_changes(
    all: &mut watch::Receiver<Vec<Standing>>,
    standings: &mut [Standing],
) {
    let changes = standings.iter_mut().flat_map(|standing| {
        let slot = standing.slot.as_mut().map(|slot| slot.changed().boxed());
        let heard = standing.heard.as_mut().map(|heard| heard.changed().boxed());
        let findings = standing.findings.as_mut().map(|findings| findings.changed().boxed());
        slot.into_iter().chain(heard).chain(findings)
    });
    let changes = changes.chain([all.changed().boxed()]);
    let (changed, _, others) = select_all(changes).await;
    drop(others);
    if changed.is_err() {
        // A slot or a source is gone: the standings say so in a moment.
        drop(all.changed().await);
    }
    tokio::time::sleep(GATHER).await;
}

/// What stands in the API; nothing where it is not of our form.
fn written_in(object: &DynamicObject) -> ProviderStatus {
    let status = object.data.get("status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}
