//! The wasmtime engines that every provider of the process shares, and the thread that ticks their
//! epochs.
//!
//! There is one pooled engine: a fresh guest from it costs microseconds. Where the machine's
//! address space does not allow the pool, where the pool is full, or where a provider wants another
//! stack size (a property of the engine in wasmtime), guests come from an engine that allocates on
//! demand, which costs ten microseconds more for each call and is the same in every other way. Who
//! gets which is decided once, when a [`crate::Sandbox`] is made: the pool has a place for every
//! call that its sandboxes may run at once, so no provider can take the last place of another.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use wasmtime::{Config, EngineWeak, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use crate::limits::{BOUNDS, Limits, MEMORIES_MAX, TABLES_MAX};

/// One tick of the epoch: how long a spinning guest keeps its thread before others get a turn. Ten
/// milliseconds are invisible to a controller and cost one atomic increment.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);
/// Calls that the pool has places for, over all providers: fifteen providers with the default of
/// sixteen calls and one place for admission each.
pub const POOL_CALLS_MAX: u32 = 256;
/// Stack that host functions may use below the guest's, on the same fiber.
const HOST_STACK_BYTES: u64 = 3 << 19;
/// Memory that a freed place of the pool keeps mapped: what a small provider touches, so that it
/// need not be faulted in again.
const MEMORY_KEEP_RESIDENT_BYTES: usize = 256 << 10;
/// Tables and stacks, likewise.
const TABLE_KEEP_RESIDENT_BYTES: usize = 16 << 10;
/// Freed places that stay warm: at most 16 times the kept bytes, so 4 MiB.
const WARM_SLOTS_MAX: u32 = 16;

const _: () = assert!(POOL_CALLS_MAX > 64, "one provider with the most concurrent calls has to fit");

/// How guests get their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// From places that are reserved in advance.
    Pooling,
    /// With a system call for each memory, stack and table.
    OnDemand,
}

impl Allocation {
    /// `pooling` or `onDemand`: metric label and log field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pooling => "pooling",
            Self::OnDemand => "onDemand",
        }
    }
}

/// The engine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Wasmtime refused the configuration.
    #[error("cannot make a wasmtime engine with {stack_bytes} bytes of stack")]
    Configuration {
        /// Of the guest.
        stack_bytes: u64,
        /// Wasmtime's reason.
        #[source]
        source: wasmtime::Error,
    },
    /// No thread for the epoch.
    #[error("cannot start the thread that ticks the epoch")]
    Ticker(#[source] std::io::Error),
}

/// What lives in the pool right now: everything is 0 while no call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Live {
    /// Component instances: one for each running call.
    pub component_instances: u64,
    /// Core instances.
    pub core_instances: u64,
    /// Linear memories.
    pub memories: u64,
    /// Tables.
    pub tables: u64,
    /// Stacks.
    pub stacks: u64,
}

/// The engines of this process. Cloning shares them.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    pooled: Option<wasmtime::Engine>,
    places: Mutex<Places>,
    ticked: Arc<Mutex<Vec<EngineWeak>>>,
    /// The ticker ends when this is dropped.
    _alive: SyncSender<()>,
}

struct Places {
    pooled_free: u32,
    /// By the bytes of their stack: those that a sandbox has.
    on_demand: BTreeMap<u64, EngineWeak>,
}

/// An engine for one sandbox, with a place in the pool for each of its calls where it is the pooled
/// one.
pub(crate) struct Placement {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) allocation: Allocation,
    calls: u32,
    shared: Arc<Shared>,
}

