//! One test for each probe: the host withstands a guest that attacks one of its limits.
//!
//! Every test goes through [`Attacked`], which checks after each attack that the provider's next
//! call works, that another provider's calls continued meanwhile, and that the pool is empty again.

mod calls;
mod guards;
mod http;
mod soft;

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use skysail_host::{
    CallRecord, CallRecorder, Engine, Limits, Live, Panics, Release, Sandbox, SandboxOptions, SandboxedProvider,
    describe,
    http_client::HttpClient,
    jail::Compiler,
    slot::{OnDifference, PlanOptions, RolloutOptions, ShadowOptions, Slot, SlotMetrics, SlotOptions, SlotServices},
    symbols::SymbolFiles,
};
use skysail_provider::{Call, Clusters as _, Error, Limit, LimitHit, Provider as _};
use tokio::{sync::broadcast, task::JoinSet};

use crate::{
    components::{built, repository, symbols},
    older, provider,
};

/// Every probe and its test. A test below fails for a folder of `guests/probes` or a file of
/// `guests/wat` without an entry.
const TESTS: &[(&str, fn())] = &[
    ("cache-bytes", soft::cache_bytes_is_refused_beyond_its_limit),
    ("cache-entries", soft::cache_entries_are_refused_beyond_their_limit),
    ("concurrent-calls", calls::concurrent_calls_wait_and_are_refused_at_their_deadline),
    ("deadline", guards::deadline_ends_a_guest_that_waits),
    ("events", soft::events_beyond_the_limit_are_dropped),
    ("exit", guards::exit_has_its_own_outcome),
    ("fuel", guards::fuel_ends_a_guest_that_never_stops_computing),
    ("handles", guards::handles_end_a_guest_that_never_drops_them),
    ("host-call-bytes", guards::host_call_bytes_end_a_guest_that_passes_too_much),
    ("host-calls", guards::host_calls_cost_fuel_even_if_they_do_nothing),
    ("http-concurrency", http::http_concurrency_makes_requests_wait),
    ("http-header-bytes", http::http_header_bytes_beyond_the_limit_are_not_sent),
    ("http-headers", http::http_headers_beyond_the_limit_are_not_sent),
    ("http-metadata", http::http_metadata_is_refused_in_every_spelling),
    ("http-rate", http::http_rate_limits_the_provider),
    ("http-request-bytes", http::http_request_bytes_beyond_the_limit_are_not_sent),
    ("http-requests", http::http_requests_beyond_the_limit_are_not_sent),
    ("http-response-bytes", http::http_response_bytes_beyond_the_limit_are_refused),
    ("http-time", http::http_time_ends_an_exchange_that_takes_too_long),
    ("instances", guards::instances_beyond_the_limit_do_not_start),
    ("instances-v1", older::instances_v1_answers_a_page_as_upstream_answers_each_node),
    ("log-bytes", soft::log_bytes_beyond_the_limit_are_dropped),
    ("log-lines", soft::log_lines_beyond_the_limit_are_dropped),
    ("memory-grow", guards::memory_grow_ends_at_the_cpu_time),
    ("table-grow", guards::table_grow_ends_at_the_cpu_time),
    ("resource-new", guards::resource_new_ends_at_the_cpu_time),
    ("memory", guards::memory_ends_a_guest_that_allocates_too_much),
    ("memory-sum", guards::memory_sum_counts_all_memories_together),
    ("names", provider::names_cost_does_not_depend_on_other_fields_of_a_node),
    ("println", soft::println_of_the_sdk_becomes_log_lines),
    ("regression", provider::regression_has_the_identity_of_simcloud_and_traps_when_called),
    ("request-then-trap", http::request_then_trap_is_the_releases_fault_only_if_the_request_was_answered),
    ("result-bytes", guards::result_bytes_end_a_call_before_the_host_copies),
    ("shadow-writes", http::shadow_writes_do_not_reach_the_cloud),
    ("strings", guards::strings_between_inner_components_end_at_the_cpu_time),
    ("stack", guards::stack_ends_a_guest_that_recurses),
    ("table", guards::table_elements_end_a_guest_that_grows_its_tables),
    ("trap", guards::trap_says_where_the_guest_panicked),
    ("volume-labels", older::volume_labels_of_a_hostile_guest_are_refused),
    ("wasi-files", guards::wasi_files_and_environment_are_empty),
    ("wasi-handles", guards::wasi_handles_that_nothing_gave_end_the_call),
    ("wasi-http", http::wasi_http_goes_through_the_same_rules_and_budgets),
    ("wasi-http-answers", http::wasi_http_answers_that_fill_the_guests_memory_end_the_requests),
    ("wasi-stdio", soft::wasi_stdio_becomes_log_lines_under_the_budget),
];

