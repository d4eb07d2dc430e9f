//! Which headers a guest may set, and which headers of an answer it receives. Must not read values
//! of credentials.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{
    credentials::Redactor,
    header_names::{is_ambiguous, is_hosts_header},
    http_client::Failure,
};

/// Headers of an answer that the guest does not receive.
const KEPT: [&str; 12] = [
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
    // A guest that may use a token can ask the issuer for a further one, which is as powerful.
    "vmware-api-session-id",
    "x-subject-token",
];

/// Checks the guest's headers. `sets` are the headers by which the credential of the request proves
/// itself, none for a client certificate: the guest's own are refused, so that only the host's
/// value is sent. `None` for a request without a credential.
pub(super) fn of_guest(given: &[(String, String)], sets: Option<&[HeaderName]>) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let shown = || name.chars().take(64).collect::<String>();
        let name: HeaderName =
            name.parse().map_err(|_| Failure::malformed(format!("header name {:?} cannot be sent", shown())))?;
        if is_ambiguous(&name) {
            return Err(Failure::malformed(format!(
                "header name {:?} is ambiguous; write it with letters, digits and dashes only",
                shown()
            )));
        }
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
            Failure::malformed(format!("the value of header {name} has a character that cannot be sent"))
        })?;
        if is_hosts_header(&name) {
            return Err(Failure::malformed(format!("header {name} is set by the host; leave it out")));
        }
        if let Some(sets) = sets
            && !sets.is_empty()
            && (name == header::AUTHORIZATION || sets.iter().any(|set| name.as_str() == set.as_str().replace('_', "-")))
        {
            return Err(Failure::malformed(format!("header {name} is set by the credential; leave it out")));
        }
        if sets.is_some() && shapes_the_echo(&name, &value) {
            return Err(Failure::malformed(format!(
                "header {name} is not allowed in a request with a credential; leave one of them out"
            )));
        }
        headers.append(name, value);
    }
    Ok(headers)
}

/// Whether the header lets the guest choose the charset of an answer, or ask for a part of it (also
/// under other names that servers have for ranges: `request-range`, `x-ms-range`). The redaction
/// would not find an echoed credential in such an answer.
fn shapes_the_echo(name: &HeaderName, value: &HeaderValue) -> bool {
    let charset = || value.as_bytes().to_ascii_lowercase().windows(7).any(|word| word == b"charset");
    match *name {
        header::ACCEPT_CHARSET | header::RANGE => true,
        header::ACCEPT => charset(),
        // `content-range` describes a part that the guest sends.
        header::CONTENT_RANGE => false,
        _ => name.as_str().ends_with("-range"),
    }
}

/// The headers of an answer for the guest.
pub(super) fn for_guest(headers: &HeaderMap, redactor: &Redactor, body_changed: bool) -> Vec<(String, String)> {
    let mut out = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let stale = body_changed && name == header::CONTENT_LENGTH;
        if stale || KEPT.contains(&name.as_str()) {
            continue;
        }
        // A header name cannot contain the brackets of `[redacted]`.
        let name = if redactor.finds(name.as_str()) { "redacted" } else { name.as_str() };
        let value = String::from_utf8_lossy(value.as_bytes());
        out.push((name.to_owned(), redactor.text(&value).into_owned()));
    }
    out
}
