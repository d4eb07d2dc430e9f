//! Constructors and readers of the contract's [`Error`]: one case for each reaction of the host.

use std::time::Duration;

use crate::{Error, Retry};

/// The result of a provider's function.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Asks for a retry, not earlier than `after`; with zero the host chooses the time.
    pub fn retry_after(after: Duration, message: impl Into<String>) -> Self {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Self::RetryAfter(Retry { after_ms, message: message.into() })
    }

    /// The text for people.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::NotFound(message)
            | Self::ImplementedElsewhere(message)
            | Self::Unsupported(message)
            | Self::Invalid(message)
            | Self::Denied(message)
            | Self::Exhausted(message)
            | Self::Unavailable(message)
            | Self::Internal(message)
            | Self::RetryAfter(Retry { after_ms: _, message })
            | Self::Other((_, message)) => message,
        }
    }

    /// The name of the case in the contract (`not-found`, `retry-after`, …), or the other code.
    #[must_use]
    pub const fn code(&self) -> &str {
        match self {
            Self::NotFound(_) => "not-found",
            Self::ImplementedElsewhere(_) => "implemented-elsewhere",
            Self::Unsupported(_) => "unsupported",
            Self::Invalid(_) => "invalid",
            Self::Denied(_) => "denied",
            Self::Exhausted(_) => "exhausted",
            Self::Unavailable(_) => "unavailable",
            Self::Internal(_) => "internal",
            Self::RetryAfter(_) => "retry-after",
            Self::Other((code, _)) => code.as_str(),
        }
    }

    /// The same case, with the attempted action before the message:
    /// `cannot list servers: 503 Service Unavailable`.
    #[must_use]
    pub fn context(mut self, tried: &str) -> Self {
        let message = self.message_mut();
        message.insert_str(0, ": ");
        message.insert_str(0, tried);
        self
    }

    /// The same case with another message.
    #[must_use]
    pub fn with_message(mut self, text: String) -> Self {
        *self.message_mut() = text;
        self
    }

    const fn message_mut(&mut self) -> &mut String {
        match self {
            Self::NotFound(message)
            | Self::ImplementedElsewhere(message)
            | Self::Unsupported(message)
            | Self::Invalid(message)
            | Self::Denied(message)
            | Self::Exhausted(message)
            | Self::Unavailable(message)
            | Self::Internal(message)
            | Self::RetryAfter(Retry { after_ms: _, message })
            | Self::Other((_, message)) => message,
        }
    }

    /// `unavailable` instead of `not-found`: for a request that asks for no single object, such as
    /// a list, and for one whose object was there a moment ago. A gateway, a wrong endpoint or a
    /// change at the same time answers 404, too, and the host may delete what is `not-found`.
    #[must_use]
    pub fn never_gone(self) -> Self {
        match self {
            Self::NotFound(message) => Self::Unavailable(message),
            error => error,
        }
    }

    /// Whether the requested object certainly does not exist.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }
}

impl From<serde_json::Error> for Error {
    /// JSON without the expected shape is `internal`: the provider did not expect it. A text that
    /// is no JSON, or ends early, is `unavailable`: a gateway answered in place of the cloud.
    fn from(error: serde_json::Error) -> Self {
        if error.is_data() {
            Self::Internal(format!("unexpected JSON: {error}"))
        } else {
            Self::Unavailable(format!("the answer is not JSON: {error}"))
        }
    }
}

/// Treats `not-found` as an answer.
pub trait Absent<T> {
    /// None instead of `not-found`: for look-ups, and for deletions of resources that may be
    /// absent.
    ///
    /// # Errors
    ///
    /// Every error but `not-found`.
    fn absent_ok(self) -> Result<Option<T>>;
}

impl<T> Absent<T> for Result<T> {
    fn absent_ok(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Absent as _, Result};
    use crate::Error;

    #[test]
    fn context_keeps_the_reaction() {
        let error = Error::retry_after(Duration::from_secs(2), "busy").context("cannot create an address");
        assert_eq!((error.code(), error.message()), ("retry-after", "cannot create an address: busy"));
        assert!(matches!(error, Error::RetryAfter(retry) if retry.after_ms == 2_000));
    }

    #[test]
    fn a_list_that_does_not_exist_says_nothing_about_its_entries() {
        assert_eq!(Error::NotFound("list".to_owned()).never_gone(), Error::Unavailable("list".to_owned()));
        assert_eq!(Error::Denied("list".to_owned()).never_gone(), Error::Denied("list".to_owned()));
    }

    #[test]
    fn a_page_of_a_gateway_is_no_fault_of_the_provider() {
        let read = |text: &str| Error::from(serde_json::from_str::<Vec<u8>>(text).unwrap_err());
        for text in ["<html></html>", "Back soon", "", "[1,"] {
            assert!(matches!(read(text), Error::Unavailable(_)), "{text}");
        }
        assert!(matches!(read("{}"), Error::Internal(_)));
    }

    #[test]
    fn only_not_found_means_absent() {
        let gone: Result<()> = Err(Error::NotFound(String::new()));
        let denied: Result<()> = Err(Error::Denied(String::new()));
        assert_eq!(gone.absent_ok(), Ok(None));
        assert_eq!(denied.absent_ok(), Err(Error::Denied(String::new())));
    }
}
