//! Credentials that need a login, against a server that is the issuer and the cloud.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::future::join_all;
use skysail_provider::{Call, Fence};
use tokio::time::{advance, pause, resume};

use super::{
    Answers, FailureKind, HttpBudget, HttpClient, HttpLimits, Instant, Reply, Server, TOKEN, budget, client,
    credentials, get, header, local_egress, ok, send, sent, with_credential, with_header,
};
use crate::{
    credentials::{Credentials, LoginError, Secret, ServiceAccountTokenSpec},
    http_client::ServiceAccountTokens,
};

/// Longer than the time between two logins because of a rejected token.
const LATER: Duration = Duration::from_secs(60);

/// What the issuer and the cloud do, and what they have seen.
#[derive(Default)]
struct Cloud {
    logins: AtomicUsize,
    /// Tokens below this number are not valid.
    first_valid: AtomicU64,
    /// The status of the issuer's answers, if it is not 201.
    login_status: AtomicU64,
}

impl Cloud {
    fn logins(&self) -> usize {
        self.logins.load(Ordering::SeqCst)
    }

    fn answer(&self, request: &str) -> Reply {
        let path = request.split(' ').nth(1).unwrap();
        match path {
            "/v3/auth/tokens" => self.keystone(request),
            "/sdk" if request.contains("<Login ") => {
                let number = self.logins.fetch_add(1, Ordering::SeqCst) + 1;
                with_headers(200, &format!("set-cookie: vmware_soap_session=\"soap-{number}\"; Path=/; Secure\r\n"), "")
            }
            "/sdk" => match number_after(request, "cookie: vmware_soap_session=\"soap-") {
                Some(number) if number >= self.first_valid.load(Ordering::SeqCst) => ok(&format!("soap-{number}")),
                _ => with_headers(500, "", "<NotAuthenticatedFault/>"),
            },
            // The guest asks for its session; vCenter Server repeats the id.
            "/rest/com/vmware/cis/session" if !request.contains("authorization: Basic ") => {
                with_headers(200, "vmware-api-session-id: rest-9\r\n", "{}")
            }
            "/rest/com/vmware/cis/session" => {
                let number = self.logins.fetch_add(1, Ordering::SeqCst) + 1;
                with_headers(
                    201,
                    &format!("vmware-api-session-id: rest-{number}\r\n"),
                    &format!(r#"{{"value": "rest-{number}"}}"#),
                )
            }
            "/api/vm" => self.cloud(request, "vmware-api-session-id: rest-"),
            _ => self.cloud(request, "x-auth-token: token-"),
        }
    }

    fn keystone(&self, request: &str) -> Reply {
        // A request that names a token would be one of the guest.
        if request.contains("x-auth-token") {
            return with_headers(201, "x-subject-token: another-token\r\n", "{}");
        }
        let number = self.logins.fetch_add(1, Ordering::SeqCst) + 1;
        match self.login_status.load(Ordering::SeqCst) {
            0 => with_headers(
                201,
                &format!("x-subject-token: token-{number}\r\n"),
                r#"{"token": {"issued_at": "2026-11-25T10:00:00Z", "expires_at": "2026-11-25T11:00:00Z"}}"#,
            ),
            // A careless issuer repeats what it was sent.
            // The second time where the text is cut.
            status => {
                let long = "x".repeat(183);
                with_headers(status, "", &format!(r#"{{"error": {{"message": "wrong: {TOKEN} {long}{TOKEN}"}}}}"#))
            }
        }
    }

    /// Repeats the whole request, as a debug page does.
    fn cloud(&self, request: &str, name: &str) -> Reply {
        match number_after(request, name) {
            Some(number) if number >= self.first_valid.load(Ordering::SeqCst) => ok(request),
            _ => with_headers(401, "", request),
        }
    }
}

fn number_after(request: &str, text: &str) -> Option<u64> {
    let rest = request.split_once(text)?.1;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn with_headers(status: u64, headers: &str, body: &str) -> Reply {
    Reply::Whole(format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

async fn start() -> (Server, Arc<Cloud>) {
    let cloud = Arc::new(Cloud::default());
    let of_server = Arc::clone(&cloud);
    (Server::start(move |request| of_server.answer(request)).await, cloud)
}

fn keystone(server: &Server, user: &str) -> String {
    keystone_at(&server.address.to_string(), &server.address.to_string(), user)
}

fn keystone_at(cloud: &str, issuer: &str, user: &str) -> String {
    format!(
        r#"{{"api": {{"origins": ["http://{cloud}"], "keystone": {{
            "authUrl": "http://{issuer}/v3",
            "password": {{"user": {{"id": "{user}"}}, "password": {{"env": "TOKEN"}}, "project": {{"id": "k8s"}}}}
        }}}}}}"#
    )
}

fn keystone_client(server: &Server) -> (HttpClient, Arc<Credentials>) {
    let credentials = credentials(&keystone(server, "ccm"));
    (client(&local_egress(server), Arc::clone(&credentials), Answers::new(&[])), credentials)
}

