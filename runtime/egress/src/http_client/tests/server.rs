//! A small server that answers with the bytes of a test, over TCP or TLS, and records the requests.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// The server's reaction to one request.
pub(super) enum Reply {
    /// These bytes; the connection stays open.
    Whole(Vec<u8>),
    /// These bytes, and the connection is closed.
    Last(Vec<u8>),
    /// The first bytes once, then the second bytes repeatedly until the peer closes.
    Endless(Vec<u8>, Vec<u8>),
    /// These bytes, then nothing until the peer closes.
    Stuck(Vec<u8>),
    /// Nothing until the peer closes.
    Never,
}

/// A drop ends the server's tasks.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Seen>,
    tasks: JoinSet<()>,
}

type Answer = dyn Fn(&str) -> Reply + Send + Sync;

struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
    peer_certificates: Mutex<Vec<Vec<u8>>>,
    counts: watch::Sender<(usize, usize)>,
}

pub(super) fn ok(body: &str) -> Reply {
    Reply::Whole(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

impl Reply {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Whole(bytes) | Self::Last(bytes) | Self::Endless(bytes, _) | Self::Stuck(bytes) => bytes,
            Self::Never => Vec::new(),
        }
    }
}

impl Server {
    pub(super) async fn start(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", answer).await
    }

    pub(super) async fn start_at(address: &str, answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen(address, None, Arc::new(answer)).await
    }

    pub(super) async fn start_tls(
        tls: rustls::ServerConfig,
        answer: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::listen("127.0.0.1:0", Some(TlsAcceptor::from(Arc::new(tls))), Arc::new(answer)).await
    }

    async fn listen(address: &str, tls: Option<TlsAcceptor>, answer: Arc<Answer>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen {
            connections: AtomicUsize::new(0),
            requests: Mutex::default(),
            peer_certificates: Mutex::default(),
            counts: watch::Sender::new((0, 0)),
        });
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (tls, answer, seen) = (tls.clone(), Arc::clone(&answer), Arc::clone(&shared));
                connections.spawn(async move {
                    connection(stream, tls, &*answer, &seen).await;
                    seen.counts.send_modify(|(_, closed)| *closed += 1);
                });
            }
        });
        Self { address, seen, tasks }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    pub(super) fn peer_certificates(&self) -> Vec<Vec<u8>> {
        self.seen.peer_certificates.lock().unwrap().clone()
    }

    pub(super) async fn wait_for_requests(&self, count: usize) {
        self.seen.counts.subscribe().wait_for(|(requests, _)| *requests >= count).await.unwrap();
    }

    pub(super) async fn wait_for_closed(&self, count: usize) {
        self.seen.counts.subscribe().wait_for(|(_, closed)| *closed >= count).await.unwrap();
    }

    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, answer: &Answer, seen: &Seen) {
    let Some(tls) = tls else { return serve(stream, answer, seen).await };
    let Ok(stream) = tls.accept(stream).await else { return };
    let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(|leaf| leaf.to_vec());
    seen.peer_certificates.lock().unwrap().extend(leaf);
    serve(stream, answer, seen).await;
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &Answer, seen: &Seen) {
    while let Some(request) = read_request(&mut stream).await {
        let reply = answer(&request);
        seen.requests.lock().unwrap().push(request);
        seen.counts.send_modify(|(requests, _)| *requests += 1);
        // A failed write means that the peer has closed the connection.
        let goes_on = match reply {
            // After a full socket the TLS layer may still hold the last bytes.
            Reply::Whole(bytes) => stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok(),
            Reply::Last(bytes) => {
                if stream.write_all(&bytes).await.is_ok() && stream.shutdown().await.is_ok() {
                    gone(&mut stream).await;
                }
                false
            }
            Reply::Endless(first, again) => {
                let mut open = stream.write_all(&first).await.is_ok();
                while open {
                    open = stream.write_all(&again).await.is_ok();
                }
                false
            }
            Reply::Stuck(bytes) => {
                stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok() && gone(&mut stream).await
            }
            Reply::Never => gone(&mut stream).await,
        };
        if !goes_on {
            return;
        }
    }
}

/// Waits until the peer closes; returns `false`.
async fn gone(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut rest = [0; 64];
    while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
    false
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 8192];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return Some(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
    }
}
