//! The wasmtime engines that every provider of the process shares.
//!
//! One engine uses wasmtime's pooling allocator: a fresh guest costs microseconds. If the machine's
//! address space is too small for the pool, if the pool is full, or if a provider sets another
//! stack size (a property of the engine in wasmtime), the provider uses an engine that allocates on
//! demand, which costs ten microseconds more for each call and behaves the same otherwise. The
//! engine is chosen once, when a [`crate::Sandbox`] is created: the pool reserves a place for every
//! concurrent call of its sandboxes, so one provider can never use up the places of another.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use wasmtime::{Config, EngineWeak, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use crate::{
    epoch::{Epoch, Ticking},
    limits::{BOUNDS, Limits, MEMORIES_MAX, TABLES_MAX},
};

/// Places of the pool, one for each concurrent call of all providers: enough for fifteen providers
/// with the default of sixteen calls and one place for admission each.
pub const POOL_CALLS_MAX: u32 = 256;
/// Stack for host functions, on the same fiber as the guest's stack.
const HOST_STACK_BYTES: u64 = 3 << 19;
/// Bytes of linear memory that a freed slot of the pooling allocator keeps resident: the stack of a
/// small provider. To clear more than most calls use costs more than the page faults that it saves:
/// with 256 KiB a call takes 1.30 of the bare engine's time, with 64 KiB 1.15 (bench `call`).
const MEMORY_KEEP_RESIDENT_BYTES: usize = 64 << 10;
/// The same for tables and stacks.
const TABLE_KEEP_RESIDENT_BYTES: usize = 16 << 10;
/// Freed slots that keep their memory resident: 16 times the bytes above are 1.5 MiB.
const WARM_SLOTS_MAX: u32 = 16;

const _: () = assert!(POOL_CALLS_MAX > 64, "one provider with the most concurrent calls has to fit");

/// How the engine allocates a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Instances come from a pool that is reserved in advance.
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

/// The engine could not be created.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Wasmtime refused the configuration.
    #[error("cannot create a wasmtime engine with {stack_bytes} bytes of stack")]
    Configuration {
        /// The limit of a guest's stack.
        stack_bytes: u64,
        /// Wasmtime's reason.
        #[source]
        source: wasmtime::Error,
    },
    /// The thread for the epoch could not be started.
    #[error("cannot start the thread that increments the epoch of the wasmtime engines")]
    Ticker(#[source] std::io::Error),
}

/// What the pool has allocated now: everything is 0 while no call runs.
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
    shared: Arc<EngineState>,
}

struct EngineState {
    pooled: Option<wasmtime::Engine>,
    places: Mutex<Places>,
    epoch: Epoch,
}

struct Places {
    pooled_free: u32,
    /// The engines that a sandbox uses, by their stack size in bytes.
    on_demand: BTreeMap<u64, EngineWeak>,
}

/// The engine of one sandbox. If it is the pooled engine, the pool has a place for each of its
/// calls.
pub(crate) struct Placement {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) allocation: Allocation,
    calls: u32,
    shared: Arc<EngineState>,
}

impl Engine {
    /// Creates the engines, with a pool if possible, and logs which allocation is used.
    ///
    /// # Errors
    /// [`EngineError`] if an engine without a pool cannot be created either.
    pub fn new() -> Result<Self, EngineError> {
        let stack_bytes = Limits::default().stack_bytes;
        match pooled(stack_bytes) {
            Ok(engine) => {
                tracing::info!(
                    allocation = Allocation::Pooling.name(),
                    calls = POOL_CALLS_MAX,
                    "guests are allocated from a pool"
                );
                Self::start(Some(engine))
            }
            Err(error) => {
                tracing::warn!(
                    allocation = Allocation::OnDemand.name(),
                    error = &*error as &dyn std::error::Error,
                    "cannot create the pool of guests, probably because the address space is limited: each call allocates its guest, which takes ten microseconds more"
                );
                Self::on_demand()
            }
        }
    }

