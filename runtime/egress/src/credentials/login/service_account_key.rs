//! The key of a Google service account, exchanged for an access token (RFC 7523):
//! <https://developers.google.com/identity/protocols/oauth2/service-account#httprest>.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::Request;
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde::Deserialize;
use serde_json::json;

use super::{Endpoint, LoginError, Secret, form_request};

/// The lifetime of the signed request, which is the longest that Google accepts.
const ASSERTION_LIFETIME: Duration = Duration::from_secs(3600);

/// A service account with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAccountKey {
    pub(super) endpoint: Endpoint,
    client_email: String,
    private_key_id: String,
    private_key: Secret,
    scopes: String,
}

/// The JSON file of a key.
#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type")]
    kind: String,
    client_email: String,
    private_key: String,
    private_key_id: String,
    token_uri: String,
}

impl ServiceAccountKey {
    /// Errors contain no value of the file.
    pub(in super::super) fn new(file: &Secret, scopes: &[String]) -> Result<Self, &'static str> {
        let file: KeyFile = serde_json::from_str(file.expose()).map_err(
            |_| "is not the JSON file of a service account's key; name the file that Google Cloud returned for the key",
        )?;
        let KeyFile { kind, client_email, private_key, private_key_id, token_uri } = file;
        if kind != "service_account" {
            return Err("has another type than service_account; create a key of a service account");
        }
        let endpoint = Endpoint::parse(&token_uri, "").map_err(|_| "has no valid token_uri; create another key")?;
        let private_key = Secret::new(private_key);
        key_pair(&private_key)
            .ok_or("has a private_key that is not an RSA key of 2048 bits or more in PKCS#8; create another key")?;
        Ok(Self { endpoint, client_email, private_key_id, private_key, scopes: scopes.join(" ") })
    }

    pub(super) fn request(&self, now: SystemTime) -> Result<Request<Bytes>, LoginError> {
        let failed = || LoginError::Refused("the key cannot sign; create another key".to_owned());
        let issued_at = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.private_key_id});
        let claims = json!({
            "iss": self.client_email,
            "scope": self.scopes,
            "aud": self.endpoint.0.url.as_str(),
            "iat": issued_at.as_secs(),
            "exp": (issued_at + ASSERTION_LIFETIME).as_secs(),
        });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let key = key_pair(&self.private_key).ok_or_else(failed)?;
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).map_err(|_| failed())?;
        let assertion = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        Ok(form_request(&[
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", assertion.as_str()),
        ]))
    }
}

pub(super) fn key_pair(pem: &Secret) -> Option<RsaKeyPair> {
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.expose().as_bytes()).ok()?;
    RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok()
}
