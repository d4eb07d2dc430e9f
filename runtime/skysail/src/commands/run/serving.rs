//! The HTTPS ports of this process: their endpoints, authentication and authorization.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use anyhow::bail;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use skysail_controllers::{EnabledControllers, FIRST_LIST_MAX, Progress, Providers};
use skysail_election::{Health as LeaseHealth, LEADER_ELECTION_CHECK};
use skysail_host::{
    Limits,
    slot::{DRAIN, Slot},
};
use skysail_provider::Provider as _;
use skysail_serving::{
    Endpoints, Guard, HealthCheck, HealthChecks, Reviewers, SecureServer, SetVerbosity,
    metrics::{Process, RestClientMetrics, RunningControllers, register_build_info},
    webhook::{WebhookMetrics, Webhooks},
};

use tokio::{runtime::Handle, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    client::of_the_reviewer, explanations::Explanations, follow::LeftOut, provider_statuses::ProviderStatuses,
    resources::ProviderState, threads::Beats,
};
use crate::{
    args::{Feature, RunArgs},
    providers::Served as ServedProvider,
    telemetry::Verbosity,
    webhooks,
};

/// The health checks and the metrics of the process.
pub(super) struct Health {
    healthz: HealthChecks,
    pub(super) livez: HealthChecks,
    readyz: HealthChecks,
    /// The permissions that this account lacks.
    missing: watch::Receiver<Option<String>>,
    running: RunningControllers,
    /// The progress of the controllers' workers.
    pub(super) progress: Progress,
    /// The slots whose calls may run, by provider.
    slots: Mutex<BTreeMap<String, Weak<Slot>>>,
}

/// The servers whose ports are bound.
pub(super) struct Servers {
    pub(super) endpoints: Option<SecureServer>,
    pub(super) webhooks: Option<SecureServer>,
}

impl Servers {
    /// Serves until `stop`: the endpoints on the control runtime, so that probes are answered while
    /// every worker thread is blocked; the webhooks, which call components, on the worker threads.
    pub(super) fn spawn(self, tasks: &mut JoinSet<anyhow::Result<()>>, stop: &CancellationToken, control: &Handle) {
        let serve = |server: SecureServer| {
            let stop = stop.clone();
            async move {
                server.serve(stop).await;
                Ok(())
            }
        };
        if let Some(server) = self.webhooks {
            tasks.spawn(serve(server));
        }
        if let Some(server) = self.endpoints {
            tasks.spawn_on(serve(server), control);
        }
    }
}

/// What the endpoints serve.
pub(super) struct Served<'a> {
    pub(super) health: &'a Health,
    pub(super) client_metrics: &'a RestClientMetrics,
    pub(super) verbosity: Verbosity,
    pub(super) providers: watch::Receiver<Providers>,
    pub(super) statuses: ProviderStatuses,
    pub(super) explanations: Explanations,
}

impl Health {
    /// Registers the metrics of the process. A Lease that this process holds and cannot renew fails
    /// `/healthz`, as upstream, and `/livez`.
    pub(super) fn register(
        registry: &mut Registry,
        leases: Vec<LeaseHealth>,
        missing: watch::Receiver<Option<String>>,
        beats: Beats,
    ) -> Self {
        register_build_info(registry, env!("CARGO_PKG_VERSION"));
        registry.register_collector(Box::new(Process));
        let starting = HealthCheck::new("providers", || Err("the manager is starting".to_owned()));
        let leases = (!leases.is_empty())
            .then(|| HealthCheck::new(LEADER_ELECTION_CHECK, move || leases.iter().try_for_each(LeaseHealth::check)));
        Self {
            healthz: HealthChecks::new(leases.clone()),
            livez: HealthChecks::new(leases.into_iter().chain([HealthCheck::new("threads", move || beats.check())])),
            readyz: HealthChecks::new([starting]),
            missing,
            running: RunningControllers::register(registry),
            progress: Progress::default(),
            slots: Mutex::default(),
        }
    }

