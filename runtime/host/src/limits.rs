//! The limits of one provider: one field for each limit of the sandbox, with its default, its range
//! and the reason for both.
//!
//! The provider file contains a [`Limits`] for each provider; an absent field has the default.
//! [`Limits::validate`] is called once, when the file is read. `call`, `store`, `imports` and the
//! compile jail enforce the limits.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skysail_provider::Limit;

use crate::http_client::HttpLimits;

mod bounds;

pub use self::bounds::{BOUNDS, Bound};
pub(crate) use self::bounds::{DEADLINE_MS_MAX, FUEL_MAX};

/// Most linear memories that a component may have. Rust, C and Go need one, adapters a second; the
/// pool reserves address space for each.
pub(crate) const MEMORIES_MAX: u32 = 4;
/// Most tables that a component may have. A core module has one, and `wit-component` adds one for
/// its shims.
pub(crate) const TABLES_MAX: u32 = 32;
/// Most calls of one provider that wait for a place. A controller has tens of workers; more waiting
/// calls are a bug.
pub(crate) const CALLS_WAITING_MAX: u32 = 1024;
/// Longest line of a guest's log, in bytes; a longer line is truncated. An error of a cloud API
/// with its body is shorter.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 4096;
/// Most fields of one log line; further fields are dropped. A line for people has a few.
pub(crate) const LOG_FIELDS_MAX: usize = 32;
/// Longest reason of an Event, in bytes: the API's own bound.
pub(crate) const EVENT_REASON_BYTES_MAX: usize = 128;
/// Longest message of an Event, in bytes: the API's own bound.
pub(crate) const EVENT_MESSAGE_BYTES_MAX: usize = 1024;

/// The limits of one provider. Every limit is a whole number; no value means "unlimited".
// In the provider file the names are camelCase, and are those of `Limit::name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// CPU work per call, in fuel units: about one for each wasm instruction, and a charge for the
    /// host's work; the same on every machine. Default 1,000,000,000 (0.1 to 0.2 s of CPU).
    pub fuel: u64,
    /// CPU time per call, in milliseconds, of the guest and of the host functions that it calls.
    /// Default 5,000.
    pub cpu_time_ms: u64,
    /// Wall time per call in milliseconds, including waiting for a place and for HTTP. Default
    /// 30,000.
    pub deadline_ms: u64,
    /// Linear memory per call, in bytes, summed over all memories. Default 64 MiB.
    pub memory_bytes: u64,
    /// Table elements per call, summed over all tables. Default 100,000.
    pub table_elements: u64,
    /// Core instances per call. Default 32.
    pub instances: u64,
    /// Handles to host resources that a guest may hold at the same time. Default 1,000.
    pub handles: u64,
    /// Bytes that a guest passes to the host in one host call; also the bytes of node columns that
    /// it reads in one call. Default 16 MiB.
    pub host_call_bytes: u64,
    /// Bytes of a call's result. Default 8 MiB.
    pub result_bytes: u64,
    /// Wasm stack in bytes. Default 512 KiB.
    pub stack_bytes: u64,
    /// Log lines per call; further lines are dropped and counted. Default 200.
    pub log_lines: u64,
    /// Log bytes per call; further lines are dropped and counted. Default 64 KiB.
    pub log_bytes: u64,
    /// Events per call; further Events are dropped and counted. Default 10.
    pub events: u64,
    /// HTTP requests per call, including refused requests. Default 64.
    pub http_requests: u64,
    /// HTTP requests per second of one provider, with bursts of the same number. Default 500.
    pub http_requests_per_second: u64,
    /// Concurrent HTTP requests of one call. Default 4.
    pub http_concurrency: u64,
    /// Bytes of one request's headers and body. Default 1 MiB.
    pub http_request_bytes: u64,
    /// Bytes of one response's body, after decompression. Default 8 MiB.
    pub http_response_bytes: u64,
    /// Headers of one request or response. Default 100.
    pub http_headers: u64,
    /// Bytes of the names and values of one request's or response's headers. Default 64 KiB.
    pub http_header_bytes: u64,
    /// Time of one HTTP exchange, in milliseconds. Default 20,000.
    pub http_time_ms: u64,
    /// Bytes of keys and values in the release's cache. Default 1 MiB.
    pub cache_bytes: u64,
    /// Entries in the release's cache. Default 1,000.
    pub cache_entries: u64,
    /// Longest TTL of a cache entry, in milliseconds; a longer TTL is reduced to the limit. Default
    /// 86,400,000 (a day).
    pub cache_ttl_ms: u64,
    /// Concurrent calls of the provider; further calls wait within their own deadline. Default 16.
    pub concurrent_calls: u64,
    /// Size of the component, in bytes. Default 32 MiB.
    pub component_bytes: u64,
    /// CPU time to check and compile the component, in milliseconds. Default 60,000.
    pub compile_time_ms: u64,
    /// Memory to check and compile the component, in bytes. Default 1 GiB.
    pub compile_memory_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: bounds::FUEL.default,
            cpu_time_ms: bounds::CPU_TIME_MS.default,
            deadline_ms: bounds::DEADLINE_MS.default,
            memory_bytes: bounds::MEMORY_BYTES.default,
            table_elements: bounds::TABLE_ELEMENTS.default,
            instances: bounds::INSTANCES.default,
            handles: bounds::HANDLES.default,
            host_call_bytes: bounds::HOST_CALL_BYTES.default,
            result_bytes: bounds::RESULT_BYTES.default,
            stack_bytes: bounds::STACK_BYTES.default,
            log_lines: bounds::LOG_LINES.default,
            log_bytes: bounds::LOG_BYTES.default,
            events: bounds::EVENTS.default,
            http_requests: bounds::HTTP_REQUESTS.default,
            http_requests_per_second: bounds::HTTP_REQUESTS_PER_SECOND.default,
            http_concurrency: bounds::HTTP_CONCURRENCY.default,
            http_request_bytes: bounds::HTTP_REQUEST_BYTES.default,
            http_response_bytes: bounds::HTTP_RESPONSE_BYTES.default,
            http_headers: bounds::HTTP_HEADERS.default,
            http_header_bytes: bounds::HTTP_HEADER_BYTES.default,
            http_time_ms: bounds::HTTP_TIME_MS.default,
            cache_bytes: bounds::CACHE_BYTES.default,
            cache_entries: bounds::CACHE_ENTRIES.default,
            cache_ttl_ms: bounds::CACHE_TTL_MS.default,
            concurrent_calls: bounds::CONCURRENT_CALLS.default,
            component_bytes: bounds::COMPONENT_BYTES.default,
            compile_time_ms: bounds::COMPILE_TIME_MS.default,
            compile_memory_bytes: bounds::COMPILE_MEMORY_BYTES.default,
        }
    }
}

