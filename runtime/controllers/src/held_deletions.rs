//! The Services for which the operator's budget of deletions holds a deletion back, for people. No
//! decision of the controllers depends on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::watch::ObjectKey;

/// The Services that wait, by the provider whose queue has them.
#[derive(Default)]
pub(crate) struct HeldDeletions(Mutex<BTreeMap<String, BTreeSet<ObjectKey>>>);

impl HeldDeletions {
    /// Records the provider for which the Service waits, if it waits; returns whether that has
    /// changed.
    pub(crate) fn follow(&self, key: &ObjectKey, waits_for: Option<&str>) -> bool {
        let mut all = self.lock();
        let mut has_changed = false;
        for (_, keys) in all.iter_mut().filter(|(provider, _)| Some(provider.as_str()) != waits_for) {
            has_changed |= keys.remove(key);
        }
        all.retain(|_, keys| !keys.is_empty());
        if let Some(provider) = waits_for {
            has_changed |= all.entry(provider.to_owned()).or_default().insert(key.clone());
        }
        has_changed
    }

    /// Forgets the Services of a removed provider.
    pub(crate) fn remove_all(&self, provider: &str) {
        self.lock().remove(provider);
    }

    /// The number of Services of this provider that wait, and the first one.
    pub(crate) fn of(&self, provider: &str) -> (usize, Option<ObjectKey>) {
        let all = self.lock();
        let keys = all.get(provider);
        (keys.map_or(0, BTreeSet::len), keys.and_then(BTreeSet::first).cloned())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<ObjectKey>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::HeldDeletions;
    use crate::watch::ObjectKey;

    #[test]
    fn services_are_counted_until_they_wait_no_more_or_their_provider_is_removed() {
        let key = |name: &str| ObjectKey { namespace: "default".to_owned(), name: name.to_owned() };
        let held = HeldDeletions::default();
        assert!(held.follow(&key("b"), Some("sim")) && held.follow(&key("a"), Some("sim")));
        assert!(!held.follow(&key("a"), Some("sim")) && !held.follow(&key("c"), None));
        assert_eq!(held.of("sim"), (2, Some(key("a"))));
        assert!(held.follow(&key("a"), Some("next")), "the Service is another provider's now");
        assert_eq!((held.of("sim"), held.of("next")), ((1, Some(key("b"))), (1, Some(key("a")))));
        assert!(held.follow(&key("a"), None));
        assert_eq!((held.of("sim"), held.of("other")), ((1, Some(key("b"))), (0, None)));
        held.remove_all("sim");
        assert_eq!(held.of("sim"), (0, None));
    }
}
