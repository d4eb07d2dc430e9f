//! The `credentials` part of the provider file. Must not read the values; the parent module does.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named credential: exactly one of bearer, header, basic, clientCertificate, keystone, oauth2,
/// serviceAccountKey, vsphere, aws and cloudstack.
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
    /// A login at Keystone, OpenStack's Identity API v3. The token is sent as X-Auth-Token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keystone: Option<KeystoneSpec>,
    /// An OAuth 2.0 client credentials grant (RFC 6749, section 4.4). The access token is sent as
    /// Authorization: Bearer TOKEN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth2: Option<OAuth2Spec>,
    /// The key of a Google service account, exchanged for an access token (RFC 7523). The access
    /// token is sent as Authorization: Bearer TOKEN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_key: Option<ServiceAccountKeySpec>,
    /// A login at vCenter Server. Requests to /sdk (SOAP) carry the cookie of a SOAP session, all
    /// others the vmware-api-session-id of a REST session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<VsphereSpec>,
    /// Access keys of AWS. Requests are signed with Signature Version 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsSpec>,
    /// The keys of a CloudStack user. Requests are signed in their query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloudstack: Option<CloudStackSpec>,
}

/// The one scheme of a credential.
pub(super) enum Scheme<'a> {
    Bearer(&'a ValueFrom),
    Header(&'a HeaderSpec),
    Basic(&'a BasicSpec),
    ClientCertificate(&'a ClientCertificateSpec),
    Keystone(&'a KeystoneSpec),
    OAuth2(&'a OAuth2Spec),
    ServiceAccountKey(&'a ServiceAccountKeySpec),
    Vsphere(&'a VsphereSpec),
    Aws(&'a AwsSpec),
    CloudStack(&'a CloudStackSpec),
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

/// How to log in at Keystone: exactly one of applicationCredential and password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeystoneSpec {
    /// URL of the Identity API v3, for example `https://keystone.example.com:5000/v3`. Only the
    /// manager sends requests for the login, so no egress rule has to allow this URL.
    pub auth_url: String,
    /// An application credential, which belongs to one user and one project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_credential: Option<ApplicationCredentialSpec>,
    /// A user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<KeystonePasswordSpec>,
}

/// An application credential: its id, or its name and its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplicationCredentialSpec {
    /// The id of the application credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name of the application credential. It needs user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The user that the application credential belongs to; only with name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<KeystoneNameSpec>,
    /// Where the secret is.
    pub secret: ValueFrom,
}

/// A user's password, and the scope of the token: a project, or a trust.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeystonePasswordSpec {
    /// The user.
    pub user: KeystoneNameSpec,
    /// Where the password is.
    pub password: ValueFrom,
    /// The project that the token is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<KeystoneNameSpec>,
    /// The id of the trust that the token is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_id: Option<String>,
}

/// A user or a project: its id, or its name with the domain that it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeystoneNameSpec {
    /// The id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name. It needs domainId or domainName.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The id of the domain; only with name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_id: Option<String>,
    /// The name of the domain; only with name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
}

/// A client of an authorization server, with exactly one of clientSecret, clientAssertion and
/// serviceAccountToken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuth2Spec {
    /// URL of the token endpoint, for example
    /// `https://login.microsoftonline.com/TENANT/oauth2/v2.0/token`. Only the manager sends
    /// requests for the login, so no egress rule has to allow this URL.
    pub token_url: String,
    /// The id of the client.
    pub client_id: String,
    /// Where the secret of the client is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<ValueFrom>,
    /// Where a JWT is that proves the client's identity (RFC 7523), for example the projected token
    /// of a ServiceAccount that Azure trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_assertion: Option<ValueFrom>,
    /// As clientAssertion: a token that the API server issues for a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_token: Option<ServiceAccountTokenSpec>,
    /// Where the request has the clientSecret; only with that. Default: Basic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // The schema of an enum with documented variants is no list of texts.
    #[schemars(with = "Option<String>")]
    pub client_authentication: Option<ClientAuthentication>,
    /// The scopes to ask for, for example `https://management.azure.com/.default`; at most 64.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Further parameters of the request, for example audience; at most 64. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// Where the request for a token has the client's secret (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAuthentication {
    /// In the header Authorization: Basic.
    Basic,
    /// Client ID and secret are parameters of the body.
    Body,
}

/// The key of a Google service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceAccountKeySpec {
    /// Where the key is: the JSON that Google Cloud returned for it.
    pub key: ValueFrom,
    /// The scopes to ask for, for example `https://www.googleapis.com/auth/compute`: 1 to 64.
    pub scopes: Vec<String>,
}

/// An account of vCenter Server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VsphereSpec {
    /// URL of vCenter Server, for example `https://vcenter.example.com`. Only the manager sends
    /// requests for the login, so no egress rule has to allow the login.
    pub url: String,
    /// The user name, for example administrator@vsphere.local.
    pub username: String,
    /// Where the password is.
    pub password: ValueFrom,
}

/// Where the access keys come from: exactly one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwsSpec {
    /// The region of the signature, for example eu-west-1.
    pub region: String,
    /// The service of the signature, for example ec2. Default: the first label of the request's
    /// host, which is the service at AWS's own endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// An access key of a user, or temporary keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key: Option<AwsAccessKeySpec>,
    /// A profile of the shared credentials of the AWS CLI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<AwsCredentialsFileSpec>,
    /// A role that trusts a web identity (AssumeRoleWithWebIdentity).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web_identity: Option<AwsWebIdentitySpec>,
    /// The role of the EC2 instance that the manager runs on, from the instance metadata service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_metadata: Option<AwsInstanceMetadataSpec>,
}

/// An access key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwsAccessKeySpec {
    /// Where the access key ID is.
    pub id: ValueFrom,
    /// Where the secret access key is.
    pub secret: ValueFrom,
    /// Where the session token of temporary keys is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<ValueFrom>,
}

/// Shared credentials of the AWS CLI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwsCredentialsFileSpec {
    /// Where the content is, in the format of ~/.aws/credentials.
    pub content: ValueFrom,
    /// The profile to use. Default: default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// A role and the identity that may assume it: exactly one of token and serviceAccountToken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwsWebIdentitySpec {
    /// The ARN of the role, for example `arn:aws:iam::123456789012:role/ccm`.
    pub role_arn: String,
    /// Where the token of the identity is, for example the projected token of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ValueFrom>,
    /// The identity is a ServiceAccount, for which the API server issues a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_token: Option<ServiceAccountTokenSpec>,
    /// The name of the session, which CloudTrail shows. Default: skysail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// URL of the Security Token Service. Default: the one of the region. Only the manager sends
    /// requests for the login, so no egress rule has to allow this URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sts_url: Option<String>,
}