/// Lets the time pass, without the pause that would also end the timeouts of the sockets.
async fn pass(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

#[tokio::test]
async fn requests_share_one_login_and_none_shows_the_token() {
    let (server, cloud) = start().await;
    let (client, credentials) = keystone_client(&server);
    let requests = (0..20).map(|_| send(&client, with_credential(get(server.url("/servers")), "api")));
    for answer in join_all(requests).await {
        let answer = answer.unwrap();
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 200 && body.contains("x-auth-token: [redacted]"), "{body}");
    }
    assert_eq!(cloud.logins(), 1);
    assert_eq!(credentials.redact(&format!("token-1 {TOKEN}")), "[redacted] [redacted]");
    assert!(!format!("{credentials:?}").contains("token-1"));
}

#[tokio::test]
async fn a_rejected_token_is_renewed_once_and_the_request_repeated_once() {
    let (server, cloud) = start().await;
    let (client, credentials) = keystone_client(&server);
    let request = || with_credential(get(server.url("/servers")), "api");
    assert_eq!(send(&client, request()).await.unwrap().status, 200);
    cloud.first_valid.store(2, Ordering::SeqCst);
    pass(LATER).await;
    let answers = join_all((0..4).map(|_| send(&client, request()))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().status == 200));
    assert_eq!(cloud.logins(), 2);
    // Answers may still repeat the token before.
    assert_eq!(credentials.redact("token-1 token-2 token-3"), "[redacted] [redacted] token-3");
    let used = budget();
    assert_eq!(sent(&client, &used, request()).await.unwrap().status, 200);
    assert_eq!(used.usage().denied, 0);
}

#[tokio::test]
async fn a_cloud_that_always_answers_401_causes_one_login() {
    let (server, cloud) = start().await;
    let (client, _) = keystone_client(&server);
    cloud.first_valid.store(u64::MAX, Ordering::SeqCst);
    for _ in 0..10 {
        let used = budget();
        let answer = sent(&client, &used, with_credential(get(server.url("/servers")), "api")).await.unwrap();
        assert_eq!((answer.status, used.usage().denied), (401, 1));
    }
    assert_eq!(cloud.logins(), 1);
}

#[tokio::test]
async fn the_answer_of_the_cloud_stays_the_answer_where_no_other_token_can_be_had() {
    let (server, cloud) = start().await;
    let (client, _) = keystone_client(&server);
    let request = || with_credential(get(server.url("/servers")), "api");
    assert_eq!(send(&client, request()).await.unwrap().status, 200);
    cloud.first_valid.store(u64::MAX, Ordering::SeqCst);
    cloud.login_status.store(503, Ordering::SeqCst);
    pass(LATER).await;
    assert_eq!(send(&client, request()).await.unwrap().status, 401);
    cloud.first_valid.store(1, Ordering::SeqCst);
    assert_eq!(send(&client, request()).await.unwrap().status, 200, "the token is still in use");
    assert_eq!(cloud.logins(), 2);
}

#[tokio::test]
async fn a_refused_login_is_the_operator_s_fault_and_is_not_repeated_at_once() {
    let (server, cloud) = start().await;
    let (client, _) = keystone_client(&server);
    for (status, kind, denied) in
        [(401, FailureKind::CredentialRefused, 1), (503, FailureKind::CredentialUnavailable, 0)]
    {
        cloud.login_status.store(status, Ordering::SeqCst);
        let logins = cloud.logins();
        for _ in 0..3 {
            let used = budget();
            let failure = sent(&client, &used, with_credential(get(server.url("/servers")), "api")).await.unwrap_err();
            assert_eq!((failure.kind, used.usage().denied, used.usage().bytes_sent), (kind, denied, 0), "{failure}");
            let start =
                format!("credential \"api\": log in at http://{}/v3/auth/tokens: answered {status}", server.address);
            assert!(failure.message.starts_with(&start), "{failure}");
            assert!(failure.message.contains("wrong: [redacted]"), "{failure}");
            assert!(!failure.message.contains("t0p"), "{failure}");
        }
        assert_eq!(cloud.logins(), logins + 1);
        pass(LATER).await;
    }
    assert!(server.requests().iter().all(|request| request.starts_with("POST /v3/auth/tokens ")));
}

#[tokio::test]
async fn an_issuer_is_reached_only_at_an_address_that_the_operator_allows() {
    let (server, cloud) = start().await;
    let egress = r#"{"rules": [{"origins": ["http://cloud.example.com"]}]}"#;
    let named = format!("keystone.example.com:{}", server.address.port());
    for (issuer, answers, kind) in [
        (server.address.to_string(), &[][..], FailureKind::CredentialRefused),
        (named, &[&["127.0.0.1"][..]], FailureKind::CredentialRefused),
    ] {
        let json = keystone_at("cloud.example.com", &issuer, "ccm");
        let client = client(egress, credentials(&json), Answers::new(answers));
        let failure = send(&client, with_credential(get("http://cloud.example.com/"), "api")).await.unwrap_err();
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.message.contains("loopback"), "{failure}");
    }
    assert_eq!((cloud.logins(), server.connections()), (0, 0));
}

