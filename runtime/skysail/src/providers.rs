//! From provider specs to slots that serve: the one place that turns settings of the provider file
//! into settings of the host.
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
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, ready},
    stream::FuturesUnordered,
};
use kube::Client;
use prometheus_client::registry::Registry;
use skysail_controllers::Findings;
use skysail_host::{
    CallMetrics, CallRecorder, Engine, Panics, SandboxOptions,
    credentials::Rotation,
    http_client::HttpClient,
    jail::{Compiler, JailCommand},
    slot::{EarlierOffers, Reconfiguration, Slot, SlotMetrics, SlotOptions, SlotServices, SlotStatus},
};
use skysail_sources::Archive;
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
};

use crate::{
    args,
    cluster::account_tokens,
    provider_file::{Claims, ComponentSource, ProviderSpec},
};

/// How often a release that was refused by a fault of the machine or the cloud is tried again.
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
        panics: Panics::default(),
    })
}

/// Compiles in child processes of this executable.
///
/// # Errors
/// The running executable cannot be found.
pub(crate) fn compiler() -> anyhow::Result<Compiler> {
    let program = std::env::current_exe()
        .context("cannot find the path of the skysail executable, which compiles components in a process of its own")?;
    Ok(Compiler::jailed(JailCommand { program, args: vec![OsString::from(args::COMPILE)] }))
}

