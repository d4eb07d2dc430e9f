//! Who owns a load balancer or a certificate: labels in the cloud.

use skysail_guest_sdk::{Error, Result, Service, labels::is_label_value};

use crate::wire::Labels;

/// The UID of the Service; the only label of the vendor's manager, which can take over from this
/// provider, and this provider from it.
pub(crate) const UID: &str = "hcloud-ccm/service-uid";
const CLUSTER: &str = "skysail/cluster";
const NAMESPACE: &str = "skysail/service-namespace";
const NAME: &str = "skysail/service-name";

/// A Service of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Whose an object of the cloud is, for one Service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This Service's, or that of a deleted Service with the same namespace and name.
    Ours,
    /// No Service's: a user made it.
    Free,
    /// Another one's; the text names it.
    Other(String),
}

impl Owner {
    /// The owner of a Service's objects.
    ///
    /// # Errors
    ///
    /// `denied` where the cluster's name cannot be the value of a label: the operator has to act.
    pub(crate) fn new(cluster: &str, service: &Service) -> Result<Self> {
        check(cluster)?;
        let Service { namespace, name, uid, .. } = service;
        Ok(Self { cluster: cluster.to_owned(), namespace: namespace.clone(), name: name.clone(), uid: uid.clone() })
    }

    /// The owner that the labels name completely; none for an object of the vendor's manager.
    pub(crate) fn of(labels: &Labels) -> Option<Self> {
        let label = |key: &str| labels.get(key).cloned();
        Some(Self { cluster: label(CLUSTER)?, namespace: label(NAMESPACE)?, name: label(NAME)?, uid: label(UID)? })
    }

    /// The labels of this owner.
    pub(crate) fn labels(&self) -> [(&'static str, &str); 4] {
        [(UID, &self.uid), (CLUSTER, &self.cluster), (NAMESPACE, &self.namespace), (NAME, &self.name)]
    }

    /// These labels and those of the owner.
    pub(crate) fn added_to(&self, labels: &Labels) -> Labels {
        let mut all = labels.clone();
        all.extend(self.labels().map(|(key, value)| (key.to_owned(), value.to_owned())));
        all
    }

    /// Whether the labels name this owner.
    pub(crate) fn is_in(&self, labels: &Labels) -> bool {
        self.labels().iter().all(|(key, value)| labels.get(*key).is_some_and(|label| label == value))
    }

    /// Whose an object with these labels is.
    pub(crate) fn claim(&self, labels: &Labels) -> Claim {
        let label = |key: &str| labels.get(key).map(String::as_str);
        let is = |key: &str, value: &str| label(key) == Some(value);
        match (label(CLUSTER), label(UID)) {
            (Some(cluster), _) if cluster != self.cluster => Claim::Other(format!("cluster {cluster:?}")),
            (_, Some(uid)) if uid == self.uid => Claim::Ours,
            (_, None) => Claim::Free,
            (Some(_), _) if is(NAMESPACE, &self.namespace) && is(NAME, &self.name) => Claim::Ours,
            (_, Some(uid)) => match (label(NAMESPACE), label(NAME)) {
                (Some(namespace), Some(name)) => Claim::Other(format!("Service {namespace}/{name}")),
                _ => Claim::Other(format!("the Service with the UID {uid}")),
            },
        }
    }
}

/// The labels without an owner.
pub(crate) fn released(labels: &Labels) -> Labels {
    let ours = [UID, CLUSTER, NAMESPACE, NAME];
    labels.iter().filter(|(key, _)| !ours.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The cluster that the labels name.
pub(crate) fn cluster_of(labels: &Labels) -> Option<&str> {
    labels.get(CLUSTER).map(String::as_str)
}

/// The selector for everything of a cluster.
pub(crate) fn of_cluster(cluster: &str) -> Result<String> {
    check(cluster).map(|()| format!("{CLUSTER}={cluster}"))
}

/// The selector for everything of a Service, also where the vendor's manager made it.
pub(crate) fn of_service(uid: &str) -> String {
    format!("{UID}={uid}")
}

fn check(cluster: &str) -> Result<()> {
    if !cluster.is_empty() && is_label_value(cluster) {
        return Ok(());
    }
    Err(Error::Denied(format!(
        "cluster name {cluster:?} cannot be the value of a label in Hetzner Cloud; give the manager a --cluster-name of \
         at most 63 letters, digits, '-', '_' and '.'"
    )))
}

#[cfg(test)]
mod tests {
    use skysail_guest_sdk::Service;

    use super::{Claim, Labels, Owner, of_cluster, released};

    fn owner(cluster: &str, name: &str, uid: &str) -> Owner {
        Owner::new(cluster, &Service::new("default", name, uid)).unwrap()
    }

    fn labels(owner: &Owner) -> Labels {
        owner.added_to(&Labels::from([("team".to_owned(), "net".to_owned())]))
    }

    #[test]
    fn a_claim_compares_cluster_and_service() {
        let ours = owner("prod", "web", "u1");
        assert_eq!(ours.claim(&labels(&ours)), Claim::Ours);
        assert_eq!(ours.claim(&labels(&owner("prod", "web", "u0"))), Claim::Ours, "the Service was created again");
        assert_eq!(ours.claim(&Labels::new()), Claim::Free);
        let other = |owner: Owner| ours.claim(&labels(&owner));
        assert_eq!(other(owner("prod", "api", "u2")), Claim::Other("Service default/api".to_owned()));
        assert_eq!(other(owner("test", "web", "u1")), Claim::Other("cluster \"test\"".to_owned()));
    }

    #[test]
    fn the_label_of_the_vendors_manager_is_enough_for_the_same_uid_only() {
        let ours = owner("prod", "web", "u1");
        let of = |uid: &str| ours.claim(&Labels::from([(super::UID.to_owned(), uid.to_owned())]));
        assert_eq!(of("u1"), Claim::Ours);
        assert_eq!(of("u2"), Claim::Other("the Service with the UID u2".to_owned()));
    }

    #[test]
    fn a_released_object_keeps_the_labels_of_its_user() {
        let ours = owner("prod", "web", "u1");
        let kept = released(&labels(&ours));
        assert_eq!(kept, Labels::from([("team".to_owned(), "net".to_owned())]));
        assert_eq!((Owner::of(&kept), Owner::of(&labels(&ours))), (None, Some(ours)));
    }

    #[test]
    fn a_cluster_name_that_is_no_label_is_refused() {
        let long = "x".repeat(64);
        for name in ["", "a b", "-a", long.as_str(), "é"] {
            assert!(of_cluster(name).is_err(), "{name:?}");
        }
    }
}