    /// Creates the engines without a pool. For tests, and for operators who disable the pool.
    ///
    /// # Errors
    /// [`EngineError`] if the engine cannot be created.
    pub fn on_demand() -> Result<Self, EngineError> {
        Self::start(None)
    }

    /// Engines with a pool that has no place for a guest.
    #[cfg(test)]
    pub(crate) fn with_a_full_pool() -> wasmtime::Result<Self> {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(0).total_core_instances(1).total_memories(1).total_tables(1).total_stacks(1);
        let mut config = engine_config(Limits::default().stack_bytes);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        Ok(Self::start(Some(wasmtime::Engine::new(&config)?))?)
    }

    fn start(pooled: Option<wasmtime::Engine>) -> Result<Self, EngineError> {
        let epoch = Epoch::start().map_err(EngineError::Ticker)?;
        if let Some(engine) = &pooled {
            epoch.add(engine);
        }
        let places = Mutex::new(Places { pooled_free: POOL_CALLS_MAX, on_demand: BTreeMap::new() });
        let engine = Self { shared: Arc::new(EngineState { pooled, places, epoch }) };
        // An error must appear here and not at the first provider.
        engine.shared.on_demand_engine(Limits::default().stack_bytes)?;
        Ok(engine)
    }

    /// How guests with the default stack size are allocated while the pool has free places.
    #[must_use]
    pub fn allocation(&self) -> Allocation {
        if self.shared.pooled.is_some() { Allocation::Pooling } else { Allocation::OnDemand }
    }

    /// What the pool has allocated now; none if there is no pool.
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

    /// An engine for a provider with this stack size and number of concurrent calls.
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

impl EngineState {
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
        self.epoch.add(&engine);
        places.on_demand.insert(stack_bytes, engine.weak());
        Ok(engine)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("allocation", &self.allocation()).finish_non_exhaustive()
    }
}

impl Placement {
    /// See [`Epoch::ticking`].
    pub(crate) fn ticking(&self) -> Ticking {
        self.shared.epoch.ticking()
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.shared.places().pooled_free += self.calls;
    }
}

/// The configuration of every engine of this program: the engine that compiles a component and the
/// engine that runs it need the same configuration.
///
/// `stack_bytes` is the size of the wasm stack and does not affect the compiled code. Fuel and
/// epochs do. Features of wasmtime that are new (component-model-async, garbage collection,
/// threads, stack switching) are not compiled into this program; concurrency support is off, which
/// makes a call five times cheaper.
#[must_use]
pub fn engine_config(stack_bytes: u64) -> Config {
    let stack_bytes = crate::limits::as_usize(stack_bytes);
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .epoch_interruption(true)
        // The toolchain has already optimised the component: a second optimisation does not make
        // calls faster, and takes a quarter of the compile time of an offer.
        .cranelift_opt_level(OptLevel::None)
        .concurrency_support(false)
        // The error of a call names the guest's functions. Neither addresses of single instructions
        // nor tables for native debuggers are needed for it; the two are an eighth of the code.
        .generate_address_map(false)
        .native_unwind_info(false)
        .wasm_backtrace_max_frames(Some(FRAMES_MAX))
        .max_wasm_stack(stack_bytes)
        .async_stack_size(stack_bytes.saturating_add(crate::limits::as_usize(HOST_STACK_BYTES)));
    config
}

/// Functions of a backtrace, from the innermost: the whole depth of a usual call, for a profile.
const FRAMES_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

/// The maximum size of the host's own records of a running guest, for all its core instances
/// together. A function that a table or an export holds takes 32 bytes: cloud-provider-openstack in
/// Go has 70,000 of them.
const INSTANCE_BYTES_MAX: usize = 4 << 20;

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
        .max_component_instance_size(INSTANCE_BYTES_MAX)
        .max_core_instance_size(INSTANCE_BYTES_MAX)
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

#[cfg(test)]
mod tests {
    use super::{Engine, EngineError};

    #[test]
    fn sandboxes_with_the_same_stack_size_share_an_engine_until_the_last_is_dropped() -> Result<(), EngineError> {
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
