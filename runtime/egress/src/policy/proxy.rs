//! A proxy that an operator names. Must not connect to it.

use std::{fmt, net::IpAddr};

use http::Uri;

use super::Origin;

/// An HTTP proxy: `http://proxy.example.com:3128`.
///
/// Requests with TLS go through a tunnel (CONNECT), so the proxy sees only the name of the origin.
/// Requests without TLS go to the proxy as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    uri: Uri,
    address: Option<IpAddr>,
}

impl Proxy {
    /// Parses the URL of a proxy.
    ///
    /// # Errors
    /// The reason, with what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let origin = Origin::parse(text).map_err(|error| error.to_string())?;
        if origin.is_https() {
            return Err(
                "begins with https://; write http://HOST:PORT, because TLS to a proxy is not supported".to_owned()
            );
        }
        if origin.is_wildcard() {
            return Err("has a wildcard; write http://HOST:PORT".to_owned());
        }
        let uri = origin.to_string().parse().map_err(|_| "cannot be a proxy; write http://HOST:PORT".to_owned())?;
        Ok(Self { uri, address: origin.address() })
    }

    /// The host, as a reference to a registry writes it.
    #[must_use]
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// The address, where the host is written as one.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        self.address
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.uri.authority().map_or("", |authority| authority.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::Proxy;

    #[test]
    fn a_proxy_is_an_origin_without_tls() {
        for text in ["http://proxy.example.com:3128", "http://10.0.0.1:8080", "http://proxy", "http://[fd00::1]:3128"] {
            assert_eq!(Proxy::parse(text).unwrap().to_string(), text);
        }
        for (text, expected) in [
            ("https://proxy:3128", "TLS to a proxy is not supported"),
            ("proxy:3128", "has no scheme"),
            ("http://*.example.com", "has a wildcard"),
            ("http://user:password@proxy:3128", "has user information"),
            ("http://proxy:3128/", "has a path"),
        ] {
            assert!(Proxy::parse(text).unwrap_err().contains(expected), "{text}");
        }
    }
}
