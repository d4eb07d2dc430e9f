//! The simulated cloud: machines, zones, routes, disks and load balancing behind an HTTP API, whose
//! virtual servers carry real TCP on loopback addresses.
//!
//! For `skysail dev`, demonstrations and tests. [`SimCloud`] is the cloud itself, driven from Rust;
//! [`SimCloud::serve`] puts its API (`/openapi.json` describes it) on a socket for a provider. Both
//! use one state. [`Knobs`] add latency, faults and limits at run time; with a seed the same
//! requests meet the same faults.
//!
//! It does not know Kubernetes; a provider connects the two. It listens on and connects to
//! 127.0.0.0/8 only.

mod backend;
mod error;
mod knobs;
mod listener;
pub mod model;
mod requests;
mod server;
mod state;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use serde::Serialize;
use tokio::{sync::broadcast, task::JoinSet, time::Instant};

use self::{backend::Program, model::VirtualServer, state::State};
pub use self::{
    error::CloudError,
    knobs::{Failures, Knobs},
    model::{Cluster, Instance, NewInstance, NewVolume, Power, Snapshot, Volume, Zone},
    requests::{REQUESTS_MAX, RequestRecord},
    server::SimServer,
};

/// Options of a simulated cloud.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Default: `zone-a`, `zone-b` and `zone-c` in `region-1`. The first one is the default of new
    /// machines.
    pub zones: Vec<Zone>,
    /// Default: none.
    pub clusters: Vec<Cluster>,
    /// Elastic IPs are the addresses after this one. Default 127.88.0.0.
    pub elastic_ips: Ipv4Addr,
    /// Number of elastic IPs. Default 254: a block of 256 without its first and last address.
    pub elastic_ips_max: u32,
    /// Machines' private addresses follow this one. Default 127.89.0.0.
    pub machines: Ipv4Addr,
    /// Initial knobs. Default: no latency and no faults.
    pub knobs: Knobs,
    /// The bearer token that may do everything in `/v1`. Default `sim-token`.
    pub token: String,
    /// The bearer token that may only read in `/v1`: writes are 403. Default `sim-read-only`.
    pub read_only_token: String,
    /// The bearer token for `/control`. Default `sim-admin`.
    pub admin_token: String,
}

/// A record was created, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `created`, `changed`, `deleted`, `started`, `stopped` or `added`.
    pub verb: &'static str,
    /// `instance`, `route`, `volume`, `elastic-ip`, `virtual-server` or `ssh-key`.
    pub kind: &'static str,
    /// ID of the record.
    pub id: String,
    /// The name for people: a name, or an address.
    pub name: String,
    /// The record's tags; an SSH key has none.
    pub tags: model::Tags,
}

/// The cloud; a clone is the same cloud. Dropping the last clone closes its listeners.
#[derive(Clone, Debug)]
pub struct SimCloud {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    tokens: Mutex<Tokens>,
    /// Requests in progress: each keeps the cloud alive until it has ended.
    carried_out: Mutex<JoinSet<()>>,
    start: Instant,
}

#[derive(Debug)]
struct Tokens {
    /// None between [`SimCloud::expire_token`] and [`SimCloud::renew_token`].
    full: Option<String>,
    base: String,
    renewals: u32,
    read_only: String,
    admin: String,
}

impl Default for SimOptions {
    fn default() -> Self {
        let zone = |name: &str| Zone { name: name.to_owned(), region: "region-1".to_owned() };
        Self {
            zones: ["zone-a", "zone-b", "zone-c"].map(zone).to_vec(),
            clusters: Vec::new(),
            elastic_ips: Ipv4Addr::new(127, 88, 0, 0),
            elastic_ips_max: 254,
            machines: Ipv4Addr::new(127, 89, 0, 0),
            knobs: Knobs::default(),
            token: "sim-token".to_owned(),
            read_only_token: "sim-read-only".to_owned(),
            admin_token: "sim-admin".to_owned(),
        }
    }
}

