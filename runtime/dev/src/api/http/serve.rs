//! The service over HTTP on a socket.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ApiService;
use crate::api::ApiServer;

/// Maximum number of connections; kubectl uses one, a manager a few. Further connections wait in
/// the kernel's backlog.
const CONNECTIONS_MAX: usize = 1_000;

/// A listening API server; dropping it stops it at once.
#[derive(Debug)]
pub struct Serving {
    addr: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Serving {
    /// The address that it listens on, with the chosen port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://ADDRESS`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Stops accepting connections, ends watches, answers pending requests, and returns.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl ApiServer {
    /// Serves plain HTTP on `addr`; port 0 chooses one.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn serve(self: &Arc<Self>, addr: SocketAddr) -> std::io::Result<Serving> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, self.service(), stop.clone()));
        Ok(Serving { addr, stop, tasks })
    }
}

async fn accept(listener: TcpListener, service: ApiService, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => stream,
                // The peer closed the connection before it was accepted here.
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "a connection could not be accepted");
                    continue;
                }
            },
        };
        let service = Stoppable { service: service.clone(), stop: stop.clone() };
        let builder = auto::Builder::new(TokioExecutor::new());
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).into_owned();
        let watched = graceful.watch(connection);
        connections.spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(error, "a connection ended early");
            }
        });
    }
    graceful.shutdown().await;
    while connections.join_next().await.is_some() {}
}

/// Ends the bodies of watches when the listener stops, so that their connections can close.
#[derive(Clone, Debug)]
struct Stoppable {
    service: ApiService,
    stop: CancellationToken,
}

impl tower::Service<hyper::Request<hyper::body::Incoming>> for Stoppable {
    type Response = hyper::Response<axum::body::Body>;
    type Error = std::convert::Infallible;
    type Future = futures::future::BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: hyper::Request<hyper::body::Incoming>) -> Self::Future {
        let answer = self.service.call(request);
        let stop = self.stop.clone();
        Box::pin(async move {
            let response = answer.await?;
            Ok(response.map(|body| {
                use futures::StreamExt as _;
                let until = stop.cancelled_owned();
                axum::body::Body::from_stream(body.into_data_stream().take_until(until))
            }))
        })
    }
}
