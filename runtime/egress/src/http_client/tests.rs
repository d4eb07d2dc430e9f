//! Tests of `crate::http_client` against real servers on loopback.

mod deletions;
mod dry_run;
mod fence;
mod http2;
mod limits;
mod login;
mod proxy;
mod server;
mod tls;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::IpAddr,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use skysail_provider::Call;
use tokio::time::Instant;

use self::server::{Reply, Server, ok};
use super::clients::CONNECTIONS_MAX;
use super::{
    Failure, FailureKind, Held, HttpBudget, HttpClient, HttpLimits, HttpRequest, HttpResponse, HttpUsage, NotedRequest,
    REQUESTS_NOTED_MAX, Resolver,
};
use crate::{
    credentials::{CredentialSpec, Credentials, SecretValues},
    policy::{EgressPolicy, EgressSpec},
};

/// The defaults of `Limits` in the host.
impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            requests_per_call: 64,
            concurrency_per_call: 4,
            requests_per_second: 500,
            request_bytes_max: 1 << 20,
            response_bytes_max: 8 << 20,
            headers_max: 100,
            header_bytes_max: 64 << 10,
            exchange_time_max: Duration::from_secs(20),
        }
    }
}

const TOKEN: &str = "t0p-s3cr3t-t0ken";

/// A resolver that returns prepared answers, one for each look-up, and then repeats the last one.
#[derive(Default)]
struct Answers {
    queue: Mutex<VecDeque<Vec<IpAddr>>>,
    look_ups: AtomicUsize,
}

impl Answers {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self { queue: Mutex::new(answers.iter().map(parse).collect()), look_ups: AtomicUsize::new(0) })
    }

    fn look_ups(&self) -> usize {
        self.look_ups.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Resolver for Answers {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.look_ups.fetch_add(1, Ordering::SeqCst);
        let mut queue = self.queue.lock().unwrap();
        let answer = if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() };
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name}: no such name")))
    }
}

fn env(name: &str) -> Option<String> {
    (name == "TOKEN").then(|| TOKEN.to_owned())
}

fn credentials(json: &str) -> Arc<Credentials> {
    let specs: BTreeMap<String, CredentialSpec> = serde_json::from_str(json).unwrap();
    Arc::new(Credentials::load(&specs, &env, &SecretValues::new()).unwrap())
}

fn client(egress: &str, credentials: Arc<Credentials>, resolver: Arc<Answers>) -> HttpClient {
    limited_client(egress, credentials, resolver, &HttpLimits::default())
}

fn limited_client(
    egress: &str,
    credentials: Arc<Credentials>,
    resolver: Arc<Answers>,
    limits: &HttpLimits,
) -> HttpClient {
    let spec: EgressSpec = serde_json::from_str(egress).unwrap();
    let policy = Arc::new(EgressPolicy::new(&spec).unwrap());
    HttpClient::with_resolver(policy, credentials, limits, resolver).unwrap()
}

/// A client that reaches one server by its address.
fn local(server: &Server) -> HttpClient {
    client(&local_egress(server), credentials("{}"), Answers::new(&[]))
}

fn local_egress(server: &Server) -> String {
    format!(r#"{{"rules": [{{"origins": ["http://{}"]}}], "allowCidrs": ["127.0.0.1/32"]}}"#, server.address)
}

/// Credentials that may go to one server: `api` (bearer), `key` and `underscore` (header), `user`
/// (basic).
fn local_credentials(server: &Server) -> Arc<Credentials> {
    let origins = format!(r#""origins": ["http://{}"]"#, server.address);
    credentials(&format!(
        r#"{{
            "api": {{{origins}, "bearer": {{"env": "TOKEN"}}}},
            "key": {{{origins}, "header": {{"name": "X-Auth-Token", "value": {{"env": "TOKEN"}}}}}},
            "underscore": {{{origins}, "header": {{"name": "X_Project_Token", "value": {{"env": "TOKEN"}}}}}},
            "user": {{{origins}, "basic": {{"username": "admin", "password": {{"env": "TOKEN"}}}}}},
            "elsewhere": {{"origins": ["https://other.example.com"], "bearer": {{"env": "TOKEN"}}}}
        }}"#
    ))
}

