//! The temporary keys of an AWS role: from the Security Token Service for a web identity, or from
//! the instance metadata service, version 2.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header};
use jiff::Timestamp;
use roxmltree::{Document, Node};
use serde::Deserialize;

use super::{
    Endpoint, Issued, IssuerResponse, LoginError, REASON_BYTES_MAX, Secret, ServiceAccountTokenSpec, Step, TokenProof,
    form_request, one_line, posted, required, secret_header,
};
use crate::{
    credentials::signature::{AwsKeys, AwsSigner},
    policy::AuthorityHost,
};

const METADATA_TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");
const METADATA_TOKEN_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");

/// The addresses of the instance metadata service.
const METADATA: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254))];
pub(in super::super) const METADATA_URL: &str = "http://169.254.169.254";

/// A role whose temporary keys sign the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwsRole {
    pub(super) endpoint: Endpoint,
    pub(in super::super) signer: AwsSigner,
    source: KeySource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeySource {
    WebIdentity { role_arn: String, session_name: String, identity: AwsIdentity },
    InstanceMetadata,
}

/// The token that a role trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum AwsIdentity {
    Token([Secret; 1]),
    ServiceAccount(ServiceAccountTokenSpec),
}

/// The answer of the metadata service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MetadataKeys {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: Timestamp,
}

/// The metadata service answers 200 also where there are no keys.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MetadataError {
    code: String,
    message: Option<String>,
}

/// Errors of the Security Token Service that pass, although their status is 400.
const PASSING: [&str; 4] = ["IDPCommunicationError", "RequestLimitExceeded", "Throttling", "ThrottlingException"];

// === impl AwsRole ===

impl AwsRole {
    pub(in super::super) fn of_web_identity(
        signer: AwsSigner,
        sts_url: Option<&str>,
        role_arn: &str,
        session_name: &str,
        identity: AwsIdentity,
    ) -> Result<Self, String> {
        let region = &signer.region;
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let url = sts_url.map_or_else(|| format!("https://sts.{region}.{domain}"), ToOwned::to_owned);
        let source =
            KeySource::WebIdentity { role_arn: role_arn.to_owned(), session_name: session_name.to_owned(), identity };
        Ok(Self { endpoint: Endpoint::parse(&url, "/")?, signer, source })
    }

    pub(in super::super) fn of_instance(signer: AwsSigner, url: &str) -> Result<Self, String> {
        Ok(Self { endpoint: Endpoint::parse(url, "/")?, signer, source: KeySource::InstanceMetadata })
    }

    /// Whether this is the metadata service, which the operator has named by this credential.
    pub(super) fn asks_metadata_service(&self) -> bool {
        matches!(self.source, KeySource::InstanceMetadata)
            && matches!(self.endpoint.0.authority.host, AuthorityHost::Address(address) if METADATA.contains(&address))
    }

    pub(super) fn secrets(&self) -> &[Secret] {
        match &self.source {
            KeySource::WebIdentity { identity: AwsIdentity::Token(token), .. } => token,
            KeySource::WebIdentity { identity: AwsIdentity::ServiceAccount(_), .. } | KeySource::InstanceMetadata => {
                &[]
            }
        }
    }

    pub(super) fn account(&self) -> Option<&ServiceAccountTokenSpec> {
        match &self.source {
            KeySource::WebIdentity { identity: AwsIdentity::ServiceAccount(account), .. } => Some(account),
            KeySource::WebIdentity { identity: AwsIdentity::Token(_), .. } | KeySource::InstanceMetadata => None,
        }
    }

    pub(super) fn step(
        &self,
        account_token: Option<&Secret>,
        answers: &[IssuerResponse],
        now: SystemTime,
    ) -> Result<Step, LoginError> {
        match &self.source {
            KeySource::WebIdentity { role_arn, session_name, identity } => match answers {
                [] => {
                    let token = match identity {
                        AwsIdentity::Token([token]) => token,
                        AwsIdentity::ServiceAccount(_) => required(account_token)?,
                    };
                    let request = form_request(&[
                        ("Action", "AssumeRoleWithWebIdentity"),
                        ("Version", "2011-06-15"),
                        ("RoleArn", role_arn),
                        ("RoleSessionName", session_name),
                        ("WebIdentityToken", token.expose()),
                    ]);
                    Ok(Step::Send(posted(&self.endpoint, request)?))
                }
                [answer, ..] => sts_issued(answer, now).map(Step::Done),
            },
            KeySource::InstanceMetadata => self.metadata_step(answers, now),
        }
    }

