//! The signature of CloudStack's API, which is a parameter of the query:
//! <https://docs.cloudstack.apache.org/en/latest/developersguide/dev.html#how-to-sign-an-api-call-with-python>.

use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, header};
use jiff::{Timestamp, tz::Offset};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;
use url::{Url, form_urlencoded};

use crate::credentials::Secret;

/// What Java's `URLEncoder` does not encode: the server encodes the values again with it.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'*').remove(b'_');

/// How long a request may be repeated by somebody who has read it on its way.
const VALIDITY: Duration = Duration::from_secs(600);

/// Parameters that the signature sets, in lower case: CloudStack ignores the case of names.
const OWN_PARAMETERS: [&str; 5] = ["apikey", "signature", "signatureversion", "expires", "sessionkey"];

/// The keys of a CloudStack user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CloudStackKeys {
    pub(in super::super) api_key: String,
    pub(in super::super) secret_key: Secret,
}

impl CloudStackKeys {
    /// Signs the parameters of the query and of a form in the body; adds the signature to the
    /// query.
    pub(in super::super) fn sign(&self, request: &mut Request<Bytes>, now: SystemTime) -> Result<(), String> {
        let mut url = Url::parse(&request.uri().to_string()).map_err(|error| error.to_string())?;
        let expires = Timestamp::try_from(now + VALIDITY).map_err(|error| error.to_string())?;
        let expires = Offset::UTC.to_datetime(expires).strftime("%Y-%m-%dT%H:%M:%S+0000").to_string();
        let own = [("apiKey", self.api_key.as_str()), ("signatureVersion", "3"), ("expires", expires.as_str())];
        let mut parameters: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        parameters.extend(form(request));
        if let Some((name, _)) = parameters.iter().find(|(name, _)| OWN_PARAMETERS.contains(&&*name.to_lowercase())) {
            return Err(format!("parameter {name:?} is set by the credential; leave it out"));
        }
        parameters.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let signature = self.signature(&parameters);
        url.query_pairs_mut().extend_pairs(own).append_pair("signature", &signature);
        *request.uri_mut() = url.as_str().parse().map_err(|_| "the signed URL cannot be sent".to_owned())?;
        Ok(())
    }

    pub(super) fn signature(&self, parameters: &[(String, String)]) -> String {
        // The server sorts the names as they are, and only then converts the text to lower case.
        let mut sorted: Vec<_> = parameters.iter().collect();
        sorted.sort();
        let pairs = sorted.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, ENCODED)));
        let text = pairs.collect::<Vec<_>>().join("&").to_lowercase();
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, self.secret_key.expose().as_bytes());
        STANDARD.encode(hmac::sign(&key, text.as_bytes()))
    }
}

/// The parameters of a form in the body.
fn form(request: &Request<Bytes>) -> Vec<(String, String)> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
    {
        return form_urlencoded::parse(request.body()).into_owned().collect();
    }
    Vec::new()
}
