//! Origins: scheme, host, port. Must not decide which addresses are allowed; [`super::address`]
//! does.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use url::{Host, Url};

/// An origin in an operator's rule: exact, or with `*.` for exactly one label.
///
/// Its text form is `https://api.example.com`, `https://*.example.com:8443`,
/// `http://127.0.0.1:9000` or `https://[fd00::1]:8443`. The default port is the scheme's. A
/// wildcard stands for one label, as in a certificate: `*.example.com` matches `a.example.com`, and
/// neither `example.com` nor `a.b.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    https: bool,
    host: HostPattern,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum HostPattern {
    Name(String),
    /// Holds what follows the `*`, dot included.
    Wildcard(String),
    Address(IpAddr),
}

/// Why a text is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// The text has no `://`.
    #[error("has no scheme; write https://HOST or http://HOST")]
    Scheme,
    /// Neither `http://` nor `https://`.
    #[error("has an unsupported scheme; write https://HOST or http://HOST")]
    OtherScheme,
    /// User name or password.
    #[error("has user information; give the provider a credential instead")]
    UserInfo,
    /// A path, query or fragment, even a single `/`.
    #[error("has a path, query or fragment; an origin ends after the host or port, use pathPrefixes for paths")]
    Path,
    /// The host is empty, is not a name or an address, or has an unusual spelling that two parsers
    /// may read differently.
    #[error(
        "has no usable host; write a DNS name, an IPv4 address in four decimal parts or an IPv6 address in brackets"
    )]
    Host,
    /// Port 0, or not a number.
    #[error("has no usable port; write a number from 1 to 65535")]
    Port,
    /// A `*` elsewhere than in the place of the whole first label.
    #[error("has a misplaced wildcard; only the whole first label may be one, as in https://*.example.com")]
    WildcardPlace,
    /// `*`, `*.com`, `*.co.uk`.
    #[error(
        "has a wildcard over a whole public suffix; name at least the domain that belongs to you, as in https://*.example.com"
    )]
    WildcardTooBroad,
}

/// The scheme, host and port of one request, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) https: bool,
    pub(crate) host: AuthorityHost,
    pub(crate) port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuthorityHost {
    /// Lower case, ASCII, without a trailing dot.
    Name(String),
    /// An IPv4 address inside an IPv6 address is kept as given: it matches no IPv4 origin, and
    /// [`super::address`] checks the carried address later.
    Address(IpAddr),
}

// === impl Origin ===

impl Origin {
    /// The longest origin that is parsed, in bytes: a DNS name has at most 253.
    pub const BYTES_MAX: usize = 300;

    /// Parses an origin.
    ///
    /// # Errors
    /// The reason, with what to write instead.
    pub fn parse(text: &str) -> Result<Self, OriginError> {
        if text.len() > Self::BYTES_MAX
            || text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ' || byte == b'\\')
        {
            return Err(OriginError::Host);
        }
        let (scheme, rest) = text.split_once("://").ok_or(OriginError::Scheme)?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(OriginError::OtherScheme);
        }
        if rest.contains(['/', '?', '#']) {
            return Err(OriginError::Path);
        }
        if rest.contains('@') {
            return Err(OriginError::UserInfo);
        }
        let (wildcard, plain) = match rest.strip_prefix("*.") {
            Some(plain) => (true, plain),
            None => (false, rest),
        };
        if rest == "*" || rest.starts_with("*:") {
            return Err(OriginError::WildcardTooBroad);
        }
        if plain.contains('*') {
            return Err(OriginError::WildcardPlace);
        }
        let url = Url::parse(&format!("{scheme}://{plain}")).map_err(|error| match error {
            url::ParseError::InvalidPort => OriginError::Port,
            _ => OriginError::Host,
        })?;
        let authority = Authority::of(&url).ok_or(OriginError::Host)?;
        if authority.port == 0 {
            return Err(OriginError::Port);
        }
        let host = match authority.host {
            AuthorityHost::Address(_) if wildcard => return Err(OriginError::WildcardPlace),
            AuthorityHost::Address(address) => {
                require_plain_spelling(plain, address)?;
                HostPattern::Address(address)
            }
            AuthorityHost::Name(name) if wildcard && is_public_suffix(&name) => {
                return Err(OriginError::WildcardTooBroad);
            }
            AuthorityHost::Name(name) if wildcard => HostPattern::Wildcard(format!(".{name}")),
            AuthorityHost::Name(name) => HostPattern::Name(name),
        };
        Ok(Self { https: authority.https, host, port: authority.port })
    }

    pub(crate) fn matches(&self, authority: &Authority) -> bool {
        let host = match (&self.host, &authority.host) {
            (HostPattern::Name(name), AuthorityHost::Name(given)) => name == given,
            (HostPattern::Wildcard(tail), AuthorityHost::Name(given)) => is_one_label_below(given, tail),
            (HostPattern::Address(address), AuthorityHost::Address(given)) => address == given,
            (HostPattern::Name(_) | HostPattern::Wildcard(_), AuthorityHost::Address(_))
            | (HostPattern::Address(_), AuthorityHost::Name(_)) => false,
        };
        host && self.https == authority.https && self.port == authority.port
    }

    /// Whether this origin matches everything that `other` matches.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (HostPattern::Wildcard(tail), HostPattern::Name(name)) => is_one_label_below(name, tail),
            (own, others) => own == others,
        };
        host && self.https == other.https && self.port == other.port
    }

    pub(super) fn is_https(&self) -> bool {
        self.https
    }

    pub(super) fn is_wildcard(&self) -> bool {
        matches!(self.host, HostPattern::Wildcard(_))
    }

    /// The address, where the origin is written as one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match self.host {
            HostPattern::Address(address) => Some(address),
            HostPattern::Name(_) | HostPattern::Wildcard(_) => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.https { "https://" } else { "http://" })?;
        match &self.host {
            HostPattern::Name(name) => f.write_str(name)?,
            HostPattern::Wildcard(tail) => write!(f, "*{tail}")?,
            HostPattern::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            HostPattern::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        write_port(f, self.https, self.port)
    }
}

