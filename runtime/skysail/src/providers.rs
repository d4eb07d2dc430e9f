//! From provider specs to slots that serve: the one place where the file's world meets the host's.
//!
//! Knows no Kubernetes. `run`, `dev` and `call` all make their slots here, so that a component
//! meets the same sandbox everywhere.

mod feeder;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use feeder::Feeder;
use kube::Client;
use prometheus_client::registry::Registry;
use skysail_controllers::Findings;
use skysail_host::{
    CallMetrics, CallRecorder, Engine, SandboxOptions,
    credentials::Rotation,
    http_client::HttpClient,
    jail::{Compiler, JailCommand},
    slot::{EarlierOffers, Reconfiguration, Slot, SlotMetrics, SlotOptions, SlotServices, SlotStatus},
};
use skysail_sources::Archive;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    args,
    provider_file::{Claims, ProviderSpec},
};

/// How often what was refused for a reason of the machine, not its own, is tried again.
pub(crate) const RETRY_PERIOD: Duration = Duration::from_secs(30);

/// How long the controllers wait at the start for the first releases. A component compiles in a
/// second or two; one that takes far longer must not keep the other providers' objects waiting.
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
    let ProviderSpec {
        name,
        config,
        egress,
        credentials,
        limits,
        allow_interface_loss,
        allow_identity_change,
        allow_unmet_egress,
        rollout,
        retry,
        ..
    } = spec;
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
        allow_unmet_egress: *allow_unmet_egress,
        rollout: rollout.clone(),
        retry: retry.clone(),
    })
}

/// A provider that is configured, and the tasks that keep its slot filled.
pub(crate) struct Served {
    pub(crate) spec: ProviderSpec,
    pub(crate) slot: Arc<Slot>,
    /// Changes whenever the calls of some object begin to go to another release of the slot.
    pub(crate) generation: watch::Receiver<u64>,
    /// Counts the rotations of credentials: what was denied may not be any more.
    pub(crate) rotations: watch::Sender<u64>,
    /// What keeps the provider from its objects, as the controllers report.
    pub(crate) findings: Findings,
    feeder: Feeder,
    _tasks: JoinSet<()>,
}

impl Served {
    /// Becomes true when the source that is named now has said something.
    pub(crate) fn heard(&self) -> watch::Receiver<bool> {
        self.feeder.heard()
    }

    fn start(spec: ProviderSpec, slot: Arc<Slot>, surroundings: &Surroundings) -> Self {
        let (sender, generation) = watch::channel(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_generation(slot.status(), sender));
        let guarded = Arc::clone(&slot);
        tasks.spawn(async move { guarded.guard().await });
        let feeder = Feeder::start(&slot, &spec, surroundings, false);
        Self {
            spec,
            slot,
            generation,
            rotations: watch::Sender::new(0),
            findings: Findings::default(),
            feeder,
            _tasks: tasks,
        }
    }
}

