//! From provider specs to slots that serve: the one place where the file's world meets the host's.
//!
//! Knows no Kubernetes. `run`, `dev` and `call` all make their slots here, so that a component meets the same sandbox everywhere.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use skysail_host::{
    CallMetrics, CallRecorder, Engine, SandboxOptions,
    http_client::HttpClient,
    jail::{Compiler, JailCommand},
    slot::{Offer, Slot, SlotMetrics, SlotOptions, SlotServices, SlotStatus},
};
use skysail_sources::{FileLocation, FileSource, FileSourceSettings};
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};

use crate::provider_file::ProviderSpec;

/// How often an offer is tried again that was refused for a reason of the machine, not its own.
const RETRY_PERIOD: Duration = Duration::from_secs(30);

/// What every slot of the process shares; its metrics are in the registry.
///
/// # Errors
/// No engine can be made on this machine.
pub(crate) fn services(registry: &mut Registry) -> anyhow::Result<SlotServices> {
    Ok(SlotServices {
        engine: Engine::new().context("cannot make a WebAssembly engine on this machine")?,
        recorder: CallRecorder::new(CallMetrics::register(registry)),
        compiler: compiler()?,
        metrics: SlotMetrics::register(registry),
    })
}

/// Compiles in child processes of this executable.
///
/// # Errors
/// The running executable cannot be found.
pub(crate) fn compiler() -> anyhow::Result<Compiler> {
    let program = std::env::current_exe().context("cannot find the running program, which compiles components")?;
    Ok(Compiler::jailed(JailCommand { program, args: vec![OsString::from("__compile")] }))
}

/// The host's view of a provider spec.
///
/// # Errors
/// A certificate cannot be used.
pub(crate) fn slot_options(spec: &ProviderSpec) -> anyhow::Result<SlotOptions> {
    let ProviderSpec { name, config, egress, credentials, limits, allow_interface_loss, allow_identity_change, .. } =
        spec;
    let http = HttpClient::new(Arc::clone(egress), Arc::clone(credentials), &limits.http())
        .with_context(|| format!("provider {name:?}: its HTTP client cannot be made"))?;
    Ok(SlotOptions {
        sandbox: SandboxOptions {
            name: name.clone(),
            limits: limits.clone(),
            config: config.clone(),
            http: Some(Arc::new(http)),
        },
        allow_interface_loss: *allow_interface_loss,
        allow_identity_change: *allow_identity_change,
    })
}

/// A provider that is configured, and the tasks that keep its slot filled.
pub(crate) struct Served {
    pub(crate) spec: ProviderSpec,
    pub(crate) slot: Arc<Slot>,
    /// Number of the newest exchange of the slot.
    pub(crate) generation: watch::Receiver<u64>,
    _tasks: JoinSet<()>,
}

impl Served {
    fn start(services: &SlotServices, spec: ProviderSpec) -> anyhow::Result<Self> {
        let slot = Slot::new(services.clone(), slot_options(&spec)?).context("cannot make the provider's slot")?;
        let slot = Arc::new(slot);
        let (sender, generation) = watch::channel(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(fill(Arc::clone(&slot), spec.component.clone(), spec.limits.component_bytes));
        tasks.spawn(count_exchanges(slot.status(), sender));
        Ok(Self { spec, slot, generation, _tasks: tasks })
    }
}

/// Offers what the file holds, now and whenever it changes.
async fn fill(slot: Arc<Slot>, component: PathBuf, bytes_max: u64) {
    let settings = FileSourceSettings { bytes_max, ..FileSourceSettings::default() };
    let mut offers = FileSource::new(FileLocation::File(component), settings).watch();
    let mut retry = tokio::time::interval(RETRY_PERIOD);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            report = offers.next() => match report {
                // A refusal is in the slot's status, its log line and its metrics: it is told once, there.
                Some(Ok(offer)) => drop(slot.offer(Offer { bytes: offer.bytes, origin: offer.origin }).await),
                Some(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(provider.name = slot.name(), error, "the component cannot be read; what serves, serves on");
                }
                None => return,
            },
            _ = retry.tick() => drop(slot.retry().await),
        }
    }
}

async fn count_exchanges(mut status: watch::Receiver<SlotStatus>, sender: watch::Sender<u64>) {
    loop {
        let swap = status.borrow_and_update().active.as_ref().map_or(0, |active| active.swap);
        sender.send_if_modified(|known| std::mem::replace(known, swap) != swap);
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// All providers of the process, by name.
pub(crate) struct Fleet {
    pub(crate) services: SlotServices,
    pub(crate) served: BTreeMap<String, Served>,
}

/// What a new provider file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Nothing, or only what slots take up by themselves.
    InPlace,
    /// Which providers there are, or what they claim: the controllers have to be told.
    Ownership,
}

impl Fleet {
    /// No provider yet.
    pub(crate) fn new(services: SlotServices) -> Self {
        Self { services, served: BTreeMap::new() }
    }

    /// Brings the providers to what the file says. A slot whose provider stays keeps serving through it all.
    ///
    /// # Errors
    /// The first provider that cannot take its new settings; it and those after it keep their old ones.
    pub(crate) async fn apply(&mut self, specs: Vec<ProviderSpec>) -> anyhow::Result<Applied> {
        let before: Vec<_> = self.served.values().map(|served| served.spec.claims()).collect();
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        for spec in specs {
            self.apply_one(spec).await?;
        }
        self.served.retain(|name, _| names.contains(name));
        let after: Vec<_> = self.served.values().map(|served| served.spec.claims()).collect();
        Ok(if before == after { Applied::InPlace } else { Applied::Ownership })
    }

    async fn apply_one(&mut self, spec: ProviderSpec) -> anyhow::Result<()> {
        match self.served.get_mut(&spec.name) {
            Some(served) if served.spec.fingerprint == spec.fingerprint => served.spec = spec,
            Some(served) if served.spec.component == spec.component => {
                let options = slot_options(&spec)?;
                let changed = served.slot.reconfigure(options).await;
                changed.with_context(|| format!("provider {:?}", spec.name))?;
                served.spec = spec;
            }
            Some(_) | None => {
                let served = Served::start(&self.services, spec)?;
                self.served.insert(served.spec.name.clone(), served);
            }
        }
        Ok(())
    }
}
