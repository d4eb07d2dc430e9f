//! URLs of services.

use std::str::FromStr;

/// The URL of a service, `http` or `https`, without a user, a query, a fragment, and a slash at
/// the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url(pub String);

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let rest = rest.ok_or("is not a URL; write https://HOST:PORT/PATH")?;
        if rest.is_empty() || rest.starts_with('/') || rest.contains(['?', '#', '@', '\\', ' ']) {
            return Err("is not the URL of a service; write https://HOST:PORT/PATH without user, query and fragment");
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::Url;

    #[test]
    fn a_url_of_a_service_has_a_host_and_perhaps_a_path() {
        for (text, url) in [
            ("https://api.example.com/v1/", "https://api.example.com/v1"),
            ("http://127.0.0.1:4012", "http://127.0.0.1:4012"),
            ("https://[fd00::1]:8443/", "https://[fd00::1]:8443"),
        ] {
            assert_eq!(text.parse(), Ok(Url(url.to_owned())));
        }
        for text in
            ["", "api.example.com", "ftp://x", "https://", "https:///v1", "https://u@x", "http://x?a", "http://a b"]
        {
            assert!(text.parse::<Url>().is_err(), "{text:?}");
        }
    }
}
