//! The HTTP budget of one provider call, and its usage. Must not send requests.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use skysail_provider::{Call, DryRun, Fence, Limit, LimitHit, RequestInFlight, Requests};
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::deletions::Held as HeldDeletion;
use super::noted::{Noted, NotedRequest, Noting};
use crate::http_client::{Failure, FailureKind, HttpLimits, HttpResponse};

/// The HTTP budget of one provider call; cloning shares it.
#[derive(Clone, Debug)]
pub struct HttpBudget {
    shared: Arc<Shared>,
}

/// The HTTP usage of a call so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpUsage {
    /// Requests asked for, refused ones included.
    pub requests: u64,
    /// Requests that were refused before anything was sent.
    pub refused: u64,
    /// Bytes of URLs, headers and bodies handed to the transport.
    pub bytes_sent: u64,
    /// Bytes of headers and bodies received from the transport, those of discarded answers
    /// included.
    pub bytes_received: u64,
    /// Time during which at least one exchange was under way: parallel exchanges count once.
    pub time: Duration,
    /// The largest number of exchanges that were in flight at once.
    pub in_flight_max: u32,
    /// Requests that received no whole answer because of the cloud, the issuer of the credential or
    /// the network, or an answer with 408, 429 or 5xx.
    pub failed: u64,
    /// Requests that the operator's rules and credentials do not allow, whose login was refused, or
    /// that were answered with 401 or 403.
    pub denied: u64,
    /// Limits that were met: the first hit of each, in the order met.
    pub limit_hits: Vec<LimitHit>,
    /// The last deletion that the budget of deletions held back.
    pub held_deletion: Option<HeldDeletion>,
}

/// What becomes of requests that may change the cloud.
#[derive(Clone, Debug)]
pub(super) enum Writes {
    Sent,
    Refused,
    Held(DryRun),
}

#[derive(Debug)]
struct Shared {
    limits: HttpLimits,
    deadline: Option<Instant>,
    fence: Fence,
    writes: Writes,
    lets_deletions_through: bool,
    requests: Requests,
    permits: Arc<Semaphore>,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    usage: HttpUsage,
    in_flight: u32,
    busy_since: Option<Instant>,
    noted: Noted,
}

/// A request that the budget of its call has room for, and the answers that the guest holds when
/// the request is sent.
#[derive(Debug)]
#[must_use]
pub struct Admitted(Arc<Held>);

/// One exchange in flight; a drop ends the exchange.
#[derive(Debug)]
pub(crate) struct InFlight {
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
    _request: RequestInFlight,
}

impl HttpBudget {
    /// A fresh budget for a call that ends at `deadline`. The call may send only while its fence is
    /// open; in a dry run its reads are sent, and other requests are recorded and not sent if the
    /// operator's rules allow them.
    #[must_use]
    pub fn new(limits: HttpLimits, deadline: Option<Instant>, call: &Call) -> Self {
        Self::with_writes(limits, deadline, call, Writes::Sent)
    }

    /// As [`Self::new`], for a call that only reads: other requests are refused.
    #[must_use]
    pub fn reading(limits: HttpLimits, deadline: Option<Instant>, call: &Call) -> Self {
        Self::with_writes(limits, deadline, call, Writes::Refused)
    }

    fn with_writes(limits: HttpLimits, deadline: Option<Instant>, call: &Call, writes: Writes) -> Self {
        let writes = call.dry_run.clone().map_or(writes, Writes::Held);
        let (fence, requests) = (call.fence.clone(), call.requests.clone());
        let lets_deletions_through = call.lets_deletions_through;
        let concurrency = usize::try_from(limits.concurrency_per_call.max(1)).unwrap_or(1);
        let permits = Arc::new(Semaphore::new(concurrency.min(Semaphore::MAX_PERMITS)));
        Self {
            shared: Arc::new(Shared {
                limits,
                deadline,
                fence,
                writes,
                lets_deletions_through,
                requests,
                permits,
                spent: Mutex::default(),
            }),
        }
    }

