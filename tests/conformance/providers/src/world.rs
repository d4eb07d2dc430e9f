//! A component in the host, its cloud, and the proxy between both.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use skysail_host::{
    CallRecorder, Engine, Limits, Problem, Release, Sandbox, SandboxOptions, SandboxedProvider, Severity, check_config,
    credentials::{Credentials, SecretValues},
    describe,
    egress::{CaBundleSpec, EgressPolicy, EgressSpec},
    http_client::{DeletionBudget, HttpClient},
};
use skysail_provider::{
    Call, Code, Detail, Error, EventSink, Instance, LoadBalancerStatus, Node, NodeSet, OwnedLoadBalancer,
    Provider as _, ProviderEvent, Service,
};

use crate::{
    cloud::{Cloud, Settings},
    component, leaks,
    proxy::{Proxy, Request},
};

/// The cluster's name.
pub const CLUSTER: &str = "kubernetes";

/// Longest time until the cloud has finished the work of one Service: the services of OpenStack
/// take seconds, on a busy machine minutes.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(600);

/// A provider that serves, in front of its cloud.
pub struct World<C> {
    /// The cloud.
    pub cloud: C,
    /// Between the provider and the cloud.
    pub proxy: Proxy,
    /// The component in the host.
    pub provider: SandboxedProvider,
    /// Counts the calls of the provider.
    pub release: Arc<Release>,
    /// What all calls say about themselves.
    pub call: Call,
    /// Has a record of each call.
    pub recorder: CallRecorder,
    /// The operator's budget of deletions: none at first.
    pub deletions: Arc<DeletionBudget>,
    _engine: Engine,
}

impl<C: Cloud> World<C> {
    /// Starts the cloud and the provider.
    ///
    /// # Errors
    /// The environment cannot be set up, or the component is refused.
    pub async fn start() -> Result<Self> {
        let cloud = C::start().await.with_context(|| format!("the cloud of {} cannot be started", C::COMPONENT))?;
        Self::before(cloud).await
    }

    /// Starts the provider in front of a cloud that runs.
    ///
    /// # Errors
    /// The component is refused.
    pub async fn before(cloud: C) -> Result<Self> {
        let proxy = Proxy::start(&cloud.services(), C::HTTPS).await?;
        let settings = cloud.settings(proxy.origins())?;
        leaks::watch(settings.values.values().cloned());
        let engine = Engine::on_demand()?;
        let ca_bundle = proxy.certificate().map(|pem| CaBundleSpec::Pem(pem.to_owned()));
        let recorder = CallRecorder::default();
        let deletions = Arc::new(DeletionBudget::default());
        let (provider, release) = serve(&engine, (&recorder, &deletions), C::COMPONENT, settings, ca_bundle).await?;
        Ok(Self {
            cloud,
            proxy,
            provider,
            release,
            call: Call { events: Some(Arc::new(Logged)), ..Call::default() },
            recorder,
            deletions,
            _engine: engine,
        })
    }

    /// Repeats a call while it returns `RetryAfter`, as the controllers do, but sooner.
    ///
    /// # Errors
    /// Every other error, or the cloud does not finish in time.
    pub async fn until_settled<T>(&self, what: &str, mut call: impl AsyncFnMut() -> Result<T, Error>) -> Result<T> {
        let end = tokio::time::Instant::now() + SETTLED_WITHIN;
        loop {
            match call().await {
                Err(error) if error.code == Code::RetryAfter => {
                    ensure!(tokio::time::Instant::now() < end, "{what} did not finish in {SETTLED_WITHIN:?}: {error}");
                    tokio::time::sleep(error.retry_after.unwrap_or(C::WAIT_MAX).min(C::WAIT_MAX)).await;
                }
                result => return result.map_err(|error| anyhow!("{what}: {error} [{:?}]", error.code)),
            }
        }
    }