fn budget() -> HttpBudget {
    HttpBudget::new(HttpLimits::default(), Some(Instant::now() + Duration::from_secs(60)), &Call::default())
}

fn get(url: impl Into<String>) -> HttpRequest {
    HttpRequest { method: "GET".to_owned(), url: url.into(), ..HttpRequest::default() }
}

fn with_credential(request: HttpRequest, name: &str) -> HttpRequest {
    HttpRequest { credential: Some(name.to_owned()), ..request }
}

fn with_header(mut request: HttpRequest, name: &str, value: &str) -> HttpRequest {
    request.headers.push((name.to_owned(), value.to_owned()));
    request
}

async fn sent(client: &HttpClient, budget: &HttpBudget, request: HttpRequest) -> Result<HttpResponse, Failure> {
    client.send(budget, budget.admit(&Arc::new(Held::new(u64::MAX)))?, request).await
}

async fn send_all(
    client: &HttpClient,
    budget: &HttpBudget,
    requests: Vec<HttpRequest>,
    room: u64,
) -> Vec<Result<HttpResponse, Failure>> {
    super::send_all(budget, requests, room, |admitted, request| client.send(budget, admitted, request)).await
}

async fn send(client: &HttpClient, request: HttpRequest) -> Result<HttpResponse, Failure> {
    sent(client, &budget(), request).await
}

fn header<'a>(response: &'a HttpResponse, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

// === egress ===

#[tokio::test]
async fn no_forbidden_target_is_looked_up_or_sent() {
    let spec = serde_json::to_string(&crate::policy::tests::table_spec()).unwrap();
    let resolver = Answers::new(&[&["127.0.0.1"]]);
    let client = client(&spec, credentials("{}"), Arc::clone(&resolver));
    for (url, _) in crate::policy::tests::FORBIDDEN {
        let budget = budget();
        let failure = sent(&client, &budget, get(*url)).await.unwrap_err();
        assert!(matches!(failure.kind, FailureKind::Forbidden | FailureKind::Malformed), "{url}: {failure:?}");
        let usage = budget.usage();
        assert_eq!((usage.requests, usage.refused, usage.bytes_sent), (1, 1, 0), "{url}");
    }
    assert_eq!(resolver.look_ups(), 0);
}

