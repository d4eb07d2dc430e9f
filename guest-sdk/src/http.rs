//! Requests of the provider: JSON over HTTP, with the contract's errors.
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
//! The host checks each request against the egress rules, limits and counts it, and adds the named
//! credential. The host does not retry a request: return the error, and the host calls the provider
//! again. Redirects are not followed.

mod request;
mod response;

pub use self::{
    request::{Api, Request, percent_encode},
    response::{Judge, Response},
};
use crate::{
    Error, Result, Retry,
    bindings::imports::skysail::provider::http::{self, Failure},
    native::host_only,
};

/// Sends all requests in parallel, as far as the host's limits allow; one answer for each, in
/// order, already [checked](Response::check).
///
/// A request that cannot be sent is answered with its error, as by [`Request::send`], and the
/// others are sent.
#[must_use]
#[track_caller]
pub fn send_all(requests: Vec<Request>) -> Vec<Result<Response>> {
    host_only("http::send_all");
    let judges: Vec<_> = requests.iter().map(Request::judge).collect();
    let answers = send_all_any(requests);
    judges.into_iter().zip(answers).map(|(judge, answer)| answer?.judged(judge)).collect()
}

/// As [`send_all`], but the responses are not checked, whatever their status is.
#[must_use]
#[track_caller]
pub fn send_all_any(requests: Vec<Request>) -> Vec<Result<Response>> {
    host_only("http::send_all");
    let mut raw = Vec::with_capacity(requests.len());
    let lines: Vec<Result<String>> = requests
        .into_iter()
        .map(|request| {
            let (line, request) = request.into_raw()?;
            raw.push(request);
            Ok(line)
        })
        .collect();
    let mut answers = http::send_all(&raw).into_iter();
    let missing = || Err(Failure::Interrupted("the host has fewer answers than requests".to_owned()));
    lines.into_iter().map(|line| Response::from_answer(line?, answers.next().unwrap_or_else(missing))).collect()
}

/// As [`send_all`], for requests that must all succeed. A failure is returned after every request
/// has ended.
///
/// # Errors
///
/// As [`every`].
#[track_caller]
pub fn send_every(requests: Vec<Request>) -> Result<Vec<Response>> {
    every(send_all(requests))
}

/// All answers, or one failure for all of them.
///
/// # Errors
///
/// The first error that is not temporary and not `not-found`. If there is none: the `retry-after`
/// with the longest time, so that every rate limit is respected, else the first `unavailable`, else
/// the first `not-found`, so that nothing counts as gone while something could not be asked.
pub fn every<T>(answers: Vec<Result<T>>) -> Result<Vec<T>> {
    let (mut all, mut worst) = (Vec::with_capacity(answers.len()), None);
    for answer in answers {
        match answer {
            Ok(answer) => all.push(answer),
            Err(error) if worst.as_ref().is_none_or(|worst| weight(worst) < weight(&error)) => worst = Some(error),
            Err(_) => {}
        }
    }
    worst.map_or(Ok(all), Err)
}

/// The rank of an error: [`every`] returns the first error of the highest rank.
const fn weight(error: &Error) -> (u8, u64) {
    match error {
        Error::NotFound(_) => (0, 0),
        Error::Unavailable(_) => (1, 0),
        Error::RetryAfter(Retry { after_ms, message: _ }) => (2, *after_ms),
        _ => (3, 0),
    }
}

impl From<Failure> for Error {
    /// `denied` where the operator must act, `unavailable` where time or the cloud helps,
    /// `internal` where the provider is at fault.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Forbidden(why) => Self::Denied(format!("the operator does not allow it: {why}")),
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
            Failure::CredentialRefused(why) => Self::Denied(format!("the login was refused: {why}")),
            Failure::CredentialUnavailable(why) => Self::Unavailable(format!("no login is possible now: {why}")),
            Failure::Other((code, why)) => Self::Unavailable(format!("{code}: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::every;
    use crate::{Error, Result, bindings::imports::skysail::provider::http::Failure};

    /// Such a failure must not count against the release: the operator has to act.
    #[test]
    fn a_request_that_the_operator_does_not_allow_is_denied() {
        let error = Error::from(Failure::Forbidden("no credential is called 'apj'; there is 'api'".to_owned()));
        let expected = "the operator does not allow it: no credential is called 'apj'; there is 'api'";
        assert_eq!(error, Error::Denied(expected.to_owned()));
    }

    /// A wrong password must not look like an outage, and an outage must not look like a wrong
    /// password.
    #[test]
    fn a_refused_login_is_denied_and_a_login_that_cannot_be_made_now_is_unavailable() {
        let error = |failure: fn(String) -> Failure| Error::from(failure("why".to_owned()));
        assert!(matches!(error(Failure::CredentialRefused), Error::Denied(text) if text.contains("why")));
        assert!(matches!(error(Failure::CredentialUnavailable), Error::Unavailable(text) if text.contains("why")));
    }

    #[test]
    fn the_longest_wait_of_several_requests_is_kept() {
        let wait = |seconds| Err(Error::retry_after(Duration::from_secs(seconds), "busy"));
        let unavailable = || Err(Error::Unavailable("503".to_owned()));
        let answers: Vec<Result<()>> = vec![Ok(()), unavailable(), wait(1), wait(30), wait(2)];
        assert_eq!(every(answers), wait(30).map(|()| Vec::new()));
        let denied = || Err(Error::Denied("401".to_owned()));
        assert_eq!(every(vec![wait(30), denied(), Err(Error::Invalid("400".to_owned()))]), denied().map(|()| vec![]));
        assert_eq!(every(vec![unavailable(), Ok(())]), unavailable().map(|()| vec![]));
        let gone = || Err(Error::NotFound("404".to_owned()));
        assert_eq!(every(vec![gone(), unavailable()]), unavailable().map(|()| vec![]), "not all of it is gone");
        assert_eq!(every(vec![Ok(()), gone()]), gone().map(|()| vec![]));
        assert_eq!(every(vec![Ok(1), Ok(2)]), Ok(vec![1, 2]));
    }
}
