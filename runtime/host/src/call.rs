//! Runs one provider call: waits for a place, runs the guest in a fresh store under all limits, and
//! records the outcome.
//!
//! # Flow
//! wait for a place among the provider's concurrent calls → check the fence → store from the
//! pre-instantiated component → the function → validate its result → outcome → record. The deadline
//! covers all steps.
//!
//! # Cancel safety
//! Dropping the future ends the call: its store is freed, its HTTP requests are cancelled, and the
//! record says `Cancelled`.

use std::{
    marker::PhantomData,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::Value;
use skysail_provider::{Call, Code, Error, Limit, LimitHit};
use skysail_slot::{
    Fault,
    fault::{CallObservation, of_call},
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};
use tracing::{Instrument as _, field::Empty};
use wasmtime::{Store, component::Instance};

use crate::{
    Answer, CallOutcome, CallRecord, Release, Sandbox, backtrace,
    cache::Cache,
    cpu_time::CpuTime,
    fault,
    http_client::DeletionLimit,
    imports::{HttpAccess, HttpCall},
    limits::CALLS_WAITING_MAX,
    outcome::{Stopped, explain},
    store::{CallState, new_store},
    world::World,
};

/// Interface and function of the contract (`load-balancers.ensure`), and the arguments for a
/// recording.
pub(crate) type Function<'a> = (&'static str, &'a (dyn Fn() -> Value + Sync));

/// Which function of which release is called, with the object, the HTTP access and the purpose of
/// the call.
pub(crate) struct Request<'a> {
    pub(crate) sandbox: &'a Arc<Sandbox>,
    pub(crate) release: &'a Release,
    pub(crate) call: &'a Call,
    pub(crate) function: Function<'a>,
    /// The HTTP requests that the call may send.
    pub(crate) http: HttpAccess,
    pub(crate) purpose: Purpose<'a>,
}

/// What a call is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose<'a> {
    /// A caller uses the answer.
    Serving,
    /// The result is only compared (shadow): the outcome does not count for the release. What the
    /// host saw of the call is written here.
    Comparing(&'a Mutex<CallObservation>),
    /// The slot checks whether the release may serve. The call does not wait for calls of the
    /// serving release.
    Admitting,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// None if the failure needs no action.
    pub(crate) fault: Option<Fault>,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// A fresh guest. The function that receives it may borrow from its environment, for `'env`.
pub(crate) struct Guest<'s, 'env: 's> {
    pub(crate) store: &'s mut Store<CallState>,
    pub(crate) instance: &'s Instance,
    pub(crate) env: PhantomData<&'s &'env ()>,
}

/// Runs one call: `function` receives a fresh guest, `judge` validates the result. The record
/// contains what the caller gets: an error of the guest and a result that breaks the contract are
/// failed calls.
pub(crate) async fn run<'env, R, T, F, J>(request: Request<'_>, function: F, judge: J) -> Result<T, Failed>
where
    R: Send,
    T: Answer + Send,
    F: for<'s> FnOnce(Guest<'s, 'env>) -> BoxFuture<'s, wasmtime::Result<R>> + Send,
    J: FnOnce(R) -> Result<T, Error> + Send,
{
    let Request { sandbox, release, call, function: (name, arguments), http, purpose } = request;
    let span = tracing::debug_span!(
        "provider_call",
        provider.name = sandbox.name(),
        provider.operation = name,
        component.digest = release.digest(),
        call.fuel = Empty,
        call.cpu_us = Empty,
        call.http_requests = Empty,
        call.memory_peak_bytes = Empty,
        "error.type" = Empty,
        error.message = Empty,
    );
    let mut running = Running::new(sandbox, release, call, name);
    if let Purpose::Comparing(seen) = purpose {
        running.compared = Some(seen);
    }
    async move {
        let time = Duration::from_millis(sandbox.limits().deadline_ms);
        let deadline = running.began + time;
        let permit = match timeout_at(deadline, wait_for_place(sandbox, purpose)).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(error)) => return Err(running.failed(error)),
            Err(_elapsed) => return Err(running.failed(no_place(sandbox))),
        };
        running.waited = running.began.elapsed();
        if let Err(closed) = call.fence.check() {
            return Err(running.failed(closed.into()));
        }
        // The result of a comparing call is of no use to anybody.
        let world = if running.compared.is_some() { World::Live } else { sandbox.recorder().world(arguments) };
        let world = running.world.insert(Arc::new(world));
        let http = HttpCall::new((sandbox, http), deadline, call, world);
        let mut state = CallState::new((sandbox, release), call.clone(), name, http);
        if running.compared.is_some() {
            // A comparing call gets its own cache, so that it cannot influence serving calls.
            state.cache = Arc::new(Cache::new(sandbox.limits()));
        }
        if let Some(cache) = world.cache(sandbox.limits()) {
            state.cache = Arc::new(cache);
        }
        let store = match new_store(sandbox.wasmtime(), state) {
            Ok(store) => running.store.insert(store),
            Err(source) => return Err(running.failed_on_this_machine(&source)),
        };
        let gauge = sandbox.recorder().metrics().running(sandbox.name());
        gauge.inc();
        let _gauge = scopeguard::guard(gauge, |gauge| {
            gauge.dec();
        });
        let answered = async {
            let instance = release.instance_pre().instantiate_async(&mut *store).await?;
            function(Guest { store, instance: &instance, env: PhantomData }).await
        };
        let within_cpu_time = running.cpu.within(world.while_recorded(answered));
        let result = timeout_at(deadline, within_cpu_time).await;
        let result = result.map(|ended| ended.unwrap_or_else(|hit| Err(Stopped(hit).into())));
        running.computed = running.cpu.used() >= time / 2;
        let result = running.finish(result, judge);
        drop(permit);
        result
    }
    .instrument(span)
    .await
}

