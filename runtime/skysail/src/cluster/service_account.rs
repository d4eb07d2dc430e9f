//! Clients with the identity of a `ServiceAccount`, for `--use-service-account-credentials`.
//!
//! # Guarantees
//! - A valid token is used without a wait. A new token is fetched after four fifths of the old
//!   token's lifetime, or when the API server rejected the old token.
//! - If no new token can be fetched, the old token is used until it expires; then each request
//!   fails with the reason, and the next request fetches a token again.

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

/// Namespace of the `ServiceAccounts`, as upstream.
const NAMESPACE: &str = "kube-system";
/// Requested lifetime of a token, as upstream. The API server's answer may have a shorter one.
const LIFE_SECONDS: i64 = 3600;
/// Pause after a failed fetch while the old token is still valid.
const FETCH_RETRY: Duration = Duration::from_secs(10);

/// Gives a client the identity of a `ServiceAccount`.
#[derive(Clone)]
pub(super) struct ServiceAccountLayer {
    tokens: Client,
    account: &'static str,
}

impl ServiceAccountLayer {
    /// `tokens` fetches the tokens, with the identity of the process.
    pub(super) fn new(tokens: Client, account: &'static str) -> Self {
        Self { tokens, account }
    }

    /// Fetches a token of the account, and creates the account if it is missing. (client)
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

/// A bearer token and its lifetime.
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
    /// Why the last fetch failed; the next request fails with this error.
    failed: Option<BoxError>,
    /// The API server rejected the token: the token was revoked, or its account was recreated.
    refused: Arc<AtomicBool>,
}

impl<S> AsServiceAccount<S> {
    /// Waits until there is a token or an error.
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
                tracing::warn!(
                    account = self.layer.account,
                    error,
                    "cannot fetch a new token; the old token is used on"
                );
                old.refresh = now + FETCH_RETRY;
            }
            (Err(error), None) => {
                let account = self.layer.account;
                self.failed =
                    Some(format!("cannot fetch a token of the ServiceAccount {NAMESPACE}/{account}: {error}").into());
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
