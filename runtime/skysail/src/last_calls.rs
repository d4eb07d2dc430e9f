//! The last calls of providers for each Service, for people who ask why a Service waits. The memory
//! is bounded in bytes: the oldest calls go.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    mem::size_of,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use skysail_host::{
    CallOutcome, CallRecord,
    http_client::{NotedRequest, RequestEnd},
};
use skysail_provider::text::one_line;
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::Instant,
};

/// Calls that are kept for one Service: a failed one, and what came before it.
const CALLS_PER_SERVICE_MAX: usize = 3;
/// The most bytes of all calls. A call with two requests takes about 700 bytes.
const BYTES_MAX: usize = 4 << 20;
/// Longest text of a failure, in bytes.
const MESSAGE_BYTES_MAX: usize = 512;
/// Bytes of the maps' own for each call, at most.
const OVERHEAD_BYTES: usize = 256;

/// One call, as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastCall {
    /// The provider that was called.
    pub(crate) provider: String,
    /// Digest of the called release.
    pub(crate) digest: String,
    /// `load-balancers.ensure`.
    pub(crate) function: String,
    /// How long ago the call ended.
    pub(crate) ago_ms: u64,
    /// `Ok`, `Cancelled` or a code.
    pub(crate) outcome: String,
    /// The text of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// From start to end, waits included.
    pub(crate) duration_ms: u64,
    /// Waiting until fewer calls of the provider ran.
    pub(crate) waited_ms: u64,
    /// Fuel units.
    pub(crate) fuel: u64,
    /// Requests that were sent.
    pub(crate) requests_sent: u64,
    /// The last requests, refused ones included.
    pub(crate) requests: Vec<LastRequest>,
}

/// One request of a call, as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastRequest {
    pub(crate) method: String,
    /// Origin and path; empty if the URL was not valid.
    pub(crate) url: String,
    /// The status of the answer; none without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// Why there is no answer: a case of the contract's `failure`, or `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// From start to end, waits included.
    pub(crate) duration_ms: u64,
}

type Key = (String, String);

struct Kept {
    number: u64,
    bytes: usize,
    ended: Instant,
    provider: Arc<str>,
    digest: Arc<str>,
    function: &'static str,
    outcome: &'static str,
    message: Option<String>,
    duration: Duration,
    waited: Duration,
    fuel: u64,
    requests_sent: u64,
    requests: Vec<NotedRequest>,
}

#[derive(Default)]
struct Inner {
    /// The calls of each Service, the oldest first.
    services: HashMap<Key, VecDeque<Kept>>,
    /// All calls, the oldest first.
    by_age: BTreeMap<u64, Key>,
    bytes: usize,
    number: u64,
}

/// See the module. Clones share the memory.
#[derive(Clone, Default)]
pub(crate) struct LastCalls(Arc<Mutex<Inner>>);

