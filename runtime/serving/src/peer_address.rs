//! The address of a client, by which limits tell clients apart.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// The bits of an IPv6 address that name its network.
const NETWORK: u128 = u128::MAX << 64;

/// The address of a connection's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerAddress(IpAddr);

impl PeerAddress {
    /// A socket of IPv6 maps the addresses of IPv4 clients; this undoes the mapping.
    pub(crate) fn new(address: IpAddr) -> Self {
        Self(address.to_canonical())
    }

    /// The first address of the /64 network; an address of IPv4 is its own network.
    pub(crate) fn network(self) -> Self {
        match self.0 {
            IpAddr::V4(_) => self,
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & NETWORK).into()),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::PeerAddress;

    fn peer(text: &str) -> PeerAddress {
        PeerAddress::new(text.parse().unwrap())
    }

    #[test]
    fn the_addresses_of_one_64_network_of_ipv6_are_one_network() {
        assert_eq!(peer("2001:db8:0:1::1").network(), peer("2001:db8:0:1:ffff:ffff:ffff:ffff").network());
        assert_ne!(peer("2001:db8:0:1::1").network(), peer("2001:db8:0:2::1").network());
    }

    #[test]
    fn a_mapped_address_is_that_of_ipv4() {
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_eq!(peer("::ffff:192.0.2.1").to_string(), "192.0.2.1");
        assert_ne!(peer("::ffff:192.0.2.1").network(), peer("::ffff:192.0.2.2").network());
    }
}
