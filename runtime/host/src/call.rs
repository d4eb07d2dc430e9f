//! One provider call: a place, a fresh store, the guest under all guards, an outcome, a record.
//!
//! # Flow
//! wait for one of the provider's concurrent calls to end → the fence → store from the pre-instantiated component → the function → its answer judged →
//! outcome → record. The deadline covers all of it.
//!
//! # Cancel safety
//! Dropping the future ends the call: the store goes back, the HTTP requests with it, and the record says `Cancelled`.

use std::{marker::PhantomData, sync::Arc};

use futures::future::BoxFuture;
use skysail_provider::{Call, Code, Error, Limit, LimitHit};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use wasmtime::{Store, component::Instance};

use crate::{
    CallRecord, Outcome, Release, Sandbox,
    cache::Cache,
    imports::{HttpAccess, HttpCall},
    limits::CALLS_WAITING_MAX,
    outcome::explain,
    store::{CallState, new_store},
};

/// Which function of which release is called, and for whom.
pub(crate) struct Request<'a> {
    pub(crate) sandbox: &'a Arc<Sandbox>,
    pub(crate) release: &'a Release,
    pub(crate) call: &'a Call,
    /// Interface and function of the contract: `load-balancers.ensure`.
    pub(crate) function: &'static str,
    /// What it may send.
    pub(crate) http: HttpAccess,
    /// Whether its answer is only compared: how it ends says nothing of the calls that count.
    pub(crate) compared: bool,
}

/// A fresh guest. The function that gets one may borrow from its surroundings, for `'env`.
pub(crate) struct Guest<'s, 'env: 's> {
    pub(crate) store: &'s mut Store<CallState>,
    pub(crate) instance: &'s Instance,
    pub(crate) env: PhantomData<&'s &'env ()>,
}

/// Runs one call: `function` is given a fresh guest, `judge` its answer. The record says what the caller gets: an error of the guest and an
/// answer that breaks the contract are failures of the call.
pub(crate) async fn run<'env, R, T, F, J>(request: Request<'_>, function: F, judge: J) -> Result<T, Error>
where
    R: Send,
    T: Send,
    F: for<'s> FnOnce(Guest<'s, 'env>) -> BoxFuture<'s, wasmtime::Result<R>> + Send,
    J: FnOnce(R) -> Result<T, Error> + Send,
{
    let Request { sandbox, release, call, function: name, http, compared } = request;
    let span = tracing::debug_span!(
        "provider_call",
        provider.name = sandbox.name(),
        provider.operation = name,
        component.digest = release.digest(),
    );
    let mut running = Running::new(sandbox, release, call, name);
    running.compared = compared;
    async move {
        let deadline = running.began + std::time::Duration::from_millis(sandbox.limits().deadline_ms);
        let permit = match timeout_at(deadline, wait_for_place(sandbox)).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(error)) => return Err(running.failed(error)),
            Err(_elapsed) => return Err(running.failed(no_place(sandbox))),
        };
        running.waited = running.began.elapsed();
        if let Err(closed) = call.fence.check() {
            return Err(running.failed(closed.into()));
        }
        let http = HttpCall::new(sandbox, http, deadline, &call.fence);
        let mut state = CallState::new((sandbox, release), call.clone(), name, http);
        if compared {
            // What it learns where it may only read is nothing for the calls that count.
            state.cache = Arc::new(Cache::new(sandbox.limits()));
        }
        let store = match new_store(sandbox.wasmtime(), state) {
            Ok(store) => running.store.insert(store),
            Err(source) => {
                return Err(running.failed(Error::new(Code::Internal, format!("cannot make a store: {source}"))));
            }
        };
        let gauge = sandbox.recorder().metrics().running(sandbox.name());
        gauge.inc();
        let _gauge = scopeguard(move || {
            gauge.dec();
        });
        let result = timeout_at(deadline, async {
            let instance = release.instance_pre().instantiate_async(&mut *store).await?;
            function(Guest { store, instance: &instance, env: PhantomData }).await
        })
        .await;
        let result = running.finish(result, judge);
        drop(permit);
        result
    }
    .instrument(span)
    .await
}

/// Runs on drop.
fn scopeguard<F: FnOnce()>(f: F) -> impl Drop {
    struct Guard<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Guard<F> {
        fn drop(&mut self) {
            if let Some(f) = self.0.take() {
                f();
            }
        }
    }
    Guard(Some(f))
}

