//! Whether the workers of the controllers make progress, and whether they could start.
//!
//! Each reconcile and each pass over the nodes is a turn. A turn records a step before each call of
//! a provider and before each write to the API. Calls and requests have deadlines, so a turn
//! without a step for longer than these deadlines allow is stuck: the process holds its lease and
//! does not act. Only a restart helps, so `/livez` fails.
//!
//! No worker starts before the first list of its watch is complete. Until then the process holds
//! its lease and does not act, so `/readyz` fails.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::watch::Receiver, time::Instant};

/// The longest time between two steps of a turn, without calls of the provider. It covers two
/// requests at their deadlines (35 s each) and the throttle.
const STEP: Duration = Duration::from_mins(3);

tokio::task_local! {
    static TURN: Arc<Turn>;
}

/// The running turns and the first lists; cloning shares them.
#[derive(Clone, Default)]
pub struct Progress(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    turns: Vec<Weak<Turn>>,
    /// What each watch lists, and whether its first list is complete.
    lists: Vec<(&'static str, Receiver<bool>)>,
}

struct Turn {
    provider: String,
    what: String,
    step: Mutex<Instant>,
}

impl Progress {
    /// Runs `work` as a turn.
    pub(crate) async fn turn<F: Future>(&self, provider: &str, what: impl Into<String>, work: F) -> F::Output {
        let step = Mutex::new(Instant::now());
        let turn = Arc::new(Turn { provider: provider.to_owned(), what: what.into(), step });
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
            let since = turn.step.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
            if since > STEP + longest_call(&turn.provider) {
                let (Turn { provider, what, .. }, seconds) = (&*turn, since.as_secs());
                return Err(format!("{what} of the provider {provider} has made no progress for {seconds} s"));
            }
        }
        Ok(())
    }

    /// Adds a watch, which has listed its objects once `listed` is true.
    pub(crate) fn watches(&self, what: &'static str, listed: Receiver<bool>) {
        self.lock().lists.push((what, listed));
    }

    /// Ok when the first list of each watch is complete, and when no watch was added.
    ///
    /// # Errors
    /// Names the missing list.
    pub fn check_lists(&self) -> Result<(), String> {
        match self.lock().lists.iter().find(|(_, listed)| !*listed.borrow()) {
            Some((what, _)) => Err(format!("the first list of {what} is not complete; see the log for the reason")),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records a step of the current turn; does nothing outside of a turn.
pub(crate) fn step() {
    let _outside_of_turns = TURN.try_with(|turn| {
        *turn.step.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
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

    use super::{Progress, STEP, step};

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

    #[test]
    fn a_first_list_that_is_missing_is_named_until_it_is_complete() {
        let (progress, nodes, services) = (Progress::default(), watch::Sender::new(false), watch::Sender::new(false));
        assert_eq!(progress.check_lists(), Ok(()), "no watch has begun");
        progress.watches("nodes", nodes.subscribe());
        progress.watches("Services", services.subscribe());
        nodes.send_replace(true);
        let told = "the first list of Services is not complete; see the log for the reason";
        assert_eq!(progress.check_lists(), Err(told.to_owned()));
        services.send_replace(true);
        assert_eq!(progress.check_lists(), Ok(()));
    }
}