/// A token of a ServiceAccount by the TokenRequest API. The manager's account has to be allowed to
/// create serviceaccounts/token of this name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceAccountTokenSpec {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub name: String,
    /// The audience of the token, for example sts.amazonaws.com.
    pub audience: String,
}

/// The instance metadata service, version 2. Only the manager asks it; the guest cannot reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwsInstanceMetadataSpec {
    /// URL of the service. Default: `http://169.254.169.254`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The keys of a CloudStack user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudStackSpec {
    /// Where the API key is.
    pub api_key: ValueFrom,
    /// Where the secret key is.
    pub secret_key: ValueFrom,
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

impl CredentialSpec {
    /// The names of the schemes; a credential has exactly one of them.
    pub const SCHEMES: [&str; 10] = [
        "bearer",
        "header",
        "basic",
        "clientCertificate",
        "keystone",
        "oauth2",
        "serviceAccountKey",
        "vsphere",
        "aws",
        "cloudstack",
    ];

    /// The most scopes or parameters of a login.
    pub const ENTRIES_MAX: usize = 64;

    /// The schemes as a sentence lists them.
    #[must_use]
    pub fn schemes_listed() -> String {
        let [first @ .., last] = Self::SCHEMES;
        format!("{} and {last}", first.join(", "))
    }

