//! Authentication: by a front proxy's headers, a client certificate or a bearer token, otherwise as
//! anonymous, in upstream's order.
//!
//! # Guarantees
//! - Headers with a user are accepted only with a client certificate that the front proxy's CA
//!   signed.
//! - An invalid credential is refused, and never treated as anonymous.
//! - No token is logged or kept: caches contain hashes.

pub(crate) mod authorities;
mod certificate;
mod request_header;
mod token;

use std::{collections::BTreeMap, sync::Arc};

use http::HeaderMap;
use rustls::pki_types::CertificateDer;

pub(crate) use token::Tokens;

use crate::{peer_address::PeerAddress, review::ReviewError};
use authorities::Authorities;

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    /// The name.
    pub(crate) name: String,
    /// The UID, if the authenticator returns one.
    pub(crate) uid: String,
    /// The groups.
    pub(crate) groups: Vec<String>,
    /// Further data of the authenticator.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";
/// The name and the group of unauthenticated users.
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

/// The client certificates of a connection, the client's own first. The handshake has verified only
/// that the client has the key of the first one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) certificates: Arc<[CertificateDer<'static>]>,
}

/// A credential was sent and is not valid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidCredential {
    #[error("the client's certificate: {0}")]
    Certificate(String),
    #[error("the front proxy: {0}")]
    RequestHeader(String),
    #[error("the bearer token is not valid")]
    Token,
    #[error("the bearer token cannot be checked")]
    Review(#[from] ReviewError),
}

/// Authenticates requests.
#[derive(Debug)]
pub(crate) struct Authenticator {
    pub(crate) authorities: Arc<Authorities>,
    /// `None` without an API server: no token is accepted then.
    pub(crate) tokens: Option<Tokens>,
}

impl Authenticator {
    /// The user of a request, or all credentials that were refused.
    pub(crate) async fn authenticate(
        &self,
        client: PeerAddress,
        peer: &Peer,
        headers: &HeaderMap,
    ) -> Result<User, Vec<InvalidCredential>> {
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
            match tokens.authenticate(client, headers).await {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => {}
                Err(error) => refused.push(error),
            }
        }
        if refused.is_empty() { Ok(User::anonymous()) } else { Err(refused) }
    }
}
