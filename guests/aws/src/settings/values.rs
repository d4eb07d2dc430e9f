//! The types of single values.

use std::str::FromStr;

/// An address family of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

impl FromStr for Family {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "ipv4" => Ok(Self::Ipv4),
            "ipv6" => Ok(Self::Ipv6),
            _ => Err("is not an IP family; write ipv4 or ipv6, one key for each family"),
        }
    }
}

/// Which port the health checks of load balancers ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeMode {
    Shared,
    ServiceNodePort,
}

impl FromStr for ProbeMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "Shared" => Ok(Self::Shared),
            "ServiceNodePort" | "" => Ok(Self::ServiceNodePort),
            _ => Err("is not a mode; write Shared or ServiceNodePort"),
        }
    }
}

/// `Managed`, the only mode.
pub(super) struct SecurityGroupMode;

impl FromStr for SecurityGroupMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "Managed" { Ok(Self) } else { Err("is not a mode; write Managed, or remove the key") }
    }
}

/// A port from 1 on.
pub(super) struct Port(pub(super) u16);

impl FromStr for Port {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().ok().filter(|port| *port != 0).map(Self).ok_or("is not a port; write a number from 1 to 65535")
    }
}

/// A path of HTTP. An empty one is kube-proxy's, as in the vendor's manager.
pub(super) struct Path(pub(super) String);

impl FromStr for Path {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Ok(Self(super::KUBE_PROXY_PATH.to_owned())),
            _ if text.starts_with('/') && !text.contains(' ') => Ok(Self(text.to_owned())),
            _ => Err("is not a path; write for example /healthz"),
        }
    }
}

/// The ID of a resource, by the first letter of its kind: VPC, subnet, route table, security group.
#[derive(Default)]
pub(super) struct Id<const KIND: char>(pub(super) String);

impl<const KIND: char> FromStr for Id<KIND> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let prefix = match KIND {
            'v' => "vpc-",
            's' => "subnet-",
            'r' => "rtb-",
            _ => "sg-",
        };
        let rest = text.strip_prefix(prefix).unwrap_or_default();
        if rest.is_empty() || !rest.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!(
                "is not an ID; write the whole ID as the AWS console shows it, beginning with {prefix}"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A name or an ID: letters, digits, and a few characters between them.
pub(super) struct Name(pub(super) String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if text.is_empty() || !text.chars().all(is_name) {
            return Err("is not a name; write letters, digits, dashes, dots and underscores");
        }
        Ok(Self(text.to_owned()))
    }
}

/// A zone, such as `eu-west-1a` or `us-west-2-lax-1a`, read as its region.
pub(super) struct ZoneName {
    pub(super) region: String,
}

impl FromStr for ZoneName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        region_of(text)
            .map(|region| Self { region: region.to_owned() })
            .ok_or("is not a zone; write for example eu-west-1a, or write the key Region")
    }
}

/// The words before the first number, and the number.
fn region_of(zone: &str) -> Option<&str> {
    let digit = zone.find(|c: char| c.is_ascii_digit())?;
    let (words, rest) = zone.split_at_checked(digit)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let are_words = words.ends_with('-') && words.trim_end_matches('-').split('-').all(is_word);
    zone.get(..digit + digits).filter(|_| are_words)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphabetic())
}
