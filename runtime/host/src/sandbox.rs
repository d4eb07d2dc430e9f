//! What one provider has for as long as it is configured, whichever release serves: name, limits,
//! cloud-config, HTTP client, places.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::sync::Semaphore;

use crate::{
    CallRecorder, Engine, Limits, LimitsError,
    engine::{Allocation, EngineError, Placement},
    http_client::HttpClient,
    limits::{CALLS_WAITING_MAX, as_usize},
    slot::Drain,
};

/// Releases that may be asked at once whether they may serve: a slot asks one after another.
const ADMISSIONS_MAX: usize = 1;

/// How a [`Sandbox`] is made.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// The provider's name in the provider file: label of every metric and record.
    pub name: String,
    /// What the provider may use.
    pub limits: Limits,
    /// The cloud-config; empty where the operator gave none.
    pub config: String,
    /// The provider's HTTP client, made with [`Limits::http`]; none where the operator allows no
    /// request.
    pub http: Option<Arc<HttpClient>>,
}

/// The sandbox could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A limit is out of its range.
    #[error("the limits of provider {provider} are wrong")]
    Limits {
        /// Its name.
        provider: String,
        /// Which, and what they may be.
        #[source]
        source: LimitsError,
    },
    /// No engine for these limits.
    #[error("no engine for provider {provider}")]
    Engine {
        /// Its name.
        provider: String,
        /// Why.
        #[source]
        source: EngineError,
    },
}

/// What one provider has for as long as it is configured. Releases come and go in it.
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
    /// Makes the sandbox and reserves its places in the engine's pool.
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
        Ok(Arc::new(Self {
            name: name.into(),
            config,
            http,
            placement,
            places: Semaphore::new(calls),
            place_for_admission: Semaphore::new(ADMISSIONS_MAX),
            waiting: AtomicU32::new(0),
            recorder,
            limits,
            drain: Drain::new(),
        }))
    }

    /// The provider's name in the provider file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the provider may use.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The cloud-config that calls get.
    #[must_use]
    pub fn config(&self) -> &str {
        &self.config
    }

    /// How this provider's guests get their memory.
    #[must_use]
    pub const fn allocation(&self) -> Allocation {
        self.placement.allocation
    }

    /// The engine for this provider's components.
    #[must_use]
    pub const fn wasmtime(&self) -> &wasmtime::Engine {
        &self.placement.engine
    }

    /// Where this provider's calls are recorded.
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

    /// When calls in this sandbox have to end: other settings have replaced those of the sandbox.
    pub(crate) const fn drain(&self) -> &Drain {
        &self.drain
    }

    pub(crate) const fn place_for_admission(&self) -> &Semaphore {
        &self.place_for_admission
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts one more call that waits for a place; none where too many do.
    pub(crate) fn wait(&self) -> Option<Waiting<'_>> {
        let waiting = Waiting(&self.waiting);
        (self.waiting.fetch_add(1, Ordering::Relaxed) < CALLS_WAITING_MAX).then_some(waiting)
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
