//! The limits hold for HTTP/2, too, which client and server negotiate in the TLS handshake.

use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use h2::server::SendResponse;
use http::Response;
use skysail_provider::{Call, Limit, LimitHit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::{JoinSet, yield_now},
    time::advance,
};
use tokio_rustls::TlsAcceptor;

use super::{
    Answers, credentials, get, limited_client, sent,
    tls::{Authority, egress, server_config},
};
use crate::http_client::{Failure, FailureKind, HttpBudget, HttpLimits, HttpResponse, HttpUsage};

type Answer = fn(SendResponse<Bytes>) -> BoxFuture<'static, Result<(), h2::Error>>;

/// A server for `api.example.com` that speaks only HTTP/2. A drop ends its tasks.
struct Server {
    authority: Authority,
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start(answer: Answer) -> Self {
        let authority = Authority::new("servers");
        let mut tls = server_config(&authority, "api.example.com", None);
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tls = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, tls.clone(), answer, Arc::clone(&counted)));
            }
        });
        Self { authority, address, requests, _tasks: tasks }
    }

    /// Sends one request; returns the result and the usage.
    async fn asked(&self, limits: HttpLimits) -> (Result<HttpResponse, Failure>, HttpUsage) {
        let egress = egress(self.address.port(), Some(&self.authority));
        let client = limited_client(&egress, credentials("{}"), Answers::new(&[&["127.0.0.1"]]), &limits);
        let budget = HttpBudget::new(limits, None, &Call::default());
        let url = format!("https://api.example.com:{}/", self.address.port());
        let result = sent(&client, &budget, get(url)).await;
        assert_eq!(self.requests.load(Ordering::SeqCst), 1, "one stream of HTTP/2: {result:?}");
        (result, budget.usage())
    }

    /// Sends one request that has to fail because of a limit.
    async fn stopped(&self, limits: HttpLimits) -> (FailureKind, LimitHit) {
        let (result, usage) = self.asked(limits).await;
        let failure = result.unwrap_err();
        let hit = failure.limit.expect("the failure names its limit");
        assert_eq!(usage.limit_hits, [hit]);
        (failure.kind, hit)
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, answer: Answer, requests: Arc<AtomicUsize>) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut answers = JoinSet::new();
    while let Some(Ok((_request, respond))) = connection.accept().await {
        requests.fetch_add(1, Ordering::SeqCst);
        answers.spawn(answer(respond));
    }
}

/// The result of an exchange whose time passes as soon as the condition holds. Until then the
/// paused clock stands, because this task is always ready: on a busy machine a handshake takes any
/// time.
async fn late<T>(exchange: impl Future<Output = T>, time: Duration, condition: impl Fn() -> bool) -> T {
    let mut exchange = pin!(exchange);
    while !condition() {
        tokio::select! {
            biased;
            result = &mut exchange => return result,
            () = yield_now() => {}
        }
    }
    advance(time * 2).await;
    exchange.await
}

/// An answer with these headers and no body.
fn with_headers(
    mut respond: SendResponse<Bytes>,
    headers: impl IntoIterator<Item = (String, String)>,
) -> Result<(), h2::Error> {
    let mut response = Response::builder();
    for (name, value) in headers {
        response = response.header(name, value);
    }
    respond.send_response(response.body(()).unwrap(), true).map(drop)
}

#[tokio::test]
async fn a_peer_may_choose_http_2() {
    let server = Server::start(|mut respond| {
        Box::pin(async move {
            let mut body = respond.send_response(Response::new(()), false)?;
            body.send_data(Bytes::from_static(b"fine"), true)
        })
    })
    .await;
    let (result, _) = server.asked(HttpLimits::default()).await;
    let response = result.unwrap();
    assert_eq!((response.status, response.body.as_ref()), (200, &b"fine"[..]));
}

#[tokio::test]
async fn headers_above_the_limit_are_an_answer_that_is_too_large() {
    let server = Server::start(|respond| {
        Box::pin(async move { with_headers(respond, (0..21).map(|n| (format!("x-{n}"), "b".to_owned()))) })
    })
    .await;
    let stopped = server.stopped(HttpLimits { headers_max: 20, ..HttpLimits::default() }).await;
    assert_eq!(stopped, (FailureKind::TooLarge(0), LimitHit { limit: Limit::HttpHeaders, used: 21, max: 20 }));
}

#[tokio::test]
async fn header_bytes_above_the_limit_are_an_answer_that_is_too_large() {
    let server =
        Server::start(|respond| Box::pin(async move { with_headers(respond, [("x-a".to_owned(), "b".repeat(2000))]) }))
            .await;
    let stopped = server.stopped(HttpLimits { header_bytes_max: 1000, ..HttpLimits::default() }).await;
    assert_eq!(stopped, (FailureKind::TooLarge(0), LimitHit { limit: Limit::HttpHeaderBytes, used: 2003, max: 1000 }));
}

/// The server sends more than any limit allows: the transport refuses it and does not know the
/// size.
#[tokio::test]
async fn a_flood_of_header_bytes_is_not_taken() {
    let server = Server::start(|respond| {
        Box::pin(async move { with_headers(respond, (0..64).map(|n| (format!("x-{n}"), "b".repeat(16 * 1024)))) })
    })
    .await;
    let (result, usage) = server.asked(HttpLimits::default()).await;
    let failure = result.unwrap_err();
    assert_eq!((failure.kind, usage.bytes_received), (FailureKind::Interrupted, 0), "{failure}");
}

