//! The one task of a slot: it receives events, asks [`State::step`] what they mean, and runs the
//! effects in their order. What loads components, and what people see of it, is an [`Executor`].

use std::{pin::Pin, sync::Arc};

use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    DRAIN, Done, Effect, Event, Judge, Load, Loaded, Proposal, Release, Report, Routing, SETTINGS, Settings,
    SlotStatus, State, TrialPlace,
};

/// Capacity of the event queue. The task never awaits a load, so a full queue is emptied within
/// moments.
pub const INBOX_MAX: usize = 16;

/// The caller that proposes settings. It receives the means to commit them, and a confirmation when
/// they are in force; or the reason why they are wrong in themselves.
pub type Proposer<E> = oneshot::Sender<Result<oneshot::Sender<Done>, E>>;

/// What a task does not know: how a component becomes a release, where callers look for the
/// routing, and what people see.
pub trait Executor: Send + Sync + 'static {
    /// What is loaded.
    type Release: Release<Settings: Send + Sync, Proposer = Proposer<Self::Error>> + Send + Sync + 'static;
    /// Why settings are wrong in themselves.
    type Error: Send;

    /// Loads an offer.
    fn load(&self, load: Load<Self::Release>) -> impl Future<Output = Loaded<Self::Release>> + Send;

    /// Judges settings, which may be wrong in themselves.
    fn judge(
        &self,
        judge: Judge<Self::Release>,
    ) -> impl Future<Output = Result<Box<Proposal<Self::Release>>, Self::Error>> + Send;

    /// Calls that begin go here.
    fn route(&self, routing: Routing<Self::Release>);

    /// Whether questions of the controllers are remembered.
    fn keep_questions(&self, keeps: bool);

    /// A log line and a metric.
    fn report(&self, report: &Report<Self::Release>);

    /// What the slot is doing; without the dates.
    fn publish(&self, status: SlotStatus);
}

/// The number of a slot's releases in memory. The maker of a release adds one, and the drop of the
/// release subtracts one.
pub type Living = watch::Sender<u64>;

/// Runs the task of a slot until all senders of its inbox are dropped.
pub async fn run<E: Executor>(
    executor: Arc<E>,
    mut inbox: mpsc::Receiver<Event<E::Release>>,
    mut living: watch::Receiver<u64>,
    mut state: State<E::Release>,
) {
    executor.keep_questions(state.keeps_questions());
    let (work, canary, probation) = (never(), never(), never());
    let mut task = Task { executor, living: living.clone(), status: state.status(), held: 0, work, canary, probation };
    task.publish();
    loop {
        let event = tokio::select! {
            biased;
            // A newer offer comes before the end of an earlier one's load.
            event = inbox.recv() => match event {
                Some(event) => event,
                None => return,
            },
            event = &mut task.work => { task.work = never(); event }
            event = &mut task.canary => { task.canary = never(); event }
            event = &mut task.probation => { task.probation = never(); event }
            Ok(()) = living.changed() => {
                task.publish();
                continue;
            }
        };
        let effects;
        (state, effects) = state.step(event);
        effects.into_iter().for_each(|effect| task.run_effect(effect));
    }
}

/// What ends in an event, or [`never`].
type UnderWay<R> = Pin<Box<dyn Future<Output = Event<R>> + Send>>;

struct Task<E: Executor> {
    executor: Arc<E>,
    living: watch::Receiver<u64>,
    /// The last published status, without the number of draining releases.
    status: SlotStatus,
    /// Releases that the state holds.
    held: u64,
    /// A load, a judgement or the wait for a commit.
    work: UnderWay<E::Release>,
    canary: UnderWay<E::Release>,
    probation: UnderWay<E::Release>,
}

impl<E: Executor> Task<E> {
    fn run_effect(&mut self, effect: Effect<E::Release>) {
        let executor = Arc::clone(&self.executor);
        match effect {
            Effect::StopWork => self.work = never(),
            Effect::Load(load) => {
                let number = load.number;
                self.work = Box::pin(async move { Event::Loaded { number, loaded: executor.load(*load).await } });
            }
            Effect::Judge(judge, mut proposer) => {
                let number = judge.number;
                self.work = Box::pin(async move {
                    let judged = tokio::select! {
                        biased;
                        judged = executor.judge(*judge) => judged,
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
                });
            }
            Effect::AwaitCommit(number, proposer) => {
                let (decide, decided) = oneshot::channel();
                // An error means that the caller is gone; then `decide` is dropped.
                drop(proposer.send(Ok(decide)));
                self.work = Box::pin(Event::of_commit(number, decided));
            }
            Effect::Undrain(release) => release.drain().end(),
            Effect::Route(routing) => executor.route(routing),
            Effect::Drain(release) => release.drain().begin(DRAIN),
            Effect::Retire(settings) => settings.drain().begin(SETTINGS),
            Effect::Watch(place, watch) => {
                let trial = watch.map_or_else(never, |watch| Box::pin(watch.trial()));
                match place {
                    TrialPlace::Canary => self.canary = trial,
                    TrialPlace::Probation => self.probation = trial,
                }
            }
            Effect::KeepQuestions(keeps) => executor.keep_questions(keeps),
            Effect::Report(report) => executor.report(&report),
            Effect::Publish(status, held) => {
                (self.status, self.held) = (*status, held);
                self.publish();
            }
            // An error means that the caller no longer waits.
            Effect::Answer(reply, answer) => drop(reply.send(answer)),
            Effect::Confirm(done) => drop(done.send(())),
        }
    }

    fn publish(&self) {
        let draining = self.living.borrow().saturating_sub(self.held);
        self.executor.publish(SlotStatus { draining, ..self.status.clone() });
    }
}

fn never<R: Release + 'static>() -> UnderWay<R> {
    Box::pin(std::future::pending())
}
