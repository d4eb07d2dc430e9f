//! What `--cluster-cidr` says: the networks that the pods of the cluster get their addresses from.
//! Pure.

use ipnet::IpNet;

/// Why a text for `--cluster-cidr` was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterCidrError {
    /// Nothing is named.
    #[error(
        "--cluster-cidr is empty: name the network that pods get their addresses from, such as 10.244.0.0/16, or switch routes off with --configure-cloud-routes=false"
    )]
    Empty,
    /// One part is no network.
    #[error(
        "--cluster-cidr: {0:?} is no network such as 10.244.0.0/16; two are separated by a comma, without a space: 10.244.0.0/16,fd00:10:244::/56"
    )]
    NotANetwork(String),
    /// Two of one family.
    #[error("--cluster-cidr: {0} and {1} are of one family; two networks have to be one of IPv4 and one of IPv6")]
    OneFamily(IpNet, IpNet),
    /// More than two.
    #[error("--cluster-cidr names {0} networks; at most two are possible, one of IPv4 and one of IPv6")]
    TooMany(usize),
}

/// Reads one network, or one of each family separated by a comma: upstream's rules, whose process
/// does not start without them. Bits of the host part are dropped.
///
/// # Errors
/// Nothing named, a part that is no network, two of one family, more than two.
pub fn parse_cluster_cidr(text: &str) -> Result<Vec<IpNet>, ClusterCidrError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ClusterCidrError::Empty);
    }
    let network = |part: &str| super::network(part).ok_or_else(|| ClusterCidrError::NotANetwork(part.to_owned()));
    let networks: Vec<IpNet> = text.split(',').map(network).collect::<Result<_, _>>()?;
    match &*networks {
        [one, other] if is_ipv4(one) == is_ipv4(other) => Err(ClusterCidrError::OneFamily(*one, *other)),
        [_, _, _, ..] => Err(ClusterCidrError::TooMany(networks.len())),
        _ => Ok(networks),
    }
}

const fn is_ipv4(network: &IpNet) -> bool {
    matches!(network, IpNet::V4(_))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::parse_cluster_cidr;

    /// B20: the process does not start with a bad cluster CIDR.
    #[test]
    fn b20_a_bad_cluster_cidr_is_refused_and_says_what_is_wrong() {
        let mut lines = String::new();
        for text in [
            "",
            " ",
            "10.244.0.0/16",
            " 10.244.3.7/16\n",
            "10.244.0.0/16,fd00:10:244::/56",
            "fd00:10:244::/56,10.244.0.0/16",
            "10.244.0.0",
            "10.244.0.0/33",
            "010.244.0.0/16",
            "10.244.0.0/16,",
            "10.244.0.0/16, fd00::/56",
            "pods",
            "10.244.0.0/16,10.245.0.0/16",
            "fd00::/56,fd01::/56",
            "10.244.0.0/16,10.245.0.0/16,fd00::/56",
        ] {
            let said = match parse_cluster_cidr(text) {
                Ok(networks) => networks.iter().map(|network| format!("{network} ")).collect(),
                Err(error) => error.to_string(),
            };
            lines += &format!("{text:?}: {}\n", said.trim_end());
        }
        expect![[r#"
            "": --cluster-cidr is empty: name the network that pods get their addresses from, such as 10.244.0.0/16, or switch routes off with --configure-cloud-routes=false
            " ": --cluster-cidr is empty: name the network that pods get their addresses from, such as 10.244.0.0/16, or switch routes off with --configure-cloud-routes=false
            "10.244.0.0/16": 10.244.0.0/16
            " 10.244.3.7/16\n": 10.244.0.0/16
            "10.244.0.0/16,fd00:10:244::/56": 10.244.0.0/16 fd00:10:244::/56
            "fd00:10:244::/56,10.244.0.0/16": fd00:10:244::/56 10.244.0.0/16
            "10.244.0.0": --cluster-cidr: "10.244.0.0" is no network such as 10.244.0.0/16; two are separated by a comma, without a space: 10.244.0.0/16,fd00:10:244::/56
            "10.244.0.0/33": --cluster-cidr: "10.244.0.0/33" is no network such as 10.244.0.0/16; two are separated by a comma, without a space: 10.244.0.0/16,fd00:10:244::/56
            "010.244.0.0/16": 10.244.0.0/16
            "10.244.0.0/16,": --cluster-cidr: "" is no network such as 10.244.0.0/16; two are separated by a comma, without a space: 10.244.0.0/16,fd00:10:244::/56
            "10.244.0.0/16, fd00::/56": --cluster-cidr: " fd00::/56" is no network such as 10.244.0.0/16; two are separated by a comma, without a space: 10.244.0.0/16,fd00:10:244::/56
            "pods": --cluster-cidr: "pods" is no network such as 10.244.0.0/16; two are separated by a comma, without a space: 10.244.0.0/16,fd00:10:244::/56
            "10.244.0.0/16,10.245.0.0/16": --cluster-cidr: 10.244.0.0/16 and 10.245.0.0/16 are of one family; two networks have to be one of IPv4 and one of IPv6
            "fd00::/56,fd01::/56": --cluster-cidr: fd00::/56 and fd01::/56 are of one family; two networks have to be one of IPv4 and one of IPv6
            "10.244.0.0/16,10.245.0.0/16,fd00::/56": --cluster-cidr names 3 networks; at most two are possible, one of IPv4 and one of IPv6
        "#]].assert_eq(&lines);
    }
}
