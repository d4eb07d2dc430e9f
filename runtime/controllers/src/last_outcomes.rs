//! How the last run of each Service ended, for people who ask why a Service waits. No decision of
//! the controllers depends on it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use skysail_provider::text::one_line;
use tokio::time::Instant;

use crate::watch::ObjectKey;

/// The most Services whose outcome is kept: about 200 bytes each. Further ones have none.
const OUTCOMES_MAX: usize = 20_000;
/// Longest text of a failure, in bytes: as the message of an Event.
const TEXT_BYTES_MAX: usize = 1_024;
/// The most bytes of all texts. When a cloud is away, each of 10,000 Services fails, with a text of
/// its own; beyond this number a text is cut to [`SHORT_TEXT_BYTES_MAX`].
const TEXTS_BYTES_MAX: usize = 2 << 20;
/// Longest text when the texts together are long.
const SHORT_TEXT_BYTES_MAX: usize = 96;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) ended: Instant,
    /// The provider whose queue had the Service.
    pub(crate) provider: Box<str>,
    /// The last step of the run.
    pub(crate) step: &'static str,
    pub(crate) failure: Option<OutcomeFailure>,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutcomeFailure {
    /// As [`crate::error::Error::category`].
    pub(crate) category: &'static str,
    /// One line; the cloud and the component wrote a part of it.
    pub(crate) text: Box<str>,
}

/// The last outcome of each Service.
#[derive(Default)]
pub(crate) struct LastOutcomes(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    outcomes: HashMap<ObjectKey, Outcome>,
    /// Bytes of all texts.
    text_bytes: usize,
}

impl LastOutcomes {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Outcome> {
        self.lock().outcomes.get(key).cloned()
    }

    /// Records a success. A run that found nothing to do (`idle`) does not replace a success that
    /// did something.
    pub(crate) fn succeeded(&self, key: &ObjectKey, provider: &str, step: &'static str, idle: bool) {
        let mut inner = self.lock();
        if idle && inner.outcomes.get(key).is_some_and(|outcome| outcome.failure.is_none()) {
            return;
        }
        inner.put(key, (provider, step), None);
    }

    /// Records a failure: its category and its text.
    pub(crate) fn failed(
        &self,
        key: &ObjectKey,
        provider: &str,
        step: &'static str,
        (category, text): (&'static str, &str),
    ) {
        let mut inner = self.lock();
        inner.remove(key);
        let max = match inner.text_bytes < TEXTS_BYTES_MAX {
            true => TEXT_BYTES_MAX,
            false => SHORT_TEXT_BYTES_MAX,
        };
        let text = one_line(text, max).into_boxed_str();
        inner.put(key, (provider, step), Some(OutcomeFailure { category, text }));
    }

    /// Forgets a Service that is gone.
    pub(crate) fn remove(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put(&mut self, key: &ObjectKey, (provider, step): (&str, &'static str), failure: Option<OutcomeFailure>) {
        self.remove(key);
        if self.outcomes.len() >= OUTCOMES_MAX {
            return;
        }
        let provider = provider.into();
        self.text_bytes += failure.as_ref().map_or(0, |failure| failure.text.len());
        self.outcomes.insert(key.clone(), Outcome { ended: Instant::now(), provider, step, failure });
    }

    fn remove(&mut self, key: &ObjectKey) {
        let failure = self.outcomes.remove(key).and_then(|outcome| outcome.failure);
        self.text_bytes -= failure.map_or(0, |failure| failure.text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::{LastOutcomes, OUTCOMES_MAX, SHORT_TEXT_BYTES_MAX, TEXT_BYTES_MAX, TEXTS_BYTES_MAX};
    use crate::watch::ObjectKey;

    fn key(number: usize) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: format!("s{number}") }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_found_nothing_to_do_replaces_a_failure_and_no_success() {
        let outcomes = LastOutcomes::default();
        let step = || outcomes.get(&key(1)).map(|outcome| (outcome.step, outcome.failure.is_some()));
        outcomes.succeeded(&key(1), "sim", "Ensure", false);
        outcomes.succeeded(&key(1), "sim", "Nothing", true);
        assert_eq!(step(), Some(("Ensure", false)));
        outcomes.failed(&key(1), "sim", "Update", ("Unavailable", "the cloud is away"));
        assert_eq!(step(), Some(("Update", true)));
        outcomes.succeeded(&key(1), "sim", "Nothing", true);
        assert_eq!(step(), Some(("Nothing", false)));
        outcomes.remove(&key(1));
        assert_eq!((step(), outcomes.lock().text_bytes), (None, 0));
    }

    /// An outage with a long text for each of more Services than are kept.
    #[tokio::test(start_paused = true)]
    async fn the_number_of_outcomes_and_the_length_of_their_texts_are_bounded() {
        let (outcomes, text) = (LastOutcomes::default(), "x".repeat(2 * TEXT_BYTES_MAX));
        for number in 0..OUTCOMES_MAX + 10 {
            outcomes.failed(&key(number), "sim", "Ensure", ("Unavailable", &text));
        }
        let length = |number| outcomes.get(&key(number)).map(|outcome| outcome.failure.unwrap().text.len());
        assert_eq!(length(0), Some(TEXT_BYTES_MAX));
        assert_eq!(length(OUTCOMES_MAX - 1), Some(SHORT_TEXT_BYTES_MAX));
        assert_eq!(length(OUTCOMES_MAX), None);
        let bytes = outcomes.lock().text_bytes;
        assert!(bytes < TEXTS_BYTES_MAX + TEXT_BYTES_MAX + OUTCOMES_MAX * SHORT_TEXT_BYTES_MAX, "{bytes}");
        (0..OUTCOMES_MAX).for_each(|number| outcomes.remove(&key(number)));
        assert_eq!(outcomes.lock().text_bytes, 0);
    }
}
