//! Which headers a guest may set, and which of an answer it gets. Must not look at values of credentials.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{
    credentials::{Proof, Redactor},
    http_client::Failure,
};

/// Headers that are the host's, each for one of these reasons.
const HOSTS: [&str; 22] = [
    // They frame the message: two opinions about its end make two messages of one (request smuggling).
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    // Of the next hop, which is nobody's business but the host's; any other `proxy-…` too.
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    // The host decompresses; in a coding of the guest's choice an echoed credential would pass the redaction unseen.
    "accept-encoding",
    // Cookies are off in both directions: a session that a login with the credential opened is as good as the credential, so the guest
    // neither gets `set-cookie` nor could give one back.
    "cookie",
    "cookie2",
    // Many servers take them for the method or the path, which would lead around the operator's rules.
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
];

/// Headers of an answer that stay with the host.
const KEPT: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "set-cookie2",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether neither a guest nor an operator's credential may set it.
#[must_use]
pub fn is_hosts_header(name: &HeaderName) -> bool {
    HOSTS.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}

/// Whether a server may take this name for another one.
///
/// Servers that hand headers on as variables (CGI, WSGI, PHP) make one character of `-`, `_` and, some of them, of everything that is neither
/// letter nor digit. `x_http_method_override` would pass as a header that is not the host's, and arrive as one that is.
#[must_use]
pub fn is_ambiguous(name: &HeaderName) -> bool {
    !name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The guest's headers, judged. Those that `proof` sets are refused: the guest's copy must neither win nor travel beside it.
pub(super) fn of_guest(given: &[(String, String)], proof: Option<&Proof>) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let shown = || name.chars().take(64).collect::<String>();
        let name: HeaderName =
            name.parse().map_err(|_| Failure::malformed(format!("header name {:?} cannot be sent", shown())))?;
        if is_ambiguous(&name) {
            return Err(Failure::malformed(format!(
                "header name {:?} can be taken for another; write it with letters, digits and dashes only",
                shown()
            )));
        }
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
            Failure::malformed(format!("the value of header {name} has a character that cannot be sent"))
        })?;
        if is_hosts_header(&name) {
            return Err(Failure::malformed(format!("header {name} is set by the host; leave it out")));
        }
        if let Some(Proof::Header { name: set, .. }) = proof
            && (name.as_str() == set.as_str().replace('_', "-") || name == header::AUTHORIZATION)
        {
            return Err(Failure::malformed(format!("header {name} is set by the credential; leave it out")));
        }
        // An echo in pieces would pass the redaction piece by piece.
        if proof.is_some() && (name == header::RANGE || name == header::IF_RANGE) {
            return Err(Failure::malformed(format!(
                "header {name} cannot go together with a credential; leave one out"
            )));
        }
        headers.append(name, value);
    }
    Ok(headers)
}

/// Bytes of all names and values.
pub(super) fn bytes(headers: &HeaderMap) -> u64 {
    let sum: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    sum as u64
}

/// An answer's headers as the guest gets them.
pub(super) fn for_guest(headers: &HeaderMap, redactor: &Redactor, body_changed: bool) -> Vec<(String, String)> {
    let mut out = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let stale = body_changed && name == header::CONTENT_LENGTH;
        if stale || KEPT.contains(&name.as_str()) {
            continue;
        }
        let value = String::from_utf8_lossy(value.as_bytes());
        out.push((name.as_str().to_owned(), redactor.text(&value).into_owned()));
    }
    out
}
