//! Authenticates and authorizes each request. Answers 401, 403, 429 and 500 as Kubernetes'
//! components do.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderValue, Method, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS},
};
use kube::Client;
use serde_json::{Value, json};
use skysail_provider::text::with_causes;
use tokio_util::sync::CancellationToken;

use crate::{
    authentication::{Authenticator, InvalidCredential, Peer, Tokens, User, authorities::Authorities},
    authorization::{Authorizer, Decision},
    error::ServingError,
    line_rate::LineRate,
    options::{AuthenticationOptions, AuthorizationOptions},
    peer_address::PeerAddress,
    review::ReviewError,
};

/// Seconds after which a client may repeat a request that was answered 429; upstream's API server
/// says the same.
const RETRY_AFTER_SECONDS: u16 = 1;

/// Clients of the API servers that authenticate tokens and authorize requests.
#[derive(Clone, Default)]
pub struct Reviewers {
    /// `--authentication-kubeconfig`, or the pod's service account. `None`: every client without a
    /// trusted certificate is anonymous.
    pub authentication: Option<Client>,
    /// `--authorization-kubeconfig`, or the pod's service account. `None`: only the always-allowed
    /// paths and groups are served.
    pub authorization: Option<Client>,
}

/// Authenticates and authorizes requests.
#[derive(Debug)]
pub struct Guard {
    authenticator: Authenticator,
    authorizer: Authorizer,
    refusals: LineRate,
    /// Lines about reviews that failed.
    failures: LineRate,
}

impl Guard {
    /// Reads the certificate authorities, from files and from the cluster.
    ///
    /// # Errors
    /// A file is not a CA bundle, or the cluster's ConfigMap cannot be read and this is not
    /// tolerated.
    pub async fn new(
        authentication: &AuthenticationOptions,
        authorization: AuthorizationOptions,
        reviewers: Reviewers,
    ) -> Result<Arc<Self>, ServingError> {
        let authorities = Authorities::load(authentication, reviewers.authentication.clone()).await?;
        let tokens = reviewers.authentication.map(|client| Tokens::new(client, authentication.token_cache_ttl));
        Ok(Arc::new(Self {
            authenticator: Authenticator { authorities: Arc::new(authorities), tokens },
            authorizer: Authorizer::new(authorization, reviewers.authorization),
            refusals: LineRate::default(),
            failures: LineRate::default(),
        }))
    }

    /// Follows changes of the certificate authorities.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        Arc::clone(&self.authenticator.authorities).follow(stop).await;
    }

    fn log_refusal(&self, client: PeerAddress, reason: &str) {
        if let Some(left_out) = self.refusals.take() {
            tracing::info!("a request of the client {client} is refused: {reason}{left_out}");
        }
    }
}

/// Passes a request on, or answers it with an error.
pub(crate) async fn guard(
    State(guard): State<Arc<Guard>>,
    Extension(client): Extension<PeerAddress>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
    let user = match guard.authenticator.authenticate(client, &peer, request.headers()).await {
        Ok(user) => user,
        Err(refused) => {
            let reasons: Vec<_> = refused.iter().map(|error| with_causes(error)).collect();
            guard.log_refusal(client, &reasons.join("; "));
            let no_place = |error: &_| matches!(error, InvalidCredential::Review(ReviewError::NoPlace { .. }));
            if refused.iter().any(no_place) {
                return too_many_requests();
            }
            return status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", json!({}));
        }
    };
    let (verb, path) = (verb(request.method()), request.uri().path());
    match guard.authorizer.authorize(client, &user, &verb, path).await {
        Ok(Decision::Allowed) => next.run(request).await,
        Ok(Decision::Denied) => forbidden(&user, &verb, path),
        Err(error @ ReviewError::NoPlace { .. }) => {
            guard.log_refusal(client, &error.to_string());
            too_many_requests()
        }
        Err(error) => {
            if let Some(left_out) = guard.failures.take() {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a request is answered 500: its authorization cannot be checked{left_out}"
                );
            }
            let text = format!(
                "Internal Server Error: {path:?}: the authorization of the request cannot be checked; see the manager's log\n"
            );
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

/// The verb of a non-resource request is the method in lower case.
fn verb(method: &Method) -> String {
    method.as_str().to_lowercase()
}

fn forbidden(user: &User, verb: &str, path: &str) -> Response {
    let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
    let mut response = status(StatusCode::FORBIDDEN, "Forbidden", &message, json!({}));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn too_many_requests() -> Response {
    let message = "Too many requests, please try again later.";
    let details = json!({ "retryAfterSeconds": RETRY_AFTER_SECONDS });
    let mut response = status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message, details);
    response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    response
}

/// A `Status` object, which every Kubernetes client reads.
pub(crate) fn status(code: StatusCode, reason: &str, message: &str, details: Value) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code.as_u16(),
    });
    (code, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests;
