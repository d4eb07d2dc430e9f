//! The HTTP client of a guest, and the only path from the sandbox to the network.
//!
//! The steps of one request, in this order; the first failure ends the request:
//! 1. the budget of the call admits the request ([`HttpBudget::admit`]);
//! 2. the method and the URL are parsed strictly (`malformed`);
//! 3. the operator's rules check origin, method, path, and an address in the URL
//!    ([`crate::policy`], `forbidden`);
//! 4. the credential is looked up and its origins are checked ([`crate::credentials`]), the sizes
//!    are compared with the limits (`limited`), and the headers are checked (`malformed`);
//! 5. a credential with a session logs in, if it has no valid token (`credential-refused`,
//!    `credential-unavailable`);
//! 6. the call's concurrency (a wait), then the provider's rate (a wait of at most a second, or
//!    `limited`), then for a deletion the provider's budget of deletions (`limited`);
//! 7. the fence is checked (`fenced`), and the request with its credential is sent on a connection
//!    whose peer address was checked when the connection was made;
//! 8. the answer is read up to its bounds; a content coding is refused, and every value of a
//!    credential is redacted.
//!
//! The client follows no redirect, keeps no cookie, uses no proxy but the operator's, and sends no
//! request twice, with three exceptions in which the peer has not processed the request: the peer
//! closed a reused connection before any byte of the request was written, refused an HTTP/2 stream
//! unprocessed, or rejected the token of a session (401), which is then renewed once.
//!
//! Must not know wasm. Dropping the future of a request ends its exchange.

mod budget;
mod clients;
mod deletions;
mod exchange;
mod headers;
mod limits;
mod login;
mod message;
mod noted;
mod rate;

use std::{fmt, iter::repeat_n, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Uri};
use http_body_util::Full;
use skysail_provider::{Limit, LimitHit, text::one_line};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{Instrument as _, field::Empty};

pub use crate::resolver::{Resolver, SystemResolver};
use crate::{
    blocking::Blocking,
    credentials::{Credentials, Generation, Proof, Redaction, Token},
    policy::{EgressPolicy, METHODS, SAFE_METHODS, Sent, Target},
    transport::Client,
};
pub use budget::{Admitted, Held, HttpBudget, HttpUsage};
use budget::{InFlight, Writes};
use clients::Clients;
pub use clients::HttpClientError;
pub use deletions::{DeletionBudget, DeletionLimit, Held as HeldDeletion};
use exchange::Exchange;
pub use limits::HttpLimits;
pub use login::ServiceAccountTokens;
pub use message::{Failure, FailureKind, HttpRequest, HttpResponse};
pub use noted::{NotedRequest, REQUESTS_NOTED_MAX, RequestEnd};
use rate::Rate;

/// Concurrent redactions of large answers of one provider: each keeps a core busy, for seconds
/// where answers of 256 MiB are allowed.
const REDACTIONS_MAX: usize = 2;

/// The HTTP client of one provider, with its rules, credentials, connections and rate. All calls of
/// the provider share the client.
pub struct HttpClient {
    policy: Arc<EgressPolicy>,
    credentials: Arc<Credentials>,
    clients: Clients,
    rate: Rate,
    deletions: Arc<DeletionBudget>,
    redactions: Blocking,
    accounts: Option<Arc<dyn ServiceAccountTokens>>,
}

/// A request that may leave.
struct Judged {
    client: Client,
    /// The request without the credential.
    request: Request<Bytes>,
    bytes: u64,
    timeout: Option<Duration>,
    /// The name of the credential, and how the request proves it.
    credential: Option<(Arc<str>, Arc<Proof>)>,
    /// Redacts the values that are sent, even if the credentials are rotated meanwhile.
    redaction: Redaction,
    /// Whether the request may change the cloud.
    writes: bool,
    /// Whether the request may delete something.
    deletes: bool,
}

// === impl HttpClient ===

