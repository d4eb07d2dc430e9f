//! A cloud: what it holds, and how one request to it fares.
//!
//! A request that was sent takes effect, or not, whatever becomes of who sent it. Reads may show
//! the past; writes are of the present. Names are unique, as in a cloud whose API lets a client
//! repeat itself.

mod state;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use skysail_provider::{Code, Error, Fence, Result};
use tokio::{sync::oneshot, task::JoinSet, time::Instant};

pub(crate) use self::state::{Balancer, CloudState, Port, ports_of};
use crate::{Plan, Referee, chance::Chance, clock::wait, link::Link, plan::CloudWeather, story::Story};

/// The longest lag of a read.
const LAG_MAX_MS: u64 = 2_000;
/// The host ends a call after this.
const HOST_DEADLINE: Duration = Duration::from_secs(30);
/// A sent request takes effect within this: after the death of its sender, nobody follows sooner
/// than a lease runs out.
const EFFECT_MAX_MS: u64 = 2_000;

/// Who asks.
pub(crate) struct Sender<'a> {
    pub(crate) process: &'a str,
    pub(crate) link: &'a Link,
    pub(crate) fence: &'a Fence,
}

/// What a provider answers that is not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// No machine exists.
    AllMissing,
    /// One of the machines does not exist: the one with this number, counted round.
    OneMissing(usize),
    /// Addresses are no addresses.
    Junk,
    /// Each answer is that of the next node.
    Swapped,
    /// The last answer is missing.
    Short,
}

/// A cloud. Shared by the providers of all processes.
pub(crate) struct Cloud {
    /// Also its provider's name.
    pub(crate) name: &'static str,
    /// The provider-ID scheme that its component describes.
    pub(crate) scheme: &'static str,
    /// The first one has.
    pub(crate) has_routes: bool,
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
    /// Until then it refuses every credential.
    token_expired_until: Option<Instant>,
    /// Until then its provider calls every machine missing.
    all_missing_until: Option<Instant>,
    /// What was sent and is on its way.
    sent: JoinSet<()>,
}

/// How one request fares.
struct Fate {
    before: Duration,
    after: Duration,
    /// No answer comes before the host ends the call.
    hangs: bool,
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
            all_missing_until: None,
            sent: JoinSet::new(),
        };
        // The third cloud is another account of the first one.
        let scheme = if number == 3 { "first" } else { name };
        Self { name, scheme, has_routes: number == 1, inner: Mutex::new(inner), story, referee }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&self, what: impl std::fmt::Display) {
        self.story.tell(self.name, what);
    }

    /// What it holds now.
    pub(crate) fn state(&self) -> CloudState {
        self.lock().state.clone()
    }

    /// Changes it behind everybody's back: machines are made and deleted by others.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut CloudState) -> T) -> T {
        let mut inner = self.lock();
        inner.remember();
        change(&mut inner.state)
    }

    pub(crate) fn clear_up(&self) {
        let mut inner = self.lock();
        inner.weather = CloudWeather::default();
        inner.token_expired_until = None;
        inner.all_missing_until = None;
    }

    /// Its provider calls every machine missing for so long.
    pub(crate) fn call_all_missing(&self, time: Duration) {
        self.lock().all_missing_until = Some(Instant::now() + time);
    }

    /// How the next look-up of machines lies.
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

    pub(crate) fn expire_token(&self, time: Duration) {
        self.lock().token_expired_until = Some(Instant::now() + time);
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

    /// A request that changes nothing; it may see the past.
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
        // On its own: what was sent arrives, also when the sender dies.
        self.lock().put_on_its_way(async move {
            wait(before).await;
            if !refused {
                let result = cloud.change(effect);
                cloud.story.tell(cloud.name, format_args!("{told} (for {who})"));
                // Nobody may be left to hear it.
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

    /// The last moment before it leaves the process.
    async fn send(&self, sender: &Sender<'_>, what: &str, writes: bool) -> Result<Fate> {
        sender.link.run(std::future::ready(())).await;
        sender.fence.check()?;
        if writes {
            self.referee.writes(sender.process, &format!("{} {what}", self.name));
        }
        Ok(self.lock().draw())
    }

    async fn answer<T>(&self, sender: &Sender<'_>, what: &str, fate: &Fate, result: T) -> Result<T> {
        if fate.hangs {
            wait(HOST_DEADLINE).await;
            sender.fence.check()?;
            let error = Error::new(Code::DeadlineExceeded, "the call took longer than 30 s");
            self.story.tell(self.name, format_args!("{what} (for {}) hangs: {error}", sender.process));
            return Err(error);
        }
        wait(fate.after).await;
        // The process may have been frozen meanwhile.
        sender.link.run(std::future::ready(())).await;
        // As the host: an answer that comes after the lease ran out reaches nobody.
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
        let mut fate = Fate {
            before: chance.milliseconds(5..=if slow { EFFECT_MAX_MS } else { 50 }),
            after: chance.milliseconds(5..=if slow { 20_000 } else { 50 }),
            hangs: chance.once_in(weather.hangs),
            refused: None,
            answer_lost: chance.once_in(weather.error_after),
            lag: if chance.once_in(weather.stale) { chance.milliseconds(0..=LAG_MAX_MS) } else { Duration::ZERO },
        };
        if self.token_expired_until.is_some_and(|until| Instant::now() < until) {
            fate.refused = Some(Error::new(Code::Denied, "401 token expired"));
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