    fn metadata_step(&self, answers: &[IssuerResponse], now: SystemTime) -> Result<Step, LoginError> {
        const KEYS: &str = "latest/meta-data/iam/security-credentials/";
        let remedy = "enable the metadata service of the EC2 instance for containers, and attach an instance profile";
        if let Some(refused) = answers.iter().find(|answer| !answer.status.is_success()) {
            return Err(refused.failure(None, remedy));
        }
        let get = |path: &str, token: &IssuerResponse| {
            let token = std::str::from_utf8(&token.body).unwrap_or_default();
            let mut request = self.metadata_request(path)?;
            request.headers_mut().insert(METADATA_TOKEN, secret_header(token)?);
            Ok(Step::Send(request))
        };
        match answers {
            [] => {
                let mut request = self.metadata_request("latest/api/token")?;
                *request.method_mut() = Method::PUT;
                request.headers_mut().insert(METADATA_TOKEN_TTL, HeaderValue::from_static("60"));
                Ok(Step::Send(request))
            }
            [token] => get(KEYS, token),
            [token, roles] => {
                let role = std::str::from_utf8(&roles.body).ok().and_then(|text| text.lines().next());
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "+=,.@-_".contains(c);
                let role = role.filter(|role| !role.is_empty() && role.chars().all(is_plain));
                let role = role.ok_or_else(|| LoginError::Refused(format!("named no role; {remedy}")))?;
                get(&format!("{KEYS}{role}"), token)
            }
            [.., answer] => {
                let MetadataKeys { access_key_id: id, secret_access_key, token, expiration } =
                    serde_json::from_slice(&answer.body).or_else(|_| {
                        let MetadataError { code, message } = answer.json()?;
                        let reason = format!("{code}: {}", message.unwrap_or_default());
                        Err(LoginError::Refused(format!("answered {}; {remedy}", one_line(&reason, REASON_BYTES_MAX))))
                    })?;
                let keys =
                    AwsKeys { id, secret: Secret::new(secret_access_key), session_token: Some(Secret::new(token)) };
                Ok(Step::Done(issued(keys, lifetime(answer, expiration, now))))
            }
        }
    }

    fn metadata_request(&self, path: &str) -> Result<Request<Bytes>, LoginError> {
        let Endpoint(target) = &self.endpoint;
        let url = target.url.join(path).map_err(|_| LoginError::Refused("the URL is not valid".to_owned()))?;
        Request::get(url.as_str()).body(Bytes::new()).map_err(|error| LoginError::Refused(error.to_string()))
    }
}

fn issued(keys: AwsKeys, lifetime: Duration) -> Issued {
    Issued { secrets: keys.secrets(), proof: TokenProof::AwsKeys(keys), lifetime: Some(lifetime) }
}

fn sts_issued(answer: &IssuerResponse, now: SystemTime) -> Result<Issued, LoginError> {
    let text = String::from_utf8_lossy(&answer.body);
    let document = Document::parse(&text).ok();
    let value = |name: &str| {
        let nodes = document.as_ref()?.descendants();
        nodes
            .filter(|node| node.tag_name().name() == name)
            .find_map(|node: Node<'_, '_>| node.text().map(str::to_owned))
    };
    if !answer.status.is_success() {
        let code = value("Code");
        if let Some(code) = code.as_deref().filter(|code| PASSING.contains(code)) {
            return Err(LoginError::Unavailable(format!("answered {}: {code}", answer.status)));
        }
        let reason = code.map(|code| format!("{code}: {}", value("Message").unwrap_or_default()));
        return Err(answer.failure(reason.as_deref(), "correct the role, its trust policy or the token"));
    }
    let missing = || LoginError::Unavailable(format!("answered {} without keys; check stsUrl", answer.status));
    let required = |name: &str| value(name).ok_or_else(missing);
    let expiration: Timestamp = required("Expiration")?.parse().map_err(|_| missing())?;
    let keys = AwsKeys {
        id: required("AccessKeyId")?,
        secret: Secret::new(required("SecretAccessKey")?),
        session_token: Some(Secret::new(required("SessionToken")?)),
    };
    Ok(issued(keys, lifetime(answer, expiration, now)))
}

/// The time between the answer and `expiration`; both by the clock of AWS, where the answer has a
/// date.
fn lifetime(answer: &IssuerResponse, expiration: Timestamp, now: SystemTime) -> Duration {
    let date = answer.headers.get(header::DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    SystemTime::from(expiration).duration_since(date.unwrap_or(now)).unwrap_or_default()
}
