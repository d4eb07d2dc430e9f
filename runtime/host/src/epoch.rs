//! The thread that ticks the epochs of the wasmtime engines while guests exist.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use wasmtime::EngineWeak;

/// One tick of the epoch: the time after which a computing guest yields its thread to other tasks.
/// A controller does not notice ten milliseconds, and a tick costs one atomic increment.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);
/// Ticks without a guest after which the thread sleeps until the next guest. A hundred ticks a
/// second were all of an idle manager's CPU time; to wake the thread at each call would make each
/// call dearer.
const QUIET_TICKS: u32 = 100;

/// The epoch of all engines. The thread ends when this is dropped.
pub(crate) struct Epoch {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    engines: Vec<EngineWeak>,
    guests: usize,
    asleep: bool,
    ended: bool,
}

/// A guest that may compute: the epoch ticks until this is dropped.
pub(crate) struct Ticking {
    shared: Arc<Shared>,
}

impl Epoch {
    /// Starts the thread. A thread and not a task: guests that keep all threads of tokio busy must
    /// not delay the tick.
    pub(crate) fn start() -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let ticker = Arc::clone(&shared);
        thread::Builder::new().name("epoch".to_owned()).spawn(move || ticker.tick_until_ended())?;
        Ok(Self { shared })
    }

    /// Ticks this engine, too, as long as the engine exists.
    pub(crate) fn add(&self, engine: &wasmtime::Engine) {
        self.shared.state().engines.push(engine.weak());
    }

    /// Every store of a guest keeps the result: a guest without ticks would keep its thread.
    pub(crate) fn ticking(&self) -> Ticking {
        let mut state = self.shared.state();
        state.guests += 1;
        if state.asleep {
            self.shared.changed.notify_one();
        }
        Ticking { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_one();
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.shared.state().guests -= 1;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick_until_ended(&self) {
        let mut quiet = 0;
        let mut state = self.state();
        while !state.ended {
            if quiet >= QUIET_TICKS {
                state = self.sleep_until_a_guest(state);
                quiet = 0;
            }
            let waited = self.changed.wait_timeout_while(state, EPOCH_TICK, |state| !state.ended);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            quiet = if state.guests == 0 { quiet + 1 } else { 0 };
            state.tick();
        }
    }

    fn sleep_until_a_guest<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.asleep = true;
        let woken = self.changed.wait_while(state, |state| state.guests == 0 && !state.ended);
        let mut state = woken.unwrap_or_else(PoisonError::into_inner);
        state.asleep = false;
        state
    }
}

impl State {
    fn tick(&mut self) {
        self.engines.retain(|engine| {
            engine.upgrade().is_some_and(|engine| {
                engine.increment_epoch();
                true
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use wasmtime::{Instance, Module, Store, Trap};

    use super::Epoch;
    use crate::engine::engine_config;

    /// `(module (func (export "f") (loop br 0)))`
    const LOOP: &[u8] = b"\0asm\x01\0\0\0\
        \x01\x04\x01\x60\0\0\
        \x03\x02\x01\0\
        \x07\x05\x01\x01f\0\0\
        \x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";
    /// Some ten seconds: a loop without ticks fails the test and does not hang it.
    const FUEL: u64 = 20_000_000_000;

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            thread::yield_now();
        }
    }

    fn computed_until(engine: &wasmtime::Engine) -> wasmtime::Result<Option<Trap>> {
        let mut store = Store::new(engine, ());
        store.set_fuel(FUEL)?;
        store.set_epoch_deadline(2);
        let instance = Instance::new(&mut store, &Module::new(engine, LOOP)?, &[])?;
        let ended = instance.get_typed_func::<(), ()>(&mut store, "f")?.call(&mut store, ());
        Ok(ended.err().and_then(|error| error.downcast_ref().copied()))
    }

    #[test]
    fn the_thread_sleeps_without_a_guest_and_a_guest_that_computes_wakes_it() -> wasmtime::Result<()> {
        let (epoch, engine) = (Epoch::start()?, wasmtime::Engine::new(&engine_config(1 << 20))?);
        epoch.add(&engine);
        for _ in 0..2 {
            wait_until(|| epoch.shared.state().asleep);
            let _guest = epoch.ticking();
            assert_eq!(computed_until(&engine)?, Some(Trap::Interrupt));
        }
        Ok(())
    }

    #[test]
    fn the_thread_ends_with_its_epoch_while_it_sleeps_and_while_it_ticks() -> std::io::Result<()> {
        for sleeps in [true, false] {
            let epoch = Epoch::start()?;
            let thread = Arc::downgrade(&epoch.shared);
            let guest = (!sleeps).then(|| epoch.ticking());
            if sleeps {
                wait_until(|| epoch.shared.state().asleep);
            }
            drop(epoch);
            drop(guest);
            wait_until(|| thread.strong_count() == 0);
        }
        Ok(())
    }
}
