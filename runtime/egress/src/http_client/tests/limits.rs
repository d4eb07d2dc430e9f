//! For each limit: the attack, and the limit that the failure names.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt as _;
use skysail_provider::{Call, Limit, LimitHit};
use tokio::time::{Instant, timeout};

use super::{Answers, Reply, Server, credentials, get, limited_client, local_egress, ok, send_all, sent, with_header};
use crate::http_client::{Failure, FailureKind, Held, HttpBudget, HttpClient, HttpLimits, HttpRequest, HttpUsage};

const MIB: u64 = 1024 * 1024;

struct Limited {
    client: HttpClient,
    budget: HttpBudget,
}

fn limited(server: &Server, limits: HttpLimits) -> Limited {
    let client = limited_client(&local_egress(server), credentials("{}"), Answers::new(&[]), &limits);
    Limited { client, budget: HttpBudget::new(limits, None, &Call::default()) }
}

/// Sends one request that has to fail because of a limit; returns the failure, the limit and the
/// usage.
async fn stopped(server: &Server, limits: HttpLimits, request: HttpRequest) -> (Failure, LimitHit, HttpUsage) {
    let Limited { client, budget } = limited(server, limits);
    let failure = sent(&client, &budget, request).await.unwrap_err();
    let usage = budget.usage();
    let hit = failure.limit.expect("the failure names its limit");
    assert_eq!(usage.limit_hits, [hit]);
    (failure, hit, usage)
}

#[tokio::test]
async fn requests_beyond_the_call_s_budget_are_refused_and_not_sent() {
    let server = Server::start(|_| ok("")).await;
    let limits = HttpLimits { requests_per_call: 3, ..HttpLimits::default() };
    let Limited { client, budget } = limited(&server, limits);
    let answers = send_all(&client, &budget, vec![get(server.url("/")); 5], MIB).await;
    let failures: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(failures.len(), 2);
    assert!(failures.iter().all(|failure| failure.kind == FailureKind::Limited));
    assert_eq!(failures[0].message, "limit httpRequests: 4 of 3");
    assert_eq!(server.requests().len(), 3);
    let usage = budget.usage();
    assert_eq!((usage.requests, usage.refused), (5, 2));
    assert_eq!(usage.limit_hits, [LimitHit { limit: Limit::HttpRequests, used: 4, max: 3 }]);
    // An invalid request: requests beyond the budget are not even parsed.
    let answers = send_all(&client, &budget, vec![HttpRequest::default(); 60_000], MIB).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|failure| failure.kind == FailureKind::Limited)));
    assert_eq!((answers.len(), budget.usage().requests, budget.usage().refused), (60_000, 60_005, 60_002));
    // Another call of the same provider has a budget of its own.
    assert!(sent(&client, &HttpBudget::new(limits, None, &Call::default()), get(server.url("/"))).await.is_ok());
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_requests_and_no_more_are_in_flight_than_allowed() {
    let in_flight = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, high) = (Arc::clone(&in_flight), Arc::clone(&most));
    let server = Server::start(move |request| {
        // Counts requests that arrived; the reply is written at once, so the client's own count is
        // the upper bound.
        high.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let path = request.split(' ').nth(1).unwrap().to_owned();
        now.fetch_sub(1, Ordering::SeqCst);
        ok(&path)
    })
    .await;
    let limits = HttpLimits { concurrency_per_call: 2, ..HttpLimits::default() };
    let Limited { client, budget } = limited(&server, limits);
    let requests = (0..8).map(|index| get(server.url(&format!("/{index}")))).collect();
    let answers = send_all(&client, &budget, requests, MIB).await;
    let bodies: Vec<_> =
        answers.into_iter().map(|answer| String::from_utf8(answer.unwrap().body.to_vec()).unwrap()).collect();
    assert_eq!(bodies, ["/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7"]);
    assert_eq!(budget.usage().in_flight_max, 2);
    assert!(most.load(Ordering::SeqCst) <= 2 && server.connections() <= 2);
}

#[tokio::test]
async fn a_third_exchange_waits_while_two_hang() {
    let server = Server::start(|_| Reply::Never).await;
    let limits = HttpLimits { concurrency_per_call: 2, ..HttpLimits::default() };
    let Limited { client, budget } = limited(&server, limits);
    let one = |path: &str| sent(&client, &budget, get(server.url(path)));
    let hanging = async { tokio::join!(one("/1"), one("/2"), one("/3"), one("/4")) };
    tokio::select! {
        answers = hanging => panic!("{answers:?}"),
        () = server.wait_for_requests(2) => {}
    }
    assert_eq!((server.requests().len(), budget.usage().in_flight_max), (2, 2));
}

