//! The vendor, who offers releases at two places for each provider, and the operator of the
//! providers' settings.

use std::sync::Arc;

use skysail_slot::{Component, Offer, OnDifference, SourceFailure};
use tokio::{sync::watch, time::Instant};

use crate::{
    Plan,
    chance::Chance,
    feeder::{Found, Source},
    release::{Conf, Nature},
    story::Story,
};

/// One provider.
struct SimulatedProvider {
    places: [Place; 2],
    conf: watch::Sender<Conf>,
}

/// A place from which components come.
struct Place {
    found: watch::Sender<Found>,
    newest: Component,
    /// The component before the newest.
    earlier: Option<Component>,
}

impl SimulatedProvider {
    fn conf(&self) -> Conf {
        self.conf.borrow().clone()
    }

    fn place(&self) -> &Place {
        let [first, second] = &self.places;
        if self.conf.borrow().place == 0 { first } else { second }
    }
}

/// See the module.
pub(crate) struct Vendor {
    providers: Vec<SimulatedProvider>,
    /// Components made, to give each its number.
    made: usize,
    chance: Chance,
    story: Story,
    /// What happens while an offer is loaded: to which provider, and when.
    due: Option<(usize, Instant, Next)>,
}

/// What follows an offer while its component is loaded.
#[derive(Clone, Copy)]
enum Next {
    /// A second offer.
    Offer,
    /// The operator changes to the other place, whose source fails: no offer replaces the one that
    /// is loaded.
    OtherPlace,
}

impl Vendor {
    pub(crate) fn new(plan: &Plan, providers: usize, story: Story) -> Self {
        let chance = Chance::of(plan.seed, "vendor");
        let mut vendor = Self { providers: Vec::new(), made: 0, chance, story, due: None };
        for provider in 0..providers {
            let places = [0, 1].map(|place| {
                let newest = vendor.component((provider, place), "g");
                Place { found: watch::Sender::new(Ok(newest.clone())), newest, earlier: None }
            });
            let chance = &mut vendor.chance;
            let conf = Conf {
                shadow: chance.once_in(0.2).then_some(OnDifference::Report),
                canary: chance.once_in(0.5).then_some(20),
                probation: chance.once_in(0.7),
                trial_calls: if chance.once_in(0.5) { 3 } else { 40 },
                ..Conf::default()
            };
            vendor.providers.push(SimulatedProvider { places, conf: watch::Sender::new(conf) });
        }
        vendor
    }

    pub(crate) fn sources(&self) -> Vec<Source> {
        let source = |simulated: &SimulatedProvider| {
            let [first, second] = &simulated.places;
            Source { places: [first.found.subscribe(), second.found.subscribe()], conf: simulated.conf.subscribe() }
        };
        self.providers.iter().map(source).collect()
    }

    fn component(&mut self, (provider, place): (usize, usize), nature: &str) -> Component {
        self.made += 1;
        let number = self.made;
        let text = format!("{nature} p{provider} {number} {place}");
        let what = Nature::of(text.as_bytes());
        Component::new(Offer { bytes: text.into(), origin: format!("release {number} ({what:?})") })
    }

    fn publish(&mut self, (provider, place): (usize, usize), component: Component) {
        let origin = &component.offer.origin;
        self.story.tell("vendor", format_args!("offers {origin} of p{provider} at place {place}"));
        if let Some(place) = self.providers.get_mut(provider).and_then(|one| one.places.get_mut(place)) {
            place.earlier = Some(std::mem::replace(&mut place.newest, component.clone()));
            drop(place.found.send_replace(Ok(component)));
        }
    }

    /// The provider's present source.
    fn source(&self, provider: usize) -> (usize, usize) {
        (provider, self.providers.get(provider).map(|simulated| simulated.conf.borrow().place).unwrap_or_default())
    }

    /// Offers a release of some nature, or an earlier one once more.
    pub(crate) fn offer(&mut self) {
        let provider = self.chance.number(0..=1);
        let weights = [(5, "g"), (2, "b"), (3, "t"), (1, "c0"), (1, "c1"), (1, "d"), (2, "earlier")];
        let nature = self.chance.weighted(&weights).unwrap_or("g");
        let (_, present) = self.source(provider);
        let source = (provider, if self.chance.once_in(0.1) { 1 - present } else { present });
        let earlier =
            self.providers.get(provider).and_then(|simulated| simulated.places.get(source.1)?.earlier.clone());
        let earlier = earlier.filter(|_| nature == "earlier");
        let component = earlier.unwrap_or_else(|| self.component(source, nature));
        self.publish(source, component);
        if let Some(next) =
            self.chance.weighted(&[(6, None), (3, Some(Next::Offer)), (1, Some(Next::OtherPlace))]).flatten()
        {
            self.due = Some((provider, Instant::now() + self.chance.milliseconds(0..=4_000), next));
        }
    }

    /// Does what is due.
    pub(crate) fn go_on(&mut self) {
        match self.due.take_if(|(_, at, _)| *at <= Instant::now()) {
            Some((provider, _, Next::Offer)) => self.offer_good(provider),
            Some((provider, _, Next::OtherPlace)) => {
                let (_, present) = self.source(provider);
                self.fail_source((provider, 1 - present));
                self.change(provider, |conf| conf.place = 1 - conf.place);
            }
            None => {}
        }
    }

