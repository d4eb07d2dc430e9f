//! Named credentials that the host adds to requests and the guest never sees.
//!
//! A guest writes the *name* of a credential in a request. Two settings of the operator have to
//! allow that: an egress rule allows the request, and the credential's own origins include the
//! request's origin. The host adds the value last, after it has checked the guest's request, and
//! removes the value from the answer ([`redact`]). Values are held in [`Secret`], whose `Debug`
//! shows nothing.
//!
//! The value is the operator's own (a token, a password), or the token of a [`session`], for which
//! the host logs in with the operator's values.
//!
//! [`Credentials::exchange`] replaces all values at once: a request under way keeps the old value,
//! later requests use the new one. Values of the previous generation are still redacted, because
//! answers may still repeat them.
//!
//! Must not send requests and must not decide which addresses are allowed.

mod login;
mod read;
mod redact;
mod secret;
mod session;
mod signature;
mod spec;
mod view;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use tokio::time::Instant;

use crate::policy::{Authority, Origin, OriginError};
use login::Vsphere;
pub(crate) use login::{Endpoint, IssuerResponse, Login, Progress, Step};
use read::Reader;
pub(crate) use redact::{Redactor, SECRET_BYTES_MIN};
pub(crate) use secret::ClientCertificate;
pub use secret::Secret;
pub use session::LoginError;
pub(crate) use session::{Account, Issued, Session, Token};
use signature::{AWS_HEADERS, AwsKeys, AwsSigner, CloudStackKeys};
pub use spec::{
    ApplicationCredentialSpec, AwsAccessKeySpec, AwsCredentialsFileSpec, AwsInstanceMetadataSpec, AwsSpec,
    AwsWebIdentitySpec, BasicSpec, ClientAuthentication, ClientCertificateSpec, CloudStackSpec, CredentialSpec,
    HeaderSpec, KeystoneNameSpec, KeystonePasswordSpec, KeystoneSpec, OAuth2Spec, SecretKeyRef, ServiceAccountKeySpec,
    ServiceAccountTokenSpec, ValueFrom, VsphereSpec,
};

/// Values from Secrets of the cluster, as they were read.
pub type SecretValues = BTreeMap<SecretKeyRef, Secret>;

/// How long the text of a token is redacted, where its lifetime is shorter or not known. An answer
/// may take an hour, and a token may be valid for longer than its issuer says.
const TOKEN_KEPT_MIN: Duration = Duration::from_hours(2);

/// As [`TOKEN_KEPT_MIN`], where the lifetime is longer.
const TOKEN_KEPT_MAX: Duration = Duration::from_hours(24);

/// The most tokens of one credential that are redacted, and the most bytes of them. A cloud that
/// rejects every token causes seven logins in an hour.
const TOKENS_MAX: usize = 16;
const TOKENS_BYTES_MAX: usize = 64 << 10;

/// The credentials of one provider.
#[derive(Debug)]
pub struct Credentials {
    current: ArcSwap<Generation>,
    issued: Mutex<Vec<IssuedSecret>>,
    /// Redacts the values of the current generation, the one before, and of `issued`.
    redactor: ArcSwap<Redactor>,
}

/// A token, which answers may repeat while the token is valid.
#[derive(Clone, Debug)]
struct IssuedSecret {
    /// The name of the credential.
    name: Arc<str>,
    secrets: Vec<Secret>,
    redactor: Redactor,
    until: Instant,
}

/// All credentials as of one reading.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    by_name: BTreeMap<String, Credential>,
    redactor: Redactor,
}

/// Redacts the values of one generation, and every token that is issued until the answer arrives.
#[derive(Clone, Debug)]
pub(crate) struct Redaction {
    generation: Arc<Generation>,
    credentials: Arc<Credentials>,
}

/// New values that are not used yet: see [`Credentials::exchange`].
#[derive(Debug)]
pub struct Rotation(Generation);

/// One credential, ready for use.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    origins: Vec<Origin>,
    pub(crate) proof: Arc<Proof>,
}

