//! Range, default and reason of each limit. A test compares them with the table in `LIMITS.md`
//! beside `Cargo.toml`.

use super::Limits;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const HOUR_MS: u64 = 3_600_000;

/// Largest value of the limit `fuel`; also the resolution of fuel figures.
pub(crate) const FUEL_MAX: u64 = 1_000_000_000_000;
/// Largest value of the limit `deadlineMs`; also the resolution of figures of time.
pub(crate) const DEADLINE_MS_MAX: u64 = HOUR_MS;

/// Range, default and reason of one limit, and its effect.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// As in the provider file.
    pub name: &'static str,
    /// The unit of the value.
    pub unit: &'static str,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// The value if the provider file sets none.
    pub default: u64,
    /// What happens when the limit is reached.
    pub beyond: &'static str,
    /// Why this default and this range.
    pub reason: &'static str,
    value: fn(&Limits) -> u64,
}

impl Bound {
    /// The error message for a value outside the range.
    pub(super) fn problem(&self, limits: &Limits) -> Option<String> {
        let Self { name, unit, min, max, default, beyond: _, reason, value } = self;
        let value = value(limits);
        (value < *min || value > *max)
            .then(|| format!("{name} is {value}, and may be {min} to {max} {unit} (default {default}): {reason}"))
    }
}

