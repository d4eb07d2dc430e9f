//! The log of requests: what a provider really sent.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// Most requests that the log keeps: more than any test sends before it looks; the oldest go first.
pub const REQUESTS_MAX: usize = 4_096;
/// Longest path and request ID that are kept, in bytes: a request's target ends at 64 KiB, and
/// 4,096 of those would be a lot.
pub(super) const TEXT_BYTES_MAX: usize = 1_024;

/// One request to the cloud's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Counts all requests since the start, from 1, in the order of their coming.
    pub number: u64,
    /// When it came: milliseconds since the cloud's start.
    pub at_ms: u64,
    /// How long the answer took, in milliseconds.
    pub took_ms: u64,
    /// For example `GET`.
    pub method: String,
    /// With the query.
    pub path: String,
    /// Of the answer.
    pub status: u16,
    /// The request's header `x-request-id`; empty where it had none.
    pub request_id: String,
}

/// The last [`REQUESTS_MAX`] requests, those that are not answered yet, and the number of all.
#[derive(Debug, Default)]
pub(super) struct RequestLog {
    records: VecDeque<RequestRecord>,
    count: u64,
    /// As many as there are connections.
    under_way: BTreeMap<u64, RequestRecord>,
    /// By method and path of the router, of which there are few.
    counts: BTreeMap<String, u64>,
}

impl RequestLog {
    /// Notes that a request came for this route, and numbers it.
    pub(super) fn begin(&mut self, route: &str, record: &mut RequestRecord) {
        self.count += 1;
        *self.counts.entry(route.to_owned()).or_default() += 1;
        record.number = self.count;
        self.under_way.insert(record.number, record.clone());
    }

    /// Adds the record of one that was answered.
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

    /// Those that came and are not answered yet, in the order of their coming: without time taken
    /// and status.
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
