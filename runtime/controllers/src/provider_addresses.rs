//! Which addresses a provider may assign (pure). kube-proxy and the API server trust these
//! addresses: a provider that assigns the address of another service to a load balancer or a node
//! receives the traffic for that service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use skysail_provider::METADATA_SERVICES;

/// Whether an operator can allow a refused range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeRefusal {
    Always,
    /// Refused unless one of the operator's ranges contains it.
    Unnamed,
    /// As [`Self::Unnamed`] for nodes; always refused for load balancers.
    UnnamedForNodes,
}

const fn v4(first: u8, second: u8, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(first, second, 0, 0), prefix))
}

const fn v6(bits: u128, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), prefix))
}

/// Special-purpose ranges, refused by default.
const REFUSED: [(IpNet, &str, RangeRefusal); 9] = [
    (v4(0, 0, 8), "unspecified", RangeRefusal::Always),
    (v6(0, 128), "unspecified", RangeRefusal::Always),
    (v4(224, 0, 4), "multicast", RangeRefusal::Always),
    (v6(0xff << 120, 8), "multicast", RangeRefusal::Always),
    (v4(240, 0, 4), "reserved or broadcast", RangeRefusal::Always),
    (v4(127, 0, 8), "loopback", RangeRefusal::Unnamed),
    (v6(1, 128), "loopback", RangeRefusal::Unnamed),
    (v4(169, 254, 16), "link-local", RangeRefusal::UnnamedForNodes),
    (v6(0xfe80 << 112, 10), "link-local", RangeRefusal::UnnamedForNodes),
];

/// The objects that get the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    LoadBalancers,
    Nodes,
}

impl Use {
    /// The field of the Provider's spec.
    const fn field(self) -> &'static str {
        match self {
            Self::LoadBalancers => "loadBalancerCidrs",
            Self::Nodes => "nodeCidrs",
        }
    }

    const fn subject(self) -> &'static str {
        match self {
            Self::LoadBalancers => "a load balancer",
            Self::Nodes => "a node",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rules {
    of: Use,
    /// The allowed ranges; an empty list allows all but the refused ranges.
    cidrs: Vec<IpNet>,
}

/// The addresses that a provider may give to load balancers and to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAddresses {
    load_balancers: Rules,
    nodes: Rules,
}

/// The objects whose allowed addresses an edit changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readdressed {
    pub(crate) load_balancers: bool,
    pub(crate) nodes: bool,
}

/// An invalid range in the provider file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CidrError {
    /// The list and the entry, for example `loadBalancerCidrs[1]`.
    pub place: String,
    reason: String,
}

impl Default for ProviderAddresses {
    fn default() -> Self {
        let rules = |of| Rules { of, cidrs: Vec::new() };
        Self { load_balancers: rules(Use::LoadBalancers), nodes: rules(Use::Nodes) }
    }
}

impl ProviderAddresses {
    /// The maximum number of ranges of one list: an operator lists networks, not machines.
    pub const CIDRS_MAX: usize = 64;

    /// From the lists of the provider file; an empty list allows all but the refused ranges.
    ///
    /// # Errors
    /// An entry is not a CIDR, spells IPv4 as IPv6, has bits set behind its prefix, or lies in a
    /// range that is always refused.
    pub fn new(load_balancers: &[String], nodes: &[String]) -> Result<Self, CidrError> {
        Ok(Self {
            load_balancers: Rules::new(Use::LoadBalancers, load_balancers)?,
            nodes: Rules::new(Use::Nodes, nodes)?,
        })
    }

    /// The differences between these ranges and those of an edit.
    pub(crate) fn changed_to(&self, edited: &Self) -> Readdressed {
        Readdressed { load_balancers: self.load_balancers != edited.load_balancers, nodes: self.nodes != edited.nodes }
    }

    /// The reason and the remedy if a load balancer may not have this address.
    pub(crate) fn refuse_load_balancer(&self, address: IpAddr) -> Option<String> {
        self.load_balancers.refuse(address)
    }

    /// The reason and the remedy if a node may not have this address.
    pub(crate) fn refuse_node(&self, address: IpAddr) -> Option<String> {
        self.nodes.refuse(address)
    }
}

impl Rules {
    fn new(of: Use, texts: &[String]) -> Result<Self, CidrError> {
        let wrong = |index: usize, reason: String| CidrError { place: format!("{}[{index}]", of.field()), reason };
        if texts.len() > ProviderAddresses::CIDRS_MAX {
            return Err(wrong(
                ProviderAddresses::CIDRS_MAX,
                format!(
                    "at most {} ranges are allowed; merge adjacent CIDRs into larger ones",
                    ProviderAddresses::CIDRS_MAX
                ),
            ));
        }
        let cidrs = texts.iter().enumerate().map(|(index, text)| {
            let cidr = parse(text).map_err(|reason| wrong(index, reason))?;
            match final_refusal(&cidr, of) {
                Some(what) => {
                    Err(wrong(index, format!("{text} is {what}, which {} cannot have; remove the entry", of.subject())))
                }
                None => Ok(cidr),
            }
        });
        Ok(Self { of, cidrs: cidrs.collect::<Result<_, _>>()? })
    }

    fn refuse(&self, address: IpAddr) -> Option<String> {
        let plain = address.to_canonical();
        if METADATA_SERVICES.contains(&plain) {
            return Some(format!(
                "{address} is refused: it is the address of a cloud's metadata service, which {} cannot have",
                self.of.subject()
            ));
        }
        let special = REFUSED.iter().find(|(range, ..)| range.contains(&plain));
        // A range wider than the special-purpose range, such as 0.0.0.0/0, does not allow loopback
        // or link-local addresses: the operator has to list them explicitly.
        let narrow = special.map_or(0, |(range, ..)| range.prefix_len());
        let named = self.cidrs.iter().any(|cidr| cidr.prefix_len() >= narrow && cidr.contains(&plain));
        let field = self.of.field();
        match special {
            Some((_, what, refusal)) if refusal.is_final(self.of) => {
                Some(format!("{address} is refused ({what}): {} cannot have such an address", self.of.subject()))
            }
            Some((_, what, _)) if !named => Some(format!(
                "{address} is refused ({what}); if the address is right, add its network to the provider's spec.{field}"
            )),
            None if !named && !self.cidrs.is_empty() => Some(format!(
                "{address} is in none of the provider's spec.{field}; if the address is right, add its network there"
            )),
            Some(_) | None => None,
        }
    }
}

impl RangeRefusal {
    fn is_final(self, of: Use) -> bool {
        match self {
            Self::Always => true,
            Self::Unnamed => false,
            Self::UnnamedForNodes => of == Use::LoadBalancers,
        }
    }
}

fn parse(text: &str) -> Result<IpNet, String> {
    let range: IpNet = text.parse().map_err(|_| {
        format!("{:?} is not a CIDR; write an address and a prefix length, as in 198.51.100.0/24", cut(text))
    })?;
    if range.addr().to_canonical() != range.addr() {
        return Err(format!("{text} spells IPv4 addresses as IPv6; write them as IPv4"));
    }
    if range != range.trunc() {
        return Err(format!("{text} has bits set behind the prefix length; write the network's first address"));
    }
    Ok(range)
}

/// The always refused range that contains this one, if any.
fn final_refusal(cidr: &IpNet, of: Use) -> Option<&'static str> {
    let inside = REFUSED.iter().find(|(range, _, refusal)| refusal.is_final(of) && range.contains(cidr));
    inside.map(|(_, what, _)| *what)
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
