//! The one task of a slot: it receives events, asks [`State::step`] what they mean, and runs the
//! effects in their order.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use futures::{FutureExt as _, future::BoxFuture};
use skysail_slot::{DRAIN, Effect, Place, Release as _, Report, Routing, SETTINGS};
use tokio::sync::{mpsc, oneshot, watch};

use super::{Active, Event, Living, ShadowStatus, Slot, SlotMetrics, SlotStatus, State, load::Loader};

/// See the module.
pub(super) struct Task {
    inbox: mpsc::Receiver<Event>,
    routing: Arc<ArcSwap<Routing<Active>>>,
    status: Arc<watch::Sender<SlotStatus>>,
    living: Arc<Living>,
    loader: Arc<Loader>,
    metrics: SlotMetrics,
    /// Releases that the state holds.
    held: u64,
    /// A load, a judgement or the wait for a commit.
    work: Option<BoxFuture<'static, Event>>,
    canary: Option<BoxFuture<'static, Event>>,
    probation: Option<BoxFuture<'static, Event>>,
}

impl Task {
    pub(super) fn new(slot: &Slot, inbox: mpsc::Receiver<Event>) -> Self {
        let Slot { name, services, routing, status, memory, inbox: events, .. } = slot;
        let living = Arc::<Living>::default();
        services.metrics.keep(name);
        let loader = Loader {
            name: Arc::clone(name),
            services: services.clone(),
            memory: Arc::clone(memory),
            living: Arc::clone(&living),
            events: events.downgrade(),
        };
        Self {
            inbox,
            routing: Arc::clone(routing),
            status: Arc::clone(status),
            living,
            loader: Arc::new(loader),
            metrics: services.metrics.clone(),
            held: 0,
            work: None,
            canary: None,
            probation: None,
        }
    }

    /// Runs until the slot is dropped.
    pub(super) async fn run(mut self, mut state: State) {
        self.loader.memory.keeps(state.keeps_questions());
        self.publish(state.status());
        loop {
            let event = tokio::select! {
                biased;
                // A newer offer comes before the end of an earlier one's load.
                event = self.inbox.recv() => match event {
                    Some(event) => event,
                    None => return,
                },
                event = ended(&mut self.work) => event,
                event = ended(&mut self.canary) => event,
                event = ended(&mut self.probation) => event,
                () = self.living.left.notified() => {
                    // A release has left memory.
                    let status = self.status.borrow().clone();
                    self.publish(status);
                    continue;
                }
            };
            let effects;
            (state, effects) = state.step(event);
            effects.into_iter().for_each(|effect| self.run_effect(effect));
        }
    }

    fn run_effect(&mut self, effect: Effect<Active>) {
        let loader = Arc::clone(&self.loader);
        match effect {
            Effect::StopWork => self.work = None,
            Effect::Load(load) => {
                let number = load.number;
                self.work = Some(async move { Event::Loaded { number, loaded: loader.load(*load).await } }.boxed());
            }
            Effect::Judge(judge, mut proposer) => {
                let number = judge.number;
                let work = async move {
                    let judged = tokio::select! {
                        judged = loader.judge(*judge) => judged,
                        () = proposer.closed() => return Event::Abandoned { number },
                    };
                    match judged {
                        Ok(proposal) => Event::Judged { number, proposal, proposer },
                        Err(error) => {
                            // The caller may be gone.
                            drop(proposer.send(Err(error)));
                            Event::Abandoned { number }
                        }
                    }
                };
                self.work = Some(work.boxed());
            }
            Effect::AwaitCommit(number, proposer) => {
                let (decide, decided) = oneshot::channel();
                // An error is a caller that is gone, and `decide` with it.
                drop(proposer.send(Ok(decide)));
                self.work = Some(Event::of_commit(number, decided).boxed());
            }
            Effect::Undrain(release) => release.drain.end(),
            Effect::Route(routing) => self.routing.store(Arc::new(routing)),
            Effect::Drain(release) => release.drain.begin(DRAIN),
            Effect::Retire(settings) => settings.sandbox.drain().begin(SETTINGS),
            Effect::Watch(place, watch) => {
                let trial = watch.map(|watch| watch.trial().boxed());
                match place {
                    Place::Canary => self.canary = trial,
                    Place::Probation => self.probation = trial,
                }
            }
            Effect::KeepQuestions(keeps) => loader.memory.keeps(keeps),
            Effect::Report(report) => {
                self.count(&report);
                log(&self.loader.name, &report);
            }
            Effect::Publish(status, held) => {
                self.held = held;
                self.publish(*status);
            }
            // Nobody may be waiting any more for one of these.
            Effect::Answer(reply, answer) => drop(reply.send(answer)),
            Effect::Confirm(done) => drop(done.send(())),
        }
    }

