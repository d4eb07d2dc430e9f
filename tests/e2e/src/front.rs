//! A TCP proxy in front of a server: it counts the forwarded bytes and can stop forwarding.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    task::JoinSet,
};

/// Forwards bytes to a server and back, and counts those to the server. Dropping it ends it.
#[derive(Debug)]
pub struct Front {
    /// `http://ADDRESS`.
    pub url: String,
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Shared {
    sent: AtomicU64,
    /// Connections so far.
    connections: AtomicU64,
    /// Connections before this number stay open and carry nothing, as after a NAT or a load
    /// balancer has lost its state.
    swallowed: AtomicU64,
}

impl Front {
    /// Starts a proxy to this address.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::<Shared>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, Arc::clone(&shared)));
        Ok(Self { url: format!("http://{address}"), address, shared, _tasks: tasks })
    }

    /// Bytes of requests so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// Swallows the connections that are open; new connections work.
    pub fn swallow_open_connections(&self) {
        self.shared.swallowed.store(self.shared.connections.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Swallows all connections, also new ones, until [`Self::swallow_open_connections`].
    pub fn swallow_all_connections(&self) {
        self.shared.swallowed.store(u64::MAX, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(server).await else { continue };
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        connections.spawn(carry(from_client, to_server, number, Arc::clone(&shared), true));
        connections.spawn(carry(from_server, to_client, number, Arc::clone(&shared), false));
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, number: u64, shared: Arc<Shared>, counts: bool) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer).await
        && read > 0
    {
        if number < shared.swallowed.load(Ordering::SeqCst) {
            continue;
        }
        if counts {
            shared.sent.fetch_add(read as u64, Ordering::SeqCst);
        }
        if to.write_all(buffer.get(..read).unwrap_or_default()).await.is_err() {
            return;
        }
    }
}
