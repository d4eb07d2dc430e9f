//! What is tried, in which order, when a component is offered and when settings change.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use crate::{Component, Judge, Load, Loaded, Proposal, Refusal, Release, SettingsOutcome, ShadowStatus, Under, Wanted};

type SettingsOf<L> = <<L as ComponentLoader>::Release as Release>::Settings;

/// How one component is loaded under one set of settings. `number` is that of the load or of the
/// judgement.
pub trait ComponentLoader: Sync {
    /// What is loaded.
    type Release: Release<Settings: Send + Sync> + Send + Sync;
    /// Why settings are wrong in themselves.
    type Error;

    /// Loads a component without a comparison with the active release.
    fn attempt(
        &self,
        number: u64,
        component: &Component,
        settings: &SettingsOf<Self>,
        active: Option<&Self::Release>,
    ) -> impl Future<Output = Result<Arc<Self::Release>, Refusal>> + Send;

    /// Loads a component and compares it with the active release, where the settings want that.
    fn attempt_compared(
        &self,
        number: u64,
        component: &Component,
        settings: &SettingsOf<Self>,
        active: Option<&Self::Release>,
    ) -> impl Future<Output = (Result<Arc<Self::Release>, Refusal>, Option<ShadowStatus>)> + Send;

    /// The active release under these settings, without a question; none where not even that is
    /// possible. `refusal` says why the release could not be asked.
    fn unasked(
        &self,
        number: u64,
        active: &Self::Release,
        settings: &SettingsOf<Self>,
        refusal: &Refusal,
    ) -> impl Future<Output = Option<Arc<Self::Release>>> + Send;

    /// These settings with the current cloud-config; none where they have it already.
    ///
    /// # Errors
    /// The result is wrong in itself.
    fn keeping_config(
        &self,
        settings: &SettingsOf<Self>,
        in_force: &SettingsOf<Self>,
    ) -> Result<Option<SettingsOf<Self>>, Self::Error>;
}

/// Loads a component under the settings that [`Load::under`] names.
pub async fn load<L: ComponentLoader>(loader: &L, load: Load<L::Release>) -> Loaded<L::Release> {
    let Load { number, component, under, active } = load;
    let active = active.as_deref();
    // Under the wanted settings without a comparison: the active release has another cloud-config,
    // so that the answers may differ.
    let (in_force, refused) = match under {
        Under::InForce(in_force) => (in_force, None),
        Under::WantedFirst { wanted, in_force } => match loader.attempt(number, &component, &wanted, active).await {
            Ok(release) => return Loaded { result: Ok(release), shadow: None, wanted: None },
            Err(refusal) => (in_force, Some(refusal)),
        },
        Under::Wanted(wanted) => {
            let result = loader.attempt(number, &component, &wanted, active).await;
            return Loaded { result, shadow: None, wanted: None };
        }
    };
    let (result, shadow) = loader.attempt_compared(number, &component, &in_force, active).await;
    // A fault of the machine or the cloud has not decided about the wanted settings: the offer is
    // tried again.
    let undecided = refused.clone().filter(|refusal| !refusal.lasting);
    Loaded { result: result.map_err(|refusal| undecided.unwrap_or(refusal)), shadow, wanted: refused }
}

/// How long new settings wait for one release.
///
/// Until then the old settings are in force, also the rights that the operator takes away; and a
/// guest chooses how long it sleeps and how long its compilation takes.
pub const JUDGEMENT_MAX: Duration = Duration::from_secs(5);

/// Judges settings: decides which release serves under them. New settings do not wait for a
/// comparison.
///
/// The first of these that can serve does: the active release; the newest offer, if it can within
/// [`JUDGEMENT_MAX`]; the active release without a question, where the machine or the cloud is at
/// fault that it did not answer; the active release with its old cloud-config. Otherwise no release
/// serves.
///
/// # Errors
/// The settings are wrong in themselves.
pub async fn judge<L: ComponentLoader>(
    loader: &L,
    judge: Judge<L::Release>,
) -> Result<Box<Proposal<L::Release>>, L::Error> {
    let Judge { number, settings, earlier, active, newest, in_force } = judge;
    let proposal = |settings, outcome| Ok(Box::new(Proposal { settings, earlier, outcome }));
    let Some(active) = active else { return proposal(settings, SettingsOutcome::Empty) };
    let refusal = match loader.attempt(number, active.component(), &settings, Some(&active)).await {
        Ok(release) => return proposal(settings, SettingsOutcome::Serves(release)),
        Err(refusal) => refusal,
    };
    if let Some(newest) = newest
        && let Ok(Ok(release)) = timeout(JUDGEMENT_MAX, loader.attempt(number, &newest, &settings, Some(&active))).await
    {
        return proposal(settings, SettingsOutcome::Serves(release));
    }
    if !refusal.lasting
        && let Some(release) = loader.unasked(number, &active, &settings, &refusal).await
    {
        return proposal(settings, SettingsOutcome::Serves(release));
    }
    if let Some(kept) = loader.keeping_config(&settings, &in_force)?
        && let Ok(release) = loader.attempt(number, active.component(), &kept, Some(&active)).await
    {
        return proposal(kept, SettingsOutcome::KeepsConfig(release, Wanted { settings, refusal }));
    }
    proposal(settings, SettingsOutcome::Stops(active.component().clone(), refusal))
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::ready, sync::Arc};

    use super::{ComponentLoader, load};
    use crate::{
        Component, Load, Refusal, Settings as _, ShadowStatus, Under,
        state::tests::{Release, Settings, offered, refusal, settings},
    };

    /// Refuses each component: under the wanted settings for good or not, under all others for
    /// good.
    struct Loader {
        wanted: Settings,
        for_good: bool,
    }

    impl ComponentLoader for Loader {
        type Release = Release;
        type Error = Infallible;

        fn attempt(
            &self,
            _number: u64,
            component: &Component,
            settings: &Settings,
            _active: Option<&Release>,
        ) -> impl Future<Output = Result<Arc<Release>, Refusal>> + Send {
            let lasting = self.for_good || !settings.is(&self.wanted);
            ready(Err(refusal(component, lasting)))
        }

        async fn attempt_compared(
            &self,
            number: u64,
            component: &Component,
            settings: &Settings,
            active: Option<&Release>,
        ) -> (Result<Arc<Release>, Refusal>, Option<ShadowStatus>) {
            (self.attempt(number, component, settings, active).await, None)
        }

        fn unasked(
            &self,
            _number: u64,
            _active: &Release,
            _settings: &Settings,
            _refusal: &Refusal,
        ) -> impl Future<Output = Option<Arc<Release>>> + Send {
            ready(None)
        }

        fn keeping_config(&self, _settings: &Settings, _in_force: &Settings) -> Result<Option<Settings>, Infallible> {
            Ok(None)
        }
    }

    /// The machine fails under the wanted settings, and the old cloud-config is refused.
    #[tokio::test]
    async fn an_offer_is_refused_for_good_only_if_the_wanted_settings_refuse_it_for_good() {
        for for_good in [true, false] {
            let loader = Loader { wanted: settings(0), for_good };
            let under = Under::WantedFirst { wanted: loader.wanted.clone(), in_force: settings(0) };
            let loaded = load(&loader, Load { number: 1, component: offered(0), under, active: None }).await;
            let lasting = |refusal: Option<Refusal>| refusal.map(|refusal| refusal.lasting);
            assert_eq!((lasting(loaded.result.err()), lasting(loaded.wanted)), (Some(for_good), Some(for_good)));
        }
    }
}
