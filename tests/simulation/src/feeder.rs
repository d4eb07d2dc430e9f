//! What keeps a slot filled: the task between a source and the slot, and the operator's edits, as
//! `Feeder` and `Fleet` of `skysail run`.

use std::{sync::Arc, time::Duration};

use skysail_slot::{Component, EarlierOffers, Offered, SourceFailure, Told};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    chance::Chance,
    clock::wait,
    folder::{Folder, Keeper},
    link::Link,
    release::{Conf, Settings},
    slot::Slot,
};

/// The time between two retries of an offer.
const RETRY_PERIOD: Duration = Duration::from_secs(30);

/// The longest time that the source waits for the release in the state folder.
const FIRST_RELEASES: Duration = Duration::from_secs(10);

/// What a source reports: a component, or why it has none.
pub(crate) type Found = Result<Component, SourceFailure>;

/// What every process reads of one provider.
#[derive(Clone)]
pub(crate) struct Source {
    /// The places from which components come. The settings say which of them.
    pub(crate) places: [watch::Receiver<Found>; 2],
    pub(crate) conf: watch::Receiver<Conf>,
}

impl Source {
    /// The component that is offered now.
    pub(crate) fn newest(&self) -> Option<Component> {
        let place = self.conf.borrow().place;
        self.places.get(place)?.borrow().clone().ok()
    }
}

/// What a feeder needs.
pub(crate) struct Feeder {
    pub(crate) slot: Arc<Slot>,
    pub(crate) source: Source,
    /// The settings that the slot began with: the operator may have edited them since.
    pub(crate) conf: Conf,
    /// The provider, and the state folder of the process, where it has one.
    pub(crate) kept: Option<(String, Folder)>,
    pub(crate) link: Arc<Link>,
}

impl Feeder {
    /// As an operator's edit reaches the fleet: settings are judged, and committed after a while.
    /// Sometimes another provider of the fleet refuses its own, so that these are dropped, and come
    /// again.
    pub(crate) async fn follow_settings(self, mut chance: Chance) -> String {
        let mut confs = self.source.conf.clone();
        let mut known = self.conf.clone();
        let mut feeding = self.start(known.place, false);
        while confs.changed().await.is_ok() {
            let conf = confs.borrow_and_update().clone();
            let another_source = conf.place != known.place;
            if conf.has_settings_of(&known) {
                if another_source {
                    feeding = self.start(conf.place, true);
                }
                if conf.retry != known.retry {
                    self.slot.ask_again(conf.retry.clone()).await;
                }
            } else {
                let after = chance.milliseconds(0..=3_000);
                let earlier = if another_source { EarlierOffers::Forgotten } else { EarlierOffers::Stand };
                if chance.once_in(0.3) {
                    drop(self.slot.propose(Settings::new(conf.clone()), earlier).await);
                    wait(after).await;
                }
                let proposed = self.slot.propose(Settings::new(conf.clone()), earlier).await;
                wait(after).await;
                let committed = proposed.map(|proposed| proposed.commit());
                feeding = self.start(conf.place, another_source);
                if let Some(committed) = committed {
                    committed.await;
                }
            }
            known = conf;
        }
        drop(feeding);
        "its operator is gone".to_owned()
    }

    /// Offers what the source has. Dropped, the task ends, and the slot keeps its releases.
    fn start(&self, place: usize, another_source: bool) -> JoinSet<()> {
        let mut task = JoinSet::new();
        let Some(offers) = self.source.places.get(place).cloned() else { return task };
        let keeper = self.kept.clone().map(|(provider, folder)| Keeper::new(folder, provider, place));
        let (link, slot) = (Arc::clone(&self.link), Arc::clone(&self.slot));
        // Nothing of this happens while the process is frozen.
        task.spawn(async move { link.run(fill(slot, (offers, place), keeper, another_source)).await });
        task
    }
}

/// Invariant: each offer is answered, and only a newer one overtakes it.
async fn fill(
    slot: Arc<Slot>,
    (mut offers, place): (watch::Receiver<Found>, usize),
    mut keeper: Option<Keeper>,
    another_source: bool,
) {
    slot.takes_from(place);
    if another_source {
        slot.forget_all_but(place).await;
    }
    if let Some(Keeper { folder, provider, .. }) = &keeper {
        for refusal in folder.quarantined(provider) {
            slot.quarantine(refusal).await;
        }
        if slot.status().borrow().active.is_none()
            && let Some(kept) = folder.kept(provider, place)
        {
            // As `skysail run`: a release that is loaded for too long keeps no fix back.
            drop(timeout(FIRST_RELEASES, slot.offer(kept)).await);
        }
    }
    let (mut status, mut retry) = (slot.status(), interval(RETRY_PERIOD));
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    offers.mark_changed();
    loop {
        tokio::select! {
            biased;
            Ok(()) = offers.changed() => {
                let found = offers.borrow_and_update().clone();
                match found {
                    Ok(component) => {
                        if let Some(keeper) = &mut keeper {
                            keeper.last = Some(component.clone());
                        }
                        under_way.spawn(offer(Arc::clone(&slot), component, offers.clone()));
                    }
                    Err(failure) => slot.tell_of(Told::SourceFailed(failure)).await,
                }
            }
            Some(_) = under_way.join_next() => {}
            // The slot outlives its feeder, so this is a change.
            _ = status.changed(), if keeper.is_some() => {}
            _ = retry.tick(), if under_way.is_empty() => {
                let slot = Arc::clone(&slot);
                under_way.spawn(async move { slot.retry().await });
            }
        }
        let now = status.borrow_and_update().clone();
        if let Some(component) = keeper.as_mut().and_then(|keeper| keeper.follow(&now)) {
            slot.keeps(component);
        }
    }
}

async fn offer(slot: Arc<Slot>, component: Component, newest: watch::Receiver<Found>) {
    let origin = component.offer.origin.clone();
    let answer = slot.offer(component).await;
    let is_newest = newest.has_changed().is_ok_and(|changed| !changed);
    if (answer.is_none() && slot.is_running()) || (is_newest && answer == Some(Ok(Offered::Overtaken))) {
        slot.story.violate(format_args!("{}: the offer of {origin} is lost: {answer:?}", slot.name));
    }
}
