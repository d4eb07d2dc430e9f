//! The `credentials` part of the provider file. Must not read the values; the parent module does.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named credential: exactly one of bearer, header, basic and clientCertificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CredentialSpec {
    /// The origins that it may be sent to, as in an egress rule: 1 to 64.
    pub origins: Vec<String>,
    /// A token, sent as Authorization: Bearer VALUE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<ValueFrom>,
    /// A value that is sent in a header of your choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderSpec>,
    /// User name and password, sent as Authorization: Basic base64(USERNAME:PASSWORD).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicSpec>,
    /// A certificate with its key, shown in the TLS handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ClientCertificateSpec>,
}

/// A header whose value stays the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeaderSpec {
    /// The header's name, for example X-Auth-Token. Headers that the connection sets by itself,
    /// such as Host, are refused.
    pub name: String,
    /// Where the header's whole value is.
    pub value: ValueFrom,
}

/// User name and password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BasicSpec {
    /// The user name. It is not secret, and has no colon and no control character.
    pub username: String,
    /// Where the password is.
    pub password: ValueFrom,
}

/// A certificate chain and its key, as PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientCertificateSpec {
    /// Where the chain is; its first certificate is the client's own.
    pub certificate: ValueFrom,
    /// Where the key is: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: ValueFrom,
}

/// Where a value is: exactly one place. The value itself never stands here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum ValueFrom {
    /// Path of a file in the manager's container, for example a key of a mounted Secret; at most 64
    /// KiB. It is read again when it changes. White space at its end is not part of the value.
    File(PathBuf),
    /// Name of an environment variable of the manager's process.
    Env(String),
    /// A key of a Secret of the cluster, which the manager's account has to be allowed to get; at
    /// most 64 KiB. White space at its end is not part of the value.
    SecretKeyRef(SecretKeyRef),
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretKeyRef {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// The key of the Secret's data.
    pub key: String,
}

impl SecretKeyRef {
    /// The message for a key without a value, with the remedy.
    #[must_use]
    pub fn missing(&self) -> String {
        let Self { namespace, name, key } = self;
        format!(
            "Secret {namespace}/{name} does not exist, has no text under the key {key:?}, or may not be read by the manager's ServiceAccount; create the Secret with the key, or allow the ServiceAccount to get it"
        )
    }
}
