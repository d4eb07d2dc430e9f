//! A separate entrance to a cloud: only the client that was given its address sends through it.

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

/// Carries bytes to a server and back, and counts those that go there. Dropped, it ends.
#[derive(Debug)]
pub struct Front {
    /// `http://ADDRESS`.
    pub url: String,
    sent: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Front {
    /// A door to this address.
    ///
    /// # Errors
    /// Nothing can be bound.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let sent = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, Arc::clone(&sent)));
        Ok(Self { url, sent, _tasks: tasks })
    }

    /// Bytes of requests so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, sent: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(server).await else { continue };
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        connections.spawn(carry(from_client, to_server, Some(Arc::clone(&sent))));
        connections.spawn(carry(from_server, to_client, None));
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: Option<Arc<AtomicU64>>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer).await
        && read > 0
    {
        if let Some(count) = &count {
            count.fetch_add(read as u64, Ordering::SeqCst);
        }
        if to.write_all(buffer.get(..read).unwrap_or_default()).await.is_err() {
            return;
        }
    }
}
