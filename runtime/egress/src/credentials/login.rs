//! The logins of the clouds: what is sent to the issuer of a token, and how its answer is read.
//!
//! Must not send requests, and must not decide when to log in: [`super::session`] does. No error
//! contains a value.

mod aws;
mod keystone;
mod oauth2;
mod service_account_key;
mod vsphere;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use serde::Deserialize;
use skysail_provider::text::one_line;
use url::form_urlencoded::Serializer;

pub(super) use aws::{AwsIdentity, AwsRole, METADATA_URL};
pub(super) use keystone::{Keystone, Who};
pub(super) use oauth2::{ClientIdentity, OAuth2};
pub(super) use service_account_key::ServiceAccountKey;
pub(super) use vsphere::{Api, Vsphere};

use super::{
    Issued, LoginError, Secret, ServiceAccountTokenSpec,
    secret::{basic_spellings, sensitive_header},
    signature::{AWS_HEADERS, AwsKeys},
};
use crate::policy::Target;

/// The longest text of an issuer in an error, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// A login, with the operator's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    Keystone(Keystone),
    OAuth2(OAuth2),
    ServiceAccountKey(ServiceAccountKey),
    Vsphere(Vsphere),
    AwsRole(AwsRole),
}

/// What a login does next.
pub(crate) enum Step {
    /// Sends this request; its answer belongs to the next step.
    Send(Request<Bytes>),
    Done(Issued),
}

/// How a token is proved to the cloud.
#[derive(Clone)]
pub(crate) enum TokenProof {
    /// The whole value of [`Login::headers`]' only header.
    Header(HeaderValue),
    AwsKeys(AwsKeys),
}

/// What the process knows so far in one login.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The token of the ServiceAccount that [`Login::account`] names.
    pub(crate) account_token: Option<Secret>,
    /// The issuer's answers, in order.
    pub(crate) answers: Vec<IssuerResponse>,
}

/// The whole answer of an issuer.
#[derive(Debug)]
pub(crate) struct IssuerResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The URL that a login is sent to.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint(pub(crate) Target);

// === impl Login ===

