//! Tests of authentication and authorization, and of the requests to the API server for them.

use std::{
    convert::Infallible,
    future::pending,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body};
use futures::future::{join, join_all};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Client,
    api::{DeleteParams, PostParams},
};
use prometheus_client::registry::Registry;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt as _, service_fn};

use super::{Guard, Reviewers};
use crate::{
    authentication::Peer,
    endpoints::{Endpoints, NoDocument},
    error::ServingError,
    health::HealthChecks,
    limits::REVIEWS,
    options::{AuthenticationOptions, AuthorizationOptions},
    peer_address::PeerAddress,
    testing::{Authority, PATIENCE},
};

/// An API server that accepts the token `jane's`, allows her to read everything, and publishes
/// certificate authorities; it records its requests, and never answers about what is `endless`.
#[derive(Clone, Default)]
struct Api {
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    config_map: Option<Value>,
    broken: bool,
}

impl Api {
    fn client(&self) -> Client {
        let api = self.clone();
        Client::new(
            service_fn(move |request: Request<kube::client::Body>| {
                let api = api.clone();
                async move { Ok::<_, Infallible>(api.answer(request).await) }
            }),
            "default",
        )
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        self.asked.lock().unwrap().push((path.clone(), body.clone()));
        if body.to_string().contains("endless") {
            return pending().await;
        }
        if self.broken {
            return answer(403, &json!({"kind": "Status", "status": "Failure", "code": 403, "message": "no"}));
        }
        let status = match path.rsplit('/').next().unwrap() {
            "tokenreviews" if body["spec"]["token"] == "jane's" => {
                let user = json!({"username": "jane", "groups": ["readers"], "extra": {"a": ["b"]}});
                json!({"authenticated": true, "user": user})
            }
            "tokenreviews" => json!({"authenticated": false}),
            "subjectaccessreviews" => json!({"allowed": body["spec"]["user"] == "jane"}),
            _ => {
                let absent = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
                let (code, found) = self.config_map.as_ref().map_or((404, &absent), |found| (200, found));
                return answer(code, found);
            }
        };
        let mut answered = body;
        answered["status"] = status;
        answered["metadata"] = json!({});
        answer(201, &answered)
    }

    /// The last part of each path.
    fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|(path, _)| path.rsplit('/').next().unwrap().to_owned()).collect()
    }

    fn reviewers(&self) -> Reviewers {
        Reviewers { authentication: Some(self.client()), authorization: Some(self.client()) }
    }
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    Response::builder().status(code).header("content-type", "application/json").body(body.to_string().into()).unwrap()
}

fn skip_lookup() -> AuthenticationOptions {
    AuthenticationOptions { skip_lookup: true, ..AuthenticationOptions::default() }
}

fn endpoints() -> Endpoints {
    Endpoints {
        healthz: HealthChecks::default(),
        livez: HealthChecks::default(),
        readyz: HealthChecks::default(),
        registry: Arc::new(Registry::default()),
        configuration: Arc::new(|| json!({"a": 1})),
        providers: Arc::new(|| json!({"kind": "ProviderList"})),
        services: Arc::new(|namespace, name| match name {
            "web" => Ok(json!({ "namespace": namespace, "name": name })),
            "away" => Err(NoDocument::Unavailable("this process is not the leader".to_owned())),
            name => Err(NoDocument::NotFound(format!("there is no Service {namespace}/{name}"))),
        }),
        verbosity: Some(Arc::new(|text| if text == "4" { Ok("level 4".to_owned()) } else { Err("no".to_owned()) })),
    }
}

async fn router_with(options: &AuthenticationOptions, reviewers: Reviewers) -> Result<Router, ServingError> {
    let guard = Guard::new(options, AuthorizationOptions::default(), reviewers).await?;
    Ok(endpoints().router(guard))
}

async fn router(api: &Api) -> Router {
    router_with(&skip_lookup(), api.reviewers()).await.unwrap()
}

/// Status and body of a GET with these headers, by this peer.
async fn get(router: &Router, path: &str, headers: &[(&str, &str)], peer: Peer) -> (u16, String) {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    send(router, request.extension(peer).body(Body::empty()).unwrap()).await
}

fn address(number: u8) -> PeerAddress {
    PeerAddress::new(Ipv4Addr::new(192, 0, 2, number).into())
}

