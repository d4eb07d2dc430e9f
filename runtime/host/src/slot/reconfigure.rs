//! New settings for a slot in two steps: what is wrong in itself is refused first, so that several
//! slots change together or not at all.
//!
//! # Rule
//! A guest has no say in what it may do: egress rules, credentials and limits are in force from the
//! commit on, whatever it answers. A refusal by a guest is no error of [`Slot::prepare`], so that
//! it holds back no other slot either. It decides only what serves:
//! 1. the active release under the new settings, or else the newest offer, where that was refused
//!    before;
//! 2. the active release with its old cloud-config and everything else new, where the cloud-config
//!    is another one;
//! 3. nothing, where it cannot be loaded under them at all.
//!
//! The second and the third leave the refusal in the status. A failure of the machine decides
//! nothing: the active release serves under the new settings without having been asked; only where
//! they need another engine (`stackBytes`) and that fails, nothing serves until [`Slot::retry`]
//! succeeds. Calls under the old settings end within seconds. The new cloud-config stays wanted:
//! each later offer is asked about it first.

use std::sync::Arc;

use tokio::sync::MutexGuard;

use super::{Active, Drain, Offer, Refusal, Slot, SlotOptions, Stage, Step, Wanted, Work, shadow::Compared};
use crate::{Sandbox, SandboxError, SandboxOptions, SandboxedProvider};

/// Settings that a slot can take up: every release that had to be asked was asked. Dropped, they
/// change nothing.
///
/// While this lives, the slot takes no offer; calls go on.
#[must_use = "nothing changes before the commit"]
pub struct Reconfiguration<'a> {
    slot: &'a Slot,
    work: MutexGuard<'a, Work>,
    options: SlotOptions,
    sandbox: Arc<Sandbox>,
    outcome: Outcome,
    earlier: EarlierOffers,
}

/// Whether what was offered before, and does not serve, may still be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlierOffers {
    /// It may.
    Stand,
    /// It came from another source: from the commit on it is forgotten.
    Forgotten,
}

/// What serves under the new settings.
enum Outcome {
    /// Nothing, as before.
    Empty,
    /// This release.
    Serves(Active),
    /// This release, with its old cloud-config.
    KeepsConfig(Active, Box<Wanted>),
    /// Nothing any more.
    Stops(Offer, Refusal),
}