#[tokio::test]
async fn one_failure_does_not_stop_the_others() {
    let server = Server::start(|_| ok("fine")).await;
    let Limited { client, budget } = limited(&server, HttpLimits::default());
    let requests = vec![get(server.url("/")), get("http://169.254.169.254/"), get("nonsense"), get(server.url("/"))];
    let answers = send_all(&client, &budget, requests, MIB).await;
    let kinds: Vec<_> = answers.iter().map(|answer| answer.as_ref().map_err(|failure| failure.kind).err()).collect();
    assert_eq!(kinds, [None, Some(FailureKind::Forbidden), Some(FailureKind::Malformed), None]);
}

#[tokio::test]
async fn no_further_request_is_sent_when_the_answers_fill_the_guest_s_memory() {
    let server = Server::start(|_| ok(&"x".repeat(600))).await;
    let limits = HttpLimits { concurrency_per_call: 1, ..HttpLimits::default() };
    let Limited { client, budget } = limited(&server, limits);
    let answers = send_all(&client, &budget, vec![get(server.url("/")); 4], 1000).await;
    let failures: Vec<_> = answers.iter().map(|answer| answer.as_ref().err()).collect();
    let [None, None, Some(third), Some(_)] = failures.as_slice() else { panic!("{failures:?}") };
    // Two bodies, and twice `content-length: 600`.
    let hit = LimitHit { limit: Limit::Memory, used: 1234, max: 1000 };
    assert_eq!((third.kind, third.limit), (FailureKind::Limited, Some(hit)));
    assert!(third.message.starts_with("the component holds earlier responses"), "{third}");
    let usage = budget.usage();
    assert_eq!((server.requests().len(), usage.requests, usage.refused, usage.limit_hits), (2, 4, 2, vec![hit]));
}

/// A guest with its own HTTP client opens all its requests at once. Without the second check the
/// host held 64 answers of 8 MiB for one call.
#[tokio::test]
async fn answers_count_that_arrived_after_the_request_was_admitted() {
    let server = Server::start(|_| ok(&"x".repeat(600))).await;
    let limits = HttpLimits { concurrency_per_call: 1, ..HttpLimits::default() };
    let Limited { client, budget } = limited(&server, limits);
    let held = Arc::new(Held::new(500));
    let [first, second] = [(); 2].map(|()| budget.admit(&held).unwrap());
    client.send(&budget, first, get(server.url("/"))).await.unwrap();
    let failure = client.send(&budget, second, get(server.url("/"))).await.unwrap_err();
    let hit = LimitHit { limit: Limit::Memory, used: 617, max: 500 };
    assert_eq!((failure.kind, failure.limit, server.requests().len()), (FailureKind::Limited, Some(hit), 1));
    assert_eq!(budget.usage().limit_hits, [hit]);
}

