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

use crate::{
    args,
    provider_file::{self, ProviderSpec},
};

/// How often an offer is tried again that was refused for a reason of the machine, not its own.
const RETRY_PERIOD: Duration = Duration::from_secs(30);

/// How long the controllers wait at the start for the first releases. A component compiles in a second or two; one that takes far longer
/// must not keep the other providers' objects waiting.
const FIRST_RELEASES: Duration = Duration::from_secs(10);

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
    Ok(Compiler::jailed(JailCommand { program, args: vec![OsString::from(args::COMPILE)] }))
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
    /// Whether the first offer serves, or it is known why none does.
    decided: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

impl Served {
    fn start(services: &SlotServices, spec: ProviderSpec) -> anyhow::Result<Self> {
        let slot = Slot::new(services.clone(), slot_options(&spec)?).context("cannot make the provider's slot")?;
        let slot = Arc::new(slot);
        let (sender, generation) = watch::channel(0);
        let (decide, decided) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(fill(Arc::clone(&slot), spec.component.clone(), spec.limits.component_bytes, decide));
        tasks.spawn(count_exchanges(slot.status(), sender));
        Ok(Self { spec, slot, generation, decided, _tasks: tasks })
    }
}

/// Offers what the file holds, now and whenever it changes.
async fn fill(slot: Arc<Slot>, component: PathBuf, bytes_max: u64, decide: watch::Sender<bool>) {
    let settings = FileSourceSettings { bytes_max, ..FileSourceSettings::default() };
    let mut offers = FileSource::new(FileLocation::File(component), settings).watch();
    let mut retry = tokio::time::interval(RETRY_PERIOD);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            report = offers.next() => {
                match report {
                    // A refusal is in the slot's status, its log line and its metrics: it is told once, there.
                    Some(Ok(offer)) => drop(slot.offer(Offer { bytes: offer.bytes, origin: offer.origin }).await),
                    Some(Err(error)) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(provider.name = slot.name(), error, "the component cannot be read; what serves, serves on");
                    }
                    None => return,
                }
                decide.send_replace(true);
            }
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

    /// Waits, within [`FIRST_RELEASES`], until each provider serves or it is known why it does not. A controller that started before would tell
    /// every object that nothing serves.
    pub(crate) fn first_releases(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut pending: Vec<_> =
            self.served.values().map(|served| (Arc::clone(&served.slot), served.decided.clone())).collect();
        async move {
            let all = async {
                for (_, decided) in &mut pending {
                    // An error is a task that ended: nothing will be decided any more.
                    drop(decided.wait_for(|decided| *decided).await);
                }
            };
            if tokio::time::timeout(FIRST_RELEASES, all).await.is_err() {
                let late = pending.iter().filter(|(_, decided)| !*decided.borrow());
                let providers = late.map(|(slot, _)| slot.name()).collect::<Vec<_>>().join(",");
                tracing::warn!(providers, "no release yet; the controllers start without");
            }
        }
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
            Some(served) if served.spec.fingerprint == spec.fingerprint => {
                // The slot's HTTP client holds these credentials: they stay, only their values change.
                let credentials = Arc::clone(&served.spec.credentials);
                let changed = credentials.reload(&provider_file::environment);
                for name in changed.with_context(|| format!("provider {:?}", spec.name))? {
                    tracing::info!(provider.name = spec.name, credential = name, "credential rotated");
                }
                served.spec = ProviderSpec { credentials, ..spec };
            }
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

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use prometheus_client::registry::Registry;

    use super::{Applied, Fleet, services};
    use crate::provider_file;

    const PROVIDER: &str = "apiVersion: skysail.dev/v1alpha1\nkind: Provider\nmetadata: {name: sim}\nspec:\n  source: {file: sim.wasm}\n  \
                            credentials: {api: {origins: [\"https://api.example.com\"], bearer: {file: token}}}\n";

    #[tokio::test]
    async fn a_rotated_credential_is_exchanged_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("providers.yaml");
        fs::write(&file, PROVIDER).unwrap();
        fs::write(folder.path().join("token"), "the-first-value").unwrap();
        let mut fleet = Fleet::new(services(&mut Registry::default()).unwrap());
        fleet.apply(provider_file::load(&file).unwrap().providers).await.unwrap();
        let in_use = Arc::clone(&fleet.served["sim"].spec.credentials);
        assert!(!in_use.redact("it is the-first-value").contains("the-first-value"));

        fs::write(folder.path().join("token"), "another-value").unwrap();
        let applied = fleet.apply(provider_file::load(&file).unwrap().providers).await.unwrap();
        assert_eq!(applied, Applied::InPlace);
        assert!(Arc::ptr_eq(&in_use, &fleet.served["sim"].spec.credentials));
        // What was known before may still be in answers on their way.
        let both = in_use.redact("the-first-value, another-value");
        assert!(!both.contains("first") && !both.contains("another"), "{both}");
    }

    #[tokio::test]
    async fn the_controllers_do_not_wait_for_a_component_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("providers.yaml");
        fs::write(&file, PROVIDER).unwrap();
        fs::write(folder.path().join("token"), "a-long-token").unwrap();
        let mut fleet = Fleet::new(services(&mut Registry::default()).unwrap());
        fleet.apply(provider_file::load(&file).unwrap().providers).await.unwrap();
        let decided = tokio::time::timeout(super::FIRST_RELEASES / 2, fleet.first_releases()).await;
        assert!(decided.is_ok(), "a missing file is a decision");
    }
}