pub(super) const FUEL: Bound = Bound {
    name: "fuel",
    unit: "fuel units",
    min: 100_000,
    max: FUEL_MAX,
    default: 1_000_000_000,
    beyond: "the call ends with `LimitExceeded`",
    reason: "an empty call takes some hundred units, a call of an import two thousand, reading a thousand nodes a few million, and a thousand million are 0.1 to 0.2 s of CPU",
    value: |limits| limits.fuel,
};
pub(super) const CPU_TIME_MS: Bound = Bound {
    name: "cpuTimeMs",
    unit: "milliseconds of CPU",
    min: 100,
    max: HOUR_MS,
    default: 5_000,
    beyond: "the call ends with `LimitExceeded`",
    reason: "the default fuel lasts for 0.2 s, but some instructions make the host work for much longer than their fuel; a provider with a higher limit for fuel may need a higher limit here, too",
    value: |limits| limits.cpu_time_ms,
};
pub(super) const DEADLINE_MS: Bound = Bound {
    name: "deadlineMs",
    unit: "milliseconds",
    min: 10,
    max: DEADLINE_MS_MAX,
    default: 30_000,
    beyond: "the call ends with `DeadlineExceeded`",
    reason: "a cloud answers in seconds, and longer operations are polled with retry-after",
    value: |limits| limits.deadline_ms,
};
pub(super) const MEMORY_BYTES: Bound = Bound {
    name: "memoryBytes",
    unit: "bytes",
    min: 64 * KIB,
    max: GIB,
    default: 64 * MIB,
    beyond: "the growth fails; if the guest then aborts, the call ends with `LimitExceeded`",
    reason: "one wasm page is 64 KiB, a provider in Rust needs two megabytes, and every concurrent call may use all of it",
    value: |limits| limits.memory_bytes,
};
pub(super) const TABLE_ELEMENTS: Bound = Bound {
    name: "tableElements",
    unit: "elements",
    min: 1,
    max: 1_000_000,
    default: 100_000,
    beyond: "the growth fails; if the guest then aborts, the call ends with `LimitExceeded`",
    reason: "a table holds one element for each function whose address is taken: thousands",
    value: |limits| limits.table_elements,
};
pub(super) const INSTANCES: Bound = Bound {
    name: "instances",
    unit: "core instances",
    min: 1,
    max: 32,
    default: 32,
    beyond: "the call fails with `LimitExceeded` before it begins",
    reason: "a component from one core module has about three, and the pool keeps room for 32",
    value: |limits| limits.instances,
};
pub(super) const HANDLES: Bound = Bound {
    name: "handles",
    unit: "handles",
    min: 8,
    max: 100_000,
    default: 1_000,
    beyond: "the call ends with `LimitExceeded`",
    reason: "a call holds one set of nodes, and a few streams where it has standard output",
    value: |limits| limits.handles,
};
pub(super) const HOST_CALL_BYTES: Bound = Bound {
    name: "hostCallBytes",
    unit: "bytes",
    min: 4 * KIB,
    max: GIB,
    default: 16 * MIB,
    beyond: "the call ends with `LimitExceeded`",
    reason: "the largest argument is the body of a request, and two thousand whole nodes are three megabytes",
    value: |limits| limits.host_call_bytes,
};
pub(super) const RESULT_BYTES: Bound = Bound {
    name: "resultBytes",
    unit: "bytes",
    min: 4 * KIB,
    max: GIB,
    default: 8 * MIB,
    beyond: "the call ends with `LimitExceeded`",
    reason: "a page of 500 instances is below one megabyte, ten thousand routes are four",
    value: |limits| limits.result_bytes,
};
pub(super) const STACK_BYTES: Bound = Bound {
    name: "stackBytes",
    unit: "bytes",
    min: 64 * KIB,
    max: 8 * MIB,
    default: 512 * KIB,
    beyond: "the call ends with `LimitExceeded`",
    reason: "deep recursion must end at this limit and not exhaust the host's memory",
    value: |limits| limits.stack_bytes,
};
pub(super) const LOG_LINES: Bound = Bound {
    name: "logLines",
    unit: "lines per call",
    min: 1,
    max: 100_000,
    default: 200,
    beyond: "further lines are dropped and counted",
    reason: "a call that logs each step and each request writes tens of lines",
    value: |limits| limits.log_lines,
};
pub(super) const LOG_BYTES: Bound = Bound {
    name: "logBytes",
    unit: "bytes per call",
    min: KIB,
    max: 64 * MIB,
    default: 64 * KIB,
    beyond: "further lines are dropped and counted",
    reason: "two hundred lines of three hundred bytes",
    value: |limits| limits.log_bytes,
};
pub(super) const EVENTS: Bound = Bound {
    name: "events",
    unit: "Events per call",
    min: 1,
    max: 1_000,
    default: 10,
    beyond: "further Events are dropped and counted",
    reason: "every Event is an object in the API server",
    value: |limits| limits.events,
};
pub(super) const HTTP_REQUESTS: Bound = Bound {
    name: "httpRequests",
    unit: "requests per call",
    min: 1,
    max: 10_000,
    default: 64,
    beyond: "the request fails with `limited` and is not sent",
    reason: "ensure sends a few requests, and a cloud's machines are listed in pages; a provider that looks up each machine of a page of 500 nodes separately needs more",
    value: |limits| limits.http_requests,
};
pub(super) const HTTP_REQUESTS_PER_SECOND: Bound = Bound {
    name: "httpRequestsPerSecond",
    unit: "requests per second of the provider",
    min: 1,
    max: 10_000,
    default: 500,
    beyond: "the request waits for at most a second, then fails with `limited` and is not sent",
    reason: "ten Services at once need as many with a cloud that answers in 20 ms; a cloud with a lower rate limit answers 429, and the object is retried after the time that the response names",
    value: |limits| limits.http_requests_per_second,
};
pub(super) const HTTP_CONCURRENCY: Bound = Bound {
    name: "httpConcurrency",
    unit: "requests in flight per call",
    min: 1,
    max: 256,
    default: 4,
    beyond: "the request waits",
    reason: "clients of cloud vendors open as many connections to one API; a cloud answers more requests at once with 429",
    value: |limits| limits.http_concurrency,
};
pub(super) const HTTP_REQUEST_BYTES: Bound = Bound {
    name: "httpRequestBytes",
    unit: "bytes of headers and body",
    min: KIB,
    max: 256 * MIB,
    default: MIB,
    beyond: "the request fails with `limited` and is not sent",
    reason: "a load balancer with a thousand backends is a hundred kilobytes of JSON, user data of a machine 64 KiB",
    value: |limits| limits.http_request_bytes,
};
pub(super) const HTTP_RESPONSE_BYTES: Bound = Bound {
    name: "httpResponseBytes",
    unit: "bytes of body, decompressed",
    min: KIB,
    max: 256 * MIB,
    default: 8 * MIB,
    beyond: "the request fails with `too-large`, and the rest is not read",
    reason: "a page of a thousand machines is a few megabytes of JSON",
    value: |limits| limits.http_response_bytes,
};
pub(super) const HTTP_HEADERS: Bound = Bound {
    name: "httpHeaders",
    unit: "headers",
    min: 1,
    max: 1_000,
    default: 100,
    beyond: "a request fails with `limited` and is not sent, an answer fails with `too-large`",
    reason: "clouds send tens, and common servers refuse more than a hundred",
    value: |limits| limits.http_headers,
};
pub(super) const HTTP_HEADER_BYTES: Bound = Bound {
    name: "httpHeaderBytes",
    unit: "bytes of names and values",
    min: KIB,
    // The buffer of the HTTP/1 parser has 400 KiB, so a larger limit would have no effect.
    max: 256 * KIB,
    default: 64 * KIB,
    beyond: "a request fails with `limited` and is not sent, an answer fails with `too-large`",
    reason: "common servers accept 8 KiB",
    value: |limits| limits.http_header_bytes,
};
pub(super) const HTTP_TIME_MS: Bound = Bound {
    name: "httpTimeMs",
    unit: "milliseconds",
    min: 1,
    max: HOUR_MS,
    default: 20_000,
    beyond: "the request fails with `timeout`",
    reason: "one exchange has to leave time for the rest of the call",
    value: |limits| limits.http_time_ms,
};
pub(super) const CACHE_BYTES: Bound = Bound {
    name: "cacheBytes",
    unit: "bytes of keys and values",
    min: KIB,
    max: 256 * MIB,
    default: MIB,
    beyond: "`cache.set` answers false",
    reason: "tokens and zone lists are kilobytes",
    value: |limits| limits.cache_bytes,
};
pub(super) const CACHE_ENTRIES: Bound = Bound {
    name: "cacheEntries",
    unit: "entries",
    min: 1,
    max: 100_000,
    default: 1_000,
    beyond: "`cache.set` answers false",
    reason: "tokens, zones and types are tens",
    value: |limits| limits.cache_entries,
};
pub(super) const CACHE_TTL_MS: Bound = Bound {
    name: "cacheTtlMs",
    unit: "milliseconds",
    min: 1,
    max: 7 * 24 * HOUR_MS,
    default: 24 * HOUR_MS,
    beyond: "a longer TTL is reduced to the limit",
    reason: "after a day the provider asks the cloud again",
    value: |limits| limits.cache_ttl_ms,
};
pub(super) const CONCURRENT_CALLS: Bound = Bound {
    name: "concurrentCalls",
    unit: "calls at once",
    min: 1,
    max: 64,
    default: 16,
    beyond: "further calls wait within their own deadline; a call that gets no place fails with `LimitExceeded`",
    reason: "each holds its own memory and a place in the host's pool",
    value: |limits| limits.concurrent_calls,
};
pub(super) const COMPONENT_BYTES: Bound = Bound {
    name: "componentBytes",
    unit: "bytes",
    min: KIB,
    max: 256 * MIB,
    default: 32 * MIB,
    beyond: "the release is refused",
    reason: "a provider in Rust is below half a megabyte, one with a Python interpreter is 18",
    value: |limits| limits.component_bytes,
};
pub(super) const COMPILE_TIME_MS: Bound = Bound {
    name: "compileTimeMs",
    unit: "milliseconds of CPU",
    min: 100,
    max: HOUR_MS,
    default: 60_000,
    beyond: "the release is refused",
    reason: "a provider in Rust compiles in less than a second, a large interpreter in tens of seconds",
    value: |limits| limits.compile_time_ms,
};
pub(super) const COMPILE_MEMORY_BYTES: Bound = Bound {
    name: "compileMemoryBytes",
    unit: "bytes",
    min: 64 * MIB,
    max: 16 * GIB,
    default: GIB,
    beyond: "the release is refused",
    reason: "a provider in Rust compiles in 25 MB, a large interpreter in hundreds",
    value: |limits| limits.compile_memory_bytes,
};

