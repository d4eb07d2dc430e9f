//! Watches: a cursor into the store's log, turned into a stream of JSON lines.
//!
//! A watch has no queue: it reads the log when it is polled. A slow client loses its watch once the
//! log has moved past its cursor (`410 Expired`, as with a real API server).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::ApiServer;
use super::errors::ApiError;
use super::kinds::Kind;
use super::object::Object;
use super::selectors::Selector;
use super::state::{Call, State, view};
use super::store::Change;
use super::table::Tabulator;

/// Default duration of a watch: within the range from which an API server draws.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45 * 60);
/// Interval of bookmarks, about as in a real API server.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// The maximum number of events written at once: bounds how long one watch locks the state.
const EVENTS_PER_TURN: usize = 256;

/// The form of events.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// The objects themselves.
    Objects,
    /// Rows of a Table.
    Tables(Tabulator),
}

struct Watch {
    server: Arc<ApiServer>,
    kind: Arc<Kind>,
    namespace: Option<String>,
    selector: Selector,
    form: Form,
    head: tokio::sync::watch::Receiver<u64>,
    cursor: u64,
    pending: Vec<Value>,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    faults: super::fault::WatchFault,
    ended: tokio_util::sync::CancellationToken,
    done: bool,
}

impl ApiServer {
    /// Starts a watch; errors before the first event are normal error responses.
    pub(crate) fn watch(
        self: &Arc<Self>,
        call: &Call,
        form: Form,
        fault: super::fault::WatchFault,
    ) -> Result<impl Stream<Item = Result<Bytes, std::io::Error>> + Send + use<>, ApiError> {
        let params = &call.params;
        let selector = Selector::parse(&call.kind, &params.label_selector, &params.field_selector)?;
        let state = self.state();
        let asked =
            params.revision().map_err(|e| ApiError::new(http::StatusCode::INTERNAL_SERVER_ERROR, "", e.message))?;
        check_initial_events(call)?;
        let from_now = asked.is_none();
        let wants_initial = params.send_initial_events.unwrap_or(from_now);
        let mut watch = Watch {
            server: self.clone(),
            kind: call.kind.clone(),
            namespace: call.scope().map(str::to_owned),
            selector,
            form,
            head: self.head(),
            cursor: asked.unwrap_or(state.store.revision()),
            pending: Vec::new(),
            bookmarks: params.allow_watch_bookmarks,
            next_bookmark: Instant::now() + BOOKMARK_PERIOD,
            deadline: Instant::now() + params.timeout.unwrap_or(WATCH_TIMEOUT),
            faults: fault,
            ended: self.watches(),
            done: false,
        };
        if wants_initial {
            watch.cursor = state.store.revision();
            watch.pending = watch.initial_events(&state, params.send_initial_events == Some(true));
        } else if fault.expired || state.store.changes_after(watch.cursor).is_err() {
            watch.expire(&state);
        }
        drop(state);
        Ok(stream::unfold(watch, |mut watch| async move { watch.turn().await.map(|bytes| (Ok(bytes), watch)) }))
    }
}

/// `sendInitialEvents` needs `resourceVersionMatch=NotOlderThan` and bookmarks, and the match needs
/// it.
fn check_initial_events(call: &Call) -> Result<(), ApiError> {
    let params = &call.params;
    let fault = match (params.send_initial_events, params.resource_version_match.as_str()) {
        (None, "") => return Ok(()),
        (None, _) => (
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden for watch unless \
            sendInitialEvents is provided",
        ),
        (Some(_), "NotOlderThan") => return Ok(()),
        (Some(_), _) => (
            "resourceVersionMatch",
            "Forbidden: sendInitialEvents requires setting \
            resourceVersionMatch to NotOlderThan",
        ),
    };
    let cause = super::errors::Cause { field: fault.0.into(), reason: "FieldValueForbidden", message: fault.1.into() };
    Err(ApiError::invalid_named("ListOptions.meta.k8s.io", ("meta.k8s.io", "ListOptions"), "", &[cause]))
}

