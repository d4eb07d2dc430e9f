//! The connections of all clients of the Kubernetes API. Their deadlines are in
//! [`skysail_controllers::Deadlines`].
//!
//! Clients use HTTP/1.1, as kube's own do: one connection carries one request at a time. A
//! request that ends without an answer closes its connection, so that no later request meets a dead
//! connection. HTTP/2 would need pings, and a request that ends early would leave the dead
//! connection to the next one.
//!
//! # Guarantees
//! - After a request that hit its deadline, the next request uses another connection.
//! - No request of which the API server may have read anything is sent again. Where the API server
//!   closed a pooled connection, hyper sends a request that it had not begun to write on another
//!   connection. The caller decides what to do about an answer.
//! - An exec plugin of the kubeconfig blocks no thread that runs tasks. It has a deadline: of
//!   [`EXEC_PLUGIN`] when a client is made, of the request when a token has expired.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use futures::FutureExt as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ConfigExt as _},
};
use skysail_controllers::{ApiResponse, CONNECTION_IDLE, Deadlines};
use tokio::{task::spawn_blocking, time::timeout};
use tower::{BoxError, ServiceBuilder, ServiceExt as _, util::BoxService};

/// Connecting, with TLS. kube's default is 30 s, half of the minute after which every controller
/// has to work again.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the exec plugin of a kubeconfig may take when a client is made: a person may have to
/// log in with a browser.
const EXEC_PLUGIN: Duration = Duration::from_mins(2);

/// The HTTP service that sends the requests of a client.
pub(super) type Transport = BoxService<Request<Body>, ApiResponse, BoxError>;

/// The transport to the API server of this configuration.
///
/// # Errors
/// The configuration is invalid, or its exec plugin fails or takes longer than [`EXEC_PLUGIN`].
pub(super) async fn transport(config: Config) -> anyhow::Result<Transport> {
    let plugin = config.auth_info.exec.as_ref().and_then(|exec| exec.command.clone());
    // kube runs the plugin here, waits for its end, and takes no deadline.
    let made = timeout(EXEC_PLUGIN, spawn_blocking(move || made(&config))).await;
    made.map_err(|_elapsed| {
        anyhow!(
            "the exec plugin {} of the kubeconfig gave no credentials within {} s; run the plugin by hand to see why",
            plugin.unwrap_or_default(),
            EXEC_PLUGIN.as_secs()
        )
    })??
}

fn made(config: &Config) -> anyhow::Result<Transport> {
    if let Some(proxy) = &config.proxy_url {
        bail!(
            "the kubeconfig has the proxy-url {proxy}, but proxies are not supported; remove it and name a server that is reachable"
        );
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let connector = config.rustls_https_connector_with_connector(tcp)?;
    let connector = connector.map_future(|connecting| {
        let connected = async { timeout(CONNECT, connecting).await.map_err(BoxError::from)? };
        connected.boxed()
    });
    let client = Client::builder(TokioExecutor::new()).pool_idle_timeout(CONNECTION_IDLE).build(connector);
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().context("the credentials of the kubeconfig")?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .map_response(|answer: Response<Incoming>| answer.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        .service(client);
    Ok(Deadlines::new(stack).boxed())
}

#[cfg(test)]
mod tests;
