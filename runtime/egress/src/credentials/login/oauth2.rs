//! OAuth 2.0's client credentials grant (RFC 6749, section 4.4), by a secret or by a JWT (RFC
//! 7523).

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Request, header};
use serde::Deserialize;
use url::form_urlencoded::byte_serialize;

use super::{
    Endpoint, Issued, IssuerResponse, LoginError, Secret, ServiceAccountTokenSpec, basic_spellings, form_request,
    required, seconds, secret_header, token_header,
};

/// A client of an authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OAuth2 {
    pub(super) endpoint: Endpoint,
    pub(in super::super) client_id: String,
    pub(in super::super) identity: ClientIdentity,
    pub(in super::super) parameters: BTreeMap<String, String>,
    /// The secret or the assertion, and the spellings in which it is sent.
    secrets: Vec<Secret>,
}

/// How the client proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum ClientIdentity {
    Basic(Secret),
    Body(Secret),
    Assertion(Secret),
    /// The token of a ServiceAccount is the assertion.
    ServiceAccount(ServiceAccountTokenSpec),
}

#[derive(Deserialize)]
struct Body {
    access_token: String,
    token_type: String,
    #[serde(default)]
    expires_in: Option<Number>,
}

/// Azure AD's version 1 endpoint writes the number as a string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(f64),
    Text(String),
}

#[derive(Deserialize)]
struct ErrorBody {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

impl OAuth2 {
    /// Parameters that the grant itself sets.
    pub(in super::super) const OWN_PARAMETERS: [&str; 6] =
        ["grant_type", "client_id", "client_secret", "client_assertion", "client_assertion_type", "scope"];

    pub(in super::super) fn new(
        endpoint: Endpoint,
        client_id: String,
        identity: ClientIdentity,
        parameters: BTreeMap<String, String>,
    ) -> Self {
        let secrets = match &identity {
            ClientIdentity::Basic(secret) => {
                let [pair, encoded] = basic_pair(&client_id, secret);
                vec![secret.clone(), pair, encoded]
            }
            ClientIdentity::Body(secret) | ClientIdentity::Assertion(secret) => vec![secret.clone()],
            ClientIdentity::ServiceAccount(_) => Vec::new(),
        };
        Self { endpoint, client_id, identity, parameters, secrets }
    }

    pub(super) fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    pub(super) fn account(&self) -> Option<&ServiceAccountTokenSpec> {
        match &self.identity {
            ClientIdentity::ServiceAccount(account) => Some(account),
            ClientIdentity::Basic(_) | ClientIdentity::Body(_) | ClientIdentity::Assertion(_) => None,
        }
    }

    pub(super) fn request(&self, account_token: Option<&Secret>) -> Result<Request<Bytes>, LoginError> {
        let mut form = vec![("grant_type", "client_credentials")];
        let mut authorization = None;
        let assertion = match &self.identity {
            ClientIdentity::Basic(secret) => {
                let [_, encoded] = basic_pair(&self.client_id, secret);
                authorization = Some(secret_header(&format!("Basic {}", encoded.expose()))?);
                None
            }
            ClientIdentity::Body(secret) => {
                form.extend([("client_id", self.client_id.as_str()), ("client_secret", secret.expose())]);
                None
            }
            ClientIdentity::Assertion(token) => Some(token),
            ClientIdentity::ServiceAccount(_) => Some(required(account_token)?),
        };
        if let Some(token) = assertion {
            form.extend([
                ("client_id", self.client_id.as_str()),
                ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
                ("client_assertion", token.expose()),
            ]);
        }
        form.extend(self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let mut request = form_request(&form);
        if let Some(value) = authorization {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }
}

/// RFC 6749, section 2.3.1: both parts are form-encoded.
fn basic_pair(client_id: &str, secret: &Secret) -> [Secret; 2] {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    basic_spellings(&encoded(client_id), &encoded(secret.expose()))
}

pub(super) fn issued(answer: &IssuerResponse) -> Result<Issued, LoginError> {
    if !answer.status.is_success() {
        let body: Option<ErrorBody> = serde_json::from_slice(&answer.body).ok();
        // RFC 6749, section 4.1.2.1; some servers send these errors of another endpoint here, too.
        if let Some(ErrorBody { error, .. }) = &body
            && matches!(error.as_str(), "temporarily_unavailable" | "server_error")
        {
            return Err(LoginError::Unavailable(format!("answered {}: {error}", answer.status)));
        }
        // The issuer may count these errors against the client or the account.
        let is_unauthenticated =
            body.as_ref().is_some_and(|body| matches!(body.error.as_str(), "invalid_client" | "invalid_grant"));
        let reason = body.map(|ErrorBody { error, error_description }| match error_description {
            Some(text) => format!("{error}: {text}"),
            None => error,
        });
        let remedy = "correct the URL, the client, the secret or the scopes";
        return Err(match answer.failure(reason.as_deref(), remedy) {
            LoginError::Refused(text) if is_unauthenticated => LoginError::Unauthenticated(text),
            error => error,
        });
    }
    let Body { access_token, token_type, expires_in } = answer.json()?;
    if !token_type.eq_ignore_ascii_case("bearer") {
        return Err(LoginError::Refused("issued a token of another type than Bearer; use another issuer".to_owned()));
    }
    let lifetime = expires_in.and_then(|number| match number {
        Number::Number(number) => seconds(number),
        Number::Text(text) => seconds(text.parse().ok()?),
    });
    let proof = token_header(&format!("Bearer {access_token}"))?;
    Ok(Issued { proof, secrets: vec![Secret::new(access_token)], lifetime })
}
