//! Which resources belong to the cluster.

use crate::{settings::Settings, wire::Tags};

/// The key is followed by the cluster's ID; the value is `owned` or `shared`.
const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
/// The older tag: its value is the cluster's ID.
const CLUSTER_LEGACY: &str = "KubernetesCluster";
const OWNED: &str = "owned";
/// Namespace and name of the Service of a load balancer.
pub(crate) const SERVICE: &str = "kubernetes.io/service-name";

/// The tags of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Tagging {
    cluster: String,
    legacy: bool,
}

impl Tagging {
    /// The tags of the configured cluster ID, else of the cluster's name.
    pub(crate) fn new(settings: &Settings, cluster: &str) -> Self {
        let cluster = settings.cluster_id.clone().unwrap_or_else(|| cluster.to_owned());
        Self { cluster, legacy: settings.legacy_tags }
    }

    /// The cluster's ID.
    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Whether the resource is this cluster's, or is shared with it.
    pub(crate) fn has(&self, tags: &Tags) -> bool {
        self.has_legacy(tags) || tags.contains_key(&self.key())
    }

    /// Whether the resource lives and ends with this cluster.
    pub(crate) fn owns(&self, tags: &Tags) -> bool {
        self.has_legacy(tags) || tags.get(&self.key()).is_some_and(|value| value == OWNED)
    }

    /// Whether the resource has the tag of any cluster.
    pub(crate) fn is_claimed(tags: &Tags) -> bool {
        tags.contains_key(CLUSTER_LEGACY) || tags.keys().any(|key| key.starts_with(CLUSTER_PREFIX))
    }

    /// The tags of a new resource: the user's, and those of the owner.
    pub(crate) fn owned(&self, additional: &Tags, service: Option<&str>) -> Tags {
        let mut tags = additional.clone();
        if let Some(service) = service {
            tags.insert(SERVICE.to_owned(), service.to_owned());
        }
        if self.legacy {
            tags.insert(CLUSTER_LEGACY.to_owned(), self.cluster.clone());
        }
        tags.insert(self.key(), OWNED.to_owned());
        tags
    }

    fn has_legacy(&self, tags: &Tags) -> bool {
        tags.get(CLUSTER_LEGACY) == Some(&self.cluster)
    }

    fn key(&self) -> String {
        format!("{CLUSTER_PREFIX}{}", self.cluster)
    }
}
