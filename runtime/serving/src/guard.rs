//! Authenticates and authorizes each request. Answers 401, 403 and 500 as Kubernetes' components
//! do.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderValue, Method, StatusCode,
    header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use kube::Client;
use serde_json::{Value, json};
use skysail_provider::text::with_causes;
use tokio_util::sync::CancellationToken;

use crate::{
    authentication::{Authenticator, Peer, Tokens, User, authorities::Authorities},
    authorization::{Authorizer, Decision},
    error::ServingError,
    line_rate::LineRate,
    options::{AuthenticationOptions, AuthorizationOptions},
};

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
}

/// Passes a request on, or answers it with an error.
pub(crate) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
    let user = match guard.authenticator.authenticate(&peer, request.headers()).await {
        Ok(user) => user,
        Err(refused) => {
            let reasons: Vec<_> = refused.iter().map(|error| with_causes(error)).collect();
            if let Some(left_out) = guard.refusals.take() {
                tracing::info!("a request is refused: {}{left_out}", reasons.join("; "));
            }
            return status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", json!({}));
        }
    };
    let (verb, path) = (verb(request.method()), request.uri().path());
    match guard.authorizer.authorize(&user, &verb, path).await {
        Ok(Decision::Allowed) => next.run(request).await,
        Ok(Decision::Denied) => forbidden(&user, &verb, path),
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

/// A `Status` object, which every Kubernetes client reads.
fn status(code: StatusCode, reason: &str, message: &str, details: Value) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code.as_u16(),
    });
    (code, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests;