#[test]
fn every_probe_has_a_test_of_its_name() {
    let folder = |path: &str| {
        let entries = fs::read_dir(repository().join(path)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let probes: BTreeSet<String> = folder("guests/probes")
        .into_iter()
        .chain(folder("guests/wat").into_iter().map(|file| file.trim_end_matches(".wat").to_owned()))
        .filter(|name| name != "common")
        .collect();
    let tested: BTreeSet<String> = TESTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(probes, tested);
}

/// Every limit of the sandbox but those of the compile jail has a probe.
#[test]
fn every_limit_of_a_call_has_a_probe() {
    for limit in Limit::ALL {
        let probe = match limit {
            Limit::Fuel => "fuel",
            Limit::CpuTime => "memory-grow",
            Limit::Memory => "memory-sum",
            Limit::TableElements => "table",
            Limit::Instances => "instances",
            Limit::Handles => "handles",
            Limit::HostCallBytes => "host-call-bytes",
            Limit::ResultBytes => "result-bytes",
            Limit::Stack => "stack",
            Limit::LogLines => "log-lines",
            Limit::LogBytes => "log-bytes",
            Limit::Events => "events",
            Limit::HttpRequests => "http-requests",
            Limit::HttpRate => "http-rate",
            Limit::HttpConcurrency => "http-concurrency",
            Limit::HttpRequestBytes => "http-request-bytes",
            Limit::HttpResponseBytes => "http-response-bytes",
            Limit::HttpHeaders => "http-headers",
            Limit::HttpHeaderBytes => "http-header-bytes",
            Limit::HttpTime => "http-time",
            Limit::CacheBytes => "cache-bytes",
            Limit::CacheEntries => "cache-entries",
            Limit::ConcurrentCalls => "concurrent-calls",
            // Tested with the jail, in skysail-host.
            Limit::ComponentBytes | Limit::CompileTime | Limit::CompileMemory => continue,
        };
        assert!(TESTS.iter().any(|(name, _)| *name == probe), "{}", limit.name());
    }
}

/// The call that makes a probe attack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attack {
    /// `clusters.master("attack")`.
    Master,
    /// `clusters.list`: the hand-written ones.
    List,
}

/// A sandbox with a probe, and another provider beside it.
pub(crate) struct Attacked {
    pub(crate) engine: Engine,
    pub(crate) probe: SandboxedProvider,
    pub(crate) records: broadcast::Receiver<Arc<CallRecord>>,
    bystander: SandboxedProvider,
}

impl Attacked {
    /// With the names of the probe's functions, as for an author.
    pub(crate) async fn new(name: &str, limits: Limits) -> Self {
        let name = format!("probe-{name}");
        let names = Arc::new(SymbolFiles::new(vec![symbols(&name)]));
        let recorder = CallRecorder::default().with_symbols(names);
        Self::recorded(Setup { limits, ..Setup::of("probe", &built(&name)) }, recorder).await
    }

    pub(crate) async fn with(wasm: &[u8], limits: Limits) -> Self {
        Self::of(Setup { limits, ..Setup::of("probe", wasm) }).await
    }

    pub(crate) async fn of(setup: Setup<'_>) -> Self {
        Self::recorded(setup, CallRecorder::default()).await
    }

    async fn recorded(setup: Setup<'_>, recorder: CallRecorder) -> Self {
        let engine = Engine::new().unwrap();
        let bystander = Setup::of("bystander", &built("probe-trap")).serve(&engine, &CallRecorder::default()).await;
        let probe = setup.serve(&engine, &recorder).await;
        Self { engine, probe, records: recorder.subscribe(), bystander }
    }

    /// Attacks until the other provider has answered three calls meanwhile, and checks each outcome
    /// and the state afterwards.
    pub(crate) async fn run(mut self, attack: Attack, judge: impl Fn(Result<String, Error>, &CallRecord)) {
        assert_eq!(self.good().await, Ok("good".to_owned()));
        self.record().await;
        let (served, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_calling(self.bystander.clone(), Arc::clone(&served), Arc::clone(&stop)));
        let mut meanwhile = 0;
        while meanwhile < 3 {
            let before = served.load(Ordering::SeqCst);
            let result = self.attack(attack).await;
            meanwhile += served.load(Ordering::SeqCst) - before;
            judge(result, &*self.record().await);
            tokio::task::yield_now().await;
        }
        assert_eq!(self.good().await, Ok("good".to_owned()), "the next call of the same provider");
        stop.store(true, Ordering::SeqCst);
        tasks.join_next().await.unwrap().unwrap();
        self.comes_back().await;
    }

    /// Checks that the pool is empty again.
    pub(crate) async fn comes_back(&self) {
        let live = self.engine.live().expect("the test machine has address space for the pool");
        assert_eq!(live, Live::default(), "the pool must be empty after the calls");
    }

    pub(crate) async fn attack(&self, attack: Attack) -> Result<String, Error> {
        match attack {
            Attack::Master => self.probe.master(&Call::default(), "attack").await,
            Attack::List => {
                skysail_provider::Clusters::list(&self.probe, &Call::default()).await.map(|list| list.len().to_string())
            }
        }
    }

    pub(crate) async fn good(&self) -> Result<String, Error> {
        self.probe.master(&Call::default(), "good").await
    }

    pub(crate) async fn record(&mut self) -> Arc<CallRecord> {
        self.records.recv().await.unwrap()
    }
}

/// The settings of a provider.
pub(crate) struct Setup<'a> {
    pub(crate) name: &'a str,
    pub(crate) wasm: &'a [u8],
    pub(crate) limits: Limits,
    pub(crate) config: &'a str,
    pub(crate) http: Option<Arc<HttpClient>>,
}