/// The cloud carries out a request whose client is gone.
#[tokio::test]
async fn a_call_is_cancelled_only_between_its_writes_and_sends_nothing_more() {
    let server = Server::start(|_| Reply::Never).await;
    let Limited { client, budget: _ } = limited(&server, HttpLimits::default());
    let call = Call::default();
    let budget = HttpBudget::new(HttpLimits::default(), None, &call);
    let sent = |method: &str| sent(&client, &budget, HttpRequest { method: method.to_owned(), ..get(server.url("/")) });
    {
        let mut reads = pin!(sent("GET"));
        tokio::select! {
            answer = &mut reads => panic!("{answer:?}"),
            () = server.wait_for_requests(1) => {}
        }
        let mut writes = pin!(sent("POST"));
        tokio::select! {
            answer = &mut writes => panic!("{answer:?}"),
            () = server.wait_for_requests(2) => {}
        }
        assert!(call.requests.finish().now_or_never().is_none());
        let mut late = pin!(sent("GET"));
        assert!(timeout(Duration::from_millis(100), &mut late).await.is_err());
    }
    assert!(call.requests.finish().now_or_never().is_some());
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_flood_beyond_the_provider_s_rate_is_refused_whatever_call_it_comes_from() {
    let server = Server::start(|_| ok("")).await;
    let limits = HttpLimits { requests_per_second: 1, concurrency_per_call: 8, ..HttpLimits::default() };
    let Limited { client, budget } = limited(&server, limits);
    let started = Instant::now();
    let answers = send_all(&client, &budget, vec![get(server.url("/")); 8], MIB).await;
    let sent = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((sent, server.requests().len()), (2, 2));
    assert!(started.elapsed() >= Duration::from_secs(1), "the second request waited for its turn");
    assert_eq!(budget.usage().limit_hits, [LimitHit { limit: Limit::HttpRate, used: 3, max: 1 }]);
    assert!(
        answers.iter().flat_map(|answer| answer.as_ref().err()).all(|failure| failure.kind == FailureKind::Limited)
    );
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_and_not_sent() {
    let server = Server::start(|_| ok("")).await;
    let limits = HttpLimits { request_bytes_max: 1000, ..HttpLimits::default() };
    let request = HttpRequest { body: Some(Bytes::from(vec![b'x'; 1001])), ..get(server.url("/")) };
    let (failure, hit, usage) = stopped(&server, limits, request).await;
    assert_eq!(
        (failure.kind, hit.limit, hit.max, usage.bytes_sent),
        (FailureKind::Limited, Limit::HttpRequestBytes, 1000, 0)
    );
    assert!(hit.used > 1001);
    let long = "x".repeat(990);
    let (failure, hit, _) = stopped(&server, limits, with_header(get(server.url("/")), "x-a", &long)).await;
    assert_eq!((failure.kind, hit.limit), (FailureKind::Limited, Limit::HttpRequestBytes));
    let limits = HttpLimits { headers_max: 2, ..limits };
    let request = HttpRequest { headers: vec![("x-a".to_owned(), String::new()); 3], ..get(server.url("/")) };
    let (failure, hit, _) = stopped(&server, limits, request).await;
    assert_eq!((failure.kind, hit), (FailureKind::Limited, LimitHit { limit: Limit::HttpHeaders, used: 3, max: 2 }));
    // More distinct names than a `HeaderMap` takes.
    let headers = (0..25_000).map(|n| (format!("x-{n}"), String::new())).collect();
    let (failure, hit, _) = stopped(&server, limits, HttpRequest { headers, ..get(server.url("/")) }).await;
    let expected = LimitHit { limit: Limit::HttpHeaders, used: 25_000, max: 2 };
    assert_eq!((failure.kind, hit), (FailureKind::Limited, expected));
    let limits = HttpLimits { header_bytes_max: 100, ..HttpLimits::default() };
    let (failure, hit, _) = stopped(&server, limits, with_header(get(server.url("/")), "x-a", &"x".repeat(98))).await;
    let expected = LimitHit { limit: Limit::HttpHeaderBytes, used: 101, max: 100 };
    assert_eq!((failure.kind, hit), (FailureKind::Limited, expected));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn an_answer_that_announces_too_much_is_not_read() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n";
    let server = Server::start(|_| Reply::Endless(head.to_vec(), vec![b'x'; 1024])).await;
    let (failure, hit, usage) = stopped(&server, HttpLimits::default(), get(server.url("/"))).await;
    assert_eq!((failure.kind, hit.used), (FailureKind::TooLarge(9_999_999_999), 9_999_999_999));
    assert!(usage.bytes_received < 1024);
}

#[tokio::test]
async fn an_endless_answer_is_stopped_at_the_limit() {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096)).into_bytes();
    let server = Server::start(move |_| Reply::Endless(head.to_vec(), chunk.clone())).await;
    let limits = HttpLimits { response_bytes_max: 100_000, ..HttpLimits::default() };
    let (failure, hit, usage) = stopped(&server, limits, get(server.url("/"))).await;
    assert_eq!((failure.kind, hit.limit, hit.max), (FailureKind::TooLarge(0), Limit::HttpResponseBytes, 100_000));
    assert_eq!(usage.failed, 0, "the component asked for too much");
    server.wait_for_closed(1).await;
}

/// Empty deflate blocks, and an endless file name: a decoder reads them for ever without output.
#[tokio::test]
async fn an_endless_gzip_stream_without_output_is_not_decoded() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let blocks = (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff", [2, 8, 0x20, 0x80, 0].repeat(1000));
    let name = (b"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff", b"name".repeat(1000));
    for (gzip, again) in [blocks, name] {
        let (first, again) = ([HEAD, &chunk(gzip)].concat(), chunk(&again));
        let server = Server::start(move |_| Reply::Endless(first.clone(), again.clone())).await;
        let Limited { client, budget } = limited(&server, HttpLimits::default());
        let failure = sent(&client, &budget, get(server.url("/"))).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Interrupted, "{failure}");
        assert!(failure.message.contains("content-encoding"), "{failure}");
        server.wait_for_closed(1).await;
    }
}

#[tokio::test]
async fn endless_interim_answers_are_stopped_and_counted() {
    let again = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n".to_vec();
    let server = Server::start(move |_| Reply::Endless(Vec::new(), again.clone())).await;
    let (failure, hit, usage) = stopped(&server, HttpLimits::default(), get(server.url("/"))).await;
    assert_eq!((failure.kind, hit.limit, hit.max), (FailureKind::TooLarge(0), Limit::HttpHeaders, 100));
    assert!(usage.bytes_received > 1000 && usage.failed == 1, "{usage:?}");
    server.wait_for_closed(1).await;
}

