//! `skysail dev`: a simulated cluster, a simulated cloud and the manager in one process.
//!
//! All other parts are those of `skysail run`: the same provider file, the same slots, the same
//! controllers.

mod alone;
mod build;
mod components;
mod demo;
mod display;
mod files;
mod story;
mod world;

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use prometheus_client::registry::Registry;
use skysail_controllers::{ControllerMetrics, ControllerSettings, Ledger, Manager};
use skysail_dev::cloud::SimServer;
use skysail_host::{
    slot::Slot,
    symbols::{SymbolFiles, Symbols},
};
use tokio::{signal::unix::SignalKind, sync::watch, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use self::{
    build::Build,
    display::{Feeds, Screen},
    files::Files,
    world::World,
};
use super::run::{FollowFile, entries};
use crate::{
    args::{DevArgs, LoggingFormat, RecordArgs},
    commands::recordings::Folder,
    exit::{MarkExt as _, Reason, TASK_PANICKED},
    provider_file::{self, ComponentSource, ProviderSpec},
    providers::{self, Fleet, Ownership, Served},
    signals::Signals,
    telemetry,
};

/// The signals that stop a command that belongs to a terminal.
const OF_A_TERMINAL: [(&str, SignalKind); 3] =
    [("SIGINT", SignalKind::interrupt()), ("SIGTERM", SignalKind::terminate()), ("SIGHUP", SignalKind::hangup())];

/// Pause between two looks at the file of --cloud-config.
const CONFIG_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until Ctrl-C, SIGTERM or SIGHUP, or to the end of the demonstration.
///
/// # Errors
/// An argument is invalid, an address is in use, or a check of the demonstration failed.
pub(crate) fn run(args: DevArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start tokio")?;
    let outcome = runtime.block_on(async {
        let signals = Signals::listen(&OF_A_TERMINAL)?;
        if !args.api_address.ip().is_loopback() {
            return Err(anyhow!(
                "--api-address {} is not a loopback address; give one, because this API does not authenticate its callers",
                args.api_address
            ))
            .or_exit(Reason::Usage);
        }
        if args.demo {
            return demo::run(&args, signals).await;
        }
        if args.cloud_only {
            return alone::serve_cloud(&args, signals).await;
        }
        if args.no_manager {
            return alone::serve_without_manager(&args, signals).await;
        }
        serve(&args, signals).await
    });
    // Only simulated listeners still run; they need no orderly end.
    runtime.shutdown_background();
    outcome
}

/// Everything that `skysail dev` runs; dropping this value ends it.
pub(crate) struct Dev {
    pub(crate) world: World,
    pub(crate) fleet: Fleet,
    pub(crate) feeds: Option<Feeds>,
    follow: FollowFile,
    /// What the controllers were started with.
    started: Ownership,
    pub(crate) files: Files,
    /// The folder of the bundled components that the operator named.
    pub(crate) components: Option<PathBuf>,
}

/// Background tasks; a task that ends before the program is a fault.
pub(crate) struct Tasks {
    stop: CancellationToken,
    manager: JoinSet<anyhow::Result<()>>,
    ties: JoinSet<anyhow::Result<()>>,
}

impl Dev {
    /// Starts the cluster, the cloud and the manager; the provider may still compile on return.
    pub(crate) async fn start(args: &DevArgs) -> anyhow::Result<(Self, Tasks)> {
        let component = args.provider_file.is_none().then(|| component_of(args)).transpose()?;
        let (world, mut ties) = world::start(args.api_address, args.nodes, args.cloud_latency).await?;
        let files = Files::new()?;
        files.write_kubeconfig(&world.serving)?;
        if let Some(component) = component {
            let component = if args.demo { files.copy(&component)? } else { component };
            files.write_provider(&world.cloud_server, &component, args.cloud_config.as_deref())?;
        }
        let path = args.provider_file.clone().unwrap_or_else(|| files.provider_file());
        let file = provider_file::load(&path).or_exit(Reason::Usage)?;
        let mut registry = Registry::default();
        let mut services = providers::services(&mut registry)?;
        let RecordArgs { record, redact } = &args.recording;
        let folder = Folder::of(record.as_ref(), redact, &mut services.recorder).or_exit(Reason::Usage)?;
        if let Some(folder) = folder {
            let calls = services.recorder.subscribe();
            ties.spawn(folder.write_each(calls));
        }
        services.recorder = services.recorder.with_symbols(symbols(args, &file.providers));
        let mut fleet = Fleet::new(services);
        fleet.apply(file.providers).await.or_exit(Reason::Usage)?;
        let (follow, started) = (FollowFile::new(&path, file.files, &fleet), fleet.ownership());
        let settings = ControllerSettings {
            concurrent_service_syncs: 8,
            // Shorter than upstream's periods, because a user watches the output.
            node_monitor_period: Duration::from_secs(1),
            node_set_quiet: Duration::from_millis(200),
            swap_spread_max: Duration::from_secs(1),
            // No controller assigns pod CIDRs to these nodes.
            configure_cloud_routes: false,
            ..ControllerSettings::default()
        };
        let metrics = ControllerMetrics::register(&mut registry);
        let manager = Manager::new(
            world.client.clone(),
            watch::channel(entries(&fleet)?).1,
            settings,
            metrics,
            Ledger::default(),
        );
        let slot =
            fleet.served.values().next().map(|served| served.slot.status()).context("the provider file is empty")?;
        let feeds = Feeds {
            calls: fleet.services.recorder.subscribe(),
            activity: manager.activity(),
            changes: world.cloud.changes(),
            slot,
        };
        let panics = fleet.services.panics.clone();
        ties.spawn(async move {
            panics.reported().await;
            bail!(TASK_PANICKED)
        });
        let stop = CancellationToken::new();
        let mut running = JoinSet::new();
        let (stopped, first_releases) = (stop.clone(), fleet.first_releases());
        running.spawn(async move {
            if stopped.run_until_cancelled(first_releases).await.is_none() {
                return Ok(());
            }
            manager.run(stopped).await.map(drop).context("the controllers ended")
        });
        let dev =
            Self { world, fleet, feeds: Some(feeds), follow, started, files, components: args.components.clone() };
        Ok((dev, Tasks { stop, manager: running, ties }))
    }

    /// The slot of the provider that is developed.
    pub(crate) fn slot(&self) -> anyhow::Result<Arc<Slot>> {
        let served = self.fleet.served.values().next().context("the provider file is empty")?;
        Ok(Arc::clone(&served.slot))
    }

    /// The component file of the provider.
    pub(crate) fn component(&self) -> PathBuf {
        let file = |served: &Served| match &served.spec.source {
            ComponentSource::File(path) => Some(path.clone()),
            ComponentSource::None | ComponentSource::ConfigMap(_) | ComponentSource::Oci(_) => None,
        };
        self.fleet.served.values().next().and_then(file).unwrap_or_default()
    }
}

impl Tasks {
    /// Waits until a task ends that should run on.
    pub(crate) async fn broken(&mut self) -> anyhow::Error {
        tokio::select! {
            Some(ended) = self.ties.join_next() => why("the simulated cluster or a provider", ended),
            Some(ended) = self.manager.join_next() => why("the manager", ended),
        }
    }

    /// Ends the manager as SIGTERM would.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.manager.join_next().await {
            ended.context("the manager panicked")??;
        }
        Ok(())
    }
}