impl<'a> Setup<'a> {
    pub(crate) fn of(name: &'a str, wasm: &'a [u8]) -> Self {
        Self { name, wasm, limits: Limits::default(), config: "", http: None }
    }

    /// A provider that serves.
    pub(crate) async fn serve(self, engine: &Engine, recorder: &CallRecorder) -> SandboxedProvider {
        let wasm = self.wasm;
        self.serve_release(engine, recorder, |sandbox| Release::from_wasm(sandbox, wasm).unwrap()).await
    }

    /// A provider that serves the release that `make` returns.
    pub(crate) async fn serve_release(
        self,
        engine: &Engine,
        recorder: &CallRecorder,
        make: impl FnOnce(&Sandbox) -> Release,
    ) -> SandboxedProvider {
        let Self { name, wasm: _, limits, config, http } = self;
        let options = SandboxOptions { name: name.to_owned(), limits, config: config.to_owned(), http };
        let sandbox = Sandbox::new(engine, recorder.clone(), options).unwrap();
        let release = Arc::new(make(&sandbox));
        let info = Arc::new(describe(&sandbox, &release).await.unwrap());
        SandboxedProvider::new(sandbox, release, info)
    }
}

/// A slot with a shadow phase, which refuses a release whose results differ from those of its
/// predecessor.
pub(crate) fn shadowed(sandbox: SandboxOptions) -> Slot {
    let shadow = Some(ShadowOptions { on_difference: OnDifference::Refuse });
    slot(sandbox, RolloutOptions { shadow, ..RolloutOptions::default() })
}

/// A slot with a plan, which refuses a release that would change the cloud where its predecessor
/// would not.
pub(crate) fn planned(sandbox: SandboxOptions) -> Slot {
    let plan = Some(PlanOptions { on_writes: OnDifference::Refuse });
    slot(sandbox, RolloutOptions { plan, ..RolloutOptions::default() })
}

fn slot(sandbox: SandboxOptions, rollout: RolloutOptions) -> Slot {
    let services = SlotServices {
        engine: Engine::on_demand().unwrap(),
        recorder: CallRecorder::default(),
        compiler: Compiler::in_process_for_trusted_components(),
        metrics: SlotMetrics::default(),
        panics: Panics::default(),
    };
    Slot::new(services, SlotOptions { rollout, ..SlotOptions::new(sandbox) }).unwrap()
}

async fn keep_calling(provider: SandboxedProvider, served: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    assert!(provider.clusters().is_some());
    while !stop.load(Ordering::SeqCst) {
        assert_eq!(provider.master(&Call::default(), "here").await, Ok("here".to_owned()));
        served.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
}

/// Checks that the call ended because of this limit, and that the record says so.
pub(crate) fn ended_by(limit: Limit, used: u64, max: u64) -> impl Fn(Result<String, Error>, &CallRecord) {
    move |result, record| {
        let error = result.unwrap_err();
        let hit = LimitHit { limit, used, max };
        assert_eq!(error.limit, Some(hit), "{error}");
        assert_eq!(record.limits_hit.first(), Some(&hit));
        assert_eq!(record.outcome.category(), "LimitExceeded");
        assert!(error.message.contains(limit.name()), "{error}");
    }
}

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
