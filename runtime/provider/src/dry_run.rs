//! A dry run: the provider is called as always and its reads reach the cloud, but its writes are
//! held back and recorded. The term is that of Kubernetes (`--dry-run`).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Most requests that are recorded for one object: the provider is not trusted, and after the first
/// request that is held back it usually gives up.
const HELD_MAX: usize = 64;
/// Most bytes of requests (with the bodies that were read before them) and of answers that are
/// recorded for one object, each.
const BYTES_MAX: usize = 4 << 20;

/// A request that was not sent, because it may change the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRequest {
    /// As the provider wrote it.
    pub method: String,
    /// With the query; without a credential, which the host adds later.
    pub url: String,
    /// As the provider wrote it.
    pub body: Vec<u8>,
    /// The last body that the provider read from the same URL for this object; none if the record
    /// had no room for it.
    pub read: Option<Vec<u8>>,
}

/// The record of one object; clones share it.
#[derive(Clone, Default)]
pub struct DryRun(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    held: Vec<HeldRequest>,
    held_bytes: usize,
    /// Requests beyond the bounds.
    omitted: usize,
    /// By URL.
    answers: BTreeMap<String, Vec<u8>>,
    answered_bytes: usize,
}

impl DryRun {
    /// Records the answer to a GET. Answers beyond the bounds are not recorded.
    pub fn read(&self, url: &str, body: &[u8]) {
        let mut record = self.record();
        let before = record.answers.get(url).map_or(0, Vec::len);
        let bytes = record.answered_bytes - before + body.len();
        if bytes <= BYTES_MAX {
            record.answered_bytes = bytes;
            record.answers.insert(url.to_owned(), body.to_vec());
        }
    }

    /// Records a request that is held back.
    pub fn hold(&self, method: &str, url: &str, body: &[u8]) {
        let mut record = self.record();
        let bytes = record.held_bytes.saturating_add(url.len()).saturating_add(body.len());
        if record.held.len() == HELD_MAX || bytes > BYTES_MAX {
            record.omitted += 1;
            return;
        }
        // A body that is read again is another copy.
        let room = BYTES_MAX - bytes;
        let read = record.answers.get(url).filter(|read| read.len() <= room).cloned();
        let bytes = bytes + read.as_ref().map_or(0, Vec::len);
        let held = HeldRequest { method: method.to_owned(), url: url.to_owned(), body: body.to_vec(), read };
        record.held_bytes = bytes;
        record.held.push(held);
    }

    /// The requests that were held back, in order, and the number of further ones that were not
    /// recorded.
    #[must_use]
    pub fn held(&self) -> (Vec<HeldRequest>, usize) {
        let record = self.record();
        (record.held.clone(), record.omitted)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        // A panicking thread leaves a valid record.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DryRun").field("held", &self.record().held.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, DryRun, HELD_MAX};

    #[test]
    fn a_held_request_has_the_last_body_that_was_read_from_its_url() {
        let run = DryRun::default();
        run.read("https://cloud/lb/1", b"old");
        run.read("https://cloud/lb/1", b"new");
        run.hold("PUT", "https://cloud/lb/1", b"wanted");
        run.hold("POST", "https://cloud/lb", b"another");
        let (held, omitted) = run.held();
        let read: Vec<_> = held.iter().map(|held| held.read.as_deref()).collect();
        assert_eq!((read, omitted), (vec![Some(b"new".as_slice()), None], 0));
    }

    #[test]
    fn the_record_of_an_object_is_bounded_in_requests_and_in_bytes() {
        let (many, large) = (DryRun::default(), DryRun::default());
        for _ in 0..HELD_MAX + 3 {
            many.hold("POST", "https://cloud/lb", b"");
        }
        let (held, omitted) = many.held();
        assert_eq!((held.len(), omitted), (HELD_MAX, 3));
        let half = vec![b'x'; BYTES_MAX / 2 + 1];
        for url in ["https://cloud/1", "https://cloud/2"] {
            large.read(url, &half);
            large.hold("PUT", url, &half);
        }
        let (held, omitted) = large.held();
        assert_eq!((held.len(), omitted), (1, 1));
        large.hold("PUT", "https://cloud/2", b"");
        assert_eq!(large.held().0.last().and_then(|held| held.read.clone()), None);
    }

    #[test]
    fn the_copies_of_an_answer_beside_its_held_requests_are_bounded_together() {
        let run = DryRun::default();
        run.read("https://cloud/lb/1", &vec![b'x'; BYTES_MAX / 2]);
        for _ in 0..HELD_MAX {
            run.hold("PUT", "https://cloud/lb/1", b"");
        }
        let (held, omitted) = run.held();
        let copies = held.iter().filter_map(|held| held.read.as_ref());
        assert_eq!((held.len(), omitted, copies.count()), (HELD_MAX, 0, 1));
    }
}
