//! Builds a credential from an operator's spec: reads the values and refuses invalid ones.
//!
//! No error contains a value.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose};
use http::{HeaderName, HeaderValue, header};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use super::{
    BasicSpec, ClientCertificate, ClientCertificateSpec, Credential, CredentialError, CredentialSpec, Credentials,
    HeaderSpec, Proof, SECRET_BYTES_MIN, Secret, SecretValues, ValueFrom,
};
use crate::policy::Origin;

/// Reads the values of one credential.
pub(super) struct Reader<'a> {
    pub(super) name: &'a str,
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    pub(super) secrets: &'a SecretValues,
}

impl Reader<'_> {
    pub(super) fn credential(&self, spec: &CredentialSpec) -> Result<Credential, CredentialError> {
        let CredentialSpec { origins, bearer, header, basic, client_certificate } = spec;
        let name = || self.name.to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > 63 || !self.name.chars().all(plain) {
            let reason = format!("{:?} cannot be a name; use 1 to 63 letters, digits, '-', '_' and '.'", self.name);
            return Err(CredentialError::List { reason });
        }
        if origins.is_empty() || origins.len() > Credentials::ORIGINS_MAX {
            let reason = format!("has {} entries; name 1 to {} origins", origins.len(), Credentials::ORIGINS_MAX);
            return Err(CredentialError::Origins { name: name(), reason });
        }
        let origins = origins.iter().enumerate().map(|(index, text)| {
            Origin::parse(text).map_err(|reason| CredentialError::Origin {
                name: name(),
                index,
                text: text.clone(),
                reason,
            })
        });
        let origins = origins.collect::<Result<_, _>>()?;
        let proof = match (bearer, header, basic, client_certificate) {
            (Some(value), None, None, None) => {
                let token = self.secret("bearer", value)?;
                self.header(
                    "bearer",
                    header::AUTHORIZATION,
                    &format!("Bearer {}", token.expose()),
                    vec![token.clone()],
                )?
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
            return Err(self.value("basic.username", "has a ':' or a control character; use another one"));
        }
        let pair = Secret::new(format!("{username}:{}", password.expose()));
        let encoded = Secret::new(general_purpose::STANDARD.encode(pair.expose()));
        let text = format!("Basic {}", encoded.expose());
        self.header("basic.password", header::AUTHORIZATION, &text, vec![password, pair, encoded])
    }

    fn header_name(&self, text: &str) -> Result<HeaderName, CredentialError> {
        let name: HeaderName = text
            .parse()
            .map_err(|_| self.value("header.name", "is not a header name; write one such as X-Auth-Token"))?;
        if crate::header_names::is_hosts_header(&name) {
            return Err(self.value("header.name", "is a header that only the host may set; use another one"));
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
        let mut value = HeaderValue::from_str(text).map_err(|_| {
            self.value(
                field,
                "has a character that a header cannot carry, such as a line break inside; give the value alone",
            )
        })?;
        // Keeps the value out of Debug output and of HTTP/2's header compression tables.
        value.set_sensitive(true);
        Ok(Proof::Header { name, value, secrets })
    }

    fn client_certificate(&self, spec: &ClientCertificateSpec) -> Result<ClientCertificate, CredentialError> {
        let ClientCertificateSpec { certificate, key } = spec;
        let pem = self.read("clientCertificate.certificate", certificate)?;
        let chain = CertificateDer::pem_slice_iter(pem.expose().as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.unwrap_or_default();
        if chain.is_empty() {
            return Err(
                self.value("clientCertificate.certificate", "has no PEM certificate; give the chain, leaf first")
            );
        }
        let pem = self.read("clientCertificate.key", key)?;
        let key = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).map_err(|_| {
            self.value("clientCertificate.key", "has no PEM key; give PKCS#8, PKCS#1 or SEC1, not encrypted")
        })?;
        let fits = CertifiedKey::from_der(chain.clone(), key.clone_key(), &rustls::crypto::ring::default_provider());
        fits.map_err(|_| {
            self.value(
                "clientCertificate.key",
                "does not belong to the certificate, or is of an unknown kind; give the certificate's own key",
            )
        })?;
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
            ValueFrom::SecretKeyRef(place) => {
                let value = self.secrets.get(place).ok_or_else(|| CredentialError::Secret {
                    name: self.name.to_owned(),
                    field,
                    place: place.clone(),
                })?;
                if value.expose().len() as u64 > Credentials::VALUE_BYTES_MAX {
                    let reason =
                        format!("is larger than {} bytes; name the key of the value", Credentials::VALUE_BYTES_MAX);
                    return Err(self.value(field, &reason));
                }
                value.expose().to_owned()
            }
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
                let bytes = crate::read_file(path, Credentials::VALUE_BYTES_MAX).map_err(failed)?;
                String::from_utf8(bytes)
                    .map_err(|_| self.value(field, "is not UTF-8 text; name the file of the value"))?
            }
        };
        Ok(Secret::new(text.trim_ascii_end()))
    }

    fn value(&self, field: &'static str, reason: &str) -> CredentialError {
        CredentialError::Value { name: self.name.to_owned(), field, reason: reason.to_owned() }
    }
}

/// The texts to redact for a header: its whole value, and the parts after a scheme
/// (`PVEAPIToken=user@realm!id=uuid`, `Token abc`), because servers echo either.
fn header_secrets(value: &Secret) -> Vec<Secret> {
    let parts = value.expose().split([' ', '=']).skip(1).filter(|part| part.len() >= SECRET_BYTES_MIN * 2);
    std::iter::once(value.clone()).chain(parts.map(Secret::new)).collect()
}
