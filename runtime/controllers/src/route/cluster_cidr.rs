//! Parses `--cluster-cidr`: the networks of the cluster's pods. Pure.

use ipnet::IpNet;

/// Why a value of `--cluster-cidr` was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterCidrError {
    /// The value is empty.
    #[error(
        "--cluster-cidr is empty; set it to the network of the pods, such as 10.244.0.0/16, or disable routes with --configure-cloud-routes=false"
    )]
    Empty,
    /// One part is not a CIDR.
    #[error(
        "--cluster-cidr: {0:?} is not a CIDR such as 10.244.0.0/16; separate two CIDRs by a comma without a space: 10.244.0.0/16,fd00:10:244::/56"
    )]
    NotANetwork(String),
    /// Two networks of one IP family.
    #[error("--cluster-cidr: {0} and {1} are of one IP family; use one IPv4 and one IPv6 network")]
    OneFamily(IpNet, IpNet),
    /// More than two networks.
    #[error("--cluster-cidr names {0} networks; at most two are allowed, one IPv4 and one IPv6 network")]
    TooMany(usize),
}

/// Parses one network, or one of each IP family separated by a comma, by upstream's rules.
/// Upstream's process does not start without a valid value. Host bits are dropped.
///
/// # Errors
/// An empty value, a part that is not a CIDR, two networks of one family, more than two networks.
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
            "": --cluster-cidr is empty; set it to the network of the pods, such as 10.244.0.0/16, or disable routes with --configure-cloud-routes=false
            " ": --cluster-cidr is empty; set it to the network of the pods, such as 10.244.0.0/16, or disable routes with --configure-cloud-routes=false
            "10.244.0.0/16": 10.244.0.0/16
            " 10.244.3.7/16\n": 10.244.0.0/16
            "10.244.0.0/16,fd00:10:244::/56": 10.244.0.0/16 fd00:10:244::/56
            "fd00:10:244::/56,10.244.0.0/16": fd00:10:244::/56 10.244.0.0/16
            "10.244.0.0": --cluster-cidr: "10.244.0.0" is not a CIDR such as 10.244.0.0/16; separate two CIDRs by a comma without a space: 10.244.0.0/16,fd00:10:244::/56
            "10.244.0.0/33": --cluster-cidr: "10.244.0.0/33" is not a CIDR such as 10.244.0.0/16; separate two CIDRs by a comma without a space: 10.244.0.0/16,fd00:10:244::/56
            "010.244.0.0/16": 10.244.0.0/16
            "10.244.0.0/16,": --cluster-cidr: "" is not a CIDR such as 10.244.0.0/16; separate two CIDRs by a comma without a space: 10.244.0.0/16,fd00:10:244::/56
            "10.244.0.0/16, fd00::/56": --cluster-cidr: " fd00::/56" is not a CIDR such as 10.244.0.0/16; separate two CIDRs by a comma without a space: 10.244.0.0/16,fd00:10:244::/56
            "pods": --cluster-cidr: "pods" is not a CIDR such as 10.244.0.0/16; separate two CIDRs by a comma without a space: 10.244.0.0/16,fd00:10:244::/56
            "10.244.0.0/16,10.245.0.0/16": --cluster-cidr: 10.244.0.0/16 and 10.245.0.0/16 are of one IP family; use one IPv4 and one IPv6 network
            "fd00::/56,fd01::/56": --cluster-cidr: fd00::/56 and fd01::/56 are of one IP family; use one IPv4 and one IPv6 network
            "10.244.0.0/16,10.245.0.0/16,fd00::/56": --cluster-cidr names 3 networks; at most two are allowed, one IPv4 and one IPv6 network
        "#]].assert_eq(&lines);
    }
}
