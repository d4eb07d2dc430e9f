//! Requests to the HTTPS port of a manager, for `skysail status`, `skysail explain service` and
//! `skysail support-bundle`: the client of the flags, answers of a bounded size, and errors with
//! remedies.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, uri::Scheme};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::{
    Client, Config,
    client::Body,
    config::{AuthInfo, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext},
};
use serde::de::DeserializeOwned;

use crate::{
    args::ManagerArgs,
    cluster::Cluster,
    exit::{MarkExt as _, Reason},
    output::plain,
};

/// How long a manager may take for a connection, and for an answer.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(20);

/// A client of the manager at this URL; `name` is part of its user agent.
///
/// # Errors
/// The URL, or a file that a flag names, is invalid.
pub(super) async fn client(server: &Uri, args: &ManagerArgs, name: &str) -> anyhow::Result<Client> {
    Cluster::at(config(server, args).await?).client(name).await
}

/// The URL without a slash at its end, for messages.
pub(super) fn shown(server: &Uri) -> String {
    server.to_string().trim_end_matches('/').to_owned()
}

/// The status and the body of the answer for a path, whatever the status is.
///
/// # Errors
/// The server does not answer, or its answer is incomplete or has more than `bytes_max` bytes.
pub(super) async fn get(
    client: &Client,
    server: &str,
    path: &str,
    bytes_max: usize,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let request = Request::get(path).body(Body::empty()).context("cannot make the request")?;
    let answer = client.send(request).await.map_err(anyhow::Error::from);
    let answer = answer.map_err(|error| {
        let remedy = remedy_of(&format!("{error:#}"));
        error.context(format!("the manager at {server} does not answer; {remedy}"))
    })?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), bytes_max).collect().await;
    let body = body.map_err(|error| anyhow!(error)).with_context(|| {
        format!("the answer of {server} is incomplete or has more than {bytes_max} bytes; check that the address is that of a manager, and the network to it")
    })?;
    Ok((status, body.to_bytes()))
}

/// A path of a manager, and the rule that permits to get it.
pub(super) struct Path<'a> {
    pub(super) path: &'a str,
    /// A value of `nonResourceURLs`, quoted for a shell if it needs quotes.
    pub(super) rule: &'a str,
}

/// The document of an answer.
///
/// # Errors
/// The answer is another one; the error has the remedy.
pub(super) fn understood<T: DeserializeOwned>(
    (status, body): (StatusCode, Bytes),
    server: &str,
    Path { path, rule }: &Path<'_>,
) -> anyhow::Result<T> {
    let said = || message_of(&body).map(|said| format!(" ({said})")).unwrap_or_default();
    let refused = match status {
        StatusCode::OK => {
            return serde_json::from_slice(&body)
                .with_context(|| format!("the answer of {server}{path} is not that of a manager of this version; use the version of the manager"));
        }
        StatusCode::UNAUTHORIZED => anyhow!(
            "401 Unauthorized: the manager at {server} rejected the credentials{}; give a token with --token-file, for example from `kubectl create token`, or a certificate with --client-certificate and --client-key",
            said()
        ),
        StatusCode::FORBIDDEN => anyhow!(
            "403 Forbidden: the manager at {server} does not allow this account to get {path}{}; give the account the permission, for example with `kubectl create clusterrole skysail-status --verb=get --non-resource-url={rule}` and a binding; a request without a token or certificate is anonymous",
            said()
        ),
        StatusCode::NOT_FOUND => anyhow!(
            "the server at {server} has no path {path}: it is an older manager, or not a manager; check the port, which is that of --secure-port (default 10258)"
        ),
        status => anyhow!("the manager at {server} answers with {status}{}; its log has the reason", said()),
    };
    Err(refused).or_exit(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Reason::Usage,
        _ => Reason::Failed,
    })
}

/// What an answer that is an object of kind Status says, in one line.
pub(super) fn message_of(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<Status>(body).ok()?.message.as_deref().map(plain)
}

/// The remedy for a failed connection. The error types do not tell an untrusted certificate from
/// other failures, so the text decides.
fn remedy_of(why: &str) -> &'static str {
    if why.contains("certificate") {
        "its certificate is not trusted; name its CA with --certificate-authority or, if the manager made the certificate itself and the connection is a port-forward, use --insecure-skip-tls-verify"
    } else {
        "check the address, or forward the port (`kubectl -n skysail-system port-forward deploy/skysail 10258`)"
    }
}

