//! Faults on purpose: a hook that judges every request before it is served.
//!
//! For simulations and tests of retries. The hook decides; this module only carries out. Without a
//! hook nothing is disturbed.

use std::time::Duration;

use http::StatusCode;

use super::errors::ApiError;

/// A request as a fault hook sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestInfo {
    /// Kubernetes verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or
    /// `deletecollection`.
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural resource name.
    pub resource: String,
    /// Namespace, empty for cluster-scoped requests.
    pub namespace: String,
    /// Object name, empty for collections.
    pub name: String,
    /// Subresource, usually empty.
    pub subresource: String,
    /// The client's user agent; empty where it says none.
    pub user_agent: String,
}

/// What to do to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Serve it this much later.
    Latency(Duration),
    /// Answer with this error and do nothing.
    Refuse(ApiError),
    /// Do it, then answer with this error: the client cannot know that it was done.
    LoseAnswer(ApiError),
    /// Do it, and answer this much later: what it changed is seen before the answer is there.
    LateAnswer(Duration),
    /// Never answer, as over a connection that a proxy has silently dropped. Where `done`, the
    /// request arrived and takes effect; otherwise it takes none.
    NeverAnswer {
        /// Whether the request takes effect.
        done: bool,
    },
    /// End a watch without a word after this many events; other requests are served as usual.
    DropWatchAfter(usize),
    /// Tell a watch that begins at a version that this version is too old, as an API server whose
    /// watch cache was rebuilt; other requests are served as usual.
    ExpireWatch,
    /// Show a watch each change this much later, as an API server that lags behind; other requests
    /// are served as usual.
    DelayWatch(Duration),
    /// Answer a list from the state of so many revisions ago, as far as it is remembered, as an API
    /// server that lags behind; other requests are served as usual. A list that takes any state
    /// (`resourceVersion=0`) may always show it; one that asks for the most recent state only where
    /// something is broken, such as a cluster store that was cut off from its majority.
    StaleList(u64),
}

impl Fault {
    /// `503 ServiceUnavailable`, as from a restarting API server.
    pub fn unavailable() -> Self {
        Self::Refuse(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ))
    }

    /// `429 TooManyRequests`, as from priority and fairness; carries `retryAfterSeconds`.
    pub fn too_many_requests(retry_after_seconds: u32) -> Self {
        let mut error = ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        );
        error.details = serde_json::json!({"retryAfterSeconds": retry_after_seconds});
        Self::Refuse(error)
    }
}

/// Decides about every request; called once for each, in the order of arrival.
pub trait Faults: Send + Sync {
    /// The fault for `request`.
    fn judge(&self, request: &RequestInfo) -> Fault;
}

impl<F: Fn(&RequestInfo) -> Fault + Send + Sync> Faults for F {
    fn judge(&self, request: &RequestInfo) -> Fault {
        self(request)
    }
}

/// What befalls one watch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WatchFault {
    /// Whether where it begins is too old.
    pub(crate) expired: bool,
    /// How many more events it may carry.
    events_left: Option<usize>,
    /// How long each change is held back.
    pub(crate) delay: Duration,
}

impl WatchFault {
    pub(crate) fn of(fault: &Fault) -> Self {
        match fault {
            Fault::DropWatchAfter(events) => Self { events_left: Some(*events), ..Self::default() },
            Fault::ExpireWatch => Self { expired: true, ..Self::default() },
            Fault::DelayWatch(delay) => Self { delay: *delay, ..Self::default() },
            Fault::None
            | Fault::Latency(_)
            | Fault::Refuse(_)
            | Fault::LoseAnswer(_)
            | Fault::LateAnswer(_)
            | Fault::NeverAnswer { .. }
            | Fault::StaleList(_) => Self::default(),
        }
    }

    /// Counts one event; true when the watch must end after it.
    pub(crate) fn count_event(&mut self) -> bool {
        match &mut self.events_left {
            Some(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            None => false,
        }
    }
}