    /// The bounds of this call.
    #[must_use]
    pub fn limits(&self) -> &HttpLimits {
        &self.shared.limits
    }

    /// When the call ends.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.shared.deadline
    }

    /// What becomes of requests that may change the cloud.
    pub(super) fn writes(&self) -> &Writes {
        &self.shared.writes
    }

    /// Whether the deletions of the call leave although the budget of deletions is used up.
    pub(super) fn lets_deletions_through(&self) -> bool {
        self.shared.lets_deletions_through
    }

    pub(super) fn note_held(&self, held: HeldDeletion) {
        self.shared.spent().usage.held_deletion = Some(held);
    }

    /// The fence that has to be open for a request to leave.
    pub(super) fn fence(&self) -> &Fence {
        &self.shared.fence
    }

    /// The usage so far; exchanges in flight count up to now.
    #[must_use]
    pub fn usage(&self) -> HttpUsage {
        let spent = self.shared.spent();
        let mut usage = spent.usage.clone();
        usage.time += spent.busy_since.map_or(Duration::ZERO, |since| since.elapsed());
        usage
    }

    /// The last requests of the call that have ended, and no more after that.
    #[must_use]
    pub fn take_noted(&self) -> Vec<NotedRequest> {
        self.shared.spent().noted.take()
    }

    /// Notes a request that begins.
    pub(super) fn note_request(&self, method: String, url: String) -> Noting<'_> {
        Noting::new(self, method, url)
    }

    pub(super) fn noted(&self, request: NotedRequest) {
        self.shared.spent().noted.push(request);
    }

    /// Takes one request from the budget, before anything of the request is read. `held` are the
    /// answers that the guest holds already.
    ///
    /// # Errors
    /// The call has used all its requests, or the answers fill the guest's memory. The usage
    /// records either.
    pub fn admit(&self, held: &Arc<Held>) -> Result<Admitted, Failure> {
        let admitted = self.take_request().and_then(|()| held.check()).map(|()| Admitted(Arc::clone(held)));
        admitted.inspect_err(|failure| self.note(failure))
    }

    fn take_request(&self) -> Result<(), Failure> {
        let max = u64::from(self.shared.limits.requests_per_call);
        let used = {
            let mut spent = self.shared.spent();
            spent.usage.requests += 1;
            spent.usage.requests
        };
        if used <= max {
            return Ok(());
        }
        Err(Failure::with_limit(FailureKind::Limited, LimitHit { limit: Limit::HttpRequests, used, max }))
    }

    /// How many more requests the call may ask for.
    pub(crate) fn left(&self) -> usize {
        let left = u64::from(self.shared.limits.requests_per_call).saturating_sub(self.shared.spent().usage.requests);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Records `count` requests beyond the budget; returns their common failure, or `None` if
    /// `count` is 0.
    pub(crate) fn refuse(&self, count: usize) -> Option<Failure> {
        let more = (count as u64).checked_sub(1)?;
        let failure = self.take_request().err()?;
        self.note(&failure);
        let mut spent = self.shared.spent();
        spent.usage.requests += more;
        spent.usage.refused += more;
        Some(failure)
    }

    /// Waits until fewer exchanges than allowed are in flight, and for as long as the call may
    /// begin no request.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub(crate) async fn enter(&self, writes: bool) -> Result<InFlight, AcquireError> {
        let permit = Arc::clone(&self.shared.permits).acquire_owned().await?;
        let request = self.shared.requests.begin(writes).await;
        let mut spent = self.shared.spent();
        spent.in_flight += 1;
        spent.usage.in_flight_max = spent.usage.in_flight_max.max(spent.in_flight);
        spent.busy_since.get_or_insert_with(Instant::now);
        drop(spent);
        Ok(InFlight { shared: Arc::clone(&self.shared), _permit: permit, _request: request })
    }

    pub(crate) fn add_sent(&self, bytes: u64) {
        let mut spent = self.shared.spent();
        spent.usage.bytes_sent = spent.usage.bytes_sent.saturating_add(bytes);
    }

    /// Subtracts the bytes of a request that was not sent.
    pub(crate) fn take_back_sent(&self, bytes: u64) {
        let mut spent = self.shared.spent();
        spent.usage.bytes_sent = spent.usage.bytes_sent.saturating_sub(bytes);
    }

    pub(crate) fn add_received(&self, bytes: u64) {
        let mut spent = self.shared.spent();
        spent.usage.bytes_received = spent.usage.bytes_received.saturating_add(bytes);
    }

    /// Counts a request that the contract does not allow: not a failure of the operator's rules.
    pub fn note_refused(&self) {
        self.shared.spent().usage.refused += 1;
    }

    /// Counts what a request has come to, and holds the bytes of its answer.
    pub fn settle(&self, admitted: &Admitted, result: &Result<HttpResponse, Failure>) {
        match result {
            Ok(response) => {
                self.note_status(response.status);
                admitted.held().add(response.size());
            }
            Err(failure) => self.note(failure),
        }
    }

    /// Counts an answer as failed or denied by its status.
    fn note_status(&self, status: u16) {
        let mut spent = self.shared.spent();
        match status {
            401 | 403 => spent.usage.denied += 1,
            408 | 429 | 500..=599 => spent.usage.failed += 1,
            _ => {}
        }
    }

    /// Counts a failure, and records its limit.
    pub fn note(&self, failure: &Failure) {
        let mut spent = self.shared.spent();
        match failure.kind {
            FailureKind::Limited | FailureKind::Malformed => spent.usage.refused += 1,
            FailureKind::Forbidden | FailureKind::CredentialRefused => {
                spent.usage.refused += 1;
                spent.usage.denied += 1;
            }
            FailureKind::CredentialUnavailable => {
                spent.usage.refused += 1;
                spent.usage.failed += 1;
            }
            FailureKind::Unreachable | FailureKind::Tls | FailureKind::Interrupted | FailureKind::Timeout => {
                spent.usage.failed += 1;
            }
            // The cloud alone decides about the head of its answer, the component about how much it
            // asks for.
            FailureKind::TooLarge(_) => spent.usage.failed += u64::from(failure.limit.is_some_and(is_of_the_head)),
            FailureKind::Fenced => {}
        }
        // One entry for each kind of limit, so the list is bounded by the kinds.
        if let Some(hit) = failure.limit
            && spent.usage.limit_hits.iter().all(|known| known.limit != hit.limit)
        {
            spent.usage.limit_hits.push(hit);
        }
    }
}

