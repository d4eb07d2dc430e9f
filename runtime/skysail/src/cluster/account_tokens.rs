//! Tokens of `ServiceAccounts` for the logins of providers, by the `TokenRequest` API. Must not
//! keep a token: each login asks for a new one.
//!
//! The manager may be allowed to create tokens of accounts that no provider may have, such as those
//! of its controllers. So the owner of an account names the provider and the audience in
//! annotations of the account.

use std::sync::Arc;

use anyhow::Error;
use async_trait::async_trait;
use http::StatusCode;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};
use skysail_host::{
    credentials::{LoginError, Secret, ServiceAccountTokenSpec},
    http_client::ServiceAccountTokens,
};

/// The shortest lifetime that the API server accepts. A login uses the token at once.
const LIFE_SECONDS: i64 = 600;

/// The annotation of a `ServiceAccount` that names the provider whose logins may use the account.
const PROVIDER: &str = "skysail.dev/provider";
/// The annotation of a `ServiceAccount` that names the audience of the tokens.
const AUDIENCE: &str = "skysail.dev/audience";

/// Issues tokens for one provider, with the identity of the process.
struct AccountTokens {
    client: Client,
    provider: String,
}

/// The tokens that the account of this client may create for a provider.
pub(crate) fn account_tokens(client: Client, provider: &str) -> Arc<dyn ServiceAccountTokens> {
    Arc::new(AccountTokens { client, provider: provider.to_owned() })
}

#[async_trait]
impl ServiceAccountTokens for AccountTokens {
    async fn token(&self, account: &ServiceAccountTokenSpec) -> Result<Secret, LoginError> {
        let ServiceAccountTokenSpec { namespace, name, audience } = account;
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let failed = |error| failed(account, error);
        let annotations = api.get_metadata(name).await.map_err(failed)?.metadata.annotations.unwrap_or_default();
        for (annotation, value) in [(PROVIDER, &self.provider), (AUDIENCE, audience)] {
            if annotations.get(annotation) != Some(value) {
                return Err(LoginError::Refused(format!(
                    "ServiceAccount {namespace}/{name} is not for this provider and audience; annotate it with {annotation}: {value}"
                )));
            }
        }
        let spec = TokenRequestSpec {
            audiences: Some(vec![audience.clone()]),
            expiration_seconds: Some(LIFE_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = api.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.map_err(failed)?;
        let token = answer.status.and_then(|status| status.token).map(Secret::new);
        token.ok_or_else(|| LoginError::Unavailable("the API server issued no token".to_owned()))
    }
}

fn failed(account: &ServiceAccountTokenSpec, error: kube::Error) -> LoginError {
    let ServiceAccountTokenSpec { namespace, name, .. } = account;
    match error {
        kube::Error::Api(status) if is_refusal(status.code) => LoginError::Refused(format!(
            "token of ServiceAccount {namespace}/{name}: {}; create the ServiceAccount, and let the manager's account get serviceaccounts and create serviceaccounts/token of this name",
            status.message
        )),
        error => {
            LoginError::Unavailable(format!("token of ServiceAccount {namespace}/{name}: {:#}", Error::new(error)))
        }
    }
}

fn is_refusal(code: u16) -> bool {
    [StatusCode::BAD_REQUEST, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::UNPROCESSABLE_ENTITY]
        .iter()
        .any(|status| status.as_u16() == code)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::{Client, client::Body};
    use serde_json::{Value, json};
    use skysail_host::credentials::{LoginError, ServiceAccountTokenSpec};
    use tower::{BoxError, service_fn};

    use super::account_tokens;

    /// An API server whose account is for this provider, and which gives this answer to a request
    /// for a token; returns what it was asked for, too.
    async fn asked(provider: &str, status: u16, answer: Value) -> (Result<String, LoginError>, Vec<(String, Value)>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        let account = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "ccm", "annotations": {
                "skysail.dev/provider": provider, "skysail.dev/audience": "sts.amazonaws.com",
            }},
        });
        let server = service_fn(move |request: Request<Body>| {
            let (kept, answer, account) = (Arc::clone(&kept), answer.clone(), account.clone());
            async move {
                let path = format!("{} {}", request.method(), request.uri().path());
                let (status, answer) = if path.starts_with("GET ") { (200, account) } else { (status, answer) };
                let body = request.into_body().collect_bytes().await?;
                kept.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap_or_default()));
                let answer = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, BoxError>(answer?)
            }
        });
        let account = ServiceAccountTokenSpec {
            namespace: "kube-system".to_owned(),
            name: "ccm".to_owned(),
            audience: "sts.amazonaws.com".to_owned(),
        };
        let token = account_tokens(Client::new(server, "default"), "aws").token(&account).await;
        let seen = seen.lock().unwrap().clone();
        (token.map(|token| token.expose().to_owned()), seen)
    }

    #[tokio::test]
    async fn a_token_is_asked_for_with_its_audience() {
        let answer = json!({"spec": {"audiences": []}, "status": {"token": "a.jwt", "expirationTimestamp": "2026-01-01T00:00:00Z"}});
        let (token, seen) = asked("aws", 201, answer).await;
        assert_eq!(token.unwrap(), "a.jwt");
        let (path, body) = &seen[1];
        assert_eq!(path, "POST /api/v1/namespaces/kube-system/serviceaccounts/ccm/token");
        assert_eq!(body["spec"], json!({"audiences": ["sts.amazonaws.com"], "expirationSeconds": 600}));
    }

    #[tokio::test]
    async fn an_account_that_is_not_annotated_for_the_provider_issues_no_token() {
        for other in ["", "another"] {
            let (token, seen) = asked(other, 201, json!({})).await;
            let error = token.unwrap_err();
            assert!(matches!(error, LoginError::Refused(_)), "{error}");
            assert!(error.to_string().ends_with("annotate it with skysail.dev/provider: aws"), "{error}");
            assert_eq!(seen.len(), 1, "{seen:?}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_the_operator_s_fault_and_an_outage_is_not() {
        for (code, is_refused) in [(403, true), (404, true), (500, false), (429, false)] {
            let answer = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "x", "message": "forbidden here"});
            let error = asked("aws", code, answer).await.0.unwrap_err();
            assert_eq!(matches!(error, LoginError::Refused(_)), is_refused, "{error}");
            let text = error.to_string();
            assert!(text.contains("kube-system/ccm: ") && text.contains("forbidden here"), "{text}");
        }
    }
}
