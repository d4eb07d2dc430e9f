//! The Services that are paused, for people: the Events at the begin and at the end of a pause, and
//! the numbers of paused Services. No decision of the controllers depends on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{ownership::LaneId, watch::ObjectKey};

/// What pauses a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The annotation is `true`.
    Annotated,
    /// The annotation is neither `true` nor `false`. A user who writes it wants a pause more likely
    /// than none, and a pause loses nothing.
    Unclear,
    /// The operator has paused this provider, which the next step would call.
    Provider(LaneId),
}

/// The paused Services, as their last runs found them.
#[derive(Default)]
pub(crate) struct Pauses(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    services: BTreeMap<ObjectKey, PausedService>,
    by_provider: BTreeMap<String, PausedOfProvider>,
}

/// The paused Services of one provider.
#[derive(Default)]
struct PausedOfProvider {
    count: usize,
    /// Those that their annotation pauses.
    annotated: BTreeSet<ObjectKey>,
}

struct PausedService {
    /// The provider whose queue has the Service.
    provider: String,
    pause: Pause,
    /// Whether an Event reported a pause of the Service that has not ended since.
    is_told: bool,
}

/// What a run of a Service found about its pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseNotice {
    /// Nothing to report.
    Unchanged,
    /// The numbers have changed.
    Counted,
    /// A pause began, and an Event is due.
    Began(Pause),
    /// The pause has ended, and an Event is due.
    Ended,
}

impl Pauses {
    /// Records the pause of this Service, and whether an Event has to report it; `None` if the
    /// Service is not paused.
    pub(crate) fn follow(&self, key: &ObjectKey, provider: &str, now: Option<(Pause, bool)>) -> PauseNotice {
        let mut inner = self.lock();
        let before = inner.take(key);
        let was_told = before.as_ref().is_some_and(|service| service.is_told);
        let Some((pause, is_told)) = now else {
            return match before {
                None => PauseNotice::Unchanged,
                Some(_) if was_told => PauseNotice::Ended,
                Some(_) => PauseNotice::Counted,
            };
        };
        let is_told = is_told || was_told;
        let is_same = before.as_ref().is_some_and(|service| service.pause == pause);
        let is_counted = is_same && before.is_some_and(|service| service.provider == provider);
        inner.put(key, PausedService { provider: provider.to_owned(), pause, is_told });
        match (is_told && !(was_told && is_same), is_counted) {
            (true, _) => PauseNotice::Began(pause),
            (false, false) => PauseNotice::Counted,
            (false, true) => PauseNotice::Unchanged,
        }
    }

    /// Forgets a Service; returns whether it was paused.
    pub(crate) fn remove(&self, key: &ObjectKey) -> bool {
        self.lock().take(key).is_some()
    }

    /// Forgets the Services of a removed provider.
    pub(crate) fn remove_all(&self, provider: &str) {
        let mut inner = self.lock();
        inner.services.retain(|_, service| service.provider != provider);
        inner.by_provider.remove(provider);
    }

    /// The number of paused Services of this provider; and of those that their annotation pauses
    /// the number and the first one.
    pub(crate) fn of(&self, provider: &str) -> (usize, Option<(usize, ObjectKey)>) {
        let inner = self.lock();
        let Some(PausedOfProvider { count, annotated }) = inner.by_provider.get(provider) else { return (0, None) };
        (*count, annotated.first().map(|first| (annotated.len(), first.clone())))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put(&mut self, key: &ObjectKey, service: PausedService) {
        let of_provider = self.by_provider.entry(service.provider.clone()).or_default();
        of_provider.count += 1;
        if !matches!(service.pause, Pause::Provider(_)) {
            of_provider.annotated.insert(key.clone());
        }
        self.services.insert(key.clone(), service);
    }

    fn take(&mut self, key: &ObjectKey) -> Option<PausedService> {
        let service = self.services.remove(key)?;
        if let Some(of_provider) = self.by_provider.get_mut(&service.provider) {
            of_provider.count -= 1;
            of_provider.annotated.remove(key);
            if of_provider.count == 0 {
                self.by_provider.remove(&service.provider);
            }
        }
        Some(service)
    }
}

#[cfg(test)]
mod tests {
    use super::{Pause, PauseNotice, Pauses};
    use crate::watch::ObjectKey;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_pause_is_reported_once_at_its_begin_and_once_at_its_end() {
        let pauses = Pauses::default();
        let run = |now| pauses.follow(&key("web"), "sim", now);
        assert_eq!(run(None), PauseNotice::Unchanged);
        assert_eq!(run(Some((Pause::Annotated, true))), PauseNotice::Began(Pause::Annotated));
        assert_eq!(run(Some((Pause::Annotated, true))), PauseNotice::Unchanged);
        assert_eq!(run(Some((Pause::Unclear, true))), PauseNotice::Began(Pause::Unclear), "what pauses it has changed");
        assert_eq!(run(None), PauseNotice::Ended);
        assert_eq!(run(None), PauseNotice::Unchanged);
    }

    /// Ten thousand Services of a paused provider must not emit an Event each.
    #[test]
    fn the_pause_of_a_provider_is_reported_for_a_service_that_asks_for_something() {
        let pauses = Pauses::default();
        let run = |now| pauses.follow(&key("web"), "sim", now);
        let provider = Pause::Provider(1);
        assert_eq!(run(Some((provider, false))), PauseNotice::Counted);
        assert_eq!(run(Some((provider, false))), PauseNotice::Unchanged);
        assert_eq!(run(None), PauseNotice::Counted);
        assert_eq!(run(Some((provider, true))), PauseNotice::Began(provider));
        assert_eq!(run(Some((provider, false))), PauseNotice::Unchanged);
        assert_eq!(run(Some((Pause::Annotated, true))), PauseNotice::Began(Pause::Annotated));
        assert_eq!(run(Some((provider, false))), PauseNotice::Began(provider), "the Service still waits");
        assert_eq!(run(None), PauseNotice::Ended);
    }

    #[test]
    fn services_are_counted_for_the_provider_whose_queue_has_them() {
        let pauses = Pauses::default();
        pauses.follow(&key("b"), "sim", Some((Pause::Annotated, true)));
        pauses.follow(&key("a"), "sim", Some((Pause::Provider(1), false)));
        assert_eq!(pauses.of("sim"), (2, Some((1, key("b")))));
        assert_eq!(pauses.follow(&key("b"), "other", Some((Pause::Annotated, true))), PauseNotice::Counted);
        assert_eq!((pauses.of("sim"), pauses.of("other")), ((1, None), (1, Some((1, key("b"))))));
        assert_eq!((pauses.remove(&key("a")), pauses.remove(&key("a"))), (true, false));
        pauses.remove_all("other");
        assert_eq!((pauses.of("sim"), pauses.of("other")), ((0, None), (0, None)));
    }
}
