//! The data of one call's wasmtime store, and its guards: the sum of its memories, the clock of
//! guest time, the limits of bytes.
//!
//! Each call has its own store; nothing in it outlives the call.

use std::{sync::Arc, time::Duration};

use skysail_provider::{Call, Limit, LimitHit};
use tokio::time::Instant;
use wasmtime::{CallHook, ResourceLimiter, Store, StoreContextMut, WasmBacktrace, component::ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::{
    CallRecord, Release, Sandbox,
    cache::Cache,
    epoch::Ticking,
    fuel_charge::FuelCharge,
    imports::{CallLog, HttpCall, WasiHttp, WorldClock, log_level, wasi_context},
    limits::{MEMORIES_MAX, TABLES_MAX, as_usize},
    profile::{self, ProfileOfCall},
    recording::{Cost, Recording},
    world::{Ended, World},
};

/// The state that the imports of one call use.
pub(crate) struct CallState {
    pub(crate) sandbox: Arc<Sandbox>,
    /// The cache of the called release.
    pub(crate) cache: Arc<Cache>,
    pub(crate) call: Call,
    pub(crate) table: ResourceTable,
    pub(crate) growth: Growth,
    pub(crate) clock: GuestClock,
    pub(crate) bytes: CrossedBytes,
    pub(crate) fuel_charge: FuelCharge,
    pub(crate) log: CallLog,
    pub(crate) events_asked: u64,
    pub(crate) events_published: u64,
    pub(crate) http: HttpCall,
    pub(crate) world: Arc<World>,
    pub(crate) hits: Vec<LimitHit>,
    /// None in a manager.
    pub(crate) profile: Option<Box<ProfileOfCall>>,
    /// The zero of the guest's monotonic clock.
    pub(crate) began: Instant,
    wasi: Option<WasiCtx>,
    pub(crate) wasi_http: Option<WasiHttp>,
    _ticking: Ticking,
}

impl CallState {
    pub(crate) fn new(
        (sandbox, release): (&Arc<Sandbox>, &Release),
        call: Call,
        function: &'static str,
        http: HttpCall,
    ) -> Self {
        let limits = sandbox.limits();
        let mut table = ResourceTable::new();
        table.set_max_capacity(as_usize(limits.handles));
        Self {
            cache: Arc::clone(release.cache()),
            table,
            growth: Growth::new(sandbox),
            clock: GuestClock::default(),
            bytes: CrossedBytes::new(sandbox),
            fuel_charge: FuelCharge::default(),
            log: CallLog::new(sandbox, function),
            events_asked: 0,
            events_published: 0,
            world: Arc::clone(http.world()),
            http,
            hits: Vec::new(),
            profile: sandbox.recorder().profile(function).map(|_| Box::new(ProfileOfCall::new(limits.fuel))),
            began: Instant::now(),
            wasi: None,
            wasi_http: None,
            _ticking: sandbox.ticking(),
            call,
            sandbox: Arc::clone(sandbox),
        }
    }

    /// The access of every import to this state: it charges the fuel for one call of an import.
    pub(crate) fn charge_import(&mut self) -> &mut Self {
        self.fuel_charge.call();
        self
    }

    /// Records that a limit was reached; of several hits of one limit the largest is kept.
    pub(crate) fn hit(&mut self, hit: LimitHit) {
        match self.hits.iter_mut().find(|known| known.limit == hit.limit) {
            Some(known) => known.used = known.used.max(hit.used),
            None => self.hits.push(hit),
        }
    }
}

impl CallState {
    /// Writes the usage of this call into its record, and unfinished log lines into the log.
    pub(crate) fn complete(&mut self, record: &mut CallRecord) {
        let lines = self.log.finish();
        for hit in lines.limits_hit {
            self.hit(hit);
        }
        let refused: Vec<LimitHit> = self.growth.refused().collect();
        for hit in refused {
            self.hit(hit);
        }
        record.guest = self.clock.inside();
        let http = self.http.usage();
        for hit in &http.limit_hits {
            self.hit(*hit);
        }
        record.http = http.into();
        record.requests = self.http.take_noted();
        record.memory_peak = self.growth.memory_peak();
        record.log_lines = lines.kept;
        record.log_lines_dropped = lines.dropped;
        record.events = self.events_published;
        record.events_dropped = self.events_asked - self.events_published;
        record.limits_hit = std::mem::take(&mut self.hits);
    }

    /// The recording of this call, if it is recorded.
    pub(crate) fn recording(&self, record: &CallRecord) -> Option<Recording> {
        let ended = Ended {
            provider: &record.provider,
            component: &record.digest,
            function: record.function,
            config: self.sandbox.config(),
            limits: self.sandbox.limits(),
            log_level: log_level(),
            redacts_responses: self.http.redacts(),
            cost: Cost { fuel: record.fuel, memory_bytes: record.memory_peak, requests: record.http.requests },
        };
        let client = self.sandbox.http();
        self.world.recording(&ended, |text| client.map_or_else(|| text.to_owned(), |client| client.redacted(text)))
    }
}

// === impl WasiView ===

impl WasiView for CallState {
    /// Created at the first use: most providers do not use WASI.
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let (log, owed) = (&self.log, self.fuel_charge.owed());
        let clocks = || WorldClock { world: Arc::clone(&self.world), began: self.began };
        let ctx = self.wasi.get_or_insert_with(|| wasi_context(log, owed, clocks()));
        WasiCtxView { ctx, table: &mut self.table }
    }
}

