//! Sends the logins of sessions. Must not know what a cloud's login consists of, and must not
//! decide when one is needed; [`crate::credentials`] does both.
//!
//! A login is the host's own request: the operator's rules need not allow its URL, which the
//! operator wrote into the credential. The addresses are checked as for every other request.

use std::{error::Error, sync::Arc, time::SystemTime};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use http::Request;
use http_body_util::Full;
use skysail_provider::text::with_causes;
use tokio::time::{Instant, timeout_at};
use tracing::{
    Instrument as _, Span,
    field::{Empty, display},
};

use super::{Failure, FailureKind, HttpBudget, HttpClient};
use crate::{
    credentials::{
        Credentials, Endpoint, Issued, IssuerResponse, Login, LoginError, Progress, Redaction, Secret,
        ServiceAccountTokenSpec, Session, Step, Token,
    },
    policy::{AuthorityHost, EgressPolicy},
    transport::{Client, LookUpError, TransportError, causes},
};

/// The largest answer to a login, in bytes. Keystone's answer includes the catalogue of all
/// services and regions.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Issues tokens of ServiceAccounts.
#[async_trait]
pub trait ServiceAccountTokens: Send + Sync {
    /// A new token for the audience.
    ///
    /// # Errors
    /// The API server refuses the token, or cannot be reached.
    async fn token(&self, account: &ServiceAccountTokenSpec) -> Result<Secret, LoginError>;
}

/// What a login needs; the login goes on when the request that began it has ended.
struct Issuer {
    client: Client,
    policy: Arc<EgressPolicy>,
    credentials: Arc<Credentials>,
    name: Arc<str>,
    session: Arc<Session>,
    accounts: Option<Arc<dyn ServiceAccountTokens>>,
}

impl HttpClient {
    /// A valid token of the session; waits for a login at most until the request ends.
    pub(super) async fn token(
        &self,
        budget: &HttpBudget,
        (name, session): (&Arc<str>, &Arc<Session>),
        rejected: Option<&Arc<Token>>,
        until: Instant,
    ) -> Result<Arc<Token>, Failure> {
        budget.fence().check().map_err(Failure::fenced)?;
        let is_direct = session.login().asks_metadata_service();
        let issuer = || {
            let issuer = Issuer {
                // A proxy would ask the metadata service of its own machine.
                client: if is_direct { self.clients.direct() } else { self.clients.plain() },
                policy: Arc::clone(&self.policy),
                credentials: Arc::clone(&self.credentials),
                name: Arc::clone(name),
                session: Arc::clone(session),
                accounts: self.accounts.clone(),
            };
            // Calls that wait for the same login share it; the span is below the first of them.
            let url = session.login().endpoint().0.url.as_str();
            let span = tracing::debug_span!(
                "login",
                credential.name = &**name,
                url.full = url,
                "error.type" = Empty,
                error.message = Empty,
            );
            issuer.log_in().instrument(span).boxed()
        };
        let token = session.token(rejected, issuer);
        let late = || LoginError::Unavailable("the request ended before the login".to_owned());
        let token = timeout_at(until, token).await.unwrap_or_else(|_| Err(late()));
        token.map_err(|error| Failure::new(kind(&error), format!("credential {name:?}: {error}")))
    }
}

/// What a request that needs the login ends with.
const fn kind(error: &LoginError) -> FailureKind {
    match error {
        LoginError::Refused(_) | LoginError::Unauthenticated(_) => FailureKind::CredentialRefused,
        LoginError::Unavailable(_) => FailureKind::CredentialUnavailable,
    }
}

impl Issuer {
    async fn log_in(self) -> Result<Issued, LoginError> {
        let login = self.session.login();
        let result = self.issued(login).await;
        let result = result.and_then(|issued| {
            let remembered = self.credentials.remember(&self.name, &issued.secrets, issued.lifetime);
            remembered.map_err(|error| LoginError::Unavailable(error.to_string()))?;
            Ok(issued)
        });
        let result = result.map_err(|error| error.map(|text| self.credentials.redact(&text)));
        let url = login.endpoint().0.url.as_str();
        match &result {
            Ok(issued) => {
                let seconds = issued.lifetime.map(|lifetime| lifetime.as_secs());
                tracing::info!(credential = %self.name, url, lifetime_seconds = seconds, "logged in");
            }
            Err(error) => {
                tracing::warn!(credential = %self.name, url, reason = %error, "login failed");
                let span = Span::current();
                span.record("error.type", kind(error).name()).record("error.message", display(error));
            }
        }
        result
    }

    async fn issued(&self, login: &Login) -> Result<Issued, LoginError> {
        let Endpoint(target) = login.endpoint();
        // The addresses of a name are checked when the connection is made.
        if let AuthorityHost::Address(address) = target.authority.host
            && !login.asks_metadata_service()
        {
            self.policy.judge_address(address).map_err(|refused| LoginError::Refused(format!("{refused}; {ALLOW}")))?;
        }
        let mut progress = Progress::default();
        if let Some(account) = login.account() {
            progress.account_token = Some(self.account_token(account).await?);
        }
        loop {
            match login.step(&progress, system_time())? {
                Step::Send(request) => progress.answers.push(self.answer(request).await?),
                Step::Done(issued) => return Ok(issued),
            }
        }
    }

    async fn account_token(&self, account: &ServiceAccountTokenSpec) -> Result<Secret, LoginError> {
        let Some(accounts) = &self.accounts else {
            let reason = "serviceAccountToken needs a cluster, and there is none here; give a token";
            return Err(LoginError::Refused(reason.to_owned()));
        };
        let token = accounts.token(account).await?;
        // Under another name, so that it displaces no token of the cloud.
        let name = format!("{}/account", self.name).into();
        let remembered = self.credentials.remember(&name, std::slice::from_ref(&token), None);
        remembered.map_err(|error| LoginError::Unavailable(error.to_string()))?;
        Ok(token)
    }

    async fn answer(&self, request: Request<Bytes>) -> Result<IssuerResponse, LoginError> {
        let mut answer = self.client.send(request.map(Full::new), |_| ()).await.map_err(|error| failed(&error))?;
        let mut body = BytesMut::new();
        while let Some(piece) = answer.piece().await.map_err(|error| failed(&error))? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                let reason = format!("the answer has more than {ANSWER_BYTES_MAX} bytes; check the URL");
                return Err(LoginError::Unavailable(reason));
            }
            body.extend_from_slice(&piece);
        }
        let head = answer.head;
        let mut body = body.freeze();
        if !head.status.is_success() {
            // The error may repeat what was sent. It is redacted before it is shortened.
            let redaction = Redaction::new(self.credentials.current(), Arc::clone(&self.credentials));
            body = redaction.now().bytes(&body).unwrap_or(body);
        }
        Ok(IssuerResponse { status: head.status, headers: head.headers, body })
    }
}

fn failed(error: &TransportError) -> LoginError {
    let is_refused = |cause: &&(dyn Error + 'static)| {
        matches!(cause.downcast_ref::<LookUpError>(), Some(LookUpError::Refused { .. }))
    };
    let text = with_causes(error);
    if causes(error).iter().any(is_refused) {
        return LoginError::Refused(format!("{text}; {ALLOW}"));
    }
    LoginError::Unavailable(text)
}

/// The remedy for an issuer with a private address.
const ALLOW: &str = "add the address to egress.allowCidrs, or correct the URL";

#[expect(clippy::disallowed_methods, reason = "the peer compares the time of a signature with its own clock")]
pub(super) fn system_time() -> SystemTime {
    SystemTime::now()
}