impl Login {
    /// Where the request goes.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        match self {
            Self::Keystone(login) => &login.endpoint,
            Self::OAuth2(login) => &login.endpoint,
            Self::ServiceAccountKey(login) => &login.endpoint,
            Self::Vsphere(login) => &login.endpoint,
            Self::AwsRole(login) => &login.endpoint,
        }
    }

    /// Whether the login goes to the instance metadata service, which no provider may reach.
    pub(crate) fn asks_metadata_service(&self) -> bool {
        match self {
            Self::AwsRole(login) => login.asks_metadata_service(),
            Self::Keystone(_) | Self::OAuth2(_) | Self::ServiceAccountKey(_) | Self::Vsphere(_) => false,
        }
    }

    /// The headers of the requests to the cloud that carry the proof.
    pub(crate) fn headers(&self) -> Vec<HeaderName> {
        match self {
            Self::Keystone(_) => vec![keystone::X_AUTH_TOKEN],
            Self::OAuth2(_) | Self::ServiceAccountKey(_) => vec![header::AUTHORIZATION],
            Self::Vsphere(login) => vec![login.header()],
            Self::AwsRole(_) => AWS_HEADERS.to_vec(),
        }
    }

    /// Adds the proof to a request to the cloud. `now` is the time of the system.
    ///
    /// # Errors
    /// The request cannot be signed.
    pub(super) fn prove(
        &self,
        proof: &TokenProof,
        request: &mut Request<Bytes>,
        now: SystemTime,
    ) -> Result<(), String> {
        match (proof, self) {
            (TokenProof::Header(value), _) => {
                for name in self.headers() {
                    request.headers_mut().insert(name, value.clone());
                }
                Ok(())
            }
            (TokenProof::AwsKeys(keys), Self::AwsRole(login)) => login.signer.sign(keys, request, now),
            (TokenProof::AwsKeys(_), _) => Err("the keys are not this credential's".to_owned()),
        }
    }

    /// The texts that are redacted from answers.
    pub(super) fn secrets(&self) -> &[Secret] {
        match self {
            Self::Keystone(login) => login.secrets(),
            Self::OAuth2(login) => login.secrets(),
            // The private key never leaves the process.
            Self::ServiceAccountKey(_) => &[],
            Self::Vsphere(login) => login.secrets(),
            Self::AwsRole(login) => login.secrets(),
        }
    }

    /// The ServiceAccount whose token the login needs.
    pub(crate) fn account(&self) -> Option<&ServiceAccountTokenSpec> {
        match self {
            Self::OAuth2(login) => login.account(),
            Self::AwsRole(login) => login.account(),
            Self::Keystone(_) | Self::ServiceAccountKey(_) | Self::Vsphere(_) => None,
        }
    }

    /// The next step. `now` is the time of the system.
    ///
    /// # Errors
    /// An answer ends the login.
    pub(crate) fn step(&self, progress: &Progress, now: SystemTime) -> Result<Step, LoginError> {
        let Progress { account_token, answers } = progress;
        let token = account_token.as_ref();
        let step = match (self, answers.as_slice()) {
            (Self::Keystone(login), []) => Step::Send(posted(&login.endpoint, login.request())?),
            (Self::Keystone(_), [answer, ..]) => Step::Done(keystone::issued(answer)?),
            (Self::OAuth2(login), []) => Step::Send(posted(&login.endpoint, login.request(token)?)?),
            (Self::ServiceAccountKey(login), []) => Step::Send(posted(&login.endpoint, login.request(now)?)?),
            (Self::OAuth2(_) | Self::ServiceAccountKey(_), [answer, ..]) => Step::Done(oauth2::issued(answer)?),
            (Self::Vsphere(login), []) => Step::Send(posted(&login.endpoint, login.request()?)?),
            (Self::Vsphere(login), [answer, ..]) => Step::Done(login.issued(answer)?),
            (Self::AwsRole(login), answers) => login.step(token, answers, now)?,
        };
        Ok(step)
    }

    /// Whether the cloud's answer says that the token is not valid any more.
    pub(crate) fn is_rejected_by(&self, status: u16, body: &[u8]) -> bool {
        match self {
            Self::Vsphere(login) => login.is_rejected_by(status, body),
            // EC2 answers 400 RequestExpired, other services 403 ExpiredToken.
            Self::AwsRole(_) => {
                (400..=403).contains(&status)
                    && [b"<Code>ExpiredToken".as_slice(), b"<Code>RequestExpired<", b"\"ExpiredToken", b"#ExpiredToken"]
                        .iter()
                        .any(|code| has(body, code))
            }
            Self::Keystone(_) | Self::OAuth2(_) | Self::ServiceAccountKey(_) => {
                status == StatusCode::UNAUTHORIZED.as_u16()
            }
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// The URL of an operator, with `path` appended.
    pub(super) fn parse(text: &str, path: &str) -> Result<Self, String> {
        let mut target = Target::parse(text).map_err(|error| error.to_string())?;
        if target.url.query().is_some() {
            return Err("the URL has a query; leave it out".to_owned());
        }
        if !path.is_empty() {
            let base = target.url.path().trim_end_matches('/');
            let whole = format!("{base}{path}");
            target.url.set_path(&whole);
        }
        Ok(Self(target))
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        self.0.url == other.0.url
    }
}

impl Eq for Endpoint {}

// === impl IssuerResponse ===

impl IssuerResponse {
    /// The body as JSON.
    fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, LoginError> {
        serde_json::from_slice(&self.body).map_err(|_| {
            let status = self.status;
            LoginError::Unavailable(format!("answered {status} without a token; check that the URL is the issuer's"))
        })
    }

    /// The error of an answer without a token. `reason` is what the issuer says.
    fn failure(&self, reason: Option<&str>, remedy: &str) -> LoginError {
        let status = self.status;
        let reason = reason
            .map(|reason| format!(": {}", one_line(reason.trim_end_matches('.'), REASON_BYTES_MAX)))
            .unwrap_or_default();
        if status.is_redirection() {
            return LoginError::Refused(format!("answered {status}, and redirects are not followed; correct the URL"));
        }
        match status {
            StatusCode::UNAUTHORIZED => LoginError::Unauthenticated(format!("answered {status}{reason}; {remedy}")),
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                LoginError::Unavailable(format!("answered {status}{reason}"))
            }
            status if status.is_client_error() => LoginError::Refused(format!("answered {status}{reason}; {remedy}")),
            status => LoginError::Unavailable(format!("answered {status}{reason}")),
        }
    }
}

/// The request, as a POST to the endpoint.
fn posted(endpoint: &Endpoint, mut request: Request<Bytes>) -> Result<Request<Bytes>, LoginError> {
    let uri = endpoint.0.url.as_str().parse();
    *request.uri_mut() = uri.map_err(|_| LoginError::Refused("the URL cannot be sent; correct it".to_owned()))?;
    *request.method_mut() = Method::POST;
    Ok(request)
}

/// A request with a form as its body.
fn form_request(form: &[(&str, &str)]) -> Request<Bytes> {
    let body = Serializer::new(String::new()).extend_pairs(form).finish();
    let mut request = Request::new(Bytes::from(body));
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    request.headers_mut().insert(header::CONTENT_TYPE, form);
    request
}

/// A token as the value of a header.
fn token_header(text: &str) -> Result<TokenProof, LoginError> {
    let value = sensitive_header(text)
        .map_err(|_| LoginError::Unavailable("the token has a character that a header cannot carry".to_owned()))?;
    Ok(TokenProof::Header(value))
}

/// A secret value of a request, such as a password.
fn secret_header(text: &str) -> Result<HeaderValue, LoginError> {
    sensitive_header(text)
        .map_err(|_| LoginError::Refused("a value has a character that a header cannot carry".to_owned()))
}

/// Whether the beginning of an answer has these bytes. Errors are short.
fn has(body: &[u8], wanted: &[u8]) -> bool {
    const BEGINNING: usize = 64 << 10;
    body.get(..BEGINNING).unwrap_or(body).windows(wanted.len()).any(|window| window == wanted)
}

/// The token of a login's ServiceAccount.
fn required(token: Option<&Secret>) -> Result<&Secret, LoginError> {
    token.ok_or_else(|| LoginError::Unavailable("there is no token of the ServiceAccount".to_owned()))
}

/// `None` for a number that is no duration.
fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

#[cfg(test)]
mod tests;
