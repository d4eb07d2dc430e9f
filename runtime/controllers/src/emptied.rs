//! Remembers which of several providers have deleted the load balancer of a Service whose provider
//! is unknown.
//!
//! Such a Service has the finalizer of another manager and no provider's name, so each provider may
//! hold its load balancer. If one of them cannot be called for hours, the retries must not call the
//! others again. The ledger has no such Service: each of its entries names a provider.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1 as core;
use tokio::time::Instant;

use crate::{backoff::RETRY_AFTER_MAX, ledger::Generation, watch::ObjectKey};

/// After this time a provider is called once more. It bounds the memory for Services that are gone.
const REMEMBERED_FOR: Duration = Duration::from_hours(2);

const _: () = assert!(REMEMBERED_FOR.as_secs() > RETRY_AFTER_MAX.as_secs(), "a retry would call the provider again");

/// What a provider deleted with: its generation, and the number of rotations of its credentials. A
/// token of another account finds no load balancer.
pub(crate) type DeletedWith = (Generation, u64);

/// The providers that have deleted the load balancer of each Service, until all have.
#[derive(Default)]
pub(crate) struct Emptied {
    services: Mutex<HashMap<ObjectKey, Deletions>>,
}

type Identity = (String, String);

/// The deletions for one Service.
struct Deletions {
    /// The Service's UID and resource version at the deletions: a Service that changed since may
    /// have a load balancer again.
    of: Identity,
    by: BTreeSet<DeletedWith>,
    since: Instant,
}

impl Emptied {
    /// Records that this provider has deleted the load balancer of the Service.
    pub(crate) fn add(&self, key: &ObjectKey, object: &core::Service, by: DeletedWith) {
        let Some(of) = identity(object) else { return };
        let now = Instant::now();
        let mut services = self.lock();
        services.retain(|_, deletions| now.duration_since(deletions.since) < REMEMBERED_FOR);
        let former = services.remove(key).filter(|former| former.of == of);
        let mut deletions = former.unwrap_or_else(|| Deletions { of, by: BTreeSet::new(), since: now });
        deletions.by.insert(by);
        services.insert(key.clone(), deletions);
    }

    /// What deleted the load balancer of the Service, which has not changed since.
    pub(crate) fn of(&self, key: &ObjectKey, object: &core::Service) -> BTreeSet<DeletedWith> {
        let services = self.lock();
        let is_current = |deletions: &&Deletions| {
            deletions.since.elapsed() < REMEMBERED_FOR && Some(&deletions.of) == identity(object).as_ref()
        };
        services.get(key).filter(is_current).map(|deletions| deletions.by.clone()).unwrap_or_default()
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

/// The UID and the resource version; none if the object lacks one of them.
fn identity(object: &core::Service) -> Option<Identity> {
    object.metadata.uid.clone().zip(object.metadata.resource_version.clone())
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
        emptied.add(&key(), &service("a", "7"), ((1, 4), 0));
        emptied.add(&key(), &service("a", "7"), ((2, 4), 0));
        for by in [((1, 4), 0), ((2, 4), 0)] {
            assert!(emptied.of(&key(), &service("a", "7")).contains(&by));
        }
        for (object, by) in [
            (service("a", "7"), ((1, 5), 0)),
            (service("a", "7"), ((3, 4), 0)),
            (service("a", "8"), ((1, 4), 0)),
            (service("b", "7"), ((1, 4), 0)),
            (service("a", "7"), ((1, 4), 1)),
        ] {
            assert!(!emptied.of(&key(), &object).contains(&by), "{object:?} {by:?}");
        }
        emptied.add(&key(), &service("a", "8"), ((2, 4), 0));
        assert!(!emptied.of(&key(), &service("a", "8")).contains(&((1, 4), 0)), "its deletion was before the change");
        let unknown = Service::default();
        emptied.add(&key(), &unknown, ((1, 4), 0));
        assert!(!emptied.of(&key(), &unknown).contains(&((1, 4), 0)), "nobody knows whether it has changed");
        emptied.remove(&key());
        assert!(!emptied.of(&key(), &service("a", "8")).contains(&((2, 4), 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_are_forgotten_after_two_hours() {
        let emptied = Emptied::default();
        emptied.add(&key(), &service("a", "7"), ((1, 4), 0));
        advance(REMEMBERED_FOR).await;
        assert!(!emptied.of(&key(), &service("a", "7")).contains(&((1, 4), 0)));
        let other = ObjectKey { name: "other".to_owned(), ..key() };
        emptied.add(&other, &service("c", "1"), ((1, 4), 0));
        assert_eq!(emptied.lock().len(), 1, "the deletions for Services that are gone take no memory");
    }
}
