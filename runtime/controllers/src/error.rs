//! Why a step of a reconcile failed: what was tried, the cause, and the [`Code`] that decides what comes next.

use std::{error::Error as StdError, time::Duration};

use skysail_provider::Code;

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

impl Error {
    pub(crate) fn provider(step: &'static str) -> impl Fn(skysail_provider::Error) -> Self {
        move |source| Self::Provider { step, source }
    }

    pub(crate) fn api(step: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| Self::Api { step, source: Box::new(source) }
    }

    /// What the caller does about it. A failure of the Kubernetes API is [`Code::Unavailable`].
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Provider { source, .. } => source.code,
            Self::Api { .. } => Code::Unavailable,
        }
    }

    /// Not earlier than this, where the provider said so.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Provider { source, .. } => source.retry_after,
            Self::Api { .. } => None,
        }
    }

    /// Somebody else wrote the object since we read it.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if api_status(source) == Some(409))
    }

    /// A stable name for metrics.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Provider { source, .. } => source.code.category(),
            Self::Api { .. } if self.is_conflict() => "ApiConflict",
            Self::Api { .. } => "ApiError",
        }
    }
}

/// The HTTP status that the API server answered with.
pub(crate) fn api_status(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The whole chain on one line. Some libraries repeat the cause in their own text; it is then named once.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