#[tokio::test]
async fn a_guest_neither_sets_the_token_s_header_nor_receives_a_token() {
    let (server, _) = start().await;
    let (client, _) = keystone_client(&server);
    for name in ["X-Auth-Token", "Authorization"] {
        let request = with_header(with_credential(get(server.url("/servers")), "api"), name, "mine");
        assert_eq!(send(&client, request).await.unwrap_err().kind, FailureKind::Malformed, "{name}");
    }
    // Keystone issues a further token to the owner of one.
    let request = with_credential(get(server.url("/v3/auth/tokens")), "api");
    let answer = send(&client, request).await.unwrap();
    assert_eq!((answer.status, header(&answer, "x-subject-token")), (201, None));
}

#[tokio::test]
async fn a_rotation_logs_in_again_only_with_other_values() {
    let (server, cloud) = start().await;
    let (client, credentials) = keystone_client(&server);
    let request = || with_credential(get(server.url("/servers")), "api");
    send(&client, request()).await.unwrap();
    for (user, logins, changed) in [("ccm", 1, 0), ("another", 2, 1), ("another", 2, 0)] {
        let rotation = credentials.rotation_to(&super::credentials(&keystone(&server, user))).unwrap();
        assert_eq!(credentials.exchange(rotation).len(), changed);
        send(&client, request()).await.unwrap();
        assert_eq!(cloud.logins(), logins, "{user}");
    }
}

#[tokio::test]
async fn vcenter_has_a_session_for_each_of_its_apis() {
    let (server, cloud) = start().await;
    let json = format!(
        r#"{{"api": {{"origins": ["http://{0}"], "vsphere": {{"url": "http://{0}", "username": "ccm", "password": {{"env": "TOKEN"}}}}}}}}"#,
        server.address
    );
    let credentials = credentials(&json);
    let client = client(&local_egress(&server), Arc::clone(&credentials), Answers::new(&[]));
    let get = |path: &str| send(&client, with_credential(get(server.url(path)), "api"));
    assert_eq!(get("/sdk").await.unwrap().body, "[redacted]");
    assert!(String::from_utf8_lossy(&get("/api/vm").await.unwrap().body).contains("[redacted]"));
    assert_eq!(cloud.logins(), 2);
    cloud.first_valid.store(3, Ordering::SeqCst);
    pass(LATER).await;
    assert_eq!(get("/sdk").await.unwrap().body, "[redacted]", "the fault of SOAP is not the answer");
    assert_eq!(cloud.logins(), 3);
    assert_eq!(get("/api/vm").await.unwrap().status, 200);
    // The tokens of one API do not displace those of the other.
    assert_eq!(credentials.redact("soap-1 rest-2 soap-3 rest-4"), "[redacted] [redacted] [redacted] [redacted]");
    let answer = get("/rest/com/vmware/cis/session").await.unwrap();
    assert_eq!(header(&answer, "vmware-api-session-id"), None);
}

struct Accounts;

#[async_trait]
impl ServiceAccountTokens for Accounts {
    async fn token(&self, account: &ServiceAccountTokenSpec) -> Result<Secret, LoginError> {
        match account.audience.as_str() {
            "sts" => Ok(Secret::new("account-token")),
            other => Err(LoginError::Refused(format!("the audience {other} is not allowed"))),
        }
    }
}

#[tokio::test]
async fn a_login_by_a_service_account_never_shows_its_token() {
    let server = Server::start(|request| {
        if request.contains("client_assertion=account-token") {
            with_headers(400, "", r#"{"error": "invalid_client", "error_description": "bad account-token"}"#)
        } else {
            with_headers(500, "", "")
        }
    })
    .await;
    for (audience, expected) in [
        ("sts", "answered 400 Bad Request: invalid_client: bad [redacted]; correct"),
        ("other", "the audience other is not allowed"),
    ] {
        let json = format!(
            r#"{{"api": {{"origins": ["http://{0}"], "oauth2": {{"tokenUrl": "http://{0}/token", "clientId": "ccm",
                "serviceAccountToken": {{"namespace": "a", "name": "b", "audience": "{audience}"}}}}}}}}"#,
            server.address
        );
        let egress = local_egress(&server);
        let client = |accounts| client(&egress, credentials(&json), Answers::new(&[])).with_accounts(accounts);
        let request = || with_credential(get(server.url("/")), "api");
        let failure = send(&client(Some(Arc::new(Accounts))), request()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::CredentialRefused);
        assert!(failure.message.contains(expected), "{failure}");
        let failure = send(&client(None), request()).await.unwrap_err();
        assert!(failure.message.contains("needs a cluster"), "{failure}");
    }
}

#[tokio::test]
async fn a_process_that_does_not_lead_logs_in_nowhere() {
    let (server, cloud) = start().await;
    let (client, _) = keystone_client(&server);
    let fence = Fence::until(|| Duration::from_secs(11), Duration::from_secs(10));
    let budget =
        HttpBudget::new(HttpLimits::default(), Some(Instant::now() + LATER), &Call { fence, ..Call::default() });
    let failure = sent(&client, &budget, with_credential(get(server.url("/servers")), "api")).await.unwrap_err();
    assert_eq!((failure.kind, cloud.logins()), (FailureKind::Fenced, 0));
}
