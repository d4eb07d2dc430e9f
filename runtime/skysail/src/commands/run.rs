//! `skysail run`: runs the manager against a cluster, until SIGTERM or Ctrl-C.

mod client;
mod explanations;
mod follow;
mod permissions;
mod provider_statuses;
mod resources;
mod serving;
mod threads;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use prometheus_client::registry::Registry;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skysail_controllers::{
    Clients, ControllerMetrics, ControllerSettings, Ending, Events, Explainer, Manager, ProviderEntry, Providers,
    Recorder,
};
use skysail_election::{ElectionMetrics, fenced};
use skysail_host::Panics;
use skysail_provider::Provider;
use skysail_serving::metrics::RestClientMetrics;
use skysail_sources::Archive;
use tokio::{
    runtime::Handle,
    sync::watch,
    task::JoinSet,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

use explanations::Explanations;
pub(super) use explanations::ServiceDocument;
use follow::Follow;
pub(super) use follow::FollowFile;
use permissions::Permissions;
use provider_statuses::ProviderStatuses;
use resources::Reporter;
pub(super) use resources::{Resources, api_resource};
use serving::{Health, Servers};
pub(crate) use threads::Control;
use threads::{Beats, Threads, within};

use crate::{
    args::{ProviderArgs, RunArgs},
    cluster::Cluster,
    commands::recordings::Recordings,
    exit::{MarkExt as _, Reason, TASK_PANICKED},
    last_calls::LastCalls,
    leadership::{self, Elections, Leadership, LeaseControllers},
    provider_file::{self, ProviderFile},
    providers::{self, Fleet, Owner, Surroundings},
    signals::Signals,
    telemetry::{self, Traces, Verbosity},
};

/// How long shutdown waits for threads that are blocked, after all tasks have ended.
const BLOCKED_THREADS_WAIT: Duration = Duration::from_secs(2);
/// How long the manager waits for the API server at the start.
const CLUSTER_WAIT: Duration = Duration::from_secs(10);
/// Pause between two requests in that time.
const CLUSTER_PERIOD: Duration = Duration::from_millis(250);

/// Runs the manager to its end, or to a signal that `control` receives.
///
/// # Errors
/// A file or a flag is invalid, the cluster does not answer, or a task failed.
pub(crate) fn run(args: RunArgs, control: Control) -> anyhow::Result<()> {
    let Control { runtime, signals } = control;
    let Threads { work, control } = Threads::beside(runtime)?;
    let start = |endpoint| Traces::start(endpoint, args.traces.traces_sampling_rate_per_million, work.handle().clone());
    let traces = args.traces.endpoint().map(start).transpose().or_exit(Reason::Usage)?;
    let (filter, format) = (args.log.filter(), args.log.logging_format);
    let verbosity = telemetry::init_with(filter, format, traces.as_ref()).or_exit(Reason::Usage)?;
    raise_open_files();
    let outcome = work.block_on(serve(args, verbosity, control.handle(), signals));
    if let Some(traces) = traces {
        traces.end();
    }
    // A blocked thread, for example by a file system that does not answer, must not keep the
    // process alive.
    work.shutdown_timeout(BLOCKED_THREADS_WAIT);
    control.shutdown_background();
    outcome
}

/// Pause between two returns of free memory to the system: short enough that bursts of calls do not
/// add up, and long enough that a return, some milliseconds, costs nothing that can be measured.
const TRIM_PERIOD: Duration = Duration::from_secs(5);

async fn give_back_free_memory() {
    loop {
        tokio::time::sleep(TRIM_PERIOD).await;
        // In a thread of its own, because a large heap takes longer.
        let trimmed = tokio::task::spawn_blocking(skysail_host::allocator::give_back_free_memory).await;
        if let Err(error) = trimmed {
            tracing::warn!("free memory is no longer returned to the system: {error}");
            return;
        }
    }
}

/// Raises the limit of open files to the one that the process may have: container runtimes start it
/// with 1,024, and each provider may have 256 connections.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!("the limit of open files stays at {current:?}: {error}");
    }
}

