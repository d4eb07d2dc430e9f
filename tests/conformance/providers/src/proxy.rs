//! An HTTP proxy before a service of a cloud: it records each request, and a rule of the test
//! decides what becomes of the request.
//!
//! The host sees the proxy's origin, so a provider that follows a link into the cloud leaves the
//! proxy, and the egress rules refuse it. The `Host` header is passed on as it is: it is part of
//! signatures.

mod tls;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client, server, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use self::tls::Identity;
use crate::leaks;

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// The number of the request, from 0, since the last [`Proxy::clear`].
    pub number: usize,
    /// `GET`, `POST`, …
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// A response that the proxy gives in place of the cloud.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// Status of HTTP.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(&'static str, String)>,
    /// The whole body.
    pub body: String,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The cloud answers.
    Pass,
    /// The cloud does not receive the request; this is the response.
    Answer(Reply),
    /// The cloud does not receive the request, and the connection ends.
    CutBefore,
    /// The cloud carries out the request, and the connection ends before the response.
    CutAfter,
}

impl Reply {
    /// A response with a body; a page in HTML says so.
    #[must_use]
    pub fn new(status: u16, body: &str) -> Self {
        let media_type = if body.starts_with("<html") { "text/html; charset=utf-8" } else { "application/json" };
        Self { status, headers: vec![("content-type", media_type.to_owned())], body: body.to_owned() }
    }
}

/// A function that says what becomes of a request.
pub type Judge = Arc<dyn Fn(&Request) -> Verdict + Send + Sync>;

/// Decides about each request. It may act on the cloud before it decides.
pub type Rule = Arc<dyn Fn(Request) -> BoxFuture<'static, Verdict> + Send + Sync>;

/// What the proxies of one cloud have in common.
#[derive(Default)]
struct Shared {
    rule: Option<Rule>,
    seen: Vec<Request>,
    lag: Option<Lag>,
}

/// Method, path and body.
type Key = (String, String, Bytes);

/// A cloud whose reads lag behind its writes.
struct Lag {
    is_write: fn(&Request) -> bool,
    /// The cloud's last answer to each read, and whether the one before was given since the last
    /// write.
    reads: HashMap<Key, (Response<Bytes>, bool)>,
}

impl Lag {
    fn fall_behind(&mut self) {
        self.reads.values_mut().for_each(|(_, given)| *given = false);
    }

    /// The response to give in place of the cloud's: the first of equal reads after a write has
    /// the answer from before. A write that the cloud refused changed nothing.
    fn instead_of(&mut self, request: &Request, response: Response<Bytes>) -> Response<Bytes> {
        if (self.is_write)(request) {
            if response.status().is_success() {
                self.fall_behind();
            }
            return response;
        }
        let key = (request.method.clone(), request.path.clone(), request.body.clone());
        match self.reads.insert(key, (response.clone(), true)) {
            Some((before, false)) => before,
            _ => response,
        }
    }
}

/// A proxy before each service of a cloud. Dropping it ends all of them.
pub struct Proxy {
    origins: Vec<String>,
    certificate: Option<String>,
    shared: Arc<Mutex<Shared>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy before each of these services, which speak HTTP. With `https` the proxies
    /// speak HTTPS to the host.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start(services: &[SocketAddr], https: bool) -> Result<Self> {
        let shared = Arc::<Mutex<Shared>>::default();
        let identity = https.then(Identity::new).transpose()?;
        let scheme = if https { "https" } else { "http" };
        let (mut origins, mut tasks) = (Vec::new(), JoinSet::new());
        for service in services {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
            origins.push(format!("{scheme}://{}", listener.local_addr()?));
            let tls = identity.as_ref().map(|identity| identity.acceptor.clone());
            tasks.spawn(accept(listener, tls, *service, Arc::clone(&shared)));
        }
        Ok(Self { origins, certificate: identity.map(|identity| identity.certificate), shared, _tasks: tasks })
    }

    /// `http://ADDRESS` or `https://ADDRESS` of each proxy, in the order of the services.
    #[must_use]
    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    /// The certificate of all proxies as PEM; none without HTTPS.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// All requests since the last call of this function or of [`Self::clear`].
    #[must_use]
    pub fn take(&self) -> Vec<Request> {
        std::mem::take(&mut lock(&self.shared).seen)
    }

    /// Forgets all requests, and counts from 0.
    pub fn clear(&self) {
        lock(&self.shared).seen.clear();
    }

    /// Lets this rule decide from now on, and counts requests from 0.
    pub fn set(&self, rule: impl Fn(Request) -> BoxFuture<'static, Verdict> + Send + Sync + 'static) {
        let mut shared = lock(&self.shared);
        shared.rule = Some(Arc::new(rule));
        shared.seen.clear();
    }

    /// Lets this function, which needs no time, decide from now on.
    pub fn decide(&self, rule: impl Fn(&Request) -> Verdict + Send + Sync + 'static) {
        self.set(move |request| {
            let verdict = rule(&request);
            Box::pin(async move { verdict })
        });
    }

    /// Answers the first of equal reads after each write as if the write had not happened, from now
    /// on.
    pub fn lag_behind(&self, is_write: fn(&Request) -> bool) {
        self.pass();
        lock(&self.shared).lag = Some(Lag { is_write, reads: HashMap::new() });
    }

    /// Answers the next of equal reads once more as before, although nobody has written through
    /// the proxies. Only with [`Self::lag_behind`].
    pub fn fall_behind(&self) {
        if let Some(lag) = &mut lock(&self.shared).lag {
            lag.fall_behind();
        }
    }

    /// Passes all requests from now on.
    pub fn pass(&self) {
        let mut shared = lock(&self.shared);
        shared.rule = None;
        shared.lag = None;
        shared.seen.clear();
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, service: SocketAddr, shared: Arc<Mutex<Shared>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            match tls {
                None => serve(stream, service, &shared).await,
                // A host that refuses the certificate says so itself.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, service, &shared).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, service: SocketAddr, shared: &Mutex<Shared>) {
    let kept = tokio::sync::Mutex::new(None);
    let answer = service_fn(|request| exchange(request, service, shared, &kept));
    let mut server = server::conn::http1::Builder::new();
    // An error of the service ends the connection without a response, as it should.
    server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), answer).await.ok();
}

