//! A simulated cloud: its resources, and the latency and faults of its requests.
//!
//! A sent request takes effect or fails independently of its sender. Reads may return an old state;
//! writes use the current one. Names are unique, as in a cloud whose API makes retries idempotent.

mod state;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use skysail_provider::{Code, Error, Fence, Result};
use skysail_slot::fault::CallObservation;
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
    time::Instant,
};

pub(crate) use self::state::{Balancer, CloudState, Port, RANGES, ports_of};
use crate::{
    Plan, Referee, chance::Chance, clock::wait, link::Link, plan::CloudWeather, replica::provider_name, story::Story,
};

/// The longest lag of a read.
const LAG_MAX_MS: u64 = 2_000;
/// The error of a call that waited for the cloud until its deadline.
const HANGS: &str = "the cloud did not answer within 10 s";
/// The error of a call whose guest got no CPU time until the deadline.
const STARVES: &str = "the guest got no CPU time within 10 s";
/// How the errors of failed and of denied requests begin: with the status of the cloud's answer.
const FAILED: [&str; 4] = ["429 ", "500 ", "502 ", "503 "];
const DENIED: [&str; 2] = ["401 ", "403 "];
/// The host ends a call that waits for the cloud after this.
const HOST_DEADLINE: Duration = Duration::from_secs(10);
/// A sent request takes effect within this time, which is shorter than a lease: so it has taken
/// effect before another process leads.
pub(crate) const EFFECT_MAX: Duration = Duration::from_secs(2);

/// The sender of a request.
pub(crate) struct Sender<'a> {
    pub(crate) process: &'a str,
    pub(crate) link: &'a Link,
    pub(crate) fence: &'a Fence,
}

/// What the host saw of a call that ended with this error, also where the guest trapped because of
/// an answer.
pub(crate) fn seen(error: &Error) -> CallObservation {
    let is_any = |of: &[&str]| of.iter().any(|status| error.message.contains(status));
    let waited_for_cloud = error.message == HANGS;
    CallObservation {
        cloud_failed: is_any(&FAILED),
        denied: is_any(&DENIED),
        waited_for_cloud,
        computed: !waited_for_cloud && error.message != STARVES,
    }
}

/// How a cloud, or the machine that runs its provider's guests, is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Every request fails.
    Fails,
    /// No request is answered.
    Hangs,
    /// Every request is denied.
    Denies,
    /// A busy machine gives the guests no CPU time, so that no call ends before its deadline.
    Starves,
}

/// A false answer of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// No machine exists.
    AllMissing,
    /// One of the machines does not exist: the one with this number, modulo their count.
    OneMissing(usize),
    /// Addresses are invalid.
    Junk,
    /// Each answer is that of the next node.
    Swapped,
    /// The last answer is missing.
    Short,
}

/// A cloud, which the providers of all processes share.
pub(crate) struct Cloud {
    /// The name of the cloud and of its provider.
    pub(crate) name: &'static str,
    /// The name that the operator gives the provider.
    pub(crate) provider: String,
    /// The provider-ID scheme that the provider's component describes.
    pub(crate) scheme: &'static str,
    /// Whether the cloud has routes: only the first one does.
    pub(crate) has_routes: bool,
    rotations: watch::Sender<u64>,
    inner: Mutex<Inner>,
    story: Story,
    referee: Arc<Referee>,
}

struct Inner {
    state: CloudState,
    /// Earlier states, each with when it ended.
    past: VecDeque<(Instant, CloudState)>,
    weather: CloudWeather,
    chance: Chance,
    /// Until when the cloud refuses every credential.
    token_expired_until: Option<Instant>,
    /// From when until when the cloud is out of order, and how.
    outage: Option<([Instant; 2], Outage)>,
    /// Until when the provider reports every machine as missing.
    all_missing_until: Option<Instant>,
    /// Requests that were sent and have not taken effect.
    sent: JoinSet<()>,
}

/// The latency and the fault of one request.
struct Fate {
    before: Duration,
    after: Duration,
    /// The host ends the call at its deadline, with this error.
    hangs: Option<&'static str>,
    refused: Option<Error>,
    answer_lost: bool,
    lag: Duration,
}

impl Cloud {
    pub(crate) fn new(name: &'static str, number: u8, plan: &Plan, story: Story, referee: Arc<Referee>) -> Self {
        let inner = Inner {
            state: CloudState::new(name, number),
            past: VecDeque::new(),
            weather: plan.cloud.clone(),
            chance: Chance::of(plan.seed, name),
            token_expired_until: None,
            outage: None,
            all_missing_until: None,
            sent: JoinSet::new(),
        };
        // The third cloud is another account of the first one.
        let scheme = if number == 3 { "first" } else { name };
        let (rotations, has_routes) = (watch::Sender::default(), number == 1);
        let provider = provider_name(usize::from(number.saturating_sub(1)));
        Self { name, provider, scheme, has_routes, rotations, inner: Mutex::new(inner), story, referee }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&self, what: impl std::fmt::Display) {
        self.story.tell(self.name, what);
    }