async fn wait_for_place(sandbox: &Sandbox) -> Result<tokio::sync::SemaphorePermit<'_>, Error> {
    if let Ok(permit) = sandbox.places().try_acquire() {
        return Ok(permit);
    }
    let _waiting = sandbox.wait().ok_or_else(|| no_place(sandbox))?;
    // The semaphore is never closed, so this is the permit.
    sandbox.places().acquire().await.map_err(|_closed| no_place(sandbox))
}

/// All of the provider's calls are taken, and the deadline passed or too many wait.
fn no_place(sandbox: &Sandbox) -> Error {
    let max = sandbox.limits().concurrent_calls;
    let hit = LimitHit { limit: Limit::ConcurrentCalls, used: max + u64::from(sandbox.waiting()).max(1), max };
    Error::limit_exceeded(
        hit,
        format!(
            "no place for another call of provider {}: {max} run (concurrentCalls), {} wait (at most {CALLS_WAITING_MAX})",
            sandbox.name(),
            sandbox.waiting()
        ),
    )
}

/// A call that has begun. Dropped before it is finished it was cancelled.
struct Running<'a> {
    sandbox: &'a Sandbox,
    release: &'a Release,
    call: &'a Call,
    function: &'static str,
    began: Instant,
    waited: std::time::Duration,
    store: Option<Store<CallState>>,
    recorded: bool,
    compared: bool,
}

impl<'a> Running<'a> {
    fn new(sandbox: &'a Sandbox, release: &'a Release, call: &'a Call, function: &'static str) -> Self {
        Self {
            sandbox,
            release,
            call,
            function,
            began: Instant::now(),
            waited: std::time::Duration::ZERO,
            store: None,
            recorded: false,
            compared: false,
        }
    }

    fn failed(&mut self, error: Error) -> Error {
        self.record(Outcome::Failed { code: error.code, message: error.message.clone() }, error.limit);
        error
    }

    fn finish<R, T>(
        &mut self,
        result: Result<wasmtime::Result<R>, tokio::time::error::Elapsed>,
        judge: impl FnOnce(R) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Whatever the guest made of it: nobody may act on an answer, and no failure is the guest's.
        if let Err(closed) = self.call.fence.check() {
            return Err(self.failed(closed.into()));
        }
        match result {
            Ok(Ok(answer)) => {
                let value = judge(answer).map_err(|error| self.failed(error))?;
                self.record(Outcome::Ok, None);
                Ok(value)
            }
            Ok(Err(source)) => {
                let error = explain(&source, self.store.as_ref(), self.sandbox.limits());
                Err(self.failed(error))
            }
            // What took its time were the calls before it.
            Err(_elapsed) if self.waited > self.began.elapsed() / 2 => Err(self.failed(no_place(self.sandbox))),
            Err(_elapsed) => Err(self.failed(Error::new(
                Code::DeadlineExceeded,
                format!("{} did not end within {} ms (deadlineMs)", self.function, self.sandbox.limits().deadline_ms),
            ))),
        }
    }

    fn record(&mut self, outcome: Outcome, limit: Option<LimitHit>) {
        self.recorded = true;
        if !self.compared {
            self.release.vitals().note(self.function, &outcome, limit);
        }
        let wall = self.began.elapsed();
        let mut record = CallRecord {
            provider: Arc::clone(self.sandbox.shared_name()),
            digest: Arc::clone(self.release.shared_digest()),
            function: self.function,
            object: self.call.object.clone(),
            outcome,
            fuel: 0,
            wall,
            waited: if self.store.is_some() { self.waited } else { wall },
            guest: std::time::Duration::ZERO,
            http: crate::HttpUse::default(),
            memory_peak: 0,
            log_lines: 0,
            log_lines_dropped: 0,
            events: 0,
            events_dropped: 0,
            limits_hit: Vec::new(),
        };
        if let Some(store) = self.store.as_mut() {
            // Consuming fuel is part of every engine's configuration, so this is the fuel left.
            let left = store.get_fuel().unwrap_or(0);
            record.fuel = self.sandbox.limits().fuel.saturating_sub(left);
            store.data_mut().complete(&mut record);
        }
        if let Some(limit) = limit {
            // The one that ended the call comes first.
            record.limits_hit.retain(|hit| hit.limit != limit.limit);
            record.limits_hit.insert(0, limit);
        }
        if !self.compared {
            self.release.tally().note(&record);
        }
        self.sandbox.recorder().record(record);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.recorded {
            self.record(Outcome::Cancelled, None);
        }
    }
}

#[cfg(test)]
mod tests;
