//! How an operator writes a credential: the `credentials` part of the provider file. Must not read the values; the parent does.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A named credential: exactly one of `bearer`, `header`, `basic` and `clientCertificate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CredentialSpec {
    /// The origins that it may be sent to, as in an egress rule; at least one.
    pub origins: Vec<String>,
    /// `Authorization: Bearer VALUE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<ValueFrom>,
    /// A header of any name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderSpec>,
    /// `Authorization: Basic base64(USERNAME:PASSWORD)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicSpec>,
    /// A TLS client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ClientCertificateSpec>,
}

/// A static header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeaderSpec {
    /// For example `X-Auth-Token`.
    pub name: String,
    /// The header's whole value.
    pub value: ValueFrom,
}

/// User name and password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BasicSpec {
    /// Not secret, without `:`.
    pub username: String,
    /// Secret.
    pub password: ValueFrom,
}

/// PEM certificate chain and key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientCertificateSpec {
    /// The chain, leaf first.
    pub certificate: ValueFrom,
    /// The key: PKCS#8, PKCS#1 or SEC1.
    pub key: ValueFrom,
}

/// Where a value is. The value itself never stands in the provider file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum ValueFrom {
    /// A file, for example a mounted Secret's key. White space at its end is not part of the value.
    File(PathBuf),
    /// An environment variable of the host's process.
    Env(String),
}