async fn serve(args: RunArgs, verbosity: Verbosity, control: &Handle, signals: Signals) -> anyhow::Result<()> {
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn_on(stop_on_signal(signals, stop.clone()), control);
    let Some(prepared) = stop.run_until_cancelled(prepare(args, verbosity, stop.clone(), control)).await else {
        // Nothing has started that needs an orderly end.
        return Ok(());
    };
    let Prepared { manage, fleet, follow, elections, servers, statuses, last_calls, permissions, beats, recordings } =
        prepared?;
    tasks.spawn_on(until_stopped(stop.clone(), give_back_free_memory()), control);
    tasks.spawn(until_stopped(stop.clone(), permissions.run()));
    tasks.spawn(until_stopped(stop.clone(), beats.run()));
    tasks.spawn(until_stopped(stop.clone(), statuses.run()));
    tasks.spawn(until_stopped(stop.clone(), last_calls.run(fleet.services.recorder.subscribe())));
    if let Some(recordings) = recordings {
        tasks.spawn(until_stopped(stop.clone(), recordings.run()));
    }
    servers.spawn(&mut tasks, &stop, control);
    tasks.spawn(end_at_panic(fleet.services.panics.clone(), stop.clone()));
    tokio::select! {
        outcome = lead(elections, manage.run(fleet, follow), control) => outcome?,
        error = failed(&mut tasks) => return Err(error),
    }
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.context(TASK_PANICKED)??;
    }
    Ok(())
}

/// A task that ends when the manager stops.
async fn until_stopped(stop: CancellationToken, work: impl Future<Output = ()>) -> anyhow::Result<()> {
    stop.run_until_cancelled(work).await;
    Ok(())
}

/// Fails when a task of a provider panics: the provider's slot would take neither releases nor
/// settings any more.
async fn end_at_panic(panics: Panics, stop: CancellationToken) -> anyhow::Result<()> {
    match stop.run_until_cancelled(panics.reported()).await {
        Some(()) => bail!(TASK_PANICKED),
        None => Ok(()),
    }
}

/// All parts of the manager, made from flags and files, before they run.
struct Prepared {
    manage: Manage,
    fleet: Fleet,
    follow: Follow,
    elections: Elections,
    servers: Servers,
    statuses: ProviderStatuses,
    last_calls: LastCalls,
    permissions: Permissions,
    beats: Beats,
    recordings: Option<Recordings>,
}

