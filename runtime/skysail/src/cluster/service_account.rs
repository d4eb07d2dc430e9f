//! A client that is a `ServiceAccount` of its own: `--use-service-account-credentials`.
//!
//! # Guarantees
//! - No request waits for a token that is good; one is fetched when four fifths of the old one's
//!   life are over, or when the API server refused it.
//! - When none can be fetched, the old one serves to its end; after that each request fails with
//!   the reason and the next one asks again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{
    FutureExt as _, TryFutureExt as _,
    future::{self, BoxFuture},
};
use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Where the accounts are, as upstream's.
const NAMESPACE: &str = "kube-system";
/// What is asked for, as upstream does. The API server may give less, and says so.
const LIFE_SECONDS: i64 = 3600;
/// After a failure the next attempt waits this long while the old token serves.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gives a client the identity of an account.
#[derive(Clone)]
pub(super) struct ServiceAccountLayer {
    tokens: Client,
    account: &'static str,
}

impl ServiceAccountLayer {
    /// `tokens` fetches them, with the process's own identity.
    pub(super) fn new(tokens: Client, account: &'static str) -> Self {
        Self { tokens, account }
    }

    /// A token of the account, which is created where it is missing. (client)
    async fn fetch(self) -> Result<Token, BoxError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.tokens, NAMESPACE);
        let spec = TokenRequestSpec { expiration_seconds: Some(LIFE_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let parameters = PostParams::default();
        let answer = match api.create_token_request(self.account, &parameters, &request).await {
            Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => {
                create(&api, self.account).await?;
                api.create_token_request(self.account, &parameters, &request).await?
            }
            answer => answer?,
        };
        Token::new(answer)
    }
}

async fn create(api: &Api<ServiceAccount>, name: &str) -> Result<(), kube::Error> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    match api.create(&PostParams::default(), &ServiceAccount { metadata, ..ServiceAccount::default() }).await {
        // Another replica was faster.
        Err(kube::Error::Api(status)) if status.code == StatusCode::CONFLICT.as_u16() => Ok(()),
        created => created.map(drop),
    }
}

/// What a request carries, and how long.
struct Token {
    header: HeaderValue,
    refresh: Instant,
    end: Instant,
}

impl Token {
    fn new(answer: TokenRequest) -> Result<Self, BoxError> {
        let token = answer.status.and_then(|status| status.token).ok_or("the API server gave no token")?;
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))?;
        header.set_sensitive(true);
        let life = answer.spec.and_then(|spec| spec.expiration_seconds).unwrap_or(LIFE_SECONDS);
        let (now, life) = (Instant::now(), Duration::from_secs(u64::try_from(life).unwrap_or(0)));
        Ok(Self { header, refresh: now + life * 4 / 5, end: now + life })
    }
}

impl<S> Layer<S> for ServiceAccountLayer {
    type Service = AsServiceAccount<S>;

    fn layer(&self, inner: S) -> AsServiceAccount<S> {
        let refused = Arc::new(AtomicBool::new(false));
        AsServiceAccount { inner, layer: self.clone(), token: None, fetching: None, failed: None, refused }
    }
}

/// See [`ServiceAccountLayer`].
pub(super) struct AsServiceAccount<S> {
    inner: S,
    layer: ServiceAccountLayer,
    token: Option<Token>,
    fetching: Option<BoxFuture<'static, Result<Token, BoxError>>>,
    /// Why there is no token: the next request gets it.
    failed: Option<BoxError>,
    /// The API server refused the token: it was revoked, or its account is another one now.
    refused: Arc<AtomicBool>,
}

impl<S> AsServiceAccount<S> {
    /// Waits until there is a token, or a reason why not.
    fn poll_token(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.refused.swap(false, Ordering::Relaxed) {
            self.token = None;
        }
        let now = Instant::now();
        if self.failed.is_some() || self.token.as_ref().is_some_and(|token| now < token.refresh) {
            return Poll::Ready(());
        }
        let fetching = self.fetching.get_or_insert_with(|| self.layer.clone().fetch().boxed());
        let fetched = ready!(fetching.poll_unpin(cx));
        self.fetching = None;
        match (fetched, self.token.as_mut().filter(|token| now < token.end)) {
            (Ok(token), _) => self.token = Some(token),
            (Err(error), Some(old)) => {
                tracing::warn!(account = self.layer.account, error, "no new token; the old one serves on");
                old.refresh = now + PATIENCE;
            }
            (Err(error), None) => {
                let account = self.layer.account;
                self.failed = Some(format!("no token of the ServiceAccount {NAMESPACE}/{account}: {error}").into());
            }
        }
        Poll::Ready(())
    }
}

impl<S, B, C> Service<Request<B>> for AsServiceAccount<S>
where
    S: Service<Request<B>, Response = Response<C>, Error = BoxError>,
    S::Future: Send + 'static,
    C: Send + 'static,
{
    type Response = Response<C>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<C>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        ready!(self.poll_token(cx));
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(error) = self.failed.take() {
            return future::err(error).boxed();
        }
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.header.clone());
        }
        let refused = Arc::clone(&self.refused);
        let answer = self.inner.call(request).inspect_ok(move |answer| {
            if answer.status() == StatusCode::UNAUTHORIZED {
                refused.store(true, Ordering::Relaxed);
            }
        });
        answer.boxed()
    }
}

#[cfg(test)]
mod tests;
