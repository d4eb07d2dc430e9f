//! Requests of probes: the cloud-config is the URL.

pub use skysail_guest_sdk::bindings::imports::skysail::provider::http::{Failure, Request, Response, send, send_all};
use skysail_guest_sdk::config;

/// A GET of the configured URL.
#[must_use]
pub fn request() -> Request {
    Request {
        method: "GET".to_owned(),
        url: config::text(),
        headers: Vec::new(),
        body: None,
        credential: None,
        timeout_ms: 0,
        extra: Vec::new(),
    }
}

/// The report of a probe: how many requests were answered, and the first failure.
#[must_use]
pub fn report(results: &[Result<Response, Failure>]) -> String {
    let answered = results.iter().filter(|result| result.is_ok()).count();
    let failure = results.iter().find_map(|result| result.as_ref().err());
    format!("{answered} answered, {failure:?}")
}