async fn prepare(
    args: RunArgs,
    verbosity: Verbosity,
    stop: CancellationToken,
    control: &Handle,
) -> anyhow::Result<Prepared> {
    let settings = args.settings();
    if !settings.controllers.any() {
        // Upstream's rule: without `*` only named controllers run.
        let text = "--controllers enables no controller; name one, or begin with *, as in --controllers=*,-service-lb-controller";
        return Err(anyhow!(text)).or_exit(Reason::Usage);
    }
    let file = args.providers.provider_file.as_deref();
    let file =
        file.map(|path| provider_file::load(path).map(|file| (path, file))).transpose().or_exit(Reason::Usage)?;
    let mut registry = Registry::default();
    let client_metrics = RestClientMetrics::register(&mut registry);
    let cluster = Cluster::find(&args.common.generic, client_metrics.clone()).await.or_exit(Reason::Usage)?;
    let clients = cluster.clients().await.or_exit(Reason::Usage)?;
    let (mut fleet, recordings) = fleet_of(&args, &clients, &mut registry)?;
    let file = match file {
        Some((path, ProviderFile { providers, files })) => {
            // A provider file needs no cluster: releases in the archive serve during the wait for
            // the cluster.
            fleet.apply(providers).await.or_exit(Reason::Usage)?;
            Some((path, files))
        }
        None => None,
    };
    reach(&clients.shared_informers).await?;
    let permissions = Permissions::ask_for(&clients, &settings).await;

    let metrics = ControllerMetrics::register(&mut registry);
    args.common.generic.feature_gates.register(&mut registry);
    let leases = ElectionMetrics::register(&mut registry);
    let elections_client = within(control, cluster.client("leader-election")).await.or_exit(Reason::Usage)?;
    let Leadership { shares, elections, health } =
        leadership::of(&args, &elections_client, settings.controllers, leases).or_exit(Reason::Usage)?;
    let beats = Beats::new();
    let health = Health::register(&mut registry, health, permissions.missing(), beats.clone());
    let follow = match file {
        Some((path, files)) => Follow::File(FollowFile::new(path, files, &fleet)),
        None => {
            // A separate client, so that reads of many Secrets do not delay the controllers.
            let client = cluster.client("providers").await.or_exit(Reason::Usage)?;
            let mut resources = Resources::start(client).await?;
            resources.until_first_taken_up(&mut fleet).await;
            Follow::Resources(resources)
        }
    };

    let (claims, claimed) = watch::channel(Providers::default());
    let statuses = ProviderStatuses::new(follow.provider_states());
    let (explainer, last_calls) = (Explainer::default(), LastCalls::default());
    let served = serving::Served {
        health: &health,
        client_metrics: &client_metrics,
        verbosity,
        providers: claimed,
        statuses: statuses.clone(),
        explanations: Explanations::new(&shares, explainer.clone(), last_calls.clone()),
    };
    let servers = within(control, serving::bind(&args, registry, served)).await.or_exit(Reason::Usage)?;
    let manage = Manage { clients, settings, shares, metrics, health, explainer, claims, stop };
    Ok(Prepared { manage, fleet, follow, elections, servers, statuses, last_calls, permissions, beats, recordings })
}

/// Waits for the API server as long as upstream's managers do (`WaitForAPIServer`, 10 s), because
/// the parts of a control plane start in any order.
async fn reach(client: &kube::Client) -> anyhow::Result<()> {
    let end = Instant::now() + CLUSTER_WAIT;
    let mut said = false;
    let version = loop {
        match client.apiserver_version().await {
            Err(error) if may_pass(&error) && Instant::now() < end => {
                if !std::mem::replace(&mut said, true) {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the cluster does not answer; retrying for {} s", CLUSTER_WAIT.as_secs());
                }
                time::sleep(CLUSTER_PERIOD).await;
            }
            version => break version,
        }
    };
    let version = version
        .context("the cluster does not answer; check the server and the credentials in the kubeconfig")
        .or_exit(Reason::Unreachable)?;
    tracing::info!(kubernetes_version = version.git_version, "cluster reached");
    Ok(())
}

/// Whether a retry may succeed: there was no answer, or the API server is overloaded (429) or still
/// starting (5xx).
fn may_pass(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if status.code != 429 && status.code < 500)
}

/// A fleet without providers, with its archive on disk.
fn fleet_of(args: &RunArgs, clients: &Clients, registry: &mut Registry) -> anyhow::Result<(Fleet, Option<Recordings>)> {
    let ProviderArgs { state_dir, state_dir_max, .. } = &args.providers;
    // One half for components, the other for their machine code.
    let half_bytes = state_dir_max << 19;
    let archive = state_dir.clone().map(|folder| Archive::open(folder, half_bytes)).transpose();
    let archive = archive.context("--state-dir").or_exit(Reason::Usage)?;
    let mut services = providers::services(registry)?;
    let recordings = Recordings::of(&args.recordings, &mut services.recorder).or_exit(Reason::Usage)?;
    if let (Some(folder), Some(archive)) = (state_dir, &archive) {
        let kept = services.compiler.keeping(folder.join("compiled"), half_bytes, archive.key());
        services.compiler = kept.context("--state-dir: its folder compiled").or_exit(Reason::Usage)?;
    }
    let surroundings =
        Surroundings { archive: archive.map(Arc::new), kubernetes: Some(clients.shared_informers.clone()) };
    Ok((Fleet::new(services).within(surroundings), recordings))
}

