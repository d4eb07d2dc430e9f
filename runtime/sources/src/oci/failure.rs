//! Why a registry gave nothing. Every text names who answered and what is wrong; the way out
//! depends on who asks.

use std::{borrow::Cow, error::Error, sync::Arc, time::Duration};

use crate::{Digest, error::with_causes};

/// Why an artifact is not here. None of these ends the source: it tries again.
///
/// The text says what is wrong, and [`RegistryFailure::way_out`] what the operator of a Provider
/// does about it. Commands with flags have ways out of their own.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryFailure {
    /// 404.
    #[error("{host} has no {what}")]
    NotFound {
        /// Who says so.
        host: String,
        /// `manifest v1`, or what else was asked for.
        what: String,
    },
    /// 401.
    #[error("{host} does not know who asks ({how})")]
    Unauthorized {
        /// Who says so.
        host: String,
        /// Whether credentials were shown.
        how: &'static str,
    },
    /// 403.
    #[error("{host} knows who asks and refuses {what}")]
    Forbidden {
        /// Who says so.
        host: String,
        /// What was asked for.
        what: String,
    },
    /// 429.
    #[error("{host} has had too many requests{}", after(*retry_after))]
    TooManyRequests {
        /// Who says so.
        host: String,
        /// When to come back, if it says.
        retry_after: Option<Duration>,
    },
    /// Any other status that is not success.
    #[error("{host} answers {status} to the question for {what}{}", after(*retry_after))]
    Status {
        /// Who says so.
        host: String,
        /// As in HTTP.
        status: u16,
        /// What was asked for.
        what: String,
        /// When to come back, if it says.
        retry_after: Option<Duration>,
    },
    /// No connection, or one that broke.
    #[error("{host} cannot be reached")]
    Unreachable {
        /// Who was asked.
        host: String,
        /// What the network said.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// It answers a TLS handshake with something else.
    #[error("{host} does not speak TLS")]
    NotTls {
        /// Who was asked.
        host: String,
    },
    /// It took longer than it may.
    #[error("{host} was not done after {after:?}")]
    TooSlow {
        /// Who was asked.
        host: String,
        /// What it may take.
        after: Duration,
    },
    /// A redirect or a token service that this registry may not lead to.
    #[error("{host} leads to {to}, and {why}")]
    LedAstray {
        /// Who led there.
        host: String,
        /// Where.
        to: String,
        /// Why not.
        why: Astray,
    },
    /// The content is not what its name says.
    #[error("{what} was promised as {expected} and is {actual}")]
    WrongDigest {
        /// What was fetched.
        what: &'static str,
        /// By the reference or the manifest.
        expected: Digest,
        /// Of what came.
        actual: Digest,
    },
    /// The content is not as long as its descriptor says.
    #[error("the component was promised with {expected} bytes and has {}", if actual > expected { "more".to_owned() } else { actual.to_string() })]
    WrongSize {
        /// By the manifest.
        expected: u64,
        /// What came; cut one byte after the promise.
        actual: u64,
    },
    /// More than the limit, by its own manifest; it was not fetched.
    #[error("the component has {size} bytes, and {max} are allowed")]
    TooLarge {
        /// Bytes, as promised.
        size: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// An artifact that holds no component, or several.
    #[error("the artifact holds {0}")]
    Layout(String),
    /// An answer that cannot be read.
    #[error("{what} cannot be read ({reason})")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// Where it ends to make sense.
        reason: String,
    },
    /// Nobody signed it, and somebody should have.
    #[error("{artifact} is not signed, and has to be")]
    Unsigned {
        /// What the reference leads to.
        artifact: Digest,
    },
    /// Signed, but not as the policy asks.
    #[error(
        "{artifact} is signed by {signers} of those who are trusted, and {required} have to have signed; found: {seen}, of which the last to be of no use \
         {why}"
    )]
    WronglySigned {
        /// What the reference leads to.
        artifact: Digest,
        /// Signatures that were looked at.
        seen: usize,
        /// Keys and identities of the policy with a signature that counts.
        signers: usize,
        /// Keys and identities of the policy that have to have signed.
        required: usize,
        /// Why one of them does not count.
        why: String,
    },
    /// The operator's credentials cannot be used.
    #[error("the credentials for {host} cannot be used: {reason}")]
    Credentials {
        /// Whom they are for.
        host: String,
        /// Why, and the way out.
        reason: String,
    },
}