impl HttpClient {
    /// A client with a system resolver of its own. Only the rate and the header count of `limits`
    /// are used; the other limits come from each call's [`HttpBudget`].
    ///
    /// # Errors
    /// A certificate of the policy's CA bundle or of a credential cannot be used.
    pub fn new(
        policy: Arc<EgressPolicy>,
        credentials: Arc<Credentials>,
        limits: &HttpLimits,
    ) -> Result<Self, HttpClientError> {
        Self::with_resolver(policy, credentials, limits, Arc::new(SystemResolver::default()))
    }

    /// A client that resolves names with `resolver`. The policy checks the addresses as in
    /// [`Self::new`].
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_resolver(
        policy: Arc<EgressPolicy>,
        credentials: Arc<Credentials>,
        limits: &HttpLimits,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, HttpClientError> {
        let clients = Clients::new(&policy, limits, resolver)?;
        // Built now, so that a faulty certificate is an error of the operator's file and not of a
        // request.
        for (name, credential) in credentials.current().iter() {
            if let Proof::ClientCertificate(certificate) = &*credential.proof {
                clients.with_certificate(name, certificate)?;
            }
        }
        Ok(Self {
            policy,
            credentials,
            clients,
            rate: Rate::new(limits.requests_per_second),
            deletions: Arc::default(),
            redactions: Blocking::new(REDACTIONS_MAX),
            accounts: None,
        })
    }

    /// Logs in with tokens of ServiceAccounts where a credential asks for that.
    #[must_use]
    pub fn with_accounts(self, accounts: Option<Arc<dyn ServiceAccountTokens>>) -> Self {
        Self { accounts, ..self }
    }

    /// Counts deletions in this budget.
    #[must_use]
    pub fn with_deletions(self, deletions: Arc<DeletionBudget>) -> Self {
        Self { deletions, ..self }
    }

    /// Whether answers are searched for values of credentials.
    #[must_use]
    pub fn redacts(&self) -> bool {
        Redaction::new(self.credentials.current(), Arc::clone(&self.credentials)).now().seeks()
    }

    /// The text without the values of the provider's credentials.
    #[must_use]
    pub fn redacted(&self, text: &str) -> String {
        self.credentials.redact(text)
    }

    /// The operator's rules.
    #[must_use]
    pub fn policy(&self) -> &EgressPolicy {
        &self.policy
    }

    /// Sends one request and waits for the whole answer.
    ///
    /// # Errors
    /// See [`FailureKind`]. Each limit that was met is in the failure and in the budget's usage.
    ///
    /// # Cancel safety
    /// Dropping the future ends the exchange; the request may have been carried out.
    pub async fn send(
        &self,
        budget: &HttpBudget,
        admitted: Admitted,
        request: HttpRequest,
    ) -> Result<HttpResponse, Failure> {
        let (method, url) = (shown(&request.method), shown(request.url.split(['?', '#']).next().unwrap_or_default()));
        // The names of OpenTelemetry's conventions: `skysail run` can export its spans.
        let span = tracing::debug_span!(
            "http request",
            http.request.method = method,
            url.full = url,
            http.response.status_code = Empty,
            "error.type" = Empty,
            error.message = Empty,
        );
        let noted = budget.note_request(method, url);
        let reads = matches!(budget.writes(), Writes::Held(_)) && request.method == "GET";
        let read = reads.then(|| Target::parse(&request.url).ok()).flatten().map(|target| target.url.to_string());
        let result = self.send_judged(budget, admitted.held(), request).instrument(span.clone()).await;
        let _entered = span.enter();
        budget.settle(&admitted, &result);
        match &result {
            Ok(response) => {
                noted.ended(RequestEnd::Answered(response.status));
                if let (Writes::Held(dry_run), Some(url)) = (budget.writes(), &read) {
                    dry_run.read(url, &response.body);
                }
                tracing::debug!(
                    http.response.status_code = response.status,
                    http.response.body.size = response.body.len(),
                    "request answered"
                );
                span.record("http.response.status_code", response.status);
                if response.status >= 400 {
                    span.record("error.type", response.status);
                }
            }
            Err(failure) => {
                noted.ended(RequestEnd::Failed(failure.kind));
                let kind = failure.kind.name();
                tracing::debug!("error.type" = kind, reason = failure.message, "request failed");
                span.record("error.type", kind).record("error.message", &*failure.message);
            }
        }
        result
    }

    async fn send_judged(
        &self,
        budget: &HttpBudget,
        held: &Held,
        request: HttpRequest,
    ) -> Result<HttpResponse, Failure> {
        let judged = self.judge(budget, request)?;
        let session = judged.credential.as_ref().and_then(|(name, proof)| {
            let session = proof.session(judged.request.uri().path())?;
            Some((name, session))
        });
        let Some((name, session)) = session else {
            let in_flight = self.turn(budget, &judged, held).await?;
            return self.exchange((budget, in_flight), &judged, None, None).await;
        };
        let began = Instant::now();
        let (until, _) = end_of(budget, judged.timeout, began);
        let token = self.token(budget, (name, session), None, until).await?;
        let in_flight = self.turn(budget, &judged, held).await?;
        let answer = self.exchange((budget, in_flight), &judged, Some(&token), Some(began)).await?;
        if !session.login().is_rejected_by(answer.status, &answer.body) {
            return Ok(answer);
        }
        // The cloud's answer is the answer, unless the request is sent again.
        let renewed = match self.token(budget, (name, session), Some(&token), until).await {
            Ok(renewed) if !Arc::ptr_eq(&renewed, &token) => renewed,
            Ok(_) | Err(_) => return Ok(answer),
        };
        let Ok(in_flight) = self.turn(budget, &judged, held).await else { return Ok(answer) };
        if Instant::now() >= until {
            return Ok(answer);
        }
        match self.exchange((budget, in_flight), &judged, Some(&renewed), Some(began)).await {
            Err(failure) if failure.kind.sent_nothing() => Ok(answer),
            again => again,
        }
    }

    /// Waits until the request may be sent. Nothing is sent yet. Answers that arrived since the
    /// request was admitted count: a guest can open all its requests before the first answer.
    async fn turn(&self, budget: &HttpBudget, judged: &Judged, held: &Held) -> Result<InFlight, Failure> {
        let waiting = async {
            let in_flight = budget.enter(judged.writes).await.map_err(|_| call_over())?;
            held.check()?;
            let turn = self.rate.take().map_err(|hit| Failure::with_limit(FailureKind::Limited, hit))?;
            sleep_until(turn).await;
            Ok(in_flight)
        };
        match budget.deadline() {
            Some(deadline) => timeout_at(deadline, waiting).await.map_err(|_| call_over())?,
            None => waiting.await,
        }
    }

    /// Sends the request. The timeout of the request begins with its login, if it `began` with one.
    async fn exchange(
        &self,
        (budget, _in_flight): (&HttpBudget, InFlight),
        judged: &Judged,
        token: Option<&Token>,
        began: Option<Instant>,
    ) -> Result<HttpResponse, Failure> {
        let Judged { client, request, bytes, timeout, credential, redaction, writes: _, deletes } = judged;
        let mut request = request.clone();
        // Added last, so that no header of the guest has the same name.
        if let Some((_, proof)) = credential {
            proof.prove(token, &mut request, login::system_time()).map_err(Failure::malformed)?;
        }
        budget.fence().check().map_err(Failure::fenced)?;
        let deletion = if *deletes { self.take_deletion(budget)? } else { None };
        let started = Instant::now();
        let (end, limited) = end_of(budget, *timeout, began.unwrap_or(started));
        budget.add_sent(*bytes);
        let exchange =
            Exchange { client, budget, redaction, has_credential: credential.is_some(), redactions: &self.redactions };
        let exchange = timeout_at(end, exchange.run(request.map(Full::new)));
        let result = match budget.fence().guard(exchange).await {
            Ok(ended) => ended.unwrap_or_else(|_| Err(timed_out(started, limited))),
            Err(closed) => Err(Failure::fenced(closed)),
        };
        if let Err(failure) = &result
            && failure.kind.sent_nothing()
        {
            budget.take_back_sent(*bytes);
            deletion.into_iter().for_each(|taken| self.deletions.give_back(taken));
        }
        result
    }

    /// Takes a place in the budget of deletions, immediately before the request leaves.
    fn take_deletion(&self, budget: &HttpBudget) -> Result<Option<Instant>, Failure> {
        self.deletions.take(budget.lets_deletions_through()).map_err(|held| {
            budget.note_held(held);
            let HeldDeletion { limit: DeletionLimit { deletions, window }, .. } = held;
            let text = format!("the provider's budget of {deletions} deletions in {window:?} is used up");
            Failure::new(FailureKind::Limited, text)
        })
    }

    /// All checks that need no network.
    fn judge(&self, budget: &HttpBudget, request: HttpRequest) -> Result<Judged, Failure> {
        let HttpRequest { method, url, headers, body, credential, timeout } = request;
        if !METHODS.contains(&method.as_str()) {
            return Err(Failure::malformed(format!("the method must be one of {}", METHODS.join(", "))));
        }
        let Target { url, authority } = Target::parse(&url).map_err(|error| Failure::malformed(error.to_string()))?;
        let target = Target { url, authority };
        self.policy.judge(&method, &target).map_err(|refusal| Failure::forbidden(refusal.to_string()))?;
        let generation = self.credentials.current();
        let proof = match &credential {
            None => None,
            Some(name) => {
                let shown = shown(name);
                let found = generation.get(name);
                let found = found.ok_or_else(|| Failure::forbidden(unknown_credential(&shown, &generation)))?;
                if !found.may_go_to(&target.authority) {
                    let authority = &target.authority;
                    return Err(Failure::forbidden(format!("credential {shown:?} may not be sent to {authority}")));
                }
                Some((name.as_str(), &found.proof))
            }
        };
        let sets = proof.map(|(_, proof)| proof.headers(target.url.path()));
        // The limits come first: a `HeaderMap` panics at some thousand headers.
        let bytes = check_request(budget.limits(), &target, &headers, body.as_ref().map_or(0, bytes::Bytes::len))?;
        let headers = headers::of_guest(&headers, sets.as_deref())?;
        // Last: what the operator's rules refuse would not be sent in any other call either.
        let (query, sent_body) = (target.url.query(), body.as_deref().unwrap_or_default());
        let sent = Sent { method: &method, query, headers: &headers, body: sent_body };
        let writes = !self.policy.only_reads(&target, sent);
        let deletes = writes && self.policy.may_delete(&target, sent);
        match budget.writes() {
            Writes::Sent => {}
            Writes::Refused | Writes::Held(_) if !writes => {}
            Writes::Refused => {
                return Err(Failure::forbidden(format!(
                    "this {method} is not allowed in a call that only reads; reads have one of the methods {}, or are listed in the \
                     operator's egress.rules[].reads",
                    SAFE_METHODS.join(", ")
                )));
            }
            Writes::Held(dry_run) => {
                dry_run.hold(&method, target.url.as_str(), sent_body);
                return Err(Failure::forbidden(format!(
                    "this {method} is not sent: this is a dry run, which sends reads only"
                )));
            }
        }
        let client = match proof.map(|(name, proof)| (name, &**proof)) {
            Some((name, Proof::ClientCertificate(certificate))) => self
                .clients
                .with_certificate(name, certificate)
                .map_err(|error| Failure::new(FailureKind::Tls, error.to_string()))?,
            Some(_) | None => self.clients.plain(),
        };
        let unsent = |what| Failure::malformed(format!("the {what} cannot be sent"));
        let mut request = Request::new(body.unwrap_or_default());
        *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|_| unsent("method"))?;
        *request.uri_mut() = target.url.as_str().parse::<Uri>().map_err(|_| unsent("URL"))?;
        *request.headers_mut() = headers;
        let credential = proof.map(|(name, proof)| (name.into(), Arc::clone(proof)));
        let redaction = Redaction::new(generation, Arc::clone(&self.credentials));
        Ok(Judged { client, request, bytes, timeout, credential, redaction, writes, deletes })
    }
}

