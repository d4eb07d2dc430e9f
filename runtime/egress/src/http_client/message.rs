//! A guest's request, the response, and the failure in place of a response. Must know neither wasm
//! nor the transport.

use std::{fmt, time::Duration};

use bytes::Bytes;
use skysail_provider::{FenceClosed, LimitHit, text::one_line};

/// A guest's request, before any check.
#[derive(Clone, Default)]
pub struct HttpRequest {
    /// `GET`, `POST`, …; upper case.
    pub method: String,
    /// Absolute, `http` or `https`.
    pub url: String,
    /// Name and value, in order.
    pub headers: Vec<(String, String)>,
    /// For methods without a body, `None` and an empty body send the same bytes.
    pub body: Option<Bytes>,
    /// Name of one of the provider's credentials.
    pub credential: Option<String>,
    /// For the whole exchange; `None` means the provider's limit. The provider's limit and the rest
    /// of the call's time bound it.
    pub timeout: Option<Duration>,
}

impl fmt::Debug for HttpRequest {
    /// Leaves out header values, query and body, because they may contain tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("url", &self.url.split(['?', '#']).next().unwrap_or_default())
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.as_ref().map(Bytes::len))
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

/// A whole answer for the guest: bounded, and with credentials redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// 200 to 599.
    pub status: u16,
    /// Lower-case names, in the order received; without hop-by-hop headers and `set-cookie`.
    pub headers: Vec<(String, String)>,
    /// The body, which has no content coding.
    pub body: Bytes,
}

impl HttpResponse {
    /// Bytes of headers and body: what the guest needs memory for.
    #[must_use]
    pub fn size(&self) -> u64 {
        let Self { status: _, headers, body } = self;
        let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        (headers + body.len()) as u64
    }
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// Why there is no response: the cases of the contract's `failure` except `other`, and
/// [`Self::Fenced`], which the guest receives as `forbidden`; the result of a fenced call is
/// discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// No rule of the operator allows it. Nothing was sent.
    Forbidden,
    /// A budget of this call or provider is exhausted. Nothing was sent.
    Limited,
    /// The request is invalid. Nothing was sent.
    Malformed,
    /// This process is no longer the leader. A request that was not sent yet is not sent.
    Fenced,
    /// The name was not resolved, or no connection was made. Nothing was sent.
    Unreachable,
    /// The TLS handshake failed, for example because of a certificate. Nothing was carried out.
    Tls,
    /// The request was sent and may have been carried out; no whole answer arrived.
    Interrupted,
    /// The time is over. The request may have been carried out.
    Timeout,
    /// The answer is larger than allowed, in bytes; 0 where its size is unknown. The request was
    /// carried out.
    TooLarge(u64),
    /// The issuer of the credential refused the login. Nothing was sent to the cloud.
    CredentialRefused,
    /// The issuer of the credential could not be reached, or it failed. Nothing was sent to the
    /// cloud.
    CredentialUnavailable,
}

impl FailureKind {
    /// Whether a request that failed like this did not reach the cloud.
    pub(super) const fn sent_nothing(self) -> bool {
        match self {
            Self::Forbidden
            | Self::Limited
            | Self::Malformed
            | Self::Unreachable
            | Self::Tls
            | Self::CredentialRefused
            | Self::CredentialUnavailable => true,
            Self::Fenced | Self::Interrupted | Self::Timeout | Self::TooLarge(_) => false,
        }
    }

    /// The case's name in the contract: also the metric label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Limited => "limited",
            Self::Malformed => "malformed",
            Self::Fenced => "fenced",
            Self::Unreachable => "unreachable",
            Self::Tls => "tls",
            Self::Interrupted => "interrupted",
            Self::Timeout => "timeout",
            Self::TooLarge(_) => "too-large",
            Self::CredentialRefused => "credential-refused",
            Self::CredentialUnavailable => "credential-unavailable",
        }
    }

    /// The kind with this name; `bytes` are those of [`Self::TooLarge`].
    #[must_use]
    pub fn parse(name: &str, bytes: u64) -> Option<Self> {
        let kinds = [
            Self::Forbidden,
            Self::Limited,
            Self::Malformed,
            Self::Fenced,
            Self::Unreachable,
            Self::Tls,
            Self::Interrupted,
            Self::Timeout,
            Self::TooLarge(bytes),
            Self::CredentialRefused,
            Self::CredentialUnavailable,
        ];
        kinds.into_iter().find(|kind| kind.name() == name)
    }
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the guest branches on.
    pub kind: FailureKind,
    /// One line for a person, without any value of a credential; at most
    /// [`Failure::MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
    /// The limit of the provider that was the reason, and how much was used.
    pub limit: Option<LimitHit>,
}

impl Failure {
    /// Longest message, in bytes: the message names an origin, a reason and a remedy, and the guest
    /// receives it.
    pub const MESSAGE_BYTES_MAX: usize = 512;

    /// A failure without a limit; the message is cut to [`Self::MESSAGE_BYTES_MAX`] bytes on one
    /// line.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl AsRef<str>) -> Self {
        let message = one_line(message.as_ref(), Self::MESSAGE_BYTES_MAX);
        Self { kind, message, limit: None }
    }

    /// A failure by this limit.
    #[must_use]
    pub fn with_limit(kind: FailureKind, hit: LimitHit) -> Self {
        Self { limit: Some(hit), ..Self::new(kind, format!("limit {hit}")) }
    }

    pub(crate) fn forbidden(message: impl AsRef<str>) -> Self {
        Self::new(FailureKind::Forbidden, message)
    }

    pub(super) fn fenced(closed: FenceClosed) -> Self {
        Self::new(FailureKind::Fenced, closed.to_string())
    }

    /// A request that cannot be sent.
    #[must_use]
    pub fn malformed(message: impl AsRef<str>) -> Self {
        Self::new(FailureKind::Malformed, message)
    }
}