    /// Registers the controllers that start: each gets a health check, as upstream, and a metric.
    /// Others may run already, under another Lease.
    pub(super) fn controllers_run(&self, enabled: EnabledControllers) {
        for (canonical, name, _) in names(enabled).into_iter().filter(|(_, _, enabled)| *enabled) {
            self.healthz.add([HealthCheck::ping(canonical)]);
            self.running.set(name, true);
        }
    }

    /// Sets the readiness checks: each provider has a serving release, no provider definition is
    /// left out, the account has its rights, and the running controllers have listed what they
    /// watch.
    ///
    /// A degraded provider has a note and does not fail its check: the provider works, and an
    /// unready pod would also lose the webhooks and the place of all other providers.
    pub(super) fn serve<'a>(
        &self,
        providers: impl Iterator<Item = &'a ServedProvider>,
        provider_states: &watch::Receiver<Vec<ProviderState>>,
        left_out: Option<LeftOut>,
    ) {
        let of_provider = |ServedProvider { slot, .. }: &ServedProvider| {
            let name = slot.name().to_owned();
            // A weak reference, so that a removed provider frees its memory.
            let (slot, provider_states) = (Arc::downgrade(slot), provider_states.clone());
            HealthCheck::with_note(format!("provider/{name}"), move || match slot.upgrade() {
                Some(slot) if slot.info().is_none() => Err(missing(&slot)),
                Some(_) => Ok(degraded(&provider_states.borrow(), &name)),
                None => Ok(None),
            })
        };
        let complete = left_out.map(|left_out| HealthCheck::new("providers", move || left_out().map_or(Ok(()), Err)));
        let missing = self.missing.clone();
        let permitted = HealthCheck::new("permissions", move || missing.borrow().clone().map_or(Ok(()), Err));
        let progress = self.progress.clone();
        let listed = HealthCheck::new("watches", move || progress.check_lists(Duration::ZERO));
        let served: Vec<_> = providers.collect();
        self.livez.add([self.controllers(&served), self.watches()]);
        self.readyz.replace(served.into_iter().map(of_provider).chain(complete).chain([permitted, listed]));
    }

    /// The check of the controllers: it fails if a worker makes no progress for longer than a call
    /// of its provider and requests to the API may take.
    fn controllers(&self, served: &[&ServedProvider]) -> HealthCheck {
        let served = served.iter().map(|served| (served.slot.name().to_owned(), Arc::downgrade(&served.slot)));
        let slots = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            remember(&mut slots, served);
            slots.clone()
        };
        let longest_call = move |provider: &str| {
            let serving = slots.get(provider).and_then(Weak::upgrade).and_then(|slot| slot.serving());
            serving.map_or(Duration::ZERO, |serving| longest_call(serving.sandbox().limits()))
        };
        let progress = self.progress.clone();
        HealthCheck::new("controllers", move || progress.check(&longest_call))
    }

    /// The check of the watches: it fails if a first list is missing for too long. It passes while
    /// the account lacks a right, because then no restart helps, and `/readyz` names the right.
    fn watches(&self) -> HealthCheck {
        let (progress, missing) = (self.progress.clone(), self.missing.clone());
        HealthCheck::new("watches", move || {
            if missing.borrow().is_some() { Ok(()) } else { progress.check_lists(FIRST_LIST_MAX) }
        })
    }
}

/// Adds the slots that are served now. The slot of a removed provider stays while the provider's
/// last calls hold it.
fn remember<T>(slots: &mut BTreeMap<String, Weak<T>>, served: impl Iterator<Item = (String, Weak<T>)>) {
    slots.retain(|_, slot| slot.strong_count() > 0);
    slots.extend(served);
}

/// The longest time between two steps of a worker that calls the provider. A swap cancels a call
/// after [`DRAIN`] and repeats it with a new deadline.
const fn longest_call(limits: &Limits) -> Duration {
    Duration::from_millis(limits.deadline_ms).saturating_mul(2).saturating_add(DRAIN)
}

