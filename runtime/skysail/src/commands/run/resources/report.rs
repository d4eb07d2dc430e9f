//! Writes the status of each `Provider` and emits Events about it. Only the leader does this.

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
    ProviderState, api_resource, events,
    status::{SlotReport, status_of},
};
use crate::{
    custom_resource::ProviderStatus,
    provider_file::{API_VERSION, KIND},
};

/// How long changes of a slot are gathered into one write: a release passes its stages within
/// milliseconds, and each write is sent to all watchers.
const GATHER: Duration = Duration::from_millis(250);

/// Period of the comparison with the status in the API, which another client may have changed or
/// which a write may have failed to change.
const REPEAT: Duration = Duration::from_secs(30);

/// Shortest pause between two writes in which only the call statistics differ: they change with
/// every call, and each write is sent to all watchers.
const FIGURES: Duration = Duration::from_mins(1);

/// How long a new process waits for the first answer of a Provider's source before it changes the
/// status that the process before it wrote.
const FIRST_WORD: Duration = Duration::from_mins(1);

/// Reports on all `Provider`s.
pub(crate) struct Reporter {
    store: Store<DynamicObject>,
    provider_states: watch::Receiver<Vec<ProviderState>>,
    /// The last written status and its time, by UID: the watch may not have delivered it yet.
    written: BTreeMap<String, (ProviderStatus, Instant)>,
    began: Instant,
}

impl Reporter {
    pub(super) fn new(store: Store<DynamicObject>, provider_states: watch::Receiver<Vec<ProviderState>>) -> Self {
        Self { store, provider_states, written: BTreeMap::new(), began: Instant::now() }
    }

    /// Reports until it is dropped.
    pub(crate) async fn run(mut self, client: Client, events: Events) {
        let api: Api<DynamicObject> = Api::all_with(client, &api_resource());
        let mut repeat = tokio::time::interval_at(Instant::now() + REPEAT, REPEAT);
        repeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut again = false;
        loop {
            let mut provider_states = self.provider_states.borrow_and_update().clone();
            for provider_state in &mut provider_states {
                let slot = provider_state.slot.as_mut().map(|slot| slot.borrow_and_update().clone());
                let heard = provider_state.heard.as_mut().is_none_or(|heard| *heard.borrow_and_update());
                if let Some(findings) = &mut provider_state.findings {
                    findings.mark_unchanged();
                }
                let said = slot.as_ref().map(|slot| SlotReport { slot, heard });
                self.report(&api, &events, (provider_state, said), again).await;
            }
            self.written.retain(|uid, _| provider_states.iter().any(|provider_state| provider_state.uid == *uid));
            again = tokio::select! {
                () = until_something_changes(&mut self.provider_states, &mut provider_states) => false,
                _ = repeat.tick() => true,
            };
        }
    }

    /// Writes the status if it differs from the last written one or, if `again` is set, from the
    /// one in the API.
    async fn report(
        &mut self,
        api: &Api<DynamicObject>,
        events: &Events,
        (provider_state, said): (&ProviderState, Option<SlotReport<'_>>),
        again: bool,
    ) {
        let ProviderState { name, uid, .. } = provider_state;
        let object = self.store.get(&ObjectRef::new_with(name, api_resource()));
        let Some(object) = object.filter(|object| object.uid().as_ref() == Some(uid)) else { return };
        let stands = written_in(&object);
        let written = self.written.get(uid);
        let before = written.map_or(&stands, |(status, _)| status).clone();
        let waits = said.is_some_and(|said| !said.heard) && self.began.elapsed() < FIRST_WORD;
        let mut after = status_of(provider_state, said, &before, Timestamp::now());
        let is_other = |after: &ProviderStatus| *after != before || (again && *after != stands);
        // A write for another reason includes the call statistics.
        if is_other(&after) || written.is_none_or(|(_, at)| at.elapsed() >= FIGURES) {
            after.calls = provider_state.figures.now();
        }
        // Until the source has answered, the status by the process before stays.
        let is_said = !is_other(&after);
        if is_said || (waits && before.observed_generation == after.observed_generation) {
            return;
        }
        let patch = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            // The UID keeps the write from a recreated object of that name.
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
            // The object was deleted or recreated: the watch reports that soon.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => {
                tracing::warn!(provider.name = name, "cannot write the status of the Provider; retrying: {error}");
            }
        }
    }
}

/// Waits until one of these states changes or the list of providers changes, and then for
/// [`GATHER`].
pub(in crate::commands::run) async fn until_something_changes(
    all: &mut watch::Receiver<Vec<ProviderState>>,
    provider_states: &mut [ProviderState],
) {
    let changes = provider_states.iter_mut().flat_map(|provider_state| {
        let slot = provider_state.slot.as_mut().map(|slot| slot.changed().boxed());
        let heard = provider_state.heard.as_mut().map(|heard| heard.changed().boxed());
        let findings = provider_state.findings.as_mut().map(|findings| findings.changed().boxed());
        slot.into_iter().chain(heard).chain(findings)
    });
    let changes = changes.chain([all.changed().boxed()]);
    let (changed, _, others) = select_all(changes).await;
    drop(others);
    if changed.is_err() {
        // A slot or a source was removed: the list of providers changes soon.
        drop(all.changed().await);
    }
    tokio::time::sleep(GATHER).await;
}

/// The status in the API; empty if it cannot be parsed.
pub(super) fn written_in(object: &DynamicObject) -> ProviderStatus {
    let status = object.data.get("status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}
