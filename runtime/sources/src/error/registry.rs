//! Why an artifact could not be fetched from a registry. Every message names the host and the
//! reason; the remedy depends on the caller.

use std::{borrow::Cow, error::Error, sync::Arc, time::Duration};

use skysail_provider::text::with_causes;

use crate::Digest;

/// Why an artifact could not be fetched. No failure ends the source: it retries.
///
/// `Display` names the reason, and [`RegistryFailure::remedy`] the remedy in fields of a Provider.
/// Commands have remedies with their own flags.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryFailure {
    /// 404.
    #[error("{host} has no {what}")]
    NotFound {
        /// The host that answered.
        host: String,
        /// The content that was requested: `manifest v1`.
        what: String,
    },
    /// 401.
    #[error("{host} rejects the authentication ({how})")]
    Unauthorized {
        /// The host that answered.
        host: String,
        /// Whether the request had credentials.
        how: &'static str,
    },
    /// 403.
    #[error("{host} answers 403 Forbidden to the request for {what}")]
    Forbidden {
        /// The host that answered.
        host: String,
        /// The content that was requested.
        what: String,
    },
    /// 429.
    #[error("{host} answers 429 Too Many Requests{}", after(*retry_after))]
    TooManyRequests {
        /// The host that answered.
        host: String,
        /// From the header Retry-After.
        retry_after: Option<Duration>,
    },
    /// Any other status that is not success.
    #[error("{host} answers {status} to the request for {what}{}", after(*retry_after))]
    Status {
        /// The host that answered.
        host: String,
        /// As in HTTP.
        status: u16,
        /// The content that was requested.
        what: String,
        /// From the header Retry-After.
        retry_after: Option<Duration>,
    },
    /// No connection was made, or the connection was lost.
    #[error("{host} cannot be reached")]
    Unreachable {
        /// The host of the request.
        host: String,
        /// The error of the transport.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The host answers a TLS handshake with another protocol.
    #[error("{host} does not speak TLS")]
    NotTls {
        /// The host of the request.
        host: String,
    },
    /// The timeout of the pull, or of a mirror's share of it.
    #[error("{host} did not finish within {after:?}")]
    TooSlow {
        /// The host of the request.
        host: String,
        /// The timeout.
        after: Duration,
    },
    /// The host redirects to, or names as its token service, a host that is not allowed.
    #[error("{host} refers to {to}, which is refused: {why}")]
    RefusedTarget {
        /// The host that refers to the other one.
        host: String,
        /// The other host.
        to: String,
        /// Why it is refused.
        why: TargetRefusal,
    },
    /// The content does not have the requested digest.
    #[error("{what} has the digest {actual}, and {expected} was requested")]
    WrongDigest {
        /// What was fetched.
        what: &'static str,
        /// The digest of the reference or the manifest.
        expected: Digest,
        /// The digest of the received content.
        actual: Digest,
    },
    /// The content is not as long as its descriptor says.
    #[error("the manifest says that the component has {expected} bytes, and it has {}", if actual > expected { "more".to_owned() } else { actual.to_string() })]
    WrongSize {
        /// The size that the manifest names.
        expected: u64,
        /// Bytes received, at most one more than expected.
        actual: u64,
    },
    /// The manifest announces more than the limit; the component was not fetched.
    #[error("the component has {size} bytes, and {max} are allowed")]
    TooLarge {
        /// Bytes, from the manifest.
        size: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// An artifact that holds no component, or several.
    #[error("the artifact holds {0}")]
    Layout(String),
    /// An answer that cannot be parsed.
    #[error("{what} cannot be read ({reason})")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// The error of the parser.
        reason: String,
    },
    /// The artifact has no signature, and the policy requires one.
    #[error("{artifact} is not signed, and signatures are required")]
    Unsigned {
        /// The digest of the manifest that the reference resolves to.
        artifact: Digest,
    },
    /// The artifact has signatures that do not fulfil the policy.
    #[error(
        "{artifact} has {signers} of {required} required signatures (signatures found: {seen}; the last invalid one {why})"
    )]
    WronglySigned {
        /// The digest of the manifest that the reference resolves to.
        artifact: Digest,
        /// Signatures that were checked.
        seen: usize,
        /// Keys and identities of the policy with a valid signature.
        signers: usize,
        /// Keys and identities of the policy that are required.
        required: usize,
        /// Why the last invalid signature does not count.
        why: String,
    },
    /// The operator's credentials cannot be used.
    #[error("the credentials for {host} cannot be used: {reason}")]
    Credentials {
        /// The registry.
        host: String,
        /// The reason and the remedy.
        reason: String,
    },
}

