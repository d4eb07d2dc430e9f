//! Which headers a guest may set, and which of an answer it gets. Must not look at values of
//! credentials.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{
    credentials::{Proof, Redactor},
    header_names::{is_ambiguous, is_hosts_header},
    http_client::Failure,
};

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

/// The guest's headers, judged. Those that `proof` sets are refused: the guest's copy must neither
/// win nor travel beside it.
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
        if proof.is_some() && shapes_the_echo(&name, &value) {
            return Err(Failure::malformed(format!(
                "header {name} cannot go together with a credential; leave one out"
            )));
        }
        headers.append(name, value);
    }
    Ok(headers)
}

/// Whether the guest would choose with it how an echo of the credential is spelled, or would get
/// the echo in pieces, neither of which the redaction finds: character sets, and ranges under the
/// names that servers have for them (`request-range`, `x-ms-range`).
fn shapes_the_echo(name: &HeaderName, value: &HeaderValue) -> bool {
    let charset = || value.as_bytes().to_ascii_lowercase().windows(7).any(|word| word == b"charset");
    match *name {
        header::ACCEPT_CHARSET | header::RANGE => true,
        header::ACCEPT => charset(),
        // Of a part that is sent, not asked for.
        header::CONTENT_RANGE => false,
        _ => name.as_str().ends_with("-range"),
    }
}

/// An answer's headers as the guest gets them.
pub(super) fn for_guest(headers: &HeaderMap, redactor: &Redactor, body_changed: bool) -> Vec<(String, String)> {
    let mut out = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let stale = body_changed && name == header::CONTENT_LENGTH;
        if stale || KEPT.contains(&name.as_str()) {
            continue;
        }
        // A name cannot hold the brackets of the usual mark.
        let name = if redactor.finds(name.as_str()) { "redacted" } else { name.as_str() };
        let value = String::from_utf8_lossy(value.as_bytes());
        out.push((name.to_owned(), redactor.text(&value).into_owned()));
    }
    out
}
