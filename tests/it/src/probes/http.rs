//! Limits of the HTTP import: a request beyond a limit is refused, and the record names the limit.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use skysail_host::{
    CallRecorder, Engine, Fault, Limits, SandboxOptions,
    credentials::{CredentialSpec, Credentials, SecretValues, ValueFrom},
    egress::{EgressPolicy, EgressRuleSpec, EgressSpec},
    http_client::{HttpClient, Resolver},
    slot::{Offer, Offered},
};
use skysail_provider::{Call, Code, DryRun, Limit, LimitHit, LoadBalancerInventory as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Barrier,
    task::JoinSet,
};

use super::{Attack, Attacked, Setup, shadowed};
use crate::components::{built, marked};

/// The response of the server.
#[derive(Clone)]
enum Answer {
    /// 200 with a body of this size in bytes.
    Body(usize),
    /// This status without a body.
    Status(u16),
    /// 200 after this time.
    After(Duration),
    /// 200, but only when this many requests wait for a response.
    Together(Arc<Barrier>),
    /// No response, ever.
    Never,
}

/// An HTTP server on loopback that counts requests.
struct Server {
    url: String,
    origin: String,
    requests: Arc<AtomicU64>,
    /// Request lines and headers, in order.
    heads: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn new(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicU64::new(0));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (counted, noted) = (Arc::clone(&requests), Arc::clone(&heads));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                connections.spawn(serve(connection, answer.clone(), Arc::clone(&counted), Arc::clone(&noted)));
            }
        });
        Self { url: format!("{origin}/"), origin, requests, heads, _tasks: tasks }
    }

    /// A probe with access to this server.
    async fn attacked_by(&self, probe: &str, limits: Limits) -> Attacked {
        let client = self.client(&limits);
        let wasm = built(&format!("probe-{probe}"));
        Attacked::of(Setup { limits, config: &self.url, http: Some(client), ..Setup::of("probe", &wasm) }).await
    }

    /// A client that may send every method to this server, with one credential.
    fn client(&self, limits: &Limits) -> Arc<HttpClient> {
        self.client_with(self.credential("api"), limits)
    }

    /// One credential with this name for this server.
    fn credential(&self, name: &str) -> Credentials {
        let spec = CredentialSpec {
            origins: vec![self.origin.clone()],
            bearer: Some(ValueFrom::Env("TOKEN".to_owned())),
            ..CredentialSpec::default()
        };
        let specs = BTreeMap::from([(name.to_owned(), spec)]);
        let env = |_: &str| Some("the-secret-token".to_owned());
        Credentials::load(&specs, &env, &SecretValues::new()).unwrap()
    }

    fn client_with(&self, credentials: Credentials, limits: &Limits) -> Arc<HttpClient> {
        let rule = EgressRuleSpec { origins: vec![self.origin.clone()], ..EgressRuleSpec::default() };
        let spec =
            EgressSpec { rules: vec![rule], allow_cidrs: vec!["127.0.0.0/8".to_owned()], ..EgressSpec::default() };
        let policy = Arc::new(EgressPolicy::new(&spec).unwrap());
        Arc::new(HttpClient::new(policy, Arc::new(credentials), &limits.http()).unwrap())
    }
}

/// Removes the first request from `read` if it is complete with its body, and returns its headers.
fn take_request(read: &mut Vec<u8>) -> Option<String> {
    let end = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next()?.parse().ok());
    let whole = end + length.unwrap_or(0);
    (read.len() >= whole).then(|| {
        read.drain(..whole);
        head
    })
}

async fn serve(mut connection: TcpStream, answer: Answer, requests: Arc<AtomicU64>, heads: Arc<Mutex<Vec<String>>>) {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = connection.read(&mut buffer).await {
        read.extend_from_slice(&buffer[..len]);
        let Some(head) = take_request(&mut read) else { continue };
        heads.lock().unwrap().push(head);
        requests.fetch_add(1, Ordering::SeqCst);
        let (status, body) = match &answer {
            Answer::Body(len) => (200, *len),
            Answer::Status(status) => (*status, 0),
            Answer::After(time) => {
                wait(*time).await;
                (200, 2)
            }
            Answer::Together(barrier) => {
                barrier.wait().await;
                (200, 2)
            }
            Answer::Never => std::future::pending().await,
        };
        let head = format!("HTTP/1.1 {status} Status\r\ncontent-length: {body}\r\n\r\n");
        if connection.write_all(head.as_bytes()).await.is_err()
            || connection.write_all(&vec![b'x'; body]).await.is_err()
        {
            return;
        }
    }
}

