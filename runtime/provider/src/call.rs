//! The context of one provider call: the object it is about and the sink for the provider's Events.

use std::{fmt, sync::Arc};

use crate::{DryRun, Fence, Requests};

/// The Kubernetes object that a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    /// `Service`, `Node` or `Namespace`.
    pub kind: &'static str,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
}

/// Severity of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Information.
    Normal,
    /// A person should look at it.
    Warning,
}

/// A Kubernetes Event that a provider emits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderEvent {
    /// The object of the Event; none if the call has no object: then the Event is about the
    /// cluster.
    pub object: Option<ObjectReference>,
    /// Severity.
    pub kind: EventKind,
    /// CamelCase, 1 to 128 bytes.
    pub reason: String,
    /// One line, at most 1,024 bytes.
    pub message: String,
}

/// Takes the Events that a provider emits during a call. Must not block.
pub trait EventSink: Send + Sync {
    /// Takes one Event; may drop it when its queue is full.
    fn emit(&self, event: ProviderEvent);
}

/// The circumstances of one provider call.
///
/// Cloning is cheap. The default has no object, drops Events, is never fenced off and is no dry
/// run.
#[derive(Clone, Default)]
pub struct Call {
    /// The object the call is about.
    pub object: Option<ObjectReference>,
    /// Where Events go; none drops them.
    pub events: Option<Arc<dyn EventSink>>,
    /// Checked before the call sends anything.
    pub fence: Fence,
    /// If set, the call's writes are held back and recorded here.
    pub dry_run: Option<DryRun>,
    /// The requests that the call has in flight.
    pub requests: Requests,
    /// Whether deletions of the call leave although the operator's budget of deletions is used up.
    pub lets_deletions_through: bool,
}

impl Call {
    /// The same call once more, with no request in flight.
    #[must_use]
    pub fn attempt(&self) -> Self {
        Self { requests: Requests::default(), ..self.clone() }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("object", &self.object).finish_non_exhaustive()
    }
}