impl Engine {
    /// Makes the engines; tries the pool first and says in the log which one it is.
    ///
    /// # Errors
    /// [`EngineError`] where not even an engine without a pool can be made.
    pub fn new() -> Result<Self, EngineError> {
        let stack_bytes = Limits::default().stack_bytes;
        match pooled(stack_bytes) {
            Ok(engine) => {
                tracing::info!(
                    allocation = Allocation::Pooling.name(),
                    calls = POOL_CALLS_MAX,
                    "guests come from a pool"
                );
                Self::start(Some(engine))
            }
            Err(error) => {
                tracing::warn!(
                    allocation = Allocation::OnDemand.name(),
                    error = &*error as &dyn std::error::Error,
                    "no address space for a pool of guests: each call allocates its own, ten microseconds more"
                );
                Self::on_demand()
            }
        }
    }

    /// Makes the engines without a pool. For tests, and for machines where the operator knows
    /// better than the probe.
    ///
    /// # Errors
    /// [`EngineError`] where the engine cannot be made.
    pub fn on_demand() -> Result<Self, EngineError> {
        Self::start(None)
    }

    fn start(pooled: Option<wasmtime::Engine>) -> Result<Self, EngineError> {
        let ticked = Arc::new(Mutex::new(pooled.iter().map(wasmtime::Engine::weak).collect()));
        let alive = start_ticker(Arc::clone(&ticked)).map_err(EngineError::Ticker)?;
        let places = Mutex::new(Places { pooled_free: POOL_CALLS_MAX, on_demand: BTreeMap::new() });
        let engine = Self { shared: Arc::new(Shared { pooled, places, ticked, _alive: alive }) };
        // Fails here and not at the first provider.
        engine.shared.on_demand_engine(Limits::default().stack_bytes)?;
        Ok(engine)
    }

    /// How guests with the default stack get their memory, while the pool has places.
    #[must_use]
    pub fn allocation(&self) -> Allocation {
        if self.shared.pooled.is_some() { Allocation::Pooling } else { Allocation::OnDemand }
    }

    /// What lives in the pool right now; none where there is no pool.
    #[must_use]
    pub fn live(&self) -> Option<Live> {
        let metrics = self.shared.pooled.as_ref()?.pooling_allocator_metrics()?;
        Some(Live {
            component_instances: metrics.component_instances(),
            core_instances: metrics.core_instances(),
            memories: metrics.memories() as u64,
            tables: metrics.tables() as u64,
            stacks: metrics.stacks() as u64,
        })
    }

    /// An engine for a provider with this stack and so many calls at once.
    pub(crate) fn place(&self, stack_bytes: u64, calls: u32) -> Result<Placement, EngineError> {
        let shared = Arc::clone(&self.shared);
        if let Some(engine) = self.shared.pooled.clone()
            && stack_bytes == Limits::default().stack_bytes
            && self.shared.reserve(calls)
        {
            return Ok(Placement { engine, allocation: Allocation::Pooling, calls, shared });
        }
        let engine = self.shared.on_demand_engine(stack_bytes)?;
        Ok(Placement { engine, allocation: Allocation::OnDemand, calls: 0, shared })
    }
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, calls: u32) -> bool {
        let mut places = self.places();
        match places.pooled_free.checked_sub(calls) {
            Some(free) => {
                places.pooled_free = free;
                true
            }
            None => false,
        }
    }

    fn on_demand_engine(&self, stack_bytes: u64) -> Result<wasmtime::Engine, EngineError> {
        let mut places = self.places();
        places.on_demand.retain(|_, engine| engine.upgrade().is_some());
        if let Some(engine) = places.on_demand.get(&stack_bytes).and_then(EngineWeak::upgrade) {
            return Ok(engine);
        }
        let engine = wasmtime::Engine::new(&engine_config(stack_bytes))
            .map_err(|source| EngineError::Configuration { stack_bytes, source })?;
        self.ticked.lock().unwrap_or_else(PoisonError::into_inner).push(engine.weak());
        places.on_demand.insert(stack_bytes, engine.weak());
        Ok(engine)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("allocation", &self.allocation()).finish_non_exhaustive()
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.shared.places().pooled_free += self.calls;
    }
}