impl LastCalls {
    /// Remembers the calls of these records until no further one can come.
    pub(crate) async fn run(self, mut records: Receiver<Arc<CallRecord>>) {
        loop {
            match records.recv().await {
                Ok(record) => self.note(&record),
                // The calls in between are missing here, and in no metric.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn note(&self, record: &CallRecord) {
        let Some(object) = record.object.as_ref().filter(|object| object.kind == "Service") else { return };
        let message = match &record.outcome {
            CallOutcome::Failed { code: _, message } => Some(one_line(message, MESSAGE_BYTES_MAX)),
            CallOutcome::Ok | CallOutcome::Cancelled => None,
        };
        let key = (object.namespace.clone(), object.name.clone());
        let of_request = |request: &NotedRequest| size_of::<NotedRequest>() + request.method.len() + request.url.len();
        let texts = 2 * (key.0.len() + key.1.len()) + message.as_ref().map_or(0, String::len);
        let bytes = size_of::<Kept>() + OVERHEAD_BYTES + texts + record.requests.iter().map(of_request).sum::<usize>();
        let mut inner = self.lock();
        inner.number += 1;
        let kept = Kept {
            number: inner.number,
            bytes,
            ended: Instant::now(),
            provider: Arc::clone(&record.provider),
            digest: Arc::clone(&record.digest),
            function: record.function,
            outcome: record.outcome.category(),
            message,
            duration: record.wall,
            waited: record.waited,
            fuel: record.fuel,
            requests_sent: record.http.requests,
            requests: record.requests.clone(),
        };
        inner.put(key, kept);
    }

    /// The calls for this Service, the latest first.
    pub(crate) fn of_service(&self, namespace: &str, name: &str) -> Vec<LastCall> {
        let inner = self.lock();
        let calls = inner.services.get(&(namespace.to_owned(), name.to_owned()));
        calls.into_iter().flatten().rev().map(shown).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put(&mut self, key: Key, kept: Kept) {
        self.bytes += kept.bytes;
        self.by_age.insert(kept.number, key.clone());
        let calls = self.services.entry(key.clone()).or_default();
        calls.push_back(kept);
        if calls.len() > CALLS_PER_SERVICE_MAX {
            self.remove_oldest_of(&key);
        }
        while self.bytes > BYTES_MAX {
            let Some((_, key)) = self.by_age.first_key_value() else { return };
            let key = key.clone();
            self.remove_oldest_of(&key);
        }
    }

    fn remove_oldest_of(&mut self, key: &Key) {
        let Some(calls) = self.services.get_mut(key) else { return };
        if let Some(oldest) = calls.pop_front() {
            self.bytes -= oldest.bytes;
            self.by_age.remove(&oldest.number);
        }
        if calls.is_empty() {
            self.services.remove(key);
        }
    }
}

fn shown(kept: &Kept) -> LastCall {
    LastCall {
        provider: kept.provider.to_string(),
        digest: kept.digest.to_string(),
        function: kept.function.to_owned(),
        ago_ms: milliseconds(kept.ended.elapsed()),
        outcome: kept.outcome.to_owned(),
        message: kept.message.clone(),
        duration_ms: milliseconds(kept.duration),
        waited_ms: milliseconds(kept.waited),
        fuel: kept.fuel,
        requests_sent: kept.requests_sent,
        requests: kept.requests.iter().map(request).collect(),
    }
}

fn request(NotedRequest { method, url, end, time }: &NotedRequest) -> LastRequest {
    let (status, failure) = match end {
        RequestEnd::Answered(status) => (Some(*status), None),
        RequestEnd::Failed(kind) => (None, Some(kind.name().to_owned())),
        RequestEnd::Cancelled => (None, Some("cancelled".to_owned())),
    };
    LastRequest { method: method.clone(), url: url.clone(), status, failure, duration_ms: milliseconds(*time) }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use skysail_host::{
        CallOutcome, CallRecord,
        http_client::{NotedRequest, RequestEnd},
    };
    use skysail_provider::{Code, ObjectReference};

    use super::{BYTES_MAX, CALLS_PER_SERVICE_MAX, LastCalls, MESSAGE_BYTES_MAX};

    fn record(kind: &'static str, name: &str, outcome: CallOutcome) -> CallRecord {
        let object =
            ObjectReference { kind, namespace: "default".to_owned(), name: name.to_owned(), uid: String::new() };
        let record = CallRecord::new("sim".into(), "sha256:1".into(), "load-balancers.ensure", outcome);
        CallRecord { object: Some(object), ..record }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_calls_of_a_service_are_kept_with_their_requests_the_latest_first() {
        let calls = LastCalls::default();
        calls.note(&record("Node", "web", CallOutcome::Ok));
        for number in 0..5 {
            let url = format!("https://api.example.com/{number}");
            let end = RequestEnd::Answered(200 + number);
            let time = std::time::Duration::from_millis(12);
            let requests = vec![NotedRequest { method: "GET".to_owned(), url, end, time }];
            calls.note(&CallRecord { requests, ..record("Service", "web", CallOutcome::Ok) });
        }
        let failed = CallOutcome::Failed { code: Code::Denied, message: "no\n".repeat(1_000) };
        calls.note(&record("Service", "web", failed));
        tokio::time::advance(std::time::Duration::from_secs(7)).await;
        let kept = calls.of_service("default", "web");
        assert_eq!(kept.len(), CALLS_PER_SERVICE_MAX);
        let [last, before, ..] = &*kept else { panic!() };
        assert_eq!((last.outcome.as_str(), last.ago_ms), ("Denied", 7_000));
        let message = last.message.as_ref().unwrap();
        assert!(message.len() <= MESSAGE_BYTES_MAX && !message.contains('\n'));
        assert_eq!(
            (before.requests[0].url.as_str(), before.requests[0].status),
            ("https://api.example.com/4", Some(204))
        );
        assert!(calls.of_service("default", "other").is_empty());
    }

    /// Each of many Services fails with many requests.
    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded_in_bytes_and_the_oldest_calls_go() {
        let calls = LastCalls::default();
        let request = NotedRequest {
            method: "GET".to_owned(),
            url: "u".repeat(200),
            end: RequestEnd::Cancelled,
            time: std::time::Duration::ZERO,
        };
        let count = 1_000;
        for number in 0..count {
            let failed = CallOutcome::Failed { code: Code::Denied, message: "x".repeat(600) };
            let record = record("Service", &format!("s{number}"), failed);
            calls.note(&CallRecord { requests: vec![request.clone(); 32], ..record });
        }
        let inner = calls.lock();
        assert!(inner.bytes <= BYTES_MAX && inner.bytes > BYTES_MAX / 2, "{}", inner.bytes);
        assert_eq!(inner.by_age.len(), inner.services.len());
        drop(inner);
        assert!(calls.of_service("default", "s0").is_empty());
        assert_eq!(calls.of_service("default", &format!("s{}", count - 1)).len(), 1);
    }
}