    /// Creates machines with these names.
    ///
    /// # Errors
    /// The cloud refuses.
    pub async fn nodes(&self, names: &[&str]) -> Result<NodeSet> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(set(self.cloud.add_machines(&names).await?))
    }

    /// The requests since the last call that can change something.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        let seen = self.proxy.take();
        seen.iter().filter(|request| C::is_write(request)).map(line).collect()
    }

    /// One call of `ensure`.
    ///
    /// # Errors
    /// Those of the provider.
    pub async fn ensure_once(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &NodeSet,
    ) -> Result<LoadBalancerStatus, Error> {
        match self.provider.load_balancers() {
            Some(balancers) => {
                let answer = balancers.ensure(&self.call, cluster, service, nodes).await;
                tracing::debug!(?answer, "`ensure`");
                answer
            }
            None => Err(no_interface()),
        }
    }

    /// Calls `ensure` until the cloud has finished.
    ///
    /// # Errors
    /// Every other error than `RetryAfter`, or the cloud does not finish in time.
    pub async fn ensure(&self, service: &Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        self.ensure_in(CLUSTER, service, nodes).await
    }

    /// [`Self::ensure`] for a cluster of this name.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub async fn ensure_in(&self, cluster: &str, service: &Service, nodes: &NodeSet) -> Result<LoadBalancerStatus> {
        self.until_settled("ensure", async || self.ensure_once(cluster, service, nodes).await).await
    }

    /// Calls `update` until the cloud has finished.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub async fn update(&self, service: &Service, nodes: &NodeSet) -> Result<()> {
        let balancers = self.provider.load_balancers().ok_or_else(no_interface)?;
        self.until_settled("update", async || balancers.update(&self.call, CLUSTER, service, nodes).await).await
    }

    /// One call of `ensure-deleted`.
    ///
    /// # Errors
    /// Those of the provider.
    pub async fn ensure_deleted_once(&self, cluster: &str, service: &Service) -> Result<(), Error> {
        match self.provider.load_balancers() {
            Some(balancers) => balancers.ensure_deleted(&self.call, cluster, service).await,
            None => Err(no_interface()),
        }
    }

    /// Calls `ensure-deleted` until the cloud has finished.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub async fn ensure_deleted(&self, service: &Service) -> Result<()> {
        self.ensure_deleted_in(CLUSTER, service).await
    }

    /// [`Self::ensure_deleted`] for a cluster of this name.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub async fn ensure_deleted_in(&self, cluster: &str, service: &Service) -> Result<()> {
        self.until_settled("ensure-deleted", async || self.ensure_deleted_once(cluster, service).await).await
    }

    /// The current status in the cloud.
    ///
    /// # Errors
    /// Those of the provider.
    pub async fn get(&self, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        let balancers = self.provider.load_balancers().ok_or_else(no_interface)?;
        Ok(balancers.get(&self.call, CLUSTER, service).await?)
    }

    /// The inventory of a cluster.
    ///
    /// # Errors
    /// Those of the provider.
    pub async fn inventory(&self, cluster: &str) -> Result<Vec<OwnedLoadBalancer>> {
        let inventory = self.provider.load_balancer_inventory().ok_or_else(no_interface)?;
        let mut owned = inventory.list(&self.call, cluster).await?;
        owned.sort();
        Ok(owned)
    }

    /// Deletes an entry of the inventory until the cloud has finished.
    ///
    /// # Errors
    /// As [`Self::ensure`].
    pub async fn delete_owned(&self, cluster: &str, owned: &OwnedLoadBalancer) -> Result<()> {
        let inventory = self.provider.load_balancer_inventory().ok_or_else(no_interface)?;
        self.until_settled("inventory.delete", async || inventory.delete(&self.call, cluster, owned).await).await
    }

    /// Asks for the machines of these nodes.
    ///
    /// # Errors
    /// An outer error.
    pub async fn machines(&self, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance, Error>>, Error> {
        match self.provider.instances() {
            Some(instances) => instances.describe(&self.call, nodes, detail).await,
            None => Err(no_interface()),
        }
    }
}