/// Runs the controllers and the elections in parallel. The Leases are released after the
/// controllers have ended without an error; after an error the Leases expire, because calls may
/// still be in flight.
async fn lead(
    elections: Elections,
    controllers: impl Future<Output = anyhow::Result<()>>,
    control: &Handle,
) -> anyhow::Result<()> {
    let drained = CancellationToken::new();
    // Dropping this set stops the renewal of the Leases.
    let mut electing = JoinSet::new();
    electing.spawn_on(elections.run(drained.clone()), control);
    let elected = async {
        let ended = electing.join_next().await.context("no election runs")?;
        ended.context(TASK_PANICKED)?
    };
    let drain = async {
        controllers.await?;
        drained.cancel();
        Ok(())
    };
    // The loss of a Lease ends both at once.
    tokio::try_join!(elected, drain).map(drop)
}

/// Waits for a task that fails; a task that ends without an error is ignored.
async fn failed(tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Error {
    while let Some(ended) = tasks.join_next().await {
        match ended.context(TASK_PANICKED) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => return error,
        }
    }
    std::future::pending().await
}

async fn stop_on_signal(mut signals: Signals, stop: CancellationToken) -> anyhow::Result<()> {
    tokio::select! {
        signal = signals.end() => tracing::info!("received {signal}; waiting for calls in flight"),
        () = stop.cancelled() => {}
    }
    stop.cancel();
    Ok(())
}

/// Runs the controllers and updates them when the providers change.
struct Manage {
    clients: Clients,
    settings: ControllerSettings,
    shares: Vec<LeaseControllers>,
    metrics: ControllerMetrics,
    health: Health,
    explainer: Explainer,
    /// Sends the providers and their claims to the controllers and the webhooks.
    claims: watch::Sender<Providers>,
    stop: CancellationToken,
}

impl Manage {
    async fn run(self, mut fleet: Fleet, mut follow: Follow) -> anyhow::Result<()> {
        self.serve_readiness(&fleet, &follow);
        if self.stop.run_until_cancelled(fleet.first_releases()).await.is_none() {
            return Ok(());
        }
        let mut reporting = JoinSet::new();
        if let Follow::Resources(resources) = &follow {
            reporting.spawn(self.report(resources.reporter()));
        }
        self.claims.send_replace(entries(&fleet)?);
        let mut ownership = fleet.ownership();
        let next = async || {
            self.until_others_serve(&mut fleet, &mut follow, &ownership).await?;
            ownership = fleet.ownership();
            entries(&fleet)
        };
        self.control(&mut reporting, next).await
    }

    /// Runs the controllers to their end, and sends them each next set of providers. The
    /// controllers that run follow the providers: a restart would abort calls in flight and repeat
    /// them.
    ///
    /// # Errors
    /// A part of the manager failed, or calls were cut off at the end.
    async fn control(
        &self,
        reporting: &mut JoinSet<anyhow::Result<()>>,
        mut next: impl AsyncFnMut() -> anyhow::Result<Providers>,
    ) -> anyhow::Result<()> {
        let managers = self.shares.iter().map(|share| self.lead(share));
        let mut managers = std::pin::pin!(futures::future::try_join_all(managers));
        loop {
            tokio::select! {
                endings = &mut managers => return nothing_cut_off(&endings?),
                error = failed(reporting) => return Err(error),
                providers = next() => {
                    self.claims.send_replace(providers?);
                    tracing::info!("the claims of the providers have changed; the controllers use the new claims");
                }
            }
        }
    }

    /// Waits for a change of what the providers claim (classes, schemes, selectors), and then until
    /// each new provider serves a release or has failed to load one.
    async fn until_others_serve(
        &self,
        fleet: &mut Fleet,
        follow: &mut Follow,
        started: &[Owner],
    ) -> anyhow::Result<()> {
        follow.until_ownership_changes(fleet, started).await?;
        self.serve_readiness(fleet, follow);
        fleet.first_releases().await;
        Ok(())
    }

