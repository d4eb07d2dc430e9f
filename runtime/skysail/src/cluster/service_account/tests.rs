//! Tests of a client with the identity of a `ServiceAccount`. A fake API server issues tokens and
//! answers each request with the token that it carried.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicU32, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, header::AUTHORIZATION};
use kube::{Client, client::Body};
use serde_json::json;
use tower::{BoxError, Layer as _, Service, ServiceExt as _, service_fn};

use super::ServiceAccountLayer;

/// The fake API server.
#[derive(Clone, Default)]
struct Server {
    asked: Arc<Mutex<Vec<String>>>,
    /// The account is missing until it is created, if this is not 0.
    missing: Arc<AtomicU32>,
    /// The status of the answer to a request for a token; 0 issues a token.
    broken: Arc<AtomicU16>,
    /// The status of the next answer to another request; 0 means 200.
    answer: Arc<AtomicU16>,
}

fn status(code: u16) -> Response<Body> {
    let text = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "x", "message": "m" });
    Response::builder().status(code).body(Body::from(text.to_string().into_bytes())).unwrap()
}

impl Server {
    fn tokens(&self) -> Client {
        let server = self.clone();
        let answer = move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let mut asked = server.asked.lock().unwrap();
            asked.push(format!("{} {path}", request.method()));
            let number = asked.iter().filter(|line| line.ends_with("/token")).count();
            let token = json!({ "spec": { "audiences": [], "expirationSeconds": 3600 },
                "status": { "token": format!("t{number}"), "expirationTimestamp": "2026-01-01T00:00:00Z" } });
            let broken = server.broken.load(Ordering::Relaxed);
            let missing = server.missing.load(Ordering::Relaxed);
            let answer = if !path.ends_with("/token") {
                server.missing.store(0, Ordering::Relaxed);
                Response::new(Body::from(json!({ "metadata": { "name": "n" } }).to_string().into_bytes()))
            } else if missing > 0 {
                status(404)
            } else if broken > 0 {
                status(broken)
            } else {
                Response::new(Body::from(token.to_string().into_bytes()))
            };
            std::future::ready(Ok::<_, BoxError>(answer))
        };
        Client::new(service_fn(answer), "default")
    }

    fn client(&self) -> impl Service<Request<()>, Response = Response<String>, Error = BoxError> {
        let code = Arc::clone(&self.answer);
        // Answers with the credentials of the request.
        let inner = service_fn(move |request: Request<()>| {
            let header = request.headers().get(AUTHORIZATION).map(|it| it.to_str().unwrap().to_owned());
            let code = code.swap(0, Ordering::Relaxed);
            let code = if code == 0 { 200 } else { code };
            let answer = Response::builder().status(code).body(header.unwrap_or_default()).unwrap();
            std::future::ready(Ok::<_, BoxError>(answer))
        });
        ServiceAccountLayer::new(self.tokens(), "node-controller").layer(inner)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

async fn ask(client: &mut impl Service<Request<()>, Response = Response<String>, Error = BoxError>) -> String {
    match client.ready().await.unwrap().call(Request::new(())).await {
        Ok(answer) => answer.into_body(),
        Err(error) => error.to_string(),
    }
}

const TOKEN: &str = "POST /api/v1/namespaces/kube-system/serviceaccounts/node-controller/token";

#[tokio::test(start_paused = true)]
async fn a_new_token_is_fetched_after_four_fifths_of_the_lifetime() {
    let server = Server::default();
    let mut client = server.client();
    assert_eq!(ask(&mut client).await, "Bearer t1");
    tokio::time::advance(Duration::from_secs(2879)).await;
    assert_eq!(ask(&mut client).await, "Bearer t1");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ask(&mut client).await, "Bearer t2");
    assert_eq!(server.asked(), [TOKEN, TOKEN]);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_missing_is_created() {
    let server = Server::default();
    server.missing.store(1, Ordering::Relaxed);
    assert_eq!(ask(&mut server.client()).await, "Bearer t2");
    assert_eq!(server.asked(), [TOKEN, "POST /api/v1/namespaces/kube-system/serviceaccounts", TOKEN]);
}

#[tokio::test(start_paused = true)]
async fn without_a_new_token_the_old_one_is_used_until_it_expires_and_then_requests_fail_with_the_reason() {
    let server = Server::default();
    let mut client = server.client();
    ask(&mut client).await;
    server.broken.store(403, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(2900)).await;
    assert_eq!(ask(&mut client).await, "Bearer t1");
    assert_eq!(ask(&mut client).await, "Bearer t1");
    assert_eq!(server.asked().len(), 2, "the client fetched again at once");
    tokio::time::advance(Duration::from_secs(700)).await;
    let error = ask(&mut client).await;
    assert!(error.starts_with("cannot fetch a token of the ServiceAccount kube-system/node-controller: "), "{error}");
    server.broken.store(0, Ordering::Relaxed);
    assert!(ask(&mut client).await.starts_with("Bearer t"));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_api_server_rejected_is_not_used_again() {
    let server = Server::default();
    let mut client = server.client();
    server.answer.store(401, Ordering::Relaxed);
    assert_eq!(ask(&mut client).await, "Bearer t1");
    assert_eq!(ask(&mut client).await, "Bearer t2");
}