    fn fail_source(&self, (provider, place): (usize, usize)) {
        let failure = SourceFailure { code: "Unreachable", reason: "the registry does not answer".to_owned() };
        self.story.tell("vendor", format_args!("has a registry of p{provider} that does not answer"));
        if let Some(place) = self.providers.get(provider).and_then(|simulated| simulated.places.get(place)) {
            drop(place.found.send_replace(Err(failure)));
        }
    }

    /// The source of some provider fails, works again, or is replaced by another.
    pub(crate) fn disturb_source(&mut self) {
        let provider = self.chance.number(0..=1);
        match self.chance.number(0..=4) {
            0 | 1 => self.fail_source(self.source(provider)),
            2 | 3 => self.restore_source(provider),
            _ => self.change(provider, |conf| conf.place = 1 - conf.place),
        }
    }

    fn restore_source(&self, provider: usize) {
        for Place { found, newest, .. } in self.providers.get(provider).iter().flat_map(|one| &one.places) {
            if found.borrow().is_err() {
                self.story.tell("vendor", format_args!("has registries of p{provider} that answer"));
                drop(found.send_replace(Ok(newest.clone())));
            }
        }
    }

    /// Edits the settings of one provider.
    pub(crate) fn edit(&mut self) {
        let provider = self.chance.number(0..=1);
        let which = self.chance.number(0..=7);
        let newest = self.newest(provider).to_string();
        self.change(provider, |conf| match which {
            0 => conf.canary = if conf.canary.is_some() { None } else { Some(30) },
            1 => conf.probation = !conf.probation,
            2 => conf.tight = !conf.tight,
            3 => conf.retry = if conf.retry.is_some() { None } else { Some(newest) },
            4 => {
                conf.shadow = match conf.shadow {
                    None => Some(OnDifference::Report),
                    Some(OnDifference::Report) => Some(OnDifference::Refuse),
                    Some(OnDifference::Refuse) => None,
                }
            }
            _ => conf.config = 1 - conf.config,
        });
    }

    fn change(&self, provider: usize, change: impl FnOnce(&mut Conf)) {
        let Some(simulated) = self.providers.get(provider) else { return };
        simulated.conf.send_modify(change);
        self.story.tell("operator", format_args!("has now for p{provider} {:?}", simulated.conf()));
    }

    /// The sources work, and releases can be loaded under the last settings.
    pub(crate) fn clear_up(&mut self) {
        self.due = None;
        for provider in 0..self.providers.len() {
            self.restore_source(provider);
            if self.providers.get(provider).is_some_and(|simulated| simulated.conf.borrow().tight) {
                self.change(provider, |conf| conf.tight = false);
            }
        }
    }

    /// Offers a release of each provider whose calls trap.
    pub(crate) fn offer_trapping(&mut self) {
        for provider in 0..self.providers.len() {
            self.offer_of(provider, "t");
        }
    }

    /// Offers a release of each provider, perhaps a bad one.
    pub(crate) fn offer_any(&mut self) {
        for provider in 0..self.providers.len() {
            let nature = self.chance.weighted(&[(1, "g"), (1, "t"), (1, "b")]).unwrap_or("g");
            self.offer_of(provider, nature);
        }
    }

    /// Offers a good release of each provider.
    pub(crate) fn offer_last(&mut self) {
        for provider in 0..self.providers.len() {
            self.offer_good(provider);
        }
    }

    /// Edits the cloud-configs of some providers.
    pub(crate) fn edit_last(&mut self) {
        for provider in 0..self.providers.len() {
            if self.chance.once_in(0.5) {
                self.change(provider, |conf| conf.config = 1 - conf.config);
            }
        }
    }

    /// Offers a good release.
    pub(crate) fn offer_good(&mut self, provider: usize) {
        self.offer_of(provider, "g");
    }

    /// Offers a release whose calls trap where the cloud fails or denies a request.
    pub(crate) fn offer_careless(&mut self, provider: usize) {
        self.offer_of(provider, "s");
    }

    fn offer_of(&mut self, provider: usize, nature: &str) {
        let source = self.source(provider);
        let component = self.component(source, nature);
        self.publish(source, component);
    }

    /// The digest of the newest release.
    pub(crate) fn newest(&self, provider: usize) -> Arc<str> {
        self.providers.get(provider).map(|one| Arc::clone(&one.place().newest.digest)).unwrap_or_default()
    }

    /// Whether the newest release can serve under the present settings, and its calls can succeed.
    pub(crate) fn may_stay(&self, provider: usize) -> bool {
        let Some(simulated) = self.providers.get(provider) else { return true };
        match Nature::of(&simulated.place().newest.offer.bytes) {
            Nature::Good | Nature::Differs => true,
            Nature::Choosy(choice) => simulated.conf.borrow().config == choice,
            Nature::Broken | Nature::Traps | Nature::Careless => false,
        }
    }
}