const fn is_of_the_head(hit: LimitHit) -> bool {
    matches!(hit.limit, Limit::HttpHeaders | Limit::HttpHeaderBytes)
}

/// The bytes of answers that a guest holds, and the most that it can hold.
#[derive(Debug)]
pub struct Held {
    bytes: AtomicU64,
    max: u64,
}

impl Admitted {
    /// The answers that the guest holds.
    pub(super) fn held(&self) -> &Held {
        &self.0
    }
}

impl Held {
    /// No bytes yet, of at most `max`.
    #[must_use]
    pub const fn new(max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), max }
    }

    /// Fails if the answers so far exceed the limit: no further request is sent then.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let used = self.bytes.load(Ordering::Relaxed);
        if used <= self.max {
            return Ok(());
        }
        let hit = LimitHit { limit: Limit::Memory, used, max: self.max };
        let text =
            format!("the component holds earlier responses, so that its memory has no room for another one: {hit}");
        Err(Failure { limit: Some(hit), ..Failure::new(FailureKind::Limited, text) })
    }

    /// Adds the bytes of an answer.
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Shared {
    fn spent(&self) -> MutexGuard<'_, Spent> {
        // A panicking thread leaves the counters valid.
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut spent = self.shared.spent();
        spent.in_flight = spent.in_flight.saturating_sub(1);
        if spent.in_flight == 0
            && let Some(since) = spent.busy_since.take()
        {
            spent.usage.time += since.elapsed();
        }
    }
}
