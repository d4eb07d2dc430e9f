//! Releases of the simulated providers, and their settings.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, OnceLock},
};

use skysail_provider::{Info, Interface, Result};
use skysail_slot::{
    CallHistory, CanaryOptions, Component, Drain, Living, OnDifference, ProbationOptions, Proposer, RolloutOptions,
    Settings as _, ShadowOptions,
    fault::{Fault, of_call},
};
use tokio::time::{Duration, Instant};

use crate::{
    Referee,
    cloud::{Cloud, seen},
    deletions::Deletions,
    link::Link,
    provider::CloudProvider,
};

/// How long a trial takes at least: long enough that other events happen meanwhile, and so short
/// that twelve times as much, for a canary and its probation, ends in the calm.
const TRIAL: Duration = Duration::from_secs(10);

/// What is right or wrong with a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    Good,
    /// The component cannot be linked.
    Broken,
    /// The component accepts only this cloud-config.
    Choosy(u8),
    /// The component's calls trap.
    Traps,
    /// The component answers otherwise than its predecessor.
    Differs,
    /// The component's calls trap where the cloud fails or denies a request.
    Careless,
}

impl Nature {
    /// The first byte of a component says it.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [b'b', ..] => Self::Broken,
            [b't', ..] => Self::Traps,
            [b'd', ..] => Self::Differs,
            [b's', ..] => Self::Careless,
            [b'c', config, ..] => Self::Choosy(config - b'0'),
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
    pub(crate) shadow: Option<OnDifference>,
    /// A percentage of the objects.
    pub(crate) canary: Option<u8>,
    pub(crate) probation: bool,
    /// Calls that have to end in a trial.
    pub(crate) trial_calls: u64,
    /// The digest of a release that is to be tried once more.
    pub(crate) retry: Option<String>,
    /// The source: a place of [`Source::places`].
    pub(crate) place: usize,
}

impl Conf {
    /// Whether the slot's settings are the same.
    pub(crate) fn has_settings_of(&self, other: &Self) -> bool {
        Self { retry: other.retry.clone(), place: other.place, ..self.clone() } == *other
    }
}

/// Settings of a slot.
#[derive(Clone, Debug)]
pub(crate) struct Settings(Arc<Written>);

#[derive(Debug)]
struct Written {
    conf: Conf,
    rollout: RolloutOptions,
    drain: Drain,
    /// When calls went to a release under other settings.
    replaced: OnceLock<Instant>,
}

impl Settings {
    pub(crate) fn new(conf: Conf) -> Self {
        let watched = ProbationOptions { calls: conf.trial_calls, time: TRIAL };
        let canary = conf.canary.map(|percent| CanaryOptions { percent, watched });
        let shadow = conf.shadow.map(|on_difference| ShadowOptions { on_difference });
        let rollout = RolloutOptions { shadow, plan: None, canary, probation: conf.probation.then_some(watched) };
        Self(Arc::new(Written { conf, rollout, drain: Drain::default(), replaced: OnceLock::new() }))
    }

    pub(crate) fn conf(&self) -> &Conf {
        &self.0.conf
    }

    /// Calls go to a release under other settings from now on.
    pub(crate) fn are_replaced(&self) {
        self.0.replaced.get_or_init(Instant::now);
    }

    /// See [`Self::are_replaced`].
    pub(crate) fn replaced(&self) -> Option<Instant> {
        self.0.replaced.get().copied()
    }

    pub(crate) fn with_config(&self, config: u8) -> Self {
        Self::new(Conf { config, ..self.conf().clone() })
    }
}

impl skysail_slot::Settings for Settings {
    fn rollout(&self) -> &RolloutOptions {
        &self.0.rollout
    }

    fn retry(&self) -> Option<&str> {
        self.conf().retry.as_deref()
    }

    fn drain(&self) -> &Drain {
        &self.0.drain
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
    call_history: Arc<CallHistory>,
    drain: Drain,
    pub(crate) provider: CloudProvider,
    living: Arc<Living>,
}

impl Release {
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The place that offered the component: the last byte of a component says it.
    pub(crate) fn place(&self) -> usize {
        usize::from(self.component.offer.bytes.last() == Some(&b'1'))
    }

    /// Ends when the calls of this release have to end.
    pub(crate) async fn over(&self) {
        tokio::select! {
            biased;
            () = self.drain.over() => {}
            () = self.settings.drain().over() => {}
        }
    }

    /// A call ended. Returns whether it counts against the release.
    pub(crate) fn note<T>(&self, function: &str, answer: &Result<T>) -> bool {
        let Err(error) = answer else {
            self.call_history.note(function, Ok(()), None);
            return false;
        };
        let fault = of_call(error.code, error.limit.map(|hit| hit.limit), seen(error));
        self.call_history.note(function, Err((error.code, &error.message)), fault);
        fault == Some(Fault::Release)
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.living.send_modify(|count| *count -= 1);
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
    type Proposer = Proposer<Infallible>;
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

    fn call_history(&self) -> &Arc<CallHistory> {
        &self.call_history
    }

    fn drain(&self) -> &Drain {
        &self.drain
    }

    fn is_under(&self, settings: &Settings) -> bool {
        self.settings.is(settings)
    }
}

/// Makes the releases of one slot.
pub(crate) struct Maker {
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) process: String,
    pub(crate) link: Arc<Link>,
    pub(crate) referee: Arc<Referee>,
    pub(crate) deletions: Arc<Deletions>,
    pub(crate) living: Arc<Living>,
}

impl Maker {
    pub(crate) fn make(&self, component: &Component, settings: &Settings) -> Arc<Release> {
        self.living.send_modify(|count| *count += 1);
        let nature = Nature::of(&component.offer.bytes);
        let Self { cloud, process, link, referee, deletions, living } = self;
        Arc::new(Release {
            component: component.clone(),
            nature,
            settings: settings.clone(),
            call_history: Arc::default(),
            drain: Drain::default(),
            provider: CloudProvider::new(
                Arc::clone(cloud),
                (process, Arc::clone(link)),
                (Arc::clone(referee), Arc::clone(deletions)),
                (Arc::clone(&component.digest), nature),
            ),
            living: Arc::clone(living),
        })
    }

    /// The share of loads that fail by a fault of the machine.
    pub(crate) fn unlucky(&self) -> f64 {
        self.cloud.unlucky()
    }
}
