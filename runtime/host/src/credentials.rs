//! Named credentials that the host adds to requests and the guest never sees.
//!
//! A guest writes the *name* of a credential in a request. Whether it may is the operator's decision, twice: the egress rules allow the
//! request, and the credential's own origins allow *it* there. The value is added last, after everything of the guest's was judged, and
//! is taken out of whatever comes back ([`redact`]). Values live in [`Secret`], whose `Debug` shows nothing.
//!
//! [`Credentials::reload`] reads all values again and exchanges them at once: requests that began keep the value they began with, later
//! ones take the new one. Values of the previous generation are still redacted, because answers may still repeat them.
//!
//! Must not send anything and must not decide about addresses.

mod read;
mod redact;
mod secret;
mod spec;
mod view;

use std::{collections::BTreeMap, io, sync::Arc};

use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue};

use crate::egress::{Authority, Origin, OriginError};
use read::Reader;
pub(crate) use redact::{Redactor, SECRET_BYTES_MIN};
pub(crate) use secret::ClientCertificate;
pub use secret::Secret;
pub use spec::{BasicSpec, ClientCertificateSpec, CredentialSpec, HeaderSpec, ValueFrom};

/// The credentials of one provider.
#[derive(Debug)]
pub struct Credentials {
    specs: BTreeMap<String, CredentialSpec>,
    current: ArcSwap<Generation>,
}

/// All credentials as of one reading.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    by_name: BTreeMap<String, Credential>,
    redactor: Redactor,
}

/// Values that were read again and are not in force yet.
#[derive(Debug)]
pub struct Reading(Generation);

/// One credential, ready for use.
#[derive(Debug)]
pub(crate) struct Credential {
    origins: Vec<Origin>,
    pub(crate) proof: Proof,
}

/// What is added to a request.
#[derive(Debug)]
pub(crate) enum Proof {
    /// A header; `secrets` are the texts that must not come back.
    Header { name: HeaderName, value: HeaderValue, secrets: Vec<Secret> },
    /// A certificate of the connection.
    ClientCertificate(Arc<ClientCertificate>),
}

/// What is wrong with a credential. No text of it contains a value.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// Too many, or a bad name.
    #[error("credentials: {reason}")]
    List {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Not exactly one scheme.
    #[error("credentials.{name}: has {count} of bearer, header, basic and clientCertificate; write exactly one")]
    Scheme {
        /// Of the credential.
        name: String,
        /// How many there are.
        count: usize,
    },
    /// No origin, or too many.
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
    /// A value is not there.
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
    /// The most credentials of one provider: the largest that we know needs three.
    pub const COUNT_MAX: usize = 32;
    /// The largest value, in bytes: a certificate chain; tokens have at most some kilobytes.
    pub const VALUE_BYTES_MAX: u64 = 64 * 1024;
    /// The most origins of one credential.
    pub const ORIGINS_MAX: usize = 64;

    /// Checks the specs and reads all values (blocking); `env` looks up an environment variable of the host.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place, the reason and the way out; never a value.
    pub fn load(
        specs: BTreeMap<String, CredentialSpec>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, CredentialError> {
        let generation = Generation::read(&specs, env, &Generation::default())?;
        Ok(Self { specs, current: ArcSwap::from_pointee(generation) })
    }

    /// Reads all values again (blocking) and exchanges them at once; returns the names of those that changed.
    ///
    /// # Errors
    /// As [`Self::load`]; then the values of before stay in force.
    pub fn reload(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<String>, CredentialError> {
        Ok(self.exchange(self.read_again(env)?))
    }

    /// Reads all values again (blocking) and changes nothing yet.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn read_again(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Reading, CredentialError> {
        Ok(Reading(Generation::read(&self.specs, env, &self.current.load())?))
    }

    /// Exchanges all values at once; returns the names of those that changed.
    pub fn exchange(&self, Reading(after): Reading) -> Vec<String> {
        let before = self.current.load_full();
        let changed = |(name, credential): (&String, &Credential)| {
            let known = before.by_name.get(name).is_some_and(|old| old.proof.same(&credential.proof));
            (!known).then(|| name.clone())
        };
        let changed: Vec<_> = after.by_name.iter().filter_map(changed).collect();
        // An unchanged reading keeps the generation, and with it the values of before that are still redacted.
        if !changed.is_empty() {
            self.current.store(Arc::new(after));
        }
        changed
    }

    /// `text` without any value of a credential: for everything that is shown or logged about this provider.
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
    fn read(
        specs: &BTreeMap<String, CredentialSpec>,
        env: &dyn Fn(&str) -> Option<String>,
        before: &Self,
    ) -> Result<Self, CredentialError> {
        if specs.len() > Credentials::COUNT_MAX {
            let reason = format!("{} are given, at most {} are allowed", specs.len(), Credentials::COUNT_MAX);
            return Err(CredentialError::List { reason });
        }
        let mut by_name = BTreeMap::new();
        for (name, spec) in specs {
            by_name.insert(name.clone(), Reader { name, env }.credential(spec)?);
        }
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
            // The key never leaves the process: a handshake proves that it is there without sending it.
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
