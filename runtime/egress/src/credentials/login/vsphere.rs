//! The sessions of vCenter Server: a cookie for SOAP (the vSphere Web Services API), a header for
//! REST (the vSphere Automation API).

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use serde::Deserialize;

use super::{Endpoint, Issued, IssuerResponse, LoginError, Secret, basic_spellings, secret_header, token_header};

const SESSION_ID: HeaderName = HeaderName::from_static("vmware-api-session-id");
const SOAP_COOKIE: &str = "vmware_soap_session";
const SOAP_PATH: &str = "/sdk";
const REMEDY: &str = "correct the URL, the user name or the password";

/// How long a session is used. vCenter Server ends a session after 30 minutes without a request,
/// and then answers `RetrieveProperties` with 200 and no data.
const SESSION_LIFETIME: Duration = Duration::from_mins(20);

/// An account of vCenter Server, for one of its two APIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vsphere {
    pub(super) endpoint: Endpoint,
    api: Api,
    username: String,
    password: Secret,
    secrets: Vec<Secret>,
}

/// The answer of the REST login.
#[derive(Deserialize)]
struct Session {
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Api {
    Soap,
    Rest,
}

impl Vsphere {
    pub(in super::super) fn new(url: &str, api: Api, username: &str, password: &Secret) -> Result<Self, String> {
        let path = match api {
            Api::Soap => SOAP_PATH,
            // The path of the older API, which every release has; /api takes the same sessions.
            Api::Rest => "/rest/com/vmware/cis/session",
        };
        let [pair, encoded] = basic_spellings(username, password.expose());
        Ok(Self {
            // Clients of SOAP are usually given the URL with its path.
            endpoint: Endpoint::parse(url.trim_end_matches('/').trim_end_matches(SOAP_PATH), path)?,
            api,
            username: username.to_owned(),
            password: password.clone(),
            secrets: vec![password.clone(), pair, encoded],
        })
    }

    /// Whether a path of vCenter Server belongs to SOAP.
    pub(in super::super) fn is_soap(path: &str) -> bool {
        path.strip_prefix(SOAP_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    pub(super) fn header(&self) -> HeaderName {
        match self.api {
            Api::Soap => header::COOKIE,
            Api::Rest => SESSION_ID,
        }
    }

    pub(super) fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    pub(super) fn request(&self) -> Result<Request<Bytes>, LoginError> {
        let (username, password) = (&self.username, self.password.expose());
        match self.api {
            Api::Soap => {
                let [username, password] = [username.as_str(), password].map(xml_text);
                let body = format!(
                    r#"<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body><Login xmlns="urn:vim25"><_this type="SessionManager">SessionManager</_this><userName>{username}</userName><password>{password}</password></Login></soapenv:Body></soapenv:Envelope>"#
                );
                let mut request = Request::new(Bytes::from(body));
                let headers = request.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/xml; charset=utf-8"));
                headers.insert("soapaction", HeaderValue::from_static("urn:vim25"));
                Ok(request)
            }
            Api::Rest => {
                let [_, encoded] = basic_spellings(username, password);
                let mut request = Request::new(Bytes::new());
                request
                    .headers_mut()
                    .insert(header::AUTHORIZATION, secret_header(&format!("Basic {}", encoded.expose()))?);
                Ok(request)
            }
        }
    }

    pub(super) fn issued(&self, answer: &IssuerResponse) -> Result<Issued, LoginError> {
        match self.api {
            Api::Soap => soap_issued(answer),
            Api::Rest => {
                if !answer.status.is_success() {
                    return Err(answer.failure(None, REMEDY));
                }
                let Session { value: session } = answer.json()?;
                let proof = token_header(&session)?;
                Ok(Issued { proof, secrets: vec![Secret::new(session)], lifetime: Some(SESSION_LIFETIME) })
            }
        }
    }

    /// SOAP tells of an expired session by a fault: of the request (500), or of the objects that it
    /// asks for (200). In a text of another kind these characters are escaped.
    pub(super) fn is_rejected_by(&self, status: u16, body: &[u8]) -> bool {
        match self.api {
            Api::Rest => status == StatusCode::UNAUTHORIZED.as_u16(),
            Api::Soap => {
                matches!(status, 200 | 500)
                    && [b"<NotAuthenticatedFault".as_slice(), b"type=\"NotAuthenticated\""]
                        .iter()
                        .any(|fault| super::has(body, fault))
            }
        }
    }
}

fn soap_issued(answer: &IssuerResponse) -> Result<Issued, LoginError> {
    let cookies = answer.headers.get_all(header::SET_COOKIE).iter();
    let session = cookies.filter_map(|cookie| cookie.to_str().ok()?.split(';').next()?.trim().split_once('='));
    let session = session.filter(|(name, _)| *name == SOAP_COOKIE).map(|(_, value)| value).next();
    match session {
        Some(session) if answer.status.is_success() => {
            let proof = token_header(&format!("{SOAP_COOKIE}={session}"))?;
            Ok(Issued {
                proof,
                secrets: vec![Secret::new(session.trim_matches('"'))],
                lifetime: Some(SESSION_LIFETIME),
            })
        }
        _ => {
            let body = String::from_utf8_lossy(&answer.body);
            let fault =
                body.split_once("<faultstring>").and_then(|(_, rest)| rest.split_once('<')).map(|(text, _)| text);
            let reason = super::one_line(
                fault.unwrap_or("the login is not valid").trim_end_matches('.'),
                super::REASON_BYTES_MAX,
            );
            let text = format!("answered {}: {reason}; {REMEDY}", answer.status);
            if body.contains("InvalidLogin") {
                return Err(LoginError::Unauthenticated(text));
            }
            if body.contains("NoPermission") {
                return Err(LoginError::Refused(text));
            }
            if answer.status.is_success() {
                let reason = format!("answered {} without the cookie {SOAP_COOKIE}; {REMEDY}", answer.status);
                return Err(LoginError::Refused(reason));
            }
            Err(answer.failure(fault, REMEDY))
        }
    }
}

fn xml_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
