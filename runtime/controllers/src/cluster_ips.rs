//! The cluster IPs of all Services, by address. No provider may assign one of these addresses.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{PoisonError, RwLock},
};

use k8s_openapi::api::core::v1 as core;

use crate::watch::{Change, ObjectKey};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ClusterIps(RwLock<HashMap<IpAddr, ObjectKey>>);

impl ClusterIps {
    /// Updates the map after a change of a Service of any type.
    pub(crate) fn follow(&self, change: &Change<core::Service>) {
        let Change { key, old, new } = change;
        let (old, new) = (old.as_deref().map(of).unwrap_or_default(), new.as_deref().map(of).unwrap_or_default());
        if old == new {
            return;
        }
        let mut by_address = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for ip in old {
            // Another Service may own the address by now: a list reports the objects that exist
            // before it reports the deleted ones.
            if by_address.get(&ip) == Some(key) {
                by_address.remove(&ip);
            }
        }
        by_address.extend(new.into_iter().map(|ip| (ip, key.clone())));
    }

    /// The Service that has this cluster IP, in either spelling of an IPv4-mapped address.
    pub(crate) fn service(&self, address: IpAddr) -> Option<ObjectKey> {
        let by_address = self.0.read().unwrap_or_else(PoisonError::into_inner);
        by_address.get(&address.to_canonical()).cloned()
    }
}

/// The parsed cluster IPs; a headless Service has none.
fn of(object: &core::Service) -> Vec<IpAddr> {
    let ips = object.spec.as_ref().and_then(|spec| spec.cluster_ips.as_deref()).unwrap_or_default();
    ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()).map(|ip| ip.to_canonical()).collect()
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc};

    use k8s_openapi::api::core::v1::{Service, ServiceSpec};

    use super::ClusterIps;
    use crate::watch::{Change, ObjectKey};

    fn service(ips: &[&str]) -> Option<Arc<Service>> {
        let cluster_ips = Some(ips.iter().map(|ip| (*ip).to_owned()).collect());
        Some(Arc::new(Service {
            spec: Some(ServiceSpec { cluster_ips, ..ServiceSpec::default() }),
            ..Service::default()
        }))
    }

    #[test]
    fn an_address_is_of_the_service_that_got_it_last() {
        let known = ClusterIps::default();
        let key = |name: &str| ObjectKey { namespace: "default".to_owned(), name: name.to_owned() };
        let happens = |name: &str, old, new| known.follow(&Change { key: key(name), old, new });
        let of = |ip: &str| known.service(ip.parse::<IpAddr>().unwrap());

        happens("a", None, service(&["10.0.0.1", "fd00::1"]));
        assert_eq!((of("10.0.0.1"), of("fd00::1"), of("10.0.0.2")), (Some(key("a")), Some(key("a")), None));
        assert_eq!(of("::ffff:10.0.0.1"), Some(key("a")), "an IPv4-mapped IPv6 address is the same address");
        happens("a", service(&["10.0.0.1", "fd00::1"]), service(&["10.0.0.1"]));
        assert_eq!(of("fd00::1"), None);
        // A list in which `b` has the address of the deleted `a`: a list reports existing objects
        // first.
        happens("b", None, service(&["10.0.0.1"]));
        happens("a", service(&["10.0.0.1"]), None);
        assert_eq!(of("10.0.0.1"), Some(key("b")));
        happens("b", service(&["10.0.0.1"]), service(&["None"]));
        assert_eq!(of("10.0.0.1"), None);
    }
}
