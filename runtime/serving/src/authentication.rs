//! Who asks: a front proxy's word, a client certificate, a token, else nobody in particular. In
//! this order, as upstream.
//!
//! # Guarantees
//! - Headers about a user are believed only beside a certificate that the front proxy's authority
//!   signed.
//! - Who shows a credential that nobody vouches for is refused, and not taken for anonymous.
//! - No token is logged or kept: caches know hashes.

pub(crate) mod authorities;
mod certificate;
mod request_header;
mod token;

use std::{collections::BTreeMap, sync::Arc};

use http::HeaderMap;
use rustls::pki_types::CertificateDer;

pub(crate) use token::Tokens;

use authorities::Authorities;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    /// The name.
    pub(crate) name: String,
    /// The UID, where the authenticator has one.
    pub(crate) uid: String,
    /// The groups.
    pub(crate) groups: Vec<String>,
    /// What else the authenticator says.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// Everybody who showed that they are somebody.
const AUTHENTICATED: &str = "system:authenticated";
/// Nobody in particular.
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

impl User {
    pub(crate) fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// The other end of a connection: the certificates that it showed, its own first. It has the key of
/// the first; nothing else is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) certificates: Arc<[CertificateDer<'static>]>,
}

/// A credential was shown, and nobody vouches for it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the client's certificate: {0}")]
    Certificate(String),
    #[error("the front proxy: {0}")]
    RequestHeader(String),
    #[error("the bearer token is not valid")]
    Token,
    #[error("the bearer token could not be reviewed")]
    Review(#[source] Box<kube::Error>),
    #[error("the bearer token could not be reviewed in time")]
    ReviewTimeout,
}

/// Finds out who asks.
#[derive(Debug)]
pub(crate) struct Authenticator {
    pub(crate) authorities: Arc<Authorities>,
    /// None where there is no API server to ask: then no token is accepted.
    pub(crate) tokens: Option<Tokens>,
}

impl Authenticator {
    /// Who asks.
    pub(crate) async fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<User, Vec<Refused>> {
        let mut refused = Vec::new();
        let front_proxy = self.authorities.front_proxy();
        let from_header = front_proxy.as_ref().map(|proxy| proxy.authenticate(peer, headers));
        let from_certificate = || self.authorities.client_ca().map(|ca| certificate::authenticate(&ca, peer));
        for found in from_header.into_iter().chain(from_certificate()) {
            match found {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => {}
                Err(error) => refused.push(error),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.authenticate(headers).await {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => {}
                Err(error) => refused.push(error),
            }
        }
        if refused.is_empty() { Ok(User::anonymous()) } else { Err(refused) }
    }
}
