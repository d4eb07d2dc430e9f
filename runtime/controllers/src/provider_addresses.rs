//! Which addresses a provider may hand out (pure). kube-proxy and the API server believe them: whoever names the address of another service as its
//! load balancer's, or as a node's, gets what was meant for that one.

use std::net::IpAddr;

/// Most ranges of one list: an operator lists networks, not machines.
const CIDRS_MAX: usize = 64;

/// Where clouds serve credentials to whoever asks; no load balancer and no node has such an address.
const METADATA: [&str; 7] = [
    "169.254.169.254",
    "169.254.170.2",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
];

/// Who a refused range is never open to, or only where it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Always,
    /// Unless one of the operator's ranges holds it.
    Unnamed,
    /// The same for nodes; always for load balancers.
    UnnamedForNodes,
}

/// What no provider hands out, unless it is named.
const REFUSED: [(&str, &str, Refusal); 9] = [
    ("0.0.0.0/8", "unspecified", Refusal::Always),
    ("::/128", "unspecified", Refusal::Always),
    ("224.0.0.0/4", "multicast", Refusal::Always),
    ("ff00::/8", "multicast", Refusal::Always),
    ("240.0.0.0/4", "reserved or broadcast", Refusal::Always),
    ("127.0.0.0/8", "loopback", Refusal::Unnamed),
    ("::1/128", "loopback", Refusal::Unnamed),
    ("169.254.0.0/16", "link-local", Refusal::UnnamedForNodes),
    ("fe80::/10", "link-local", Refusal::UnnamedForNodes),
];

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cidr {
    network: IpAddr,
    prefix: u8,
}

/// What the addresses are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    LoadBalancers,
    Nodes,
}

impl Use {
    /// As the provider file spells the list.
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
    /// Empty: all but what is refused.
    cidrs: Vec<Cidr>,
}

/// The addresses that a provider may give to load balancers and to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAddresses {
    load_balancers: Rules,
    nodes: Rules,
}

/// A range that cannot stand in the provider file.
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
    /// From the lists of the provider file; an empty one allows all that is not refused by itself.
    ///
    /// # Errors
    /// An entry is no range, spells IPv4 as IPv6, has bits behind its prefix, or lies in what no provider may hand out.
    pub fn new(load_balancers: &[String], nodes: &[String]) -> Result<Self, CidrError> {
        Ok(Self {
            load_balancers: Rules::new(Use::LoadBalancers, load_balancers)?,
            nodes: Rules::new(Use::Nodes, nodes)?,
        })
    }

    /// Why a load balancer may not have this address, and what to do.
    pub(crate) fn refuse_load_balancer(&self, address: IpAddr) -> Option<String> {
        self.load_balancers.refuse(address)
    }

    /// Why a node may not have this address, and what to do.
    pub(crate) fn refuse_node(&self, address: IpAddr) -> Option<String> {
        self.nodes.refuse(address)
    }
}

impl Rules {
    fn new(of: Use, texts: &[String]) -> Result<Self, CidrError> {
        let wrong = |index: usize, reason: String| CidrError { place: format!("{}[{index}]", of.field()), reason };
        if texts.len() > CIDRS_MAX {
            return Err(wrong(
                CIDRS_MAX,
                format!("at most {CIDRS_MAX} ranges are possible; join neighbouring networks"),
            ));
        }
        let cidrs = texts.iter().enumerate().map(|(index, text)| {
            let cidr = Cidr::parse(text).map_err(|reason| wrong(index, reason))?;
            match cidr.refused(of) {
                Some(what) => Err(wrong(
                    index,
                    format!("{text} is {what}, and {} never has such an address; leave it out", of.subject()),
                )),
                None => Ok(cidr),
            }
        });
        Ok(Self { of, cidrs: cidrs.collect::<Result<_, _>>()? })
    }

    fn refuse(&self, address: IpAddr) -> Option<String> {
        let plain = address.to_canonical();
        if METADATA.iter().any(|metadata| metadata.parse::<IpAddr>().is_ok_and(|metadata| metadata == plain)) {
            return Some(format!(
                "{address} is refused: a cloud's metadata service has it, and {} never does",
                self.of.subject()
            ));
        }
        let special = range_of(plain);
        // A wide range is a careless word for all that is public and private: loopback and its like have to be meant.
        let narrow = special.map_or(0, |(range, ..)| range.prefix);
        let named = self.cidrs.iter().any(|cidr| cidr.prefix >= narrow && cidr.contains(plain));
        let field = self.of.field();
        match special {
            Some((_, what, refusal)) if refusal.is_final(self.of) => {
                Some(format!("{address} is refused ({what}): {} never has such an address", self.of.subject()))
            }
            Some((_, what, _)) if !named => Some(format!(
                "{address} is refused ({what}); if it is right, name its network in the provider's spec.{field}"
            )),
            None if !named && !self.cidrs.is_empty() => Some(format!(
                "{address} is in none of the provider's spec.{field}; if it is right, add its network there"
            )),
            Some(_) | None => None,
        }
    }
}

impl Refusal {
    fn is_final(self, of: Use) -> bool {
        match self {
            Self::Always => true,
            Self::Unnamed => false,
            Self::UnnamedForNodes => of == Use::LoadBalancers,
        }
    }
}

fn range_of(address: IpAddr) -> Option<(Cidr, &'static str, Refusal)> {
    let parsed = REFUSED.iter().filter_map(|(text, what, refusal)| Some((Cidr::parse(text).ok()?, *what, *refusal)));
    parsed.into_iter().find(|(range, ..)| range.contains(address))
}

impl Cidr {
    fn parse(text: &str) -> Result<Self, String> {
        let syntax =
            || format!("{:?} is not a range; write an address and a prefix length, as in 198.51.100.0/24", cut(text));
        let (network, prefix) = text.split_once('/').ok_or_else(syntax)?;
        let network: IpAddr = network.parse().map_err(|_| syntax())?;
        let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|_| digits).ok_or_else(syntax)?;
        if network.to_canonical() != network {
            return Err(format!("{text} spells IPv4 addresses as IPv6; write them as IPv4"));
        }
        if prefix > width(network) {
            return Err(syntax());
        }
        let cidr = Self { network, prefix };
        match cidr.bits(network) == value(network) {
            true => Ok(cidr),
            false => Err(format!("{text} has bits set behind the prefix length; write the network's first address")),
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.network.is_ipv4() && self.bits(address) == value(self.network)
    }

    /// What of an address the prefix covers.
    fn bits(self, address: IpAddr) -> u128 {
        let free = u32::from(width(address).saturating_sub(self.prefix));
        value(address).checked_shr(free).and_then(|bits| bits.checked_shl(free)).unwrap_or(0)
    }

    /// What it lies in, where nothing of it can ever be handed out.
    fn refused(self, of: Use) -> Option<&'static str> {
        let inside = |text: &str| {
            Self::parse(text).is_ok_and(|range| range.prefix <= self.prefix && range.contains(self.network))
        };
        REFUSED.iter().find(|(text, _, refusal)| refusal.is_final(of) && inside(text)).map(|(_, what, _)| *what)
    }
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn value(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