/// Why a registry may not redirect to a URL, or name it as its token service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetRefusal {
    /// The URL has no host.
    #[error("the URL has no host")]
    NoHost,
    /// The URL is not HTTPS, and the host is not allowed for plain HTTP.
    #[error("the URL is not HTTPS")]
    NotHttps,
    /// The address is not public; the text names the address and its range.
    #[error("{0}")]
    Address(String),
    /// The token service is on another host, which must not receive the credentials.
    #[error("credentials are not sent to another host")]
    CredentialsOfAnother,
    /// More redirects than the limit.
    #[error("more than {0} redirects")]
    TooManyRedirects(usize),
}

impl RegistryFailure {
    /// The remedy for an operator, in fields of a Provider; `None` where `Display` already has it.
    #[must_use]
    pub fn remedy(&self) -> Option<Cow<'static, str>> {
        let text = match self {
            Self::NotFound { .. } => "push it, or correct the reference; the manager uses it as soon as it exists",
            Self::Unauthorized { host, .. } => {
                return Some(format!("give credentials for {host} in source.oci.credentials, or correct them").into());
            }
            Self::Forbidden { .. } => "allow the account of the credentials to pull it",
            Self::TooManyRequests { .. } => "the manager retries then; a longer pollInterval sends fewer requests",
            Self::Status { .. } => "check the registry's log",
            Self::Unreachable { .. } => "check the name, the network and, with a certificate of your own, caBundle",
            Self::NotTls { .. } => "list it in source.oci.plainHTTP to use plain HTTP",
            Self::TooSlow { .. } => "the manager retries",
            Self::RefusedTarget { why: TargetRefusal::NoHost | TargetRefusal::TooManyRedirects(_), .. } => {
                "report it to the registry's operator"
            }
            Self::RefusedTarget { why: TargetRefusal::NotHttps, .. } => {
                "list that host in source.oci.plainHTTP to allow it"
            }
            Self::RefusedTarget { why: TargetRefusal::Address(_) | TargetRefusal::CredentialsOfAnother, .. } => {
                "list that host in source.oci.trustedHosts to allow it"
            }
            Self::WrongDigest { .. } => {
                "the registry or a proxy in front of it changes the content; push the artifact again, or correct the reference"
            }
            Self::WrongSize { .. } => "push the artifact again",
            Self::TooLarge { .. } => {
                "build it smaller (release profile, opt-level \"s\", stripped), or raise the limit componentBytes"
            }
            Self::Layout(_) | Self::Credentials { .. } => return None,
            Self::Malformed { .. } => "push the artifact again, or report it to the registry's operator",
            Self::Unsigned { artifact } => {
                let sign =
                    format!("sign it with cosign sign REFERENCE@{artifact}, with --key KEY where keys are given");
                return Some(format!("{sign}, as source.oci.signatures requires; the manager then uses it").into());
            }
            Self::WronglySigned { .. } => {
                "sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
            }
        };
        Some(text.into())
    }

    /// The failure with its causes and the operator's remedy, on one line.
    #[must_use]
    pub fn message(&self) -> String {
        let wrong = with_causes(self);
        match self.remedy() {
            Some(remedy) => format!("{wrong}; {remedy}"),
            None => wrong,
        }
    }

    /// A stable CamelCase name: metric label and reason of a status.
    #[must_use]
    pub const fn category(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "RegistryNotFound",
            Self::Unauthorized { .. } => "RegistryUnauthorized",
            Self::Forbidden { .. } => "RegistryForbidden",
            Self::TooManyRequests { .. } => "RegistryTooManyRequests",
            Self::Status { .. } => "RegistryFailed",
            Self::Unreachable { .. } => "RegistryUnreachable",
            Self::NotTls { .. } => "RegistryNotTls",
            Self::TooSlow { .. } => "RegistryTooSlow",
            Self::RefusedTarget { .. } => "RegistryTargetRefused",
            Self::WrongDigest { .. } => "ArtifactWrongDigest",
            Self::WrongSize { .. } => "ArtifactWrongSize",
            Self::TooLarge { .. } => "SourceTooLarge",
            Self::Layout(_) => "ArtifactLayout",
            Self::Malformed { .. } => "ArtifactMalformed",
            Self::Unsigned { .. } => "ArtifactUnsigned",
            Self::WronglySigned { .. } => "ArtifactWronglySigned",
            Self::Credentials { .. } => "RegistryCredentials",
        }
    }

    /// Whether the failure is independent of the artifact, so that a retry may succeed.
    pub(crate) const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unauthorized { .. }
                | Self::Forbidden { .. }
                | Self::TooManyRequests { .. }
                | Self::Status { .. }
                | Self::Unreachable { .. }
                | Self::TooSlow { .. }
        )
    }

    /// The registry's Retry-After.
    pub(crate) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { retry_after, .. } | Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn after(retry_after: Option<Duration>) -> String {
    retry_after.map(|after| format!(" (retry after {} s)", after.as_secs())).unwrap_or_default()
}