/// Range, default and reason of every limit, in the order of the fields of [`Limits`].
pub const BOUNDS: [Bound; 28] = [
    FUEL,
    CPU_TIME_MS,
    DEADLINE_MS,
    MEMORY_BYTES,
    TABLE_ELEMENTS,
    INSTANCES,
    HANDLES,
    HOST_CALL_BYTES,
    RESULT_BYTES,
    STACK_BYTES,
    LOG_LINES,
    LOG_BYTES,
    EVENTS,
    HTTP_REQUESTS,
    HTTP_REQUESTS_PER_SECOND,
    HTTP_CONCURRENCY,
    HTTP_REQUEST_BYTES,
    HTTP_RESPONSE_BYTES,
    HTTP_HEADERS,
    HTTP_HEADER_BYTES,
    HTTP_TIME_MS,
    CACHE_BYTES,
    CACHE_ENTRIES,
    CACHE_TTL_MS,
    CONCURRENT_CALLS,
    COMPONENT_BYTES,
    COMPILE_TIME_MS,
    COMPILE_MEMORY_BYTES,
];

// Every default lies in its range, and the defaults agree with each other.
const _: () = {
    let mut i = 0;
    while i < BOUNDS.len() {
        #[expect(clippy::indexing_slicing, reason = "evaluated while compiling")]
        let bound = &BOUNDS[i];
        assert!(bound.min <= bound.default && bound.default <= bound.max);
        i += 1;
    }
};
const _: () = assert!(HTTP_TIME_MS.default <= DEADLINE_MS.default);
// A response fits into the memory of the guest, and a request into one host call.
const _: () = assert!(2 * HTTP_RESPONSE_BYTES.default < MEMORY_BYTES.default);
const _: () = assert!(HTTP_REQUEST_BYTES.default < HOST_CALL_BYTES.default);
// A result is smaller than the guest's memory.
const _: () = assert!(RESULT_BYTES.default < MEMORY_BYTES.default);
