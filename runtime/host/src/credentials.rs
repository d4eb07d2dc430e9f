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

mod redact;
mod secret;
mod spec;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use arc_swap::ArcSwap;
use base64::{Engine as _, engine::general_purpose};
use http::{HeaderName, HeaderValue, header};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use crate::egress::{Authority, Origin, OriginError};
pub(crate) use redact::{Redactor, SECRET_BYTES_MIN};
pub use secret::Secret;
pub(crate) use secret::ClientCertificate;
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
    #[error("credentials.{name}.{field}: environment variable {variable} is not set")]
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
        let before = self.current.load_full();
        let after = Generation::read(&self.specs, env, &before)?;
        let changed = |(name, credential): (&String, &Credential)| {
            let known = before.by_name.get(name).is_some_and(|old| old.proof.same(&credential.proof));
            (!known).then(|| name.clone())
        };
        let changed: Vec<_> = after.by_name.iter().filter_map(changed).collect();
        // An unchanged reading keeps the generation, and with it the values of before that are still redacted.
        if !changed.is_empty() {
            self.current.store(Arc::new(after));
        }
        Ok(changed)
    }

    /// The files that values come from, for whoever watches them.
    #[must_use]
    pub fn files(&self) -> Vec<&Path> {
        let values = self.specs.values().flat_map(|spec| {
            let CredentialSpec { origins: _, bearer, header, basic, client_certificate } = spec;
            let header = header.as_ref().map(|spec| &spec.value);
            let basic = basic.as_ref().map(|spec| &spec.password);
            let certificate = client_certificate.as_ref().map(|spec| &spec.certificate);
            let key = client_certificate.as_ref().map(|spec| &spec.key);
            [bearer.as_ref(), header, basic, certificate, key].into_iter().flatten()
        });
        let files = values.filter_map(|value| match value {
            ValueFrom::File(path) => Some(path.as_path()),
            ValueFrom::Env(_) => None,
        });
        files.collect()
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
            (Self::Header { .. }, Self::ClientCertificate(_)) | (Self::ClientCertificate(_), Self::Header { .. }) => false,
        }
    }
}

// === reading ===