/// A store for one call, with every limit of its sandbox set. The guest yields at ticks of the
/// epoch and not by fuel: with a yield interval for fuel, the fuel charged at the boundary would
/// make equal calls cost different amounts.
pub(crate) fn new_store(engine: &wasmtime::Engine, state: CallState) -> wasmtime::Result<Store<CallState>> {
    let limits = state.sandbox.limits().clone();
    let mut store = Store::try_new(engine, state)?;
    store.limiter(|state| &mut state.growth);
    store.call_hook(on_crossing);
    store.set_fuel(limits.fuel)?;
    store.set_epoch_deadline(1);
    store.epoch_deadline_async_yield_and_update(1);
    if store.data().profile.is_some() {
        // In place of the ticks, at which compiled code has not written its fuel.
        store.fuel_async_yield_interval(Some(profile::YIELD))?;
        store.set_epoch_deadline(TICKS_NEVER);
    }
    store.set_hostcall_fuel(as_usize(limits.host_call_bytes));
    store.set_max_component_handles(as_usize(limits.handles));
    Ok(store)
}

/// Ticks of the epoch that no call lasts.
const TICKS_NEVER: u64 = 1 << 40;

/// Called whenever execution goes from host to guest or back.
fn on_crossing(mut store: StoreContextMut<'_, CallState>, hook: CallHook) -> wasmtime::Result<()> {
    if matches!(hook, CallHook::CallingHost) {
        look(&mut store)?;
    }
    let state = store.data_mut();
    state.clock.cross(hook);
    let outermost = state.clock.host_depth == 0;
    let CrossedBytes { host_call_bytes, result_bytes, .. } = state.bytes;
    match hook {
        CallHook::ReturningFromWasm if outermost => store.set_hostcall_fuel(result_bytes),
        CallHook::CallingWasm if outermost => store.set_hostcall_fuel(host_call_bytes),
        // The host calls the guest's allocator for a list or an entry of a list.
        CallHook::CallingWasm => state.fuel_charge.entries(1),
        // Only when the import itself returns. Inside the import the guest's allocator may run and
        // yield at a tick of the epoch, which calls this hook, too; compiled code does not reload
        // the fuel after such a yield, and the charge would be lost.
        CallHook::ReturningFromHost if outermost => {
            if let Some(fuel) = state.fuel_charge.take() {
                let before = store.get_fuel()?;
                let left = before.saturating_sub(fuel);
                store.set_fuel(left)?;
                if store.data().profile.is_some() {
                    let stack = WasmBacktrace::force_capture(&store);
                    if let Some(profile) = store.data_mut().profile.as_mut() {
                        profile.host(&stack, before - left);
                    }
                }
            }
        }
        CallHook::ReturningFromWasm | CallHook::ReturningFromHost | CallHook::CallingHost => {}
    }
    Ok(())
}

/// Adds the stack to the profile of the call, if it has one.
fn look(store: &mut StoreContextMut<'_, CallState>) -> wasmtime::Result<()> {
    if store.data().profile.is_none() {
        return Ok(());
    }
    let left = store.get_fuel()?;
    if store.data().profile.as_ref().is_some_and(|profile| profile.is_due(left)) {
        let stack = WasmBacktrace::force_capture(&*store);
        if let Some(profile) = store.data_mut().profile.as_mut() {
            profile.look(&stack, left);
        }
    }
    Ok(())
}

/// Time inside the guest's code: from each entry to the next exit. Time in host functions does not
/// count, nor does time after a computing guest yielded its thread, because wasmtime yields inside
/// a host call.
#[derive(Debug, Default)]
pub(crate) struct GuestClock {
    inside: Duration,
    entered: Option<Instant>,
    /// Depth of open host calls; 1 while a guest waits for an import. Guest code that runs inside a
    /// host call is the guest's allocator.
    host_depth: u32,
}

impl GuestClock {
    fn cross(&mut self, hook: CallHook) {
        match hook {
            CallHook::CallingWasm if self.host_depth == 0 => self.entered = Some(Instant::now()),
            CallHook::ReturningFromWasm if self.host_depth == 0 => self.stop(),
            CallHook::CallingWasm | CallHook::ReturningFromWasm => {}
            CallHook::CallingHost => {
                if self.host_depth == 0 {
                    self.stop();
                }
                self.host_depth += 1;
            }
            CallHook::ReturningFromHost => {
                self.host_depth = self.host_depth.saturating_sub(1);
                if self.host_depth == 0 {
                    self.entered = Some(Instant::now());
                }
            }
        }
    }

