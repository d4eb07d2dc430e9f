//! Why a step of a reconcile failed: the step, the cause, and the [`Code`] that decides what
//! happens next.

use std::{error::Error as StdError, iter::successors, time::Duration};

use kube::core::Status;
use skysail_provider::{Code, FenceClosed, text::with_causes};

/// A failed step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The provider answered with an error.
    #[error("failed to {step}")]
    Provider {
        step: &'static str,
        #[source]
        source: skysail_provider::Error,
    },
    /// The Kubernetes API answered with an error.
    #[error("failed to {step}")]
    Api {
        step: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
}

const API_CONFLICT: &str = "ApiConflict";
const API_ERROR: &str = "ApiError";

impl Error {
    pub(crate) fn provider(step: &'static str) -> impl Fn(skysail_provider::Error) -> Self {
        move |source| Self::Provider { step, source }
    }

    pub(crate) fn api(step: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| Self::Api { step, source: Box::new(source) }
    }

    /// With the name of the provider, where another one reports the error.
    pub(crate) fn at(mut self, provider: &str) -> Self {
        if let Self::Provider { source, .. } = &mut self {
            source.message = format!("provider {provider}: {}", source.message);
        }
        self
    }

    /// The code that the caller branches on. A failure of the Kubernetes API is
    /// [`Code::Unavailable`], unless the fence blocked the request.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Provider { source, .. } => source.code,
            Self::Api { source, .. } if is_fenced(source) => Code::NotLeading,
            Self::Api { .. } => Code::Unavailable,
        }
    }

    /// The provider's retry-after delay, if it gave one.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Provider { source, .. } => source.retry_after,
            Self::Api { .. } => None,
        }
    }

    /// Whether the operator's budget of deletions held a deletion back.
    pub(crate) fn holds_deletion(&self) -> bool {
        matches!(self, Self::Provider { source, .. } if source.holds_deletion)
    }

    /// Whether another client changed the object after we read it.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if api_status(source) == Some(409))
    }

    /// Whether the Kubernetes API did not answer, or answered that it cannot serve now (429, 5xx).
    /// The same request may succeed later.
    pub(crate) fn is_api_outage(&self) -> bool {
        match self {
            Self::Provider { .. } => false,
            Self::Api { source, .. } => {
                !is_fenced(source) && api_status(source).is_none_or(|status| status == 429 || status >= 500)
            }
        }
    }

    /// A stable name for metrics.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Provider { source, .. } => source.code.category(),
            Self::Api { source, .. } if is_fenced(source) => Code::NotLeading.category(),
            Self::Api { .. } if self.is_conflict() => API_CONFLICT,
            Self::Api { .. } => API_ERROR,
        }
    }

    /// All that [`Self::category`] may be.
    pub(crate) fn categories() -> impl Iterator<Item = &'static str> {
        Code::ALL.into_iter().map(Code::category).chain([API_CONFLICT, API_ERROR])
    }
}

/// Whether the client's fence blocked the request.
pub(crate) fn is_fenced(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(cause) if cause.is::<FenceClosed>())
}

/// Whether the API server may have carried out the failed write: the response was lost, or was a
/// 5xx error.
pub(crate) fn may_be_carried_out(error: &Error) -> bool {
    match error {
        Error::Provider { .. } => false,
        Error::Api { source, .. } => !is_fenced(source) && api_status(source).is_none_or(|status| status >= 500),
    }
}

/// The HTTP status that the API server answered with.
pub(crate) fn api_status(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The error and its causes on one line. Of an answer of the API server only the message is named:
/// kube's text has all its fields, twice.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let text = with_causes(error);
    let mut causes = successors(Some(error), |&cause| cause.source());
    let Some((cause, answer)) = causes.find_map(|cause| Some((cause, api_answer(cause)?))) else {
        return text;
    };
    let before = text.split_once(&cause.to_string()).map_or("", |(before, _)| before).trim_end_matches(": ");
    let said = sentence(answer);
    if before.is_empty() { said } else { format!("{before}: {said}") }
}

/// The API server's answer.
fn api_answer<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Status> {
    let error = error.downcast_ref::<kube::Error>().or_else(|| error.downcast_ref().map(Box::<kube::Error>::as_ref))?;
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// The API server's message for a person.
fn sentence(answer: &Status) -> String {
    match answer.message.as_str() {
        "" => format!("the API server answered {} {}", answer.code, answer.reason).trim_end().to_owned(),
        message => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use kube::{core::Status, runtime::watcher};
    use skysail_provider::{Code, FenceClosed};

    use super::{Error, chain, may_be_carried_out};

    fn conflict(message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "Conflict").with_code(409).boxed())
    }

    #[test]
    fn an_answer_of_the_api_server_appears_once_in_the_text() {
        let error = Error::api("update load balancer status")(conflict("the object has been modified"));
        assert_eq!(chain(&error), "failed to update load balancer status: the object has been modified");
        assert_eq!(chain(&conflict("the object has been modified")), "the object has been modified");
        assert_eq!(chain(&conflict("")), "the API server answered 409 Conflict");
        let error = watcher::Error::WatchStartFailed(conflict("too old"));
        assert_eq!(chain(&error), "failed to start watching object: too old");
    }

    /// The caller must not count on a node that may be gone.
    #[test]
    fn a_write_without_an_answer_or_with_an_answer_of_5xx_may_have_been_carried_out() {
        let perhaps = |error: kube::Error| may_be_carried_out(&Error::api("delete node")(error));
        assert!(perhaps(kube::Error::Service("the connection was closed before an answer".into())));
        let answer = |code| kube::Error::Api(Status::failure("no", "").with_code(code).boxed());
        for (code, expected) in [(500, true), (504, true), (429, false), (409, false), (403, false)] {
            assert_eq!(perhaps(answer(code)), expected, "{code}");
        }
        // The fence kept the request back.
        assert!(!perhaps(kube::Error::Service(Box::new(FenceClosed))));
        assert!(!may_be_carried_out(&Error::provider("ask")(skysail_provider::Error::new(Code::Unavailable, "no"))));
    }

    #[test]
    fn a_cause_is_named_once() {
        let error = Error::provider("get instance metadata")(skysail_provider::Error::new(Code::Denied, "no token"));
        assert_eq!(chain(&error), "failed to get instance metadata: no token");
    }
}