async fn send(router: &Router, mut request: Request<Body>) -> (u16, String) {
    request.extensions_mut().insert(address(1));
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

const JANE: (&str, &str) = ("authorization", "Bearer jane's");

#[tokio::test]
async fn i3_health_is_public_and_metrics_are_not() {
    let router = router(&Api::default()).await;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(get(&router, path, &[], Peer::default()).await, (200, "ok".to_owned()), "{path}");
    }
    let paths = ["/metrics", "/metrics/slis", "/configz", "/providers", "/services/default/web", "/debug/flags/v"];
    for path in paths.into_iter().chain(["/healthz/ping", "/nothing"]) {
        let (code, body) = get(&router, path, &[], Peer::default()).await;
        let status: Value = serde_json::from_str(&body).unwrap();
        let message = format!("forbidden: User \"system:anonymous\" cannot get path {path:?}");
        assert_eq!((code, &status["reason"], &status["message"]), (403, &json!("Forbidden"), &json!(message)));
    }
}

#[tokio::test]
async fn a_token_is_authenticated_and_authorized_by_the_api_server() {
    let api = Api::default();
    let router = router(&api).await;
    assert_eq!(get(&router, "/metrics", &[JANE], Peer::default()).await.0, 200);
    let asked = api.asked.lock().unwrap().clone();
    assert_eq!(
        asked[1].1["spec"],
        json!({
            "user": "jane", "groups": ["readers", "system:authenticated"], "extra": {"a": ["b"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        })
    );
    let (code, body) = get(&router, "/configz", &[JANE], Peer::default()).await;
    assert_eq!((code, body.as_str()), (200, r#"{"cloudcontrollermanager.config.k8s.io":{"a":1}}"#));
    let (code, body) = get(&router, "/providers", &[JANE], Peer::default()).await;
    assert_eq!((code, body.as_str()), (200, r#"{"kind":"ProviderList"}"#));
}

#[tokio::test]
async fn a_service_is_explained_or_a_status_says_why_not() {
    let api = Api::default();
    let router = router(&api).await;
    let ask = async |path: &str| {
        let (code, body) = get(&router, path, &[JANE], Peer::default()).await;
        (code, serde_json::from_str::<Value>(&body).unwrap())
    };
    assert_eq!(ask("/services/default/web").await, (200, json!({ "namespace": "default", "name": "web" })));
    for (name, code, reason, message) in [
        ("gone", 404, "NotFound", "there is no Service default/gone"),
        ("away", 503, "ServiceUnavailable", "this process is not the leader"),
    ] {
        let (status, body) = ask(&format!("/services/default/{name}")).await;
        assert_eq!((status, &body["kind"], &body["reason"]), (code, &json!("Status"), &json!(reason)));
        assert_eq!((&body["message"], &body["code"]), (&json!(message), &json!(code)));
    }
    // The path that is authorized is the path that the client sent.
    assert_eq!(ask("/services/default/we%62").await.0, 200);
    let (_, asked) = api.asked.lock().unwrap().last().unwrap().clone();
    assert_eq!(asked["spec"]["nonResourceAttributes"]["path"], "/services/default/we%62");
}

#[rstest]
#[case::a_wrong_token("Bearer joe's", 401)]
#[case::another_scheme_is_no_credential("Token jane's", 403)]
#[tokio::test]
async fn an_invalid_credential_is_401(#[case] header: &str, #[case] expected: u16) {
    let router = router(&Api::default()).await;
    let (code, body) = get(&router, "/metrics", &[("authorization", header)], Peer::default()).await;
    assert_eq!(code, expected, "{body}");
    assert!(body.contains("\"kind\":\"Status\"") && !body.contains("joe's"), "{body}");
}

/// As upstream, even where an anonymous request would be allowed.
#[tokio::test]
async fn a_wrong_token_is_401_on_public_paths_too() {
    let router = router(&Api::default()).await;
    assert_eq!(get(&router, "/healthz", &[("authorization", "Bearer joe's")], Peer::default()).await.0, 401);
}

#[tokio::test]
async fn i3_failing_authorization_is_500_and_health_still_answers() {
    let (good, broken) = (Api::default(), Api { broken: true, ..Api::default() });
    let reviewers = Reviewers { authentication: Some(good.client()), authorization: Some(broken.client()) };
    let router = router_with(&skip_lookup(), reviewers).await.unwrap();
    assert_eq!(get(&router, "/healthz", &[], Peer::default()).await.0, 200);
    let (code, body) = get(&router, "/metrics", &[], Peer::default()).await;
    assert_eq!(code, 500, "{body}");
    assert_eq!(get(&router, "/metrics", &[JANE], Peer::default()).await.0, 500);
}

#[tokio::test(start_paused = true)]
async fn answers_of_the_api_server_are_cached_for_their_ttl() {
    let api = Api::default();
    let router = router(&api).await;
    let stranger = ("authorization", "Bearer joe's");
    for _ in 0..3 {
        assert_eq!(get(&router, "/metrics", &[JANE], Peer::default()).await.0, 200);
        assert_eq!(get(&router, "/metrics", &[stranger], Peer::default()).await.0, 401);
        assert_eq!(get(&router, "/metrics", &[], Peer::default()).await.0, 403);
    }
    assert_eq!(api.asked().len(), 4, "two tokens, two decisions: {:?}", api.asked());
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(get(&router, "/metrics", &[JANE], Peer::default()).await.0, 200);
    assert_eq!(api.asked().len(), 6);
}

/// Regression: the reviews of all addresses waited in one queue.
#[rstest]
#[case::of_tokens("/metrics", "Bearer endless")]
#[case::of_paths("/endless", "no token")]
#[tokio::test(start_paused = true)]
async fn a_flood_from_one_address_does_not_delay_another_and_is_answered_429(#[case] path: &str, #[case] header: &str) {
    let router = router(&Api::default()).await;
    let flood = (0..2 * REVIEWS.all).map(|_| {
        let request = Request::get(path).header("authorization", header).extension(address(2));
        router.clone().oneshot(request.body(Body::empty()).unwrap())
    });
    let other = async {
        let begin = Instant::now();
        (get(&router, "/metrics", &[JANE], Peer::default()).await.0, begin.elapsed())
    };
    let (flood, other) = join(join_all(flood), other).await;
    assert_eq!(other, (200, Duration::ZERO));
    let refused: Vec<_> = flood.into_iter().map(Result::unwrap).filter(|answer| answer.status() == 429).collect();
    assert_eq!(refused.len(), 2 * REVIEWS.all - REVIEWS.address);
    assert!(refused.iter().all(|answer| answer.headers()["retry-after"] == "1"));
}

/// Regression: each request that had waited for a place sent the same review again.
#[tokio::test(start_paused = true)]
async fn requests_with_one_token_that_wait_for_places_take_the_answer_of_the_first() {
    let api = Api::default();
    let router = router(&api).await;
    let all = (0..4 * REVIEWS.address).map(|_| get(&router, "/metrics", &[JANE], Peer::default()));
    assert!(join_all(all).await.into_iter().all(|(status, _)| status == 200));
    let reviews = api.asked().into_iter().filter(|path| path.contains("tokenreviews")).count();
    assert!(reviews <= REVIEWS.address, "{reviews} reviews of one token");
}

#[tokio::test]
async fn a_failed_review_is_not_cached() {
    let api = Api { broken: true, ..Api::default() };
    let router = router(&api).await;
    for _ in 0..2 {
        assert_eq!(get(&router, "/metrics", &[JANE], Peer::default()).await.0, 401);
    }
    assert_eq!(api.asked().len(), 2);
}

#[tokio::test]
async fn a_client_certificate_is_accepted_by_its_ca_and_system_masters_may_do_everything() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, file) = (Authority::new("ca"), folder.path().join("ca.crt"));
    ca.write(&file);
    let options = AuthenticationOptions { client_ca_file: Some(file), ..skip_lookup() };
    let router = router_with(&options, Reviewers::default()).await.unwrap();
    assert_eq!(get(&router, "/metrics", &[], ca.client("root", &["system:masters"]).peer()).await.0, 200);
    let (code, body) = get(&router, "/metrics", &[], ca.client("joe", &["users"]).peer()).await;
    assert!(code == 403 && body.contains("joe"), "{body}");
    let stranger = Authority::new("ca").client("root", &["system:masters"]).peer();
    assert_eq!(get(&router, "/metrics", &[], stranger).await.0, 401);
}

fn published(client: &Authority, proxy: &Authority) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system", "resourceVersion": "1"},
        "data": {
            "client-ca-file": client.pem(),
            "requestheader-client-ca-file": proxy.pem(),
            "requestheader-allowed-names": "[\"front-proxy\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
        },
    })
}

#[tokio::test]
async fn certificate_authorities_that_the_cluster_publishes_are_trusted() {
    let (client, proxy) = (Authority::new("ca"), Authority::new("front-proxy-ca"));
    let api = Api { config_map: Some(published(&client, &proxy)), ..Api::default() };
    let router = router_with(&AuthenticationOptions::default(), api.reviewers()).await.unwrap();
    assert_eq!(get(&router, "/metrics", &[], client.client("root", &["system:masters"]).peer()).await.0, 200);
    let headers = [("x-remote-user", "joe"), ("x-remote-group", "system:masters")];
    assert_eq!(get(&router, "/metrics", &headers, proxy.client("front-proxy", &[]).peer()).await.0, 200);
    assert_eq!(get(&router, "/metrics", &headers, proxy.client("other", &[]).peer()).await.0, 401);
    assert_eq!(get(&router, "/metrics", &headers, Peer::default()).await.0, 403, "headers alone are nothing");
    let user = client.client("joe", &[]).peer();
    assert_eq!(get(&router, "/metrics", &headers, user).await.0, 403, "a user is no proxy");
}

/// On an API server with watches: certificate authorities are trusted when they are published, and
/// no longer after they are removed.
#[tokio::test]
async fn i3_changes_of_the_published_certificate_authorities_are_followed() {
    let client = skysail_dev::api::ApiServer::new(&skysail_dev::api::ApiOptions::default()).client();
    let reviewers = Reviewers { authentication: Some(client.clone()), authorization: None };
    let guard =
        Guard::new(&AuthenticationOptions::default(), AuthorizationOptions::default(), reviewers).await.unwrap();
    let router = endpoints().router(Arc::clone(&guard));
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(guard.follow(stop.clone()));
    let ca = Authority::new("ca");
    let root = ca.client("root", &["system:masters"]).peer();
    assert_eq!(get(&router, "/metrics", &[], root.clone()).await.0, 403, "no authority: no certificate counts");
    assert_eq!(get(&router, "/metrics", &[JANE], Peer::default()).await.0, 401, "this API server knows no token");
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client, "kube-system");
    let map: ConfigMap = serde_json::from_value(published(&ca, &Authority::new("front-proxy-ca"))).unwrap();
    let map = ConfigMap { metadata: ObjectMeta { resource_version: None, ..map.metadata.clone() }, ..map };
    maps.create(&PostParams::default(), &map).await.unwrap();
    wait_for(&router, &root, 200).await;
    maps.delete("extension-apiserver-authentication", &DeleteParams::default()).await.unwrap();
    wait_for(&router, &root, 403).await;
    stop.cancel();
    tasks.join_all().await;
}

