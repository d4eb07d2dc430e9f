//! A fake registry on loopback without TLS, whose answers a test can replace.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use tokio::{net::TcpListener, task::JoinSet};

use crate::Digest;

/// Replaces an answer; `None` keeps the correct one.
type Say = Box<dyn Fn(&Asked) -> Option<Response> + Send + Sync>;

/// One received request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) method: String,
    /// The path with the query.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

#[derive(Default)]
struct Shared {
    /// What the server serves, by path.
    content: Mutex<BTreeMap<String, (Digest, Bytes)>>,
    asked: Mutex<Vec<Asked>>,
    say: Mutex<Option<Say>>,
}

pub(super) struct Server {
    /// `127.0.0.1:port`.
    pub(super) host: String,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let app = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { host, shared, _task: task }
    }

    /// Replaces answers from now on.
    pub(super) fn say(&self, say: impl Fn(&Asked) -> Option<Response> + Send + Sync + 'static) {
        *self.shared.say.lock().unwrap() = Some(Box::new(say));
    }

    /// The requests since the last call: `GET /v2/…`.
    pub(super) fn asked(&self) -> Vec<String> {
        self.requests().iter().map(|asked| format!("{} {}", asked.method, asked.path)).collect()
    }

    pub(super) fn requests(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.shared.asked.lock().unwrap())
    }

    pub(super) fn blob(&self, bytes: impl Into<Bytes>) -> Digest {
        let bytes = bytes.into();
        let digest = Digest::of(&bytes);
        self.put(format!("/v2/org/provider/blobs/{digest}"), digest, bytes);
        digest
    }

    pub(super) fn manifest(&self, tag: &str, text: impl Into<Bytes>) -> Digest {
        let text = text.into();
        let digest = Digest::of(&text);
        for name in [tag, &digest.to_string()] {
            self.put(format!("/v2/org/provider/manifests/{name}"), digest, text.clone());
        }
        digest
    }

    /// Stores a component in the CNCF layout under a tag; returns the manifest's digest.
    pub(super) fn component(&self, tag: &str, component: &'static str) -> Digest {
        let digest = self.blob(component);
        self.manifest(tag, manifest(&[("application/wasm", digest, component.len())]))
    }

    /// Moves the content of one path to another.
    pub(super) fn move_to(&self, from: &str, to: &str) {
        let mut content = self.shared.content.lock().unwrap();
        let found = content.remove(from).unwrap();
        content.insert(to.to_owned(), found);
    }

    /// The content of a path.
    pub(super) fn content(&self, path: &str) -> Bytes {
        self.shared.content.lock().unwrap().get(path).unwrap().1.clone()
    }

    fn put(&self, path: String, digest: Digest, bytes: Bytes) {
        self.shared.content.lock().unwrap().insert(path, (digest, bytes));
    }
}

/// The text of a manifest with these layers.
pub(super) fn manifest(layers: &[(&str, Digest, usize)]) -> String {
    let layer = |(kind, digest, size): &(&str, Digest, usize)| {
        format!(r#"{{"mediaType":"{kind}","digest":"{digest}","size":{size}}}"#)
    };
    let layers = layers.iter().map(layer).collect::<Vec<_>>().join(",");
    let config = Digest::of(b"{}");
    format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.wasm.config.v0+json","digest":"{config}","size":2}},"layers":[{layers}]}}"#
    )
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let asked = Asked { method: request.method().to_string(), path, headers: request.headers().clone() };
    shared.asked.lock().unwrap().push(asked.clone());
    if let Some(said) = shared.say.lock().unwrap().as_ref().and_then(|say| say(&asked)) {
        return said;
    }
    let found = shared.content.lock().unwrap().get(&asked.path).cloned();
    let Some((digest, bytes)) = found else { return StatusCode::NOT_FOUND.into_response() };
    let from = asked
        .header("range")
        .map(|range| range.trim_start_matches("bytes=").trim_end_matches('-').parse::<usize>().unwrap());
    let name = (header::HeaderName::from_static("docker-content-digest"), digest.to_string());
    match from {
        None => ([name], Body::from(bytes)).into_response(),
        Some(from) => {
            let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
            (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], bytes.slice(from..)).into_response()
        }
    }
}