/// Reads the values of one credential.
struct Reader<'a> {
    name: &'a str,
    env: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    fn credential(&self, spec: &CredentialSpec) -> Result<Credential, CredentialError> {
        let CredentialSpec { origins, bearer, header, basic, client_certificate } = spec;
        let name = || self.name.to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > 63 || !self.name.chars().all(plain) {
            let reason = "a name has 1 to 63 letters, digits, '-', '_' and '.'".to_owned();
            return Err(CredentialError::List { reason });
        }
        if origins.is_empty() || origins.len() > Credentials::ORIGINS_MAX {
            let reason = format!("has {} entries; name 1 to {} origins", origins.len(), Credentials::ORIGINS_MAX);
            return Err(CredentialError::Origins { name: name(), reason });
        }
        let origins = origins.iter().enumerate().map(|(index, text)| {
            Origin::parse(text)
                .map_err(|reason| CredentialError::Origin { name: name(), index, text: text.clone(), reason })
        });
        let origins = origins.collect::<Result<_, _>>()?;
        let proof = match (bearer, header, basic, client_certificate) {
            (Some(value), None, None, None) => {
                let token = self.secret("bearer", value)?;
                self.header("bearer", header::AUTHORIZATION, &format!("Bearer {}", token.expose()), vec![token.clone()])?
            }
            (None, Some(HeaderSpec { name: header, value }), None, None) => {
                let header = self.header_name(header)?;
                let value = self.secret("header.value", value)?;
                self.header("header.value", header, value.expose(), header_secrets(&value))?
            }
            (None, None, Some(BasicSpec { username, password }), None) => self.basic(username, password)?,
            (None, None, None, Some(spec)) => Proof::ClientCertificate(Arc::new(self.client_certificate(spec)?)),
            _ => {
                let there = [bearer.is_some(), header.is_some(), basic.is_some(), client_certificate.is_some()];
                let count = there.into_iter().filter(|there| *there).count();
                return Err(CredentialError::Scheme { name: name(), count });
            }
        };
        Ok(Credential { origins, proof })
    }

    fn basic(&self, username: &str, password: &ValueFrom) -> Result<Proof, CredentialError> {
        let password = self.secret("basic.password", password)?;
        if username.contains(':') || username.chars().any(char::is_control) {
            return Err(self.value("basic.username", "has a ':' or a control character"));
        }
        let pair = Secret::new(format!("{username}:{}", password.expose()));
        let encoded = Secret::new(general_purpose::STANDARD.encode(pair.expose()));
        let text = format!("Basic {}", encoded.expose());
        self.header("basic.password", header::AUTHORIZATION, &text, vec![password, pair, encoded])
    }

    fn header_name(&self, text: &str) -> Result<HeaderName, CredentialError> {
        let name: HeaderName = text.parse().map_err(|_| self.value("header.name", "is not a header name"))?;
        if crate::http_client::is_hosts_header(&name) {
            return Err(self.value("header.name", "is a header that the connection sets by itself; use another one"));
        }
        Ok(name)
    }

    fn header(
        &self,
        field: &'static str,
        name: HeaderName,
        text: &str,
        secrets: Vec<Secret>,
    ) -> Result<Proof, CredentialError> {
        let mut value = HeaderValue::from_str(text)
            .map_err(|_| self.value(field, "has a character that a header cannot carry, such as a line break inside"))?;
        // Keeps it out of Debug texts and of HTTP/2's compression tables.
        value.set_sensitive(true);
        Ok(Proof::Header { name, value, secrets })
    }

    fn client_certificate(&self, spec: &ClientCertificateSpec) -> Result<ClientCertificate, CredentialError> {
        let ClientCertificateSpec { certificate, key } = spec;
        let pem = self.read("clientCertificate.certificate", certificate)?;
        let chain = CertificateDer::pem_slice_iter(pem.expose().as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.unwrap_or_default();
        if chain.is_empty() {
            return Err(self.value("clientCertificate.certificate", "has no PEM certificate"));
        }
        let pem = self.read("clientCertificate.key", key)?;
        let key = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes())
            .map_err(|_| self.value("clientCertificate.key", "has no PEM key (PKCS#8, PKCS#1 or SEC1, not encrypted)"))?;
        Ok(ClientCertificate { chain, key })
    }

    fn secret(&self, field: &'static str, from: &ValueFrom) -> Result<Secret, CredentialError> {
        let secret = self.read(field, from)?;
        if secret.expose().len() < SECRET_BYTES_MIN {
            let reason = format!(
                "is shorter than {SECRET_BYTES_MIN} bytes: it could be guessed and could not be redacted from answers; use a longer one"
            );
            return Err(self.value(field, &reason));
        }
        Ok(secret)
    }

    fn read(&self, field: &'static str, from: &ValueFrom) -> Result<Secret, CredentialError> {
        let text = match from {
            ValueFrom::Env(variable) => (self.env)(variable).ok_or_else(|| CredentialError::Environment {
                name: self.name.to_owned(),
                field,
                variable: variable.clone(),
            })?,
            ValueFrom::File(path) => {
                let failed = |source| CredentialError::File {
                    name: self.name.to_owned(),
                    field,
                    path: path.display().to_string(),
                    source,
                };
                let bytes = read_bounded(path, Credentials::VALUE_BYTES_MAX).map_err(failed)?;
                String::from_utf8(bytes).map_err(|_| self.value(field, "is not UTF-8 text"))?
            }
        };
        Ok(Secret::new(text.trim_ascii_end()))
    }

    fn value(&self, field: &'static str, reason: &str) -> CredentialError {
        CredentialError::Value { name: self.name.to_owned(), field, reason: reason.to_owned() }
    }
}

/// A header's whole value, and its part behind a scheme (`PVEAPIToken=user@realm!id=uuid`, `Token abc`): servers echo either.
fn header_secrets(value: &Secret) -> Vec<Secret> {
    let parts = value.expose().split([' ', '=']).skip(1).filter(|part| part.len() >= SECRET_BYTES_MIN * 2);
    std::iter::once(value.clone()).chain(parts.map(Secret::new)).collect()
}

/// A regular file's content, refused above `bytes_max` without reading further.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