fn is_one_label_below(name: &str, tail: &str) -> bool {
    name.strip_suffix(tail).is_some_and(|label| !label.is_empty() && !label.contains('.'))
}

/// Refuses octal, hexadecimal and short forms of an address in an operator's origin, so that a
/// reader of the file recognises the address.
fn require_plain_spelling(text: &str, address: IpAddr) -> Result<(), OriginError> {
    match address {
        IpAddr::V4(v4) => {
            let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
            if host == v4.to_string() { Ok(()) } else { Err(OriginError::Host) }
        }
        IpAddr::V6(v6) => {
            let host = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(host, _)| host);
            match host.map(str::parse::<Ipv6Addr>) {
                // An IPv4-mapped address has to be written as an IPv4 address.
                Some(Ok(_)) if v6.to_ipv4_mapped().is_none() => Ok(()),
                _ => Err(OriginError::Host),
            }
        }
    }
}

/// Whether a wildcard directly below `name` would cover names of other owners.
///
/// A single label is a top-level domain. Under a country code, second labels such as `co` and `gov`
/// belong to the registry (`co.uk`, `com.au`, `gov.br`). This check catches mistakes and does not
/// replace the public suffix list: that list changes weekly, so a copy would be out of date in
/// every release.
fn is_public_suffix(name: &str) -> bool {
    const REGISTRY_LABELS: [&str; 15] =
        ["ac", "co", "com", "edu", "gob", "gov", "gv", "info", "ltd", "mil", "ne", "net", "or", "org", "plc"];
    match name.split('.').collect::<Vec<_>>().as_slice() {
        [] | [_] => true,
        [second, top] => top.len() == 2 && REGISTRY_LABELS.contains(second),
        _ => false,
    }
}

// === impl Authority ===

impl Authority {
    /// `None` where the URL has no host, or a host with empty labels.
    pub(crate) fn of(url: &Url) -> Option<Self> {
        let host = match url.host()? {
            Host::Ipv4(address) => AuthorityHost::Address(address.into()),
            Host::Ipv6(address) => AuthorityHost::Address(address.into()),
            Host::Domain(name) => {
                // A trailing dot does not change the name; `url` has converted the name to lower
                // case and Punycode.
                let name = name.strip_suffix('.').unwrap_or(name);
                let usable = name.len() <= 253 && name.split('.').all(|label| (1..=63).contains(&label.len()));
                usable.then(|| AuthorityHost::Name(name.to_owned()))?
            }
        };
        Some(Self { https: url.scheme() == "https", host, port: url.port_or_known_default()? })
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.https { "https://" } else { "http://" })?;
        match &self.host {
            AuthorityHost::Name(name) => f.write_str(name)?,
            AuthorityHost::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            AuthorityHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        write_port(f, self.https, self.port)
    }
}

fn write_port(f: &mut fmt::Formatter<'_>, https: bool, port: u16) -> fmt::Result {
    if port == if https { 443 } else { 80 } { Ok(()) } else { write!(f, ":{port}") }
}
