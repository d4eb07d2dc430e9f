//! Builds a credential from an operator's spec: reads the values and refuses invalid ones.
//!
//! No error contains a value.

use std::sync::Arc;

use http::{HeaderName, header};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};

use super::{
    Account, ApplicationCredentialSpec, AwsAccessKeySpec, AwsCredentialsFileSpec, AwsInstanceMetadataSpec, AwsSpec,
    AwsWebIdentitySpec, BasicSpec, ClientAuthentication, ClientCertificate, ClientCertificateSpec, CloudStackSpec,
    Credential, CredentialError, CredentialSpec, Credentials, HeaderSpec, KeystoneNameSpec, KeystonePasswordSpec,
    KeystoneSpec, OAuth2Spec, Proof, SECRET_BYTES_MIN, Secret, SecretValues, ServiceAccountKeySpec, Session, ValueFrom,
    VsphereSpec,
    login::{
        Api, AwsIdentity, AwsRole, ClientIdentity, Endpoint, Keystone, Login, METADATA_URL, OAuth2, ServiceAccountKey,
        Vsphere, Who,
    },
    secret::{basic_spellings, sensitive_header},
    signature::{AwsKeys, AwsSigner, CloudStackKeys},
    spec::{Scheme, field},
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
        let origins = &spec.origins;
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
        let scheme = spec.scheme().map_err(|count| CredentialError::Scheme { name: name(), count })?;
        Ok(Credential { origins, proof: Arc::new(self.proof(scheme)?) })
    }

    fn proof(&self, scheme: Scheme<'_>) -> Result<Proof, CredentialError> {
        let session = |login| Proof::Session(Arc::new(Session::new(login)));
        Ok(match scheme {
            Scheme::Bearer(value) => {
                let token = self.secret(field::BEARER, value)?;
                let text = format!("Bearer {}", token.expose());
                self.header(field::BEARER, header::AUTHORIZATION, &text, vec![token.clone()])?
            }
            Scheme::Header(HeaderSpec { name: header, value }) => {
                let header = self.header_name(header)?;
                let value = self.secret(field::HEADER, value)?;
                self.header(field::HEADER, header, value.expose(), header_secrets(&value))?
            }
            Scheme::Basic(BasicSpec { username, password }) => self.basic(username, password)?,
            Scheme::ClientCertificate(spec) => Proof::ClientCertificate(Arc::new(self.client_certificate(spec)?)),
            Scheme::Keystone(spec) => session(Login::Keystone(self.keystone(spec)?)),
            Scheme::OAuth2(spec) => session(Login::OAuth2(self.oauth2(spec)?)),
            Scheme::ServiceAccountKey(spec) => session(Login::ServiceAccountKey(self.service_account_key(spec)?)),
            Scheme::Vsphere(spec) => self.vsphere(spec)?,
            Scheme::Aws(spec) => self.aws(spec)?,
            Scheme::CloudStack(spec) => self.cloudstack(spec)?,
        })
    }

    fn keystone(&self, spec: &KeystoneSpec) -> Result<Keystone, CredentialError> {
        let KeystoneSpec { auth_url, application_credential, password } = spec;
        let (who, secret) = match (application_credential, password) {
            (Some(spec), None) => self.application_credential(spec)?,
            (None, Some(spec)) => self.keystone_password(spec)?,
            (Some(_), Some(_)) | (None, None) => {
                let reason = "needs one of applicationCredential and password; write exactly one";
                return Err(self.value("keystone", reason));
            }
        };
        Keystone::new(auth_url, who, secret).map_err(|reason| self.value("keystone.authUrl", &reason))
    }

    fn application_credential(&self, spec: &ApplicationCredentialSpec) -> Result<(Who, Secret), CredentialError> {
        let ApplicationCredentialSpec { id, name, user, secret } = spec;
        let credential = match (id, name, user) {
            (Some(id), None, None) => json!({"id": id}),
            (None, Some(name), Some(user)) => {
                json!({"name": name, "user": self.keystone_name("keystone.applicationCredential.user", user)?})
            }
            _ => {
                let reason = "needs id, or name and user; write one of the two";
                return Err(self.value("keystone.applicationCredential", reason));
            }
        };
        Ok((Who::ApplicationCredential(credential), self.secret(field::APPLICATION_SECRET, secret)?))
    }

    fn keystone_password(&self, spec: &KeystonePasswordSpec) -> Result<(Who, Secret), CredentialError> {
        let KeystonePasswordSpec { user, password, project, trust_id } = spec;
        let user = self.keystone_name("keystone.password.user", user)?;
        let scope = match (project, trust_id) {
            (Some(project), None) => {
                json!({"project": self.keystone_name("keystone.password.project", project)?})
            }
            (None, Some(id)) => json!({"OS-TRUST:trust": {"id": id}}),
            (Some(_), Some(_)) | (None, None) => {
                let reason = "needs one of project and trustId; write exactly one";
                return Err(self.value("keystone.password", reason));
            }
        };
        Ok((Who::User { user, scope }, self.secret(field::KEYSTONE_PASSWORD, password)?))
    }

    /// The object by which Keystone knows a user or a project.
    fn keystone_name(&self, field: &'static str, spec: &KeystoneNameSpec) -> Result<Value, CredentialError> {
        let KeystoneNameSpec { id, name, domain_id, domain_name } = spec;
        match (id, name, domain_id, domain_name) {
            (Some(id), None, None, None) => Ok(json!({"id": id})),
            (None, Some(name), Some(id), None) => Ok(json!({"name": name, "domain": {"id": id}})),
            (None, Some(name), None, Some(domain)) => Ok(json!({"name": name, "domain": {"name": domain}})),
            _ => Err(self.value(field, "needs id, or name and one of domainId and domainName; write one of the two")),
        }
    }

    fn oauth2(&self, spec: &OAuth2Spec) -> Result<OAuth2, CredentialError> {
        let OAuth2Spec {
            token_url,
            client_id,
            client_secret,
            client_assertion,
            service_account_token,
            client_authentication,
            scopes,
            parameters,
        } = spec;
        if client_authentication.is_some() && client_secret.is_none() {
            let reason = "is only for clientSecret; remove it";
            return Err(self.value("oauth2.clientAuthentication", reason));
        }
        let identity = match (client_secret, client_assertion, service_account_token) {
            (Some(secret), None, None) => {
                let secret = self.secret(field::CLIENT_SECRET, secret)?;
                match client_authentication {
                    None | Some(ClientAuthentication::Basic) => ClientIdentity::Basic(secret),
                    Some(ClientAuthentication::Body) => ClientIdentity::Body(secret),
                }
            }
            (None, Some(token), None) => ClientIdentity::Assertion(self.secret(field::CLIENT_ASSERTION, token)?),
            (None, None, Some(account)) => ClientIdentity::ServiceAccount(account.clone()),
            _ => {
                let reason = "needs one of clientSecret, clientAssertion and serviceAccountToken; write exactly one";
                return Err(self.value("oauth2", reason));
            }
        };
        if let Some(name) = OAuth2::OWN_PARAMETERS.iter().find(|name| parameters.contains_key(**name)) {
            let reason = format!("has {name:?}, which the grant sets itself; remove it");
            return Err(self.value("oauth2.parameters", &reason));
        }
        self.check_entries("oauth2.scopes", scopes.len())?;
        self.check_entries("oauth2.parameters", parameters.len())?;
        let endpoint = Endpoint::parse(token_url, "").map_err(|reason| self.value("oauth2.tokenUrl", &reason))?;
        let mut parameters = parameters.clone();
        if !scopes.is_empty() {
            parameters.insert("scope".to_owned(), scopes.join(" "));
        }
        Ok(OAuth2::new(endpoint, client_id.clone(), identity, parameters))
    }

    fn service_account_key(&self, spec: &ServiceAccountKeySpec) -> Result<ServiceAccountKey, CredentialError> {
        let ServiceAccountKeySpec { key, scopes } = spec;
        if scopes.is_empty() {
            return Err(self.value("serviceAccountKey.scopes", "is empty; name at least one scope"));
        }
        self.check_entries("serviceAccountKey.scopes", scopes.len())?;
        let file = self.read(field::SERVICE_ACCOUNT_KEY, key)?;
        ServiceAccountKey::new(&file, scopes).map_err(|reason| self.value(field::SERVICE_ACCOUNT_KEY, reason))
    }

    fn vsphere(&self, spec: &VsphereSpec) -> Result<Proof, CredentialError> {
        let VsphereSpec { url, username, password } = spec;
        let password = self.secret(field::VSPHERE_PASSWORD, password)?;
        self.check_username("vsphere.username", username)?;
        if password.expose().chars().any(char::is_control) {
            return Err(self.value(field::VSPHERE_PASSWORD, "has a control character inside; give the value alone"));
        }
        let account = Arc::<Account>::default();
        let session = |api| {
            let login = Vsphere::new(url, api, username, &password);
            let login = login.map_err(|reason| self.value("vsphere.url", &reason))?;
            Ok(Arc::new(Session::of(Login::Vsphere(login), Arc::clone(&account))))
        };
        Ok(Proof::Vsphere { soap: session(Api::Soap)?, rest: session(Api::Rest)? })
    }

    fn aws(&self, spec: &AwsSpec) -> Result<Proof, CredentialError> {
        let AwsSpec { region, service, access_key, credentials_file, web_identity, instance_metadata } = spec;
        let is_plain =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if !is_plain(region) {
            return Err(self.value("aws.region", "is not a region; write one such as eu-west-1"));
        }
        if service.as_deref().is_some_and(|service| !is_plain(service)) {
            return Err(self.value("aws.service", "is not a service; write one such as ec2"));
        }
        let signer = AwsSigner { region: region.clone(), service: service.clone() };
        let keys = match (access_key, credentials_file, web_identity, instance_metadata) {
            (Some(spec), None, None, None) => self.aws_access_key(spec)?,
            (None, Some(AwsCredentialsFileSpec { content, profile }), None, None) => {
                let content = self.read(field::CREDENTIALS_FILE, content)?;
                let keys = AwsKeys::of_file(&content, profile.as_deref().unwrap_or("default"));
                let keys = keys.map_err(|reason| self.value(field::CREDENTIALS_FILE, &reason))?;
                self.check_sent(field::CREDENTIALS_FILE, &keys.id)?;
                keys
            }
            (None, None, Some(spec), None) => {
                let role = self.web_identity(signer, spec)?;
                return Ok(Proof::Session(Arc::new(Session::new(Login::AwsRole(role)))));
            }
            (None, None, None, Some(AwsInstanceMetadataSpec { url })) => {
                let role = AwsRole::of_instance(signer, url.as_deref().unwrap_or(METADATA_URL));
                let role = role.map_err(|reason| self.value("aws.instanceMetadata.url", &reason))?;
                return Ok(Proof::Session(Arc::new(Session::new(Login::AwsRole(role)))));
            }
            _ => {
                let reason =
                    "needs one of accessKey, credentialsFile, webIdentity and instanceMetadata; write exactly one";
                return Err(self.value("aws", reason));
            }
        };
        let secrets = keys.secrets();
        if secrets.iter().any(|secret| secret.expose().len() < SECRET_BYTES_MIN) {
            let reason = format!("has a key that is shorter than {SECRET_BYTES_MIN} bytes; use another one");
            return Err(self.value("aws", &reason));
        }
        Ok(Proof::Aws { signer, keys, secrets })
    }

    fn cloudstack(&self, spec: &CloudStackSpec) -> Result<Proof, CredentialError> {
        let CloudStackSpec { api_key, secret_key } = spec;
        let api_key = self.read(field::API_KEY, api_key)?.expose().to_owned();
        self.check_sent(field::API_KEY, &api_key)?;
        let secret_key = self.secret(field::SECRET_KEY, secret_key)?;
        let secrets = [secret_key.clone()];
        Ok(Proof::CloudStack { keys: CloudStackKeys { api_key, secret_key }, secrets })
    }

    fn web_identity(&self, signer: AwsSigner, spec: &AwsWebIdentitySpec) -> Result<AwsRole, CredentialError> {
        let AwsWebIdentitySpec { role_arn, token, service_account_token, session_name, sts_url } = spec;
        let identity = match (token, service_account_token) {
            (Some(token), None) => AwsIdentity::Token([self.secret(field::WEB_IDENTITY_TOKEN, token)?]),
            (None, Some(account)) => AwsIdentity::ServiceAccount(account.clone()),
            (Some(_), Some(_)) | (None, None) => {
                let reason = "needs one of token and serviceAccountToken; write exactly one";
                return Err(self.value("aws.webIdentity", reason));
            }
        };
        let name = session_name.as_deref().unwrap_or("skysail");
        let role = AwsRole::of_web_identity(signer, sts_url.as_deref(), role_arn, name, identity);
        role.map_err(|reason| self.value("aws.webIdentity.stsUrl", &reason))
    }

    fn aws_access_key(&self, spec: &AwsAccessKeySpec) -> Result<AwsKeys, CredentialError> {
        let AwsAccessKeySpec { id, secret, session_token } = spec;
        let session_token = session_token.as_ref().map(|token| self.secret(field::SESSION_TOKEN, token)).transpose()?;
        if let Some(token) = &session_token {
            self.check_sent(field::SESSION_TOKEN, token.expose())?;
        }
        let id = self.read(field::ACCESS_KEY_ID, id)?.expose().to_owned();
        self.check_sent(field::ACCESS_KEY_ID, &id)?;
        Ok(AwsKeys { id, secret: self.secret(field::SECRET_ACCESS_KEY, secret)?, session_token })
    }

    /// Checks a value that is sent in a header or in the query.
    fn check_sent(&self, field: &'static str, value: &str) -> Result<(), CredentialError> {
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(self.value(field, "is empty, or has a blank or another character inside; give the value alone"));
        }
        Ok(())
    }

    fn check_entries(&self, field: &'static str, count: usize) -> Result<(), CredentialError> {
        let max = CredentialSpec::ENTRIES_MAX;
        if count > max {
            return Err(self.value(field, &format!("has {count} entries, at most {max} are allowed; remove some")));
        }
        Ok(())
    }

    fn check_username(&self, field: &'static str, username: &str) -> Result<(), CredentialError> {
        if username.contains(':') || username.chars().any(char::is_control) {
            return Err(self.value(field, "has a ':' or a control character; use another one"));
        }
        Ok(())
    }

    fn basic(&self, username: &str, password: &ValueFrom) -> Result<Proof, CredentialError> {
        let password = self.secret(field::BASIC, password)?;
        self.check_username("basic.username", username)?;
        let [pair, encoded] = basic_spellings(username, password.expose());
        let text = format!("Basic {}", encoded.expose());
        self.header(field::BASIC, header::AUTHORIZATION, &text, vec![password, pair, encoded])
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
        let value = sensitive_header(text).map_err(|_| {
            self.value(
                field,
                "has a character that a header cannot carry, such as a line break inside; give the value alone",
            )
        })?;
        Ok(Proof::Header { name, value, secrets })
    }

    fn client_certificate(&self, spec: &ClientCertificateSpec) -> Result<ClientCertificate, CredentialError> {
        let ClientCertificateSpec { certificate, key } = spec;
        let pem = self.read(field::CERTIFICATE, certificate)?;
        let chain = CertificateDer::pem_slice_iter(pem.expose().as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.unwrap_or_default();
        if chain.is_empty() {
            return Err(self.value(field::CERTIFICATE, "has no PEM certificate; give the chain, leaf first"));
        }
        let pem = self.read(field::CERTIFICATE_KEY, key)?;
        let key = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).map_err(|_| {
            self.value(field::CERTIFICATE_KEY, "has no PEM key; give PKCS#8, PKCS#1 or SEC1, not encrypted")
        })?;
        let fits = CertifiedKey::from_der(chain.clone(), key.clone_key(), &rustls::crypto::ring::default_provider());
        fits.map_err(|_| {
            self.value(
                field::CERTIFICATE_KEY,
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
