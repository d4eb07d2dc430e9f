//! Every bound of what unauthenticated clients may send: the ports listen on all addresses.

use std::time::Duration;

/// Connections of one port. kubelet, Prometheus and API servers hold a handful each.
pub(crate) const CONNECTIONS_MAX: usize = 512;

/// Connections of one address: nobody alone can take all of them from kubelet's probes.
pub(crate) const CONNECTIONS_OF_ONE_ADDRESS_MAX: usize = 64;

/// Bytes of a request's head. Tokens of service accounts have 1 to 2 KiB, proxies add groups.
pub(crate) const HEADER_BYTES_MAX: usize = 32 << 10;

/// Headers of a request. Typical are ten, and a few for each group behind a proxy.
pub(crate) const HEADERS_MAX: usize = 100;

/// Streams of one HTTP/2 connection where the operator says nothing; upstream has the same.
pub(crate) const HTTP2_STREAMS: u32 = 100;

/// For the TLS handshake, which is two round trips.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// For a request's head, and between two requests of a connection. Upstream waits 32 s.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// From a request's head to its answer, with the reviews that it needs. An API server waits 30 s
/// for a webhook at most.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// An HTTP/2 peer that sends nothing for so long is asked whether it is there, and is gone when it
/// does not say so.
pub(crate) const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may take to say so.
pub(crate) const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Age at which a connection is asked to end: one that reads its answer byte by byte does not stay
/// for ever.
pub(crate) const CONNECTION_AGE_MAX: Duration = Duration::from_secs(600);

/// For what a connection still does when it is asked to end.
pub(crate) const CONNECTION_GRACE: Duration = Duration::from_secs(5);

/// How long nothing is accepted after the kernel had no descriptor for a connection.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often the files of certificates and authorities are read for changes. A mounted Secret
/// follows its object within a minute or so.
pub(crate) const FILES_PERIOD: Duration = Duration::from_secs(10);

/// Bytes of a file with certificates: a bundle of all public roots has 250 KiB.
pub(crate) const PEM_BYTES_MAX: u64 = 1 << 20;

/// Answers about tokens that are kept; upstream keeps as many.
pub(crate) const TOKENS_KEPT_MAX: usize = 4096;

/// Answers about rights that are kept; upstream keeps as many.
pub(crate) const RIGHTS_KEPT_MAX: usize = 8192;

/// Reviews at one time: clients that guess tokens must not become a flood for the API server.
/// Further requests wait.
pub(crate) const REVIEWS_AT_ONCE: usize = 32;

/// For one review; upstream waits as long.
pub(crate) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of what is put to `/debug/flags/v`.
pub(crate) const VERBOSITY_BYTES_MAX: usize = 1 << 10;

/// Bytes of an admission review: the old and the new object of at most 3 MiB each, and what is
/// around them.
pub(crate) const REVIEW_BYTES_MAX: usize = 7 << 20;

/// Admission reviews in memory at one time; the API server waits for the others.
pub(crate) const WEBHOOKS_AT_ONCE: usize = 16;
