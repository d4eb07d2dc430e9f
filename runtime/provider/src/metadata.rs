//! Addresses of the metadata services of clouds, which serve credentials without authentication.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const fn v4(octets: [u8; 4]) -> IpAddr {
    let [a, b, c, d] = octets;
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(bits: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(bits))
}

/// Addresses of metadata services and similar services. A provider can reach one only if an
/// operator allows that single address, and no load balancer or node may have such an address.
///
/// Source: the documentation of the clouds.
pub const METADATA_SERVICES: [IpAddr; 16] = [
    v4([169, 254, 169, 254]),
    v4([169, 254, 170, 2]),
    v4([169, 254, 170, 23]),
    v4([169, 254, 0, 23]),
    v4([169, 254, 42, 42]),
    v4([100, 100, 100, 200]),
    v4([192, 0, 0, 192]),
    v4([168, 63, 129, 16]),
    v6(0xfd00_0ec2_0000_0000_0000_0000_0000_0254),
    v6(0xfd00_0ec2_0000_0000_0000_0000_0000_0023),
    v6(0xfd20_00ce_0000_0000_0000_0000_0000_0254),
    v6(0xfd00_0042_0000_0000_0000_0000_0000_0042),
    v6(0xfd00_00c1_0000_0000_0000_0000_a9fe_a9fe),
    v6(0xfd00_0100_0000_0000_0000_0000_0100_0200),
    v6(0xfd00_a9fe_a9fe_0000_0000_0000_0000_0001),
    v6(0xfe80_0000_0000_0000_0000_0000_a9fe_a9fe),
];
