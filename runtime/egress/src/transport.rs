//! HTTP connections: DNS look-up with a check of each address, TLS, connection pools, and response
//! bodies that are read in pieces.
//!
//! A peer is not trusted. Before a connection is made, each address of the name is checked; with a
//! proxy, the proxy resolves the name and has to check. Nothing is decompressed and no redirect is
//! followed. A body is read in pieces, and the reader of a [`StreamingResponse`] decides when to
//! stop.
//!
//! Must not know credentials and must not decide which requests may leave.

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
    vec,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header, response::Parts, uri::Scheme};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Body as _, Incoming},
    ext::on_informational,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{
        self,
        connect::{Connected, Connection, HttpConnector, dns::Name, proxy::Tunnel},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::{
    net::TcpStream,
    select,
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    task::coop::consume_budget,
    time::timeout,
};
use tower::{BoxError, Service, ServiceExt as _, service_fn, util::BoxCloneSyncService};

use crate::{
    policy::{EgressRefusal, Proxy},
    resolver::Resolver,
};

/// Time for the look-up, TCP and TLS together: a slower peer counts as unreachable while the call
/// still has time to report that.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Shorter than the idle timeout of common servers. Some load balancers close after 5 s, which the
/// transport notices.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time without a frame after which a connection of HTTP/2 is asked for a sign of life (PING),
/// and the time for the answer. A request that meets its deadline does not close a shared
/// connection: without pings, a connection that a NAT has forgotten would fail every request until
/// the kernel gives the connection up, after some 15 minutes.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(10);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The most addresses of one name that are tried. All addresses of a longer DNS answer are checked
/// before the answer is cut.
const ADDRESSES_MAX: usize = 16;

/// The largest header list of HTTP/2 that a peer may send. HTTP/2 counts 32 bytes more for each
/// header, so this is the sum of the largest `httpHeaderBytes` and `httpHeaders`. The smaller
/// limits of a provider are checked after the headers have arrived.
const HEADER_LIST_BYTES_MAX: u32 = 256 * 1024 + 32 * 1000;

/// The size of the smallest interim (1xx) answer: `HTTP/1.1 103` and two line ends, without
/// headers.
const INTERIM_BYTES_MIN: u64 = 16;

const USER_AGENT: &str = concat!("skysail/", env!("CARGO_PKG_VERSION"));

/// Takes a name and one of its addresses; returns the address to connect to, or the refusal.
pub type Judge = Arc<dyn Fn(&str, IpAddr) -> Result<IpAddr, EgressRefusal> + Send + Sync>;

/// How connections are made.
#[derive(Clone)]
pub struct TransportOptions {
    /// The trusted CA certificates: see [`roots`].
    pub roots: Arc<RootCertStore>,
    /// Turns names into addresses.
    pub resolver: Arc<dyn Resolver>,
    /// Called for each address of each name; with a proxy, of the proxy's name.
    pub judge: Judge,
    /// The proxy of all requests: see [`crate::policy::Proxy`].
    pub proxy: Option<Proxy>,
    /// Headers of one answer, interim ones included.
    pub headers_max: u32,
    /// Idle connections that are kept for each origin.
    pub idle_max: usize,
    /// One permit for each open connection, idle ones included. Clients may share the permits.
    pub connections: Arc<Semaphore>,
}

/// A client certificate chain and its key.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Pooled connections to all origins. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Client {
    pool: legacy::Client<Connector, Full<Bytes>>,
    headers_max: u64,
}

type Connector = BoxCloneSyncService<Uri, Counted, BoxError>;

