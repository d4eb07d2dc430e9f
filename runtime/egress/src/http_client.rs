//! The only way out of the sandbox: one judged, bounded, accounted exchange at a time, or several
//! in parallel.
//!
//! Flow of one request, in this order; whatever fails first is the answer:
//! 1. the budget of the call gives a request ([`HttpBudget::admit`]);
//! 2. URL, method and headers are read, strictly (`malformed`);
//! 3. the operator's rules judge origin, method and path, and an address that stands in the URL
//!    ([`crate::policy`], `forbidden`);
//! 4. the credential is looked up and its origins are judged ([`crate::credentials`]);
//! 5. sizes (`limited`), then the call's concurrency (a wait), then the provider's rate (a wait of
//!    at most a second, or `limited`);
//! 6. the fence is asked (`fenced`); the credential was added, last, and the request goes to a
//!    connection whose peer address was judged when it was made;
//! 7. the answer is read up to its bounds, one in a coding is refused, and every value of a
//!    credential in it is redacted.
//!
//! It follows no redirect, keeps no cookie, asks no proxy, and sends nothing twice, with one
//! exception that is the transport's own: a request on a reused connection that the peer had closed
//! before a single byte of the request was written goes to a fresh one, and an HTTP/2 stream that
//! the peer refused unprocessed is sent once more. In both cases the peer did nothing with it.
//!
//! Must not know wasm. Dropping the future of a request ends its exchange.

mod budget;
mod clients;
mod exchange;
mod headers;
mod limits;
mod message;
mod rate;