async fn follow_generation(mut status: watch::Receiver<SlotStatus>, sender: watch::Sender<u64>) {
    loop {
        let generation = status.borrow_and_update().generation;
        sender.send_if_modified(|known| std::mem::replace(known, generation) != generation);
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// All providers of the process, by name.
pub(crate) struct Fleet {
    pub(crate) services: SlotServices,
    pub(crate) served: BTreeMap<String, Served>,
    /// Their names by age, oldest first: of two that claim the same, the older provider has it.
    oldest_first: Vec<String>,
    surroundings: Surroundings,
}

/// What there is around the process, for sources and for what has to outlive it.
#[derive(Clone, Default)]
pub(crate) struct Surroundings {
    /// Where the last release of each provider is kept.
    pub(crate) archive: Option<Arc<Archive>>,
    /// For sources that are read through the Kubernetes API.
    pub(crate) kubernetes: Option<Client>,
}

/// Which providers there are and what each claims, oldest first: what the controllers have to be
/// started with.
pub(crate) type Ownership = Vec<Claims>;

/// Why something is not as it is wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// Nothing of the wish is taken up.
    Refused(String),
    /// All of it is, but for claims that an older provider has.
    GaveUp(String),
}

/// What becomes of one provider, judged whole: nothing has changed yet, and nothing can fail any
/// more.
enum Change<'a> {
    /// It was not there.
    Start { spec: ProviderSpec, slot: Arc<Slot> },
    /// Its slot takes up other settings.
    Settings { spec: ProviderSpec, reconfiguration: Box<Reconfiguration<'a>> },
    /// Its slot's settings are the same. The values of its credentials, its claims and the
    /// component's path may be others.
    Rest { spec: ProviderSpec, values: Rotation },
}

impl Fleet {
    /// No provider yet.
    pub(crate) fn new(services: SlotServices) -> Self {
        Self { services, served: BTreeMap::new(), oldest_first: Vec::new(), surroundings: Surroundings::default() }
    }

    /// The same, with what there is around the process.
    pub(crate) fn within(self, surroundings: Surroundings) -> Self {
        Self { surroundings, ..self }
    }

    /// What is claimed now.
    pub(crate) fn ownership(&self) -> Ownership {
        self.by_age().map(|served| served.spec.claims()).collect()
    }

    /// The providers, oldest first.
    pub(crate) fn by_age(&self) -> impl Iterator<Item = &Served> {
        self.oldest_first.iter().filter_map(|name| self.served.get(name))
    }

    /// Waits, within [`FIRST_RELEASES`], until each provider serves or it is known why it does not.
    /// A controller that started before would tell every object that nothing serves.
    pub(crate) fn first_releases(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut pending: Vec<_> =
            self.served.values().map(|served| (Arc::clone(&served.slot), served.feeder.decided())).collect();
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

    /// Brings the providers to what the file says, all of them or none. A slot whose provider stays
    /// keeps serving through it all.
    ///
    /// Only what the operator wrote can keep a file from being taken up. What a component says
    /// about its new settings is in the status of its slot (`skysail_host::slot`): it holds back
    /// neither these nor those of another provider.
    ///
    /// # Errors
    /// The first provider whose settings are wrong in themselves; every provider keeps its old
    /// ones.
    pub(crate) async fn apply(&mut self, specs: Vec<ProviderSpec>) -> anyhow::Result<()> {
        let slots = self.slots();
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        // All at once: a component that takes its time to answer must not sum up with others.
        let changes = specs.into_iter().map(async |spec| {
            let name = spec.name.clone();
            self.prepare(&slots, spec).await.with_context(|| format!("provider {name:?}"))
        });
        for change in futures::future::try_join_all(changes).await? {
            self.commit(change);
        }
        self.retain(names);
        Ok(())
    }

    /// Brings each provider to its spec by itself, oldest first: one that is refused keeps what it
    /// has, as one without a spec does, and holds up no other. Of two that claim the same the older
    /// one has it, also if the younger had it before, so that every process comes to the same. The
    /// rest goes.
    ///
    /// Returns what is not as it is wished, by name.
    pub(crate) async fn apply_each(
        &mut self,
        wishes: Vec<(String, Option<ProviderSpec>)>,
    ) -> BTreeMap<String, Complaint> {
        let slots = self.slots();
        let names: Vec<String> = wishes.iter().map(|(name, _)| name.clone()).collect();
        let specs = wishes.into_iter().filter_map(|(_, spec)| spec);
        let prepared = specs.map(async |spec| (spec.name.clone(), self.prepare(&slots, spec).await));
        let mut complaints = BTreeMap::new();
        for (name, prepared) in futures::future::join_all(prepared).await {
            match prepared {
                Ok(change) => self.commit(change),
                Err(error) => drop(complaints.insert(name, Complaint::Refused(format!("{error:#}")))),
            }
        }
        self.retain(names);
        let mut older: Vec<Claims> = Vec::new();
        for name in self.oldest_first.clone() {
            let Some(served) = self.served.get_mut(&name) else { continue };
            if let Some(reason) = served.spec.yield_to(&older) {
                complaints.entry(name).or_insert(Complaint::GaveUp(reason));
            }
            older.push(served.spec.claims());
        }
        complaints
    }

    fn slots(&self) -> BTreeMap<String, Arc<Slot>> {
        self.served.iter().map(|(name, served)| (name.clone(), Arc::clone(&served.slot))).collect()
    }

    async fn prepare<'a>(
        &self,
        slots: &'a BTreeMap<String, Arc<Slot>>,
        spec: ProviderSpec,
    ) -> anyhow::Result<Change<'a>> {
        if spec.source.needs_kubernetes() && self.surroundings.kubernetes.is_none() {
            bail!("its source is read through the Kubernetes API, and there is no cluster here");
        }
        let known = self.served.get(&spec.name).zip(slots.get(&spec.name));
        prepare(&self.services, known.map(|(served, slot)| (&served.spec, &**slot)), spec).await
    }

    /// The providers of these names, which are in the order of their age, stay.
    fn retain(&mut self, names: Vec<String>) {
        let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        self.served.retain(|name, _| known.contains(&**name));
        if let Some(archive) = &self.surroundings.archive
            && let Err(error) = archive.retain(&known)
        {
            tracing::warn!("what is kept on disk of providers that are gone stays: {error}");
        }
        self.oldest_first = names;
    }

    fn commit(&mut self, change: Change<'_>) {
        match change {
            Change::Start { spec, slot } => {
                let started = Served::start(spec, slot, &self.surroundings);
                self.served.insert(started.spec.name.clone(), started);
            }
            Change::Settings { spec, reconfiguration } => {
                reconfiguration.commit();
                if let Some(served) = self.served.get_mut(&spec.name) {
                    // Reads the file again under the new limit, and tries what was refused.
                    let another_source = !served.spec.source.is_same_place(&spec.source);
                    served.feeder = Feeder::start(&served.slot, &spec, &self.surroundings, another_source);
                    served.spec = spec;
                }
            }
            Change::Rest { spec, values } => {
                let Some(served) = self.served.get_mut(&spec.name) else { return };
                // The slot's HTTP client holds these credentials: they stay, only their values
                // change.
                let credentials = Arc::clone(&served.spec.credentials);
                let rotated = credentials.exchange(values);
                for name in &rotated {
                    tracing::info!(provider.name = spec.name, credential = name, "credential rotated");
                }
                if !rotated.is_empty() {
                    served.rotations.send_modify(|count| *count += 1);
                }
                if served.spec.source != spec.source {
                    let another_source = !served.spec.source.is_same_place(&spec.source);
                    served.feeder = Feeder::start(&served.slot, &spec, &self.surroundings, another_source);
                }
                served.slot.ask_again(spec.retry.clone());
                served.spec = ProviderSpec { credentials, ..spec };
            }
        }
    }
}

async fn prepare<'a>(
    services: &SlotServices,
    known: Option<(&ProviderSpec, &'a Slot)>,
    spec: ProviderSpec,
) -> anyhow::Result<Change<'a>> {
    Ok(match known {
        None => {
            let slot = Slot::new(services.clone(), slot_options(&spec)?).context("cannot make the provider's slot")?;
            Change::Start { spec, slot: Arc::new(slot) }
        }
        Some((before, _)) if before.fingerprint == spec.fingerprint => {
            let values = before.credentials.rotation_to(&spec.credentials)?;
            Change::Rest { spec, values }
        }
        Some((before, slot)) => {
            let same = before.source.is_same_place(&spec.source);
            let earlier = if same { EarlierOffers::Stand } else { EarlierOffers::Forgotten };
            let reconfiguration = Box::new(slot.prepare(slot_options(&spec)?, earlier).await?);
            Change::Settings { spec, reconfiguration }
        }
    })
}

#[cfg(test)]
mod tests;