async fn wait(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn request_then_trap_is_the_releases_fault_only_if_the_request_was_answered() {
    for (status, fault) in [
        (200, Fault::Release),
        (401, Fault::Operator),
        (403, Fault::Operator),
        (429, Fault::Cloud),
        (503, Fault::Cloud),
    ] {
        let server = Server::new(Answer::Status(status)).await;
        let attacked = server.attacked_by("request-then-trap", Limits::default()).await;
        attacked
            .run(Attack::Master, |result, record| {
                assert_eq!(result.unwrap_err().code, Code::Trapped);
                assert_eq!((record.http.requests, record.fault), (1, Some(fault)), "{status}");
            })
            .await;
    }
    // Without egress rules the request is denied.
    let attacked = Attacked::new("request-then-trap", Limits::default()).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result.unwrap_err().code, Code::Trapped);
            assert_eq!((record.http.requests, record.fault), (0, Some(Fault::Operator)));
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_that_passes_while_the_cloud_answers_slowly_is_the_clouds_fault() {
    let server = Server::new(Answer::After(Duration::from_millis(300))).await;
    // The calls that do not wait have the same deadline, and meet it on a busy machine.
    let limits = Limits { deadline_ms: 2_000, http_time_ms: 2_000, ..Limits::default() };
    let attacked = server.attacked_by("http-requests", limits).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result.unwrap_err().code, Code::DeadlineExceeded);
            assert_eq!(record.fault, Some(Fault::Cloud), "{record:?}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn http_requests_beyond_the_limit_are_not_sent() {
    let server = Server::new(Answer::Body(2)).await;
    let limits = Limits { http_requests: 5, http_requests_per_second: 10_000, ..Limits::default() };
    let attacked = server.attacked_by("http-requests", limits).await;
    let seen = Arc::clone(&server.requests);
    attacked
        .run(Attack::Master, move |result, record| {
            assert_eq!(result, Ok("5 answered, Some(Failure::Limited(\"limit httpRequests: 6 of 5\"))".to_owned()));
            assert_eq!((record.http.requests, seen.swap(0, Ordering::SeqCst)), (5, 5));
            assert!(record.http.bytes_sent > 0 && record.http.bytes_received >= 10 && !record.http.time.is_zero());
            assert!(record.http.time <= record.wall && record.guest < record.wall);
            let [hit] = record.limits_hit.as_slice() else { panic!("{record:?}") };
            assert_eq!((hit.limit, hit.max), (Limit::HttpRequests, 5));
        })
        .await;
}

/// The guest sends the same requests and gets the same answers; only the host has something to
/// search for. No request names the credential.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_searched_for_a_credential_cost_ten_units_a_byte() {
    let server = Server::new(Answer::Body(1_000)).await;
    let limits = Limits { http_requests: 5, http_requests_per_second: 10_000, ..Limits::default() };
    for (probe, answered) in [("probe-http-requests", 5), ("probe-wasi-http", 2)] {
        let (engine, recorder) = (Engine::on_demand().unwrap(), CallRecorder::default());
        let wasm = built(probe);
        let mut costs = Vec::new();
        for credentials in [Credentials::none(), server.credential("another")] {
            let http = Some(server.client_with(credentials, &limits));
            let setup = Setup { limits: limits.clone(), config: &server.url, http, ..Setup::of("p", &wasm) };
            let served = setup.serve(&engine, &recorder).await;
            let mut records = recorder.subscribe();
            skysail_provider::Clusters::master(&served, &Call::default(), "attack").await.unwrap();
            let record = records.recv().await.unwrap();
            costs.push((record.fuel, record.http.bytes_received));
        }
        let [(without, bytes), (with, again)] = costs.as_slice() else { panic!("{costs:?}") };
        assert!(bytes == again && *bytes >= answered * 1_000, "{probe}: {costs:?}");
        assert_eq!(with - without, 10 * bytes, "{probe}: {costs:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn http_rate_limits_the_provider() {
    let server = Server::new(Answer::Body(2)).await;
    let attacked = server.attacked_by("http-rate", Limits { http_requests_per_second: 4, ..Limits::default() }).await;
    let began = tokio::time::Instant::now();
    attacked
        .run(Attack::Master, move |result, record| {
            assert!(result.is_ok());
            // A burst of one second's worth, and then one each quarter of a second.
            let allowed = 4 + 4 * (began.elapsed().as_secs() + 1);
            assert!(server.requests.load(Ordering::SeqCst) <= allowed);
            assert!(record.http.requests <= 20);
            let waited_or_refused = record.wall.as_millis() > 250 || !record.limits_hit.is_empty();
            assert!(waited_or_refused, "{record:?}");
            for hit in &record.limits_hit {
                assert_eq!((hit.limit, hit.max), (Limit::HttpRate, 4));
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn http_concurrency_makes_requests_wait() {
    // The server answers four together: with fewer at once the call would never end, with more the
    // count of waiting ones would show.
    let server = Server::new(Answer::Together(Arc::new(Barrier::new(4)))).await;
    let limits = Limits { http_concurrency: 4, http_requests_per_second: 10_000, ..Limits::default() };
    let attacked = server.attacked_by("http-concurrency", limits).await;
    let seen = Arc::clone(&server.requests);
    attacked
        .run(Attack::Master, move |result, record| {
            assert_eq!(result, Ok("20 answered, None".to_owned()));
            assert_eq!((record.http.requests, seen.swap(0, Ordering::SeqCst)), (20, 20));
            assert_eq!(record.http.in_flight_max, 4);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn http_request_bytes_beyond_the_limit_are_not_sent() {
    let server = Server::new(Answer::Body(2)).await;
    let attacked = server.attacked_by("http-request-bytes", Limits::default()).await;
    let seen = Arc::clone(&server.requests);
    attacked
        .run(Attack::Master, move |result, record| {
            assert!(result.unwrap().starts_with("0 answered, Some(Failure::Limited(\"limit httpRequestBytes: 20971"));
            assert_eq!((record.http.requests, record.http.bytes_sent, seen.load(Ordering::SeqCst)), (0, 0, 0));
            let [hit] = record.limits_hit.as_slice() else { panic!("{record:?}") };
            assert_eq!((hit.limit, hit.max), (Limit::HttpRequestBytes, 1 << 20));
            assert!(hit.used > 2 << 20);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn http_response_bytes_beyond_the_limit_are_refused() {
    let server = Server::new(Answer::Body(100_000)).await;
    let limits = Limits { http_response_bytes: 10_000, http_requests_per_second: 10_000, ..Limits::default() };
    let attacked = server.attacked_by("http-response-bytes", limits).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result, Ok("0 answered, Some(Failure::TooLarge(100000))".to_owned()));
            assert_eq!(record.limits_hit, [LimitHit { limit: Limit::HttpResponseBytes, used: 100_000, max: 10_000 }]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn http_headers_beyond_the_limit_are_not_sent() {
    let server = Server::new(Answer::Body(2)).await;
    let attacked = server.attacked_by("http-headers", Limits::default()).await;
    attacked
        .run(Attack::Master, move |result, record| {
            assert_eq!(
                result,
                Ok("0 answered, Some(Failure::Limited(\"limit httpHeaders: 25000 of 100\"))".to_owned())
            );
            assert_eq!((record.http.requests, server.requests.load(Ordering::SeqCst)), (0, 0));
            assert_eq!(record.limits_hit, [LimitHit { limit: Limit::HttpHeaders, used: 25_000, max: 100 }]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn http_header_bytes_beyond_the_limit_are_not_sent() {
    let server = Server::new(Answer::Body(2)).await;
    let limits = Limits { http_header_bytes: 99_999, ..Limits::default() };
    let attacked = server.attacked_by("http-header-bytes", limits).await;
    attacked
        .run(Attack::Master, move |result, record| {
            let failure = "Failure::Limited(\"limit httpHeaderBytes: 100000 of 99999\")";
            assert_eq!(result, Ok(format!("0 answered, Some({failure})")));
            assert_eq!((record.http.requests, server.requests.load(Ordering::SeqCst)), (0, 0));
            assert_eq!(record.limits_hit, [LimitHit { limit: Limit::HttpHeaderBytes, used: 100_000, max: 99_999 }]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn http_time_ends_an_exchange_that_takes_too_long() {
    let server = Server::new(Answer::Never).await;
    let limits = Limits { http_time_ms: 1_000, http_requests_per_second: 10_000, ..Limits::default() };
    let attacked = server.attacked_by("http-time", limits).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result, Ok("0 answered, Some(Failure::Timeout)".to_owned()));
            let [hit] = record.limits_hit.as_slice() else { panic!("{record:?}") };
            assert_eq!((hit.limit, hit.max), (Limit::HttpTime, 1_000));
            assert!(hit.used >= 1_000 && record.http.time.as_millis() >= 1_000, "{record:?}");
            // The wait is no time of the guest; what a busy machine takes from the guest is.
            assert!(record.guest < record.wall / 2, "{record:?}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_a_provider_without_egress_rules_says_so() {
    let attacked = Attacked::new("http-time", Limits::default()).await;
    attacked
        .run(Attack::Master, |result, record| {
            let report = result.unwrap();
            assert!(report.contains("Forbidden") && report.contains("no egress rule"), "{report}");
            assert_eq!(record.http.requests, 0);
        })
        .await;
}

/// Resolves each name to another spelling of the metadata service's address.
struct Rebinding;

#[async_trait]
impl Resolver for Rebinding {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let address = match name {
            "plain.example.com" => "169.254.169.254",
            "mapped.example.com" => "::ffff:169.254.169.254",
            "nat64.example.com" => "64:ff9b::169.254.169.254",
            "v6.example.com" => "fd00:ec2::254",
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(vec![address.parse().unwrap()])
    }
}

/// The rules allow the names, and the CIDR allows the network of the address: the address itself is
/// the reason for the refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn http_metadata_is_refused_in_every_spelling() {
    let rules = vec![EgressRuleSpec { origins: vec!["http://*.example.com".to_owned()], ..EgressRuleSpec::default() }];
    let spec = EgressSpec { rules, allow_cidrs: vec!["169.254.0.0/16".to_owned()], ..EgressSpec::default() };
    let policy = Arc::new(EgressPolicy::new(&spec).unwrap());
    let credentials = Arc::new(Credentials::none());
    let limits = Limits { http_requests_per_second: 10_000, ..Limits::default() };
    let client = HttpClient::with_resolver(policy, credentials, &limits.http(), Arc::new(Rebinding)).unwrap();
    let wasm = built("probe-http-metadata");
    let names = ["plain", "mapped", "nat64", "v6"].map(|name| format!("http://{name}.example.com/latest/"));
    let config = names.join("\n");
    let setup = Setup { limits, config: &config, http: Some(Arc::new(client)), ..Setup::of("probe", &wasm) };
    Attacked::of(setup)
        .await
        .run(Attack::Master, |result, record| {
            let report = result.unwrap();
            assert!(report.starts_with("0 answered, 10 refused for their address, others: []"), "{report}");
            assert_eq!(record.http.requests, 0, "nothing was sent");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn wasi_http_goes_through_the_same_rules_and_budgets() {
    let server = Server::new(Answer::Body(9)).await;
    let limits = Limits { http_requests: 7, http_request_bytes: 20_000, ..Limits::default() };
    let attacked = server.attacked_by("wasi-http", limits).await;
    let heads = Arc::clone(&server.heads);
    let said = [
        r#"with a credential: Ok((200, "content-length", 9))"#,
        r#"a body: Ok((200, "content-length", 9))"#,
        r#"too large a body: Err("ErrorCode::HttpRequestBodySize(Some(20000))")"#,
        r#"another origin: Err("ErrorCode::HttpRequestDenied")"#,
        r#"metadata: Err("ErrorCode::HttpRequestDenied")"#,
        r#"unknown credential: Err("ErrorCode::HttpRequestDenied")"#,
        // The host sends its own `host` header instead of the guest's.
        r#"Ok((200, "content-length", 9))"#,
        r#"Err("proxy-authorization: HeaderError::Forbidden")"#,
        r#"Err("cookie: HeaderError::Forbidden")"#,
        r#"Err("transfer-encoding: HeaderError::Forbidden")"#,
        r#"Err("x-http-method-override: HeaderError::Forbidden")"#,
        r#"one request too many: Err("ErrorCode::ConnectionLimitReached")"#,
    ];
    attacked
        .run(Attack::Master, move |result, record| {
            assert_eq!(result.unwrap().split(" | ").collect::<Vec<_>>(), said);
            let hits: Vec<_> = record.limits_hit.iter().map(|hit| hit.limit).collect();
            assert!(hits.contains(&Limit::HttpRequestBytes) && hits.contains(&Limit::HttpRequests), "{hits:?}");
            assert_eq!(record.http.requests, 3);
            // Those of this attack: how many attacks there are depends on the machine.
            let heads = std::mem::take(&mut *heads.lock().unwrap());
            let starts: Vec<_> = heads.iter().filter_map(|head| head.lines().next()).collect();
            assert_eq!(starts, ["get / http/1.1", "post / http/1.1", "get / http/1.1"]);
            let with_token: Vec<_> =
                heads.iter().map(|head| head.contains("authorization: bearer the-secret-token")).collect();
            assert_eq!(with_token, [true, false, false]);
            assert!(heads.iter().all(|head| head.matches("\r\nhost: 127.0.0.1:").count() == 1), "{heads:?}");
            assert!(!heads.iter().any(|head| head.contains("skysail-credential")), "{heads:?}");
        })
        .await;
}

/// Each answer stays in the host's memory, which the limit of the guest's memory does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn wasi_http_answers_that_fill_the_guests_memory_end_the_requests() {
    let (server, mib) = (Server::new(Answer::Body(1 << 20)).await, 1 << 20);
    let limits = Limits { memory_bytes: 4 * mib, http_concurrency: 1, ..Limits::default() };
    let attacked = server.attacked_by("wasi-http-answers", limits).await;
    let seen = Arc::clone(&server.requests);
    attacked
        .run(Attack::Master, move |result, record| {
            let text = result.unwrap();
            assert!(text.starts_with("4 answered, Some("), "{text}");
            assert_eq!((record.http.requests, seen.swap(0, Ordering::SeqCst)), (4, 4));
            let [hit] = record.limits_hit.as_slice() else { panic!("{record:?}") };
            assert_eq!((hit.limit, hit.max), (Limit::Memory, 4 * mib));
        })
        .await;
}

/// Whatever a guest tries in a dry run, its writes do not reach the cloud.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_a_dry_run_do_not_reach_the_cloud() {
    let server = Server::new(Answer::Body(0)).await;
    let limits = Limits { http_requests_per_second: 10_000, ..Limits::default() };
    let http = Some(server.client(&limits));
    let sandbox = SandboxOptions { name: "cloud".to_owned(), limits, config: server.url.clone(), http };
    let slot = shadowed(sandbox);
    let bytes = marked("probe-shadow-writes", 1).into();
    assert_eq!(slot.offer(Offer { bytes, origin: "probe".to_owned() }).await, Ok(Offered::Activated));
    let dry_run = DryRun::default();
    let call = Call { dry_run: Some(dry_run.clone()), ..Call::default() };
    slot.list(&call, "kubernetes").await.unwrap();
    let heads = std::mem::take(&mut *server.heads.lock().unwrap());
    let mut sent: Vec<_> = heads.iter().filter_map(|head| Some(head.split_once(' ')?.0)).collect();
    sent.sort_unstable();
    sent.dedup();
    assert_eq!(sent, ["get", "head", "options"]);
    let (held, _) = dry_run.held();
    assert!(held.iter().any(|request| request.method == "DELETE"), "{held:?}");
}

/// In the shadow phase a release gets the calls of its predecessor: whatever it tries, its writes
/// do not reach the cloud.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn shadow_writes_do_not_reach_the_cloud() {
    let server = Server::new(Answer::Body(0)).await;
    let limits = Limits { http_requests_per_second: 10_000, ..Limits::default() };
    let http = Some(server.client(&limits));
    let sandbox = SandboxOptions { name: "cloud".to_owned(), limits, config: server.url.clone(), http };
    let slot = shadowed(sandbox);
    let offer = async |mark: u8| {
        let bytes = marked("probe-shadow-writes", mark).into();
        slot.offer(Offer { bytes, origin: "probe".to_owned() }).await
    };
    let methods = || -> Vec<String> {
        let heads = std::mem::take(&mut *server.heads.lock().unwrap());
        heads.iter().filter_map(|head| Some(head.split_once(' ')?.0.to_owned())).collect()
    };
    assert_eq!(offer(1).await, Ok(Offered::Activated));
    assert_eq!(methods(), [""; 0]);
    slot.list(&Call::default(), "kubernetes").await.unwrap();
    assert!(methods().contains(&"delete".to_owned()), "where it serves, it may");
    assert_eq!(offer(2).await, Ok(Offered::Activated));
    let mut methods = methods();
    assert_eq!(methods.len(), 2 * 2 * 3, "{methods:?}");
    methods.sort_unstable();
    methods.dedup();
    assert_eq!(methods, ["get", "head", "options"]);
}
