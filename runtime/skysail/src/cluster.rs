//! Clients of the Kubernetes API: their identity, their user agent and their request rate. Their
//! deadlines are in [`policy`].
//!
//! Each controller has its own client, as upstream: `--kube-api-qps` holds for each client, and the
//! API server's log shows the controller as the user agent. With
//! `--use-service-account-credentials` each controller also has its own `ServiceAccount`.

mod account_tokens;
mod policy;
mod service_account;

use std::{error::Error as _, fmt::Debug, path::Path};

use anyhow::{Context as _, anyhow};
use http::{HeaderValue, Uri, header::USER_AGENT};
use kube::{
    Api, Client, Config,
    api::ListParams,
    client::ClientBuilder,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;
use skysail_controllers::{Clients, Rate, ThrottleLayer};
use skysail_host::read_file;
use skysail_serving::metrics::RestClientMetrics;
use tower::util::option_layer;

use crate::args::GenericArgs;
pub(crate) use account_tokens::account_tokens;
use service_account::ServiceAccountLayer;

/// The largest kubeconfig, in bytes: one cluster is a few KiB.
const KUBECONFIG_BYTES_MAX: u64 = 4 << 20;

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// The configuration of a cluster, from which clients are made.
pub(crate) struct Cluster {
    config: Config,
    rate: Option<Rate>,
    service_accounts: bool,
    metrics: Option<RestClientMetrics>,
}

impl Cluster {
    /// Finds the configuration: the kubeconfig or the address in the flags, else `$KUBECONFIG`,
    /// `~/.kube/config` or the service account of the pod. Sends no request.
    ///
    /// # Errors
    /// There is no configuration, or it is invalid.
    pub(crate) async fn find(args: &GenericArgs, metrics: RestClientMetrics) -> anyhow::Result<Self> {
        let mut config = match (&args.kubeconfig, &args.master) {
            (None, Some(master)) => Config::new(master.clone()),
            (path, _) => usual(path.as_deref()).await?,
        };
        if let Some(master) = &args.master {
            config.cluster_url = absolute(master)?;
        }
        let rate = Rate::new(args.kube_api_qps, args.kube_api_burst);
        let service_accounts = args.use_service_account_credentials;
        Ok(Self { config, rate, service_accounts, metrics: Some(metrics) })
    }

    /// The same for a command that sends few requests: without `--master`, a rate limit or metrics.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) async fn of(kubeconfig: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self::at(usual(kubeconfig).await?))
    }

    /// The same for a given configuration.
    pub(crate) const fn at(config: Config) -> Self {
        Self { config, rate: None, service_accounts: false, metrics: None }
    }

    /// The same with a rate limit for each of its clients.
    pub(crate) fn limited(self, rate: Option<Rate>) -> Self {
        Self { rate, ..self }
    }

    /// The same with metrics of its requests.
    pub(crate) fn counted(self, metrics: &RestClientMetrics) -> Self {
        Self { metrics: Some(metrics.clone()), ..self }
    }

    /// A client with the identity of the process; `name` is part of its user agent.
    ///
    /// # Errors
    /// The configuration is invalid, or its exec plugin fails.
    pub(crate) async fn client(&self, name: &str) -> anyhow::Result<Client> {
        self.build(self.config.clone(), name, None).await
    }

    /// The clients of the controllers.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub(crate) async fn clients(&self) -> anyhow::Result<Clients> {
        Ok(Clients {
            shared_informers: self.client("shared-informers").await?,
            service_controller: self.of_controller("service-controller").await?,
            node_controller: self.of_controller("node-controller").await?,
            route_controller: self.of_controller("route-controller").await?,
            service_events: self.of_controller("service-controller").await?,
            node_events: self.of_controller("node-controller").await?,
        })
    }

    async fn of_controller(&self, name: &'static str) -> anyhow::Result<Client> {
        if !self.service_accounts {
            return self.client(name).await;
        }
        // The client must not use the identity of the process: its token decides its permissions.
        let mut anonymous = self.config.clone();
        anonymous.auth_info = AuthInfo::default();
        let tokens = self.client(&format!("{name}-tokens")).await?;
        self.build(anonymous, name, Some(ServiceAccountLayer::new(tokens, name))).await
    }

    async fn build(
        &self,
        mut config: Config,
        name: &str,
        account: Option<ServiceAccountLayer>,
    ) -> anyhow::Result<Client> {
        let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
        let agent = HeaderValue::try_from(format!("skysail/{version} ({os}/{arch}) {name}"));
        config.headers.push((USER_AGENT, agent.context("the name of a client is not a valid header")?));
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let namespace = config.default_namespace.clone();
        let transport = policy::transport(config).await.context("cannot make a client of the cluster")?;
        let builder = ClientBuilder::new(transport, namespace);
        let throttle = option_layer(self.rate.map(ThrottleLayer::new));
        let counted = option_layer(self.metrics.as_ref().map(|metrics| metrics.layer(host)));
        // The transport sets the deadline of a request. The waits before it do not count and have
        // bounds of their own: a token takes at most three requests, each with its deadline, and
        // the rate limit delays a request only by those before it, at most one for each worker.
        Ok(builder.with_layer(&counted).with_layer(&throttle).with_layer(&option_layer(account)).build())
    }
}

/// Lists all objects, page by page.
///
/// # Errors
/// The API server does not answer, or its answer is not a list.
pub(crate) async fn list_all<K>(api: &Api<K>) -> kube::Result<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = api.list(&params).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// The configuration in the named kubeconfig, else the one that kube infers.
async fn usual(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    match kubeconfig {
        Some(path) => from_file("--kubeconfig", path).await,
        None => Config::infer().await.map_err(|error| {
            // The whole error begins with the pod that this process is not in, and names the
            // kubeconfig three times.
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            anyhow!(
                "no cluster is configured: {why}; give --kubeconfig or set KUBECONFIG to a kubeconfig that exists, or run in a pod with a service account"
            )
        }),
    }
}

/// The configuration in the kubeconfig that a flag names.
///
/// # Errors
/// The kubeconfig cannot be read or is invalid.
pub(crate) async fn from_file(flag: &str, path: &Path) -> anyhow::Result<Config> {
    let what = || format!("{flag} {}", path.display());
    // The error of kube would repeat the reason and give no remedy. And kube would wait for the
    // writer of a pipe, or read a device without end.
    read_file(path, KUBECONFIG_BYTES_MAX)
        .with_context(|| format!("{flag}: cannot read {}; name a kubeconfig that exists", path.display()))?;
    let kubeconfig = Kubeconfig::read_from(path).with_context(what)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.with_context(what)
}

/// Checks that the address of an API server has a scheme and a host.
fn absolute(master: &Uri) -> anyhow::Result<Uri> {
    if master.scheme().is_some() && master.authority().is_some() {
        return Ok(master.clone());
    }
    Err(anyhow!("--master {master} has no scheme or no host; write the whole URL, such as https://192.0.2.1:6443"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::from_file;

    #[tokio::test]
    async fn a_pipe_in_place_of_a_kubeconfig_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = format!("{:#}", from_file("--kubeconfig", &pipe).await.unwrap_err());
        assert!(error.starts_with("--kubeconfig: cannot read ") && error.contains("not a regular file"), "{error}");
    }
}
