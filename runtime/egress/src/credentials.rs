//! Named credentials that the host adds to requests and the guest never sees.
//!
//! A guest writes the *name* of a credential in a request. Two settings of the operator have to
//! allow that: an egress rule allows the request, and the credential's own origins include the
//! request's origin. The host adds the value last, after it has checked the guest's request, and
//! removes the value from the answer ([`redact`]). Values are held in [`Secret`], whose `Debug`
//! shows nothing.
//!
//! [`Credentials::exchange`] replaces all values at once: a request under way keeps the old value,
//! later requests use the new one. Values of the previous generation are still redacted, because
//! answers may still repeat them.
//!
//! Must not send requests and must not decide which addresses are allowed.

mod read;
mod redact;
mod secret;
mod spec;
mod view;

use std::{collections::BTreeMap, io, sync::Arc};

use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue};

use crate::policy::{Authority, Origin, OriginError};
use read::Reader;
pub(crate) use redact::{Redactor, SECRET_BYTES_MIN};
pub(crate) use secret::ClientCertificate;
pub use secret::Secret;
pub use spec::{BasicSpec, ClientCertificateSpec, CredentialSpec, HeaderSpec, SecretKeyRef, ValueFrom};

/// Values from Secrets of the cluster, as they were read.
pub type SecretValues = BTreeMap<SecretKeyRef, Secret>;

/// The credentials of one provider.
#[derive(Debug)]
pub struct Credentials {
    current: ArcSwap<Generation>,
}

/// All credentials as of one reading.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    by_name: BTreeMap<String, Credential>,
    redactor: Redactor,
}

/// New values that are not used yet: see [`Credentials::exchange`].
#[derive(Debug)]
pub struct Rotation(Generation);

/// One credential, ready for use.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    origins: Vec<Origin>,
    pub(crate) proof: Proof,
}

/// What is added to a request.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// A header; `secrets` are the texts that are redacted from answers.
    Header { name: HeaderName, value: HeaderValue, secrets: Vec<Secret> },
    /// A client certificate for the TLS handshake.
    ClientCertificate(Arc<ClientCertificate>),
}

/// What is wrong with a credential. No message contains a value.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// Too many, or a bad name.
    #[error("credentials: {reason}")]
    List {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The number of schemes is not one.
    #[error("credentials.{name}: has {count} of bearer, header, basic and clientCertificate; write exactly one")]
    Scheme {
        /// Of the credential.
        name: String,
        /// How many there are.
        count: usize,
    },
    /// There is no origin, or there are too many.
    #[error("credentials.{name}.origins: {reason}")]
    Origins {
        /// Of the credential.
        name: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// An origin cannot be used.
    #[error("credentials.{name}.origins[{index}]: origin {text:?} {reason}")]
    Origin {
        /// Of the credential.
        name: String,
        /// In the list.
        index: usize,
        /// As written.
        text: String,
        /// What is wrong, and what to write.
        reason: OriginError,
    },
    /// A value could not be read.
    #[error("credentials.{name}.{field}: read file {path}; check that the Secret is mounted there and readable")]
    File {
        /// Of the credential.
        name: String,
        /// For example `bearer`.
        field: &'static str,
        /// As written.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An environment variable is not set.
    #[error(
        "credentials.{name}.{field}: environment variable {variable} is not set; set it for this process, or name a file"
    )]
    Environment {
        /// Of the credential.
        name: String,
        /// For example `bearer`.
        field: &'static str,
        /// As written.
        variable: String,
    },
    /// A Secret does not have the value.
    #[error("credentials.{name}.{field}: {}", place.missing())]
    Secret {
        /// Of the credential.
        name: String,
        /// For example `bearer`.
        field: &'static str,
        /// As written.
        place: SecretKeyRef,
    },
    /// A value cannot be used.
    #[error("credentials.{name}.{field}: {reason}")]
    Value {
        /// Of the credential.
        name: String,
        /// For example `bearer`.
        field: &'static str,
        /// What is wrong, and what to do; never the value.
        reason: String,
    },
}

// === impl Credentials ===

