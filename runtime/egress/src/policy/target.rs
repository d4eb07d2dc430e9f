//! Strict parsing of a guest's URL. Must not decide whether the target is allowed.

use url::Url;

use super::origin::{Authority, AuthorityHost};

/// Longest URL, in bytes: common servers accept no more.
const URL_BYTES_MAX: usize = 8 * 1024;

/// Where a request goes, in the spelling that is checked *and* sent.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) authority: Authority,
}

/// Why a text is not a URL that a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("the URL is longer than {URL_BYTES_MAX} bytes")]
    Length,
    #[error(
        "the URL has a space, a control character or a backslash; percent-encode it in the query, remove it from the path"
    )]
    Characters,
    #[error("the URL does not begin with http:// or https:// and a host")]
    Scheme,
    #[error("the URL has user information; name a credential instead")]
    UserInfo,
    #[error("the URL's path has a percent-encoded dot segment; remove the segment")]
    HiddenDots,
    #[error("the URL has no valid host and port")]
    Host,
}

impl Target {
    pub(crate) fn parse(text: &str) -> Result<Self, TargetError> {
        if text.len() > URL_BYTES_MAX {
            return Err(TargetError::Length);
        }
        // The URL standard removes tabs and newlines and turns backslashes into slashes; such a URL
        // is refused instead of repaired.
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(TargetError::Characters);
        }
        let (scheme, rest) = text.split_once("://").ok_or(TargetError::Scheme)?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(TargetError::Scheme);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at_checked(end).ok_or(TargetError::Scheme)?;
        // With an empty authority the URL standard would take the first path segment for the host.
        if authority.is_empty() {
            return Err(TargetError::Scheme);
        }
        if authority.contains('@') {
            return Err(TargetError::UserInfo);
        }
        let path = tail.split(['?', '#']).next().unwrap_or_default();
        if path.split('/').any(hides_dot_segment) {
            return Err(TargetError::HiddenDots);
        }
        let mut url = Url::parse(text).map_err(|_| TargetError::Host)?;
        url.set_fragment(None);
        let authority = Authority::of(&url).filter(|authority| authority.port != 0).ok_or(TargetError::Host)?;
        // The connection, the Host header and the TLS server name all use the spelling that was
        // checked.
        if let AuthorityHost::Name(name) = &authority.host
            && url.host_str() != Some(name)
        {
            url.set_host(Some(name)).map_err(|_| TargetError::Host)?;
        }
        Ok(Self { url, authority })
    }
}

fn hides_dot_segment(segment: &str) -> bool {
    let lower = segment.to_ascii_lowercase();
    lower.contains("%2e") && matches!(lower.replace("%2e", ".").as_str(), "." | "..")
}
