//! The settings of one provider, independent of the serving release: name, limits, cloud-config,
//! HTTP client, places for calls.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use skysail_slot::Drain;
use tokio::sync::Semaphore;

use crate::{
    CallRecorder, Engine, Limits, LimitsError,
    engine::{Allocation, EngineError, Placement},
    epoch::Ticking,
    http_client::HttpClient,
    limits::{CALLS_WAITING_MAX, as_usize},
};

/// Concurrent admissions of releases: a slot admits one release at a time.
const ADMISSIONS_MAX: usize = 1;

/// The settings for a new [`Sandbox`].
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// The provider's name in the provider file: label of every metric and record.
    pub name: String,
    /// The limits of the provider.
    pub limits: Limits,
    /// The cloud-config; empty if the operator configured none.
    pub config: String,
    /// The provider's HTTP client, created with [`Limits::http`]; none if the operator allows no
    /// request.
    pub http: Option<Arc<HttpClient>>,
}

/// The sandbox could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A limit is out of its range.
    #[error("provider {provider}: a limit is outside its range")]
    Limits {
        /// The provider's name.
        provider: String,
        /// The wrong limits and their ranges.
        #[source]
        source: LimitsError,
    },
    /// No engine for these limits.
    #[error("provider {provider}: cannot create a wasmtime engine")]
    Engine {
        /// The provider's name.
        provider: String,
        /// Why.
        #[source]
        source: EngineError,
    },
}

/// The settings and the shared state of one configured provider. Several releases can use it one
/// after another.
pub struct Sandbox {
    name: Arc<str>,
    limits: Limits,
    config: String,
    http: Option<Arc<HttpClient>>,
    placement: Placement,
    places: Semaphore,
    place_for_admission: Semaphore,
    waiting: AtomicU32,
    recorder: CallRecorder,
    drain: Drain,
}

impl Sandbox {
    /// Creates the sandbox and reserves its places in the engine's pool.
    ///
    /// # Errors
    /// [`SandboxError`] for a limit out of its range.
    pub fn new(engine: &Engine, recorder: CallRecorder, options: SandboxOptions) -> Result<Arc<Self>, SandboxError> {
        let SandboxOptions { name, limits, config, http } = options;
        if let Err(source) = limits.validate() {
            return Err(SandboxError::Limits { provider: name, source });
        }
        let calls = as_usize(limits.concurrent_calls);
        let placement = engine
            .place(limits.stack_bytes, u32::try_from(calls.saturating_add(ADMISSIONS_MAX)).unwrap_or(u32::MAX))
            .map_err(|source| SandboxError::Engine { provider: name.clone(), source })?;
        tracing::debug!(provider.name = name, allocation = placement.allocation.name(), "sandbox made");
        let name = name.into();
        recorder.metrics().keep(&name);
        Ok(Arc::new(Self {
            name,
            config,
            http,
            placement,
            places: Semaphore::new(calls),
            place_for_admission: Semaphore::new(ADMISSIONS_MAX),
            waiting: AtomicU32::new(0),
            recorder,
            limits,
            drain: Drain::default(),
        }))
    }

    /// The provider's name in the provider file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limits of the provider.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The cloud-config that guests read.
    #[must_use]
    pub fn config(&self) -> &str {
        &self.config
    }

    /// How this provider's guests are allocated.
    #[must_use]
    pub const fn allocation(&self) -> Allocation {
        self.placement.allocation
    }

    /// The epoch ticks while the result exists.
    pub(crate) fn ticking(&self) -> Ticking {
        self.placement.ticking()
    }

    /// The engine that runs this provider's components.
    #[must_use]
    pub const fn wasmtime(&self) -> &wasmtime::Engine {
        &self.placement.engine
    }

    /// The recorder of this provider's calls.
    #[must_use]
    pub const fn recorder(&self) -> &CallRecorder {
        &self.recorder
    }

    pub(crate) const fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) const fn http(&self) -> Option<&Arc<HttpClient>> {
        self.http.as_ref()
    }

    pub(crate) const fn places(&self) -> &Semaphore {
        &self.places
    }

    /// Tells the calls in this sandbox when to end, after new settings have replaced the sandbox.
    pub(crate) const fn drain(&self) -> &Drain {
        &self.drain
    }

    pub(crate) const fn place_for_admission(&self) -> &Semaphore {
        &self.place_for_admission
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts one more call that waits for a place; none if too many wait.
    pub(crate) fn wait(&self) -> Option<Waiting<'_>> {
        let waiting = Waiting(&self.waiting);
        (self.waiting.fetch_add(1, Ordering::Relaxed) < CALLS_WAITING_MAX).then_some(waiting)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.recorder.metrics().release(&self.name);
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One call that waits for a place.
pub(crate) struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
