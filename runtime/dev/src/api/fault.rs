//! Injected faults: a hook that decides about every request before it is served.
//!
//! For simulations and tests of retries. The hook decides; this module injects. Without a hook
//! there are no faults.

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
    /// The client's user agent; empty without one.
    pub user_agent: String,
}

/// What to do to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Serve the request after this delay.
    Latency(Duration),
    /// Answer with this error, without effect.
    Refuse(ApiError),
    /// Execute the request, then answer with this error: the client cannot know of the effect.
    LoseAnswer(ApiError),
    /// Execute the request and answer after this delay: others see the change before the answer.
    LateAnswer(Duration),
    /// Never answer, as over a connection that a proxy has silently dropped. With `done` the
    /// request takes effect.
    NeverAnswer {
        /// Whether the request takes effect.
        done: bool,
    },
    /// End a watch without an error after this many events; other requests are served as usual.
    DropWatchAfter(usize),
    /// Answer a watch from a resourceVersion that the version is too old, as an API server whose
    /// watch cache was rebuilt; other requests are served as usual.
    ExpireWatch,
    /// Delay each event of a watch by this time, as an API server that lags behind; other requests
    /// are served as usual.
    DelayWatch(Duration),
    /// Answer a list from the state of this many revisions ago, as far as the history goes, as an
    /// API server that lags behind; other requests are served as usual. A list with
    /// `resourceVersion=0` may always show an old state; a list of the most recent state only with
    /// a broken store, such as one that lost its majority.
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

/// The faults of one watch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WatchFault {
    /// Whether its first revision is too old.
    pub(crate) expired: bool,
    /// Number of events until its end.
    events_left: Option<usize>,
    /// Delay of each event.
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