/// A connection that holds its permit of [`TransportOptions::connections`].
struct Counted {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    /// A request to a proxy names the whole URL.
    to_proxy: bool,
    _permit: OwnedSemaphorePermit,
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct StreamingResponse {
    /// Status and headers.
    pub head: Parts,
    body: Incoming,
}

/// Why there is no answer, or only a part of one.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection was made, or it ended before the head of the answer arrived.
    #[error("cannot send the request")]
    Request(#[source] legacy::Error),
    /// The connection ended before the end of the body.
    #[error("read the answer")]
    Body(#[source] hyper::Error),
    /// The interim (1xx) answers and their headers are more than an answer may have headers.
    #[error("more than {0} headers of interim answers")]
    Interim(u64),
    /// The body has a coding, although the request asked for none.
    #[error("the answer has a {0} that the request did not ask for")]
    Coding(HeaderName),
}

/// Why a look-up failed. The error is one of the [`causes`] of a [`TransportError`].
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    /// An address of the name is refused.
    #[error("look up {name}: {refusal}")]
    Refused {
        /// The name.
        name: String,
        /// The address and the reason.
        refusal: EgressRefusal,
    },
    /// The look-up failed or returned no address.
    #[error("look up {0}")]
    Failed(String, #[source] io::Error),
}

// === impl Client ===

impl Client {
    /// A client whose connections present this client certificate, if any.
    ///
    /// # Errors
    /// The certificate and its key cannot be used.
    pub fn new(options: &TransportOptions, identity: Option<Identity>) -> Result<Self, rustls::Error> {
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&options.roots));
        let tls = match identity {
            None => tls.with_no_client_auth(),
            Some((chain, key)) => tls.with_client_auth_cert(chain, key)?,
        };
        let path = Path::new(options, tls);
        let connections = Arc::clone(&options.connections);
        let connector = service_fn(move |to: Uri| {
            let (path, connections) = (path.clone(), Arc::clone(&connections));
            async move {
                // Idle connections give their permits back after POOL_IDLE_TIMEOUT.
                let permit = timeout(CONNECT_TIMEOUT, connections.acquire_owned()).await;
                let permit = permit.map_err(|_| too_many_connections())??;
                let connected = timeout(CONNECT_TIMEOUT, path.connect(to)).await.map_err(|_| too_slow())??;
                let (stream, to_proxy) = connected;
                Ok::<_, BoxError>(Counted { stream, to_proxy, _permit: permit })
            }
        });
        let pool = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(options.idle_max)
            .http1_max_headers(usize::try_from(options.headers_max).unwrap_or(usize::MAX))
            .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
            .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
            .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .build(BoxCloneSyncService::new(connector));
        Ok(Self { pool, headers_max: u64::from(options.headers_max) })
    }

    /// Sends a request and waits for the head of the answer. `received` is called with the number
    /// of bytes of each head, interim answers included.
    ///
    /// # Errors
    /// No connection, or no head of an answer within the bound for its headers.
    ///
    /// # Cancel safety
    /// Dropping the future ends the exchange; the request may have been carried out.
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        received: impl Fn(u64) + Clone + Send + Sync + 'static,
    ) -> Result<StreamingResponse, TransportError> {
        add_defaults(request.headers_mut());
        let max = self.headers_max;
        let (lines, flood) = (AtomicU64::new(0), Arc::new(Notify::new()));
        let (counted, stop) = (received.clone(), Arc::clone(&flood));
        // A peer may send interim answers without end; hyper skips them, so they are counted here.
        // Those of HTTP/2 are not reported: the time of the exchange bounds them, and the task of
        // the connection, which throws them away, yields.
        on_informational(&mut request, move |interim| {
            counted(INTERIM_BYTES_MIN.saturating_add(header_bytes(interim.headers())));
            let more = 1 + interim.headers().len() as u64;
            if lines.fetch_add(more, Ordering::Relaxed).saturating_add(more) > max {
                stop.notify_one();
            }
        });
        let answer = select! {
            biased;
            () = flood.notified() => return Err(TransportError::Interim(max)),
            answer = self.request(request) => answer.map_err(TransportError::Request)?,
        };
        let (head, body) = answer.into_parts();
        received(header_bytes(&head.headers));
        Ok(StreamingResponse { head, body })
    }

    /// Sends a request, and once more if the peer reports that it has not processed the first one.
    async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, legacy::Error> {
        match self.pool.request(request.clone()).await {
            Err(error) if is_unprocessed(&error) => self.pool.request(request).await,
            answer => answer,
        }
    }
}