#[tokio::test]
async fn an_endless_body_is_stopped_at_the_limit() {
    let server = Server::start(|mut respond| {
        Box::pin(async move {
            let mut body = respond.send_response(Response::new(()), false)?;
            loop {
                body.reserve_capacity(4096);
                if let Some(Ok(room)) = poll_fn(|context| body.poll_capacity(context)).await {
                    body.send_data(vec![b'x'; room].into(), false)?;
                } else {
                    return Ok(());
                }
            }
        })
    })
    .await;
    let (kind, hit) = server.stopped(HttpLimits { response_bytes_max: 100_000, ..HttpLimits::default() }).await;
    assert_eq!((kind, hit.limit, hit.max), (FailureKind::TooLarge(0), Limit::HttpResponseBytes, 100_000));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_ends_with_the_time_of_the_exchange() {
    let server = Server::start(|mut respond| {
        Box::pin(async move {
            let mut body = respond.send_response(Response::new(()), false)?;
            body.send_data(Bytes::from_static(b"slow"), false)?;
            poll_fn(|context| body.poll_reset(context)).await.map(drop)
        })
    })
    .await;
    let limits = HttpLimits { exchange_time_max: Duration::from_millis(100), ..HttpLimits::default() };
    let is_asked = || server.requests.load(Ordering::SeqCst) > 0;
    let (kind, hit) = late(server.stopped(limits), limits.exchange_time_max, is_asked).await;
    assert_eq!((kind, hit.limit, hit.max), (FailureKind::Timeout, Limit::HttpTime, 100));
}

/// hyper does not report interim answers of HTTP/2, so that their number has no bound but the time.
/// They are read in a task of their own, which has to let others have their turn, and none is kept.
#[tokio::test(start_paused = true)]
async fn endless_interim_answers_end_with_the_time_of_the_exchange_and_stop_no_other_task() {
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    // HEADERS of the first stream, with the status 103.
    const INTERIM: &[u8] = b"\0\0\x05\x01\x04\0\0\0\x01\x08\x03103";
    let authority = Authority::new("servers");
    let mut tls = server_config(&authority, "api.example.com", None);
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let egress = egress(listener.local_addr().unwrap().port(), Some(&authority));
    let url = format!("https://api.example.com:{}/", listener.local_addr().unwrap().port());
    let (sent_bytes, turns) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    let counted = Arc::clone(&sent_bytes);
    tasks.spawn(async move {
        let mut stream = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0, "the client begins");
        stream.write_all(SETTINGS).await.unwrap();
        let interim = INTERIM.repeat(1000);
        while stream.write_all(&interim).await.is_ok() {
            counted.fetch_add(interim.len(), Ordering::Relaxed);
        }
    });
    let (counted, flood) = (Arc::clone(&turns), Arc::clone(&sent_bytes));
    tasks.spawn(async move {
        loop {
            yield_now().await;
            let is_flooded = flood.load(Ordering::Relaxed) > 0;
            counted.fetch_add(usize::from(is_flooded), Ordering::Relaxed);
        }
    });
    let limits = HttpLimits { exchange_time_max: Duration::from_secs(1), ..HttpLimits::default() };
    let client = limited_client(&egress, credentials("{}"), Answers::new(&[&["127.0.0.1"]]), &limits);
    let budget = HttpBudget::new(limits, None, &Call::default());
    // The flood is read, and other tasks have their turn.
    let is_flooded = || {
        let is_read = sent_bytes.load(Ordering::Relaxed) > 10 * INTERIM.len() * 1000;
        is_read && turns.load(Ordering::Relaxed) > 0
    };
    let result = late(sent(&client, &budget, get(url)), limits.exchange_time_max, is_flooded).await;
    let failure = result.unwrap_err();
    assert_eq!((failure.kind, failure.limit.map(|hit| hit.limit)), (FailureKind::Timeout, Some(Limit::HttpTime)));
}

/// Answers the first request on each connection, and reads nothing more from the first connection:
/// as if a NAT had forgotten it.
async fn forget_the_first(listener: TcpListener, tls: TlsAcceptor, connections: Arc<AtomicUsize>) {
    let (mut forgotten, mut served) = (Vec::new(), JoinSet::new());
    while let Ok((stream, _)) = listener.accept().await {
        let is_first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        let mut connection = h2::server::handshake(tls.accept(stream).await.unwrap()).await.unwrap();
        let (_request, mut respond) = connection.accept().await.unwrap().unwrap();
        respond.send_response(Response::new(()), true).unwrap();
        if is_first {
            // Sends the answer, and whatever else is ready.
            poll_fn(|context| {
                drop(connection.poll_closed(context));
                std::task::Poll::Ready(())
            })
            .await;
            forgotten.push(connection);
        } else {
            served.spawn(async move { while connection.accept().await.is_some() {} });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_answers_no_ping_is_closed_so_that_the_next_request_gets_another() {
    let authority = Authority::new("servers");
    let mut tls = server_config(&authority, "api.example.com", None);
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    tasks.spawn(forget_the_first(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&connections)));
    let limits = HttpLimits { exchange_time_max: Duration::from_mins(10), ..HttpLimits::default() };
    let egress = egress(address.port(), Some(&authority));
    let client = limited_client(&egress, credentials("{}"), Answers::new(&[&["127.0.0.1"]]), &limits);
    let request = async || {
        let budget = HttpBudget::new(limits, None, &Call::default());
        sent(&client, &budget, get(format!("https://api.example.com:{}/", address.port()))).await
    };
    // The clock stands during the handshakes.
    late(request(), Duration::ZERO, || false).await.unwrap();
    // The clock goes on as soon as every task waits: for the answer to the ping.
    let failure = request().await.unwrap_err();
    assert_ne!(failure.kind, FailureKind::Timeout, "{failure}");
    late(request(), Duration::ZERO, || false).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}