impl Slot {
    /// Asks for new settings of the provider, and changes nothing yet. The name stays that of the
    /// slot. An offer that is under way is put off.
    ///
    /// # Errors
    /// The settings are wrong in themselves: the old ones stay in force.
    pub async fn prepare(
        &self,
        mut options: SlotOptions,
        earlier: EarlierOffers,
    ) -> Result<Reconfiguration<'_>, SandboxError> {
        self.name.as_ref().clone_into(&mut options.sandbox.name);
        let sandbox = self.sandbox(&options)?;
        let work = self.interrupt().await;
        let Some(active) = self.active.load_full() else {
            return Ok(Reconfiguration { slot: self, work, options, sandbox, outcome: Outcome::Empty, earlier });
        };
        let newest =
            work.refused.as_ref().filter(|offer| earlier == EarlierOffers::Stand && !self.was_taken_back(offer));
        let refusal = match self.load_either(&active, newest, (&options, &sandbox)).await {
            Ok(candidate) => {
                let outcome = Outcome::Serves(candidate);
                return Ok(Reconfiguration { slot: self, work, options, sandbox, outcome, earlier });
            }
            Err(refusal) => refusal,
        };
        if !refusal.lasting
            && let Some(candidate) = self.unasked(&active, &sandbox)
        {
            tracing::warn!(
                provider.name = %self.name,
                code = refusal.code,
                "the release that serves was not asked about the new settings, which are in force all the same: {refusal}"
            );
            let outcome = Outcome::Serves(candidate);
            return Ok(Reconfiguration { slot: self, work, options, sandbox, outcome, earlier });
        }
        let config = &work.options.sandbox.config;
        if *config != options.sandbox.config {
            let kept = SandboxOptions { config: config.clone(), ..options.sandbox.clone() };
            let kept = SlotOptions { sandbox: kept, ..options.clone() };
            let kept_sandbox = self.sandbox(&kept)?;
            if let Ok(candidate) = self.load(&kept, &kept_sandbox, &active.offer, Compared::No).await {
                let outcome = Outcome::KeepsConfig(candidate, Box::new(Wanted { options, sandbox, refusal }));
                return Ok(Reconfiguration {
                    slot: self,
                    work,
                    options: kept,
                    sandbox: kept_sandbox,
                    outcome,
                    earlier,
                });
            }
        }
        let outcome = Outcome::Stops(active.offer.clone(), refusal);
        Ok(Reconfiguration { slot: self, work, options, sandbox, outcome, earlier })
    }

    fn sandbox(&self, options: &SlotOptions) -> Result<Arc<Sandbox>, SandboxError> {
        Sandbox::new(&self.services.engine, self.services.recorder.clone(), options.sandbox.clone())
    }

    /// The release that serves under other settings, where it needs not be loaded again for them:
    /// neither memory nor CPU time can be missing for that.
    fn unasked(&self, active: &Active, sandbox: &Arc<Sandbox>) -> Option<Active> {
        let Active { provider, info, interfaces, offer, compiled, drain: _, shared } = active;
        if !wasmtime::Engine::same(provider.sandbox().wasmtime(), sandbox.wasmtime()) {
            return None;
        }
        shared.entered();
        Some(Active {
            provider: SandboxedProvider::new(Arc::clone(sandbox), Arc::clone(provider.release()), Arc::clone(info)),
            info: Arc::clone(info),
            interfaces: interfaces.clone(),
            offer: offer.clone(),
            compiled: compiled.clone(),
            drain: Drain::new(),
            shared: Arc::clone(shared),
        })
    }

    async fn load_either(
        &self,
        active: &Active,
        newest: Option<&Offer>,
        (options, sandbox): (&SlotOptions, &Arc<Sandbox>),
    ) -> Result<Active, Refusal> {
        let refusal = match self.load(options, sandbox, &active.offer, Compared::No).await {
            Ok(candidate) => return Ok(candidate),
            Err(refusal) => refusal,
        };
        match newest {
            Some(newest) => self.load(options, sandbox, newest, Compared::No).await.map_err(|_| refusal),
            None => Err(refusal),
        }
    }
}

impl Reconfiguration<'_> {
    /// The exchange: calls that begin from now on have the new settings; calls under way keep the
    /// old ones for seconds, and are then cancelled and repeated.
    ///
    /// Everything that was refused may be tried again; [`Slot::retry`] does it with the newest
    /// offer.
    pub fn commit(self) {
        let Self { slot, mut work, options, sandbox, outcome, earlier } = self;
        slot.put_canary_off(&mut work);
        if earlier == EarlierOffers::Forgotten {
            work.settle();
        }
        slot.ask_again(options.retry.clone());
        slot.memory.keeps(options.rollout.shadow.is_some());
        slot.shared.shadow(None);
        work.options = options;
        work.replace_sandbox(sandbox);
        work.wanted = None;
        slot.quarantine.settings_changed();
        // What is kept was loaded under the old settings.
        slot.set_probation(None);
        // What was said about the newest offer was said under other settings.
        slot.shared.settled(None);
        match outcome {
            Outcome::Empty => {}
            Outcome::Serves(candidate) => serve(slot, &mut work, candidate),
            Outcome::KeepsConfig(candidate, wanted) => {
                serve(slot, &mut work, candidate);
                tracing::error!(
                    provider.name = %slot.name,
                    code = wanted.refusal.code,
                    "the release that serves keeps its old cloud-config, all other settings are in force: {}", wanted.refusal
                );
                slot.shared.refused(&wanted.refusal);
                work.wanted = Some(wanted);
            }
            Outcome::Stops(offer, refusal) => {
                tracing::error!(
                    provider.name = %slot.name,
                    stage = refusal.stage.name(),
                    code = refusal.code,
                    "nothing serves any more, for the release cannot be loaded under the new settings: {refusal}"
                );
                slot.stop(&mut work, offer, &refusal);
            }
        }
    }
}

fn serve(slot: &Slot, work: &mut Work, candidate: Active) {
    drop(work.refused.take_if(|offer| offer.bytes == candidate.offer.bytes));
    // The same as before, or what was asked for and refused: under the new settings there is
    // nothing to compare it with.
    slot.shared.step(candidate.provider.release().digest(), Stage::Shadowed, Step::To(Stage::Active));
    slot.exchange(Arc::new(candidate), None, None);
}