/// How connections reach an origin.
#[derive(Clone)]
enum Path {
    Direct(HttpsConnector<Tcp>),
    /// TLS runs through a tunnel (CONNECT); a request without TLS goes to the proxy itself.
    Proxied(Box<Proxied>),
}

#[derive(Clone)]
struct Proxied {
    proxy: Proxy,
    tcp: Tcp,
    tunnel: HttpsConnector<Tunnel<Tcp>>,
}

type Tcp = HttpConnector<LookUp>;

/// The proxy cannot be reached, or refuses the tunnel.
#[derive(Debug, thiserror::Error)]
#[error("connect through proxy {proxy}")]
struct ProxyError {
    proxy: Proxy,
    #[source]
    cause: BoxError,
}

// === impl Path ===

impl Path {
    fn new(options: &TransportOptions, tls: ClientConfig) -> Self {
        let look_up = LookUp { resolver: Arc::clone(&options.resolver), judge: Arc::clone(&options.judge) };
        let mut tcp = HttpConnector::new_with_resolver(look_up);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions();
        match &options.proxy {
            None => Self::Direct(tls.wrap_connector(tcp)),
            Some(proxy) => {
                let tunnel = tls.wrap_connector(Tunnel::new(proxy.uri().clone(), tcp.clone()));
                Self::Proxied(Box::new(Proxied { proxy: proxy.clone(), tcp, tunnel }))
            }
        }
    }

    /// Connects; returns whether requests on this connection go to a proxy.
    async fn connect(self, to: Uri) -> Result<(MaybeHttpsStream<TokioIo<TcpStream>>, bool), BoxError> {
        let Proxied { proxy, tcp, tunnel } = match self {
            Self::Direct(tls) => return Ok((tls.oneshot(to).await?, false)),
            Self::Proxied(proxied) => *proxied,
        };
        if to.scheme() == Some(&Scheme::HTTPS) {
            return match tunnel.oneshot(to).await {
                Ok(stream) => Ok((stream, false)),
                // An error of the TLS handshake is the origin's.
                Err(cause) if causes(&*cause).iter().any(|cause| cause.is::<rustls::Error>()) => Err(cause),
                Err(cause) => Err(ProxyError { proxy, cause }.into()),
            };
        }
        match tcp.oneshot(proxy.uri().clone()).await {
            Ok(stream) => Ok((MaybeHttpsStream::Http(stream), true)),
            Err(cause) => Err(ProxyError { proxy, cause: cause.into() }.into()),
        }
    }
}

// === impl Counted ===

impl Counted {
    fn pinned(self: Pin<&mut Self>) -> Pin<&mut MaybeHttpsStream<TokioIo<TcpStream>>> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Connection for Counted {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.to_proxy)
    }
}

impl Read for Counted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_read(cx, buf)
    }
}

impl Write for Counted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.pinned().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pinned().poll_write_vectored(cx, bufs)
    }
}

