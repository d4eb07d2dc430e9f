//! The numbers that bound HTTP: plain data, filled by whoever owns the provider's limits. Must not read configuration.

use std::time::Duration;

/// Bounds of one provider's HTTP.
///
/// `Default` gives the numbers that hold where the operator says nothing. Zero means "none at all", never "unlimited".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Requests of one call, refused ones included; default 64.
    pub requests_per_call: u32,
    /// Exchanges of one call in flight at once; further ones wait. 1 or more; default 4.
    pub concurrency_per_call: u32,
    /// Requests per second of one provider over all its calls, with a burst of one second's worth; default 50.
    pub requests_per_second: u32,
    /// Bytes of one request: URL, headers and body; default 1 MiB.
    pub request_bytes_max: u64,
    /// Bytes of one response's body after decompression; default 8 MiB.
    pub response_bytes_max: u64,
    /// Headers of one request or response; default 100.
    pub headers_max: u32,
    /// Bytes of all names and values of one request's or response's headers; default 64 KiB.
    pub header_bytes_max: u64,
    /// Time of one exchange, from the look-up of the name to the last byte; default 20 s.
    pub exchange_time_max: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            // A paged list of a large cloud plus a handful of changes; providers with 16 or fewer are the rule.
            requests_per_call: 64,
            // What vendors' own clients open to one API; more earns 429 from most clouds.
            concurrency_per_call: 4,
            // Twice to five times the documented rate limits of the common clouds.
            requests_per_second: 50,
            // User data of a machine is the largest thing that a provider sends: 64 KiB.
            request_bytes_max: 1024 * 1024,
            // `servers/detail` and property answers run to megabytes.
            response_bytes_max: 8 * 1024 * 1024,
            // The count at which common servers refuse a request.
            headers_max: 100,
            // Eight times what common servers accept for all headers.
            header_bytes_max: 64 * 1024,
            // Two slow answers fit into a call of the default length.
            exchange_time_max: Duration::from_secs(20),
        }
    }
}
