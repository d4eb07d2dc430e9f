//! Decides whether a connection may go to an address: a table of ranges that are refused by
//! default, and the operator's exceptions.
//!
//! An IPv4 address inside an IPv6 address (mapped, compatible, translated, NAT64, 6to4, Teredo,
//! ISATAP) is checked as the IPv4 address *and* as the IPv6 address that carries it. Must not
//! resolve names.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::EgressPolicy;

/// A range that is refused unless the operator allows a part of it.
#[derive(Clone, Copy, Debug)]
struct Range {
    net: IpNet,
    what: &'static str,
    exception: Exception,
}

/// What the operator may write to reach a refused range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exception {
    /// Any CIDR inside the range.
    Cidr,
    /// Only the single address (`/32`, `/128`): a metadata service hands out the machine's own
    /// credentials, so a wider CIDR that contains its address does not open it.
    Single,
    /// No CIDR: no server has such an address.
    Never,
}

const fn v4(octets: [u8; 4], prefix: u8, what: &'static str, exception: Exception) -> Range {
    let [a, b, c, d] = octets;
    Range { net: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)), what, exception }
}

const fn v6(bits: u128, prefix: u8, what: &'static str, exception: Exception) -> Range {
    Range { net: IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), prefix)), what, exception }
}

/// The first entry that contains an address decides, so narrow entries stand before the wide ones
/// around them.
///
/// Sources: the IANA special-purpose registries for IPv4 and IPv6, and the clouds' documentation
/// for the metadata services.
const REFUSED: &[Range] = &[
    // Metadata services, and other services of a cloud at fixed addresses.
    v4([169, 254, 169, 254], 32, "the metadata service", Exception::Single),
    v4([169, 254, 170, 2], 32, "the metadata service of container tasks", Exception::Single),
    v4([169, 254, 170, 23], 32, "the metadata service of pod identities", Exception::Single),
    v4([169, 254, 0, 23], 32, "the metadata service", Exception::Single),
    v4([169, 254, 42, 42], 32, "the metadata service", Exception::Single),
    v4([100, 100, 100, 200], 32, "the metadata service", Exception::Single),
    v4([192, 0, 0, 192], 32, "the metadata service", Exception::Single),
    v4([168, 63, 129, 16], 32, "the metadata service", Exception::Single),
    v6(0xfd00_0ec2_0000_0000_0000_0000_0000_0254, 128, "the metadata service", Exception::Single),
    v6(0xfd00_0ec2_0000_0000_0000_0000_0000_0023, 128, "the metadata service of pod identities", Exception::Single),
    v6(0xfd20_00ce_0000_0000_0000_0000_0000_0254, 128, "the metadata service", Exception::Single),
    v6(0xfd00_0042_0000_0000_0000_0000_0000_0042, 128, "the metadata service", Exception::Single),
    v6(0xfd00_00c1_0000_0000_0000_0000_a9fe_a9fe, 128, "the metadata service", Exception::Single),
    v6(0xfd00_0100_0000_0000_0000_0000_0100_0200, 128, "the metadata service", Exception::Single),
    v6(0xfd00_a9fe_a9fe_0000_0000_0000_0000_0001, 128, "the metadata service", Exception::Single),
    v6(0xfe80_0000_0000_0000_0000_0000_a9fe_a9fe, 128, "the metadata service", Exception::Single),
    // IPv4.
    v4([0, 0, 0, 0], 8, "unspecified", Exception::Never),
    v4([10, 0, 0, 0], 8, "private", Exception::Cidr),
    v4([100, 64, 0, 0], 10, "carrier-grade NAT", Exception::Cidr),
    v4([127, 0, 0, 0], 8, "loopback", Exception::Cidr),
    v4([169, 254, 0, 0], 16, "link-local", Exception::Cidr),
    v4([172, 16, 0, 0], 12, "private", Exception::Cidr),
    v4([192, 0, 0, 0], 24, "reserved for protocols", Exception::Cidr),
    v4([192, 0, 2, 0], 24, "documentation", Exception::Cidr),
    v4([192, 88, 99, 0], 24, "6to4 relay", Exception::Never),
    v4([192, 168, 0, 0], 16, "private", Exception::Cidr),
    v4([198, 18, 0, 0], 15, "benchmark", Exception::Cidr),
    v4([198, 51, 100, 0], 24, "documentation", Exception::Cidr),
    v4([203, 0, 113, 0], 24, "documentation", Exception::Cidr),
    v4([224, 0, 0, 0], 4, "multicast", Exception::Never),
    v4([255, 255, 255, 255], 32, "broadcast", Exception::Never),
    v4([240, 0, 0, 0], 4, "reserved", Exception::Never),
    // IPv6. `range_of` also refuses every address that is not listed here and is neither global
    // unicast (2000::/3) nor in the well-known NAT64 prefix.
    v6(0, 128, "unspecified", Exception::Never),
    v6(1, 128, "loopback", Exception::Cidr),
    v6(0x0064_ff9b_0001_0000_0000_0000_0000_0000, 48, "local-use NAT64", Exception::Cidr),
    v6(0x0100_0000_0000_0000_0000_0000_0000_0000, 32, "discard-only", Exception::Never),
    v6(0x2001_0000_0000_0000_0000_0000_0000_0000, 32, "Teredo", Exception::Never),
    v6(0x2001_0002_0000_0000_0000_0000_0000_0000, 48, "benchmark", Exception::Cidr),
    v6(0x2001_0000_0000_0000_0000_0000_0000_0000, 23, "reserved for protocols", Exception::Never),
    v6(0x2001_0db8_0000_0000_0000_0000_0000_0000, 32, "documentation", Exception::Cidr),
    v6(0x2002_0000_0000_0000_0000_0000_0000_0000, 16, "6to4", Exception::Never),
    v6(0x3fff_0000_0000_0000_0000_0000_0000_0000, 20, "documentation", Exception::Cidr),
    v6(0xfc00_0000_0000_0000_0000_0000_0000_0000, 7, "unique-local", Exception::Cidr),
    v6(0xfe80_0000_0000_0000_0000_0000_0000_0000, 10, "link-local", Exception::Cidr),
    v6(0xfec0_0000_0000_0000_0000_0000_0000_0000, 10, "site-local", Exception::Cidr),
    v6(0xff00_0000_0000_0000_0000_0000_0000_0000, 8, "multicast", Exception::Never),
];