impl StreamingResponse {
    /// The length of the body, where the peer has announced it.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection ended before the end of the body, or the body has a coding, which the request
    /// did not ask for.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, TransportError> {
        loop {
            // Otherwise a peer that always has the next frame ready would keep the caller's timers
            // from being polled.
            consume_budget().await;
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            match frame.map_err(TransportError::Body)?.into_data() {
                // The answer to HEAD may name a coding without a body, so the coding is checked
                // only when there is a body.
                Ok(piece) if !piece.is_empty() => {
                    check_coding(&self.head.headers)?;
                    return Ok(Some(piece));
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
}

impl TransportError {
    /// Whether no connection was made, so that nothing was sent.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_connect())
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no connection after {} s", CONNECT_TIMEOUT.as_secs()))
}

fn too_many_connections() -> io::Error {
    let seconds = CONNECT_TIMEOUT.as_secs();
    io::Error::other(format!(
        "no connection after {seconds} s: the provider has too many open connections, idle ones included"
    ))
}

fn add_defaults(headers: &mut HeaderMap) {
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
    // Nothing is decompressed, because a decoder can take input for ever without an output. Without
    // this header a server may choose any coding.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

fn check_coding(headers: &HeaderMap) -> Result<(), TransportError> {
    for (name, plain) in [(header::CONTENT_ENCODING, "identity"), (header::TRANSFER_ENCODING, "chunked")] {
        if !headers.get_all(&name).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(plain.as_bytes())) {
            return Err(TransportError::Coding(name));
        }
    }
    Ok(())
}

/// Whether the peer has refused an HTTP/2 stream, or has closed the connection before it processed
/// the stream.
fn is_unprocessed(error: &legacy::Error) -> bool {
    let causes = causes(error);
    let Some(error) = causes.iter().find_map(|cause| cause.downcast_ref::<h2::Error>()) else { return false };
    let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    let closed = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (refused || closed)
}

/// Bytes of all names and values.
#[must_use]
pub fn header_bytes(headers: &HeaderMap) -> u64 {
    let sum: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    sum as u64
}

/// The error and its causes, including the error inside an `io::Error`, which `source` does not
/// return.
#[must_use]
pub fn causes<'a>(error: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
    /// Deeper than any known chain. The bound protects against a cycle in an error of another
    /// crate.
    const DEPTH_MAX: usize = 16;
    let mut out: Vec<&'a (dyn StdError + 'static)> = Vec::new();
    let mut next = Some(error);
    while let Some(cause) = next.filter(|_| out.len() < DEPTH_MAX) {
        out.push(cause);
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => cause.source(),
        };
    }
    out
}

/// The system's root certificates when the first client was made. To read and parse hundreds of
/// certificates blocks a thread: once, for the first client of the process, and not again for each
/// change of a provider.
static SYSTEM: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let (taken, ignored) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if taken == 0 {
        tracing::warn!(ignored, "the system has no trusted certificates; only those of caBundle are trusted");
    }
    roots
});

/// The root certificates of the system, which are read once in a process, and `beside`.
///
/// A system without root certificates is not an error: a peer may speak plain HTTP, or the operator
/// supplies the roots.
///
/// # Errors
/// The index of the certificate that cannot be parsed, and the reason.
pub fn roots(beside: &[CertificateDer<'static>]) -> Result<RootCertStore, (usize, rustls::Error)> {
    let mut roots = SYSTEM.clone();
    for (index, certificate) in beside.iter().enumerate() {
        roots.add(certificate.clone()).map_err(|error| (index, error))?;
    }
    Ok(roots)
}

// === look-up ===

#[derive(Clone)]
struct LookUp {
    resolver: Arc<dyn Resolver>,
    judge: Judge,
}

impl LookUp {
    async fn look_up(&self, name: &str) -> Result<Vec<SocketAddr>, LookUpError> {
        let failed = |error| LookUpError::Failed(name.to_owned(), error);
        let addresses = self.resolver.resolve(name).await.map_err(failed)?;
        if addresses.is_empty() {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "no address")));
        }
        let mut judged = Vec::new();
        let mut seen = BTreeSet::new();
        for address in addresses {
            let address = (self.judge)(name, address);
            let address = address.map_err(|refusal| LookUpError::Refused { name: name.to_owned(), refusal })?;
            if seen.insert(address) {
                // hyper replaces port 0 by the port of the URL.
                judged.push(SocketAddr::new(address, 0));
            }
        }
        judged.truncate(ADDRESSES_MAX);
        Ok(judged)
    }
}

impl Service<Name> for LookUp {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = LookUpError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.look_up(name.as_str()).await.map(Vec::into_iter) })
    }
}
