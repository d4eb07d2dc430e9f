//! A program on a simulated machine: an HTTP server that answers with the machine's name, so that a
//! request through a virtual server shows its backend.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{net::TcpListener, task::JoinSet};

use super::{error::CloudError, listener};

/// The maximum number of connections of one machine's program; further ones wait.
const CONNECTIONS_MAX: usize = 256;

/// A listening program; dropping it ends its connections.
#[derive(Debug)]
pub(super) struct Program {
    tasks: JoinSet<()>,
}

impl Program {
    /// Listens at once. Must be called within a tokio runtime.
    pub(super) fn start(address: SocketAddr, name: &str) -> Result<Self, CloudError> {
        let listener = listener::listen(address)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_all(listener, format!("{name}\n").into()));
        Ok(Self { tasks })
    }

    /// When this returns, the port is free.
    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn accept_all(listener: TcpListener, answer: Bytes) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve(stream, answer.clone()));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn serve(stream: tokio::net::TcpStream, answer: Bytes) {
    let service = hyper::service::service_fn(move |_: Request<Incoming>| {
        let mut response = Response::new(Full::new(answer.clone()));
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
        // One request for each connection, so that the next request may go to another machine.
        response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        async { Ok::<_, Infallible>(response) }
    });
    let builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    let served = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "connection to a simulated machine broke");
    }
}
