//! Import `http`: from the contract's types to the provider's HTTP client and back.
//!
//! `http_client` decides what may be sent and how much. This module adds what only the call knows:
//! whether this function of the contract may send requests at all, and how many bytes of responses
//! fit into the guest's memory. The answers are those of the call's world.

use std::{sync::Arc, time::Duration};

use skysail_provider::Call;
use tokio::time::Instant;

use crate::{
    HttpUse, Sandbox,
    bindings::skysail::provider::http::{Failure, Host, Request, Response},
    http_client::{
        self, Admitted, FailureKind, HttpBudget, HttpClient, HttpRequest, HttpResponse, HttpUsage, NotedRequest,
    },
    store::CallState,
    world::World,
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
enum NoClient {
    Contract,
    NoEgressRules,
}

impl NoClient {
    /// The failure of one request.
    fn failure(self, budget: &HttpBudget) -> http_client::Failure {
        let failure = |why| http_client::Failure::new(FailureKind::Forbidden, why);
        match self {
            Self::Contract => {
                budget.note_refused();
                failure("the contract does not allow this function to send requests")
            }
            Self::NoEgressRules => {
                let failure = failure(
                    "this provider may not send requests, because the provider file has no egress rule for it; add one",
                );
                budget.note(&failure);
                failure
            }
        }
    }
}

/// Sends the requests of one call. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Sender {
    client: Result<Arc<HttpClient>, NoClient>,
    budget: HttpBudget,
    world: Arc<World>,
}

impl Sender {
    #[cfg(test)]
    pub(super) fn live(client: Arc<HttpClient>, budget: HttpBudget) -> Self {
        Self { client: Ok(client), budget, world: Arc::new(World::Live) }
    }

    pub(super) const fn budget(&self) -> &HttpBudget {
        &self.budget
    }

    /// Whether responses are searched for credentials.
    pub(super) fn redacts(&self) -> bool {
        let live = || self.client.as_ref().is_ok_and(|client| client.redacts());
        self.world.redacts_responses().unwrap_or_else(live)
    }

    /// Sends one request and waits for the whole answer.
    pub(super) async fn send(
        &self,
        admitted: Admitted,
        request: HttpRequest,
    ) -> Result<HttpResponse, http_client::Failure> {
        let live = |admitted, request| async move {
            match &self.client {
                Ok(client) => client.send(&self.budget, admitted, request).await,
                Err(none) => Err(none.failure(&self.budget)),
            }
        };
        self.world.send((&self.budget, admitted), request, live).await
    }
}

/// The HTTP side of one call.
pub(crate) struct HttpCall {
    sender: Sender,
    /// Bytes of responses that fit into the guest's memory.
    room: u64,
    /// See [`Self::bodies`].
    bodies: u64,
}

impl HttpCall {
    pub(crate) fn new(
        (sandbox, access): (&Sandbox, HttpAccess),
        deadline: Instant,
        call: &Call,
        world: &Arc<World>,
    ) -> Self {
        let client = match access {
            HttpAccess::None => Err(NoClient::Contract),
            HttpAccess::Reads | HttpAccess::All => sandbox.http().cloned().ok_or(NoClient::NoEgressRules),
        };
        let (limits, deadline) = (sandbox.limits(), Some(deadline));
        let budget = match access {
            HttpAccess::Reads => HttpBudget::reading(limits.http(), deadline, call),
            HttpAccess::None | HttpAccess::All => HttpBudget::new(limits.http(), deadline, call),
        };
        let sender = Sender { client, budget, world: Arc::clone(world) };
        Self { sender, room: limits.memory_bytes, bodies: limits.host_call_bytes }
    }

    pub(super) const fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The world of the call.
    pub(crate) const fn world(&self) -> &Arc<World> {
        &self.sender.world
    }

    /// Whether responses are searched for credentials.
    pub(crate) fn redacts(&self) -> bool {
        self.sender.redacts()
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
        self.sender.budget.usage()
    }

    pub(crate) fn take_noted(&self) -> Vec<NotedRequest> {
        self.sender.budget.take_noted()
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
        let HttpCall { sender, room, bodies: _ } = &self.http;
        self.fuel_charge.requests(requests.len());
        self.fuel_charge.entries(requests.iter().map(|request| request.headers.len() + request.extra.len()).sum());
        let asked: u64 = requests.iter().map(request_bytes).sum();
        let requests = requests.into_iter().map(request_of).collect();
        let send = |admitted, request| sender.send(admitted, request);
        let answers = http_client::send_all(&sender.budget, requests, *room, send).await;
        let answered: u64 = answers.iter().flatten().map(HttpResponse::size).sum();
        self.fuel_charge.bytes(asked.saturating_add(answered));
        if sender.redacts() {
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
