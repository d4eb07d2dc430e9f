//! A secret value, which prints as `[redacted]`. Must not implement a trait that prints or
//! serialises the value.

use std::fmt;

use base64::{Engine as _, engine::general_purpose};
use http::{HeaderValue, header::InvalidHeaderValue};
use rustls_pki_types::PrivateKeyDer;

/// The replacement for a credential's value.
pub(crate) const REDACTED: &str = "[redacted]";

/// A secret text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A client certificate with its key.
pub(crate) struct ClientCertificate {
    pub(crate) chain: Vec<rustls_pki_types::CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Secret {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself: only for the request to the peer, and for the redaction of answers.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// A password in the two spellings in which HTTP's Basic scheme carries it (RFC 7617):
/// `USERNAME:PASSWORD`, and base64 of that.
pub(super) fn basic_spellings(username: &str, password: &str) -> [Secret; 2] {
    let pair = format!("{username}:{password}");
    let encoded = general_purpose::STANDARD.encode(&pair);
    [Secret(pair), Secret(encoded)]
}

/// A secret text as the value of a header.
pub(super) fn sensitive_header(text: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(text)?;
    // Keeps the value out of Debug output and of HTTP/2's header compression tables.
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

impl PartialEq for ClientCertificate {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain && self.key.secret_der() == other.key.secret_der()
    }
}