impl Credentials {
    /// The most credentials of one provider. The largest known provider needs three.
    pub const COUNT_MAX: usize = 32;
    /// The largest value, in bytes: enough for a certificate chain; tokens have a few kilobytes.
    pub const VALUE_BYTES_MAX: u64 = 64 * 1024;
    /// The most origins of one credential.
    pub const ORIGINS_MAX: usize = 64;

    /// No credential.
    #[must_use]
    pub fn none() -> Self {
        Self { current: ArcSwap::default() }
    }

    /// Checks the specs and reads all values (blocking). `env` looks up an environment variable of
    /// the host; `secrets` holds the values of the Secrets that the specs name.
    ///
    /// # Errors
    /// The first fault, with its place, the reason and the remedy; never a value.
    pub fn load(
        specs: &BTreeMap<String, CredentialSpec>,
        env: &dyn Fn(&str) -> Option<String>,
        secrets: &SecretValues,
    ) -> Result<Self, CredentialError> {
        if specs.len() > Self::COUNT_MAX {
            let reason = format!("{} are given, at most {} are allowed", specs.len(), Self::COUNT_MAX);
            return Err(CredentialError::List { reason });
        }
        let read = |(name, spec): (&String, &CredentialSpec)| {
            Ok((name.clone(), Reader { name, env, secrets }.credential(spec)?))
        };
        let by_name = specs.iter().map(read).collect::<Result<_, _>>()?;
        let generation = Generation::new(by_name, &Generation::default())?;
        Ok(Self { current: ArcSwap::from_pointee(generation) })
    }

    /// Prepares a change to the values of `other`; [`Self::exchange`] makes the change.
    ///
    /// # Errors
    /// The old and the new values are too large together.
    pub fn rotation_to(&self, other: &Self) -> Result<Rotation, CredentialError> {
        Generation::new(other.current.load().by_name.clone(), &self.current.load()).map(Rotation)
    }

    /// Replaces all values at once; returns the names of the credentials that changed.
    pub fn exchange(&self, Rotation(after): Rotation) -> Vec<String> {
        let before = self.current.load_full();
        let changed = |(name, credential): (&String, &Credential)| {
            let known = before.by_name.get(name).is_some_and(|old| old.proof.same(&credential.proof));
            (!known).then(|| name.clone())
        };
        let changed: Vec<_> = after.by_name.iter().filter_map(changed).collect();
        // If no value changed, the generation stays, and with it the redaction of the previous
        // generation's values.
        if !changed.is_empty() {
            self.current.store(Arc::new(after));
        }
        changed
    }

    /// Removes every value of a credential from `text`. Every text that is shown or logged about
    /// this provider has to pass this function.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        self.current.load().redactor.text(text).into_owned()
    }

    pub(crate) fn current(&self) -> Arc<Generation> {
        self.current.load_full()
    }
}

// === impl Generation ===

impl Generation {
    fn new(by_name: BTreeMap<String, Credential>, before: &Self) -> Result<Self, CredentialError> {
        let secrets = by_name.values().chain(before.by_name.values()).flat_map(|credential| credential.proof.secrets());
        let redactor = Redactor::new(secrets.map(Secret::expose))
            .map_err(|_| CredentialError::List { reason: "the values are too large together".to_owned() })?;
        Ok(Self { by_name, redactor })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Credential> {
        self.by_name.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Credential)> {
        self.by_name.iter()
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }
}

impl Credential {
    pub(crate) fn may_go_to(&self, authority: &Authority) -> bool {
        self.origins.iter().any(|origin| origin.matches(authority))
    }
}

impl Proof {
    fn secrets(&self) -> &[Secret] {
        match self {
            Self::Header { secrets, .. } => secrets,
            // The key never leaves the process: the handshake proves its possession without
            // sending it.
            Self::ClientCertificate(_) => &[],
        }
    }

    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header { name, value, .. }, Self::Header { name: other_name, value: other_value, .. }) => {
                name == other_name && value == other_value
            }
            (Self::ClientCertificate(one), Self::ClientCertificate(other)) => one == other,
            (Self::Header { .. }, Self::ClientCertificate(_)) | (Self::ClientCertificate(_), Self::Header { .. }) => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
