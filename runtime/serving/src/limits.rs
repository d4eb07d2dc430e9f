//! Limits of what unauthenticated clients may send, because the ports listen on all addresses.

use std::time::Duration;

/// How much is done at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOnce {
    /// In total.
    pub(crate) all: usize,
    /// For one /64 network of IPv6, of which one host can have every address. The nodes and pods of
    /// a cluster often share such a network, so a network has more than an address.
    pub(crate) network: usize,
    /// For one address.
    pub(crate) address: usize,
}

/// Connections of one port. The kubelet, Prometheus and API servers need a few each, and one client
/// must not block the kubelet's probes.
pub(crate) const CONNECTIONS: AtOnce = AtOnce { all: 512, network: 256, address: 64 };

/// Bytes of a request's head. Tokens of service accounts have 1 to 2 KiB, proxies add groups.
pub(crate) const HEADER_BYTES_MAX: usize = 32 << 10;

/// Headers of a request. A request has about ten, and behind a proxy one more for each group.
pub(crate) const HEADERS_MAX: usize = 100;

/// Streams of one HTTP/2 connection by default; upstream has the same default.
pub(crate) const HTTP2_STREAMS: u32 = 100;

/// Timeout of the TLS handshake, which takes two round trips.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a request's head, and of the time between two requests of a connection. Upstream has
/// 32 s.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout from a request's head to its answer, with the reviews that it needs. An API server waits
/// at most 30 s for a webhook.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time without a frame after which an HTTP/2 peer is pinged; a peer that does not answer is
/// disconnected.
pub(crate) const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of the answer to a ping.
pub(crate) const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Age at which a connection is shut down, so that a client that reads its answer byte by byte does
/// not stay for ever.
pub(crate) const CONNECTION_AGE_MAX: Duration = Duration::from_secs(600);

/// Time for a connection's requests under way after the shutdown has begun.
pub(crate) const CONNECTION_GRACE: Duration = Duration::from_secs(5);

/// Pause after a failed `accept`, for example without a free file descriptor.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often the files of certificates and certificate authorities are checked for changes. The
/// kubelet updates a mounted Secret within about a minute.
pub(crate) const FILES_PERIOD: Duration = Duration::from_secs(10);

/// Bytes of a file with certificates: a bundle of all public roots has 250 KiB.
pub(crate) const PEM_BYTES_MAX: u64 = 1 << 20;

/// Cached answers about tokens; upstream has the same number.
pub(crate) const TOKENS_KEPT_MAX: usize = 4096;

/// Cached answers about permissions; upstream has the same number.
pub(crate) const RIGHTS_KEPT_MAX: usize = 8192;

/// Reviews of one kind that are sent to the API server; further requests wait. Prometheus needs one
/// at a time, and clients that guess tokens or paths must not delay it: at upstream's rate of 200 a
/// second, the last of 32 is sent after 160 ms.
pub(crate) const REVIEWS: AtOnce = AtOnce { all: 32, network: 16, address: 8 };

/// Time that a request waits for a place among the reviews: half of the time that Prometheus waits
/// for a scrape by default.
pub(crate) const REVIEW_WAIT_MAX: Duration = Duration::from_secs(5);

/// Timeout of one review; upstream has the same.
pub(crate) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a PUT to `/debug/flags/v`.
pub(crate) const VERBOSITY_BYTES_MAX: usize = 1 << 10;

/// Bytes of an admission review: the old and the new object of at most 3 MiB each, and the other
/// fields.
pub(crate) const REVIEW_BYTES_MAX: usize = 7 << 20;

/// Members and items of an admission review, counted in its text: a volume has fewer than a
/// thousand. A parsed object takes up to 95 times the bytes of its text.
pub(crate) const REVIEW_PARTS_MAX: usize = 20_000;

/// Bodies of admission reviews that are read; further bodies wait. A client that sends its bodies
/// slowly leaves places for the API server.
pub(crate) const BODIES: AtOnce = AtOnce { all: 64, network: 32, address: 16 };

/// Time for a body to arrive. An API server waits 10 s for a webhook by default.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Parsed admission reviews; the API server waits for the others. A client whose reviews a provider
/// answers slowly leaves places for the API server.
pub(crate) const WEBHOOKS: AtOnce = AtOnce { all: 16, network: 14, address: 12 };

/// Bytes of a client's text in an answer or a log line.
pub(crate) const TEXT_BYTES_MAX: usize = 200;