async fn exchange(
    request: http::Request<Incoming>,
    service: SocketAddr,
    shared: &Mutex<Shared>,
    kept: &tokio::sync::Mutex<Option<Forwarding>>,
) -> Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let (rule, seen) = {
        let mut shared = lock(shared);
        let number = shared.seen.len();
        let (method, headers) = (parts.method.to_string(), parts.headers.clone());
        let seen = Request { number, method, path, headers, body: body.clone() };
        shared.seen.push(seen.clone());
        (shared.rule.clone(), seen)
    };
    let verdict = match rule {
        Some(rule) => rule(seen.clone()).await,
        None => Verdict::Pass,
    };
    match verdict {
        Verdict::Answer(Reply { status, headers, body }) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            Ok(response.body(Full::new(Bytes::from(body)))?)
        }
        Verdict::CutBefore => Err(anyhow!("the rule of the test cuts the connection")),
        Verdict::Pass | Verdict::CutAfter => {
            let response = forward(http::Request::from_parts(parts, Full::new(body)), service, kept).await?;
            let response = match &mut lock(shared).lag {
                Some(lag) => lag.instead_of(&seen, response),
                None => response,
            };
            if matches!(verdict, Verdict::CutAfter) {
                return Err(anyhow!("the rule of the test cuts the connection"));
            }
            Ok(response.map(Full::new))
        }
    }
}

/// The tokens and sessions that a cloud has just issued: as secret as the password that they stand
/// for.
fn issued(headers: &HeaderMap) -> Vec<String> {
    let texts = |name: &str| headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>();
    // `vmware_soap_session="VALUE"; Path=/`
    let cookie = |text: &str| Some(text.split(';').next()?.split_once('=')?.1.trim_matches('"').to_owned());
    let cookies: Vec<_> = texts("set-cookie").into_iter().filter_map(cookie).collect();
    texts("x-subject-token").into_iter().map(str::to_owned).chain(cookies).filter(|value| !value.is_empty()).collect()
}

/// A connection to the cloud.
struct Forwarding {
    sender: client::conn::http1::SendRequest<Full<Bytes>>,
    _driver: JoinSet<hyper::Result<()>>,
}

impl Forwarding {
    async fn open(service: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(service).await.with_context(|| format!("the cloud at {service} is gone"))?;
        let (sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        Ok(Self { sender, _driver: driver })
    }
}

/// Sends a request on the connection that belongs to the client's, which is opened if there is
/// none: a connection for each request would cost the services of OpenStack a fifth of their time.
async fn forward(
    request: http::Request<Full<Bytes>>,
    service: SocketAddr,
    kept: &tokio::sync::Mutex<Option<Forwarding>>,
) -> Result<Response<Bytes>> {
    let mut kept = kept.lock().await;
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => Forwarding::open(service).await?,
    };
    if connection.sender.ready().await.is_err() {
        connection = Forwarding::open(service).await?;
    }
    let (mut parts, body) = connection.sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    *kept = Some(connection);
    leaks::watch(issued(&parts.headers));
    // The body is complete: hyper writes its length.
    for header in ["transfer-encoding", "content-length", "connection", "keep-alive"] {
        parts.headers.remove(header);
    }
    Ok(Response::from_parts(parts, body))
}
