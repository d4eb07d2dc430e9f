//! Import `http`: from the contract's types to the provider's HTTP client and back.
//!
//! What may be sent, and how much, is the client's and the budget's matter (`http_client`). Here is what only the call knows: whether this
//! function of the contract may send at all, and that answers the guest has no memory for are not collected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use skysail_provider::{Limit, LimitHit};
use tokio::time::Instant;

use crate::{
    HttpUse, Sandbox,
    bindings::skysail::provider::http::{Failure, Host, Request, Response},
    http_client::{self, FailureKind, HttpBudget, HttpClient, HttpRequest, HttpResponse, HttpUsage},
    limits::as_usize,
    store::CallState,
};

/// The HTTP side of one call.
pub(crate) struct HttpCall {
    client: Option<Arc<HttpClient>>,
    /// Why this call may send nothing.
    refused: Option<&'static str>,
    budget: HttpBudget,
    /// Bytes of answers that the guest could hold.
    room: u64,
}

impl HttpCall {
    pub(crate) fn new(sandbox: &Sandbox, allowed: bool, deadline: Instant) -> Self {
        let client = sandbox.http().cloned();
        let refused = if !allowed {
            Some("the contract lets this function send no request")
        } else if client.is_none() {
            Some("the operator has allowed this provider no request: the provider file has no egress rule for it")
        } else {
            None
        };
        let limits = sandbox.limits();
        Self { client, refused, budget: HttpBudget::new(limits.http(), Some(deadline)), room: limits.memory_bytes }
    }

    /// The client, where this call may send.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn client(&self) -> Result<&Arc<HttpClient>, &'static str> {
        match (&self.client, self.refused) {
            (Some(client), None) => Ok(client),
            (_, refused) => Err(refused.unwrap_or("this call may send no request")),
        }
    }

    pub(super) fn budget(&self) -> &HttpBudget {
        &self.budget
    }

    /// Bytes of answers that the guest could hold.
    pub(super) fn room(&self) -> u64 {
        self.room
    }

    pub(crate) fn usage(&self) -> HttpUsage {
        self.budget.usage()
    }
}

impl From<HttpUsage> for HttpUse {
    fn from(usage: HttpUsage) -> Self {
        let HttpUsage { requests, refused, bytes_sent, bytes_received, time, in_flight_max, limit_hits: _ } = usage;
        Self { requests: requests - refused, bytes_sent, bytes_received, time, in_flight_max }
    }
}

impl Host for CallState {
    async fn send(&mut self, request: Request) -> wasmtime::Result<Result<Response, Failure>> {
        let mut answers = self.send_each(vec![request]).await;
        answers.pop().ok_or_else(|| wasmtime::Error::msg("one request must have one answer"))
    }

    async fn send_all(&mut self, requests: Vec<Request>) -> wasmtime::Result<Vec<Result<Response, Failure>>> {
        Ok(self.send_each(requests).await)
    }
}

impl CallState {
    async fn send_each(&mut self, requests: Vec<Request>) -> Vec<Result<Response, Failure>> {
        let HttpCall { client, refused, budget, room } = &self.http;
        if let Some(why) = refused {
            return requests.iter().map(|_| Err(Failure::Forbidden((*why).to_owned()))).collect();
        }
        let Some(client) = client else { return Vec::new() };
        let (room, collected) = (*room, AtomicU64::new(0));
        let asked: u64 = requests.iter().map(request_bytes).sum();
        let at_once = as_usize(u64::from(budget.limits().concurrency_per_call)).max(1);
        // Not in order, so that one slow answer does not hold up the next request. The answers are collected on the host: beyond what
        // the guest could hold nothing more is asked for.
        let send = |(index, request): (usize, Request)| {
            let collected = &collected;
            async move {
                let used = collected.load(Ordering::Relaxed);
                if used > room {
                    return (index, Err(LimitHit { limit: Limit::Memory, used, max: room }));
                }
                let answer = client.send(budget, request_of(request)).await;
                if let Ok(response) = &answer {
                    collected.fetch_add(response_bytes(response), Ordering::Relaxed);
                }
                (index, Ok(answer))
            }
        };
        let mut answers: Vec<_> =
            stream::iter(requests.into_iter().enumerate()).map(send).buffer_unordered(at_once).collect().await;
        answers.sort_unstable_by_key(|(index, _)| *index);
        self.bytes.copied(asked.saturating_add(collected.into_inner()));
        answers.into_iter().map(|(_, answer)| self.answer(answer)).collect()
    }

    fn answer(
        &mut self,
        answer: Result<Result<HttpResponse, http_client::Failure>, LimitHit>,
    ) -> Result<Response, Failure> {
        match answer {
            Ok(Ok(response)) => Ok(response_to_guest(response)),
            Ok(Err(failure)) => Err(failure_to_guest(failure)),
            Err(hit) => {
                self.hit(hit);
                Err(Failure::Limited(format!("the answers before this one fill the guest's memory: {hit}")))
            }
        }
    }
}

fn request_bytes(request: &Request) -> u64 {
    let Request { method, url, headers, body, credential, timeout_ms: _, extra: _ } = request;
    let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let body = body.as_ref().map_or(0, Vec::len);
    (method.len() + url.len() + headers + body + credential.as_ref().map_or(0, String::len)) as u64
}

fn response_bytes(response: &HttpResponse) -> u64 {
    let HttpResponse { status: _, headers, body } = response;
    let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    (headers + body.len()) as u64
}

fn request_of(request: Request) -> HttpRequest {
    let Request { method, url, headers, body, credential, timeout_ms, extra: _ } = request;
    HttpRequest {
        method,
        url,
        headers,
        body: body.map(Into::into),
        credential,
        timeout: (timeout_ms > 0).then(|| Duration::from_millis(u64::from(timeout_ms))),
    }
}

fn response_to_guest(response: HttpResponse) -> Response {
    let HttpResponse { status, headers, body } = response;
    Response { status, headers, body: body.into() }
}

fn failure_to_guest(failure: http_client::Failure) -> Failure {
    let http_client::Failure { kind, message, limit: _ } = failure;
    match kind {
        FailureKind::Forbidden => Failure::Forbidden(message),
        FailureKind::Limited => Failure::Limited(message),
        FailureKind::Malformed => Failure::Malformed(message),
        FailureKind::Unreachable => Failure::Unreachable(message),
        FailureKind::Tls => Failure::Tls(message),
        FailureKind::Interrupted => Failure::Interrupted(message),
        FailureKind::Timeout => Failure::Timeout,
        FailureKind::TooLarge(bytes) => Failure::TooLarge(bytes),
    }
}