/// The note about a provider whose condition `Degraded` is True.
fn degraded(provider_states: &[ProviderState], provider: &str) -> Option<String> {
    let provider_state = provider_states.iter().find(|provider_state| provider_state.name() == provider)?;
    Some(format!("degraded ({})", provider_state.degraded(Timestamp::now())?))
}

/// Why a provider has no release.
fn missing(slot: &Slot) -> String {
    let status = slot.status();
    let why = status.borrow().trouble().map(|trouble| format!(": {trouble}")).unwrap_or_default();
    format!("no release serves{why}")
}

/// Upstream's canonical name, its name in the metric, and whether it runs.
fn names(enabled: EnabledControllers) -> [(&'static str, &'static str, bool); 4] {
    [
        ("service-lb-controller", "service", enabled.service),
        ("cloud-node-controller", "cloud-node", enabled.cloud_node),
        ("cloud-node-lifecycle-controller", "cloud-node-lifecycle", enabled.cloud_node_lifecycle),
        ("node-route-controller", "route", enabled.route),
    ]
}

/// Binds the ports before anything else starts, so that a port in use is an error at the start.
///
/// # Errors
/// A flag or a file is invalid, a port is in use, or the cluster's CA certificates cannot be read.
pub(super) async fn bind(args: &RunArgs, mut registry: Registry, served: Served<'_>) -> anyhow::Result<Servers> {
    let Served { health, client_metrics, verbosity, providers, statuses, explanations } = served;
    let (options, webhook_options) = (args.secure_serving.options(), args.webhooks.options());
    if options.secure_port != 0 && options.secure_port == webhook_options.secure_port {
        bail!("--webhook-secure-port {} is also --secure-port; give each its own port", options.secure_port);
    }
    let mut servers = Servers { endpoints: None, webhooks: None };
    let selected = args.webhooks.selected();
    if args.common.generic.feature_gates.enabled(Feature::CloudControllerManagerWebhook) {
        let known = webhooks::all(providers, args.settings().cluster_name);
        let webhooks = Webhooks::select(&known, &selected, WebhookMetrics::register(&mut registry))?;
        servers.webhooks = SecureServer::webhooks(&webhook_options, &webhooks)?;
    } else if !selected.is_empty() {
        bail!(
            "--webhooks has no effect without its feature gate; add --feature-gates=CloudControllerManagerWebhook=true"
        );
    }
    // Without the port no authentication is needed.
    if options.secure_port != 0 {
        let guard = guard(args, client_metrics).await?;
        let configuration = configuration(args);
        let set: SetVerbosity = Arc::new(move |text| verbosity.set(text));
        let endpoints = Endpoints {
            healthz: health.healthz.clone(),
            livez: health.livez.clone(),
            readyz: health.readyz.clone(),
            registry: Arc::new(registry),
            configuration: Arc::new(move || configuration.clone()),
            providers: Arc::new(move || statuses.document()),
            services: Arc::new(move |namespace, name| explanations.service(namespace, name)),
            verbosity: args.secure_serving.profiling.then_some(set),
        };
        servers.endpoints = SecureServer::endpoints(&options, endpoints, guard)?;
    }
    for server in [&servers.endpoints, &servers.webhooks].into_iter().flatten() {
        tracing::info!(address = %server.local_addr(), "serving HTTPS");
    }
    Ok(servers)
}

