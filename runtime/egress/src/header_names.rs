//! Names of headers that only the host may set. Must not read header values.

use http::HeaderName;

/// Headers that only the host may set, each for one of these reasons.
const HOSTS: [&str; 22] = [
    // These headers frame the message: if the peer disagrees about where the message ends, the peer
    // reads a second request from the body (request smuggling).
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
    // These headers are addressed to the next hop, as is every other `proxy-…`.
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    // The host does not decompress: the redaction would not find an echoed credential in a
    // compressed answer.
    "accept-encoding",
    // Cookies are off in both directions: the cookie of a session that the credential opened is as
    // powerful as the credential, so the guest neither receives `set-cookie` nor sends a cookie.
    "cookie",
    "cookie2",
    // Many servers read the method or the path from them, which would bypass the operator's rules.
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
];

/// Whether only the host may set the header: neither a guest nor an operator's credential may.
#[must_use]
pub fn is_hosts_header(name: &HeaderName) -> bool {
    HOSTS.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}

/// Whether a server may read this name as another one.
///
/// Servers that pass headers on as variables (CGI, WSGI, PHP) map `-` and `_`, and some of them
/// every character that is neither letter nor digit, to one character. `x_http_method_override`
/// would pass [`is_hosts_header`] and arrive as `x-http-method-override`.
#[must_use]
pub fn is_ambiguous(name: &HeaderName) -> bool {
    !name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
