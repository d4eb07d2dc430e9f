//! Where `skysail status` has it from: the objects of the cluster, or a manager's HTTPS port. What
//! comes is bounded, and each failure says the way out.

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

/// Most bytes of a manager's answer: 32 providers with texts of their greatest length and a
/// function each of the contract are below 2 MiB.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// How long a manager may take to be reached, and to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The path on the manager's port.
const PATH: &str = "/providers";

/// The objects of the cluster; where some are named, the others without what became of them.
///
/// # Errors
/// No cluster, no resource `Provider`, no right to list it; a status that is to be told and cannot
/// be read.
pub(super) async fn of_cluster(kubeconfig: Option<&Path>, named: &[String]) -> anyhow::Result<ProviderList> {
    let client = Cluster::of(kubeconfig).await.and_then(|cluster| cluster.client("status")).or_exit(Reason::Usage)?;
    listed(client, named).await
}

async fn listed(client: Client, named: &[String]) -> anyhow::Result<ProviderList> {
    let api: Api<DynamicObject> = Api::all_with(client, &api_resource());
    let objects = list_all(&api).await.or_else(unreadable)?;
    let read = |mut object: DynamicObject| {
        let name = object.metadata.name.clone().unwrap_or_default();
        if !named.is_empty() && !named.contains(&name) {
            // Nobody asks for it, so it need not be one that this program can read.
            object.data = json!({});
        }
        let provider = serde_json::to_value(object).and_then(serde_json::from_value);
        provider.with_context(|| format!("Provider {name:?} has a status that this program cannot read: use the manager's version of it, or kubectl"))
    };
    let items = objects.into_iter().map(read).collect::<anyhow::Result<_>>()?;
    Ok(ProviderList { api_version: API_VERSION.to_owned(), kind: format!("{KIND}List"), items })
}

fn unreadable(error: kube::Error) -> anyhow::Result<Vec<DynamicObject>> {
    let told = match &error {
        // A server that does not know the type answers with a plain page.
        kube::Error::Api(status) if status.code == 404 => anyhow!(
            "the cluster does not know the resource providers.skysail.dev: ask a manager with --provider-file itself, by --server https://HOST:10258, or define the resource with `skysail crd | kubectl apply -f -`"
        ),
        kube::Error::Api(status) if status.is_forbidden() => anyhow!(
            "this account may not list Providers ({}): give it the right, as with `kubectl create clusterrole provider-reader --verb=list --resource=providers.skysail.dev` and a binding",
            plain(&status.message)
        ),
        kube::Error::Api(status) if status.code == 401 => anyhow!(
            "the cluster does not know who asks ({}): renew the kubeconfig's credentials",
            plain(&status.message)
        ),
        _ => {
            return Err(error)
                .context("cannot list Providers: check the kubeconfig's server and credentials")
                .or_exit(Reason::Unreachable);
        }
    };
    Err(told).or_exit(Reason::Usage)
}

/// A manager's own answer.
///
/// # Errors
/// A wrong flag, nobody there, or no right to the path.
pub(super) async fn of_manager(server: &Uri, args: &ManagerArgs) -> anyhow::Result<ProviderList> {
    let config = config(server, args).await.or_exit(Reason::Usage)?;
    asked(Cluster::at(config).client("status").or_exit(Reason::Usage)?, server.to_string().trim_end_matches('/')).await
}

/// As kubectl's flags of these names make it.
async fn config(server: &Uri, args: &ManagerArgs) -> anyhow::Result<Config> {
    // A token is shown to nobody who can be overheard.
    if server.scheme() != Some(&Scheme::HTTPS) || server.path().len() > 1 || server.query().is_some() {
        return Err(anyhow!("--server {server}: write the manager's HTTPS port, without a path: https://HOST:10258"));
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
    let mut config = config.context("a file that belongs to --server cannot be used")?;
    (config.connect_timeout, config.read_timeout) = (Some(PATIENCE), Some(PATIENCE));
    // A proxy of this terminal's surroundings knows no way to a port-forward.
    config.proxy_url = None;
    Ok(config)
}

async fn asked(client: Client, server: &str) -> anyhow::Result<ProviderList> {
    let request = Request::get(PATH).body(Body::empty()).context("cannot make the request")?;
    let answer = client.send(request).await.map_err(anyhow::Error::from);
    let answer = answer.map_err(|error| {
        let way_out = unreachable(&format!("{error:#}"));
        error.context(format!("the manager at {server} does not answer: {way_out}"))
    });
    let answer = answer.or_exit(Reason::Unreachable)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!(error)).with_context(|| {
        format!("the manager at {server} does not answer to the end, or with more than {ANSWER_BYTES_MAX} bytes: it is none, or not reached well")
    });
    let body = body.or_exit(Reason::Unreachable)?.to_bytes();
    understood(status, &body, server)
}

/// What to do about a connection that cannot be made: the two reasons that there are look alike in
/// their types, and not in their texts.
fn unreachable(why: &str) -> &'static str {
    if why.contains("certificate") {
        "its certificate is not trusted; name what it is signed by with --certificate-authority or, where it is made in memory and reached through a port-forward, take --insecure-skip-tls-verify"
    } else {
        "check the address, or forward its port (`kubectl -n skysail-system port-forward deploy/skysail 10258`)"
    }
}

fn understood(status: StatusCode, body: &[u8], server: &str) -> anyhow::Result<ProviderList> {
    let said = || {
        let said = serde_json::from_slice::<Status>(body).ok().and_then(|status| status.message);
        said.map(|said| format!(" ({})", plain(&said))).unwrap_or_default()
    };
    let told = match status {
        StatusCode::OK => {
            return serde_json::from_slice(body)
                .with_context(|| format!("what answers at {server}{PATH} is no manager of this program's version: use the version of the manager"));
        }
        StatusCode::UNAUTHORIZED => anyhow!(
            "the manager at {server} does not know who asks{}: show a token with --token-file, as from `kubectl create token`, or a certificate with --client-certificate and --client-key",
            said()
        ),
        StatusCode::FORBIDDEN => anyhow!(
            "the manager at {server} may not tell who asks{}: give them the right to get {PATH}, as with `kubectl create clusterrole skysail-status --verb=get --non-resource-url={PATH}` and a binding; who shows no token or certificate is anonymous",
            said()
        ),
        StatusCode::NOT_FOUND => anyhow!(
            "what answers at {server} has no {PATH}: it is an older manager, or none; the port is that of --secure-port, 10258 where it is not set"
        ),
        status => anyhow!("the manager at {server} answers {status}{}: its log says why", said()),
    };
    Err(told).or_exit(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Reason::Usage,
        _ => Reason::Failed,
    })
}

#[cfg(test)]
mod tests;