async fn wait_for_place<'a>(sandbox: &'a Sandbox, purpose: Purpose<'_>) -> Result<SemaphorePermit<'a>, Error> {
    let places: &Semaphore = match purpose {
        Purpose::Serving | Purpose::Comparing(_) => sandbox.places(),
        Purpose::Admitting => sandbox.place_for_admission(),
    };
    if let Ok(permit) = places.try_acquire() {
        return Ok(permit);
    }
    let _waiting = sandbox.wait().ok_or_else(|| no_place(sandbox))?;
    // The semaphore is never closed, so this is the permit.
    places.acquire().await.map_err(|_closed| no_place(sandbox))
}

/// All places of the provider are taken, and the deadline passed or too many calls wait.
fn no_place(sandbox: &Sandbox) -> Error {
    let max = sandbox.limits().concurrent_calls;
    let hit = LimitHit { limit: Limit::ConcurrentCalls, used: max + u64::from(sandbox.waiting()).max(1), max };
    Error::limit_exceeded(
        hit,
        format!(
            "provider {}: no place for another call: {max} calls run (limit concurrentCalls) and {} wait (at most {CALLS_WAITING_MAX}); raise the limit if the cloud can take more requests",
            sandbox.name(),
            sandbox.waiting()
        ),
    )
}

/// A whole number of seconds as people write it, such as `1h30m`.
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let text: String =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// A call that has begun. If it is dropped before it is recorded, it was cancelled.
struct Running<'a> {
    sandbox: &'a Sandbox,
    release: &'a Release,
    call: &'a Call,
    function: &'static str,
    began: Instant,
    waited: Duration,
    cpu: CpuTime,
    store: Option<Store<CallState>>,
    /// None until the call has a place.
    world: Option<Arc<World>>,
    recorded: bool,
    /// As in [`Purpose::Comparing`].
    compared: Option<&'a Mutex<CallObservation>>,
    /// As [`CallObservation::computed`].
    computed: bool,
}

impl<'a> Running<'a> {
    fn new(sandbox: &'a Sandbox, release: &'a Release, call: &'a Call, function: &'static str) -> Self {
        Self {
            sandbox,
            release,
            call,
            function,
            began: Instant::now(),
            waited: Duration::ZERO,
            cpu: CpuTime::new(Duration::from_millis(sandbox.limits().cpu_time_ms)),
            store: None,
            world: None,
            recorded: false,
            compared: None,
            computed: false,
        }
    }

    fn failed(&mut self, error: Error) -> Failed {
        let limit = error.limit.map(|hit| hit.limit);
        let fault = of_call(error.code, limit, self.seen());
        self.failed_by(fault, error)
    }

    /// The operating system or the pool had no room for a guest.
    fn failed_on_this_machine(&mut self, source: &wasmtime::Error) -> Failed {
        let text = format!("the host cannot run the guest: {source:#}");
        self.failed_by(Some(Fault::Machine), Error::new(Code::Unavailable, text))
    }

    fn failed_by(&mut self, fault: Option<Fault>, error: Error) -> Failed {
        if let Some(world) = &self.world {
            world.ended(Err::<fn() -> Value, _>(&error));
        }
        self.record(CallOutcome::Failed { code: error.code, message: error.message.clone() }, error.limit, fault);
        Failed { error, fault }
    }

    fn seen(&self) -> CallObservation {
        let http = self.store.as_ref().map(|store| store.data().http.usage()).unwrap_or_default();
        CallObservation {
            cloud_failed: http.failed > 0,
            denied: http.denied > 0,
            waited_for_cloud: http.time >= self.began.elapsed() / 2,
            computed: self.computed,
        }
    }