async fn guard(args: &RunArgs, metrics: &RestClientMetrics) -> anyhow::Result<Arc<Guard>> {
    let (flag, file) = ("--authentication-kubeconfig", &args.authentication.authentication_kubeconfig);
    let authentication = of_the_reviewer(flag, file.as_deref(), metrics).await?;
    if authentication.is_none() {
        tracing::warn!(
            "outside of a pod and without {flag} no token is reviewed; callers without a known client certificate are anonymous"
        );
    }
    let (flag, file) = ("--authorization-kubeconfig", &args.authorization.authorization_kubeconfig);
    let authorization = of_the_reviewer(flag, file.as_deref(), metrics).await?;
    if authorization.is_none() {
        tracing::warn!("outside of a pod and without {flag} only --authorization-always-allow-paths are served");
    }
    let reviewers = Reviewers { authentication, authorization };
    Ok(Guard::new(&args.authentication.options(), args.authorization.options(), reviewers).await?)
}

/// The settings in force, under the names of upstream's configuration if it has them.
fn configuration(args: &RunArgs) -> Value {
    let settings = args.settings();
    let running = names(settings.controllers).into_iter().filter(|(_, _, enabled)| *enabled);
    json!({
        "Generic": {
            "Address": args.secure_serving.bind_address,
            "Port": args.secure_serving.secure_port,
            "Controllers": running.map(|(canonical, _, _)| canonical).collect::<Vec<_>>(),
            "LeaderElection": { "LeaderElect": args.leader_election.leader_elect },
            "Debugging": { "EnableProfiling": args.secure_serving.profiling, "EnableContentionProfiling": false },
        },
        "KubeCloudShared": {
            "ClusterName": settings.cluster_name,
            "NodeMonitorPeriod": go_duration(settings.node_monitor_period),
        },
        "ServiceController": { "ConcurrentServiceSyncs": settings.concurrent_service_syncs },
        "NodeController": { "ConcurrentNodeSyncs": settings.concurrent_node_syncs },
        "NodeStatusUpdateFrequency": go_duration(settings.node_status_update_frequency),
        "Webhook": { "Webhooks": args.webhooks.selected() },
        "Skysail": {
            "ProviderFile": args.providers.provider_file,
            "ProviderResources": args.providers.provider_resources,
        },
    })
}

/// A duration in the notation of Go.
fn go_duration(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, iter, sync::Arc, time::Duration};

    use prometheus_client::registry::Registry;
    use skysail_host::Limits;
    use tokio::sync::watch;

    use super::{Beats, DRAIN, Health, longest_call, remember};

    /// Where the right is missing at the start, no restart helps.
    #[tokio::test]
    async fn a_right_that_is_missing_fails_readyz_and_no_other_check() {
        let (missing, asked) = watch::channel(None);
        let health = Health::register(&mut Registry::default(), Vec::new(), asked, Beats::new());
        health.serve(iter::empty(), &watch::channel(Vec::new()).1, None);
        assert_eq!(health.readyz.failures(), [""; 0]);
        missing.send_replace(Some("list services".to_owned()));
        assert_eq!(health.readyz.failures(), ["permissions: list services"]);
        assert_eq!((health.livez.failures(), health.healthz.failures()), (vec![], vec![]));
        missing.send_replace(None);
        assert_eq!(health.readyz.failures(), [""; 0]);
    }

    #[test]
    fn a_removed_provider_has_its_deadlines_while_its_last_calls_hold_its_slot() {
        let (mut slots, first, second) = (BTreeMap::new(), Arc::new(1), Arc::new(2));
        let served = |name: &str, slot: &Arc<i32>| iter::once((name.to_owned(), Arc::downgrade(slot)));
        remember(&mut slots, served("first", &first));
        remember(&mut slots, served("second", &second));
        assert_eq!(slots["first"].upgrade(), Some(Arc::clone(&first)));
        drop(first);
        remember(&mut slots, served("second", &second));
        assert_eq!(slots.keys().collect::<Vec<_>>(), ["second"]);
    }

    /// A call that a swap cancels is repeated with a deadline of its own.
    #[test]
    fn two_calls_at_their_deadline_with_a_swap_between_them_are_progress() {
        let limits = Limits { deadline_ms: 600_000, ..Limits::default() };
        assert_eq!(longest_call(&limits), Duration::from_mins(20) + DRAIN);
    }
}
