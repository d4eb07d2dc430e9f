//! A kubeconfig, as providers of clouds that are Kubernetes themselves need it: the user of the
//! current context becomes a credential, the server and the namespace are the cloud-config.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use skysail_host::credentials::{BasicSpec, ClientCertificateSpec, CredentialSpec};

use super::{Beside, Parts};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    contexts: Vec<Context>,
    #[serde(default)]
    clusters: Vec<Cluster>,
    #[serde(default)]
    users: Vec<User>,
}

#[derive(Deserialize)]
struct Context {
    name: String,
    context: ContextDetails,
}

#[derive(Deserialize)]
struct ContextDetails {
    cluster: String,
    user: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
struct Cluster {
    name: String,
    cluster: ClusterDetails,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterDetails {
    server: String,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
struct User {
    name: String,
    user: UserDetails,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct UserDetails {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
}

const FLATTEN: &str = "make one file with kubectl config view --flatten --minify --raw";

pub(super) fn take_apart(text: &str, beside: &Beside) -> Result<Parts, String> {
    // The text of the parser's error can hold a value of the file.
    let config: Kubeconfig = serde_saphyr::from_str(text)
        .map_err(|_| format!("it is not a valid kubeconfig: a field is missing or has another type; {FLATTEN}"))?;
    let Kubeconfig { current_context, contexts, clusters, users } = config;
    let missing = |what: &str, name: &str| format!("it has no {what} {name:?}; {FLATTEN}");
    let context = contexts.into_iter().find(|context| context.name == current_context);
    let ContextDetails { cluster, user, namespace } =
        context.ok_or_else(|| missing("context", &current_context))?.context;
    let found = clusters.into_iter().find(|candidate| candidate.name == cluster);
    let details = found.ok_or_else(|| missing("cluster", &cluster))?.cluster;
    let found = users.into_iter().find(|candidate| candidate.name == user);
    let user = found.ok_or_else(|| missing("user", &user))?.user;
    check(&details, &user)?;

    let mut parts = Parts::default();
    if let Some(data) = details.certificate_authority_data {
        parts.ca = Some(decoded("certificate-authority-data", &data)?);
    }
    let mut spec = CredentialSpec { origins: beside.origins.clone(), ..CredentialSpec::default() };
    match (user.token, user.client_certificate_data, user.client_key_data, user.username, user.password) {
        (Some(token), ..) => spec.bearer = Some(parts.keep("token", token)),
        (None, Some(certificate), Some(key), ..) => {
            let certificate = parts.keep("client-certificate-data", decoded("client-certificate-data", &certificate)?);
            let key = parts.keep("client-key-data", decoded("client-key-data", &key)?);
            spec.client_certificate = Some(ClientCertificateSpec { certificate, key });
        }
        (None, _, _, Some(username), Some(password)) => {
            spec.basic = Some(BasicSpec { username, password: parts.keep("password", password) });
        }
        _ => {
            return Err(format!(
                "the user has no token, no client certificate with its key, and no user name with a password; {FLATTEN}"
            ));
        }
    }
    parts.credentials.insert(beside.credential.clone(), spec);
    parts.config = format!("server = {}\n", details.server);
    if !namespace.is_empty() {
        parts.config.push_str(&format!("namespace = {namespace}\n"));
    }
    Ok(parts)
}

/// Refuses what has no place in a credential or in the egress rules.
fn check(cluster: &ClusterDetails, user: &UserDetails) -> Result<(), String> {
    let refused = [
        (
            cluster.insecure_skip_tls_verify,
            "insecure-skip-tls-verify",
            "a certificate is always checked; write certificate-authority-data",
        ),
        (
            cluster.tls_server_name.is_some(),
            "tls-server-name",
            "the name of the server is checked; write a server whose certificate has its name",
        ),
        (cluster.proxy_url.is_some(), "proxy-url", "write egress.proxy"),
        (cluster.certificate_authority.is_some(), "certificate-authority", FLATTEN),
        (user.client_certificate.is_some(), "client-certificate", FLATTEN),
        (user.client_key.is_some(), "client-key", FLATTEN),
        (user.token_file.is_some(), "tokenFile", "write the token itself, or a credential with bearer.file"),
        (user.exec.is_some(), "exec", "a program is never run; write a token or a client certificate"),
        (
            user.auth_provider.is_some(),
            "auth-provider",
            "a program is never run; write a token or a client certificate",
        ),
        (user.impersonate.is_some(), "as", "impersonation is not supported; use an account with the permissions"),
    ];
    match refused.iter().find(|(is_set, ..)| *is_set) {
        Some((_, key, remedy)) => Err(format!("{key}: {remedy}")),
        None => Ok(()),
    }
}

fn decoded(key: &str, data: &str) -> Result<String, String> {
    let wrong = || format!("{key}: it is not base64-encoded PEM; {FLATTEN}");
    let bytes = STANDARD.decode(data.trim()).map_err(|_| wrong())?;
    String::from_utf8(bytes).map_err(|_| wrong())
}
