//! The addresses that the cluster gave its Services, by address: each one that a provider gives is
//! looked up here.

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
    /// Takes up what happened to a Service: to every one, of whatever type.
    pub(crate) fn follow(&self, change: &Change<core::Service>) {
        let Change { key, old, new } = change;
        let (old, new) = (old.as_deref().map(of).unwrap_or_default(), new.as_deref().map(of).unwrap_or_default());
        if old == new {
            return;
        }
        let mut by_address = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for ip in old {
            // Another one may have it by now: a list tells what is there before it tells what is
            // gone.
            if by_address.get(&ip) == Some(key) {
                by_address.remove(&ip);
            }
        }
        by_address.extend(new.into_iter().map(|ip| (ip, key.clone())));
    }

    /// The Service whose cluster IP this is, however the address is written.
    pub(crate) fn service(&self, address: IpAddr) -> Option<ObjectKey> {
        let by_address = self.0.read().unwrap_or_else(PoisonError::into_inner);
        by_address.get(&address.to_canonical()).cloned()
    }
}

/// A headless Service has none.
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
        assert_eq!(of("::ffff:10.0.0.1"), Some(key("a")), "mapped into IPv6, the same address");
        happens("a", service(&["10.0.0.1", "fd00::1"]), service(&["10.0.0.1"]));
        assert_eq!(of("fd00::1"), None);
        // A list in which `a` is gone and `b` has its address: the addresses that are there come
        // first.
        happens("b", None, service(&["10.0.0.1"]));
        happens("a", service(&["10.0.0.1"]), None);
        assert_eq!(of("10.0.0.1"), Some(key("b")));
        happens("b", service(&["10.0.0.1"]), service(&["None"]));
        assert_eq!(of("10.0.0.1"), None);
    }
}
