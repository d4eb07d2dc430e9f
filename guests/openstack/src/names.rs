//! The names of the vendor's manager. A load balancer's name, and the tag that marks a Service's
//! share of one, is `kube_service_CLUSTER_NAMESPACE_NAME`.

use skysail_guest_sdk::{Error, Result, Service};

/// The beginning of every name and tag of a load balancer of some cluster.
pub(crate) const PREFIX: &str = "kube_service_";

/// The longest name that OpenStack stores, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The beginning of the description of a floating IP that this provider, or the vendor's manager,
/// created.
pub(crate) const FLOATING_IP_MARK: &str = "Floating IP for Kubernetes external service";

/// Name and tag of a Service's load balancer.
pub(crate) fn load_balancer(cluster: &str, namespace: &str, name: &str) -> String {
    cut(format!("{PREFIX}{cluster}_{namespace}_{name}"))
}

/// The name, if no other Service can have the same.
///
/// # Errors
///
/// `invalid` for a name that is too long: cut off, it would not identify the Service, and two
/// Services would delete each other's load balancer.
pub(crate) fn load_balancer_of(cluster: &str, service: &Service) -> Result<String> {
    let length = PREFIX.len() + cluster.len() + service.namespace.len() + service.name.len() + 2;
    if length > NAME_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the load balancer's name {PREFIX}{cluster}_{}_{} would have {length} bytes, and Octavia stores \
             {NAME_BYTES_MAX}; choose a shorter --cluster-name",
            service.namespace, service.name
        )));
    }
    Ok(load_balancer(cluster, &service.namespace, &service.name))
}

/// Namespace and name of the Service of this cluster that a name or tag stands for; none for
/// another cluster's, and for texts of another form.
pub(crate) fn service_of<'a>(cluster: &str, text: &'a str) -> Option<(&'a str, &'a str)> {
    let rest = text.strip_prefix(PREFIX)?.strip_prefix(cluster)?.strip_prefix('_')?;
    // Namespaces and names of Services contain no `_`, names of clusters may.
    rest.split_once('_').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('_'))
}

/// Name of the object at this index of the Service's ports.
pub(crate) fn listener(index: usize, load_balancer: &str) -> String {
    cut(format!("listener_{index}_{load_balancer}"))
}

/// As [`listener`], for its pool.
pub(crate) fn pool(index: usize, load_balancer: &str) -> String {
    cut(format!("pool_{index}_{load_balancer}"))
}

/// As [`listener`], for the pool's health monitor.
pub(crate) fn monitor(index: usize, load_balancer: &str) -> String {
    cut(format!("monitor_{index}_{load_balancer}"))
}

/// Name of a Service's security group.
pub(crate) fn security_group(service: &Service) -> String {
    cut(format!("lb-sg-{}-{}-{}", service.uid, service.namespace, service.name))
}

/// Description of a Service's security group.
pub(crate) fn security_group_description(cluster: &str, namespace: &str, name: &str) -> String {
    cut(format!("Security Group for {namespace}/{name} Service LoadBalancer in cluster {cluster}"))
}

/// Description of a Service's load balancer.
pub(crate) fn load_balancer_description(cluster: &str, service: &Service) -> String {
    cut(format!("Kubernetes external service {} from cluster {cluster}", service.key()))
}

/// Description of a Service's floating IP.
pub(crate) fn floating_ip_description(cluster: &str, service: &Service) -> String {
    cut(format!("{FLOATING_IP_MARK} {} from cluster {cluster}", service.key()))
}

/// Name of a member where each is created by its own request.
pub(crate) fn serial_member(node: &str, address: &str, port: u16) -> String {
    cut(format!("member_{node}_{address}_{port}"))
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests {
    use skysail_guest_sdk::Service;

    use super::{listener, load_balancer, load_balancer_of, service_of};

    #[test]
    fn a_name_stands_for_one_service_of_one_cluster() {
        let name = load_balancer("a_b", "default", "web");
        assert_eq!(name, "kube_service_a_b_default_web");
        assert_eq!(service_of("a_b", &name), Some(("default", "web")));
        for (cluster, text) in [
            ("a", name.as_str()),
            ("a_b_default", &name),
            ("", &name),
            ("a_b", "kube_service_a_b_default"),
            ("a_b", "kube_service_a_b__web"),
            ("a_b", "a_b_default_web"),
        ] {
            assert_eq!(service_of(cluster, text), None, "{cluster} {text}");
        }
    }

    #[test]
    fn a_name_that_would_be_cut_is_refused() {
        let service = Service::new(&"n".repeat(63), &"s".repeat(63), "uid");
        assert!(load_balancer_of(&"c".repeat(114), &service).is_ok());
        let error = load_balancer_of(&"c".repeat(115), &service).unwrap_err();
        assert!(error.message().contains("256 bytes"), "{error:?}");
        assert_eq!(listener(12, &load_balancer(&"c".repeat(114), &service.namespace, &service.name)).len(), 255);
    }
}