#[tokio::test]
async fn a_request_to_a_forbidden_address_never_opens_a_socket() {
    let server = Server::start(|_| ok("")).await;
    let port = server.address.port();
    let egress = format!(r#"{{"rules": [{{"origins": ["http://db.example.com:{port}"]}}]}}"#);
    for answer in [&["127.0.0.1"][..], &["::ffff:127.0.0.1"], &["8.8.8.8", "127.0.0.1"], &["::1", "127.0.0.1"]] {
        let client = client(&egress, credentials("{}"), Answers::new(&[answer]));
        let budget = budget();
        let failure = sent(&client, &budget, get(format!("http://db.example.com:{port}/"))).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Forbidden, "{answer:?}: {failure}");
        assert!(failure.message.starts_with("look up db.example.com: address "), "{failure}");
        assert!(failure.message.contains("loopback"), "{failure}");
        assert_eq!(budget.usage().bytes_sent, 0);
    }
    let client = client(&egress, credentials("{}"), Answers::new(&[]));
    let failure = send(&client, get(format!("http://127.0.0.1:{port}/"))).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Forbidden);
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_name_that_is_rebound_is_judged_again_for_each_new_connection() {
    let good = Server::start(|_| Reply::Last(ok("good").into_bytes())).await;
    let port = good.address.port();
    let bad = Server::start_at(&format!("127.0.0.2:{port}"), |_| ok("bad")).await;
    let egress =
        format!(r#"{{"rules": [{{"origins": ["http://api.example.com:{port}"]}}], "allowCidrs": ["127.0.0.1/32"]}}"#);
    let resolver = Answers::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let client = client(&egress, credentials("{}"), Arc::clone(&resolver));
    let url = format!("http://api.example.com:{port}/");
    assert_eq!(send(&client, get(&url)).await.unwrap().body, "good");
    let failure = send(&client, get(&url)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Forbidden, "{failure}");
    assert_eq!((resolver.look_ups(), good.connections(), bad.connections()), (2, 1, 0));
}

#[tokio::test]
async fn a_reused_connection_needs_no_look_up_because_its_peer_was_judged() {
    let server = Server::start(|_| ok("again")).await;
    let port = server.address.port();
    let egress =
        format!(r#"{{"rules": [{{"origins": ["http://api.example.com:{port}"]}}], "allowCidrs": ["127.0.0.1/32"]}}"#);
    let resolver = Answers::new(&[&["127.0.0.1"], &["169.254.169.254"]]);
    let client = client(&egress, credentials("{}"), Arc::clone(&resolver));
    for _ in 0..3 {
        assert_eq!(send(&client, get(format!("http://api.example.com:{port}/"))).await.unwrap().body, "again");
        // The transport's task returns the connection to the pool when it next runs; a test cannot
        // observe the return otherwise.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((resolver.look_ups(), server.connections()), (1, 1));
}

/// A wildcard origin allows any number of names, and the process has one table of file descriptors.
#[tokio::test]
async fn a_provider_has_a_bound_of_open_connections_whatever_its_origins() {
    let server = Server::start(|_| ok("")).await;
    let port = server.address.port();
    let egress =
        format!(r#"{{"rules": [{{"origins": ["http://*.cloud.test:{port}"]}}], "allowCidrs": ["127.0.0.1/32"]}}"#);
    let client = client(&egress, credentials("{}"), Answers::new(&[&["127.0.0.1"]]));
    let url = |number: usize| format!("http://a{number}.cloud.test:{port}/");
    for number in 0..CONNECTIONS_MAX {
        send(&client, get(url(number))).await.unwrap();
    }
    // An idle connection is used again.
    send(&client, get(url(0))).await.unwrap();
    tokio::time::pause();
    let failure = send(&client, get(url(CONNECTIONS_MAX))).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unreachable, "{failure}");
    assert!(failure.message.contains("too many open connections"), "{failure}");
    assert_eq!(server.connections(), CONNECTIONS_MAX);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let target = Server::start(|_| ok("")).await;
    let location = format!("http://{}/", target.address);
    let server = Server::start(move |_| {
        Reply::Whole(format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n").into_bytes())
    })
    .await;
    let response = send(&local(&server), get(server.url("/"))).await.unwrap();
    assert_eq!(response.status, 302);
    assert_eq!(header(&response, "location"), Some(format!("http://{}/", target.address).as_str()));
    assert_eq!(target.connections(), 0);
}

/// Runs the test above in a process whose environment names a proxy for every scheme: the test has
/// to pass.
#[test]
fn proxies_of_the_environment_are_ignored() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "http_client::tests::a_redirect_is_an_answer_and_is_not_followed"]);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        // Port 9 discards: a connection there fails.
        child.env(name, "http://127.0.0.1:9");
    }
    let output = child.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
async fn a_name_without_an_address_and_a_closed_port_are_unreachable() {
    let client =
        client(r#"{"rules": [{"origins": ["http://gone.example.com"]}]}"#, credentials("{}"), Answers::new(&[]));
    let failure = send(&client, get("http://gone.example.com/")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unreachable, "{failure}");
    assert!(failure.message.contains("look up gone.example.com"), "{failure}");
    let server = Server::start(|_| ok("")).await;
    let client = local(&server);
    let url = server.url("/");
    server.stop().await;
    let failure = send(&client, get(url)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unreachable, "{failure}");
}

// === credentials ===

#[tokio::test]
async fn a_credential_is_added_by_the_host() {
    let server = Server::start(|_| ok("")).await;
    let client = client(&local_egress(&server), local_credentials(&server), Answers::new(&[]));
    for name in ["api", "key", "user"] {
        send(&client, with_credential(get(server.url("/")), name)).await.unwrap();
    }
    send(&client, get(server.url("/"))).await.unwrap();
    let requests = server.requests();
    assert!(requests[0].contains(&format!("\r\nauthorization: Bearer {TOKEN}\r\n")), "{}", requests[0]);
    assert!(requests[1].contains(&format!("\r\nx-auth-token: {TOKEN}\r\n")), "{}", requests[1]);
    // base64("admin:t0p-s3cr3t-t0ken")
    assert!(requests[2].contains("\r\nauthorization: Basic YWRtaW46dDBwLXMzY3IzdC10MGtlbg==\r\n"), "{}", requests[2]);
    assert!(!requests[3].contains("authorization") && !requests[3].contains(TOKEN), "{}", requests[3]);
}

#[tokio::test]
async fn an_echo_of_the_request_shows_no_credential() {
    let server = Server::start(|request| {
        let echo = request.lines().find(|line| line.starts_with("authorization")).unwrap_or_default();
        let body = format!("{request}\n{request:?}");
        let reply = format!("HTTP/1.1 200 OK\r\nx-echo: {echo}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        Reply::Whole(reply.into_bytes())
    })
    .await;
    let client = client(&local_egress(&server), local_credentials(&server), Answers::new(&[]));
    for (name, shown) in [("api", "Bearer [redacted]"), ("user", "Basic [redacted]")] {
        let response = send(&client, with_credential(get(server.url("/")), name)).await.unwrap();
        let body = String::from_utf8(response.body.to_vec()).unwrap();
        assert!(body.contains(shown), "{body}");
        assert_eq!(header(&response, "x-echo"), Some(format!("authorization: {shown}").as_str()));
        for secret in [TOKEN, "YWRtaW46dDBwLXMzY3IzdC10MGtlbg"] {
            assert!(!format!("{:?}{body}", response.headers).contains(secret), "{body}");
        }
    }
}

/// The answer to a request with a credential. The server sends these headers and a body.
async fn answer_beside_a_credential(status: &str, headers: &str) -> Result<HttpResponse, Failure> {
    let reply = format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n5\r\nsome \r\n0\r\n\r\n");
    let server = Server::start(move |_| Reply::Last(reply.clone().into_bytes())).await;
    let client = client(&local_egress(&server), local_credentials(&server), Answers::new(&[]));
    send(&client, with_credential(get(server.url("/")), "api")).await
}

#[tokio::test]
async fn an_answer_that_the_redaction_cannot_decode_is_interrupted() {
    for headers in [
        "content-encoding: gzip\r\n",
        "content-encoding: identity\r\ncontent-encoding: gzip\r\n",
        "content-encoding: gzip\r\ncontent-encoding: gzip\r\n",
        "content-encoding: gzip, identity\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: gzip\r\n",
        "content-type: text/plain; charset=utf-16le\r\n",
        "content-type: text/plain; format=flowed; Charset=\"UTF-16\"\r\n",
        "content-type: text/plain\r\ncontent-type: text/plain;charset=ibm037\r\n",
    ] {
        let failure = answer_beside_a_credential("200 OK", headers).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Interrupted, "{headers}: {failure}");
    }
    for headers in ["content-type: application/json; charset=UTF-8\r\n", "transfer-encoding: Chunked\r\n"] {
        answer_beside_a_credential("200 OK", headers).await.unwrap();
    }
}

#[tokio::test]
async fn a_partial_answer_to_a_request_with_a_credential_is_interrupted() {
    for (status, headers) in [
        ("206 Partial Content", "content-range: bytes 0-4/100\r\n"),
        ("206 Partial Content", "content-type: multipart/byteranges; boundary=x\r\n"),
        ("200 OK", "content-range: bytes 0-4/100\r\n"),
    ] {
        let failure = answer_beside_a_credential(status, headers).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Interrupted, "{status} {headers}: {failure}");
    }
}

#[tokio::test]
async fn a_header_whose_name_is_the_credential_arrives_under_another_name() {
    let server = Server::start(|_| {
        Reply::Whole(format!("HTTP/1.1 200 OK\r\nX-{TOKEN}-y: 1\r\ncontent-length: 0\r\n\r\n").into_bytes())
    })
    .await;
    let client = client(&local_egress(&server), local_credentials(&server), Answers::new(&[]));
    let response = send(&client, with_credential(get(server.url("/")), "api")).await.unwrap();
    assert_eq!(header(&response, "redacted"), Some("1"));
    assert!(!format!("{:?}", response.headers).contains(TOKEN));
}

#[tokio::test]
async fn a_large_answer_is_redacted_like_a_small_one() {
    let server = Server::start(|_| ok(&format!("{}{TOKEN}{}", "a".repeat(200_000), "b".repeat(200_000)))).await;
    let client = client(&local_egress(&server), local_credentials(&server), Answers::new(&[]));
    let response = send(&client, with_credential(get(server.url("/")), "api")).await.unwrap();
    assert_eq!(response.body, format!("{}[redacted]{}", "a".repeat(200_000), "b".repeat(200_000)));
    assert_eq!(header(&response, "content-length"), None);
}

#[tokio::test]
async fn a_credential_goes_only_where_it_may_and_an_unknown_one_is_forbidden_with_the_names_that_there_are() {
    let server = Server::start(|_| ok("")).await;
    let client = client(&local_egress(&server), local_credentials(&server), Answers::new(&[]));
    let failure = send(&client, with_credential(get(server.url("/")), "elsewhere")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Forbidden);
    assert!(failure.message.starts_with("credential \"elsewhere\" may not be sent to http://127.0.0.1:"), "{failure}");
    let failure = send(&client, with_credential(get(server.url("/")), "nobody")).await.unwrap_err();
    // Not the request's fault but the operator's: the SDK makes it `denied`, which does not count
    // against the release.
    assert_eq!(failure.kind, FailureKind::Forbidden);
    let start = "there is no credential \"nobody\"; the provider has: ";
    assert!(failure.message.starts_with(start) && failure.message.contains("elsewhere"), "{failure}");
    assert_eq!(server.connections(), 0);
}

/// These counts decide whether the cloud or the release is at fault for a failed call.
#[tokio::test]
async fn requests_that_the_cloud_failed_or_denied_are_counted() {
    let server = Server::start(|request| {
        let status = request.split(['/', ' ']).nth(2).unwrap_or_default();
        Reply::Whole(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").into_bytes())
    })
    .await;
    let client = local(&server);
    let counted = async |url: String| {
        let budget = budget();
        let admitted = budget.admit(&Arc::new(Held::new(u64::MAX))).unwrap();
        drop(client.send(&budget, admitted, get(url)).await);
        let usage = budget.usage();
        (usage.failed, usage.denied)
    };
    for (status, expected) in [
        (200, (0, 0)),
        (400, (0, 0)),
        (401, (0, 1)),
        (403, (0, 1)),
        (404, (0, 0)),
        (408, (1, 0)),
        (429, (1, 0)),
        (500, (1, 0)),
        (503, (1, 0)),
    ] {
        assert_eq!(counted(server.url(&format!("/{status}"))).await, expected, "{status}");
    }
    assert_eq!(counted("http://elsewhere.example.com/".to_owned()).await, (0, 1));
    let gone = server.url("/");
    drop(server);
    assert_eq!(counted(gone).await, (1, 0));
}

#[tokio::test]
async fn the_last_requests_of_a_call_are_noted_without_query_header_and_body() {
    let server = Server::start(|request| match request.contains("/never") {
        true => Reply::Never,
        false => Reply::Whole(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n".to_vec()),
    })
    .await;
    let (client, budget) = (local(&server), budget());
    let noted = || {
        let line = |NotedRequest { method, url, end, time: _ }| {
            format!("{method} {} {end:?}", url.replace(&server.url(""), "http://server"))
        };
        budget.take_noted().into_iter().map(line).collect::<Vec<_>>()
    };
    let request = with_header(get(server.url("/a?token=s3cret#s3cret")), "x", "s3cret");
    sent(&client, &budget, HttpRequest { method: "PUT".to_owned(), body: Some("s3cret".into()), ..request })
        .await
        .unwrap();
    sent(&client, &budget, get("https://elsewhere.example.com/b")).await.unwrap_err();
    sent(&client, &budget, get("https://user:s3cret@elsewhere.example.com/s3cret")).await.unwrap_err();
    {
        let mut sending = Box::pin(sent(&client, &budget, get(server.url("/never"))));
        tokio::select! {
            result = &mut sending => panic!("{result:?}"),
            () = server.wait_for_requests(2) => {}
        }
    }
    assert_eq!(
        noted(),
        [
            "PUT http://server/a Answered(404)",
            "GET https://elsewhere.example.com/b Failed(Forbidden)",
            "GET  Failed(Malformed)",
            "GET http://server/never Cancelled",
        ]
    );
    assert_eq!(noted(), [""; 0], "they were taken");
    let long = "x".repeat(1_000);
    for number in 0..REQUESTS_NOTED_MAX + 2 {
        sent(&client, &budget, get(server.url(&format!("/{number}/{long}")))).await.unwrap();
    }
    let all = budget.take_noted();
    assert_eq!(all.len(), REQUESTS_NOTED_MAX);
    assert!(all[0].url.contains("/2/") && all.iter().all(|request| request.url.len() <= 200), "{:?}", all[0]);
}

#[test]
fn a_login_that_failed_sends_nothing_and_is_a_fault_of_the_operator_or_of_the_issuer() {
    for (kind, failed, denied) in [(FailureKind::CredentialRefused, 0, 1), (FailureKind::CredentialUnavailable, 1, 0)] {
        let budget = budget();
        budget.note(&Failure::new(kind, "no"));
        let HttpUsage { refused, failed: was_failed, denied: was_denied, .. } = budget.usage();
        assert_eq!((refused, was_failed, was_denied), (1, failed, denied), "{kind:?}");
        assert!(kind.sent_nothing(), "{kind:?}");
    }
}

/// The fake hosts of the SDKs are tested with the same file.
#[tokio::test]
async fn what_the_sdks_fake_hosts_refuse_is_malformed_and_what_they_send_is_sent() {
    let server = Server::start(|_| ok("")).await;
    let client = client(&local_egress(&server), local_credentials(&server), Answers::new(&[]));
    let file: serde_json::Value = serde_json::from_str(include_str!("../../../../guest-sdk/requests.json")).unwrap();
    for (list, is_malformed) in [("malformed", true), ("sent", false)] {
        for described in file[list].as_array().unwrap() {
            let text =
                |key: &str| described[key].as_str().unwrap_or_default().replace("HOST", &server.address.to_string());
            let pairs = described["headers"].as_array().into_iter().flatten();
            let headers = pairs.map(|pair| serde_json::from_value(pair.clone()).unwrap()).collect();
            let credential = described["credential"].as_str().map(str::to_owned);
            let request =
                HttpRequest { method: text("method"), url: text("url"), headers, credential, ..HttpRequest::default() };
            let answer = send(&client, request).await;
            let kind = answer.as_ref().err().map(|failure| failure.kind);
            assert_eq!(kind, is_malformed.then_some(FailureKind::Malformed), "{described}: {answer:?}");
        }
    }
    assert_eq!(server.requests().len(), file["sent"].as_array().unwrap().len());
}

#[tokio::test]
async fn headers_of_the_host_and_of_the_credential_are_malformed() {
    let server = Server::start(|_| ok("")).await;
    let client = client(&local_egress(&server), local_credentials(&server), Answers::new(&[]));
    for name in [
        "Host",
        "content-length",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
        "Proxy-Anything",
        "Cookie",
        "Accept-Encoding",
        "HTTP2-Settings",
        "X-HTTP-Method-Override",
        "X-Original-URL",
        // Servers that pass headers on as variables do not distinguish underscores from dashes.
        "X_HTTP_Method_Override",
        "Transfer_Encoding",
        "x.original.url",
        "bad name",
        "bad:name",
        ":authority",
        "",
    ] {
        let failure = send(&client, with_header(get(server.url("/")), name, "x")).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Malformed, "{name}");
    }
    for value in ["a\r\nhost: evil", "a\nb", "a\0b"] {
        let failure = send(&client, with_header(get(server.url("/")), "x-a", value)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Malformed, "{value:?}");
    }
    for (credential, name) in [
        ("api", "Authorization"),
        ("user", "AUTHORIZATION"),
        ("key", "x-auth-token"),
        ("key", "x_auth_token"),
        ("underscore", "x-project-token"),
        ("key", "authorization"),
        ("api", "range"),
        ("api", "if-range"),
        ("api", "request-range"),
        ("api", "x-ms-range"),
        ("api", "accept-charset"),
    ] {
        let request = with_credential(with_header(get(server.url("/")), name, "mine"), credential);
        let failure = send(&client, request).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Malformed, "{name}");
    }
    let charset = with_header(get(server.url("/")), "Accept", "text/plain; Charset=utf-16le");
    let failure = send(&client, with_credential(charset, "api")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Malformed, "{failure}");
    for method in ["CONNECT", "TRACE", "get", "", "GET /x HTTP/1.1\r\n", "BREW"] {
        let failure =
            send(&client, HttpRequest { method: method.to_owned(), ..get(server.url("/")) }).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Malformed, "{method}");
    }
    assert_eq!(server.connections(), 0);
    // Without a credential, the guest may set the header Authorization.
    send(&client, with_header(get(server.url("/")), "Authorization", "mine")).await.unwrap();
    assert!(server.requests()[0].contains("\r\nauthorization: mine\r\n"));
}

