//! New settings for a slot in two steps: what can be refused comes first, so that several slots change together or not at all.

use std::sync::Arc;

use tokio::sync::MutexGuard;

use super::{Active, Quarantine, Refusal, Slot, SlotOptions, Work};
use crate::{Sandbox, SandboxError};

/// Why a slot keeps its old settings.
#[derive(Debug, thiserror::Error)]
pub enum ReconfigureError {
    /// The new settings are wrong in themselves.
    #[error("the provider's new settings are refused, the old ones stay in force")]
    Sandbox(#[from] SandboxError),
    /// The release that serves does not accept them.
    #[error("the release that serves refuses the provider's new settings, the old ones stay in force")]
    Refused(#[source] Refusal),
}

impl ReconfigureError {
    /// Whether the same settings will be refused again. Where not, the machine was the reason, and a later try may help.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        match self {
            Self::Sandbox(_) => true,
            Self::Refused(refusal) => refusal.lasting,
        }
    }
}

/// Settings that a slot can take up: everything that may refuse them was asked. Dropped, they change nothing.
///
/// While this lives, the slot takes no offer; calls go on.
#[must_use = "nothing changes before the commit"]
pub struct Reconfiguration<'a> {
    slot: &'a Slot,
    work: MutexGuard<'a, Work>,
    options: SlotOptions,
    sandbox: Arc<Sandbox>,
    /// What serves under the new settings; none while nothing serves.
    candidate: Option<Active>,
}

impl Slot {
    /// Asks for new settings of the provider, and changes nothing yet. The name stays that of the slot.
    ///
    /// The active release is loaded under the new settings and its `check-config` is asked. Where it refuses, the newest offer is asked, if
    /// that was refused: a release that came with its settings needs both at once.
    ///
    /// # Errors
    /// [`ReconfigureError`]: the old settings stay in force.
    pub async fn prepare(&self, mut options: SlotOptions) -> Result<Reconfiguration<'_>, ReconfigureError> {
        self.name.as_ref().clone_into(&mut options.sandbox.name);
        let work = self.work.lock().await;
        let sandbox = Sandbox::new(&self.services.engine, self.services.recorder.clone(), options.sandbox.clone())?;
        let candidate = match self.active.load_full() {
            Some(active) => Some(self.load_either(&work, &active, (&options, &sandbox)).await?),
            None => None,
        };
        Ok(Reconfiguration { slot: self, work, options, sandbox, candidate })
    }

    async fn load_either(
        &self,
        work: &Work,
        active: &Active,
        (options, sandbox): (&SlotOptions, &Arc<Sandbox>),
    ) -> Result<Active, ReconfigureError> {
        let refusal = match self.load(options, sandbox, &active.offer).await {
            Ok(candidate) => return Ok(candidate),
            Err(refusal) => ReconfigureError::Refused(refusal),
        };
        match &work.refused {
            Some(newest) => self.load(options, sandbox, newest).await.map_err(|_| refusal),
            None => Err(refusal),
        }
    }
}

impl Reconfiguration<'_> {
    /// The exchange: calls that begin from now on have the new settings, calls that run keep the old ones.
    ///
    /// Everything that was refused may be tried again; [`Slot::retry`] does it with the newest offer.
    pub fn commit(self) {
        let Self { slot, mut work, options, sandbox, candidate } = self;
        work.options = options;
        work.sandbox = sandbox;
        work.quarantine = Quarantine::default();
        // What was said about the newest offer was said under other settings.
        slot.shared.accepted();
        if let Some(candidate) = candidate {
            let serves = |offer: &mut super::Offer| offer.bytes == candidate.offer.bytes;
            drop(work.refused.take_if(serves));
            slot.activate(candidate);
        }
    }
}
