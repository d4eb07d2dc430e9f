//! The records of a dry run: what was held back, and what failed, for each object.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use skysail_provider::{DryRun, HeldRequest, ObjectReference};

use crate::convert::shown;

/// What becomes of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryRunObject {
    /// The operator's name for the provider; empty if no provider has the object.
    pub provider: String,
    /// `Service`, `Node`, or `Routes` for the routes of a provider.
    pub kind: String,
    /// `namespace/name`, or the name alone; empty for routes.
    pub name: String,
    /// The requests to the cloud that were held back.
    pub requests: Vec<HeldRequest>,
    /// Further requests, which were not recorded.
    pub omitted: usize,
    /// The writes to the Kubernetes API that were held back.
    pub writes: Vec<ObjectWrite>,
    /// Why the turn failed, unless a request was held back: then the provider could not go on.
    pub failures: Vec<String>,
}

/// A write to the Kubernetes API that was held back.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectWrite {
    /// `PATCH` or `DELETE`.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// The object as it is.
    pub before: Value,
    /// The object as it would be; null after a deletion.
    pub after: Value,
}

impl DryRunObject {
    /// Whether the cloud or the object would change.
    #[must_use]
    pub const fn is_changed(&self) -> bool {
        !self.requests.is_empty() || self.omitted > 0 || !self.writes.is_empty()
    }
}

/// Name of the kind of an entry about the routes of a provider.
const ROUTES: &str = "Routes";

/// Provider, kind and name.
pub(crate) type Key = (String, String, String);

#[derive(Default)]
pub(crate) struct Records {
    /// The provider whose controllers run.
    pub(crate) provider: String,
    objects: BTreeMap<Key, Record>,
    /// By path: the objects as they would be.
    pub(crate) written: BTreeMap<String, Value>,
}

/// What is recorded of one object.
#[derive(Default)]
pub(crate) struct Record {
    /// What the provider's calls would have sent.
    calls: DryRun,
    pub(crate) writes: Vec<ObjectWrite>,
    failures: Vec<String>,
}

/// The records of all objects; clones share them.
#[derive(Clone, Default)]
pub(crate) struct DryRuns(Arc<Mutex<Records>>);

impl DryRuns {
    /// The record for a call of this provider. A call without an object is about many nodes, which
    /// only reads, or about routes.
    pub(crate) fn of_call(&self, provider: &str, object: Option<&ObjectReference>) -> DryRun {
        let (kind, name) = object.map_or((ROUTES, String::new()), |object| (object.kind, shown(object)));
        self.records().entry((provider.to_owned(), kind.to_owned(), name)).calls.clone()
    }

    /// Records the failure of a turn.
    pub(crate) fn failed(&self, provider: &str, object: &ObjectReference, text: String) {
        let (kind, name) = match object.kind {
            "Service" | "Node" => (object.kind, shown(object)),
            _ => (ROUTES, String::new()),
        };
        let mut records = self.records();
        records.entry((provider.to_owned(), kind.to_owned(), name)).failures.push(text);
    }

    /// The entries of the objects that would change, or whose turn failed.
    pub(crate) fn entries(&self) -> Vec<DryRunObject> {
        let records = self.records();
        let entries = records.objects.iter().map(|((provider, kind, name), Record { calls, writes, failures })| {
            let (requests, omitted) = calls.held();
            let is_held = !requests.is_empty() || omitted > 0;
            let failures = if is_held { Vec::new() } else { failures.clone() };
            let (provider, kind, name) = (provider.clone(), kind.clone(), name.clone());
            DryRunObject { provider, kind, name, requests, omitted, writes: writes.clone(), failures }
        });
        entries.filter(|entry| entry.is_changed() || !entry.failures.is_empty()).collect()
    }

    pub(crate) fn records(&self) -> MutexGuard<'_, Records> {
        // A panicking thread leaves valid records.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    pub(crate) fn entry(&mut self, key: Key) -> &mut Record {
        self.objects.entry(key).or_default()
    }
}