/// What is added to a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Proof {
    /// A header; `secrets` are the texts that are redacted from answers.
    Header { name: HeaderName, value: HeaderValue, secrets: Vec<Secret> },
    /// A client certificate for the TLS handshake.
    ClientCertificate(Arc<ClientCertificate>),
    /// The token of a session.
    Session(Arc<Session>),
    /// A signature by keys of AWS.
    Aws { signer: AwsSigner, keys: AwsKeys, secrets: Vec<Secret> },
    /// A signature by the keys of a CloudStack user.
    CloudStack { keys: CloudStackKeys, secrets: [Secret; 1] },
    /// The tokens of vCenter Server's two APIs.
    Vsphere { soap: Arc<Session>, rest: Arc<Session> },
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
    #[error("credentials.{name}: has {count} of {}; write exactly one", CredentialSpec::schemes_listed())]
    Scheme {
        /// The name of the credential.
        name: String,
        /// How many there are.
        count: usize,
    },
    /// There is no origin, or there are too many.
    #[error("credentials.{name}.origins: {reason}")]
    Origins {
        /// The name of the credential.
        name: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// An origin cannot be used.
    #[error("credentials.{name}.origins[{index}]: origin {text:?} {reason}")]
    Origin {
        /// The name of the credential.
        name: String,
        /// The place in the list.
        index: usize,
        /// As written.
        text: String,
        /// What is wrong, and what to write.
        reason: OriginError,
    },
    /// A value could not be read.
    #[error("credentials.{name}.{field}: read file {path}; check that the Secret is mounted there and readable")]
    File {
        /// The name of the credential.
        name: String,
        /// The field of the credential, for example `bearer`.
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
        /// The name of the credential.
        name: String,
        /// The field of the credential, for example `bearer`.
        field: &'static str,
        /// As written.
        variable: String,
    },
    /// A Secret does not have the value.
    #[error("credentials.{name}.{field}: {}", place.missing())]
    Secret {
        /// The name of the credential.
        name: String,
        /// The field of the credential, for example `bearer`.
        field: &'static str,
        /// As written.
        place: SecretKeyRef,
    },
    /// A value cannot be used.
    #[error("credentials.{name}.{field}: {reason}")]
    Value {
        /// The name of the credential.
        name: String,
        /// The field of the credential, for example `bearer`.
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
    /// The largest token that an issuer may return, in bytes: what servers accept in a header.
    pub const TOKEN_BYTES_MAX: usize = 16 << 10;
    /// The most origins of one credential.
    pub const ORIGINS_MAX: usize = 64;

    /// No credential.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Generation::default())
    }

    fn of(generation: Generation) -> Self {
        let redactor = ArcSwap::from_pointee(generation.redactor.clone());
        Self { current: ArcSwap::from_pointee(generation), issued: Mutex::default(), redactor }
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
        Ok(Self::of(Generation::new(by_name, &Generation::default())?))
    }

    /// Prepares a change to the values of `other`; [`Self::exchange`] makes the change.
    ///
    /// # Errors
    /// The old and the new values are too large together.
    pub fn rotation_to(&self, other: &Self) -> Result<Rotation, CredentialError> {
        let before = self.current.load();
        let mut by_name = other.current.load().by_name.clone();
        for (name, credential) in &mut by_name {
            // A session with the same values goes on with its token.
            if let Some(old) = before.by_name.get(name).filter(|old| old.proof == credential.proof) {
                credential.proof = Arc::clone(&old.proof);
            }
        }
        Generation::new(by_name, &before).map(Rotation)
    }

    /// Replaces all values at once; returns the names of the credentials that changed.
    pub fn exchange(&self, Rotation(after): Rotation) -> Vec<String> {
        let before = self.current.load_full();
        let changed = |(name, credential): (&String, &Credential)| {
            let known = before.by_name.get(name).is_some_and(|old| old.proof == credential.proof);
            (!known).then(|| name.clone())
        };
        let changed: Vec<_> = after.by_name.iter().filter_map(changed).collect();
        // If no value changed, the generation stays, and with it the redaction of the previous
        // generation's values.
        if !changed.is_empty() {
            let mut issued = self.issued();
            // First, so that no request has a value that the redactor does not know.
            self.join(&mut issued, after.redactor.clone());
            self.current.store(Arc::new(after));
        }
        changed
    }

    /// Removes every value of a credential from `text`. Every text that is shown or logged about
    /// this provider has to pass this function.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        self.redactor.load().text(text).into_owned()
    }

    pub(crate) fn current(&self) -> Arc<Generation> {
        self.current.load_full()
    }

    /// Redacts the texts of a new token, for as long as the token is valid. Called before the first
    /// request with the token.
    ///
    /// # Errors
    /// A text is too short to be redacted, or too large.
    pub(crate) fn remember(
        &self,
        name: &Arc<str>,
        secrets: &[Secret],
        lifetime: Option<Duration>,
    ) -> Result<(), CredentialError> {
        let refused = |reason| CredentialError::List { reason };
        if let Some(secret) = secrets.iter().find(|secret| secret.expose().len() < SECRET_BYTES_MIN) {
            let bytes = secret.expose().len();
            return Err(refused(format!("the token has {bytes} bytes, and at least {SECRET_BYTES_MIN} are needed")));
        }
        if secrets.iter().any(|secret| secret.expose().len() > Self::TOKEN_BYTES_MAX) {
            return Err(refused(format!("the token has more than {} bytes", Self::TOKEN_BYTES_MAX)));
        }
        let texts = secrets.iter().map(Secret::expose);
        let redactor = Redactor::small(texts).map_err(|_| refused("the token is too large".to_owned()))?;
        let kept = lifetime.unwrap_or_default().clamp(TOKEN_KEPT_MIN, TOKEN_KEPT_MAX);
        let secrets = secrets.to_vec();
        self.keep(IssuedSecret { name: Arc::clone(name), secrets, redactor, until: Instant::now() + kept });
        Ok(())
    }

    /// Redacts the values and the tokens of `before`, too: answers may repeat them.
    pub fn inherit(&self, before: &Self) {
        let until = Instant::now() + TOKEN_KEPT_MIN;
        let generation = before.current.load();
        let secrets = generation.by_name.values().flat_map(|credential| credential.proof.secrets().to_vec()).collect();
        let redactor = generation.redactor.clone();
        let configured = IssuedSecret { name: Arc::from("before"), secrets, redactor, until };
        let tokens = before.issued().clone();
        tokens.into_iter().chain([configured]).for_each(|secret| self.keep(secret));
    }

    fn keep(&self, secret: IssuedSecret) {
        let mut issued = self.issued();
        // A known one is kept for longer, and not twice.
        issued.retain(|known| known.name != secret.name || known.secrets != secret.secrets);
        let name = Arc::clone(&secret.name);
        issued.push(secret);
        let (mut count, mut bytes) = (0, 0);
        // From the newest to the oldest. The newest stays, whatever its size.
        let beyond = issued.iter().rposition(|known| {
            let is_its = known.name == name;
            count += usize::from(is_its);
            bytes += if is_its { known.secrets.iter().map(|secret| secret.expose().len()).sum() } else { 0 };
            is_its && count > 1 && (count > TOKENS_MAX || bytes > TOKENS_BYTES_MAX)
        });
        if let Some(beyond) = beyond {
            issued.remove(beyond);
        }
        self.join(&mut issued, self.current.load().redactor.clone());
    }

    /// Makes the redactor of the configured and all issued values again.
    fn join(&self, issued: &mut Vec<IssuedSecret>, configured: Redactor) {
        let now = Instant::now();
        issued.retain(|secret| secret.until > now);
        let all = issued.iter().fold(configured, |all, secret| all.and(&secret.redactor));
        self.redactor.store(Arc::new(all));
    }

    fn issued(&self) -> MutexGuard<'_, Vec<IssuedSecret>> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
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
}

