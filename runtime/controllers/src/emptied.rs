//! Remembers which of several providers have deleted the load balancer of a Service whose provider
//! is unknown.
//!
//! Such a Service has the finalizer of another manager and no provider's name, so each provider may
//! hold its load balancer. If one of them cannot be called for hours, the retries must not call the
//! others again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1 as core;
use tokio::time::Instant;

use crate::{
    ledger::{Generation, version},
    watch::ObjectKey,
};

/// After this time a provider is called once more. It bounds the memory for Services that are gone,
/// and is longer than the longest pause between two retries.
const REMEMBERED_FOR: Duration = Duration::from_hours(1);

/// The providers that have deleted the load balancer of each Service, until all have.
#[derive(Default)]
pub(crate) struct Emptied {
    services: Mutex<HashMap<ObjectKey, Deletions>>,
}

/// The deletions for one Service.
struct Deletions {
    /// The Service's UID and resource version at the deletions: a Service that changed since may
    /// have a load balancer again.
    of: (Option<String>, Option<u64>),
    by: BTreeSet<Generation>,
    since: Instant,
}

impl Emptied {
    /// Records that this provider has deleted the load balancer of the Service.
    pub(crate) fn add(&self, key: &ObjectKey, object: &core::Service, by: Generation) {
        let now = Instant::now();
        let mut services = self.lock();
        services.retain(|_, deletions| now.duration_since(deletions.since) < REMEMBERED_FOR);
        let of = identity(object);
        let former = services.remove(key).filter(|former| former.of == of);
        let mut deletions = former.unwrap_or_else(|| Deletions { of, by: BTreeSet::new(), since: now });
        deletions.by.insert(by);
        services.insert(key.clone(), deletions);
    }

    /// Whether this provider has deleted the load balancer, and the Service has not changed since.
    pub(crate) fn contains(&self, key: &ObjectKey, object: &core::Service, by: Generation) -> bool {
        self.lock().get(key).is_some_and(|deletions| {
            deletions.since.elapsed() < REMEMBERED_FOR && deletions.of == identity(object) && deletions.by.contains(&by)
        })
    }

    /// Forgets the Service: all providers have deleted its load balancer, or a provider makes it
    /// again.
    pub(crate) fn remove(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Deletions>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn identity(object: &core::Service) -> (Option<String>, Option<u64>) {
    (object.metadata.uid.clone(), version(object))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::ObjectMeta};
    use tokio::time::advance;

    use super::{Emptied, REMEMBERED_FOR};
    use crate::watch::ObjectKey;

    fn service(uid: &str, version: &str) -> Service {
        let metadata = ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        Service { metadata, ..Service::default() }
    }

    fn key() -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: "web".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_counts_for_its_provider_and_release_and_for_the_unchanged_service() {
        let emptied = Emptied::default();
        emptied.add(&key(), &service("a", "7"), (1, 4));
        emptied.add(&key(), &service("a", "7"), (2, 4));
        for by in [(1, 4), (2, 4)] {
            assert!(emptied.contains(&key(), &service("a", "7"), by));
        }
        for (object, by) in [
            (service("a", "7"), (1, 5)),
            (service("a", "7"), (3, 4)),
            (service("a", "8"), (1, 4)),
            (service("b", "7"), (1, 4)),
        ] {
            assert!(!emptied.contains(&key(), &object, by), "{object:?} {by:?}");
        }
        emptied.add(&key(), &service("a", "8"), (2, 4));
        assert!(!emptied.contains(&key(), &service("a", "8"), (1, 4)), "its deletion was before the change");
        emptied.remove(&key());
        assert!(!emptied.contains(&key(), &service("a", "8"), (2, 4)));
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_are_forgotten_after_an_hour() {
        let emptied = Emptied::default();
        emptied.add(&key(), &service("a", "7"), (1, 4));
        advance(REMEMBERED_FOR).await;
        assert!(!emptied.contains(&key(), &service("a", "7"), (1, 4)));
        let other = ObjectKey { name: "other".to_owned(), ..key() };
        emptied.add(&other, &service("c", "1"), (1, 4));
        assert_eq!(emptied.lock().len(), 1, "the deletions for Services that are gone take no memory");
    }
}
