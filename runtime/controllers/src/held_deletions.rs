//! What the operator's budget of deletions holds back, for people. No decision of the controllers
//! depends on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{names::ALLOW_DELETION_ANNOTATION, watch::ObjectKey};

/// The deletions that wait, by the provider whose budget they wait for.
#[derive(Default)]
pub(crate) struct HeldDeletions(Mutex<BTreeMap<String, Waiting>>);

/// The deletions of one provider that wait.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// The Services whose load balancer waits.
    services: BTreeSet<ObjectKey>,
    /// The destinations of the routes that the last pass could not delete.
    routes: BTreeSet<String>,
    /// The names of the orphaned load balancers that the last scan could not delete.
    orphans: BTreeSet<String>,
}

impl Waiting {
    fn count(&self) -> usize {
        self.services.len() + self.routes.len() + self.orphans.len()
    }

    /// How many of each kind there are, and one of them.
    fn parts(&self) -> Vec<String> {
        let part = |what: &str, count: usize, first: Option<String>| {
            first.map(|first| format!("of {what} {count}, such as {first}"))
        };
        let Self { services, routes, orphans } = self;
        let parts = [
            part("Services", services.len(), services.first().map(ToString::to_string)),
            part("routes", routes.len(), routes.first().cloned()),
            part("orphaned load balancers", orphans.len(), orphans.first().cloned()),
        ];
        parts.into_iter().flatten().collect()
    }
}

impl HeldDeletions {
    /// Records the provider for which the Service waits, if it waits; returns whether that has
    /// changed.
    pub(crate) fn follow(&self, key: &ObjectKey, waits_for: Option<&str>) -> bool {
        let mut all = self.lock();
        let mut has_changed = false;
        for (_, waiting) in all.iter_mut().filter(|(provider, _)| Some(provider.as_str()) != waits_for) {
            has_changed |= waiting.services.remove(key);
        }
        if let Some(provider) = waits_for {
            has_changed |= all.entry(provider.to_owned()).or_default().services.insert(key.clone());
        }
        has_changed
    }

    /// Records the destinations of the routes that wait after a pass; returns those that have not
    /// waited before.
    pub(crate) fn routes(&self, provider: &str, now: BTreeSet<String>) -> BTreeSet<String> {
        let mut all = self.lock();
        newly(&mut all.entry(provider.to_owned()).or_default().routes, now)
    }

    /// The same for the names of the orphaned load balancers that wait after a scan.
    pub(crate) fn orphans(&self, provider: &str, now: BTreeSet<String>) -> BTreeSet<String> {
        let mut all = self.lock();
        newly(&mut all.entry(provider.to_owned()).or_default().orphans, now)
    }

    /// Forgets what waits for a removed provider.
    pub(crate) fn remove_all(&self, provider: &str) {
        self.lock().remove(provider);
    }

    /// The number of deletions that wait for this provider's budget, and the text for people if
    /// there are some.
    pub(crate) fn of(&self, provider: &str) -> (usize, Option<String>) {
        let waiting = self.lock().get(provider).cloned().unwrap_or_default();
        let (count, parts) = (waiting.count(), waiting.parts().join("; "));
        if count == 0 {
            return (0, None);
        }
        let let_through = match waiting.services.is_empty() {
            true => String::new(),
            false => format!(
                ". To let one Service through: kubectl annotate service NAME --namespace NAMESPACE {ALLOW_DELETION_ANNOTATION}=true"
            ),
        };
        let text = format!(
            "spec.deletionBudget is used up, and deletions wait: {parts}{let_through}. To let all through, raise spec.deletionBudget"
        );
        (count, Some(text))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces what waits; returns what has not waited before.
fn newly(known: &mut BTreeSet<String>, now: BTreeSet<String>) -> BTreeSet<String> {
    let before = std::mem::replace(known, now);
    known.difference(&before).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::HeldDeletions;
    use crate::watch::ObjectKey;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn services_are_counted_until_they_wait_no_more_or_their_provider_is_removed() {
        let held = HeldDeletions::default();
        let first = |provider: &str| held.of(provider).1.unwrap_or_default();
        assert!(held.follow(&key("b"), Some("sim")) && held.follow(&key("a"), Some("sim")));
        assert!(!held.follow(&key("a"), Some("sim")) && !held.follow(&key("c"), None));
        assert!(held.of("sim").0 == 2 && first("sim").contains("of Services 2, such as default/a. To let one Service"));
        assert!(held.follow(&key("a"), Some("next")), "the Service is another provider's now");
        assert!(first("sim").contains("1, such as default/b") && first("next").contains("1, such as default/a"));
        assert!(held.follow(&key("a"), None));
        assert_eq!((held.of("sim").0, held.of("next"), held.of("other")), (1, (0, None), (0, None)));
        held.remove_all("sim");
        assert_eq!(held.of("sim"), (0, None));
    }

    #[test]
    fn routes_and_orphans_are_new_once_until_a_pass_deletes_them() {
        let held = HeldDeletions::default();
        assert_eq!(held.routes("sim", set(&["r1"])), set(&["r1"]));
        assert_eq!(held.routes("sim", set(&["r1", "r2"])), set(&["r2"]));
        assert_eq!(held.orphans("sim", set(&["lb"])), set(&["lb"]));
        let (count, text) = held.of("sim");
        let text = text.unwrap();
        assert_eq!(count, 3);
        assert!(
            text.contains("wait: of routes 2, such as r1; of orphaned load balancers 1, such as lb. To let all"),
            "{text}"
        );
        assert_eq!((held.routes("sim", set(&[])), held.orphans("sim", set(&[]))), (set(&[]), set(&[])));
        assert_eq!(held.of("sim"), (0, None));
        assert_eq!(held.routes("sim", set(&["r1"])), set(&["r1"]));
    }
}
