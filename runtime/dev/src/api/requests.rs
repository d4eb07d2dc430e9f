//! The log of requests, for the assertions of tests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use http::StatusCode;

use super::fault::RequestInfo;

/// The last requests are kept; older ones are only counted. Enough for one test, and small enough
/// for days of `skysail dev`.
pub const REQUESTS_KEPT_MAX: usize = 10_000;

/// One served request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The request.
    pub info: RequestInfo,
    /// The answer; for a watch, its first answer.
    pub status: StatusCode,
}

/// Counts and the last requests of an API server.
#[derive(Debug, Default)]
pub struct RequestLog(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    recent: VecDeque<Request>,
    counts: BTreeMap<(&'static str, String), u64>,
}

impl RequestLog {
    pub(crate) fn record(&self, request: Request) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut resource = request.info.resource.clone();
        if !request.info.subresource.is_empty() {
            resource = format!("{resource}/{}", request.info.subresource);
        }
        *inner.counts.entry((request.info.verb, resource)).or_insert(0) += 1;
        inner.recent.push_back(request);
        if inner.recent.len() > REQUESTS_KEPT_MAX {
            inner.recent.pop_front();
        }
    }

    /// Number of requests for a verb and a resource, such as `patch` and
    /// `services/status`.
    pub fn count(&self, verb: &str, resource: &str) -> u64 {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.counts.iter().filter(|((v, r), _)| *v == verb && r == resource).map(|(_, n)| n).sum()
    }

    /// All counts by verb and resource.
    pub fn counts(&self) -> BTreeMap<(&'static str, String), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }

    /// The last [`REQUESTS_KEPT_MAX`] requests, oldest first.
    pub fn recent(&self) -> Vec<Request> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).recent.iter().cloned().collect()
    }

    /// Empties the log and the counts.
    pub fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Inner::default();
    }
}