impl SimOptions {
    /// The defaults with separate addresses, so that the listeners of concurrent tests do not
    /// collide.
    #[must_use]
    pub fn isolated() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let [.., pid] = process::id().to_be_bytes();
        Self {
            elastic_ips: Ipv4Addr::new(127, 16 + pid % 64, count, 0),
            machines: Ipv4Addr::new(127, 128 + pid % 64, count, 0),
            ..Self::default()
        }
    }
}

impl SimCloud {
    /// An empty cloud.
    #[must_use]
    pub fn new(options: SimOptions) -> Self {
        let state = Mutex::new(State::new(&options));
        let SimOptions { token, read_only_token, admin_token, .. } = options;
        let tokens = Tokens {
            full: Some(token.clone()),
            base: token,
            renewals: 0,
            read_only: read_only_token,
            admin: admin_token,
        };
        let (tokens, carried_out) = (Mutex::new(tokens), Mutex::default());
        Self { shared: Arc::new(Shared { state, tokens, carried_out, start: Instant::now() }) }
    }

    /// Serves the API on this address while the [`SimServer`] lives. Port 0 lets the system choose.
    ///
    /// # Errors
    ///
    /// [`CloudError::PortInUse`], [`CloudError::PortNotPermitted`], [`CloudError::Listen`].
    #[expect(clippy::unused_async, reason = "has to be called within a runtime, and may have to wait later")]
    pub async fn serve(&self, address: SocketAddr) -> Result<SimServer, CloudError> {
        SimServer::start(self.clone(), address)
    }

    /// Creates a running machine.
    ///
    /// # Errors
    ///
    /// [`CloudError::Conflict`] for a name that exists, [`CloudError::Invalid`],
    /// [`CloudError::Exhausted`].
    pub fn create_instance(&self, new: NewInstance) -> Result<Instance, CloudError> {
        self.state().create_instance(new)
    }

    /// Creates a running machine with this name and the defaults.
    ///
    /// # Errors
    ///
    /// As [`SimCloud::create_instance`].
    pub fn add_instance(&self, name: &str, zone: &str) -> Result<Instance, CloudError> {
        let zone = Some(zone.to_owned());
        let (name, tags) = (name.to_owned(), model::Tags::new());
        self.create_instance(NewInstance { name, zone, instance_type: None, public: false, tags })
    }

    /// Switches a machine off, if it is on: its programs end.
    ///
    /// # Errors
    ///
    /// [`CloudError::NotFound`].
    pub async fn stop_instance(&self, id: &str) -> Result<Instance, CloudError> {
        let (instance, programs) = self.state().stop_instance(id)?;
        stop_all(programs).await;
        Ok(instance)
    }

    /// Switches a machine on: its programs run again.
    ///
    /// # Errors
    ///
    /// [`CloudError::NotFound`], and as [`SimCloud::serve_backend`].
    #[expect(clippy::unused_async, reason = "listens: has to be called within a runtime")]
    pub async fn start_instance(&self, id: &str) -> Result<Instance, CloudError> {
        self.state().start_instance(id)
    }

    /// Deletes a machine with its programs.
    ///
    /// # Errors
    ///
    /// [`CloudError::NotFound`].
    pub async fn delete_instance(&self, id: &str) -> Result<(), CloudError> {
        let programs = self.state().delete_instance(id)?;
        stop_all(programs).await;
        Ok(())
    }

    /// Runs an HTTP server on the machine, if there is none, that answers with the machine's name
    /// and a newline. It stops and starts with the machine.
    ///
    /// # Errors
    ///
    /// [`CloudError::NotFound`], [`CloudError::PortInUse`], [`CloudError::PortNotPermitted`],
    /// [`CloudError::Listen`], [`CloudError::Exhausted`].
    #[expect(clippy::unused_async, reason = "listens: has to be called within a runtime")]
    pub async fn serve_backend(&self, id: &str, port: u16) -> Result<SocketAddr, CloudError> {
        self.state().serve_backend(id, port)
    }

    /// Stops the server of [`SimCloud::serve_backend`]; when this returns, the port is free. An
    /// absent server is not an error.
    ///
    /// # Errors
    ///
    /// [`CloudError::NotFound`].
    pub async fn end_backend(&self, id: &str, port: u16) -> Result<(), CloudError> {
        let program = self.state().end_backend(id, port)?;
        stop_all(program.into_iter().collect()).await;
        Ok(())
    }