const GLOBAL_UNICAST: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const UNASSIGNED: Range = v6(0, 0, "not assigned", Exception::Never);

/// The well-known NAT64 prefix of RFC 6052: DNS64 answers with it on IPv6-only networks, so it
/// carries public IPv4 legitimately.
const NAT64: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// The addresses that the operator allows beyond the public ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    allowed: Vec<IpNet>,
}

/// An address that was refused, and the range that refused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedAddress {
    address: IpAddr,
    judged_as: IpAddr,
    what: &'static str,
    exception: Exception,
}

/// Why a CIDR cannot be allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// Not a CIDR at all.
    #[error("is not a CIDR; write an address and a prefix length, as in 10.20.0.0/16 or 127.0.0.1/32")]
    Syntax,
    /// `10.1.2.3/8`.
    #[error("has bits set after the prefix length; write {0}")]
    HostBits(IpNet),
    /// `::ffff:10.0.0.0/104`.
    #[error("spells IPv4 addresses as IPv6; write them as IPv4")]
    EmbeddedIpv4,
    /// No part of the CIDR is refused.
    #[error("is public; public addresses need no permission, leave it out")]
    Public,
    /// The CIDR contains more than one refused range, or a refused range and public addresses.
    #[error("is wider than any range that may be opened; allow each network by itself, for example {0} ({1})")]
    TooWide(IpNet, &'static str),
    /// The range can never be opened.
    #[error("is {0}, and such addresses can never be allowed; leave it out")]
    Never(&'static str),
    /// See [`EgressPolicy::CIDRS_MAX`].
    #[error("exceeds the limit of {} CIDRs; merge adjacent CIDRs into larger ones", EgressPolicy::CIDRS_MAX)]
    TooMany,
}

// === impl Addresses ===

impl Addresses {
    /// Allows one more CIDR. The CIDR must lie inside one refused range, so that `0.0.0.0/0` cannot
    /// open everything by mistake.
    pub(super) fn allow(&mut self, text: &str) -> Result<(), CidrError> {
        let net: IpNet = text.parse().map_err(|_| CidrError::Syntax)?;
        if net != net.trunc() {
            return Err(CidrError::HostBits(net.trunc()));
        }
        if let IpNet::V6(v6) = net
            && v6.prefix_len() >= 96
            && !embedded(v6.network()).is_empty()
        {
            return Err(CidrError::EmbeddedIpv4);
        }
        match REFUSED.iter().find(|range| range.net.contains(&net)) {
            Some(range) if range.exception == Exception::Never => return Err(CidrError::Never(range.what)),
            Some(_) => {}
            None => {
                // The example in the message is the widest range inside the CIDR that may be opened
                // as a whole: a metadata service's address only where the CIDR contains no other.
                let inside = REFUSED.iter().filter(|range| net.contains(&range.net));
                let example = inside
                    .clone()
                    .filter(|range| range.exception == Exception::Cidr)
                    .min_by_key(|range| range.net.prefix_len())
                    .or_else(|| inside.clone().next());
                return Err(match (example, range_of(net.network())) {
                    (Some(range), _) => CidrError::TooWide(range.net, range.what),
                    (None, Some(range)) => CidrError::Never(range.what),
                    (None, None) => CidrError::Public,
                });
            }
        }
        if self.allowed.len() >= EgressPolicy::CIDRS_MAX {
            return Err(CidrError::TooMany);
        }
        self.allowed.push(net);
        Ok(())
    }

    /// The address that a connection may go to, in its canonical form (an IPv4-mapped address is
    /// returned as IPv4).
    pub(super) fn judge(&self, address: IpAddr) -> Result<IpAddr, RefusedAddress> {
        let plain = address.to_canonical();
        let refused = |judged_as: IpAddr, range: &Range| RefusedAddress {
            address,
            judged_as,
            what: range.what,
            exception: range.exception,
        };
        let carried = match plain {
            IpAddr::V4(_) => Vec::new(),
            IpAddr::V6(v6) => embedded(v6),
        };
        for inner in carried {
            if let Some(range) = self.refusal(IpAddr::V4(inner)) {
                return Err(refused(IpAddr::V4(inner), range));
            }
        }
        match self.refusal(plain) {
            None => Ok(plain),
            Some(range) => Err(refused(plain, range)),
        }
    }

    fn refusal(&self, address: IpAddr) -> Option<&'static Range> {
        let range = range_of(address)?;
        let single = if address.is_ipv4() { 32 } else { 128 };
        let excepted = self.allowed.iter().filter(|net| net.contains(&address)).any(|net| match range.exception {
            Exception::Cidr => true,
            Exception::Single => net.prefix_len() == single,
            Exception::Never => false,
        });
        (!excepted).then_some(range)
    }
}

