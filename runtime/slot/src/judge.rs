//! The judgement of new settings: which release serves under them.

use std::sync::Arc;

use crate::{Component, Judge, Outcome, Proposal, Refusal, Release, Wanted};

/// What a judgement does not know: how a release comes under other settings.
pub trait Reload: Sync {
    /// What is loaded.
    type Release: Release<Settings: Send + Sync> + Send + Sync;
    /// Why settings are wrong in themselves.
    type Error;

    /// Loads a component under these settings. The release is not compared with the active one,
    /// because new settings do not wait for a comparison. `number` is the judgement's.
    fn reload(
        &self,
        number: u64,
        component: &Component,
        settings: &<Self::Release as Release>::Settings,
        active: &Self::Release,
    ) -> impl Future<Output = Result<Arc<Self::Release>, Refusal>> + Send;

    /// The active release under these settings, where it need not be loaded again for them.
    /// `refusal` says why the release could not be asked.
    fn unasked(
        &self,
        active: &Self::Release,
        settings: &<Self::Release as Release>::Settings,
        refusal: &Refusal,
    ) -> Option<Arc<Self::Release>>;

    /// These settings with the cloud-config that is in force; none where they have it already.
    ///
    /// # Errors
    /// The result is wrong in itself.
    fn keeping_config(
        &self,
        settings: &<Self::Release as Release>::Settings,
        in_force: &<Self::Release as Release>::Settings,
    ) -> Result<Option<<Self::Release as Release>::Settings>, Self::Error>;
}

/// Judges settings: decides which release serves under them.
///
/// The first of these that can serve does: the active release; the newest offer; the active release
/// without a question, where the machine or the cloud is at fault that it did not answer; the
/// active release with its old cloud-config. Otherwise no release serves.
///
/// # Errors
/// The settings are wrong in themselves.
pub async fn judge<L: Reload>(loader: &L, judge: Judge<L::Release>) -> Result<Box<Proposal<L::Release>>, L::Error> {
    let Judge { number, settings, earlier, active, newest, in_force } = judge;
    let proposal = |settings, outcome| Ok(Box::new(Proposal { settings, earlier, outcome }));
    let Some(active) = active else { return proposal(settings, Outcome::Empty) };
    let refusal = match loader.reload(number, active.component(), &settings, &active).await {
        Ok(release) => return proposal(settings, Outcome::Serves(release)),
        Err(refusal) => refusal,
    };
    if let Some(newest) = newest
        && let Ok(release) = loader.reload(number, &newest, &settings, &active).await
    {
        return proposal(settings, Outcome::Serves(release));
    }
    if !refusal.lasting
        && let Some(release) = loader.unasked(&active, &settings, &refusal)
    {
        return proposal(settings, Outcome::Serves(release));
    }
    if let Some(kept) = loader.keeping_config(&settings, &in_force)?
        && let Ok(release) = loader.reload(number, active.component(), &kept, &active).await
    {
        return proposal(kept, Outcome::KeepsConfig(release, Wanted { settings, refusal }));
    }
    proposal(settings, Outcome::Stops(active.component().clone(), refusal))
}
