//! Reads the state of the providers for `skysail status`: from the objects of the cluster, or from
//! a manager's HTTPS port. The size of an answer is bounded, and each error has a remedy.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, anyhow};
use http::{Request, StatusCode, Uri, uri::Scheme};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::{
    Api, Client, Config,
    api::DynamicObject,
    client::Body,
    config::{AuthInfo, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext},
};
use serde_json::json;

use super::ProviderList;
use crate::{
    args::ManagerArgs,
    cluster::{Cluster, list_all},
    commands::run::api_resource,
    exit::{MarkExt as _, Reason},
    output::plain,
    provider_file::{API_VERSION, KIND},
};

/// Largest answer of a manager, in bytes: 32 providers with the longest texts and all functions of
/// the contract are below 2 MiB.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// How long a manager may take for a connection, and for an answer.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(20);

/// The path on the manager's port.
const PATH: &str = "/providers";

/// The objects of the cluster; if some are named, the others without their status.
///
/// # Errors
/// The cluster does not answer, has no resource `Provider` or does not permit to list it, or the
/// status of a named object cannot be parsed.
pub(super) async fn of_cluster(kubeconfig: Option<&Path>, named: &[String]) -> anyhow::Result<ProviderList> {
    let cluster = Cluster::of(kubeconfig).await.or_exit(Reason::Usage)?;
    let client = cluster.client("status").await.or_exit(Reason::Usage)?;
    listed(client, named).await
}

async fn listed(client: Client, named: &[String]) -> anyhow::Result<ProviderList> {
    let api: Api<DynamicObject> = Api::all_with(client, &api_resource());
    let objects = list_all(&api).await.or_else(unreadable)?;
    let read = |mut object: DynamicObject| {
        let name = object.metadata.name.clone().unwrap_or_default();
        if !named.is_empty() && !named.contains(&name) {
            // This object is not printed, so its status is not parsed.
            object.data = json!({});
        }
        let provider = serde_json::to_value(object).and_then(serde_json::from_value);
        provider.with_context(|| format!("Provider {name:?} has a status that this version of skysail cannot read; use the version of the manager, or kubectl"))
    };
    let items = objects.into_iter().map(read).collect::<anyhow::Result<_>>()?;
    Ok(ProviderList { api_version: API_VERSION.to_owned(), kind: format!("{KIND}List"), items })
}

fn unreadable(error: kube::Error) -> anyhow::Result<Vec<DynamicObject>> {
    let refused = match &error {
        // An API server without the resource answers with plain text.
        kube::Error::Api(status) if status.code == 404 => anyhow!(
            "the cluster has no resource providers.skysail.dev; if the manager has a provider file, ask the manager with --server https://HOST:10258, else install the CRD with `skysail crd | kubectl apply -f -`"
        ),
        kube::Error::Api(status) if status.is_forbidden() => anyhow!(
            "this account has no permission to list Providers ({}); give the account the permission, for example with `kubectl create clusterrole provider-reader --verb=list --resource=providers.skysail.dev` and a binding",
            plain(&status.message)
        ),
        kube::Error::Api(status) if status.code == 401 => anyhow!(
            "401 Unauthorized: the API server rejected the credentials ({}); renew the credentials in the kubeconfig",
            plain(&status.message)
        ),
        _ => {
            return Err(error)
                .context("cannot list Providers; check the server and the credentials in the kubeconfig")
                .or_exit(Reason::Unreachable);
        }
    };
    Err(refused).or_exit(Reason::Usage)
}

/// The answer of a manager.
///
/// # Errors
/// A flag is invalid, the manager does not answer, or the account may not get the path.
pub(super) async fn of_manager(server: &Uri, args: &ManagerArgs) -> anyhow::Result<ProviderList> {
    let config = config(server, args).await.or_exit(Reason::Usage)?;
    let client = Cluster::at(config).client("status").await.or_exit(Reason::Usage)?;
    asked(client, server.to_string().trim_end_matches('/')).await
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

async fn asked(client: Client, server: &str) -> anyhow::Result<ProviderList> {
    let request = Request::get(PATH).body(Body::empty()).context("cannot make the request")?;
    let answer = client.send(request).await.map_err(anyhow::Error::from);
    let answer = answer.map_err(|error| {
        let remedy = remedy_of(&format!("{error:#}"));
        error.context(format!("the manager at {server} does not answer; {remedy}"))
    });
    let answer = answer.or_exit(Reason::Unreachable)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!(error)).with_context(|| {
        format!("the answer of {server} is incomplete or has more than {ANSWER_BYTES_MAX} bytes; check that the address is that of a manager, and the network to it")
    });
    let body = body.or_exit(Reason::Unreachable)?.to_bytes();
    understood(status, &body, server)
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

fn understood(status: StatusCode, body: &[u8], server: &str) -> anyhow::Result<ProviderList> {
    let said = || {
        let said = serde_json::from_slice::<Status>(body).ok().and_then(|status| status.message);
        said.map(|said| format!(" ({})", plain(&said))).unwrap_or_default()
    };
    let refused = match status {
        StatusCode::OK => {
            return serde_json::from_slice(body)
                .with_context(|| format!("the answer of {server}{PATH} is not that of a manager of this version; use the version of the manager"));
        }
        StatusCode::UNAUTHORIZED => anyhow!(
            "401 Unauthorized: the manager at {server} rejected the credentials{}; give a token with --token-file, for example from `kubectl create token`, or a certificate with --client-certificate and --client-key",
            said()
        ),
        StatusCode::FORBIDDEN => anyhow!(
            "403 Forbidden: the manager at {server} does not allow this account to get {PATH}{}; give the account the permission, for example with `kubectl create clusterrole skysail-status --verb=get --non-resource-url={PATH}` and a binding; a request without a token or certificate is anonymous",
            said()
        ),
        StatusCode::NOT_FOUND => anyhow!(
            "the server at {server} has no path {PATH}: it is an older manager, or not a manager; check the port, which is that of --secure-port (default 10258)"
        ),
        status => anyhow!("the manager at {server} answers with {status}{}; its log has the reason", said()),
    };
    Err(refused).or_exit(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Reason::Usage,
        _ => Reason::Failed,
    })
}

#[cfg(test)]
mod tests;