/// Sends all requests with `send`, and returns the answers in the order of the requests.
///
/// The budget decides how many are sent at once. All answers are held until the last one arrives,
/// so no further request is sent when they exceed `room`, the bytes that fit into the guest's
/// memory.
///
/// # Cancel safety
/// Dropping the future drops those of all requests.
pub async fn send_all<F: Future<Output = Result<HttpResponse, Failure>>>(
    budget: &HttpBudget,
    mut requests: Vec<HttpRequest>,
    room: u64,
    send: impl Fn(Admitted, HttpRequest) -> F,
) -> Vec<Result<HttpResponse, Failure>> {
    // Requests beyond the budget are refused together, without work for each: the guest chooses
    // their number.
    let beyond = requests.split_off(budget.left().min(requests.len())).len();
    let at_once = usize::try_from(budget.limits().concurrency_per_call.max(1)).unwrap_or(1);
    let (held, send) = (&Arc::new(Held::new(room)), &send);
    let admitted = |request| async move { send(budget.admit(held)?, request).await };
    let numbered = |(index, request)| async move { (index, admitted(request).await) };
    // Unordered, so that one slow answer does not hold up the start of the next request.
    let requests = stream::iter(requests.into_iter().enumerate());
    let mut answers: Vec<_> = requests.map(numbered).buffer_unordered(at_once).collect().await;
    answers.sort_unstable_by_key(|(index, _)| *index);
    let answers = answers.into_iter().map(|(_, answer)| answer);
    let refused = budget.refuse(beyond).into_iter().flat_map(|failure| repeat_n(Err(failure), beyond));
    answers.chain(refused).collect()
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("policy", &self.policy)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

/// The most credentials that the error lists: an operator has one to three.
const CREDENTIALS_NAMED_MAX: usize = 10;

/// The message for a credential that the provider names and the operator has not configured.
fn unknown_credential(shown: &str, generation: &Generation) -> String {
    let names: Vec<_> = generation.iter().map(|(name, _)| name.as_str()).take(CREDENTIALS_NAMED_MAX).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!(
        "there is no credential {shown:?}; the provider has: {known}; add it under `credentials`, or name one of these"
    )
}

/// The beginning of a guest's text on one line, for a log line or an error.
fn shown(text: &str) -> String {
    one_line(text, 200)
}

fn check_request(
    limits: &HttpLimits,
    target: &Target,
    headers: &[(String, String)],
    body: usize,
) -> Result<u64, Failure> {
    let refuse = |limit, used, max| {
        if used <= max { Ok(()) } else { Err(Failure::with_limit(FailureKind::Limited, LimitHit { limit, used, max })) }
    };
    let header_bytes = headers.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum();
    refuse(Limit::HttpHeaders, headers.len() as u64, u64::from(limits.headers_max))?;
    refuse(Limit::HttpHeaderBytes, header_bytes, limits.header_bytes_max)?;
    let bytes = (target.url.as_str().len() as u64).saturating_add(header_bytes).saturating_add(body as u64);
    refuse(Limit::HttpRequestBytes, bytes, limits.request_bytes_max)?;
    Ok(bytes)
}

/// The deadline of an exchange that began at this time, and the provider's limit if that limit sets
/// the deadline.
fn end_of(budget: &HttpBudget, timeout: Option<Duration>, began: Instant) -> (Instant, Option<Duration>) {
    let max = budget.limits().exchange_time_max;
    let own = timeout.filter(|timeout| *timeout < max);
    let end = began + own.unwrap_or(max);
    match budget.deadline() {
        Some(deadline) if deadline < end => (deadline, None),
        _ => (end, own.is_none().then_some(max)),
    }
}

fn call_over() -> Failure {
    Failure::new(FailureKind::Timeout, "the time of the call is over")
}

fn timed_out(started: Instant, limited: Option<Duration>) -> Failure {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let used = started.elapsed();
    match limited {
        Some(max) => {
            Failure::with_limit(FailureKind::Timeout, LimitHit { limit: Limit::HttpTime, used: ms(used), max: ms(max) })
        }
        None => Failure::new(FailureKind::Timeout, format!("no whole answer after {} ms", ms(used))),
    }
}

#[cfg(test)]
mod tests;