impl Watch {
    /// The next lines, or `None` when the watch is over.
    async fn turn(&mut self) -> Option<Bytes> {
        loop {
            if self.pending.is_empty() && !self.done {
                self.read_log();
            }
            if !self.pending.is_empty() {
                if !self.faults.delay.is_zero() {
                    tokio::time::sleep(self.faults.delay).await;
                }
                return Some(self.take_lines());
            }
            if self.done || self.ended.is_cancelled() {
                return None;
            }
            tokio::select! {
                biased;
                changed = self.head.changed() => changed.ok()?,
                () = self.ended.cancelled() => return None,
                () = sleep_until(self.deadline) => return None,
                () = sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_PERIOD;
                    let bookmark = self.bookmark(self.cursor, false);
                    self.pending.push(bookmark);
                }
            }
        }
    }

    fn take_lines(&mut self) -> Bytes {
        let mut lines = Vec::new();
        for event in self.pending.drain(..) {
            lines.extend_from_slice(event.to_string().as_bytes());
            lines.push(b'\n');
            self.done |= self.faults.count_event();
            if self.done {
                break;
            }
        }
        lines.into()
    }

    fn read_log(&mut self) {
        let server = self.server.clone();
        let state = server.state();
        self.head.mark_unchanged();
        // A watch may begin at a revision that does not exist yet.
        if self.cursor >= state.store.revision() {
            return;
        }
        let Ok(changes) = state.store.changes_after(self.cursor) else { return self.expire(&state) };
        let mut events = Vec::new();
        for change in changes {
            self.cursor = change.revision;
            events.extend(self.event_of(change, &state));
            if events.len() == EVENTS_PER_TURN {
                break;
            }
        }
        if events.len() == EVENTS_PER_TURN {
            // More events may be pending, so the next poll must not sleep.
            self.head.mark_changed();
        }
        self.pending = events;
    }

    fn event_of(&self, change: &Change, state: &State) -> Option<Value> {
        let key = &change.key;
        if key.storage != self.kind.storage || self.namespace.as_deref().is_some_and(|n| n != key.namespace) {
            return None;
        }
        let matches = |o: &Option<Object>| o.as_ref().is_some_and(|o| self.selector.matches(&self.kind, o));
        let (event, stored) = match (matches(&change.old), matches(&change.new)) {
            (false, true) => ("ADDED", change.new.clone()?),
            (true, true) => ("MODIFIED", change.new.clone()?),
            (true, false) => {
                // An object that no longer matches is shown in its last matching state, with the
                // revision of the change.
                let last = super::object::with_resource_version((**change.old.as_ref()?).clone(), change.revision);
                ("DELETED", Arc::new(last))
            }
            (false, false) => return None,
        };
        Some(json!({"type": event, "object": self.shown(&stored, state)}))
    }

    fn initial_events(&self, state: &State, marked: bool) -> Vec<Value> {
        let mut events: Vec<Value> = state
            .store
            .list(&self.kind.storage, self.namespace.as_deref())
            .filter(|(_, o)| self.selector.matches(&self.kind, o))
            .map(|(_, o)| json!({"type": "ADDED", "object": self.shown(o, state)}))
            .collect();
        if marked && self.bookmarks {
            events.push(self.bookmark(self.cursor, true));
        }
        events
    }

    fn shown(&self, stored: &Object, state: &State) -> Value {
        let object = view(&self.kind, stored);
        match &self.form {
            Form::Objects => (*object).clone(),
            Form::Tables(tabulator) => tabulator.one(&self.kind, &object, &state.clock),
        }
    }

    fn bookmark(&self, revision: u64, ends_initial_events: bool) -> Value {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if ends_initial_events {
            super::object::set(&mut metadata, "/annotations", json!({"k8s.io/initial-events-end": "true"}));
        }
        let object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata});
        match &self.form {
            Form::Objects => json!({"type": "BOOKMARK", "object": object}),
            Form::Tables(tabulator) => json!({"type": "BOOKMARK", "object": tabulator.bookmark(&object)}),
        }
    }

    fn expire(&mut self, state: &State) {
        let message = format!("too old resource version: {} ({})", self.cursor, state.store.compacted() + 1);
        self.pending = vec![json!({"type": "ERROR", "object": ApiError::expired(message).to_status()})];
        self.done = true;
    }
}
