//! The turns of the calls that change load balancers.
//!
//! A provider may ask for one such call at a time
//! ([`Info::serial_load_balancers`](skysail_provider::Info::serial_load_balancers)), because
//! several Services share a resource that it changes. The slot keeps this promise across releases:
//! a call on a release that was replaced, and a call of a canary, count too. Calls wait in their
//! order, before their deadline begins, and a waiting call holds no release. The wait is bounded: a
//! turn of the controllers contains no unbounded step.
//!
//! The controllers give such a provider one Service at a time, so that a call rarely waits here:
//! for a call on an earlier release that was not serial, and for a call that another provider's
//! worker makes about a Service of unknown provider.

use std::{sync::Arc, time::Duration};

use skysail_provider::{Error, Interface};
use skysail_slot::DRAIN;
use tokio::{
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::timeout,
};

use super::{Active, Slot};

/// When a call that got no turn should be tried again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// See the module. tokio's lock is fair.
#[derive(Debug, Default)]
pub(super) struct FairTurns(RwLock<()>);

/// The turn of one call, which ends when this is dropped.
pub(super) enum CallTurn<'a> {
    /// No other call runs.
    Alone { _guard: RwLockWriteGuard<'a, ()> },
    /// Only calls of releases that are not serial run.
    Shared { _guard: RwLockReadGuard<'a, ()> },
}

impl Slot {
    /// Waits for a turn; returns it with the release for the call, as [`Slot::hold`].
    ///
    /// # Errors
    /// Those of [`Slot::hold`], and `RetryAfter` if the calls before this one last longer than
    /// [`DRAIN`], which a call on a replaced release may take, and the deadline of a call together.
    pub(super) async fn turn(
        &self,
        interface: Interface,
        uid: Option<&str>,
    ) -> Result<(CallTurn<'_>, Arc<Active>), Error> {
        let longest = DRAIN + Duration::from_millis(self.hold(interface, uid)?.provider.sandbox().limits().deadline_ms);
        timeout(longest, self.next_turn(interface, uid)).await.unwrap_or_else(|_| {
            let message = format!(
                "provider {} changes one load balancer at a time, and its earlier calls have lasted {} s; the call is tried again after {} s",
                self.name,
                longest.as_secs(),
                RETRY_AFTER.as_secs()
            );
            Err(Error::retry_after(RETRY_AFTER, message))
        })
    }

    async fn next_turn(&self, interface: Interface, uid: Option<&str>) -> Result<(CallTurn<'_>, Arc<Active>), Error> {
        loop {
            let asks_for_it = self.hold(interface, uid)?.info.serial_load_balancers;
            let turn = match asks_for_it {
                true => CallTurn::Alone { _guard: self.turns.0.write().await },
                false => CallTurn::Shared { _guard: self.turns.0.read().await },
            };
            let release = self.hold(interface, uid)?;
            // During the wait another release may have begun to serve.
            if matches!(turn, CallTurn::Alone { .. }) || !release.info.serial_load_balancers {
                return Ok((turn, release));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use skysail_provider::{Call, Code, Interface, LoadBalancers as _, ObjectReference, Service};
    use skysail_slot::DRAIN;
    use tokio::{
        sync::broadcast::Receiver,
        task::{AbortHandle, JoinSet, yield_now},
        time,
    };

    use crate::{
        CallRecord,
        slot::{
            CanaryOptions, Offered, ProbationOptions, RolloutOptions, Slot, SlotOptions,
            tests::{offer, patient_options, run, services},
        },
        test_guest::{ENDLESS, GUEST, Guest, component},
    };

    /// The deadline of a call.
    const DEADLINE: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    const SLOW: Guest = Guest { deletion: Some(ENDLESS), ..GUEST };
    const QUICK: Guest = Guest { version: "2", deletion: Some(""), ..GUEST };

    struct World {
        slot: Arc<Slot>,
        /// Each ends with the UID of its Service.
        calls: JoinSet<(&'static str, Result<(), Code>)>,
        records: Receiver<Arc<CallRecord>>,
    }

    impl World {
        async fn serving(guest: Guest, rollout: RolloutOptions) -> Self {
            let options = SlotOptions { rollout, ..patient_options("") };
            let slot = Arc::new(Slot::new(services(), options).unwrap());
            assert_eq!(offer(&slot, &component(&guest)).await, Ok(Offered::Activated));
            let records = slot.services.recorder.subscribe();
            Self { slot, calls: JoinSet::new(), records }
        }

        /// Begins a call about the Service with this UID.
        fn begin(&mut self, uid: &'static str) -> AbortHandle {
            let slot = Arc::clone(&self.slot);
            self.calls.spawn(async move {
                let (kind, namespace) = ("Service", "default".to_owned());
                let object = ObjectReference { kind, namespace, name: uid.to_owned(), uid: uid.to_owned() };
                let call = Call { object: Some(object), ..Call::default() };
                let answer = slot.ensure_deleted(&call, "kubernetes", &Service::new("default", uid, uid)).await;
                (uid, answer.map_err(|error| error.code))
            })
        }

        async fn until_one_runs(&self) {
            while self.slot.services.recorder.metrics().running("cloud").get() == 0 {
                yield_now().await;
            }
        }

        async fn ended(&mut self) -> (&'static str, Result<(), Code>) {
            self.calls.join_next().await.unwrap().unwrap()
        }

        /// Fails if a call ends although every task gets many turns of the runtime.
        async fn all_go_on(&mut self) {
            for _ in 0..100 {
                yield_now().await;
            }
            if let Some(ended) = self.calls.try_join_next() {
                panic!("{:?} {:?}", ended.unwrap(), self.recorded());
            }
        }

        /// The calls that ended, in their order.
        fn recorded(&mut self) -> Vec<String> {
            let mut lines = Vec::new();
            while let Ok(record) = self.records.try_recv() {
                if let Some(object) = &record.object {
                    lines.push(format!("{} {}", object.uid, record.outcome.category()));
                }
            }
            lines
        }
    }

    #[test]
    fn a_call_of_a_serial_release_waits_for_the_call_on_the_replaced_release() {
        run(async {
            let mut world = World::serving(SLOW, RolloutOptions::default()).await;
            world.begin("a");
            world.until_one_runs().await;
            let next = component(&Guest { is_serial: true, ..QUICK });
            assert_eq!(offer(&world.slot, &next).await, Ok(Offered::Activated));
            time::pause();
            world.begin("b");
            world.all_go_on().await;
            // The replaced release ends, and its call is repeated behind the one that waits.
            time::advance(DRAIN + SECOND).await;
            assert_eq!((world.ended().await, world.ended().await), (("b", Ok(())), ("a", Ok(()))));
            assert_eq!(world.recorded(), ["a Cancelled", "b Ok", "a Ok"]);
        });
    }

    #[tokio::test]
    async fn without_fair_turns_a_call_waits_for_no_other_call() {
        let mut world = World::serving(SLOW, RolloutOptions::default()).await;
        world.begin("a");
        world.until_one_runs().await;
        assert_eq!(offer(&world.slot, &component(&QUICK)).await, Ok(Offered::Activated));
        world.begin("b");
        assert_eq!(world.ended().await, ("b", Ok(())));
        assert_eq!(world.recorded(), ["b Ok"]);
    }

    #[test]
    fn the_wait_for_a_turn_is_not_part_of_a_calls_deadline() {
        run(async {
            let mut world = World::serving(Guest { is_serial: true, ..SLOW }, RolloutOptions::default()).await;
            for uid in ["a", "b"] {
                world.begin(uid);
                world.until_one_runs().await;
            }
            for uid in ["a", "b"] {
                world.until_one_runs().await;
                time::pause();
                time::advance(DEADLINE + SECOND).await;
                assert_eq!(world.ended().await, (uid, Err(Code::DeadlineExceeded)));
                time::resume();
                world.all_go_on().await;
            }
        });
    }

    /// A turn of the controllers counts as stuck when one of its steps lasts too long.
    #[test]
    fn a_call_behind_many_long_calls_asks_for_a_retry() {
        run(async {
            let mut world = World::serving(Guest { is_serial: true, ..SLOW }, RolloutOptions::default()).await;
            for uid in ["a", "b", "c"] {
                world.begin(uid);
                world.until_one_runs().await;
            }
            world.all_go_on().await;
            time::pause();
            // The first call may last as long.
            time::advance(DEADLINE + DRAIN - SECOND).await;
            assert_eq!(world.ended().await, ("a", Err(Code::DeadlineExceeded)));
            time::resume();
            world.until_one_runs().await;
            time::pause();
            time::advance(2 * SECOND).await;
            assert_eq!(world.ended().await, ("c", Err(Code::RetryAfter)));
            world.all_go_on().await;
        });
    }

    /// The canary changes the same resources as the release that serves all other objects.
    #[test]
    fn a_serial_canary_waits_for_the_calls_of_its_predecessor() {
        run(async {
            let watched = ProbationOptions { calls: 1_000_000, time: Duration::from_secs(3600) };
            let canary = Some(CanaryOptions { percent: 50, watched });
            let mut world = World::serving(SLOW, RolloutOptions { canary, ..RolloutOptions::default() }).await;
            let next = component(&Guest { is_serial: true, ..QUICK });
            assert_eq!(offer(&world.slot, &next).await, Ok(Offered::Canary));
            let is_of_canary = |uid: &&str| {
                let routing = world.slot.routing.load();
                routing.pick(Interface::LoadBalancers, Some(uid)).unwrap().info.serial_load_balancers
            };
            let uids = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let of_canary = *uids.iter().find(|uid| is_of_canary(uid)).unwrap();
            let other = *uids.iter().find(|uid| !is_of_canary(uid)).unwrap();
            let running = world.begin(other);
            world.until_one_runs().await;
            world.begin(of_canary);
            world.all_go_on().await;
            running.abort();
            assert!(world.calls.join_next().await.unwrap().unwrap_err().is_cancelled());
            assert_eq!(world.ended().await, (of_canary, Ok(())));
            assert_eq!(world.recorded(), [format!("{other} Cancelled"), format!("{of_canary} Ok")]);
        });
    }
}
