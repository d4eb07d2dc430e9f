//! One connection: handshake, requests, shutdown, each with a timeout.

use std::{convert::Infallible, pin::pin, sync::Arc};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse as _, Response},
};
use futures::future::BoxFuture;
use http::{Request, StatusCode};
use hyper::{body::Incoming, service::Service};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{
    authentication::Peer,
    limits::{
        CONNECTION_AGE_MAX, CONNECTION_GRACE, HANDSHAKE_TIMEOUT, HEADER_BYTES_MAX, HEADER_TIMEOUT, HEADERS_MAX,
        HTTP2_PING_INTERVAL, HTTP2_PING_TIMEOUT, REQUEST_TIMEOUT,
    },
    line_rate::LineRate,
    peer_address::PeerAddress,
    tls::refused_certificates,
};

/// The HTTP settings after the handshake, and the rate of the warnings that handshakes cause.
#[derive(Clone, Debug)]
pub(super) struct Http {
    pub(super) router: Router,
    pub(super) streams: u32,
    pub(super) warnings: Arc<LineRate>,
}

/// Serves one connection to its end.
pub(super) async fn serve(
    (stream, address): (TcpStream, PeerAddress),
    acceptor: &TlsAcceptor,
    http: Http,
    stop: CancellationToken,
) {
    let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            // Any port scanner causes the other failures.
            let warning = refused_certificates(&error).and_then(|reason| Some((reason, http.warnings.take()?)));
            match warning {
                Some((reason, left_out)) => {
                    tracing::warn!("the TLS handshake with the client {address} failed: {reason}{left_out}");
                }
                None => tracing::debug!(error = &error as &dyn std::error::Error, "a TLS handshake failed"),
            }
            return;
        }
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let (_, session) = stream.get_ref();
    let http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().unwrap_or_default().iter().map(|it| it.clone().into_owned());
    let peer = Peer { certificates: certificates.collect() };
    let service = Requests { router: http.router.clone(), peer, address };
    let builder = builder(http2, http.streams);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = stop.cancelled() => None,
        () = sleep(CONNECTION_AGE_MAX) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            timeout(CONNECTION_GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = &*error as &dyn std::error::Error, "a connection ended early");
    }
}

/// Builds the server for the protocol that ALPN negotiated; detection by the first bytes could wait
/// for ever.
fn builder(http2: bool, streams: u32) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    http1.max_buf_size(HEADER_BYTES_MAX).max_headers(HEADERS_MAX);
    let mut frames = builder.http2();
    frames.timer(TokioTimer::new()).keep_alive_interval(HTTP2_PING_INTERVAL).keep_alive_timeout(HTTP2_PING_TIMEOUT);
    frames.max_concurrent_streams(streams);
    frames.max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX));
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

/// Adds the peer's certificates and address to each request, and a timeout to its answer.
#[derive(Clone)]
struct Requests {
    router: Router,
    peer: Peer,
    address: PeerAddress,
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.peer.clone());
        request.extensions_mut().insert(self.address);
        let answer = self.router.clone().oneshot(request);
        Box::pin(async move {
            let late = || (StatusCode::SERVICE_UNAVAILABLE, "the request took too long\n").into_response();
            timeout(REQUEST_TIMEOUT, answer).await.unwrap_or_else(|_| Ok(late()))
        })
    }
}