/// The configuration that every engine of this program has: what compiles a component and what runs
/// it have to agree in it.
///
/// `stack_bytes` is the wasm stack, and no part of what is compiled. Fuel and epochs are compiled
/// in. The features whose code is young (component-model-async, garbage collection, threads, stack
/// switching) are not even built; concurrency support is off, which makes a call five times
/// cheaper.
#[must_use]
pub fn engine_config(stack_bytes: u64) -> Config {
    let stack_bytes = crate::limits::as_usize(stack_bytes);
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .epoch_interruption(true)
        // What makes the bytes has optimised them: to do it again shows in no call, and costs a
        // quarter of the compilation, which an offer waits for.
        .cranelift_opt_level(OptLevel::None)
        .concurrency_support(false)
        .max_wasm_stack(stack_bytes)
        .async_stack_size(stack_bytes.saturating_add(crate::limits::as_usize(HOST_STACK_BYTES)));
    config
}

fn pooled(stack_bytes: u64) -> wasmtime::Result<wasmtime::Engine> {
    let largest = |name: &str| {
        let bound = BOUNDS.iter().find(|bound| bound.name == name);
        crate::limits::as_usize(bound.map_or(u64::MAX, |bound| bound.max))
    };
    let instances = u32::try_from(largest("instances")).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(POOL_CALLS_MAX)
        .total_core_instances(POOL_CALLS_MAX * instances)
        .total_memories(POOL_CALLS_MAX * MEMORIES_MAX)
        .total_tables(POOL_CALLS_MAX * TABLES_MAX)
        .total_stacks(POOL_CALLS_MAX)
        .max_core_instances_per_component(instances)
        .max_memories_per_component(MEMORIES_MAX)
        .max_memories_per_module(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .max_tables_per_module(TABLES_MAX)
        .max_memory_size(largest("memoryBytes"))
        .table_elements(largest("tableElements"))
        .linear_memory_keep_resident(MEMORY_KEEP_RESIDENT_BYTES)
        .table_keep_resident(TABLE_KEEP_RESIDENT_BYTES)
        .async_stack_keep_resident(TABLE_KEEP_RESIDENT_BYTES)
        .max_unused_warm_slots(WARM_SLOTS_MAX);
    let mut config = engine_config(stack_bytes);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    wasmtime::Engine::new(&config)
}

/// A thread of its own and not a task: a guest that keeps all of tokio's threads busy must not keep
/// the tick away.
fn start_ticker(ticked: Arc<Mutex<Vec<EngineWeak>>>) -> std::io::Result<SyncSender<()>> {
    let (alive, dropped) = sync_channel(0);
    thread::Builder::new().name("epoch".to_owned()).spawn(move || {
        while dropped.recv_timeout(EPOCH_TICK) == Err(RecvTimeoutError::Timeout) {
            let mut engines = ticked.lock().unwrap_or_else(PoisonError::into_inner);
            engines.retain(|engine| {
                engine.upgrade().is_some_and(|engine| {
                    engine.increment_epoch();
                    true
                })
            });
        }
    })?;
    Ok(alive)
}

#[cfg(test)]
mod tests {
    use super::{Engine, EngineError};

    #[test]
    fn sandboxes_with_the_same_stack_share_an_engine_and_it_goes_with_the_last_of_them() -> Result<(), EngineError> {
        let engine = Engine::on_demand()?;
        let [one, two, other] = [engine.place(1 << 20, 1)?, engine.place(1 << 20, 1)?, engine.place(2 << 20, 1)?];
        assert!(
            wasmtime::Engine::same(&one.engine, &two.engine) && !wasmtime::Engine::same(&one.engine, &other.engine)
        );
        drop((one, two));
        let _third = engine.place(3 << 20, 1)?;
        let stacks: Vec<u64> = engine.shared.places().on_demand.keys().copied().collect();
        assert_eq!(stacks, [2 << 20, 3 << 20]);
        Ok(())
    }
}
