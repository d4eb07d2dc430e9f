//! Address ranges.

use std::{fmt, net::IpAddr, str::FromStr};

use crate::Error;

/// An address range, masked: `192.168.7.1/16` is `192.168.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// A range with `prefix` fixed bits; none for more than 32 or 128.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if prefix <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::from((u32::from(v4) & mask).to_be_bytes())
            }
            IpAddr::V6(v6) if prefix <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::from((u128::from(v6) & mask).to_be_bytes())
            }
            _ => return None,
        };
        Some(Self { address, prefix })
    }

    /// The address at this index in the range, counted from 0; the index wraps around at the end.
    #[must_use]
    pub fn nth(&self, n: u128) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let host = u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
                let [.., a, b, c, d] = n.to_be_bytes();
                IpAddr::from((u32::from(v4) | (u32::from_be_bytes([a, b, c, d]) & host)).to_be_bytes())
            }
            IpAddr::V6(v6) => {
                let host = u128::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
                IpAddr::from((u128::from(v6) | (n & host)).to_be_bytes())
            }
        }
    }

    /// The range's first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of fixed bits.
    #[must_use]
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether the address is in the range; an address of the other family is not.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && Self::new(address, self.prefix) == Some(*self)
    }

    /// Whether this is every address of its family.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        self.prefix == 0
    }
}

impl FromStr for Cidr {
    type Err = Error;

    /// Errors: `invalid`, naming the text.
    fn from_str(text: &str) -> Result<Self, Error> {
        let trimmed = text.trim();
        trimmed
            .split_once('/')
            .and_then(|(address, prefix)| Self::new(address.parse().ok()?, prefix.parse().ok()?))
            .ok_or_else(|| Error::Invalid(format!("{trimmed:?} is not a CIDR such as 10.0.0.0/8")))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::Cidr;

    #[test]
    fn a_range_is_masked_and_holds_its_own_family_only() {
        let range: Cidr = " 192.168.7.1/16 ".parse().unwrap();
        assert_eq!(range.to_string(), "192.168.0.0/16");
        assert!(range.contains("192.168.255.255".parse().unwrap()));
        assert!(!range.contains("192.169.0.0".parse().unwrap()));
        assert!(!range.contains("::ffff:192.168.0.1".parse().unwrap()));
        let all: Cidr = "192.168.0.0/0".parse().unwrap();
        assert!(all.is_everything() && all.contains("8.8.8.8".parse().unwrap()));
        let six: Cidr = "2001:db8::1/32".parse().unwrap();
        assert_eq!(six.to_string(), "2001:db8::/32");
        assert!(six.contains("2001:db8:ffff::".parse().unwrap()));
    }

    #[test]
    fn addresses_are_counted_and_wrap_round() {
        let range: Cidr = "203.0.113.0/24".parse().unwrap();
        assert_eq!(range.nth(7).to_string(), "203.0.113.7");
        assert_eq!(range.nth(256 + 9).to_string(), "203.0.113.9");
        let one: Cidr = "10.0.0.1/32".parse().unwrap();
        assert_eq!(one.nth(5).to_string(), "10.0.0.1");
        let six: Cidr = "2001:db8::/64".parse().unwrap();
        assert_eq!(six.nth(1 << 64 | 3).to_string(), "2001:db8::3");
    }

    #[test]
    fn an_invalid_range_is_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/-1", "a/8", "10.0.0.0/8/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