/// Limits that are outside their ranges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LimitsError {
    /// One sentence for each wrong value: the limit, its value and the allowed range.
    pub problems: Vec<String>,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("; "))
    }
}

impl Limits {
    /// Checks every value against its range, and the relations between values.
    ///
    /// # Errors
    /// [`LimitsError`] with a sentence for each wrong value, not only for the first.
    pub fn validate(&self) -> Result<(), LimitsError> {
        let mut problems: Vec<String> = BOUNDS.iter().filter_map(|bound| bound.problem(self)).collect();
        if self.http_time_ms > self.deadline_ms {
            problems.push(format!(
                "httpTimeMs is {}, but a call ends after deadlineMs, {}: an exchange cannot take longer than its call",
                self.http_time_ms, self.deadline_ms
            ));
        }
        if problems.is_empty() { Ok(()) } else { Err(LimitsError { problems }) }
    }

    /// The part that is about HTTP, for [`crate::http_client::HttpClient`] and each call's budget.
    #[must_use]
    pub fn http(&self) -> HttpLimits {
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        HttpLimits {
            requests_per_call: number(self.http_requests),
            concurrency_per_call: number(self.http_concurrency),
            requests_per_second: number(self.http_requests_per_second),
            request_bytes_max: self.http_request_bytes,
            response_bytes_max: self.http_response_bytes,
            headers_max: number(self.http_headers),
            header_bytes_max: self.http_header_bytes,
            exchange_time_max: Duration::from_millis(self.http_time_ms),
        }
    }

    /// The value of one limit.
    #[must_use]
    pub const fn value(&self, limit: Limit) -> u64 {
        match limit {
            Limit::Fuel => self.fuel,
            Limit::CpuTime => self.cpu_time_ms,
            Limit::Memory => self.memory_bytes,
            Limit::TableElements => self.table_elements,
            Limit::Instances => self.instances,
            Limit::Handles => self.handles,
            Limit::HostCallBytes => self.host_call_bytes,
            Limit::ResultBytes => self.result_bytes,
            Limit::Stack => self.stack_bytes,
            Limit::LogLines => self.log_lines,
            Limit::LogBytes => self.log_bytes,
            Limit::Events => self.events,
            Limit::HttpRequests => self.http_requests,
            Limit::HttpRate => self.http_requests_per_second,
            Limit::HttpConcurrency => self.http_concurrency,
            Limit::HttpRequestBytes => self.http_request_bytes,
            Limit::HttpResponseBytes => self.http_response_bytes,
            Limit::HttpHeaders => self.http_headers,
            Limit::HttpHeaderBytes => self.http_header_bytes,
            Limit::HttpTime => self.http_time_ms,
            Limit::CacheBytes => self.cache_bytes,
            Limit::CacheEntries => self.cache_entries,
            Limit::ConcurrentCalls => self.concurrent_calls,
            Limit::ComponentBytes => self.component_bytes,
            Limit::CompileTime => self.compile_time_ms,
            Limit::CompileMemory => self.compile_memory_bytes,
        }
    }
}

/// A limit as `usize`; a larger value becomes `usize::MAX`.
pub(crate) fn as_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