/// Writes the Events of the provider to the log, which is searched for credentials.
struct Logged;

impl EventSink for Logged {
    fn emit(&self, event: ProviderEvent) {
        tracing::info!(?event, "the provider emits an Event");
    }
}

/// The component under these settings, after all checks of an admission.
async fn serve(
    engine: &Engine,
    (recorder, deletions): (&CallRecorder, &Arc<DeletionBudget>),
    name: &'static str,
    settings: Settings,
    ca_bundle: Option<CaBundleSpec>,
) -> Result<(SandboxedProvider, Arc<Release>)> {
    let Settings { config, rules, credentials, values, public } = settings;
    let spec = EgressSpec { rules, ca_bundle, allow_cidrs: vec!["127.0.0.0/8".to_owned()], ..EgressSpec::default() };
    let value = |name: &str| values.get(name).or_else(|| public.get(name)).cloned();
    let credentials = Credentials::load(&credentials, &value, &SecretValues::new())?;
    // No test is about these limits, and a cloud in a few processes of a busy machine is slow.
    let limits =
        Limits { http_requests_per_second: 10_000, http_time_ms: 120_000, deadline_ms: 300_000, ..Limits::default() };
    let client = HttpClient::new(Arc::new(EgressPolicy::new(&spec)?), Arc::new(credentials), &limits.http())?;
    let client = client.with_deletions(Arc::clone(deletions));
    let options =
        SandboxOptions { name: name.to_owned(), limits, config: config.clone(), http: Some(Arc::new(client)) };
    let (sandbox, release) = sandboxed(engine, recorder, name, options)?;
    let info = Arc::new(describe(&sandbox, &release).await?);
    let problems = check_config(&sandbox, &release, &config).await?;
    if let Some(problem) = problems.iter().find(|problem| problem.severity == Severity::Fatal) {
        bail!("the component refuses the cloud-config of the suite: {}: {}", problem.key, problem.message);
    }
    Ok((SandboxedProvider::new(sandbox, Arc::clone(&release), info), release))
}

fn sandboxed(
    engine: &Engine,
    recorder: &CallRecorder,
    name: &'static str,
    options: SandboxOptions,
) -> Result<(Arc<Sandbox>, Arc<Release>)> {
    let sandbox = Sandbox::new(engine, recorder.clone(), options)?;
    // No test looks at the digest.
    let digest = format!("sha256:{}", "0".repeat(64));
    let release = Arc::new(Release::new(&sandbox, &*component::compiled(name)?, &digest)?);
    Ok((sandbox, release))
}

/// What a component says about a cloud-config, without a cloud.
///
/// # Errors
/// The component is missing or fails.
pub async fn problems(name: &'static str, config: &str) -> Result<Vec<Problem>> {
    let options =
        SandboxOptions { name: name.to_owned(), limits: Limits::default(), config: config.to_owned(), http: None };
    let (sandbox, release) = sandboxed(&Engine::on_demand()?, &CallRecorder::default(), name, options)?;
    Ok(check_config(&sandbox, &release, config).await?)
}

/// A set of these nodes.
#[must_use]
pub fn set(nodes: Vec<Node>) -> NodeSet {
    NodeSet::new(nodes.into_iter().map(Arc::new))
}

/// All nodes but the first one.
#[must_use]
pub fn one_less(nodes: &NodeSet) -> NodeSet {
    NodeSet::new(nodes.as_slice().iter().skip(1).cloned())
}

/// A request in one line, for messages.
#[must_use]
pub fn line(request: &Request) -> String {
    let body = String::from_utf8_lossy(&request.body);
    let body: String = body.chars().take(200).collect();
    format!("{} {} {body}", request.method, request.path)
}

fn no_interface() -> Error {
    Error::new(Code::Unsupported, "the component does not export the interface that this test needs")
}
