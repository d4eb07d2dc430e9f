//! Releases of the simulated providers, their settings, and the vendor and operator who make both.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use skysail_provider::{Error, Info, Interface};
use skysail_slot::{
    CanaryOptions, Component, Drain, Offer, ProbationOptions, RolloutOptions, Vitals,
    fault::{Seen, of_call},
};
use tokio::{
    sync::watch,
    time::{Duration, Instant},
};

use crate::{
    Plan, Referee,
    chance::Chance,
    cloud::{Cloud, HANGS},
    link::Link,
    provider::CloudProvider,
    story::Story,
};

/// Long enough that other events happen meanwhile, and so short that twelve times as much, for a
/// canary and its probation, ends in the calm.
const WATCHED: ProbationOptions = ProbationOptions { calls: 3, time: Duration::from_secs(10) };

/// What is right or wrong with a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    Good,
    /// It cannot be linked.
    Broken,
    /// It accepts only this cloud-config.
    Choosy(u8),
    /// Its calls trap.
    Traps,
}

impl Nature {
    /// The first byte of a component says it.
    fn of(component: &Component) -> Self {
        match component.offer.bytes.first() {
            Some(b'b') => Self::Broken,
            Some(b't') => Self::Traps,
            Some(b'c') => Self::Choosy(component.offer.bytes.get(1).map_or(0, |digit| digit - b'0')),
            _ => Self::Good,
        }
    }
}

/// What an operator writes for a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conf {
    /// The cloud-config.
    pub(crate) config: u8,
    /// Limits under which no release can describe itself.
    pub(crate) tight: bool,
    /// A percentage of the objects.
    pub(crate) canary: Option<u8>,
    pub(crate) probation: bool,
    /// The digest of a release that is to be tried once more.
    pub(crate) retry: Option<String>,
}

/// Settings of a slot.
#[derive(Clone, Debug)]
pub(crate) struct Settings(Arc<(Conf, RolloutOptions, Drain)>);

impl Settings {
    pub(crate) fn new(conf: Conf) -> Self {
        let canary = conf.canary.map(|percent| CanaryOptions { percent, watched: WATCHED });
        let rollout = RolloutOptions { shadow: None, canary, probation: conf.probation.then_some(WATCHED) };
        Self(Arc::new((conf, rollout, Drain::default())))
    }

    pub(crate) fn conf(&self) -> &Conf {
        &self.0.0
    }

    /// For the calls under these settings.
    pub(crate) fn drain(&self) -> &Drain {
        &self.0.2
    }

    pub(crate) fn with_config(&self, config: u8) -> Self {
        Self::new(Conf { config, ..self.conf().clone() })
    }
}

impl skysail_slot::Settings for Settings {
    fn rollout(&self) -> &RolloutOptions {
        &self.0.1
    }

    fn retry(&self) -> Option<&str> {
        self.conf().retry.as_deref()
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A release that is loaded.
pub(crate) struct Release {
    component: Component,
    pub(crate) nature: Nature,
    settings: Settings,
    vitals: Arc<Vitals>,
    pub(crate) drain: Drain,
    pub(crate) provider: CloudProvider,
    living: Arc<AtomicUsize>,
}

impl Release {
    /// Ends when the calls of this release have to end.
    pub(crate) async fn over(&self) {
        tokio::select! {
            biased;
            () = self.drain.over() => {}
            () = self.settings.drain().over() => {}
        }
    }

    /// A call ended.
    pub(crate) fn note<T>(&self, function: &str, answer: &Result<T, Error>) {
        let Err(error) = answer else { return self.vitals.note(function, Ok(()), None) };
        let waited_for_cloud = error.message == HANGS;
        let seen = Seen { waited_for_cloud, computed: !waited_for_cloud, ..Seen::default() };
        let fault = of_call(error.code, error.limit.map(|hit| hit.limit), seen);
        self.vitals.note(function, Err((error.code, &error.message)), fault);
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.living.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.component.offer.origin)
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl skysail_slot::Release for Release {
    type Settings = Settings;
    type Proposer = tokio::sync::oneshot::Sender<tokio::sync::oneshot::Sender<skysail_slot::Done>>;
    const CONTRACT: &'static str = "0.1.0";

    fn component(&self) -> &Component {
        &self.component
    }

    fn info(&self) -> &Info {
        &self.provider.info
    }

    fn interfaces(&self) -> &[Interface] {
        self.provider.interfaces()
    }

    fn vitals(&self) -> &Arc<Vitals> {
        &self.vitals
    }

    fn is_under(&self, settings: &Settings) -> bool {
        skysail_slot::Settings::is(&self.settings, settings)
    }
}

/// Makes the releases of one slot.
pub(crate) struct Maker {
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) process: String,
    pub(crate) link: Arc<Link>,
    pub(crate) referee: Arc<Referee>,
    pub(crate) living: Arc<AtomicUsize>,
}

impl Maker {
    pub(crate) fn make(&self, component: &Component, settings: &Settings) -> Arc<Release> {
        self.living.fetch_add(1, Ordering::SeqCst);
        let nature = Nature::of(component);
        let Self { cloud, process, link, referee, living } = self;
        Arc::new(Release {
            component: component.clone(),
            nature,
            settings: settings.clone(),
            vitals: Arc::default(),
            drain: Drain::default(),
            provider: CloudProvider::new(
                Arc::clone(cloud),
                (process, Arc::clone(link)),
                Arc::clone(referee),
                (Arc::clone(&component.digest), nature == Nature::Traps),
            ),
            living: Arc::clone(living),
        })
    }

    /// The share of loads that fail by a fault of the machine.
    pub(crate) fn unlucky(&self) -> f64 {
        self.cloud.unlucky()
    }
}

/// What every process reads of one provider.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) offers: watch::Receiver<Component>,
    pub(crate) conf: watch::Receiver<Conf>,
}

/// The vendor, who offers releases, and the operator of their settings.
pub(crate) struct Vendor {
    offers: Vec<watch::Sender<Component>>,
    confs: Vec<watch::Sender<Conf>>,
    /// Components made, to give each its number.
    made: usize,
    /// The component before the newest.
    earlier: Vec<Option<Component>>,
    chance: Chance,
    story: Story,
    /// A second offer that comes while the first one is loaded: of which cloud, and when.
    due: Option<(usize, Instant)>,
}

impl Vendor {
    pub(crate) fn new(plan: &Plan, clouds: usize, story: Story) -> Self {
        let mut vendor = Self {
            offers: Vec::new(),
            confs: Vec::new(),
            made: 0,
            earlier: vec![None; clouds],
            chance: Chance::of(plan.seed, "vendor"),
            story,
            due: None,
        };
        for cloud in 0..clouds {
            let first = vendor.component(cloud, "g");
            vendor.offers.push(watch::Sender::new(first));
            let conf = Conf {
                canary: vendor.chance.once_in(0.5).then_some(20),
                probation: vendor.chance.once_in(0.7),
                ..Conf::default()
            };
            vendor.confs.push(watch::Sender::new(conf));
        }
        vendor
    }

