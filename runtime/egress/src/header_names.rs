//! Names of headers that only the host may set. Must not look at values.

use http::HeaderName;

/// Headers that are the host's, each for one of these reasons.
const HOSTS: [&str; 22] = [
    // They frame the message: two opinions about its end make two messages of one (request
    // smuggling).
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
    // Of the next hop, which only the host may set; any other `proxy-…` too.
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    // The host decompresses; in a coding of the guest's choice an echoed credential would pass the
    // redaction unseen.
    "accept-encoding",
    // Cookies are off in both directions: a session that a login with the credential opened is as
    // good as the credential, so the guest neither gets `set-cookie` nor could give one back.
    "cookie",
    "cookie2",
    // Many servers take them for the method or the path, which would lead around the operator's
    // rules.
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
];

/// Whether neither a guest nor an operator's credential may set it.
#[must_use]
pub fn is_hosts_header(name: &HeaderName) -> bool {
    HOSTS.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}

/// Whether a server may take this name for another one.
///
/// Servers that hand headers on as variables (CGI, WSGI, PHP) make one character of `-`, `_` and,
/// some of them, of everything that is neither letter nor digit. `x_http_method_override` would
/// pass as a header that is not the host's, and arrive as one that is.
#[must_use]
pub fn is_ambiguous(name: &HeaderName) -> bool {
    !name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