#[tokio::test]
async fn cookies_and_hop_by_hop_headers_of_an_answer_stay_with_the_host() {
    let server = Server::start(|_| {
        Reply::Whole(
            b"HTTP/1.1 200 OK\r\nset-cookie: session=1\r\nkeep-alive: timeout=5\r\netag: \"x\"\r\nx-a: 1\r\nx-a: 2\r\ncontent-length: 2\r\n\r\nok"
                .to_vec(),
        )
    })
    .await;
    let client = local(&server);
    let response = send(&client, get(server.url("/"))).await.unwrap();
    let names: Vec<_> = response.headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(names, ["etag=\"x\"", "x-a=1", "x-a=2", "content-length=2"]);
    send(&client, get(server.url("/"))).await.unwrap();
    assert!(!server.requests()[1].contains("cookie"));
}

#[tokio::test]
async fn method_path_query_headers_and_body_arrive_as_given() {
    let server = Server::start(|_| ok("made")).await;
    let request = HttpRequest {
        method: "PATCH".to_owned(),
        url: server.url("/v1/a%20b?x=1&y=%2F#fragment"),
        headers: vec![
            ("If-Match".to_owned(), "\"7\"".to_owned()),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ],
        body: Some(Bytes::from_static(b"{\"size\":1}")),
        ..HttpRequest::default()
    };
    let budget = budget();
    assert_eq!(sent(&local(&server), &budget, request).await.unwrap().body, "made");
    let seen = &server.requests()[0];
    assert!(seen.starts_with("PATCH /v1/a%20b?x=1&y=%2F HTTP/1.1\r\n"), "{seen}");
    for line in [
        "if-match: \"7\"",
        "content-type: application/json",
        "content-length: 10",
        "accept-encoding: identity",
        "user-agent: skysail/",
    ] {
        assert!(seen.contains(line), "{seen}");
    }
    assert!(seen.ends_with("\r\n\r\n{\"size\":1}"), "{seen}");
    let usage = budget.usage();
    assert_eq!((usage.requests, usage.refused, usage.in_flight_max), (1, 0, 1));
    assert!(usage.bytes_sent > 10 && usage.bytes_received >= 4 && usage.time > Duration::ZERO, "{usage:?}");
}

#[tokio::test]
async fn dropping_a_request_closes_its_connection() {
    let server = Server::start(|_| Reply::Never).await;
    let client = local(&server);
    let budget = budget();
    {
        let mut sending = Box::pin(sent(&client, &budget, get(server.url("/"))));
        tokio::select! {
            result = &mut sending => panic!("{result:?}"),
            () = server.wait_for_requests(1) => {}
        }
    }
    server.wait_for_closed(1).await;
    assert!(budget.usage().time > Duration::ZERO);
}