    /// The error if the operator's budget of deletions held a deletion of the call back.
    fn held_deletion(&self) -> Option<Error> {
        let held = self.store.as_ref()?.data().http.usage().held_deletion?;
        let DeletionLimit { deletions, window } = held.limit;
        let text = format!(
            "spec.deletionBudget of the Provider {} allows {deletions} requests that delete something in {}, and they are used up; nothing is deleted before the window has room",
            self.sandbox.name(),
            duration(window)
        );
        Some(Error::deletion_held(held.wait, text))
    }

    fn finish<R, T: Answer>(
        &mut self,
        result: Result<wasmtime::Result<R>, tokio::time::error::Elapsed>,
        judge: impl FnOnce(R) -> Result<T, Error>,
    ) -> Result<T, Failed> {
        // The lease is lost: the caller must not act on the result, and a failure is not the
        // guest's fault.
        if let Err(closed) = self.call.fence.check() {
            return Err(self.failed(closed.into()));
        }
        // Whatever the guest makes of it, also success: what it wanted to delete is still there.
        // The error counts neither against the release nor against the cloud.
        if let Some(held) = self.held_deletion() {
            return Err(self.failed(held));
        }
        match result {
            Ok(Ok(answer)) => {
                let value = judge(answer).map_err(|error| self.failed(error))?;
                if let Some(world) = &self.world {
                    world.ended(Ok(|| value.json()));
                }
                self.record(CallOutcome::Ok, None, None);
                Ok(value)
            }
            Ok(Err(source)) if fault::is_of_the_machine(&source) => Err(self.failed_on_this_machine(&source)),
            Ok(Err(source)) => {
                let component = self.release.digest();
                let symbols = self.sandbox.recorder().symbols(component);
                let place = backtrace::of(&source, component, symbols.as_deref());
                let error = explain(&source, place, self.store.as_ref(), self.sandbox.limits());
                Err(self.failed(error))
            }
            // The call spent most of its time waiting for earlier calls.
            Err(_elapsed) if self.waited > self.began.elapsed() / 2 => Err(self.failed(no_place(self.sandbox))),
            Err(_elapsed) => Err(self.failed(Error::new(
                Code::DeadlineExceeded,
                format!(
                    "{} did not end within {} ms (spec.limits.deadlineMs); check the cloud's latency, or raise the limit",
                    self.function,
                    self.sandbox.limits().deadline_ms
                ),
            ))),
        }
    }

    fn record(&mut self, outcome: CallOutcome, limit: Option<LimitHit>, fault: Option<Fault>) {
        self.recorded = true;
        if let Some(seen) = self.compared {
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = self.seen();
        } else if self.call.dry_run.is_none() {
            let result = match &outcome {
                CallOutcome::Ok => Some(Ok(())),
                CallOutcome::Failed { code, message } => Some(Err((*code, message.as_str()))),
                CallOutcome::Cancelled => None,
            };
            if let Some(result) = result {
                self.release.call_history().note(self.function, result, fault);
            }
        }
        let wall = self.began.elapsed();
        let (provider, digest) = (Arc::clone(self.sandbox.shared_name()), Arc::clone(self.release.shared_digest()));
        let mut record = CallRecord {
            object: self.call.object.clone(),
            fault,
            wall,
            waited: if self.store.is_some() { self.waited } else { wall },
            cpu: self.cpu.used(),
            ..CallRecord::new(provider, digest, self.function, outcome)
        };
        if let Some(store) = self.store.as_mut() {
            // Every engine consumes fuel, so this is the remaining fuel.
            let left = store.get_fuel().unwrap_or(0);
            record.fuel = self.sandbox.limits().fuel.saturating_sub(left);
            if let Some(call) = store.data_mut().profile.take()
                && let Some(profile) = self.sandbox.recorder().profile(self.function)
            {
                profile.add(*call, left, self.sandbox.recorder().symbols(self.release.digest()).as_deref());
            }
            store.data_mut().complete(&mut record);
            let state = store.data();
            self.sandbox.recorder().keep(&mut record, |record| state.recording(record));
        }
        if let Some(limit) = limit {
            // The limit that ended the call comes first.
            record.limits_hit.retain(|hit| hit.limit != limit.limit);
            record.limits_hit.insert(0, limit);
        }
        if self.compared.is_none() {
            self.release.statistics().note(&record);
        }
        self.sandbox.recorder().record(record);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.recorded {
            self.record(CallOutcome::Cancelled, None, None);
        }
    }
}

#[cfg(test)]
mod tests;