    /// The current state.
    pub(crate) fn state(&self) -> CloudState {
        self.lock().state.clone()
    }

    /// Changes the state without a request of a provider: users make and delete machines.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut CloudState) -> T) -> T {
        let mut inner = self.lock();
        inner.remember();
        change(&mut inner.state)
    }

    pub(crate) fn clear_up(&self) {
        let mut inner = self.lock();
        inner.weather = CloudWeather::default();
        inner.token_expired_until = None;
        inner.outage = None;
        inner.all_missing_until = None;
    }

    /// The cloud is out of order for this time, after this pause.
    pub(crate) fn break_down(&self, pause: Duration, time: Duration, outage: Outage) {
        let from = Instant::now() + pause;
        self.lock().outage = Some(([from, from + time], outage));
    }

    /// Makes the provider report every machine as missing for this time.
    pub(crate) fn call_all_missing(&self, time: Duration) {
        self.lock().all_missing_until = Some(Instant::now() + time);
    }

    /// The lie of the next look-up of machines.
    pub(crate) fn lie(&self) -> Option<Lie> {
        let mut inner = self.lock();
        if inner.all_missing_until.is_some_and(|until| Instant::now() < until) {
            return Some(Lie::AllMissing);
        }
        let (weather, chance) = (inner.weather.clone(), &mut inner.chance);
        let lies = [
            (weather.lies_missing, Lie::OneMissing(chance.number(0..=99))),
            (weather.lies_junk, Lie::Junk),
            (weather.lies_swapped, Lie::Swapped),
            (weather.lies_short, Lie::Short),
        ];
        lies.into_iter().find_map(|(share, lie)| chance.once_in(share).then_some(lie))
    }

    /// Whether the provider lies now, at this share.
    pub(crate) fn lies(&self, share: impl FnOnce(&CloudWeather) -> f64) -> bool {
        let mut inner = self.lock();
        let share = share(&inner.weather);
        inner.chance.once_in(share)
    }

    /// A number below this one, which is not zero.
    pub(crate) fn below(&self, count: usize) -> usize {
        self.lock().chance.number(0..=count - 1)
    }

    /// The share of loads of releases that fail by a fault of the machine.
    pub(crate) fn unlucky(&self) -> f64 {
        self.lock().weather.unlucky
    }

    /// From now on every load of a release fails by a fault of the machine, or none does.
    pub(crate) fn refuse_loads(&self, refuse: bool) {
        self.lock().weather.unlucky = if refuse { 1.0 } else { 0.0 };
    }

    pub(crate) fn expire_token(&self, time: Duration) {
        self.lock().token_expired_until = Some(Instant::now() + time);
    }

    /// An operator writes a new token into the provider's credential: each process reads it.
    pub(crate) fn rotate_token(&self) {
        self.tell("has a new token");
        self.lock().token_expired_until = None;
        self.rotations.send_modify(|count| *count += 1);
    }

    /// Counts the rotations of the provider's credential.
    pub(crate) fn rotations(&self) -> watch::Receiver<u64> {
        self.rotations.subscribe()
    }

    /// Whether the guest fails before its next request.
    pub(crate) fn guest_fails(&self) -> Option<Error> {
        let mut inner = self.lock();
        let share = inner.weather.guest;
        inner.chance.once_in(share).then(|| match inner.chance.number(0..=2) {
            0 => Error::new(Code::Trapped, "the guest trapped: unreachable"),
            1 => Error::new(Code::LimitExceeded, "fuel: 2000000001 of 2000000000"),
            _ => Error::new(Code::DeadlineExceeded, "the call took longer than 30 s"),
        })
    }

    /// A request that changes nothing, and may return an old state.
    pub(crate) async fn read<T>(
        &self,
        sender: &Sender<'_>,
        what: String,
        look: impl FnOnce(&CloudState) -> T,
    ) -> Result<T> {
        let fate = self.send(sender, &what, false).await?;
        wait(fate.before).await;
        let seen = self.lock().at(Instant::now() - fate.lag);
        self.answer(sender, &what, &fate, look(&seen)).await
    }

    /// A request that changes something.
    pub(crate) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        sender: &Sender<'_>,
        what: String,
        effect: impl FnOnce(&mut CloudState) -> T + Send + 'static,
    ) -> Result<T> {
        let fate = self.send(sender, &what, true).await?;
        let (cloud, before, refused) = (Arc::clone(self), fate.before, fate.refused.is_some());
        let (answer, answered) = oneshot::channel();
        let (told, who) = (what.clone(), sender.process.to_owned());
        // In a task of its own: a sent request arrives even if the sender dies.
        self.lock().put_on_its_way(async move {
            wait(before).await;
            if !refused {
                let result = cloud.change(effect);
                cloud.story.tell(cloud.name, format_args!("{told} (for {who})"));
                // The sender may be gone.
                drop(answer.send(result));
            }
        });
        if fate.refused.is_some() {
            wait(before).await;
        }
        match answered.await {
            Ok(result) => self.answer(sender, &what, &fate, result).await,
            Err(_) => Err(self.fail(sender, &what, &fate)),
        }
    }

    /// The checks immediately before the request leaves the process.
    async fn send(&self, sender: &Sender<'_>, what: &str, writes: bool) -> Result<Fate> {
        sender.link.run(std::future::ready(())).await;
        sender.fence.check()?;
        if writes {
            self.referee.writes(sender.process, &format!("{} {what}", self.name));
        }
        Ok(self.lock().draw())
    }

    async fn answer<T>(&self, sender: &Sender<'_>, what: &str, fate: &Fate, result: T) -> Result<T> {
        if let Some(text) = fate.hangs {
            wait(HOST_DEADLINE).await;
            sender.fence.check()?;
            let error = Error::new(Code::DeadlineExceeded, text);
            self.story.tell(self.name, format_args!("{what} (for {}) does not end: {error}", sender.process));
            return Err(error);
        }
        wait(fate.after).await;
        // Waits while the process is frozen.
        sender.link.run(std::future::ready(())).await;
        // As in the host: an answer after the end of the lease is discarded.
        sender.fence.check()?;
        if fate.refused.is_some() || fate.answer_lost { Err(self.fail(sender, what, fate)) } else { Ok(result) }
    }

    fn fail(&self, sender: &Sender<'_>, what: &str, fate: &Fate) -> Error {
        let done = if fate.answer_lost { ", although it is done" } else { "" };
        let error = fate.refused.clone().unwrap_or_else(|| Error::new(Code::Unavailable, "502 bad gateway"));
        self.story.tell(self.name, format_args!("{what} (for {}) fails{done}: {error}", sender.process));
        error
    }
}