fn range_of(address: IpAddr) -> Option<&'static Range> {
    let named = REFUSED.iter().find(|range| range.net.contains(&address));
    match address {
        IpAddr::V6(v6) if named.is_none() && !GLOBAL_UNICAST.contains(&v6) && !NAT64.contains(&v6) => Some(&UNASSIGNED),
        _ => named,
    }
}

/// The IPv4 addresses that an IPv6 address carries; more than one for Teredo.
fn embedded(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        // ::1 and :: carry no IPv4 address; the rest of ::/96 is "compatible", ::ffff:0:0/96
        // mapped, ::ffff:0:0:0/96 translated.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Vec::new(),
        [0, 0, 0, 0, 0, 0, a, b] | [0, 0, 0, 0, 0, 0xffff, a, b] | [0, 0, 0, 0, 0xffff, 0, a, b] => vec![v4(a, b)],
        // NAT64: the well-known prefix, then the local-use one in its three common layouts (RFC
        // 6052, /48, /64, /96).
        [0x64, 0xff9b, 0, 0, 0, 0, a, b] => vec![v4(a, b)],
        [0x64, 0xff9b, 1, a, b, c, d, e] => {
            let layouts = [v4(a, (b << 8) | (c >> 8)), v4((b << 8) | (c >> 8), (c << 8) | (d >> 8)), v4(d, e)];
            // The address does not say which layout the network uses. A layout that yields an IPv4
            // address beginning with zero is not in use: it reads the padding of another layout.
            layouts.into_iter().filter(|layout| layout.octets().first() != Some(&0)).collect()
        }
        // 6to4 carries the router, Teredo the server and, inverted, the client.
        [0x2002, a, b, ..] => vec![v4(a, b)],
        [0x2001, 0, a, b, _, _, c, d] => vec![v4(a, b), v4(!c, !d)],
        // ISATAP: any prefix; the interface identifier marks it.
        [_, _, _, _, 0 | 0x200, 0x5efe, a, b] => vec![v4(a, b)],
        _ => Vec::new(),
    }
}

// === impl RefusedAddress ===

impl RefusedAddress {
    /// The reason without the remedy, which exists only for a provider's settings.
    pub(super) fn reason(&self) -> String {
        let Self { address, judged_as, what, .. } = self;
        if address == judged_as {
            format!("address {address} is refused ({what})")
        } else {
            format!("address {address} is refused (it stands for {judged_as}, {what})")
        }
    }
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { judged_as, exception, .. } = self;
        f.write_str(&self.reason())?;
        let bits = if judged_as.is_ipv4() { 32 } else { 128 };
        match exception {
            Exception::Cidr => f.write_str("; an operator can open it in allowCidrs"),
            Exception::Single => write!(f, "; an operator can open it in allowCidrs only as {judged_as}/{bits}"),
            Exception::Never => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use skysail_provider::METADATA_SERVICES;

    use super::{Exception, REFUSED};

    #[test]
    fn the_metadata_services_are_those_that_the_controllers_know() {
        let single = REFUSED.iter().filter(|range| range.exception == Exception::Single).map(|range| range.net);
        assert_eq!(single.collect::<Vec<_>>(), METADATA_SERVICES.map(IpNet::from));
    }
}
