//! Import `http`: from the contract's types to the provider's HTTP client and back.
//!
//! `http_client` decides what may be sent and how much. This module adds what only the call knows:
//! whether this function of the contract may send requests at all, and how many bytes of responses
//! fit into the guest's memory.

use std::{sync::Arc, time::Duration};

use skysail_provider::Call;
use tokio::time::Instant;

use crate::{
    HttpUse, Sandbox,
    bindings::skysail::provider::http::{Failure, Host, Request, Response},
    http_client::{self, FailureKind, HttpBudget, HttpClient, HttpRequest, HttpResponse, HttpUsage, NotedRequest},
    store::CallState,
};

/// The requests that one call may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpAccess {
    /// None: the contract does not allow this function to send requests.
    None,
    /// Only requests that read: the call's result is compared (shadow) and not used.
    Reads,
    /// All requests that the operator's egress rules allow.
    All,
}

/// Why a call has no HTTP client.
#[derive(Clone, Copy, Debug)]
pub(super) enum NoClient {
    Contract,
    NoEgressRules,
}

impl NoClient {
    /// The failure of one request, which is counted where the operator is at fault.
    pub(super) fn failure(self, budget: &HttpBudget) -> http_client::Failure {
        let why = match self {
            Self::Contract => "the contract does not allow this function to send requests",
            Self::NoEgressRules => {
                budget.note_denied();
                "this provider may not send requests, because the provider file has no egress rule for it; add one"
            }
        };
        http_client::Failure::new(FailureKind::Forbidden, why)
    }
}

/// The HTTP side of one call.
pub(crate) struct HttpCall {
    client: Result<Arc<HttpClient>, NoClient>,
    budget: HttpBudget,
    /// Bytes of responses that fit into the guest's memory.
    room: u64,
    /// See [`Self::bodies`].
    bodies: u64,
}

impl HttpCall {
    pub(crate) fn new(sandbox: &Sandbox, access: HttpAccess, deadline: Instant, call: &Call) -> Self {
        let client = match access {
            HttpAccess::None => Err(NoClient::Contract),
            HttpAccess::Reads | HttpAccess::All => sandbox.http().cloned().ok_or(NoClient::NoEgressRules),
        };
        let (limits, deadline) = (sandbox.limits(), Some(deadline));
        let budget = match access {
            HttpAccess::Reads => HttpBudget::reading(limits.http(), deadline, call),
            HttpAccess::None | HttpAccess::All => HttpBudget::new(limits.http(), deadline, call),
        };
        Self { client, budget, room: limits.memory_bytes, bodies: limits.host_call_bytes }
    }

    /// The client, if this call may send requests.
    ///
    /// # Errors
    /// The reason why the call may not send requests.
    pub(super) fn client(&self) -> Result<Arc<HttpClient>, NoClient> {
        self.client.clone()
    }

    pub(super) fn budget(&self) -> &HttpBudget {
        &self.budget
    }

    /// Bytes of responses that fit into the guest's memory.
    pub(super) fn room(&self) -> u64 {
        self.room
    }

    /// Bytes of request bodies that the host may hold for requests in flight: as many as the guest
    /// could pass in one call of `send-all`.
    pub(super) fn bodies(&self) -> u64 {
        self.bodies
    }

    pub(crate) fn usage(&self) -> HttpUsage {
        self.budget.usage()
    }

    pub(crate) fn take_noted(&self) -> Vec<NotedRequest> {
        self.budget.take_noted()
    }
}

impl From<HttpUsage> for HttpUse {
    fn from(usage: HttpUsage) -> Self {
        let HttpUsage { requests, refused, bytes_sent, bytes_received, time, in_flight_max, .. } = usage;
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
        let HttpCall { client, budget, room, bodies: _ } = &self.http;
        self.fuel_charge.requests(requests.len());
        self.fuel_charge.entries(requests.iter().map(|request| request.headers.len() + request.extra.len()).sum());
        let client = match client {
            Ok(client) => client,
            Err(none) => return requests.iter().map(|_| Err(failure_to_guest(none.failure(budget)))).collect(),
        };
        let asked: u64 = requests.iter().map(request_bytes).sum();
        let requests = requests.into_iter().map(request_of).collect();
        let answers = client.send_all(budget, requests, *room).await;
        let answered: u64 = answers.iter().flatten().map(HttpResponse::size).sum();
        self.fuel_charge.bytes(asked.saturating_add(answered));
        if client.redacts() {
            self.fuel_charge.owed().redacted(answered);
        }
        answers.into_iter().map(|answer| answer.map(response_to_guest).map_err(failure_to_guest)).collect()
    }
}

fn request_bytes(request: &Request) -> u64 {
    let Request { method, url, headers, body, credential, timeout_ms: _, extra: _ } = request;
    let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let body = body.as_ref().map_or(0, Vec::len);
    (method.len() + url.len() + headers + body + credential.as_ref().map_or(0, String::len)) as u64
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
    Response { status, headers, body: body.into(), extra: Vec::new() }
}

fn failure_to_guest(failure: http_client::Failure) -> Failure {
    let http_client::Failure { kind, message, limit: _ } = failure;
    match kind {
        FailureKind::Forbidden | FailureKind::Fenced => Failure::Forbidden(message),
        FailureKind::Limited => Failure::Limited(message),
        FailureKind::Malformed => Failure::Malformed(message),
        FailureKind::Unreachable => Failure::Unreachable(message),
        FailureKind::Tls => Failure::Tls(message),
        FailureKind::Interrupted => Failure::Interrupted(message),
        FailureKind::Timeout => Failure::Timeout,
        FailureKind::TooLarge(bytes) => Failure::TooLarge(bytes),
        FailureKind::CredentialRefused => Failure::CredentialRefused(message),
        FailureKind::CredentialUnavailable => Failure::CredentialUnavailable(message),
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, FailureKind, failure_to_guest, http_client};

    #[test]
    fn a_guest_learns_whether_the_login_was_refused_or_could_not_be_made() {
        let failure = |kind| failure_to_guest(http_client::Failure::new(kind, "why"));
        assert!(matches!(failure(FailureKind::CredentialRefused), Failure::CredentialRefused(why) if why == "why"));
        assert!(
            matches!(failure(FailureKind::CredentialUnavailable), Failure::CredentialUnavailable(why) if why == "why")
        );
    }
}