    pub(crate) fn sources(&self) -> Vec<Source> {
        let source = |(offers, conf): (&watch::Sender<Component>, &watch::Sender<Conf>)| Source {
            offers: offers.subscribe(),
            conf: conf.subscribe(),
        };
        self.offers.iter().zip(&self.confs).map(source).collect()
    }

    fn component(&mut self, cloud: usize, nature: &str) -> Component {
        self.made += 1;
        let text = format!("{nature} p{cloud} {}", self.made);
        let what = match nature.as_bytes() {
            [b'b', ..] => "broken",
            [b't', ..] => "traps",
            [b'c', config, ..] => {
                if *config == b'0' {
                    "only config 0"
                } else {
                    "only config 1"
                }
            }
            _ => "good",
        };
        let origin = format!("release {} ({what})", self.made);
        Component::new(Offer { bytes: text.into(), origin })
    }

    fn publish(&mut self, cloud: usize, component: Component) {
        self.story.tell("vendor", format_args!("offers {} of p{cloud}", component.offer.origin));
        if let (Some(offers), Some(earlier)) = (self.offers.get(cloud), self.earlier.get_mut(cloud)) {
            *earlier = Some(offers.send_replace(component));
        }
    }

    /// Offers a release of some nature, or an earlier one once more.
    pub(crate) fn offer(&mut self) {
        let cloud = self.chance.number(0..=1);
        let weights = [(5, "g"), (2, "b"), (3, "t"), (1, "c0"), (1, "c1"), (2, "earlier")];
        let nature = self.chance.weighted(&weights).unwrap_or("g");
        let earlier = self.earlier.get(cloud).cloned().flatten().filter(|_| nature == "earlier");
        let component = earlier.unwrap_or_else(|| self.component(cloud, nature));
        self.publish(cloud, component);
        if self.chance.once_in(0.3) {
            self.due = Some((cloud, Instant::now() + self.chance.milliseconds(0..=4_000)));
        }
    }

    /// Offers what is due.
    pub(crate) fn go_on(&mut self) {
        if let Some((cloud, _)) = self.due.take_if(|(_, at)| *at <= Instant::now()) {
            let component = self.component(cloud, "g");
            self.publish(cloud, component);
        }
    }

    /// Edits the settings of one provider.
    pub(crate) fn edit(&mut self) {
        let cloud = self.chance.number(0..=1);
        let which = self.chance.number(0..=6);
        let newest = self.offers.get(cloud).map(|offers| offers.borrow().digest.to_string());
        self.change(cloud, |conf| match which {
            0 => conf.canary = if conf.canary.is_some() { None } else { Some(30) },
            1 => conf.probation = !conf.probation,
            2 => conf.tight = !conf.tight,
            3 => conf.retry = if conf.retry.is_some() { None } else { newest },
            _ => conf.config = 1 - conf.config,
        });
    }

    fn change(&self, cloud: usize, change: impl FnOnce(&mut Conf)) {
        let Some(confs) = self.confs.get(cloud) else { return };
        confs.send_modify(change);
        self.story.tell("operator", format_args!("has now for p{cloud} {:?}", *confs.borrow()));
    }

    /// Releases can be loaded under the last settings. One more release is offered, perhaps a bad
    /// one.
    pub(crate) fn clear_up(&mut self) {
        for cloud in 0..self.offers.len() {
            self.change(cloud, |conf| conf.tight = false);
            let nature = self.chance.weighted(&[(1, "g"), (1, "t"), (1, "b")]).unwrap_or("g");
            let component = self.component(cloud, nature);
            self.publish(cloud, component);
        }
    }

    /// The last offers of the day are good. New settings may come while they are loaded.
    pub(crate) fn offer_last(&mut self) {
        self.due = None;
        for cloud in 0..self.offers.len() {
            let component = self.component(cloud, "g");
            self.publish(cloud, component);
            if self.chance.once_in(0.3) {
                self.change(cloud, |conf| conf.config = 1 - conf.config);
            }
        }
    }
}