/// Why a registry may not lead there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Astray {
    /// There is no host in it.
    #[error("that is no address of a host")]
    NoHost,
    /// Neither HTTPS, nor HTTP of a host that may.
    #[error("that is not HTTPS")]
    NotHttps,
    /// An address that is not everybody's, in words.
    #[error("{0}")]
    Address(String),
    /// A token service that asks for what another host was meant to get.
    #[error("that is another host, which must not learn this one's credentials")]
    CredentialsOfAnother,
    /// It leads on and on.
    #[error("on from there, more than {0} times")]
    OnAndOn(usize),
}

impl RegistryFailure {
    /// What an operator does about it, in fields of a Provider; none where the text itself ends
    /// with it.
    #[must_use]
    pub fn way_out(&self) -> Option<Cow<'static, str>> {
        let text = match self {
            Self::NotFound { .. } => "push it, or correct the reference; it is taken up as soon as it is there",
            Self::Unauthorized { host, .. } => {
                return Some(format!("give credentials for {host} in source.oci.credentials, or correct them").into());
            }
            Self::Forbidden { .. } => "give this account the right to pull it",
            Self::TooManyRequests { .. } => "it is asked again then; a longer pollInterval asks less",
            Self::Status { .. } => "see that registry's log",
            Self::Unreachable { .. } => "check the name, the network and, with a certificate of your own, caBundle",
            Self::NotTls { .. } => "name it in source.oci.plainHTTP if plain HTTP is meant",
            Self::TooSlow { .. } => "it is tried again",
            Self::LedAstray { why: Astray::NoHost | Astray::OnAndOn(_), .. } => "ask who runs the registry",
            Self::LedAstray { why: Astray::NotHttps, .. } => "name that host in source.oci.plainHTTP if this is meant",
            Self::LedAstray { why: Astray::Address(_) | Astray::CredentialsOfAnother, .. } => {
                "name that host in source.oci.trustedHosts if this is meant"
            }
            Self::WrongDigest { .. } => "the registry or something before it changes content; it is not used",
            Self::WrongSize { .. } => "push it again",
            Self::TooLarge { .. } => {
                "build it smaller (release profile, opt-level \"s\", stripped), or raise the limit componentBytes"
            }
            Self::Layout(_) | Self::Credentials { .. } => return None,
            Self::Malformed { .. } => "push the artifact again, or ask who runs the registry",
            Self::Unsigned { artifact } => {
                let sign =
                    format!("sign it with cosign sign REFERENCE@{artifact}, with --key KEY where keys are given");
                return Some(format!("{sign}, as source.oci.signatures asks; it is taken up when it is").into());
            }
            Self::WronglySigned { .. } => "let those sign it who are meant, or correct source.oci.signatures",
        };
        Some(text.into())
    }

    /// What is wrong, with its causes and the way out for an operator, on one line.
    #[must_use]
    pub fn told(&self) -> String {
        let wrong = with_causes(self);
        match self.way_out() {
            Some(way_out) => format!("{wrong}: {way_out}"),
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
            Self::LedAstray { .. } => "RegistryLedAstray",
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

    /// Whether it says nothing about the artifact: what could not be had now may be had later.
    pub(super) const fn is_of_the_moment(&self) -> bool {
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

    /// When the registry wants to be asked again, if it says so.
    pub(super) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { retry_after, .. } | Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn after(retry_after: Option<Duration>) -> String {
    retry_after.map(|after| format!(" and wants {} s of rest", after.as_secs())).unwrap_or_default()
}
