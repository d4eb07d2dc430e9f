//! Each limit, with its range, default and reason. A test compares the limits with the table in
//! `LIMITS.md` beside `Cargo.toml`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Bound;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const HOUR_MS: u64 = 3_600_000;

/// Largest value of the limit `fuel`; also the resolution of fuel figures.
pub(crate) const FUEL_MAX: u64 = 1_000_000_000_000;
/// Largest value of the limit `deadlineMs`; also the resolution of figures of time.
pub(crate) const DEADLINE_MS_MAX: u64 = HOUR_MS;

limits! {
    /// CPU work per call, in fuel units: about one for each wasm instruction, and a charge for the
    /// host's work; the same on every machine. Default 1,000,000,000 (0.1 to 0.2 s of CPU).
    fuel: FUEL = {
        name: "fuel",
        unit: "fuel units",
        min: 100_000,
        max: FUEL_MAX,
        default: 1_000_000_000,
        beyond: "the call ends with `LimitExceeded`",
        reason: "an empty call takes some hundred units, a call of an import two thousand, reading a thousand nodes a few million, and a thousand million are 0.1 to 0.2 s of CPU",
    }

    /// CPU time per call, in milliseconds, of the guest and of the host functions that it calls.
    /// Default 5,000.
    cpu_time_ms: CPU_TIME_MS = {
        name: "cpuTimeMs",
        unit: "milliseconds of CPU",
        min: 100,
        max: HOUR_MS,
        default: 5_000,
        beyond: "the call ends with `LimitExceeded`",
        reason: "the default fuel lasts for 0.2 s, but some instructions make the host work for much longer than their fuel; a provider with a higher limit for fuel may need a higher limit here, too",
    }

    /// Wall time per call in milliseconds, including waiting for a place and for HTTP. Default
    /// 30,000.
    deadline_ms: DEADLINE_MS = {
        name: "deadlineMs",
        unit: "milliseconds",
        min: 10,
        max: DEADLINE_MS_MAX,
        default: 30_000,
        beyond: "the call ends with `DeadlineExceeded`",
        reason: "a cloud answers in seconds, and longer operations are polled with retry-after",
    }

    /// Linear memory per call, in bytes, summed over all memories. Default 64 MiB.
    memory_bytes: MEMORY_BYTES = {
        name: "memoryBytes",
        unit: "bytes",
        min: 64 * KIB,
        max: GIB,
        default: 64 * MIB,
        beyond: "the growth fails; if the guest then aborts, the call ends with `LimitExceeded`",
        reason: "one wasm page is 64 KiB, a provider in Rust needs two megabytes, and every concurrent call may use all of it",
    }

    /// Table elements per call, summed over all tables. Default 100,000.
    table_elements: TABLE_ELEMENTS = {
        name: "tableElements",
        unit: "elements",
        min: 1,
        max: 1_000_000,
        default: 100_000,
        beyond: "the growth fails; if the guest then aborts, the call ends with `LimitExceeded`",
        reason: "a table holds one element for each function whose address is taken: thousands",
    }

    /// Core instances per call. Default 64.
    instances: INSTANCES = {
        name: "instances",
        unit: "core instances",
        min: 1,
        max: 64,
        default: 64,
        beyond: "the call fails with `LimitExceeded` before it begins",
        reason: "a component from one core module has about three, one of componentize-py 38, and the pool keeps room for 64",
    }

    /// Handles to host resources that a guest may hold at the same time. Default 1,000.
    handles: HANDLES = {
        name: "handles",
        unit: "handles",
        min: 8,
        max: 100_000,
        default: 1_000,
        beyond: "the call ends with `LimitExceeded`",
        reason: "a call holds one set of nodes, and a few streams where it has standard output",
    }

    /// Bytes that a guest passes to the host in one host call; also the bytes of node columns that
    /// it reads in one call. Default 16 MiB.
    host_call_bytes: HOST_CALL_BYTES = {
        name: "hostCallBytes",
        unit: "bytes",
        min: 4 * KIB,
        max: GIB,
        default: 16 * MIB,
        beyond: "the call ends with `LimitExceeded`",
        reason: "the largest argument is the body of a request, and two thousand whole nodes are three megabytes",
    }

    /// Bytes of a call's result. Default 8 MiB.
    result_bytes: RESULT_BYTES = {
        name: "resultBytes",
        unit: "bytes",
        min: 4 * KIB,
        max: GIB,
        default: 8 * MIB,
        beyond: "the call ends with `LimitExceeded`",
        reason: "a page of 500 instances is below one megabyte, ten thousand routes are four",
    }

    /// Wasm stack in bytes. Default 512 KiB.
    stack_bytes: STACK_BYTES = {
        name: "stackBytes",
        unit: "bytes",
        min: 64 * KIB,
        max: 8 * MIB,
        default: 512 * KIB,
        beyond: "the call ends with `LimitExceeded`",
        reason: "deep recursion must end at this limit and not exhaust the host's memory",
    }

    /// Log lines per call; further lines are dropped and counted. Default 200.
    log_lines: LOG_LINES = {
        name: "logLines",
        unit: "lines per call",
        min: 1,
        max: 100_000,
        default: 200,
        beyond: "further lines are dropped and counted",
        reason: "a call that logs each step and each request writes tens of lines",
    }

    /// Log bytes per call; further lines are dropped and counted. Default 64 KiB.
    log_bytes: LOG_BYTES = {
        name: "logBytes",
        unit: "bytes per call",
        min: KIB,
        max: 64 * MIB,
        default: 64 * KIB,
        beyond: "further lines are dropped and counted",
        reason: "two hundred lines of three hundred bytes",
    }

    /// Events per call; further Events are dropped and counted. Default 10.
    events: EVENTS = {
        name: "events",
        unit: "Events per call",
        min: 1,
        max: 1_000,
        default: 10,
        beyond: "further Events are dropped and counted",
        reason: "every Event is an object in the API server",
    }

    /// HTTP requests per call, including refused requests. Default 64.
    http_requests: HTTP_REQUESTS = {
        name: "httpRequests",
        unit: "requests per call",
        min: 1,
        max: 10_000,
        default: 64,
        beyond: "the request fails with `limited` and is not sent",
        reason: "ensure sends a few requests, and a cloud's machines are listed in pages; a provider that looks up each machine of a page of 500 nodes separately needs more",
    }

    /// HTTP requests per second of one provider, with bursts of the same number. Default 500.
    http_requests_per_second: HTTP_REQUESTS_PER_SECOND = {
        name: "httpRequestsPerSecond",
        unit: "requests per second of the provider",
        min: 1,
        max: 10_000,
        default: 500,
        beyond: "the request waits for at most a second, then fails with `limited` and is not sent",
        reason: "ten Services at once need as many with a cloud that answers in 20 ms; a cloud with a lower rate limit answers 429, and the object is retried after the time that the response names",
    }

    /// Concurrent HTTP requests of one call. Default 4.
    http_concurrency: HTTP_CONCURRENCY = {
        name: "httpConcurrency",
        unit: "requests in flight per call",
        min: 1,
        max: 256,
        default: 4,
        beyond: "the request waits",
        reason: "clients of cloud vendors open as many connections to one API; a cloud answers more requests at once with 429",
    }

    /// Bytes of one request's headers and body. Default 1 MiB.
    http_request_bytes: HTTP_REQUEST_BYTES = {
        name: "httpRequestBytes",
        unit: "bytes of headers and body",
        min: KIB,
        max: 256 * MIB,
        default: MIB,
        beyond: "the request fails with `limited` and is not sent",
        reason: "a load balancer with a thousand backends is a hundred kilobytes of JSON, user data of a machine 64 KiB",
    }

    /// Bytes of one response's body, after decompression. Default 8 MiB.
    http_response_bytes: HTTP_RESPONSE_BYTES = {
        name: "httpResponseBytes",
        unit: "bytes of body, decompressed",
        min: KIB,
        max: 256 * MIB,
        default: 8 * MIB,
        beyond: "the request fails with `too-large`, and the rest is not read",
        reason: "a page of a thousand machines is a few megabytes of JSON",
    }

    /// Headers of one request or response. Default 100.
    http_headers: HTTP_HEADERS = {
        name: "httpHeaders",
        unit: "headers",
        min: 1,
        max: 1_000,
        default: 100,
        beyond: "a request fails with `limited` and is not sent, an answer fails with `too-large`",
        reason: "clouds send tens, and common servers refuse more than a hundred",
    }

    /// Bytes of the names and values of one request's or response's headers. Default 64 KiB.
    http_header_bytes: HTTP_HEADER_BYTES = {
        name: "httpHeaderBytes",
        unit: "bytes of names and values",
        min: KIB,
        // The buffer of the HTTP/1 parser has 400 KiB, so a larger limit would have no effect.
        max: 256 * KIB,
        default: 64 * KIB,
        beyond: "a request fails with `limited` and is not sent, an answer fails with `too-large`",
        reason: "common servers accept 8 KiB",
    }

    /// Time of one HTTP exchange, in milliseconds. Default 20,000.
    http_time_ms: HTTP_TIME_MS = {
        name: "httpTimeMs",
        unit: "milliseconds",
        min: 1,
        max: HOUR_MS,
        default: 20_000,
        beyond: "the request fails with `timeout`",
        reason: "one exchange has to leave time for the rest of the call",
    }

    /// Bytes of keys and values in the release's cache. Default 1 MiB.
    cache_bytes: CACHE_BYTES = {
        name: "cacheBytes",
        unit: "bytes of keys and values",
        min: KIB,
        max: 256 * MIB,
        default: MIB,
        beyond: "`cache.set` answers false",
        reason: "tokens and zone lists are kilobytes",
    }

    /// Entries in the release's cache. Default 1,000.
    cache_entries: CACHE_ENTRIES = {
        name: "cacheEntries",
        unit: "entries",
        min: 1,
        max: 100_000,
        default: 1_000,
        beyond: "`cache.set` answers false",
        reason: "tokens, zones and types are tens",
    }

    /// Longest TTL of a cache entry, in milliseconds; a longer TTL is reduced to the limit. Default
    /// 86,400,000 (a day).
    cache_ttl_ms: CACHE_TTL_MS = {
        name: "cacheTtlMs",
        unit: "milliseconds",
        min: 1,
        max: 7 * 24 * HOUR_MS,
        default: 24 * HOUR_MS,
        beyond: "a longer TTL is reduced to the limit",
        reason: "after a day the provider asks the cloud again",
    }

    /// Concurrent calls of the provider; further calls wait within their own deadline. Default 16.
    concurrent_calls: CONCURRENT_CALLS = {
        name: "concurrentCalls",
        unit: "calls at once",
        min: 1,
        max: 64,
        default: 16,
        beyond: "further calls wait within their own deadline; a call that gets no place fails with `LimitExceeded`",
        reason: "each holds its own memory and a place in the host's pool",
    }

    /// Size of the component, in bytes. Default 32 MiB.
    component_bytes: COMPONENT_BYTES = {
        name: "componentBytes",
        unit: "bytes",
        min: KIB,
        max: 256 * MIB,
        default: 32 * MIB,
        beyond: "the release is refused",
        reason: "a provider in Rust is below half a megabyte, one with a Python interpreter is 18",
    }

    /// CPU time to check and compile the component, in milliseconds. Default 60,000.
    compile_time_ms: COMPILE_TIME_MS = {
        name: "compileTimeMs",
        unit: "milliseconds of CPU",
        min: 100,
        max: HOUR_MS,
        default: 60_000,
        beyond: "the release is refused",
        reason: "a provider in Rust compiles in less than a second, a large interpreter in tens of seconds",
    }

    /// Memory to check and compile the component, in bytes. Default 1 GiB.
    compile_memory_bytes: COMPILE_MEMORY_BYTES = {
        name: "compileMemoryBytes",
        unit: "bytes",
        min: 64 * MIB,
        max: 16 * GIB,
        default: GIB,
        beyond: "the release is refused",
        reason: "a provider in Rust compiles in 25 MB, a large interpreter in hundreds",
    }
}

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
