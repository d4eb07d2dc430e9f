//! An in-memory Kubernetes API: real enough for `kubectl`, kube-rs controllers and their tests.
//!
//! In process it is a `tower::Service` under a `kube::Client` ([`ApiServer::client`]); over HTTP
//! the same service listens on a loopback address ([`ApiServer::serve`]). Every request is one
//! synchronous step under one lock, the clock is tokio's, and uids come from a seed: under a paused
//! clock a run is exactly repeatable.
//!
//! In the fields that this project uses, the server must refuse what a real API server refuses and
//! look the same to a client. One suite (`tests/api`) runs against this server and a real one.
//!
//! Not implemented: authentication and authorization, admission webhooks, garbage collection by
//! owner, protobuf in answers (clients that prefer it accept JSON), subresources except `status`,
//! OpenAPI v2, CEL and patterns of custom resources, TLS, conversion webhooks. The server runs no
//! controllers of a cluster, with one exception: it empties a deleted Namespace.
//!
//! # Why not an existing one
//! kube-rs has none (kube-rs/kube #1108). The crate `kube-fake-client` is a store behind kube's
//! client without watches over HTTP, without server-side apply's ownership and without discovery,
//! so kubectl cannot use it and reflectors cannot be tested with compaction. The crate `envtest`
//! starts the real binaries through Go: that is what `tests/support` does, and it can neither pause
//! its clock nor ship inside `skysail dev`.

mod allocator;
pub(crate) mod clock;
mod codec;
mod custom;
mod defaults;
mod delete;
mod discovery;
mod errors;
mod events;
mod fault;
mod http;
mod kinds;
pub(crate) mod object;
mod openapi;
mod ownership;
mod patch;
mod protobuf;
mod random;
mod read;
mod request;
mod requests;
mod reviews;
mod schema;
mod selectors;
mod state;
mod store;
mod table;
mod validation;
mod watch;
mod write;

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use tokio_util::sync::CancellationToken;

pub use self::errors::ApiError;
pub use self::fault::{Fault, Faults, RequestInfo};
pub use self::http::ApiService;
pub use self::http::serve::Serving;
pub use self::requests::{REQUESTS_KEPT_MAX, Request, RequestLog};

use self::clock::Clock;
use self::state::State;

/// Options of an API server.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// The time of its clock at the start; after that it follows tokio's clock. Default:
    /// 2026-01-01T00:00:00Z.
    pub epoch: Timestamp,
    /// Seed of uids and generated names. Default: 0.
    pub seed: u64,
    /// Number of changes that are kept for watches and old lists, at least 1. Default: 10,000.
    pub history_max: usize,
    /// Service address ranges: one, or one for each family. Default: 10.96.0.0/12.
    pub service_cidrs: Vec<IpNet>,
    /// Node ports. Default: 30000 to 32767.
    pub node_ports: RangeInclusive<u16>,
    /// Whether new Nodes get the taint `node.kubernetes.io/not-ready`, as the admission plugin
    /// `TaintNodesByCondition` does. Default: false, because no controller here removes it.
    pub taint_new_nodes: bool,
    /// Whether objects are validated. Default: true. Without validation tests can use objects that
    /// violate every schema.
    pub validate: bool,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            epoch: Timestamp::constant(1_767_225_600, 0),
            seed: 0,
            history_max: 10_000,
            service_cidrs: vec![IpNet::V4(ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 96, 0, 0), 12))],
            node_ports: 30000..=32767,
            taint_new_nodes: false,
            validate: true,
        }
    }
}

/// An in-memory Kubernetes API server.
pub struct ApiServer {
    state: Mutex<State>,
    head: tokio::sync::watch::Sender<u64>,
    clock: Clock,
    requests: RequestLog,
    faults: Mutex<Option<Arc<dyn Faults>>>,
    watches: Mutex<CancellationToken>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("revision", &*self.head.borrow()).finish_non_exhaustive()
    }
}

/// The locked state; on release it notifies the watches of writes.
pub(crate) struct StateGuard<'a> {
    state: MutexGuard<'a, State>,
    head: &'a tokio::sync::watch::Sender<u64>,
}

impl std::ops::Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        let revision = self.state.store.revision();
        self.head.send_if_modified(|head| std::mem::replace(head, revision) != revision);
    }
}

impl ApiServer {
    /// Starts an empty cluster. Needs a tokio runtime only for its clock and watches.
    pub fn new(options: &ApiOptions) -> Arc<Self> {
        let clock = Clock::starting_at(options.epoch);
        let state = State::new(options, clock);
        let (head, _) = tokio::sync::watch::channel(state.store.revision());
        Arc::new(Self {
            state: Mutex::new(state),
            head,
            clock,
            requests: RequestLog::default(),
            faults: Mutex::new(None),
            watches: Mutex::new(CancellationToken::new()),
        })
    }

    /// The server as a `tower::Service`.
    pub fn service(self: &Arc<Self>) -> ApiService {
        ApiService(self.clone())
    }

    /// A client in process, whose default namespace is `default`.
    pub fn client(self: &Arc<Self>) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// A kubeconfig for `url`, with everything in one context.
    pub fn kubeconfig_yaml(url: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: skysail-dev\n  cluster:\n    server: {url:?}\nusers:\n\
             - name: skysail-dev\n  user: {{}}\ncontexts:\n- name: skysail-dev\n  context:\n    cluster: skysail-dev\n    \
             user: skysail-dev\ncurrent-context: skysail-dev\n"
        )
    }

    /// The log of requests so far.
    pub fn requests(&self) -> &RequestLog {
        &self.requests
    }

    /// Sets the hook that decides the fault of every request; `None` removes it.
    pub fn set_faults(&self, faults: Option<Arc<dyn Faults>>) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Compacts the history: watches from older resourceVersions and old pages get `410 Expired`.
    pub fn compact(&self) {
        self.state().store.compact();
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.state().store.revision()
    }

    /// Ends every watch, as a restart of an API server does; new ones may begin.
    pub fn end_watches(&self) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *watches).cancel();
    }

    pub(crate) fn state(&self) -> StateGuard<'_> {
        StateGuard { state: self.state.lock().unwrap_or_else(PoisonError::into_inner), head: &self.head }
    }

    pub(crate) fn head(&self) -> tokio::sync::watch::Receiver<u64> {
        self.head.subscribe()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Cancelled when the present watches must end.
    pub(crate) fn watches(&self) -> CancellationToken {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn judge(&self, info: &RequestInfo) -> Fault {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone();
        faults.map_or(Fault::None, |f| f.judge(info))
    }
}
