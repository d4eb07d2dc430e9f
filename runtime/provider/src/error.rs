//! Why a provider call did not succeed: a closed [`Code`] for what the caller does, a message for
//! what a person reads.

use std::{fmt, time::Duration};

use crate::text::one_line;

/// The result of a provider call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller does about a failure: one entry per different reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// The thing asked about is gone for certain. Of an instance: the node may be deleted.
    NotFound,
    /// Another controller owns the object; its status and finalizer are left alone.
    ImplementedElsewhere,
    /// The provider cannot do this; not retried until the object or the release changes.
    Unsupported,
    /// A person must change the object or the cloud-config; retried on change and at the slow
    /// resync.
    Invalid,
    /// The cloud refused the credential; never taken as "gone". Retried slowly.
    Denied,
    /// A quota or capacity is used up. Retried slowly.
    Exhausted,
    /// Ask again after [`Error::retry_after`]. Not an error to the user.
    RetryAfter,
    /// The cloud is unreachable, slow or broken. Retried with backoff.
    Unavailable,
    /// A bug or surprise of the provider. Retried with backoff.
    Internal,
    /// The guest trapped. Retried with backoff.
    Trapped,
    /// A limit of the sandbox stopped the call; [`Error::limit`] says which. Retried with backoff.
    LimitExceeded,
    /// The call's wall-clock deadline passed. Retried with backoff.
    DeadlineExceeded,
    /// No release serves, or it lacks the interface. Retried when a release becomes active, and
    /// slowly.
    NotServing,
    /// This process lost its lease, and another one may lead. Never retried here: the process ends.
    NotLeading,
}

impl Code {
    /// All codes, in the order of declaration.
    pub const ALL: [Self; 14] = [
        Self::NotFound,
        Self::ImplementedElsewhere,
        Self::Unsupported,
        Self::Invalid,
        Self::Denied,
        Self::Exhausted,
        Self::RetryAfter,
        Self::Unavailable,
        Self::Internal,
        Self::Trapped,
        Self::LimitExceeded,
        Self::DeadlineExceeded,
        Self::NotServing,
        Self::NotLeading,
    ];

    /// A stable CamelCase name: metric label and part of Event texts.
    #[must_use]
    pub const fn category(self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::ImplementedElsewhere => "ImplementedElsewhere",
            Self::Unsupported => "Unsupported",
            Self::Invalid => "Invalid",
            Self::Denied => "Denied",
            Self::Exhausted => "Exhausted",
            Self::RetryAfter => "RetryAfter",
            Self::Unavailable => "Unavailable",
            Self::Internal => "Internal",
            Self::Trapped => "Trapped",
            Self::LimitExceeded => "LimitExceeded",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::NotServing => "NotServing",
            Self::NotLeading => "NotLeading",
        }
    }
}

/// A budget of the sandbox that one call or one provider has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// CPU work per call, in wasmtime's fuel units.
    Fuel,
    /// CPU time per call, in milliseconds.
    CpuTime,
    /// Linear memory per call, in bytes, summed over all memories.
    Memory,
    /// Table elements per call, summed over all tables.
    TableElements,
    /// Core instances per component.
    Instances,
    /// Handles to the host's resources that a guest holds at once.
    Handles,
    /// Bytes that the guest hands to host functions in one host call.
    HostCallBytes,
    /// Bytes that are lifted from a call's result.
    ResultBytes,
    /// Wasm stack, in bytes.
    Stack,
    /// Log lines per call.
    LogLines,
    /// Log bytes per call.
    LogBytes,
    /// Events per call.
    Events,
    /// HTTP requests per call.
    HttpRequests,
    /// HTTP requests per second of one provider.
    HttpRate,
    /// HTTP requests of one call in flight at once.
    HttpConcurrency,
    /// Bytes of one request's body and headers.
    HttpRequestBytes,
    /// Bytes of one response's body, after decompression.
    HttpResponseBytes,
    /// Headers of one request or response.
    HttpHeaders,
    /// Bytes of the names and values of one request's or response's headers.
    HttpHeaderBytes,
    /// Time of one HTTP exchange, in milliseconds.
    HttpTime,
    /// Bytes in a release's cache.
    CacheBytes,
    /// Entries in a release's cache.
    CacheEntries,
    /// Calls of one provider at once.
    ConcurrentCalls,
    /// Size of a component, in bytes.
    ComponentBytes,
    /// Time to compile a component, in milliseconds.
    CompileTime,
    /// Memory to compile a component, in bytes.
    CompileMemory,
}

