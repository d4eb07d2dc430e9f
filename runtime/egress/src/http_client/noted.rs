//! The last requests of one call, for people who ask what a call did: never a query, a header, a
//! body or a credential.

use std::{collections::VecDeque, mem, time::Duration};

use tokio::time::Instant;

use super::{FailureKind, HttpBudget};

/// The most requests of one call that are noted; the oldest go. The last requests say most about a
/// call that failed.
pub const REQUESTS_NOTED_MAX: usize = 32;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// With an answer of this status.
    Answered(u16),
    /// Without a whole answer, or before it was sent.
    Failed(FailureKind),
    /// The call ended before the request.
    Cancelled,
}

/// One request of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// Origin and path, at most 200 bytes. Empty if the URL is not valid: it may contain anything.
    pub url: String,
    /// How the request ended.
    pub end: RequestEnd,
    /// Time from the guest's request to its end, waits for the call's turn included.
    pub time: Duration,
}

/// The last requests of a call.
#[derive(Debug, Default)]
pub(super) struct Noted(VecDeque<NotedRequest>);

impl Noted {
    pub(super) fn take(&mut self) -> Vec<NotedRequest> {
        mem::take(&mut self.0).into()
    }

    pub(super) fn push(&mut self, request: NotedRequest) {
        if self.0.len() == REQUESTS_NOTED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(request);
    }
}

/// A request under way; dropped without an end, the request was cancelled.
#[derive(Debug)]
pub(super) struct Noting<'a> {
    budget: &'a HttpBudget,
    began: Instant,
    method: String,
    url: String,
    end: RequestEnd,
}

impl<'a> Noting<'a> {
    pub(super) fn new(budget: &'a HttpBudget, method: String, url: String) -> Self {
        Self { budget, began: Instant::now(), method, url, end: RequestEnd::Cancelled }
    }

    pub(super) fn ended(mut self, end: RequestEnd) {
        self.end = end;
        if end == RequestEnd::Failed(FailureKind::Malformed) {
            self.url.clear();
        }
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        let (method, url) = (mem::take(&mut self.method), mem::take(&mut self.url));
        self.budget.noted(NotedRequest { method, url, end: self.end, time: self.began.elapsed() });
    }
}
