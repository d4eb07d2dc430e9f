//! The end of the calls of a release that was replaced. A call that does not end in time
//! ([`skysail_slot::Drain`]) is cancelled and repeated on the release that serves then.
//!
//! A call may take as long as its deadline, up to an hour, and holds its release for as long. Every
//! function of the contract may be called again after a cancelled call, as after a restart of the
//! manager, so that the call is repeated and does not fail.
//!
//! New settings may withdraw egress rules and credentials, so calls under the old settings end
//! earlier ([`SETTINGS`]).
//!
//! A call is not cancelled in the middle of a request that changes the cloud: the cloud would carry
//! the request out, and the repeated call might not see its effect yet and make a second load
//! balancer. Once its time is over, the call sends no further request, and is cancelled when its
//! last write has ended, at the latest with the timeout of that request.

use skysail_provider::Call;
use skysail_slot::{DRAIN, Release as _, SETTINGS};

use super::{Active, Slot};

impl Active {
    /// The result of this call on the release; none if the call was cancelled.
    pub(super) async fn until_over<T>(&self, call: &Call, called: impl Future<Output = T>) -> Option<T> {
        let cancelled = async {
            self.over().await;
            call.requests.finish().await;
        };
        tokio::select! {
            biased;
            result = called => Some(result),
            () = cancelled => None,
        }
    }

    /// Ends when the calls of this release have to end: the release or its settings were replaced.
    async fn over(&self) {
        tokio::select! {
            () = self.drain.over() => {}
            () = self.provider.sandbox().drain().over() => {}
        }
    }
}

impl Slot {
    /// A call was cancelled, and is repeated.
    pub(super) fn repeats(&self, release: &Active) {
        tracing::warn!(
            provider.name = %self.name,
            component.digest = release.digest(),
            "a provider call still ran {} s after its release was replaced, or {} s after its settings were: it is cancelled and repeated",
            DRAIN.as_secs(),
            SETTINGS.as_secs()
        );
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::Arc, time::Duration};

    use futures::FutureExt as _;
    use skysail_provider::{Call, Code, Interface};
    use skysail_slot::{DRAIN, SETTINGS};
    use tokio::{task::JoinSet, time};

    use crate::{
        Limits, SandboxOptions,
        slot::{
            Offered, ProbationOptions, RolloutOptions, Slot, SlotOptions,
            tests::{BUSY, limited, offer, options, reconfigure, services, until, version},
        },
        test_guest::{GUEST, Guest, Master, component},
    };

    /// A slot whose release has one call under way, which would go on for minutes on any machine.
    async fn busy(probation: Option<ProbationOptions>) -> (Arc<Slot>, JoinSet<Result<String, Code>>) {
        let limits = Limits {
            deadline_ms: 600_000,
            http_time_ms: 600_000,
            cpu_time_ms: 600_000,
            fuel: 1_000_000_000_000,
            ..Limits::default()
        };
        let SlotOptions { sandbox, .. } = options("");
        let rollout = RolloutOptions { probation, ..RolloutOptions::default() };
        let options = SlotOptions { rollout, ..SlotOptions::new(SandboxOptions { limits, ..sandbox }) };
        let slot = Arc::new(Slot::new(services(), options).unwrap());
        let endless = component(&Guest { describe: BUSY, master: Master::Endless, ..GUEST });
        assert_eq!(offer(&slot, &endless).await, Ok(Offered::Activated));
        let (mut call, called) = (JoinSet::new(), Arc::clone(&slot));
        call.spawn(async move { version(&called).await });
        time::sleep(Duration::from_millis(20)).await;
        (slot, call)
    }

    #[tokio::test]
    async fn a_call_that_does_not_end_in_time_is_cancelled_and_repeated_on_what_serves() {
        let (slot, mut call) = busy(None).await;
        // Before the swap: on a busy machine seconds may pass after it.
        time::pause();
        assert_eq!(offer(&slot, &component(&Guest { version: "2", ..GUEST })).await, Ok(Offered::Activated));
        assert_eq!(version(&slot).await, Ok("2".to_owned()));
        time::advance(DRAIN.checked_sub(Duration::from_secs(1)).unwrap()).await;
        assert!(call.try_join_next().is_none());
        assert_eq!(slot.status().borrow().draining, 1);
        time::advance(Duration::from_secs(2)).await;
        assert_eq!(call.join_next().await.unwrap().unwrap(), Ok("2".to_owned()));
        let mut status = slot.status();
        status.wait_for(|status| status.draining == 0).await.unwrap();
    }

    /// The settings may withdraw egress and credentials, and the call has the old ones.
    #[tokio::test]
    async fn a_call_under_old_settings_is_repeated_under_the_new_ones_within_seconds() {
        let (slot, mut call) = busy(None).await;
        time::pause();
        reconfigure(&slot, limited("", 50_000_000)).await.unwrap();
        time::advance(SETTINGS.checked_sub(Duration::from_millis(1)).unwrap()).await;
        assert!(call.try_join_next().is_none());
        time::advance(Duration::from_millis(2)).await;
        assert_eq!(call.join_next().await.unwrap().unwrap(), Err(Code::LimitExceeded), "under the new limit");
    }

    #[tokio::test]
    async fn a_call_under_old_settings_is_cancelled_when_its_write_has_ended() {
        let (slot, _call) = busy(None).await;
        let (release, call) = (slot.hold(Interface::Clusters, None).unwrap(), Call::default());
        let write = call.requests.begin(true).await;
        time::pause();
        reconfigure(&slot, limited("", 50_000_000)).await.unwrap();
        let mut ended = pin!(release.until_over(&call, std::future::pending::<()>()));
        assert!((&mut ended).now_or_never().is_none());
        time::advance(DRAIN).await;
        assert!((&mut ended).now_or_never().is_none(), "the cloud still carries out the request");
        drop(write);
        assert_eq!(ended.now_or_never(), Some(None));
    }

    #[tokio::test]
    async fn a_call_of_a_release_that_new_settings_stop_ends_within_seconds() {
        let (slot, mut call) = busy(None).await;
        time::pause();
        reconfigure(&slot, limited("", 500_000)).await.unwrap();
        assert_eq!(slot.status().borrow().active, None);
        time::advance(SETTINGS * 2).await;
        assert_eq!(call.join_next().await.unwrap().unwrap(), Err(Code::NotServing));
    }

    #[tokio::test]
    async fn a_release_that_serves_again_keeps_its_calls() {
        let probation = ProbationOptions { calls: 1, time: Duration::from_secs(3600) };
        let (slot, mut call) = busy(Some(probation)).await;
        assert_eq!(
            offer(&slot, &component(&Guest { version: "2", master: Master::Trap, ..GUEST })).await,
            Ok(Offered::Activated)
        );
        assert_eq!(version(&slot).await, Err(Code::Trapped));
        until(&slot, |status| status.refused.is_some()).await;
        time::pause();
        time::advance(DRAIN * 2).await;
        tokio::task::yield_now().await;
        assert!(call.try_join_next().is_none());
    }
}