    fn publish(&self, mut status: SlotStatus) {
        let known = self.status.borrow().active.as_ref().map(|active| (active.swap, active.since_ms));
        if let Some(active) = &mut status.active {
            active.since_ms = known.filter(|(swap, _)| *swap == active.swap).map_or_else(now_ms, |(_, since)| since);
        }
        let Self { metrics, loader, living, held, .. } = self;
        status.draining = living.count.load(Ordering::SeqCst).saturating_sub(*held);
        metrics.serving(&loader.name).set(i64::from(status.active.is_some()));
        metrics.draining(&loader.name).set(i64::try_from(status.draining).unwrap_or(i64::MAX));
        self.status.send_if_modified(|known| {
            let changed = *known != status;
            *known = status;
            changed
        });
    }

    fn count(&self, report: &Report<Active>) {
        let (metrics, name) = (&self.metrics, &*self.loader.name);
        match report {
            Report::Active(_) => metrics.swapped(name),
            Report::Canary(..) | Report::Passed(_) => {}
            Report::RolledBack(refusal) => {
                metrics.rolled_back(name, refusal.code);
                metrics.refused(name, refusal.stage, refusal.code);
            }
            Report::Refused(refusal) | Report::KeepsConfig(refusal) | Report::Stopped(refusal) => {
                metrics.refused(name, refusal.stage, refusal.code);
            }
            Report::Shadowed(report) => metrics.shadowed(name, report.asked, report.differing),
            Report::SourceFailed(failure) => metrics.source_failed(name, failure.code),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.metrics.release(&self.loader.name);
    }
}

fn log(name: &str, report: &Report<Active>) {
    macro_rules! line {
        ($level:ident, $refusal:ident, $text:literal) => {
            tracing::$level!(
                provider.name = %name,
                component.digest = $refusal.digest,
                stage = $refusal.stage.name(),
                code = $refusal.code,
                concat!($text, ": {}"),
                $refusal
            )
        };
    }
    match report {
        Report::Active(release) => {
            let interfaces = release.interfaces.iter().map(|interface| interface.name()).collect::<Vec<_>>().join(",");
            let (version, digest) = (&release.info.version, release.digest());
            tracing::info!(
                provider.name = %name,
                provider.version = version,
                component.digest = digest,
                interfaces,
                "release active"
            );
        }
        Report::Canary(release, percent) => {
            let (version, digest) = (&release.info.version, release.digest());
            tracing::info!(
                provider.name = %name,
                provider.version = version,
                component.digest = digest,
                percent,
                "release serves a share of the objects"
            );
        }
        Report::Passed(release) => {
            tracing::info!(provider.name = %name, component.digest = release.digest(), "release passed probation");
        }
        Report::Refused(refusal) => line!(warn, refusal, "release refused"),
        Report::RolledBack(refusal) => line!(error, refusal, "release rolled back"),
        Report::KeepsConfig(refusal) => {
            line!(error, refusal, "the active release keeps its old cloud-config, all other settings are in force");
        }
        Report::Stopped(refusal) => {
            line!(error, refusal, "nothing serves any more, for the release cannot be loaded under the new settings");
        }
        Report::Shadowed(ShadowStatus { digest, asked, unanswered, differing, differences }) => {
            tracing::info!(
                provider.name = %name,
                component.digest = digest,
                asked,
                unanswered,
                differing,
                "release asked what the one that serves was asked"
            );
            for difference in differences {
                tracing::warn!(provider.name = %name, component.digest = digest, "releases differ: {difference}");
            }
        }
        Report::SourceFailed(failure) => {
            tracing::warn!(provider.name = %name, code = failure.code, "nothing to offer: {}", failure.reason);
        }
    }
}

/// The end of what is under way; never where nothing is.
async fn ended(under_way: &mut Option<BoxFuture<'static, Event>>) -> Event {
    match under_way {
        Some(future) => {
            let event = future.await;
            *under_way = None;
            event
        }
        None => std::future::pending().await,
    }
}

fn now_ms() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a date for people; nothing is decided by it")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