impl Limit {
    /// All limits, in the order of declaration.
    pub const ALL: [Self; 26] = [
        Self::Fuel,
        Self::CpuTime,
        Self::Memory,
        Self::TableElements,
        Self::Instances,
        Self::Handles,
        Self::HostCallBytes,
        Self::ResultBytes,
        Self::Stack,
        Self::LogLines,
        Self::LogBytes,
        Self::Events,
        Self::HttpRequests,
        Self::HttpRate,
        Self::HttpConcurrency,
        Self::HttpRequestBytes,
        Self::HttpResponseBytes,
        Self::HttpHeaders,
        Self::HttpHeaderBytes,
        Self::HttpTime,
        Self::CacheBytes,
        Self::CacheEntries,
        Self::ConcurrentCalls,
        Self::ComponentBytes,
        Self::CompileTime,
        Self::CompileMemory,
    ];

    /// The limit's name as it stands in the provider file (camelCase): also the metric label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fuel => "fuel",
            Self::CpuTime => "cpuTimeMs",
            Self::Memory => "memoryBytes",
            Self::TableElements => "tableElements",
            Self::Instances => "instances",
            Self::Handles => "handles",
            Self::HostCallBytes => "hostCallBytes",
            Self::ResultBytes => "resultBytes",
            Self::Stack => "stackBytes",
            Self::LogLines => "logLines",
            Self::LogBytes => "logBytes",
            Self::Events => "events",
            Self::HttpRequests => "httpRequests",
            Self::HttpRate => "httpRequestsPerSecond",
            Self::HttpConcurrency => "httpConcurrency",
            Self::HttpRequestBytes => "httpRequestBytes",
            Self::HttpResponseBytes => "httpResponseBytes",
            Self::HttpHeaders => "httpHeaders",
            Self::HttpHeaderBytes => "httpHeaderBytes",
            Self::HttpTime => "httpTimeMs",
            Self::CacheBytes => "cacheBytes",
            Self::CacheEntries => "cacheEntries",
            Self::ConcurrentCalls => "concurrentCalls",
            Self::ComponentBytes => "componentBytes",
            Self::CompileTime => "compileTimeMs",
            Self::CompileMemory => "compileMemoryBytes",
        }
    }
}

/// A limit that was met, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitHit {
    /// Which budget.
    pub limit: Limit,
    /// What was used or asked for when the call was stopped, in the limit's unit.
    pub used: u64,
    /// What is allowed, in the limit's unit.
    pub max: u64,
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, used, max } = self;
        write!(f, "{}: {used} of {max}", limit.name())
    }
}

/// A failed provider call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What the caller does.
    pub code: Code,
    /// What a person reads: one line of at most [`Error::MESSAGE_BYTES_MAX`] bytes, without
    /// characters that move the cursor or turn the line round.
    pub message: String,
    /// For [`Code::RetryAfter`]: not earlier than this; none lets the caller choose.
    pub retry_after: Option<Duration>,
    /// For [`Code::LimitExceeded`]: which limit.
    pub limit: Option<LimitHit>,
}

impl Error {
    /// Longest message, in bytes. An Event's note ends at 1,024 bytes in the API; what the
    /// controllers put before it needs room.
    pub const MESSAGE_BYTES_MAX: usize = 900;

    /// A failure with a message, of which [`one_line`] is kept.
    #[must_use]
    pub fn new(code: Code, message: impl AsRef<str>) -> Self {
        Self { code, message: one_line(message.as_ref(), Self::MESSAGE_BYTES_MAX), retry_after: None, limit: None }
    }

    /// "Ask again": zero lets the caller choose the time.
    #[must_use]
    pub fn retry_after(after: Duration, message: impl AsRef<str>) -> Self {
        Self { retry_after: (!after.is_zero()).then_some(after), ..Self::new(Code::RetryAfter, message) }
    }

    /// A limit of the sandbox stopped the call.
    #[must_use]
    pub fn limit_exceeded(hit: LimitHit, message: impl AsRef<str>) -> Self {
        Self { limit: Some(hit), ..Self::new(Code::LimitExceeded, message) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, Error};

    #[test]
    fn a_message_is_one_bounded_line() {
        let error = Error::new(Code::Internal, format!("first\nsecond\u{1b}[31m\u{202e}\u{2028}{}", "é".repeat(1000)));
        assert!(error.message.starts_with("first second [31m é"));
        assert!(error.message.len() <= Error::MESSAGE_BYTES_MAX);
        assert!(error.message.ends_with('…'));
    }

    #[test]
    fn every_code_has_a_category_of_its_own() {
        let mut names: Vec<_> = Code::ALL.iter().map(|code| code.category()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