    fn stop(&mut self) {
        if let Some(entered) = self.entered.take() {
            self.inside += entered.elapsed();
        }
    }

    pub(crate) const fn inside(&self) -> Duration {
        self.inside
    }
}

/// The limits of bytes that cross the boundary.
///
/// Wasmtime has one limit for the bytes that it lifts out of a guest at once, for the arguments of
/// a host call and for the result of the whole call, and checks it *before* it allocates. The
/// sandbox has a limit for each, so it switches the value at the boundary: arguments are lifted
/// after the guest called the host, the result after the guest returned.
#[derive(Debug)]
pub(crate) struct CrossedBytes {
    host_call_bytes: usize,
    result_bytes: usize,
    /// Bytes of node columns that the guest has read.
    columns: u64,
}

impl CrossedBytes {
    fn new(sandbox: &Sandbox) -> Self {
        let limits = sandbox.limits();
        Self {
            host_call_bytes: as_usize(limits.host_call_bytes),
            result_bytes: as_usize(limits.result_bytes),
            columns: 0,
        }
    }

    /// Counts the bytes of a node column; fails if the call has read too many.
    pub(crate) const fn column_read(&mut self, bytes: u64) -> Result<(), LimitHit> {
        self.columns = self.columns.saturating_add(bytes);
        let max = self.host_call_bytes as u64;
        if self.columns > max {
            return Err(LimitHit { limit: Limit::HostCallBytes, used: self.columns, max });
        }
        Ok(())
    }

    /// The limit that was reached when wasmtime's limit of lifted bytes was exceeded. How much more
    /// the guest wanted is unknown.
    pub(crate) const fn exhausted(&self, in_host_call: bool) -> LimitHit {
        let (limit, max) = if in_host_call {
            (Limit::HostCallBytes, self.host_call_bytes as u64)
        } else {
            (Limit::ResultBytes, self.result_bytes as u64)
        };
        LimitHit { limit, used: max, max }
    }
}

/// Limits what a guest allocates, as the *sum* over all its memories and over all its tables:
/// wasmtime's own limiter checks each of them separately.
#[derive(Debug)]
pub(crate) struct Growth {
    memory: Sum,
    table: Sum,
    instances: usize,
}

#[derive(Debug)]
struct Sum {
    limit: Limit,
    max: u64,
    now: u64,
    peak: u64,
    /// The largest sum that was refused.
    refused: Option<u64>,
}

impl Sum {
    const fn new(limit: Limit, max: u64) -> Self {
        Self { limit, max, now: 0, peak: 0, refused: None }
    }

    /// A refusal is no error: a guest may handle it. If the guest aborts instead, the recorded
    /// refusal explains why.
    fn grow(&mut self, current: usize, desired: usize) -> bool {
        let wanted = self.now.saturating_add((desired as u64).saturating_sub(current as u64));
        if wanted > self.max {
            self.refused = Some(self.refused.map_or(wanted, |known| known.max(wanted)));
            return false;
        }
        self.now = wanted;
        self.peak = self.peak.max(wanted);
        true
    }

    fn refused(&self) -> Option<LimitHit> {
        self.refused.map(|used| LimitHit { limit: self.limit, used, max: self.max })
    }
}

impl Growth {
    fn new(sandbox: &Sandbox) -> Self {
        let limits = sandbox.limits();
        Self {
            memory: Sum::new(Limit::Memory, limits.memory_bytes),
            table: Sum::new(Limit::TableElements, limits.table_elements),
            instances: as_usize(limits.instances),
        }
    }

    pub(crate) const fn memory_peak(&self) -> u64 {
        self.memory.peak
    }

    /// The growth that was refused in this call.
    pub(crate) fn refused(&self) -> impl Iterator<Item = LimitHit> {
        self.memory.refused().into_iter().chain(self.table.refused())
    }
}

impl ResourceLimiter for Growth {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.memory.grow(current, desired))
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.table.grow(current, desired))
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn memories(&self) -> usize {
        as_usize(u64::from(MEMORIES_MAX))
    }

    fn tables(&self) -> usize {
        as_usize(u64::from(TABLES_MAX))
    }
}

#[cfg(test)]
mod tests {
    use skysail_provider::{Limit, LimitHit};

    use super::Sum;

    #[test]
    fn the_sum_of_all_memories_is_limited() {
        let mut sum = Sum::new(Limit::Memory, 100);
        assert!(sum.grow(0, 60));
        assert!(sum.grow(0, 40));
        assert!(!sum.grow(40, 41));
        assert_eq!((sum.now, sum.peak), (100, 100));
        assert_eq!(sum.refused(), Some(LimitHit { limit: Limit::Memory, used: 101, max: 100 }));
    }
}
