//! Tests of a served port with misbehaving clients.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{SecureServer, listen};
use crate::{
    endpoints::{Endpoints, NoDocument},
    guard::{Guard, Reviewers},
    health::{HealthCheck, HealthChecks},
    limits::{CONNECTIONS, HEADER_BYTES_MAX},
    options::{AuthenticationOptions, AuthorizationOptions, SecureServingOptions, TlsOptions},
    testing::{Ask, Authority, PATIENCE, Served, loopback, read_to_end},
};

fn endpoints() -> Endpoints {
    Endpoints {
        healthz: HealthChecks::new([HealthCheck::ping("a")]),
        livez: HealthChecks::default(),
        readyz: HealthChecks::default(),
        registry: Arc::new(Registry::default()),
        configuration: Arc::new(|| json!({})),
        providers: Arc::new(|| json!({})),
        services: Arc::new(|_, name| Err(NoDocument::NotFound(name.to_owned()))),
        verbosity: None,
    }
}

async fn serve(options: &SecureServingOptions, authentication: &AuthenticationOptions) -> Served {
    let guard = Guard::new(authentication, AuthorizationOptions::default(), Reviewers::default()).await.unwrap();
    Served::new(SecureServer::endpoints(options, endpoints(), guard).unwrap().unwrap())
}

async fn served() -> Served {
    serve(&loopback(SecureServingOptions::endpoints()), &AuthenticationOptions::default()).await
}

#[tokio::test]
async fn health_is_served_over_tls() {
    let served = served().await;
    assert_eq!(served.get("/healthz?verbose").await, (200, "[+]a ok\nhealthz check passed\n".to_owned()));
    assert_eq!(served.get("/debug/pprof/").await.0, 403);
}

/// The kubelet of a cluster with IPv6 alone probes the pod's IPv6 address.
#[tokio::test]
async fn the_unspecified_address_of_ipv4_means_every_address() {
    let listener = listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), false).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connects = async |address: IpAddr| TcpStream::connect((address, port)).await.is_ok();
    assert!(connects(Ipv4Addr::LOCALHOST.into()).await);
    let (_, peer) = listener.accept().await.unwrap();
    assert_eq!(peer.ip().to_canonical(), IpAddr::from(Ipv4Addr::LOCALHOST));
    // A machine without IPv6 has no such address either.
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
    assert_eq!(connects(Ipv6Addr::LOCALHOST.into()).await, has_ipv6);
}

#[tokio::test]
async fn port_0_serves_nothing_and_a_port_in_use_is_an_error_that_names_the_flag() {
    let authentication = AuthenticationOptions::default();
    let guard = Guard::new(&authentication, AuthorizationOptions::default(), Reviewers::default()).await.unwrap();
    let off = SecureServingOptions { secure_port: 0, ..SecureServingOptions::endpoints() };
    assert!(SecureServer::endpoints(&off, endpoints(), Arc::clone(&guard)).unwrap().is_none());
    let options = loopback(SecureServingOptions::endpoints());
    let _first = SecureServer::endpoints(&options, endpoints(), Arc::clone(&guard)).unwrap();
    let error = SecureServer::endpoints(&options, endpoints(), guard).unwrap_err().to_string();
    assert!(error.contains("--secure-port"), "{error}");
}

#[tokio::test]
async fn the_certificate_of_the_handshake_identifies_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, file) = (Authority::new("ca"), folder.path().join("ca.crt"));
    ca.write(&file);
    let authentication = AuthenticationOptions { client_ca_file: Some(file), ..AuthenticationOptions::default() };
    let served = serve(&loopback(SecureServingOptions::endpoints()), &authentication).await;
    let ask = Ask { path: "/metrics", ..Ask::default() };
    assert_eq!(served.ask(Some(&ca.client("root", &["system:masters"])), &ask).await.0, 200);
    let stranger = Authority::new("ca").client("root", &["system:masters"]);
    assert_eq!(served.ask(Some(&stranger), &ask).await.0, 401);
}

#[tokio::test]
async fn http_2_is_offered_unless_it_is_disabled() {
    let mut options = loopback(SecureServingOptions::endpoints());
    let with = serve(&options, &AuthenticationOptions::default()).await;
    let agreed = |stream: tokio_rustls::client::TlsStream<TcpStream>| stream.get_ref().1.alpn_protocol().map(Vec::from);
    assert_eq!(agreed(with.connect(None, &["h2", "http/1.1"]).await).unwrap(), b"h2");
    options = loopback(SecureServingOptions { disable_http2_serving: true, ..options });
    let without = serve(&options, &AuthenticationOptions::default()).await;
    assert_eq!(agreed(without.connect(None, &["h2", "http/1.1"]).await).unwrap(), b"http/1.1");
    assert_eq!(without.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn the_minimum_version_of_tls_is_enforced() {
    let options = loopback(SecureServingOptions::endpoints());
    let tls = TlsOptions { min_version: Some("VersionTLS13".to_owned()), ..options.tls.clone() };
    let served = serve(&SecureServingOptions { tls, ..options }, &AuthenticationOptions::default()).await;
    let stream = served.connect(None, &[]).await;
    assert_eq!(stream.get_ref().1.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let served = served().await;
    let value = "x".repeat(4 * HEADER_BYTES_MAX);
    let (status, _) = served.ask(None, &Ask { path: "/healthz", headers: &[("x", &value)], ..Ask::default() }).await;
    assert_eq!(status, 431);
    let many: Vec<_> = (0..200).map(|number| (format!("x{number}"), "y")).collect();
    let many: Vec<_> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(served.ask(None, &Ask { path: "/healthz", headers: &many, ..Ask::default() }).await.0, 431);
}

#[tokio::test]
async fn connections_of_one_address_are_limited_and_a_closed_one_can_be_replaced() {
    let served = served().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS.address {
        held.push(served.connect(None, &["http/1.1"]).await);
    }
    let mut refused = TcpStream::connect(served.address).await.unwrap();
    let read = timeout(PATIENCE, refused.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "closed without an answer");
    drop(held);
    let again = async {
        loop {
            let mut stream = TcpStream::connect(served.address).await.unwrap();
            // Not a TLS handshake: a client within the limit receives an alert.
            drop(stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await);
            let mut byte = [0; 1];
            if matches!(stream.read(&mut byte).await, Ok(1)) {
                return;
            }
        }
    };
    timeout(PATIENCE, again).await.expect("a new connection must be accepted again");
}

#[tokio::test]
async fn a_stop_ends_idle_connections_and_the_server() {
    let mut served = served().await;
    let mut idle = served.connect(None, &["http/1.1"]).await;
    let half = served.connect(None, &["http/1.1"]).await;
    served.stop.cancel();
    assert_eq!(timeout(PATIENCE, read_to_end(&mut idle)).await.unwrap(), "");
    timeout(PATIENCE, served.tasks.join_next()).await.unwrap().unwrap().unwrap();
    drop(half);
}
