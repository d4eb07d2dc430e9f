//! The way out of the sandbox: JSON over HTTP, with the contract's errors.
//!
//! ```no_run
//! # use skysail_guest_sdk::{http::Api, Result};
//! # #[derive(serde::Deserialize)] struct Server { id: String }
//! # fn example(id: &str) -> Result<Server> {
//! let api = Api::new("https://api.example.com").credential("api");
//! let server: Server = api.get(&["v1", "servers", id]).query("detail", "true").send()?.json()?;
//! # Ok(server) }
//! ```
//!
//! The host allows, limits and accounts each request, adds the named credential, and repeats nothing: what fails is reported, and the
//! host calls the provider again. Nothing here follows a redirect.

mod request;
mod response;

pub use self::{
    request::{Api, Request, percent_encode},
    response::Response,
};
use crate::{
    Error, Result,
    bindings::imports::skysail::provider::http::{self, Failure},
};

/// Sends all requests in parallel, as far as the host's limits allow; one answer for each, in order, already [checked](Response::check).
#[must_use]
pub fn send_all(requests: Vec<Request>) -> Vec<Result<Response>> {
    let (lines, raw): (Vec<_>, Vec<_>) =
        requests.into_iter().map(|request| (request.line(), request.into_raw())).unzip();
    let answers = http::send_all(&raw);
    lines.into_iter().zip(answers).map(|(line, answer)| Response::from_answer(line, answer)?.check()).collect()
}

/// As [`send_all`], for requests that all have to succeed; every one is sent and answered before the first failure is reported.
///
/// # Errors
///
/// The first failure, in the order of the requests.
pub fn send_every(requests: Vec<Request>) -> Result<Vec<Response>> {
    send_all(requests).into_iter().collect()
}

impl From<Failure> for Error {
    /// What the operator must allow or mend is `denied` or `invalid`; what time or the cloud mends is `unavailable`.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Forbidden(why) => Self::Denied(format!("the operator's egress rules refuse it: {why}")),
            Failure::Limited(why) => Self::Unavailable(format!("a limit of the sandbox was met: {why}")),
            Failure::Malformed(why) => Self::Internal(format!("not a request that can be sent: {why}")),
            Failure::Unreachable(why) => Self::Unavailable(format!("the cloud is unreachable: {why}")),
            Failure::Tls(why) => Self::Unavailable(format!("no trusted connection to the cloud: {why}")),
            Failure::Interrupted(why) => Self::Unavailable(format!("the answer was cut off: {why}")),
            Failure::Timeout => Self::Unavailable("the cloud did not answer in time".to_owned()),
            Failure::TooLarge(0) => Self::Internal("the answer is larger than the sandbox allows".to_owned()),
            Failure::TooLarge(bytes) => {
                Self::Internal(format!("the answer of {bytes} bytes is larger than the sandbox allows"))
            }
            Failure::Other((code, why)) => Self::Unavailable(format!("{code}: {why}")),
        }
    }
}
