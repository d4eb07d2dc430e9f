//! OpenStack's Keystone, Identity API v3:
//! <https://docs.openstack.org/api-ref/identity/v3/#authentication-and-token-management>.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Endpoint, Issued, IssuerResponse, LoginError, Secret, token_header};

pub(super) const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const X_SUBJECT_TOKEN: HeaderName = HeaderName::from_static("x-subject-token");

/// Who logs in, and what the token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keystone {
    pub(super) endpoint: Endpoint,
    who: Who,
    /// The application credential's secret, or the password.
    secret: [Secret; 1],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Who {
    /// An object that names an application credential, without its secret.
    ApplicationCredential(Value),
    /// An object that names a user, without the password, and the scope of the token.
    User { user: Value, scope: Value },
}

/// The part of the answer that says how long the token is valid.
#[derive(Deserialize)]
struct Body {
    token: Lifetime,
}

#[derive(Deserialize)]
struct Lifetime {
    issued_at: Timestamp,
    expires_at: Timestamp,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorText,
}

#[derive(Deserialize)]
struct ErrorText {
    message: String,
}

impl Keystone {
    /// `auth_url` may or may not end with `/v3`.
    pub(in super::super) fn new(auth_url: &str, who: Who, secret: Secret) -> Result<Self, String> {
        let base = auth_url.trim_end_matches('/');
        let base = base.strip_suffix("/v3").unwrap_or(base);
        Ok(Self { endpoint: Endpoint::parse(base, "/v3/auth/tokens")?, who, secret: [secret] })
    }

    pub(super) fn secrets(&self) -> &[Secret] {
        &self.secret
    }

    pub(super) fn request(&self) -> Request<Bytes> {
        let [secret] = &self.secret;
        let secret = secret.expose();
        let auth = match &self.who {
            Who::ApplicationCredential(credential) => {
                let mut credential = credential.clone();
                merge(&mut credential, json!({"secret": secret}));
                json!({"identity": {"methods": ["application_credential"], "application_credential": credential}})
            }
            Who::User { user, scope } => {
                let mut user = user.clone();
                merge(&mut user, json!({"password": secret}));
                json!({
                    "identity": {"methods": ["password"], "password": {"user": user}},
                    "scope": scope,
                })
            }
        };
        let mut request = Request::new(Bytes::from(json!({"auth": auth}).to_string()));
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }
}

fn merge(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

pub(super) fn issued(answer: &IssuerResponse) -> Result<Issued, LoginError> {
    let Some(token) = answer.headers.get(X_SUBJECT_TOKEN).and_then(|value| value.to_str().ok()) else {
        if answer.status.is_success() {
            let reason =
                format!("answered {} without {X_SUBJECT_TOKEN}; write the URL of Keystone's API v3", answer.status);
            return Err(LoginError::Refused(reason));
        }
        let reason = serde_json::from_slice::<ErrorBody>(&answer.body).ok().map(|body| body.error.message);
        return Err(answer.failure(reason.as_deref(), "correct the URL, the names, the password or the secret"));
    };
    let Body { token: Lifetime { issued_at, expires_at } } = answer.json()?;
    // Both times are Keystone's, so that a difference of the clocks does not matter.
    let lifetime = expires_at.duration_since(issued_at).try_into().unwrap_or_default();
    Ok(Issued { proof: token_header(token)?, secrets: vec![Secret::new(token)], lifetime: Some(lifetime) })
}
