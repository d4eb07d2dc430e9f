//! Why a provider call failed: a closed [`Code`] that decides what the caller does, and a message
//! for people.

use std::{fmt, time::Duration};

use crate::text::one_line;

/// The result of a provider call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of failure: one variant for each different reaction of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// The resource certainly does not exist. For an instance: the node may be deleted.
    NotFound,
    /// Another controller owns the object; its status and finalizer are left alone.
    ImplementedElsewhere,
    /// The provider cannot do this; not retried until the object or the release changes.
    Unsupported,
    /// A person must change the object or the cloud-config; retried on change and at the slow
    /// resync.
    Invalid,
    /// The cloud rejected the credential; never treated as "does not exist". Retried slowly.
    Denied,
    /// A quota or capacity is used up. Retried slowly.
    Exhausted,
    /// Ask again after [`Error::retry_after`]. Not an error to the user.
    RetryAfter,
    /// The cloud is unreachable, slow or broken. Retried with backoff.
    Unavailable,
    /// A bug in the provider, or a response that it does not understand. Retried with backoff.
    Internal,
    /// The guest trapped. Retried with backoff.
    Trapped,
    /// A limit of the sandbox stopped the call; [`Error::limit`] says which. Retried with backoff.
    LimitExceeded,
    /// The call's wall-clock deadline passed. Retried with backoff.
    DeadlineExceeded,
    /// No release serves, or the serving release lacks the interface. Retried slowly, and when a
    /// release becomes active.
    NotServing,
    /// This process lost its lease, and another replica may be the leader. Never retried: the
    /// process exits.
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

/// A limit of the sandbox, for one call or for one provider.
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

/// A limit that was reached, and the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitHit {
    /// Which limit.
    pub limit: Limit,
    /// The amount used or requested when the call was stopped, in the limit's unit.
    pub used: u64,
    /// The allowed amount, in the limit's unit.
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
    /// Decides what the caller does.
    pub code: Code,
    /// For people: one line of at most [`Error::MESSAGE_BYTES_MAX`] bytes, without control
    /// characters and without invisible characters that change the text direction.
    pub message: String,
    /// For [`Code::RetryAfter`]: the shortest time until the retry; none lets the caller choose.
    pub retry_after: Option<Duration>,
    /// For [`Code::LimitExceeded`]: which limit.
    pub limit: Option<LimitHit>,
    /// For [`Code::RetryAfter`]: whether the operator's budget of deletions held a deletion back.
    pub holds_deletion: bool,
}

impl Error {
    /// Longest message, in bytes. The API limits the note of an Event to 1,024 bytes, and the
    /// controllers add a prefix.
    pub const MESSAGE_BYTES_MAX: usize = 900;

    /// A failure with a message, which [`one_line`] sanitises and truncates.
    #[must_use]
    pub fn new(code: Code, message: impl AsRef<str>) -> Self {
        let message = one_line(message.as_ref(), Self::MESSAGE_BYTES_MAX);
        Self { code, message, retry_after: None, limit: None, holds_deletion: false }
    }

    /// A failure with [`Code::RetryAfter`]; zero lets the caller choose the time.
    #[must_use]
    pub fn retry_after(after: Duration, message: impl AsRef<str>) -> Self {
        Self { retry_after: (!after.is_zero()).then_some(after), ..Self::new(Code::RetryAfter, message) }
    }

    /// The operator's budget of deletions has room after this time.
    #[must_use]
    pub fn deletion_held(after: Duration, message: impl AsRef<str>) -> Self {
        // At least a second, so that no call is repeated at once.
        Self { holds_deletion: true, ..Self::retry_after(after.max(Duration::from_secs(1)), message) }
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