    /// Creates a disk.
    ///
    /// # Errors
    ///
    /// [`CloudError::Invalid`], [`CloudError::Exhausted`].
    pub fn create_volume(&self, new: NewVolume) -> Result<Volume, CloudError> {
        self.state().create_volume(new)
    }

    /// All present records of the cloud.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.state().snapshot()
    }

    /// The present knobs, with the remaining planned failures.
    #[must_use]
    pub fn knobs(&self) -> Knobs {
        self.state().faults.knobs().clone()
    }

    /// Replaces the settings; the random numbers start again from the seed.
    ///
    /// # Errors
    ///
    /// The name of the knob that is out of range; then nothing changed.
    pub fn set_knobs(&self, knobs: Knobs) -> Result<(), CloudError> {
        knobs.check().map_err(CloudError::Invalid)?;
        self.state().faults = knobs::Faults::new(knobs);
        Ok(())
    }

    /// Number of requests to `/v1` so far.
    #[must_use]
    pub fn requests_count(&self) -> u64 {
        self.state().requests.count()
    }

    /// The last [`REQUESTS_MAX`] answered requests to `/v1`, in the order of their answers.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.state().requests.all()
    }

    /// The requests to `/v1` that are not answered yet, whether or not the client still waits.
    #[must_use]
    pub fn requests_under_way(&self) -> Vec<RequestRecord> {
        self.state().requests.under_way()
    }

    /// Empties the log of requests; the numbering continues.
    pub fn clear_requests(&self) {
        self.state().requests.clear();
    }

    /// Number of requests to `/v1` since the start, by method and path of `openapi.json`:
    /// `GET /v1/instances/{id}`.
    #[must_use]
    pub fn request_counts(&self) -> BTreeMap<String, u64> {
        self.state().requests.counts()
    }

    /// Number of machines.
    #[must_use]
    pub fn instance_count(&self) -> usize {
        self.state().instances.len()
    }

    /// The name of each virtual server, with the number of its real servers. For large clouds,
    /// where a snapshot would be much larger.
    #[must_use]
    pub fn backend_counts(&self) -> Vec<(String, usize)> {
        self.state().backend_counts()
    }

    /// Number of virtual servers with a real server at this address.
    #[must_use]
    pub fn virtual_servers_behind(&self, address: Ipv4Addr) -> usize {
        self.state().virtual_servers_behind(address)
    }

    /// The changes from now on. A slow receiver gets the number of changes that it missed.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.state().changes.subscribe()
    }

    /// From now on the full token is refused with 401.
    pub fn expire_token(&self) {
        self.tokens().full = None;
    }

    /// Makes a new full token; the old one is refused with 401.
    #[must_use]
    pub fn renew_token(&self) -> String {
        let mut tokens = self.tokens();
        tokens.renewals += 1;
        let token = format!("{}-{}", tokens.base, tokens.renewals);
        tokens.full = Some(token.clone());
        token
    }

    /// Deletes a virtual server; when this returns, its connections are closed and its port is
    /// free.
    ///
    /// # Errors
    ///
    /// [`CloudError::NotFound`].
    pub async fn delete_virtual_server(&self, id: &str) -> Result<(), CloudError> {
        let listener = self.state().delete_virtual_server(id)?;
        listener.close().await;
        Ok(())
    }

    /// The virtual server that listens on this address.
    #[must_use]
    pub fn virtual_server(&self, address: Ipv4Addr, port: u16) -> Option<VirtualServer> {
        let servers = self.snapshot().virtual_servers;
        servers.into_iter().find(|server| server.address == address && server.port == port)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the future to completion, also when its caller is dropped.
    fn carry_out(&self, request: impl Future<Output = ()> + Send + 'static) {
        let mut carried_out = self.shared.carried_out.lock().unwrap_or_else(PoisonError::into_inner);
        while carried_out.try_join_next().is_some() {}
        carried_out.spawn(request);
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.shared.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn stop_all(programs: Vec<Program>) {
    for program in programs {
        program.stop().await;
    }
}

#[cfg(test)]
mod tests;