/// Where the names of the components are, which may be built again at any time.
fn symbols(args: &DevArgs, providers: &[ProviderSpec]) -> Arc<SymbolFiles> {
    let beside = providers.iter().filter_map(|spec| match &spec.source {
        ComponentSource::File(path) => Some(Symbols::beside(path)),
        ComponentSource::None | ComponentSource::ConfigMap(_) | ComponentSource::Oci(_) => None,
    });
    Arc::new(SymbolFiles::new(args.symbols.symbols.iter().cloned().chain(beside).collect()))
}

/// The component to serve.
fn component_of(args: &DevArgs) -> anyhow::Result<PathBuf> {
    match &args.provider {
        Some(path) => fs::canonicalize(path)
            .with_context(|| format!("--provider {} cannot be read; name a component file", path.display())),
        None => components::bundled(args.components.as_deref(), "simcloud"),
    }
    .or_exit(Reason::Usage)
}

fn why(what: &str, ended: Result<anyhow::Result<()>, tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Ok(Ok(())) => anyhow!("{what} stopped unexpectedly"),
        Ok(Err(error)) => error.context(format!("{what} failed")),
        Err(error) => anyhow!(error).context(format!("{what} panicked")),
    }
}

async fn serve(args: &DevArgs, mut signals: Signals) -> anyhow::Result<()> {
    let screen = Screen::new();
    let build = match &args.build {
        None => None,
        Some(command) => match first_build(args, command, screen, &mut signals).await? {
            None => return Ok(()),
            built => built,
        },
    };
    let (mut dev, mut tasks) = Dev::start(args).await?;
    screen.say(&introduction(&dev, args));
    let Some(feeds) = dev.feeds.take() else { bail!("the feeds are taken") };
    let component = dev.component();
    let Dev { world, fleet, follow, started, files, .. } = &mut dev;
    let followed = async {
        follow.until_ownership_changes(fleet, started).await;
        screen.say("the provider file claims other nodes or Services now; start `skysail dev` again to try that");
        std::future::pending::<()>().await;
    };
    let configured = async {
        match &args.cloud_config {
            Some(config) => follow_config(config, files, (&world.cloud_server, &component), screen).await,
            None => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        () = display::show(screen, feeds) => Err(anyhow!("the display stopped unexpectedly")),
        () = followed => Ok(()),
        Err(error) = follow_sources(build, screen) => Err(error),
        () = configured => Ok(()),
        error = tasks.broken() => Err(error),
        _ = signals.end() => Ok(()),
    };
    screen.say("stopping");
    tokio::select! {
        stopped = tasks.stop() => stopped?,
        // A second signal ends the wait for calls in flight.
        _ = signals.end() => {}
    }
    outcome
}

/// Builds for the first time; none after a signal.
async fn first_build(
    args: &DevArgs,
    command: &str,
    screen: Screen,
    signals: &mut Signals,
) -> anyhow::Result<Option<Build>> {
    if args.provider.is_none() && args.provider_file.is_none() {
        let text = "--build needs --provider FILE, the component that the command writes, or --provider-file FILE";
        return Err(anyhow!(text)).or_exit(Reason::Usage);
    }
    let folder = env::current_dir().context("cannot find the current folder")?;
    let build = Build::new(command.to_owned(), folder).or_exit(Reason::Usage)?;
    screen.build(false, command);
    tokio::select! {
        built = build.run(screen) => built?,
        _ = signals.end() => return Ok(None),
    }
    Ok(Some(build))
}

/// Builds after each change of a source file; without `--build` it waits without end.
async fn follow_sources(build: Option<Build>, screen: Screen) -> anyhow::Result<()> {
    match build {
        Some(build) => build.follow(screen).await,
        None => std::future::pending().await,
    }
}

/// Writes the provider file again each time that the file of --cloud-config changes.
async fn follow_config(path: &Path, files: &Files, (cloud, component): (&SimServer, &Path), screen: Screen) {
    let mut before = provider_file::read_config(path);
    loop {
        sleep(CONFIG_LOOK_EVERY).await;
        let now = provider_file::read_config(path);
        if now == before {
            continue;
        }
        let written = files.write_provider(cloud, component, Some(path));
        screen.say(&match written {
            Ok(()) => format!("{} changed; the manager reads it within 5 s", path.display()),
            Err(error) => format!("{error:#}; the previous cloud-config stays"),
        });
        before = now;
    }
}

fn introduction(dev: &Dev, args: &DevArgs) -> String {
    let provider = match (&args.provider, &args.provider_file) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(_)) => "of the provider file".to_owned(),
        (None, None) => "bundled simcloud".to_owned(),
    };
    let file = args.provider_file.clone().unwrap_or_else(|| dev.files.provider_file());
    format!(
        "A simulated Kubernetes API, a simulated cloud and the manager run in this process; Ctrl-C stops them.\n\n  \
         cluster    {}\n  cloud      {} ({} machines; OpenAPI at /openapi.json)\n  provider   {provider} (loaded again when the file changes)\n  \
         files      {} (edits take effect after 5 s: config, egress, credentials, limits)\n\nIn another terminal:\n\n  \
         export KUBECONFIG={}\n  kubectl get nodes -o wide\n  kubectl create service loadbalancer web --tcp=8080:80\n  \
         kubectl get service web --watch\n  curl --max-time 5 http://$(kubectl get service web -o jsonpath='{{.status.loadBalancer.ingress[0].ip}}'):8080/\n",
        dev.world.serving.url(),
        dev.world.cloud_server.url,
        args.nodes,
        file.display(),
        dev.files.kubeconfig().display(),
    )
}