#[tokio::test]
async fn an_interim_answer_before_the_answer_is_skipped() {
    let reply =
        b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";
    let server = Server::start(|_| Reply::Whole(reply.to_vec())).await;
    let Limited { client, budget } = limited(&server, HttpLimits::default());
    assert_eq!(sent(&client, &budget, get(server.url("/"))).await.unwrap().body, "fine");
}

#[tokio::test]
async fn endless_headers_are_stopped() {
    for (head, again) in [
        ("HTTP/1.1 200 OK\r\n", "x-a: b\r\n".to_owned()),
        ("HTTP/1.1 200 OK\r\nx-a: ", "b".repeat(1024)),
        ("HTTP/1.1 200 ", "b".repeat(1024)),
    ] {
        let server = Server::start(move |_| Reply::Endless(head.as_bytes().to_vec(), again.clone().into_bytes())).await;
        let (failure, hit, usage) = stopped(&server, HttpLimits::default(), get(server.url("/"))).await;
        assert_eq!((failure.kind, hit.limit), (FailureKind::TooLarge(0), Limit::HttpHeaders), "{head}");
        assert_eq!(usage.failed, 1, "the cloud failed the request: {head}");
        server.wait_for_closed(1).await;
    }
}

#[tokio::test]
async fn headers_above_the_limit_are_an_answer_that_is_too_large() {
    let wide = format!("HTTP/1.1 200 OK\r\nx-a: {}\r\ncontent-length: 0\r\n\r\n", "b".repeat(2000));
    let server = Server::start(move |_| Reply::Whole(wide.clone().into_bytes())).await;
    let limits = HttpLimits { header_bytes_max: 1000, ..HttpLimits::default() };
    let (failure, hit, usage) = stopped(&server, limits, get(server.url("/"))).await;
    assert_eq!((failure.kind, hit.limit, hit.max), (FailureKind::TooLarge(0), Limit::HttpHeaderBytes, 1000));
    assert_eq!(usage.failed, 1);
    assert_eq!((hit.used, failure.message.as_str()), (2018, "limit httpHeaderBytes: 2018 of 1000"));
    let many = format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", "x-a: b\r\n".repeat(20));
    let server = Server::start(move |_| Reply::Whole(many.clone().into_bytes())).await;
    let limits = HttpLimits { headers_max: 20, ..HttpLimits::default() };
    let (failure, hit, _) = stopped(&server, limits, get(server.url("/"))).await;
    assert_eq!(
        (failure.kind, hit),
        (FailureKind::TooLarge(0), LimitHit { limit: Limit::HttpHeaders, used: 21, max: 20 })
    );
}

#[tokio::test]
async fn a_slow_body_ends_with_the_time_of_the_exchange() {
    let server = Server::start(|_| Reply::Stuck(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nslow".to_vec())).await;
    let limits = HttpLimits { exchange_time_max: Duration::from_millis(100), ..HttpLimits::default() };
    let (failure, hit, usage) = stopped(&server, limits, get(server.url("/"))).await;
    assert_eq!((failure.kind, hit.limit, hit.max), (FailureKind::Timeout, Limit::HttpTime, 100));
    assert!(hit.used >= 100 && usage.time >= Duration::from_millis(100));
    server.wait_for_closed(1).await;
}

#[tokio::test]
async fn the_guest_s_own_timeout_and_the_end_of_the_call_are_no_limits_of_the_provider() {
    let server = Server::start(|_| Reply::Never).await;
    let Limited { client, budget } = limited(&server, HttpLimits::default());
    let request = HttpRequest { timeout: Some(Duration::from_millis(50)), ..get(server.url("/")) };
    let failure = sent(&client, &budget, request).await.unwrap_err();
    assert_eq!((failure.kind, failure.limit), (FailureKind::Timeout, None));
    let budget =
        HttpBudget::new(HttpLimits::default(), Some(Instant::now() + Duration::from_millis(50)), &Call::default());
    let request = HttpRequest { timeout: Some(Duration::from_secs(3600)), ..get(server.url("/")) };
    let failure = sent(&client, &budget, request).await.unwrap_err();
    assert_eq!((failure.kind, failure.limit), (FailureKind::Timeout, None));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_interrupted() {
    for reply in [
        &b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort"[..],
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nplain",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 5\r\n\r\nplain",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip, gzip\r\ncontent-length: 5\r\n\r\nplain",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ] {
        let server = Server::start(|_| Reply::Last(reply.to_vec())).await;
        let Limited { client, budget } = limited(&server, HttpLimits::default());
        let failure = sent(&client, &budget, get(server.url("/"))).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Interrupted, "{:?}: {failure}", String::from_utf8_lossy(reply));
        assert!(!failure.message.is_empty());
        assert_eq!(server.requests().len(), 1, "sent once: {:?}", String::from_utf8_lossy(reply));
    }
}
