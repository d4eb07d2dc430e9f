//! The limits of HTTP as plain data. `Limits::http` of the host builds them and documents the
//! ranges, the defaults and the reasons.

use std::time::Duration;

/// Bounds of one provider's HTTP.
///
/// Zero allows nothing; it never means "unlimited".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Requests of one call, refused ones included.
    pub requests_per_call: u32,
    /// Exchanges of one call in flight at once; further ones wait. 1 or more.
    pub concurrency_per_call: u32,
    /// Requests per second of one provider over all its calls, with a burst of one second's worth.
    pub requests_per_second: u32,
    /// Bytes of one request: URL, headers and body.
    pub request_bytes_max: u64,
    /// Bytes of one response's body.
    pub response_bytes_max: u64,
    /// Headers of one request or response.
    pub headers_max: u32,
    /// Bytes of all names and values of one request's or response's headers.
    pub header_bytes_max: u64,
    /// Time of one exchange, from the look-up of the name to the last byte.
    pub exchange_time_max: Duration,
}
