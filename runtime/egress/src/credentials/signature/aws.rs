//! Signature Version 4 of AWS:
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use bytes::Bytes;
use configparser::ini::{Ini, IniDefault};
use http::{HeaderName, Request, header};

use crate::credentials::{Secret, secret::sensitive_header};

/// The headers that a signature sets.
pub(in super::super) const HEADERS: [HeaderName; 3] =
    [header::AUTHORIZATION, HeaderName::from_static("x-amz-date"), HeaderName::from_static("x-amz-security-token")];

/// What a signature is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwsSigner {
    pub(in super::super) region: String,
    /// `None` for the first label of the request's host.
    pub(in super::super) service: Option<String>,
}

/// An access key; a session token makes it temporary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwsKeys {
    pub(in super::super) id: String,
    pub(in super::super) secret: Secret,
    pub(in super::super) session_token: Option<Secret>,
}

// === impl AwsSigner ===

impl AwsSigner {
    /// Signs the request as of `now`, which has to be the time of AWS up to five minutes.
    pub(in super::super) fn sign(
        &self,
        keys: &AwsKeys,
        request: &mut Request<Bytes>,
        now: SystemTime,
    ) -> Result<(), String> {
        let AwsKeys { id, secret, session_token } = keys;
        let session_token = session_token.as_ref().map(|token| token.expose().to_owned());
        let identity = Credentials::new(id, secret.expose(), session_token, None, "skysail").into();
        let host = request.uri().host().unwrap_or_default();
        let service = self.service.as_deref().or_else(|| host.split('.').next()).unwrap_or_default();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(service)
            .time(now)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| error.to_string())?
            .into();
        let headers: Option<Vec<_>> =
            request.headers().iter().map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect();
        let headers = headers.ok_or("a header has characters other than visible ASCII, and cannot be signed")?;
        let url = request.uri().to_string();
        let body = SignableBody::Bytes(request.body());
        let signable = SignableRequest::new(request.method().as_str(), url, headers.into_iter(), body);
        let signed = signable.and_then(|request| sign(request, &parameters)).map_err(|error| error.to_string())?;
        let (instructions, _) = signed.into_parts();
        for (name, value) in instructions.headers() {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            let value = sensitive_header(value).map_err(|error| error.to_string())?;
            request.headers_mut().insert(name, value);
        }
        Ok(())
    }
}

// === impl AwsKeys ===

impl AwsKeys {
    /// Reads a profile of a shared credentials file. Errors contain no value.
    pub(in super::super) fn of_file(content: &Secret, profile: &str) -> Result<Self, String> {
        let mut format = IniDefault::default();
        format.case_sensitive = true;
        format.delimiters = vec!['='];
        // A secret access key may contain every character that would begin such a comment.
        format.inline_comment_symbols = Some(Vec::new());
        let mut file = Ini::new_from_defaults(format);
        file.read(content.expose().to_owned())
            .map_err(|_| "is not a shared credentials file; write [PROFILE], then lines of NAME = VALUE".to_owned())?;
        if !file.sections().iter().any(|section| section == profile) {
            return Err(format!("has no profile {profile:?}; add the profile, or name another one"));
        }
        let value = |name: &str| file.get(profile, name).filter(|value| !value.is_empty());
        let required =
            |name: &str| value(name).ok_or_else(|| format!("has no {name} in profile {profile:?}; add the line"));
        Ok(Self {
            id: required("aws_access_key_id")?,
            secret: Secret::new(required("aws_secret_access_key")?),
            session_token: value("aws_session_token").map(Secret::new),
        })
    }

    /// The texts that are redacted from answers. The access key ID is no secret: AWS shows it.
    pub(in super::super) fn secrets(&self) -> Vec<Secret> {
        [Some(&self.secret), self.session_token.as_ref()].into_iter().flatten().cloned().collect()
    }
}