    /// The one scheme of the credential, or the number of its schemes.
    pub(super) fn scheme(&self) -> Result<Scheme<'_>, usize> {
        let Self {
            origins: _,
            bearer,
            header,
            basic,
            client_certificate,
            keystone,
            oauth2,
            service_account_key,
            vsphere,
            aws,
            cloudstack,
        } = self;
        let all = [
            bearer.as_ref().map(Scheme::Bearer),
            header.as_ref().map(Scheme::Header),
            basic.as_ref().map(Scheme::Basic),
            client_certificate.as_ref().map(Scheme::ClientCertificate),
            keystone.as_ref().map(Scheme::Keystone),
            oauth2.as_ref().map(Scheme::OAuth2),
            service_account_key.as_ref().map(Scheme::ServiceAccountKey),
            vsphere.as_ref().map(Scheme::Vsphere),
            aws.as_ref().map(Scheme::Aws),
            cloudstack.as_ref().map(Scheme::CloudStack),
        ];
        let mut there = all.into_iter().flatten();
        match (there.next(), there.count()) {
            (Some(scheme), 0) => Ok(scheme),
            (Some(_), more) => Err(1 + more),
            (None, _) => Err(0),
        }
    }

    /// Every place of a value, with the name of its field below the credential.
    pub fn values_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut ValueFrom)> {
        let Self {
            origins: _,
            bearer,
            header,
            basic,
            client_certificate,
            keystone,
            oauth2,
            service_account_key,
            vsphere,
            aws,
            cloudstack,
        } = self;
        let (certificate, key) = client_certificate.as_mut().map(|pair| (&mut pair.certificate, &mut pair.key)).unzip();
        let (application, password) = keystone
            .as_mut()
            .map(|KeystoneSpec { auth_url: _, application_credential, password }| {
                (
                    application_credential.as_mut().map(|credential| &mut credential.secret),
                    password.as_mut().map(|password| &mut password.password),
                )
            })
            .unwrap_or_default();
        let (secret, assertion) = oauth2
            .as_mut()
            .map(|client| (client.client_secret.as_mut(), client.client_assertion.as_mut()))
            .unwrap_or_default();
        let (access_key, file, identity) = aws
            .as_mut()
            .map(|aws| (aws.access_key.as_mut(), aws.credentials_file.as_mut(), aws.web_identity.as_mut()))
            .unwrap_or_default();
        let (id, secret_key, session_token) = access_key
            .map(|key| (Some(&mut key.id), Some(&mut key.secret), key.session_token.as_mut()))
            .unwrap_or_default();
        let (api_key, secret_key_of_user) =
            cloudstack.as_mut().map(|keys| (&mut keys.api_key, &mut keys.secret_key)).unzip();
        let values = [
            (field::BEARER, bearer.as_mut()),
            (field::HEADER, header.as_mut().map(|header| &mut header.value)),
            (field::BASIC, basic.as_mut().map(|basic| &mut basic.password)),
            (field::CERTIFICATE, certificate),
            (field::CERTIFICATE_KEY, key),
            (field::APPLICATION_SECRET, application),
            (field::KEYSTONE_PASSWORD, password),
            (field::CLIENT_SECRET, secret),
            (field::CLIENT_ASSERTION, assertion),
            (field::SERVICE_ACCOUNT_KEY, service_account_key.as_mut().map(|account| &mut account.key)),
            (field::VSPHERE_PASSWORD, vsphere.as_mut().map(|account| &mut account.password)),
            (field::ACCESS_KEY_ID, id),
            (field::SECRET_ACCESS_KEY, secret_key),
            (field::SESSION_TOKEN, session_token),
            (field::CREDENTIALS_FILE, file.map(|file| &mut file.content)),
            (field::WEB_IDENTITY_TOKEN, identity.and_then(|identity| identity.token.as_mut())),
            (field::API_KEY, api_key),
            (field::SECRET_KEY, secret_key_of_user),
        ];
        values.into_iter().filter_map(|(field, value)| Some((field, value?)))
    }
}

/// The fields that name the place of a value.
pub(super) mod field {
    pub(in super::super) const BEARER: &str = "bearer";
    pub(in super::super) const HEADER: &str = "header.value";
    pub(in super::super) const BASIC: &str = "basic.password";
    pub(in super::super) const CERTIFICATE: &str = "clientCertificate.certificate";
    pub(in super::super) const CERTIFICATE_KEY: &str = "clientCertificate.key";
    pub(in super::super) const APPLICATION_SECRET: &str = "keystone.applicationCredential.secret";
    pub(in super::super) const KEYSTONE_PASSWORD: &str = "keystone.password.password";
    pub(in super::super) const CLIENT_SECRET: &str = "oauth2.clientSecret";
    pub(in super::super) const CLIENT_ASSERTION: &str = "oauth2.clientAssertion";
    pub(in super::super) const SERVICE_ACCOUNT_KEY: &str = "serviceAccountKey.key";
    pub(in super::super) const VSPHERE_PASSWORD: &str = "vsphere.password";
    pub(in super::super) const ACCESS_KEY_ID: &str = "aws.accessKey.id";
    pub(in super::super) const SECRET_ACCESS_KEY: &str = "aws.accessKey.secret";
    pub(in super::super) const SESSION_TOKEN: &str = "aws.accessKey.sessionToken";
    pub(in super::super) const CREDENTIALS_FILE: &str = "aws.credentialsFile.content";
    pub(in super::super) const WEB_IDENTITY_TOKEN: &str = "aws.webIdentity.token";
    pub(in super::super) const API_KEY: &str = "cloudstack.apiKey";
    pub(in super::super) const SECRET_KEY: &str = "cloudstack.secretKey";
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