use std::{fmt, iter::repeat_n, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Full;
use skysail_provider::{Limit, LimitHit, text::one_line};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::Instrument as _;

pub use crate::resolver::{Resolver, SystemResolver};
use crate::{
    blocking::Blocking,
    credentials::{Credentials, Generation, Proof},
    policy::{EgressPolicy, METHODS, Target},
    transport::{Client, header_bytes},
};
pub use budget::{Admitted, Held, HttpBudget, HttpUsage};
use clients::Clients;
pub use clients::HttpClientError;
use exchange::Exchange;
pub use limits::HttpLimits;
pub use message::{Failure, FailureKind, HttpRequest, HttpResponse};
use rate::Rate;

/// Redactions of large answers of one provider under way at once: each keeps a core busy, for
/// seconds where answers of 256 MiB are allowed.
const REDACTIONS_MAX: usize = 2;

/// The methods that change nothing, of those that can be allowed.
const SAFE_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// The HTTP of one provider: its rules, credentials, connections and rate. Shared by all its calls.
pub struct HttpClient {
    policy: Arc<EgressPolicy>,
    credentials: Arc<Credentials>,
    clients: Clients,
    rate: Rate,
    redactions: Blocking,
}

/// A request that may leave.
struct Judged {
    client: Client,
    request: Request<Full<Bytes>>,
    bytes: u64,
    timeout: Option<Duration>,
    has_credential: bool,
    /// Keeps the redaction of the very values that are sent, even when they are exchanged
    /// meanwhile.
    generation: Arc<Generation>,
}

// === impl HttpClient ===

impl HttpClient {
    /// A client that resolves names with a system's resolver of its own. Of `limits` it takes the
    /// rate and the count of headers; the others are those of each call's [`HttpBudget`].
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

    /// A client that resolves names with `resolver`; its answers are judged like any other's.
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
        // Built now, so that a certificate without its key is an error of the operator's file and
        // not of a request.
        for (name, credential) in credentials.current().iter() {
            if let Proof::ClientCertificate(certificate) = &credential.proof {
                clients.with_certificate(name, certificate)?;
            }
        }
        Ok(Self {
            policy,
            credentials,
            clients,
            rate: Rate::new(limits.requests_per_second),
            redactions: Blocking::new(REDACTIONS_MAX),
        })
    }

    /// Whether answers are searched for values of credentials.
    #[must_use]
    pub fn redacts(&self) -> bool {
        self.credentials.current().redactor().seeks()
    }

    /// What may leave.
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
        _admitted: Admitted,
        request: HttpRequest,
    ) -> Result<HttpResponse, Failure> {
        let (method, url) = (shown(&request.method), shown(request.url.split(['?', '#']).next().unwrap_or_default()));
        let span = tracing::debug_span!("http request", http.method = method, http.url = url);
        let result = self.send_judged(budget, request).instrument(span.clone()).await;
        let _entered = span.enter();
        match &result {
            Ok(response) => {
                budget.note_status(response.status);
                tracing::debug!(
                    http.status = response.status,
                    http.response_bytes = response.body.len(),
                    "request answered"
                );
            }
            Err(failure) => {
                budget.note(failure);
                tracing::debug!(http.failure = failure.kind.name(), reason = failure.message, "request failed");
            }
        }
        result
    }

    /// Sends all requests, as many at once as the budget allows; answers in the order of the
    /// requests. They are held until the last one is there: beyond `room` bytes of answers, which
    /// is what the guest can hold, nothing more is asked for.
    ///
    /// # Cancel safety
    /// Dropping the future ends all exchanges.
    pub async fn send_all(
        &self,
        budget: &HttpBudget,
        mut requests: Vec<HttpRequest>,
        room: u64,
    ) -> Vec<Result<HttpResponse, Failure>> {
        // Those that the call has no budget for are refused as a whole: the guest chooses how many
        // they are.
        let beyond = requests.split_off(budget.left().min(requests.len())).len();
        let at_once = usize::try_from(budget.limits().concurrency_per_call.max(1)).unwrap_or(1);
        let held = &Held::new(room);
        let send = |(index, request)| async move { (index, self.send_held(budget, held, request).await) };
        // Unordered, so that one slow answer does not hold up the start of the next request.
        let numbered = stream::iter(requests.into_iter().enumerate());
        let mut answers: Vec<_> = numbered.map(send).buffer_unordered(at_once).collect().await;
        answers.sort_unstable_by_key(|(index, _)| *index);
        let answers = answers.into_iter().map(|(_, answer)| answer);
        let refused = budget.refuse(beyond).into_iter().flat_map(|failure| repeat_n(Err(failure), beyond));
        answers.chain(refused).collect()
    }

    async fn send_held(&self, budget: &HttpBudget, held: &Held, request: HttpRequest) -> Result<HttpResponse, Failure> {
        let answer = self.send(budget, budget.admit(held)?, request).await;
        held.add(answer.as_ref().map_or(0, HttpResponse::size));
        answer
    }

    async fn send_judged(&self, budget: &HttpBudget, request: HttpRequest) -> Result<HttpResponse, Failure> {
        let judged = self.judge(budget, request)?;
        let over = || Failure::new(FailureKind::Timeout, "the time of the call is over");
        let waiting = async {
            let in_flight = budget.enter().await.map_err(|_| over())?;
            let turn = self.rate.take().map_err(|hit| Failure::with_limit(FailureKind::Limited, hit))?;
            sleep_until(turn).await;
            Ok(in_flight)
        };
        let _in_flight = match budget.deadline() {
            Some(deadline) => timeout_at(deadline, waiting).await.map_err(|_| over())??,
            None => waiting.await?,
        };
        let Judged { client, request, bytes, timeout, has_credential, generation } = judged;
        budget.fence().check().map_err(Failure::fenced)?;
        let (end, limited) = end_of(budget, timeout);
        let started = Instant::now();
        budget.add_sent(bytes);
        let exchange =
            Exchange { client: &client, budget, generation: &generation, has_credential, redactions: &self.redactions };
        let exchange = timeout_at(end, exchange.run(request));
        let result = match budget.fence().guard(exchange).await {
            Ok(ended) => ended.unwrap_or_else(|_| Err(timed_out(started, limited))),
            Err(closed) => Err(Failure::fenced(closed)),
        };
        if let Err(failure) = &result
            && matches!(failure.kind, FailureKind::Forbidden | FailureKind::Unreachable | FailureKind::Tls)
        {
            budget.take_back_sent(bytes);
        }
        result
    }

    /// Everything that needs no network.
    fn judge(&self, budget: &HttpBudget, request: HttpRequest) -> Result<Judged, Failure> {
        let HttpRequest { method, url, headers, body, credential, timeout } = request;
        if !METHODS.contains(&method.as_str()) {
            return Err(Failure::malformed(format!("the method must be one of {}", METHODS.join(", "))));
        }
        if budget.reads_only() && !SAFE_METHODS.contains(&method.as_str()) {
            let safe = SAFE_METHODS.join(", ");
            return Err(Failure::forbidden(format!(
                "this call may only read, and {method} can change something; it may use {safe}"
            )));
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
        let headers = headers::of_guest(&headers, proof.map(|(_, proof)| proof))?;
        let bytes = check_request(budget.limits(), &target, &headers, body.as_ref().map_or(0, bytes::Bytes::len))?;
        let client = match proof {
            Some((name, Proof::ClientCertificate(certificate))) => self
                .clients
                .with_certificate(name, certificate)
                .map_err(|error| Failure::new(FailureKind::Tls, error.to_string()))?,
            Some((_, Proof::Header { .. })) | None => self.clients.plain(),
        };
        let unsent = |what| Failure::malformed(format!("the {what} cannot be sent"));
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|_| unsent("method"))?;
        *request.uri_mut() = target.url.as_str().parse::<Uri>().map_err(|_| unsent("URL"))?;
        *request.headers_mut() = headers;
        // Last, and as the only one of its name.
        if let Some((_, Proof::Header { name, value, secrets: _ })) = proof {
            request.headers_mut().insert(name, value.clone());
        }
        Ok(Judged { client, request, bytes, timeout, has_credential: proof.is_some(), generation })
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("policy", &self.policy)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

/// Credentials that the error names: an operator has one to three.
const CREDENTIALS_NAMED_MAX: usize = 10;

/// What the operator forgot: the provider asks for a credential that was not given to it.
fn unknown_credential(shown: &str, generation: &Generation) -> String {
    let names: Vec<_> = generation.iter().map(|(name, _)| name.as_str()).take(CREDENTIALS_NAMED_MAX).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!(
        "there is no credential {shown:?}; the provider has: {known}; add it under `credentials`, or name one of these"
    )
}

/// The guest's text, fit for a log: its beginning, on one line.
fn shown(text: &str) -> String {
    one_line(text, 200)
}

fn check_request(limits: &HttpLimits, target: &Target, headers: &HeaderMap, body: usize) -> Result<u64, Failure> {
    let refuse = |limit, used, max| {
        if used <= max { Ok(()) } else { Err(Failure::with_limit(FailureKind::Limited, LimitHit { limit, used, max })) }
    };
    let header_bytes = header_bytes(headers);
    refuse(Limit::HttpHeaders, headers.len() as u64, u64::from(limits.headers_max))?;
    refuse(Limit::HttpHeaderBytes, header_bytes, limits.header_bytes_max)?;
    let bytes = (target.url.as_str().len() as u64).saturating_add(header_bytes).saturating_add(body as u64);
    refuse(Limit::HttpRequestBytes, bytes, limits.request_bytes_max)?;
    Ok(bytes)
}

/// When an exchange that begins now must be over, and, where the provider's limit is what ends it,
/// that limit.
fn end_of(budget: &HttpBudget, timeout: Option<Duration>) -> (Instant, Option<Duration>) {
    let now = Instant::now();
    let max = budget.limits().exchange_time_max;
    let own = timeout.filter(|timeout| *timeout < max);
    let end = now + own.unwrap_or(max);
    match budget.deadline() {
        Some(deadline) if deadline < end => (deadline, None),
        _ => (end, own.is_none().then_some(max)),
    }
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
