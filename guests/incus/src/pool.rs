//! The addresses that load balancers may listen on. The operator sets them; no Service can use
//! another one.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use skysail_guest_sdk::{Cidr, IpFamily};

/// The maximum number of addresses of a pool that are checked for a free one. A /16 is more load
/// balancers than one network carries, and a check takes nanoseconds.
const ADDRESSES_LOOKED_AT_MAX: usize = 65_536;

/// Address ranges, in the operator's order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    ranges: Vec<Range>,
}

/// First and last address, both of one family and both included.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: IpAddr,
    last: IpAddr,
}

impl Pool {
    /// Appends the ranges of another pool.
    pub(crate) fn extend(&mut self, other: Self) {
        self.ranges.extend(other.ranges);
    }

    /// Whether there is no range.
    pub(crate) const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the address is in one of the ranges.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.ranges
            .iter()
            .any(|range| range.first.is_ipv4() == address.is_ipv4() && range.first <= address && address <= range.last)
    }

    /// Whether any range has this family.
    pub(crate) fn has(&self, family: IpFamily) -> bool {
        self.ranges.iter().any(|range| family_of(range.first) == family)
    }

    /// Free addresses of the family, in order.
    pub(crate) fn free<'a>(
        &'a self,
        family: IpFamily,
        taken: &'a BTreeSet<IpAddr>,
    ) -> impl Iterator<Item = IpAddr> + 'a {
        let ranges = self.ranges.iter().filter(move |range| family_of(range.first) == family);
        ranges.flat_map(Range::addresses).take(ADDRESSES_LOOKED_AT_MAX).filter(|address| !taken.contains(address))
    }
}

impl Range {
    fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let (first, last) = (bits(self.first), bits(self.last));
        let is_ipv4 = self.first.is_ipv4();
        (first..=last).map(move |bits| match u32::try_from(bits) {
            Ok(bits) if is_ipv4 => Ipv4Addr::from_bits(bits).into(),
            _ => Ipv6Addr::from_bits(bits).into(),
        })
    }
}

/// The family of an address.
pub(crate) const fn family_of(address: IpAddr) -> IpFamily {
    if address.is_ipv4() { IpFamily::Ipv4 } else { IpFamily::Ipv6 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl FromStr for Pool {
    type Err = String;

    /// Comma-separated: `198.51.100.200/29`, `198.51.100.10-198.51.100.20`, `198.51.100.7`.
    fn from_str(text: &str) -> Result<Self, String> {
        let ranges = text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>()?;
        Ok(Self { ranges })
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an address, a range (A-B) or a CIDR (A/N)");
        let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
        let (first, last) = if text.contains('/') {
            let cidr: Cidr = text.parse().map_err(|_| wrong())?;
            let bits = if cidr.address().is_ipv4() { 32 } else { 128 } - u32::from(cidr.prefix());
            // The index of the last address, also for the range of a whole family.
            let last = 1_u128.checked_shl(bits).map_or(u128::MAX, |size| size - 1);
            (cidr.address(), cidr.nth(last))
        } else if let Some((first, last)) = text.split_once('-') {
            (address(first)?, address(last)?)
        } else {
            (address(text)?, address(text)?)
        };
        if first.is_ipv4() != last.is_ipv4() || first > last {
            return Err(format!(
                "{text:?} is not a range; write A-B with two addresses of one family and A not above B"
            ));
        }
        Ok(Self { first, last })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::IpAddr};

    use skysail_guest_sdk::IpFamily;

    use super::Pool;

    fn pool(text: &str) -> Pool {
        text.parse().unwrap()
    }

    fn free(pool: &Pool, family: IpFamily, taken: &[&str]) -> Vec<String> {
        let taken: BTreeSet<IpAddr> = taken.iter().map(|text| text.parse().unwrap()).collect();
        pool.free(family, &taken).take(4).map(|address| address.to_string()).collect()
    }

    #[test]
    fn free_addresses_come_in_the_operators_order() {
        let pool = pool("10.0.0.9, 10.0.0.4/31,10.0.0.7 - 10.0.0.8");
        assert_eq!(free(&pool, IpFamily::Ipv4, &["10.0.0.4"]), ["10.0.0.9", "10.0.0.5", "10.0.0.7", "10.0.0.8"]);
        assert_eq!(free(&pool, IpFamily::Ipv6, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_full_pool_has_nothing_free() {
        assert_eq!(free(&pool("10.0.0.1-10.0.0.2"), IpFamily::Ipv4, &["10.0.0.1", "10.0.0.2"]), Vec::<String>::new());
    }

    #[test]
    fn a_huge_range_is_looked_at_in_bounded_time() {
        let pool = pool("::/0");
        assert_eq!(free(&pool, IpFamily::Ipv6, &["::"]), ["::1", "::2", "::3", "::4"]);
        assert_eq!(pool.free(IpFamily::Ipv6, &BTreeSet::new()).count(), super::ADDRESSES_LOOKED_AT_MAX);
        assert!(!pool.contains("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn an_invalid_range_is_refused() {
        for text in ["", "10.0.0.1,", "10.0.0.2-10.0.0.1", "10.0.0.1-::1", "10.0.0.1/33", "a-b", "10.0.0.1/8/8"] {
            assert!(text.parse::<Pool>().is_err(), "{text}");
        }
    }
}
