//! Whether the workers of the controllers make progress, and whether they could start.
//!
//! Each reconcile and each pass over the nodes is a turn. A turn records a step before each call of
//! a provider and before each write to the API. Calls and requests have deadlines, so a turn
//! without a step for longer than these deadlines allow is stuck: the process holds its lease and
//! does not act. Only a restart helps, so `/livez` fails.
//!
//! No worker starts before the first list of its watch is complete. Until then the process holds
//! its lease and does not act, so `/readyz` fails at once, and `/livez` after [`FIRST_LIST_MAX`]:
//! another replica, or a new process, may have a way to the API server that this one lacks.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::watch::Receiver, time::Instant};
use tracing::{Span, field::Empty};

use crate::{names::controllers, watch::ObjectKey};

/// The longest time between two steps of a turn, without calls of the provider. It covers two
/// requests at their deadlines (35 s each) and the throttle.
const STEP: Duration = Duration::from_mins(3);

/// How long the first list of a watch may take: twenty requests at their deadline of 30 s. A list
/// of 100,000 objects has 200 pages, each of which an API server answers within a second or two.
pub const FIRST_LIST_MAX: Duration = Duration::from_mins(10);

tokio::task_local! {
    static TURN: Arc<Turn>;
}

/// What a turn is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    /// One Service.
    Service(&'a ObjectKey),
    /// A pass of this controller over many objects, with its name after "the".
    Pass(&'static str, &'static str),
}

impl Work<'_> {
    /// The span of the turn, with the names of the controllers' log lines. [`fail`] completes the
    /// span.
    pub(crate) fn span(self, provider: &str) -> Span {
        let (controller, service, pass) = match self {
            Self::Service(key) => (controllers::SERVICE, Some(key), None),
            Self::Pass(controller, pass) => (controller, None, Some(pass)),
        };
        tracing::debug_span!(
            "reconcile",
            controller.name = controller,
            controller.pass = pass,
            provider.name = provider,
            object.kind = service.map(|_| "Service"),
            object.namespace = service.map(|key| &*key.namespace),
            object.name = service.map(|key| &*key.name),
            "error.type" = Empty,
            error.message = Empty,
        )
    }
}

impl fmt::Display for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(key) => write!(f, "the Service {key}"),
            Self::Pass(_, pass) => write!(f, "the {pass}"),
        }
    }
}

/// Notes in the span of the running turn that it failed: the code of the error, and its text. Of
/// several failures of a pass the last one stays.
pub(crate) fn fail(code: &'static str, text: &str) {
    Span::current().record("error.type", code).record("error.message", text);
}

/// The running turns and the first lists; cloning shares them.
#[derive(Clone, Default)]
pub struct Progress(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    turns: Vec<Weak<Turn>>,
    lists: Vec<List>,
}

/// The first list of a watch.
struct List {
    what: &'static str,
    began: Instant,
    complete: Receiver<bool>,
}

/// A running turn.
struct Turn {
    provider: String,
    what: String,
    last: Mutex<Step>,
}

/// The last step of a turn.
struct Step {
    at: Instant,
    /// The provider of the last call. A turn of one provider may also call others, to delete what
    /// they hold.
    called: String,
}

impl Progress {
    /// Runs `work` as a turn.
    pub(crate) async fn turn<F: Future>(&self, provider: &str, what: impl Into<String>, work: F) -> F::Output {
        let last = Mutex::new(Step { at: Instant::now(), called: provider.to_owned() });
        let turn = Arc::new(Turn { provider: provider.to_owned(), what: what.into(), last });
        {
            let mut inner = self.lock();
            inner.turns.retain(|turn| turn.strong_count() > 0);
            inner.turns.push(Arc::downgrade(&turn));
        }
        TURN.scope(turn, work).await
    }

    /// Fails if a turn is stuck. `longest_call` returns the deadline of a call of the provider with
    /// this name.
    ///
    /// # Errors
    /// Names the stuck turn and how long it is stuck.
    pub fn check(&self, longest_call: impl Fn(&str) -> Duration) -> Result<(), String> {
        let turns: Vec<_> = self.lock().turns.iter().filter_map(Weak::upgrade).collect();
        for turn in turns {
            let Step { at, called } = &*turn.last();
            let since = at.elapsed();
            if since > STEP + longest_call(called) {
                let (Turn { provider, what, .. }, seconds) = (&*turn, since.as_secs());
                let of_another =
                    if called == provider { String::new() } else { format!(", since a call of the provider {called}") };
                return Err(format!(
                    "{what} of the provider {provider} has made no progress for {seconds} s{of_another}"
                ));
            }
        }
        Ok(())
    }

