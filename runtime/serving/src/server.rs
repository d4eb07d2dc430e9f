//! An HTTPS port with limits for connections and timeouts for slow peers.

mod connection;
mod places;

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::Router;
use rustix::{io::Errno, net::sockopt::set_ipv6_v6only};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{
    endpoints::Endpoints,
    error::ServingError,
    guard::Guard,
    limits::{ACCEPT_PAUSE, CONNECTION_GRACE, HTTP2_STREAMS},
    line_rate::LineRate,
    options::SecureServingOptions,
    peer_address::PeerAddress,
    tls::{Certificates, ClientCertificates, server_config},
    webhook::Webhooks,
};
use connection::Http;
use places::Places;

/// Errors of a kernel without IPv6.
const NO_IPV6: [Errno; 2] = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL];
/// Connections that wait in the kernel to be accepted.
const BACKLOG: u32 = 256;

/// A port that is bound and not served yet, so that a port in use is an error at start.
#[derive(Debug)]
pub struct SecureServer {
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    http: Http,
    guard: Option<Arc<Guard>>,
}

impl SecureServer {
    /// The process's own endpoints; `None` if the port is 0.
    ///
    /// # Errors
    /// The address is in use, or the TLS settings cannot be used.
    pub fn endpoints(
        options: &SecureServingOptions,
        endpoints: Endpoints,
        guard: Arc<Guard>,
    ) -> Result<Option<Self>, ServingError> {
        if options.secure_port == 0 {
            return Ok(None);
        }
        let router = endpoints.router(Arc::clone(&guard));
        let mut server = Self::bind(options, ClientCertificates::Requested, router, "--secure-port")?;
        server.guard = Some(guard);
        Ok(Some(server))
    }

    /// The webhooks; `None` if the port is 0 or no webhook is selected.
    ///
    /// # Errors
    /// The address is in use, or the TLS settings cannot be used.
    pub fn webhooks(options: &SecureServingOptions, webhooks: &Webhooks) -> Result<Option<Self>, ServingError> {
        if options.secure_port == 0 || webhooks.is_empty() {
            return Ok(None);
        }
        let router = webhooks.router();
        Self::bind(options, ClientCertificates::Ignored, router, "--webhook-secure-port").map(Some)
    }

    pub(crate) fn bind(
        options: &SecureServingOptions,
        clients: ClientCertificates,
        router: Router,
        flag: &'static str,
    ) -> Result<Self, ServingError> {
        let (tls, certificates) = server_config(options, clients)?;
        let wanted = SocketAddr::new(options.bind_address, options.secure_port);
        let failed = |source| ServingError::Bind { address: wanted, flag, source };
        let listener = listen(wanted, options.permit_port_sharing).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let streams = match options.http2_max_streams_per_connection {
            0 => HTTP2_STREAMS,
            streams => streams,
        };
        let http = Http { router, streams, warnings: Arc::new(LineRate::default()) };
        Ok(Self { listener, address, tls, certificates, http, guard: None })
    }

    /// The address of the listener.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then gives requests under way a short time to finish.
    pub async fn serve(self, stop: CancellationToken) {
        let mut followers = JoinSet::new();
        followers.spawn(self.certificates.follow(stop.clone()));
        if let Some(guard) = self.guard {
            followers.spawn(guard.follow(stop.clone()));
        }
        let acceptor = TlsAcceptor::from(self.tls);
        let places = Places::default();
        let mut connections = JoinSet::new();
        loop {
            let (stream, peer) = tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = connections.join_next() => {
                    log_panic(ended);
                    continue;
                }
                accepted = accept(&self.listener) => accepted,
            };
            // Beyond the limit, the connection is closed without a costly TLS handshake.
            let address = PeerAddress::new(peer.ip());
            let Some(place) = places.take(address) else { continue };
            let (acceptor, http, stop) = (acceptor.clone(), self.http.clone(), stop.clone());
            connections.spawn(async move {
                connection::serve((stream, address), &acceptor, http, stop).await;
                drop(place);
            });
        }
        drop(self.listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        // Dropping the set ends the remaining connections.
        if tokio::time::timeout(2 * CONNECTION_GRACE, ended).await.is_err() {
            tracing::debug!("some connections did not end in time and are closed");
        }
        followers.join_all().await;
    }
}

/// The next connection. Without a free descriptor the kernel refuses at once, again and again: then
/// a moment passes.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Listens on an address; `0.0.0.0` means every address of IPv4 and IPv6, as in Go.
fn listen(address: SocketAddr, share_port: bool) -> std::io::Result<TcpListener> {
    if address.ip() == Ipv4Addr::UNSPECIFIED {
        let every = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match listen_on(every, share_port) {
            // The kernel has no IPv6.
            Err(error) if NO_IPV6.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error())) => {}
            listener => return listener,
        }
    }
    listen_on(address, share_port)
}

/// Always sets `SO_REUSEADDR`, as Go does, so that a restart does not wait for old connections in
/// `TIME_WAIT`.
fn listen_on(address: SocketAddr, share_port: bool) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if address.is_ipv6() {
        // Otherwise a setting of the kernel decides.
        set_ipv6_v6only(&socket, address.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(share_port)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(error = &error as &dyn std::error::Error, "the task of a connection panicked");
    }
}

#[cfg(test)]
mod tests;