// === impl Redaction ===

impl Redaction {
    pub(crate) fn new(generation: Arc<Generation>, credentials: Arc<Credentials>) -> Self {
        Self { generation, credentials }
    }

    /// The redactor of everything that is known now.
    pub(crate) fn now(&self) -> Redactor {
        let current = self.credentials.redactor.load();
        if Arc::ptr_eq(&self.generation, &self.credentials.current.load()) {
            return Redactor::clone(&current);
        }
        current.and(&self.generation.redactor)
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
            Self::Header { secrets, .. } | Self::Aws { secrets, .. } => secrets,
            Self::CloudStack { secrets, .. } => secrets,
            // The key never leaves the process: the handshake proves its possession without
            // sending it.
            Self::ClientCertificate(_) => &[],
            // Both logins have the same values.
            Self::Session(session) | Self::Vsphere { soap: session, rest: _ } => session.login().secrets(),
        }
    }

    /// The session that a request to this path needs.
    pub(crate) fn session(&self, path: &str) -> Option<&Arc<Session>> {
        match self {
            Self::Session(session) => Some(session),
            Self::Vsphere { soap, rest } => Some(if Vsphere::is_soap(path) { soap } else { rest }),
            Self::Header { .. } | Self::ClientCertificate(_) | Self::Aws { .. } | Self::CloudStack { .. } => None,
        }
    }

    /// The headers that carry the proof in a request to this path.
    pub(crate) fn headers(&self, path: &str) -> Vec<HeaderName> {
        match (self, self.session(path)) {
            (_, Some(session)) => session.login().headers(),
            (Self::Header { name, .. }, None) => vec![name.clone()],
            (Self::Aws { .. }, None) => AWS_HEADERS.to_vec(),
            (Self::ClientCertificate(_) | Self::CloudStack { .. } | Self::Session(_) | Self::Vsphere { .. }, None) => {
                Vec::new()
            }
        }
    }

    /// Adds the proof to a request. `token` is the session's, `now` the time of the system.
    ///
    /// # Errors
    /// The request cannot be signed.
    pub(crate) fn prove(
        &self,
        token: Option<&Token>,
        request: &mut Request<Bytes>,
        now: SystemTime,
    ) -> Result<(), String> {
        match self {
            Self::Header { name, value, .. } => drop(request.headers_mut().insert(name, value.clone())),
            Self::Aws { signer, keys, .. } => signer.sign(keys, request, now)?,
            Self::CloudStack { keys, .. } => keys.sign(request, now)?,
            Self::ClientCertificate(_) => {}
            Self::Session(_) | Self::Vsphere { .. } => {
                let session = self.session(request.uri().path());
                if let (Some(session), Some(token)) = (session, token) {
                    session.login().prove(&token.proof, request, now)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