    /// Adds a watch, which has listed its objects once `listed` is true.
    pub(crate) fn watches(&self, what: &'static str, listed: Receiver<bool>) {
        self.lock().lists.push(List { what, began: Instant::now(), complete: listed });
    }

    /// Fails if the first list of a watch is not complete, and its watch was added longer ago than
    /// `patience`.
    ///
    /// # Errors
    /// Names the missing list and its age.
    pub fn check_lists(&self, patience: Duration) -> Result<(), String> {
        let inner = self.lock();
        let missing = inner.lists.iter().filter(|list| !*list.complete.borrow());
        let Some((what, age)) = missing.map(|list| (list.what, list.began.elapsed())).find(|(_, age)| *age >= patience)
        else {
            return Ok(());
        };
        Err(format!("the first list of {what} is not complete after {} s; see the log for the reason", age.as_secs()))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Turn ===

impl Turn {
    fn last(&self) -> MutexGuard<'_, Step> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records a step of the current turn; does nothing outside of a turn.
pub(crate) fn step() {
    let _outside_of_turns = TURN.try_with(|turn| turn.last().at = Instant::now());
}

/// Records a call of this provider as a step of the current turn; does nothing outside of a turn.
pub(crate) fn call(provider: &str) {
    let _outside_of_turns = TURN.try_with(|turn| {
        let mut last = turn.last();
        last.at = Instant::now();
        provider.clone_into(&mut last.called);
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        sync::watch,
        task::JoinSet,
        time::{advance, sleep},
    };

    use super::{FIRST_LIST_MAX, Progress, STEP, call, step};

    const CALL: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_turn_without_a_step_for_longer_than_its_deadlines_allow_fails_the_check_until_it_ends() {
        let progress = Progress::default();
        let check = || progress.check(|provider| if provider == "sim" { CALL } else { Duration::ZERO });
        let mut stuck = JoinSet::new();
        stuck.spawn({
            let progress = progress.clone();
            async move { progress.turn("sim", "the Service default/web", sleep(CALL + STEP * 2)).await }
        });
        tokio::task::yield_now().await;
        advance(CALL + STEP).await;
        assert_eq!(check(), Ok(()));
        advance(SECOND).await;
        let told = "the Service default/web of the provider sim has made no progress for 211 s";
        assert_eq!(check(), Err(told.to_owned()));
        stuck.join_next().await.unwrap().unwrap();
        assert_eq!(check(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_another_provider_is_measured_against_the_deadline_of_that_provider() {
        let progress = Progress::default();
        let check = || progress.check(|provider| if provider == "slow" { CALL * 20 } else { CALL });
        let work = async {
            call("slow");
            advance(STEP + CALL * 20).await;
            assert_eq!(check(), Ok(()));
            advance(SECOND).await;
            let told = "the Service default/web of the provider sim has made no progress for 781 s, since a call of the provider slow";
            assert_eq!(check(), Err(told.to_owned()));
            call("sim");
            advance(STEP + CALL + SECOND).await;
            let told = "the Service default/web of the provider sim has made no progress for 211 s";
            assert_eq!(check(), Err(told.to_owned()));
        };
        progress.turn("sim", "the Service default/web", work).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_turn_that_makes_steps_passes_the_check() {
        let progress = Progress::default();
        let work = async {
            for _ in 0..100 {
                sleep(STEP).await;
                assert_eq!(progress.check(|_| Duration::ZERO), Ok(()));
                step();
            }
        };
        progress.turn("sim", "the nodes", work).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_list_that_is_missing_is_named_until_it_is_complete() {
        let (progress, nodes, services) = (Progress::default(), watch::Sender::new(false), watch::Sender::new(false));
        let (ready, alive) = (|| progress.check_lists(Duration::ZERO), || progress.check_lists(FIRST_LIST_MAX));
        assert_eq!(ready(), Ok(()), "no watch has begun");
        progress.watches("nodes", nodes.subscribe());
        progress.watches("Services", services.subscribe());
        nodes.send_replace(true);
        let missing = |seconds: u64| {
            Err(format!("the first list of Services is not complete after {seconds} s; see the log for the reason"))
        };
        assert_eq!((ready(), alive()), (missing(0), Ok(())));
        advance(FIRST_LIST_MAX - SECOND).await;
        assert_eq!((ready(), alive()), (missing(599), Ok(())));
        advance(SECOND).await;
        assert_eq!((ready(), alive()), (missing(600), missing(600)));
        services.send_replace(true);
        assert_eq!((ready(), alive()), (Ok(()), Ok(())));
    }
}