impl Inner {
    fn remember(&mut self) {
        self.past.push_back((Instant::now(), self.state.clone()));
        let oldest = Instant::now() - Duration::from_millis(LAG_MAX_MS);
        while self.past.front().is_some_and(|(ended, _)| *ended < oldest) {
            self.past.pop_front();
        }
    }

    /// The state at that time.
    fn at(&self, time: Instant) -> CloudState {
        let then = self.past.iter().find(|(ended, _)| *ended > time).map(|(_, state)| state);
        then.unwrap_or(&self.state).clone()
    }

    fn put_on_its_way(&mut self, request: impl Future<Output = ()> + Send + 'static) {
        while self.sent.try_join_next().is_some() {}
        self.sent.spawn(request);
    }

    fn draw(&mut self) -> Fate {
        let (weather, chance) = (self.weather.clone(), &mut self.chance);
        let slow = chance.once_in(weather.slow);
        let effect_max = u64::try_from(EFFECT_MAX.as_millis()).unwrap_or_default();
        let mut fate = Fate {
            before: chance.milliseconds(5..=if slow { effect_max } else { 50 }),
            after: chance.milliseconds(5..=if slow { 20_000 } else { 50 }),
            hangs: chance.once_in(weather.hangs).then_some(HANGS),
            refused: None,
            answer_lost: chance.once_in(weather.error_after),
            lag: if chance.once_in(weather.stale) { chance.milliseconds(0..=LAG_MAX_MS) } else { Duration::ZERO },
        };
        let now = Instant::now();
        let outage = self.outage.filter(|([from, until], _)| (*from..*until).contains(&now));
        if self.token_expired_until.is_some_and(|until| now < until) {
            fate.refused = Some(Error::new(Code::Denied, "401 token expired"));
        } else if let Some((_, outage)) = outage {
            match outage {
                Outage::Fails => fate.refused = Some(Error::new(Code::Unavailable, "503 service unavailable")),
                Outage::Denies => fate.refused = Some(Error::new(Code::Denied, "403 forbidden")),
                Outage::Hangs => fate.hangs = Some(HANGS),
                Outage::Starves => fate.hangs = Some(STARVES),
            }
        } else if chance.once_in(weather.too_many) {
            fate.refused = Some(Error::retry_after(chance.milliseconds(1_000..=30_000), "429 too many requests"));
        } else if chance.once_in(weather.error_before) {
            fate.refused = Some(Error::new(Code::Unavailable, "500 internal server error"));
        }
        if fate.refused.is_some() {
            fate.answer_lost = false;
        }
        fate
    }
}
