//! The log of a provider's requests.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// The maximum number of requests in the log: more than a test sends before it reads the log; the
/// oldest are dropped.
pub const REQUESTS_MAX: usize = 4_096;
/// Longest path and request ID in the log, in bytes: a request's target may have 64 KiB, and the
/// log has 4,096 requests.
pub(super) const TEXT_BYTES_MAX: usize = 1_024;

/// One request to the cloud's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Number of the request since the start, from 1, in order of arrival.
    pub number: u64,
    /// Time of arrival: milliseconds since the cloud's start.
    pub at_ms: u64,
    /// Duration, in milliseconds.
    pub took_ms: u64,
    /// For example `GET`.
    pub method: String,
    /// The path with the query.
    pub path: String,
    /// The status of the response.
    pub status: u16,
    /// The request's header `x-request-id`; empty where it had none.
    pub request_id: String,
}

/// The last [`REQUESTS_MAX`] requests, the unanswered ones, and the total number.
#[derive(Debug, Default)]
pub(super) struct RequestLog {
    records: VecDeque<RequestRecord>,
    count: u64,
    /// At most one for each connection.
    under_way: BTreeMap<u64, RequestRecord>,
    /// The number of requests, by method and path of the router.
    counts: BTreeMap<String, u64>,
}

impl RequestLog {
    /// Records a new request for this route and returns its number.
    pub(super) fn begin(&mut self, route: &str, record: &mut RequestRecord) {
        self.count += 1;
        *self.counts.entry(route.to_owned()).or_default() += 1;
        record.number = self.count;
        self.under_way.insert(record.number, record.clone());
    }

    /// Adds an answered request.
    pub(super) fn end(&mut self, record: RequestRecord) {
        self.under_way.remove(&record.number);
        if self.records.len() == REQUESTS_MAX {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    pub(super) fn all(&self) -> Vec<RequestRecord> {
        self.records.iter().cloned().collect()
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The unanswered requests in order of arrival, without duration and status.
    pub(super) fn under_way(&self) -> Vec<RequestRecord> {
        self.under_way.values().cloned().collect()
    }

    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.clone()
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
    }
}

/// The beginning of a text, at most [`TEXT_BYTES_MAX`] bytes.
pub(super) fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{REQUESTS_MAX, RequestLog, RequestRecord};

    #[test]
    fn the_log_keeps_the_newest_and_counts_all() {
        let mut log = RequestLog::default();
        let record = RequestRecord {
            number: 0,
            at_ms: 0,
            took_ms: 0,
            method: "GET".to_owned(),
            path: "/v1/zones".to_owned(),
            status: 200,
            request_id: String::new(),
        };
        for _ in 0..REQUESTS_MAX + 5 {
            let mut record = record.clone();
            log.begin("GET /v1/zones", &mut record);
            log.end(record);
        }
        let all = log.all();
        assert_eq!((all.len(), all[0].number), (REQUESTS_MAX, 6));
        assert_eq!(log.under_way(), []);
        log.clear();
        assert_eq!(log.counts(), [("GET /v1/zones".to_owned(), REQUESTS_MAX as u64 + 5)].into());
    }
}