/// The client configuration, as kubectl makes it from flags of these names.
async fn config(server: &Uri, args: &ManagerArgs) -> anyhow::Result<Config> {
    // A token must not be sent without TLS.
    if server.scheme() != Some(&Scheme::HTTPS) || server.path().len() > 1 || server.query().is_some() {
        return Err(anyhow!(
            "--server {server} is not the URL of an HTTPS port without a path; write the manager's, such as https://HOST:10258"
        ));
    }
    let text = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let name = "manager".to_owned();
    let cluster = kube::config::Cluster {
        server: Some(server.to_string()),
        insecure_skip_tls_verify: Some(args.insecure_skip_tls_verify),
        certificate_authority: text(&args.certificate_authority),
        tls_server_name: args.tls_server_name.clone(),
        ..kube::config::Cluster::default()
    };
    let user = AuthInfo {
        token_file: text(&args.token_file),
        client_certificate: text(&args.client_certificate),
        client_key: text(&args.client_key),
        ..AuthInfo::default()
    };
    let context = Context { cluster: name.clone(), user: Some(name.clone()), ..Context::default() };
    let kubeconfig = Kubeconfig {
        clusters: vec![NamedCluster { name: name.clone(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: name.clone(), auth_info: Some(user), ..NamedAuthInfo::default() }],
        contexts: vec![NamedContext { name: name.clone(), context: Some(context), ..NamedContext::default() }],
        current_context: Some(name),
        ..Kubeconfig::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.context("cannot use one of the files for --server")?;
    (config.connect_timeout, config.read_timeout) = (Some(MANAGER_TIMEOUT), Some(MANAGER_TIMEOUT));
    // Ignore HTTP_PROXY: a proxy cannot reach a port-forward on this machine.
    config.proxy_url = None;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use http::{Request, Response, Uri};
    use kube::{Client, client::Body};
    use rstest::rstest;
    use tower::service_fn;

    use super::{config, get};
    use crate::args::ManagerArgs;

    fn manager() -> ManagerArgs {
        ManagerArgs {
            server: None,
            token_file: None,
            client_certificate: None,
            client_key: None,
            certificate_authority: None,
            tls_server_name: None,
            insecure_skip_tls_verify: false,
        }
    }

    /// A token must not be sent without TLS.
    #[rstest]
    #[case("http://127.0.0.1:10258")]
    #[case("127.0.0.1:10258")]
    #[case("https://127.0.0.1:10258/metrics")]
    #[case("https://127.0.0.1:10258/?a=b")]
    #[tokio::test]
    async fn only_the_url_of_an_https_port_is_accepted(#[case] server: &'static str) {
        let error = config(&Uri::from_static(server), &manager()).await.unwrap_err();
        let reason = "is not the URL of an HTTPS port without a path; write the manager's, such as https://HOST:10258";
        assert_eq!(error.to_string(), format!("--server {} {reason}", Uri::from_static(server)));
    }

    #[tokio::test]
    async fn flags_have_the_effect_that_they_have_in_kubectl_and_a_missing_file_is_an_error() {
        let server = Uri::from_static("https://127.0.0.1:10258");
        let args = ManagerArgs {
            insecure_skip_tls_verify: true,
            tls_server_name: Some("manager".to_owned()),
            token_file: Some("token".into()),
            ..manager()
        };
        let made = config(&server, &args).await.unwrap();
        assert!(made.accept_invalid_certs && made.tls_server_name.as_deref() == Some("manager"));
        assert_eq!(made.auth_info.token_file.as_deref(), Some("token"));
        assert!(!config(&server, &manager()).await.unwrap().accept_invalid_certs);
        let args = ManagerArgs { certificate_authority: Some("absent.pem".into()), ..manager() };
        let error = format!("{:#}", config(&server, &args).await.unwrap_err());
        assert!(error.contains("absent.pem"), "{error}");
    }

    /// A server that does not answer, and a server with an untrusted certificate.
    #[tokio::test]
    async fn the_error_about_an_unreachable_manager_has_a_remedy() {
        let lost = async |why: &'static str| {
            let service =
                service_fn(move |_: Request<Body>| async move { Err::<Response<Body>, _>(std::io::Error::other(why)) });
            get(&Client::new(service, "default"), "https://m:1", "/providers", 1).await
        };
        expect!["the manager at https://m:1 does not answer; check the address, or forward the port (`kubectl -n skysail-system port-forward deploy/skysail 10258`): ServiceError: Connection refused: Connection refused"].assert_eq(&format!("{:#}", lost("Connection refused").await.unwrap_err()));
        expect!["the manager at https://m:1 does not answer; its certificate is not trusted; name its CA with --certificate-authority or, if the manager made the certificate itself and the connection is a port-forward, use --insecure-skip-tls-verify: ServiceError: invalid peer certificate: UnknownIssuer: invalid peer certificate: UnknownIssuer"].assert_eq(&format!("{:#}", lost("invalid peer certificate: UnknownIssuer").await.unwrap_err()));
    }
}
