//! The environment of a test: an API server, a client and a namespace.

use std::sync::OnceLock;

use http::Request;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use skysail_dev::api::{ApiOptions, ApiServer, Serving};
use skysail_test_support::apiserver;

/// The environment of one test.
pub(crate) struct Env {
    pub(crate) client: kube::Client,
    /// A namespace, and a prefix for cluster-scoped names, that no other test uses.
    pub(crate) ns: String,
    pub(crate) kubeconfig: String,
    embedded: Option<(std::sync::Arc<ApiServer>, Serving)>,
}

/// An answer: status, decoded body (null where it is no JSON), warnings.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Env {
    /// The in-memory server, new for each test.
    pub(crate) async fn embedded(test: &str) -> Self {
        let epoch = k8s_openapi::jiff::Timestamp::now();
        let server = ApiServer::new(&ApiOptions { epoch, ..ApiOptions::default() });
        let serving = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
        let kubeconfig = ApiServer::kubeconfig_yaml(&serving.url());
        let env = Self { client: server.client(), ns: name(test), kubeconfig, embedded: Some((server, serving)) };
        env.make_namespace().await;
        env
    }

    /// The real server, one for all tests of this process.
    pub(crate) async fn real(test: &str) -> Self {
        static REAL: OnceLock<Result<apiserver::ApiServer, String>> = OnceLock::new();
        let started = tokio::task::spawn_blocking(|| {
            REAL.get_or_init(|| apiserver::ApiServer::start().map_err(|e| format!("{e:#}")))
        });
        let server = started.await.unwrap().as_ref().unwrap_or_else(|e| panic!("no real API server: {e}"));
        let kubeconfig = server.kubeconfig_yaml();
        let parsed = Kubeconfig::from_yaml(&kubeconfig).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.unwrap();
        // The answers are under test, 503 and 504 among them.
        config.default_retry = false;
        let client = kube::Client::try_from(config).unwrap();
        let env = Self { client, ns: name(test), kubeconfig, embedded: None };
        env.make_namespace().await;
        env
    }

    async fn make_namespace(&self) {
        let body = json!({"metadata": {"name": self.ns}});
        assert_eq!(self.post("/api/v1/namespaces", &body).await.code, 201, "the namespace of the test");
    }

    /// Compacts the history of the in-memory server; a real server has none before its first
    /// revision.
    pub(crate) fn compact(&self) {
        if let Some((server, _)) = &self.embedded {
            server.compact();
        }
    }

    /// The path of a namespaced core resource.
    pub(crate) fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.ns)
    }

    pub(crate) async fn send(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", "application/json")
            .header("user-agent", "suite/1.0")
            .body(Body::from(bytes))
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().to_owned()).collect();
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_default(), warnings }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "application/json", &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "application/json", body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, "application/json", body).await
    }

    pub(crate) async fn delete(&self, path: &str, body: &Value) -> Answer {
        self.send("DELETE", path, "application/json", body).await
    }

    /// A patch: `json`, `merge`, `strategic` or `apply`.
    pub(crate) async fn patch(&self, format: &str, path: &str, body: &Value) -> Answer {
        let content_type = match format {
            "json" => "application/json-patch+json",
            "merge" => "application/merge-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            _ => "application/apply-patch+yaml",
        };
        self.send("PATCH", path, content_type, body).await
    }
}

impl Answer {
    /// The body of a success; anything else fails the test with the answer.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, self.body);
        self.body
    }

    /// Code, reason and message of a refusal.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16, reason: &str, message: &str) {
        let said = self.body["message"].as_str().unwrap_or_default();
        assert_eq!((self.code, self.body["reason"].as_str().unwrap_or_default()), (code, reason), "{}", self.body);
        assert!(said.contains(message), "{said:?} must contain {message:?}");
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["code"], code);
    }
}

/// A name for a namespace from the name of a test.
fn name(test: &str) -> String {
    test.replace('_', "-").chars().take(63).collect()
}

/// A ConfigMap.
pub(crate) fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// The names in a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}