    fn serve_readiness(&self, fleet: &Fleet, follow: &Follow) {
        self.health.serve(fleet.served.values(), &follow.provider_states(), follow.left_out());
    }

    /// Writes the status of the `Provider`s while this process is the leader: with several Leases,
    /// while it holds the first.
    fn report(&self, reporter: Reporter) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
        let fence = self.shares.first().map(|share| share.fence.clone());
        let (clients, metrics, stop) = (self.clients.clone(), self.metrics.clone(), self.stop.clone());
        async move {
            let Some(mut leads) = fence else { return Ok(()) };
            let Ok(Some(fence)) = leads.wait_for(Option::is_some).await.map(|fence| fence.clone()) else {
                return Ok(());
            };
            let clients = clients.map(|client| fenced(client, fence.clone()));
            let (events, notices) = Events::new(metrics.clone());
            let client = clients.shared_informers.clone();
            let recorder = Recorder::new(clients, metrics);
            tokio::join!(recorder.run(notices, stop), reporter.run(client, events));
            Ok(())
        }
    }

    /// Runs a share of the controllers after this process has acquired their Lease.
    async fn lead(&self, share: &LeaseControllers) -> anyhow::Result<Ending> {
        let mut leads = share.fence.clone();
        let fence = match self.stop.run_until_cancelled(leads.wait_for(Option::is_some)).await {
            Some(Ok(fence)) => (*fence).clone(),
            // The process stops, or the elections have ended and their owner reports the reason.
            Some(Err(_)) | None => None,
        };
        let Some(fence) = fence else { return Ok(Ending::Clean) };
        self.health.controllers_run(share.controllers);
        let settings = ControllerSettings { controllers: share.controllers, ..self.settings.clone() };
        let clients = self.clients.map(|client| fenced(client, fence.clone()));
        let manager =
            Manager::new(clients, self.claims.subscribe(), settings, self.metrics.clone(), share.ledger.clone())
                .fenced(fence)
                .observed(self.health.progress.clone())
                .explained(self.explainer.clone());
        manager.run(self.stop.clone()).await.context("the controllers ended")
    }
}

/// Checks that no provider call was aborted at the end of the shutdown grace period.
///
/// # Errors
/// Calls were aborted. The cloud may still execute them, so the Lease must not be released.
fn nothing_cut_off(endings: &[Ending]) -> anyhow::Result<()> {
    if endings.contains(&Ending::CutOff) {
        bail!("calls were still in flight at the end of the grace period, so the Lease is not released and expires");
    }
    Ok(())
}

/// The providers as the controllers see them.
///
/// # Errors
/// The controllers refuse a name; the rules of the provider file are stricter.
pub(crate) fn entries(fleet: &Fleet) -> anyhow::Result<Providers> {
    let entry = |served: &providers::Served| ProviderEntry {
        name: served.spec.name.clone(),
        provider: Arc::clone(&served.slot) as Arc<dyn Provider>,
        default: served.spec.is_default(),
        node_selector: served.spec.node_selector.clone().unwrap_or_default(),
        load_balancer_classes: served.spec.load_balancer_classes.iter().cloned().collect(),
        provider_id_schemes: served.spec.pinned_schemes().map(|schemes| schemes.into_iter().collect()),
        remembered_schemes: served.remembered_schemes.clone(),
        provider_id_prefixes: served.spec.prefixes().into_iter().collect(),
        interfaces: served.spec.interfaces.clone(),
        addresses: served.spec.addresses.clone(),
        paused: served.spec.paused,
        deletion_policy: served.spec.deletion_policy,
        generation: served.generation.clone(),
        rotations: served.rotations.subscribe(),
        findings: served.findings.clone(),
    };
    Providers::new(fleet.by_age().map(entry).collect()).context("the providers contradict each other")
}

#[cfg(test)]
mod tests;
