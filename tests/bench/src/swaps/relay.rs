//! A TCP relay in front of a registry. It records when a client requested the tag before it fetched
//! the manifest.
//!
//! A source polls; the operator chooses the polling interval, which is no part of a swap. The relay
//! forwards every byte unchanged; it makes the measured time longer, not shorter.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

/// A running relay; dropping it ends it.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    looks: Arc<Mutex<Looks>>,
    _task: JoinSet<io::Result<()>>,
}

#[derive(Default)]
struct Looks {
    /// The last request for the tag.
    last: Option<Instant>,
    /// The last request for the tag that was followed by a fetch of the manifest.
    fetched: Option<Instant>,
}

impl Relay {
    pub(super) async fn to(registry: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let looks = Arc::<Mutex<Looks>>::default();
        let mut task = JoinSet::new();
        task.spawn(serve(listener, registry, Arc::clone(&looks)));
        Ok(Self { address, looks, _task: task })
    }

    /// The request for the tag that led to the last fetched manifest; returned only once.
    pub(super) fn look(&self) -> Option<Instant> {
        lock(&self.looks).fetched.take()
    }
}

async fn serve(listener: TcpListener, registry: SocketAddr, looks: Arc<Mutex<Looks>>) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _) = accepted?;
                let looks = Arc::clone(&looks);
                connections.spawn(async move { pass(client, TcpStream::connect(registry).await?, &looks).await });
            }
            // Client and server handle the end of a connection.
            Some(ended) = connections.join_next() => drop(ended),
        }
    }
}

async fn pass(client: TcpStream, registry: TcpStream, looks: &Mutex<Looks>) -> io::Result<()> {
    client.set_nodelay(true)?;
    registry.set_nodelay(true)?;
    let ((mut from, mut back), (mut answers, mut to)) = (client.into_split(), registry.into_split());
    let questions = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = from.read(&mut buffer).await?;
            let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else { return io::Result::Ok(()) };
            note(bytes, looks);
            to.write_all(bytes).await?;
        }
    };
    let answers = async { tokio::io::copy(&mut answers, &mut back).await.map(drop) };
    tokio::select! {
        ended = questions => ended,
        ended = answers => ended,
    }
}

/// A request of this source is written at once and arrives in one read.
fn note(bytes: &[u8], looks: &Mutex<Looks>) {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    if !line.contains("/manifests/") {
        return;
    }
    let mut looks = lock(looks);
    if line.starts_with("HEAD ") {
        looks.last = Some(Instant::now());
    } else if line.starts_with("GET ") {
        looks.fetched = looks.last;
    }
}

fn lock(looks: &Mutex<Looks>) -> std::sync::MutexGuard<'_, Looks> {
    looks.lock().unwrap_or_else(PoisonError::into_inner)
}
