//! The values of the cloud-config.

use std::{net::Ipv6Addr, str::FromStr};

use skysail_guest_sdk::{Cidr, IpFamily, config::Ini};

/// A host name or an address, without a port.
#[derive(Clone)]
pub(super) struct Host(pub(super) String);

impl Host {
    /// `https://host:port`, without the default port.
    pub(super) fn origin(&self, port: u16) -> String {
        let Self(host) = self;
        let host = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.clone() };
        if port == super::PORT { format!("https://{host}") } else { format!("https://{host}:{port}") }
    }
}

impl FromStr for Host {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if bare.parse::<Ipv6Addr>().is_ok() {
            return Ok(Self(bare.to_owned()));
        }
        if text.is_empty() || !text.chars().all(name) {
            return Err("is not a host; write a host name or an address, and the port into the key port");
        }
        Ok(Self(text.to_owned()))
    }
}

/// A port from 1 on.
#[derive(Clone, Copy)]
pub(super) struct Port(pub(super) u16);

impl FromStr for Port {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().ok().filter(|port| *port != 0).map(Self).ok_or("is not a port; write a number from 1 to 65535")
    }
}

/// Texts with commas between them.
#[derive(Default)]
pub(super) struct List(pub(super) Vec<String>);

impl FromStr for List {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()))
    }
}

/// Address ranges with commas between them.
#[derive(Default)]
pub(super) struct CidrList(pub(super) Vec<Cidr>);

impl FromStr for CidrList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Ok(List(parts)) = text.parse();
        let cidrs =
            parts.iter().map(|part| part.parse().map_err(|error: skysail_guest_sdk::Error| error.message().to_owned()));
        cidrs.collect::<Result<_, _>>().map(Self)
    }
}

/// The families of `ip-family`, in their order; none where the key is absent.
pub(super) fn families(ini: &mut Ini, section: &str) -> Vec<IpFamily> {
    ini.optional::<Families>(section, "ip-family").map(|families| families.0).unwrap_or_default()
}

struct Families(Vec<IpFamily>);

impl FromStr for Families {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Ok(List(parts)) = text.parse();
        let family = |part: &String| match part.to_ascii_lowercase().as_str() {
            "ipv4" => Ok(IpFamily::Ipv4),
            "ipv6" => Ok(IpFamily::Ipv6),
            _ => Err("is not a list of IP families; write ipv4, ipv6, or both with a comma between"),
        };
        parts.iter().map(family).collect::<Result<_, _>>().map(Self)
    }
}