async fn wait_for(router: &Router, peer: &Peer, status: u16) {
    let looks = async {
        while get(router, "/metrics", &[], peer.clone()).await.0 != status {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.unwrap_or_else(|_| panic!("{status} should come"));
}

#[tokio::test]
async fn an_unreadable_list_of_names_does_not_allow_every_name() {
    let (client, proxy) = (Authority::new("ca"), Authority::new("front-proxy-ca"));
    let mut map = published(&client, &proxy);
    map["data"]["requestheader-allowed-names"] = json!("front-proxy");
    let api = Api { config_map: Some(map), ..Api::default() };
    let router = router_with(&AuthenticationOptions::default(), api.reviewers()).await.unwrap();
    let headers = [("x-remote-user", "joe"), ("x-remote-group", "system:masters")];
    assert_eq!(get(&router, "/metrics", &headers, proxy.client("front-proxy", &[]).peer()).await.0, 401);
}

#[tokio::test]
async fn a_failed_lookup_aborts_the_start_unless_it_is_tolerated_or_skipped() {
    let api = Api { broken: true, ..Api::default() };
    let start = async |options| router_with(&options, api.reviewers()).await;
    let error = start(AuthenticationOptions::default()).await.unwrap_err().to_string();
    assert!(error.contains("extension-apiserver-authentication-reader"), "{error}");
    drop(
        start(AuthenticationOptions { tolerate_lookup_failure: true, ..AuthenticationOptions::default() })
            .await
            .unwrap(),
    );
    drop(start(skip_lookup()).await.unwrap());
    let absent = Api::default();
    drop(router_with(&AuthenticationOptions::default(), absent.reviewers()).await.unwrap());
}

#[tokio::test]
async fn the_log_level_is_set_by_put_and_an_invalid_one_is_400() {
    let router = router(&Api::default()).await;
    let put = |body: String| Request::put("/debug/flags/v").header(JANE.0, JANE.1).body(body.into()).unwrap();
    assert_eq!(send(&router, put("4\n".to_owned())).await, (200, "level 4\n".to_owned()));
    assert_eq!(send(&router, put("x".to_owned())).await, (400, "no\n".to_owned()));
    assert_eq!(send(&router, put("x".repeat(2000))).await.0, 413);
    assert_eq!(get(&router, "/debug/flags/v", &[JANE], Peer::default()).await.0, 405);
}

#[tokio::test]
async fn the_answer_of_pprof_explains_that_it_is_gos_profiler() {
    let router = router(&Api::default()).await;
    for path in ["/debug/pprof/", "/debug/pprof/heap"] {
        let (code, body) = get(&router, path, &[JANE], Peer::default()).await;
        assert!(code == 404 && body.contains("Go's profiler"), "{body}");
    }
}

/// Upstream's inner handler answers for a single check, but its server registers only the exact
/// path, as this one does.
#[tokio::test]
async fn o10_the_path_of_a_single_check_is_404() {
    let router = router(&Api::default()).await;
    assert_eq!(get(&router, "/healthz/ping", &[JANE], Peer::default()).await.0, 404);
}