/// The host's view of a provider spec. Logins by tokens of `ServiceAccounts` need a client of the
/// cluster.
///
/// # Errors
/// A certificate cannot be used.
pub(crate) fn slot_options(spec: &ProviderSpec, kubernetes: Option<&Client>) -> anyhow::Result<SlotOptions> {
    let ProviderSpec {
        name,
        config,
        egress,
        deletions,
        credentials,
        limits,
        provider_id_prefixes,
        interfaces,
        allow_interface_loss,
        allow_identity_change,
        allow_unmet_egress,
        rollout,
        retry,
        ..
    } = spec;
    let http = HttpClient::new(Arc::clone(egress), Arc::clone(credentials), &limits.http())
        .with_context(|| format!("provider {name:?}: its HTTP client cannot be made"))?;
    let http = http.with_deletions(Arc::clone(deletions));
    let http = http.with_accounts(kubernetes.map(|client| account_tokens(client.clone(), name)));
    Ok(SlotOptions {
        sandbox: SandboxOptions {
            name: name.clone(),
            limits: limits.clone(),
            config: config.clone(),
            http: Some(Arc::new(http)),
        },
        interfaces: Some(interfaces.clone()).filter(|interfaces| !interfaces.is_empty()),
        claims_prefixes: !provider_id_prefixes.is_empty(),
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
    number: u64,
    /// Changes whenever the calls of some object begin to go to another release of the slot.
    pub(crate) generation: watch::Receiver<u64>,
    /// Counts the rotations of credentials: a request that was denied may be allowed now.
    pub(crate) rotations: watch::Sender<u64>,
    /// Why the provider cannot serve some of its objects, as the controllers report.
    pub(crate) findings: Findings,
    /// Schemes that the component described in the process before this one.
    pub(crate) remembered_schemes: Vec<String>,
    feeder: Feeder,
    _tasks: JoinSet<()>,
}

impl Served {
    /// Whether the provider has settings, and not claims alone.
    pub(crate) fn has_settings(&self) -> bool {
        self.spec.source != ComponentSource::None
    }

    /// Becomes true when the current source has reported something.
    pub(crate) fn heard(&self) -> watch::Receiver<bool> {
        self.feeder.heard()
    }

    fn start(spec: ProviderSpec, slot: Arc<Slot>, number: u64, surroundings: &Surroundings) -> Self {
        let (sender, generation) = watch::channel(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(slot.guard(follow_generation(slot.status(), sender)));
        let feeder = Feeder::start(&slot, &spec, surroundings);
        Self {
            spec,
            slot,
            number,
            generation,
            rotations: watch::Sender::new(0),
            findings: Findings::default(),
            remembered_schemes: Vec::new(),
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
    /// The providers' names, oldest first: of two with the same claim, the older provider has it.
    oldest_first: Vec<String>,
    /// How many slots there were.
    slots: u64,
    surroundings: Surroundings,
    /// The providers that have something on disk. [`forget_others`] follows this.
    on_disk: watch::Sender<BTreeSet<String>>,
    /// Ends with the fleet.
    forgetting: JoinSet<()>,
}

/// What providers use outside this process: the archive on disk and the cluster.
#[derive(Clone, Default)]
pub(crate) struct Surroundings {
    /// Where the last release of each provider is kept.
    pub(crate) archive: Option<Arc<Archive>>,
    /// For sources that are read through the Kubernetes API.
    pub(crate) kubernetes: Option<Client>,
}

/// Which providers there are and what each claims, oldest first: the controllers are started with
/// this.
pub(crate) type Ownership = Vec<Owner>;

/// A provider as the controllers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Number of the slot in this process: a provider that is recreated has another slot.
    slot: u64,
    claims: Claims,
}

/// Why a provider does not have all the settings of its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The spec is refused as a whole.
    Refused(String),
    /// The spec is in force, without the claims that an older provider has.
    ClaimsDropped(String),
}

/// The desired settings of one provider.
pub(crate) struct Desired {
    /// The provider's settings; `None` if they are wrong.
    pub(crate) settings: Option<ProviderSpec>,
    /// Only the provider's claims, for a provider without valid settings, new or earlier.
    pub(crate) claims: ProviderSpec,
}

/// The change of one provider, judged as a whole: nothing has changed yet, and nothing can fail any
/// more.
enum Change {
    /// The provider is new.
    Start { spec: ProviderSpec, slot: Arc<Slot> },
    /// The provider's slot takes up other settings.
    Settings { spec: ProviderSpec, reconfiguration: Reconfiguration },
    /// The slot keeps its settings. The values of the provider's credentials, its claims and the
    /// component's path may change.
    Rest { spec: ProviderSpec, values: Rotation },
}

/// What a spec needs.
enum Judged {
    Decided(Change),
    /// The slot asks its component about the other settings.
    AsksTheSlot {
        spec: ProviderSpec,
        slot: Arc<Slot>,
        options: Box<SlotOptions>,
        earlier: EarlierOffers,
    },
}

impl Fleet {
    /// No provider yet.
    pub(crate) fn new(services: SlotServices) -> Self {
        Self {
            services,
            served: BTreeMap::new(),
            oldest_first: Vec::new(),
            slots: 0,
            surroundings: Surroundings::default(),
            on_disk: watch::Sender::default(),
            forgetting: JoinSet::new(),
        }
    }

    /// The same with an archive and a cluster.
    pub(crate) fn within(self, surroundings: Surroundings) -> Self {
        Self { surroundings, ..self }
    }

    /// What is claimed now.
    pub(crate) fn ownership(&self) -> Ownership {
        self.by_age().map(|served| Owner { slot: served.number, claims: served.spec.claims() }).collect()
    }

    /// The providers, oldest first.
    pub(crate) fn by_age(&self) -> impl Iterator<Item = &Served> {
        self.oldest_first.iter().filter_map(|name| self.served.get(name))
    }

    /// Waits, within [`FIRST_RELEASES`], until each provider serves or it is known why it does not.
    /// A controller that started before would tell every object that nothing serves.
    pub(crate) fn first_releases(&self) -> impl Future<Output = ()> + Send + use<> {
        let decided = self.decided(FIRST_RELEASES);
        async move {
            if let Err(late) = decided.await {
                let providers = late.join(",");
                tracing::warn!(
                    providers,
                    "no release of these providers serves yet; the controllers start without them"
                );
            }
        }
    }

    /// Waits for at most this time until each provider serves or it is known why it does not.
    ///
    /// # Errors
    /// The names of the providers of which neither is known.
    pub(crate) fn decided(&self, within: Duration) -> impl Future<Output = Result<(), Vec<String>>> + Send + use<> {
        let mut pending: Vec<_> =
            self.served.values().map(|served| (Arc::clone(&served.slot), served.feeder.decided())).collect();
        async move {
            let all = async {
                for (_, decided) in &mut pending {
                    // An error is a task that ended: nothing will be decided any more.
                    drop(decided.wait_for(|decided| *decided).await);
                }
            };
            if tokio::time::timeout(within, all).await.is_ok() {
                return Ok(());
            }
            let late = pending.iter().filter(|(_, decided)| !*decided.borrow());
            Err(late.map(|(slot, _)| slot.name().to_owned()).collect())
        }
    }

    /// Applies the providers of the file, all of them or none. The slot of a provider that stays in
    /// the file serves meanwhile.
    ///
    /// Only a fault of the operator's text refuses a file. A component's refusal of its new
    /// settings is in the status of its slot (`skysail_host::slot`), and delays neither these
    /// settings nor those of another provider.
    ///
    /// # Errors
    /// The first provider whose settings are wrong in themselves; every provider keeps its old
    /// ones.
    pub(crate) async fn apply(&mut self, specs: Vec<ProviderSpec>) -> anyhow::Result<()> {
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        // In parallel, so that the times of slow components do not add up.
        let changes = specs.into_iter().map(|spec| {
            let name = spec.name.clone();
            decided(self.judge(spec)).map(move |change| change.with_context(|| format!("provider {name:?}")))
        });
        let changes = futures::future::try_join_all(changes).await?;
        // All commits are sent before the first wait, so that none is left out.
        let committed: Vec<_> = changes.into_iter().map(|change| self.commit(change)).collect();
        self.retain(names, &[]);
        futures::future::join_all(committed).await;
        Ok(())
    }

    /// Applies the desired settings of each provider separately, oldest first: a provider whose
    /// settings are refused keeps its old ones, and delays no other. Of two providers with the same
    /// claim the older one has it, also if the younger one had it before, so that every process
    /// assigns claims alike. All other providers are removed. The archive and the quarantine of
    /// objects in `refused` stay on disk: a thirty-third Provider is served when an older one is
    /// deleted, and its quarantine must still hold.
    ///
    /// Returns the problem about each provider that does not have its desired settings, by name.
    pub(crate) async fn apply_each(&mut self, desired: Vec<Desired>, refused: &[String]) -> BTreeMap<String, Problem> {
        self.retain(desired.iter().map(|one| one.claims.name.clone()).collect(), refused);
        let preparing = desired.into_iter().map(|one| {
            let name = one.claims.name.clone();
            self.prepare_desired(one).map(|prepared| (name, prepared))
        });
        let mut preparing: FuturesUnordered<_> = preparing.collect();
        let (mut problems, mut committed) = (BTreeMap::new(), Vec::new());
        // Each commit follows its own preparation, which may wait for a component.
        while let Some((name, (change, refused))) = preparing.next().await {
            committed.extend(change.map(|change| self.commit(change)));
            if let Some(error) = refused {
                problems.insert(name, Problem::Refused(format!("{error:#}")));
            }
        }
        futures::future::join_all(committed).await;
        let mut older: Vec<Claims> = Vec::new();
        for name in self.oldest_first.clone() {
            let Some(served) = self.served.get_mut(&name) else { continue };
            if let Some(reason) = served.spec.yield_to(&older) {
                problems.entry(name).or_insert(Problem::ClaimsDropped(reason));
            }
            older.push(served.spec.claims());
        }
        problems
    }

    /// Ends a provider, whose object was deleted.
    pub(crate) fn end(&mut self, name: &str) {
        self.served.remove(name);
    }

    /// The change to the desired settings; `None` if the provider keeps its settings. Also returns
    /// why the desired settings are refused.
    fn prepare_desired(
        &self,
        Desired { settings, claims }: Desired,
    ) -> impl Future<Output = (Option<Change>, Option<anyhow::Error>)> + use<> {
        let settings = settings.map(|spec| self.judge(spec));
        let is_decided = matches!(settings, Some(Ok(Judged::Decided(_))));
        let has_settings = self.served.get(&claims.name).is_some_and(Served::has_settings);
        let claims = (!is_decided && !has_settings).then(|| self.judge(claims));
        async move {
            let refused = match settings {
                None => None,
                Some(judged) => match decided(judged).await {
                    Ok(change) => return (Some(change), None),
                    Err(error) => Some(error),
                },
            };
            match claims {
                None => (None, refused),
                Some(judged) => match decided(judged).await {
                    Ok(change) => (Some(change), refused),
                    Err(error) => (None, refused.or(Some(error))),
                },
            }
        }
    }

    fn judge(&self, spec: ProviderSpec) -> anyhow::Result<Judged> {
        if spec.source.needs_kubernetes() && self.surroundings.kubernetes.is_none() {
            bail!("its source is read through the Kubernetes API, and there is no cluster here");
        }
        let Some(Served { spec: before, slot, .. }) = self.served.get(&spec.name) else {
            let options = slot_options(&spec, self.surroundings.kubernetes.as_ref())?;
            let slot = Slot::new(self.services.clone(), options).context("cannot make the provider's slot")?;
            return Ok(Judged::Decided(Change::Start { spec, slot: Arc::new(slot) }));
        };
        let spec = ProviderSpec { deletions: Arc::clone(&before.deletions), ..spec };
        if before.fingerprint == spec.fingerprint {
            let values = before.credentials.rotation_to(&spec.credentials)?;
            return Ok(Judged::Decided(Change::Rest { spec, values }));
        }
        spec.credentials.inherit(&before.credentials);
        let same = before.source.is_same_place(&spec.source);
        let earlier = if same { EarlierOffers::Stand } else { EarlierOffers::Forgotten };
        let (slot, options) = (Arc::clone(slot), Box::new(slot_options(&spec, self.surroundings.kubernetes.as_ref())?));
        Ok(Judged::AsksTheSlot { spec, slot, options, earlier })
    }

    /// Ends all providers but those of `names`, which are in the order of their age. The archive of
    /// the `refused` providers is kept, too.
    fn retain(&mut self, names: Vec<String>, refused: &[String]) {
        let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        self.served.retain(|name, _| known.contains(&**name));
        self.on_disk.send_replace(names.iter().chain(refused).cloned().collect());
        if let Some(archive) = &self.surroundings.archive
            && self.forgetting.is_empty()
        {
            self.forgetting.spawn(forget_others(Arc::clone(archive), self.on_disk.subscribe()));
        }
        self.oldest_first = names;
    }

    /// Changes the provider at once. Its slot has the change too, when the future ends.
    fn commit(&mut self, change: Change) -> BoxFuture<'static, ()> {
        match change {
            Change::Start { spec, slot } => {
                self.slots += 1;
                spec.deletions.limit_to(spec.deletion_limit);
                let started = Served::start(spec, slot, self.slots, &self.surroundings);
                self.served.insert(started.spec.name.clone(), started);
            }
            Change::Settings { spec, reconfiguration } => {
                spec.deletions.limit_to(spec.deletion_limit);
                let committed = reconfiguration.commit();
                if let Some(served) = self.served.get_mut(&spec.name) {
                    // Reads the file again under the new limit, and offers a refused one again.
                    let another_source = !served.spec.source.is_same_place(&spec.source);
                    // Once more: calls under the old settings went on until now.
                    spec.credentials.inherit(&served.spec.credentials);
                    served.feeder.replace(&served.slot, &spec, &self.surroundings, another_source);
                    served.spec = spec;
                }
                return committed.boxed();
            }
            Change::Rest { spec, values } => {
                let Some(served) = self.served.get_mut(&spec.name) else { return ready(()).boxed() };
                spec.deletions.limit_to(spec.deletion_limit);
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
                    served.feeder.replace(&served.slot, &spec, &self.surroundings, another_source);
                }
                let (slot, retry) = (Arc::clone(&served.slot), spec.retry.clone());
                served.spec = ProviderSpec { credentials, ..spec };
                return async move { slot.ask_again(retry).await }.boxed();
            }
        }
        ready(()).boxed()
    }
}

/// Removes from the disk what belongs to other providers than these, now and after each change. In
/// a task of its own: a disk that hangs must not delay a provider.
async fn forget_others(archive: Arc<Archive>, providers: watch::Receiver<BTreeSet<String>>) {
    let mut changes = providers.clone();
    changes.mark_changed();
    while changes.changed().await.is_ok() {
        let (archive, providers) = (Arc::clone(&archive), providers.clone());
        let forgotten = spawn_blocking(move || archive.retain(|name| providers.borrow().contains(name))).await;
        // A task that was cancelled is a process that ends.
        if let Ok(Err(error)) = forgotten {
            tracing::warn!(
                "cannot delete the state of removed providers in --state-dir: {error}; the manager tries again when the providers change"
            );
        }
    }
}

/// Waits for the component where the slot asks it.
async fn decided(judged: anyhow::Result<Judged>) -> anyhow::Result<Change> {
    match judged? {
        Judged::Decided(change) => Ok(change),
        Judged::AsksTheSlot { spec, slot, options, earlier } => {
            let reconfiguration = slot.prepare(*options, earlier).await?;
            Ok(Change::Settings { spec, reconfiguration })
        }
    }
}

#[cfg(test)]
mod tests;
