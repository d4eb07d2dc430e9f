//! The objects of kind `Provider` while the manager runs. Each changed object is applied
//! independently; an invalid object keeps its last valid settings.
//!
//! # Flow
//! A watch of the API → [`Resources::look`] reads every object and the Secrets that it names → the
//! fleet applies the valid objects → a [`ProviderState`] for each object holds its state →
//! [`report`] writes that state into the object's status and emits Events, in the leader.
//!
//! Only [`report`] may write to the API, because writes need the Lease.

mod events;
mod report;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use futures::StreamExt as _;
use k8s_openapi::{api::core::v1::Secret as KubeSecret, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    runtime::{
        WatchStreamExt as _,
        reflector::{Store, store::Writer},
        watcher,
    },
};
use serde_json::Value;
use skysail_controllers::{Finding, WatchBackoff};
use skysail_host::{
    credentials::{Secret, SecretKeyRef, SecretValues},
    slot::{Slot, SlotStatus},
};
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};

use crate::{
    custom_resource::{Calls, ProviderStatus},
    exit::{MarkExt as _, Reason},
    provider_file::{API_VERSION, KIND, PROVIDERS_MAX, ProviderObject, ProviderSpec, claims_only},
    providers::{Desired, Fleet, Owner, Problem, Served},
};

use report::written_in;
pub(super) use report::{Reporter, until_something_changes};
use status::{SlotReport, degradation, status_of};

/// How often the Secrets that the objects name are read for changes.
const SECRETS_PERIOD: Duration = Duration::from_secs(10);

/// Number of Secrets that are read in parallel.
const SECRETS_AT_ONCE: usize = 8;

/// How long the start waits for Secrets that cannot be read at the moment: without its Secret a
/// provider is not served, and another provider could take its claims. No provider serves during
/// this wait, and it must be shorter than the patience of a liveness probe.
const FIRST_LOOKS: Duration = Duration::from_secs(15);
const BETWEEN_FIRST_LOOKS: Duration = Duration::from_secs(1);

/// How long the start waits for the list of the objects. Nothing is served until then, not even
/// `/livez`; a manager that cannot list them ends, and is started again.
const FIRST_LIST: Duration = Duration::from_secs(30);

/// The message for the youngest objects if there are more than [`PROVIDERS_MAX`].
const TOO_MANY: &str = "the cluster has more than 32 Providers; delete one that is not needed";
const _: () = assert!(PROVIDERS_MAX == 32, "the text above names the number");

/// The message if there is no object, which may be because the CRD was deleted.
const NO_PROVIDER: &str = "the cluster has no Provider, so nothing is served; apply a Provider, and before it the CRD (`skysail crd`) if that is missing";

/// How long further changes are awaited after a change: `kubectl apply` writes one object after the
/// other, and a load balancer class that moves would belong to no provider for a moment.
const SETTLE: Duration = Duration::from_millis(200);

/// The state of one provider.
#[derive(Clone, Debug)]
pub(super) struct ProviderState {
    name: String,
    uid: String,
    /// Generation of the object that was read.
    generation: i64,
    /// What could not be applied. If the whole object was refused, its last valid settings are in
    /// force, if there are any.
    problem: Option<Problem>,
    /// Status of the provider's slot; `None` without valid settings.
    slot: Option<watch::Receiver<SlotStatus>>,
    /// Whether the source has answered. Until then the slot's status of the source is that of the
    /// source before.
    heard: Option<watch::Receiver<bool>>,
    /// What the controllers could not do for the provider; `None` without valid settings.
    findings: Option<watch::Receiver<BTreeMap<Finding, String>>>,
    /// Whether the settings in force pause the provider.
    paused: bool,
    figures: Figures,
}

/// Returns the numbers and costs of the calls of the serving release.
#[derive(Clone)]
struct Figures(Arc<dyn Fn() -> Vec<Calls> + Send + Sync>);

/// Name, UID and generation.
type Identity = (String, String, i64);

/// The values of Secrets, the Secrets that could not be read, and why others have no value.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    values: SecretValues,
    unknown: BTreeSet<SecretKeyRef>,
    useless: BTreeMap<SecretKeyRef, String>,
}

/// All inputs of a look: while they are the same, there is nothing to do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Oldest first.
    objects: Vec<Identity>,
    /// The Secrets that the objects name.
    wanted: BTreeSet<SecretKeyRef>,
    secrets: Known,
}

/// The `Provider`s of the cluster, and the inputs of the last look.
pub(in crate::commands) struct Resources {
    client: Client,
    store: Store<DynamicObject>,
    /// Counts the changes of the watch.
    touched: watch::Receiver<u64>,
    seen: Option<Seen>,
    provider_states: watch::Sender<Vec<ProviderState>>,
    _watch: JoinSet<()>,
}

/// The resource `Provider`.
pub(in crate::commands) fn api_resource() -> ApiResource {
    let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, KIND), "providers")
}

// === impl Standing ===

impl ProviderState {
    /// The state of a provider with settings, or of an object that never had valid ones.
    fn new((name, uid, generation): Identity, problem: Option<Problem>, served: Option<&Served>) -> Self {
        Self {
            name,
            uid,
            generation,
            problem,
            slot: served.map(|served| served.slot.status()),
            heard: served.map(Served::heard),
            findings: served.map(|served| served.findings.subscribe()),
            paused: served.is_some_and(|served| served.spec.paused),
            figures: Figures::of(served.map(|served| &served.slot)),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The current status, with the calls of `before`; see [`status_of`].
    pub(super) fn status(&self, before: &ProviderStatus, now: Timestamp) -> ProviderStatus {
        self.reported(|said| status_of(self, said, before, now))
    }

    /// The reason of the condition `Degraded`, in one word; `None` while the condition is False.
    pub(super) fn degraded(&self, now: Timestamp) -> Option<String> {
        self.reported(|said| degradation(self, said, now)).map(|(code, _)| code)
    }

    fn reported<T>(&self, report: impl FnOnce(Option<SlotReport<'_>>) -> T) -> T {
        let slot = self.slot.as_ref().map(|slot| slot.borrow().clone());
        let heard = self.heard.as_ref().is_none_or(|heard| *heard.borrow());
        report(slot.as_ref().map(|slot| SlotReport { slot, heard }))
    }

    /// The numbers and costs of the calls of the serving release.
    pub(super) fn calls(&self) -> Vec<Calls> {
        self.figures.now()
    }

    /// Marks the current status of slot, source and findings as seen.
    pub(super) fn seen(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.mark_unchanged();
        }
        if let Some(heard) = &mut self.heard {
            heard.mark_unchanged();
        }
        if let Some(findings) = &mut self.findings {
            findings.mark_unchanged();
        }
    }

    /// What the controllers could not do for the provider, the most important finding first.
    fn findings(&self) -> BTreeMap<Finding, String> {
        self.findings.as_ref().map(|findings| findings.borrow().clone()).unwrap_or_default()
    }

    /// The state of a provider of the provider file, which has neither UID nor generation; with the
    /// problem about the current file.
    pub(super) fn of_file(served: &Served, problem: Option<Problem>) -> Self {
        Self::new((served.slot.name().to_owned(), String::new(), 0), problem, Some(served))
    }
}

// === impl Figures ===

impl Figures {
    fn of(slot: Option<&Arc<Slot>>) -> Self {
        // A weak reference, so that a removed provider frees its memory.
        let slot = slot.map(Arc::downgrade);
        Self(Arc::new(move || {
            let serving = slot.as_ref().and_then(Weak::upgrade).and_then(|slot| slot.serving());
            serving.map_or_else(Vec::new, |provider| {
                let fuel_limit = provider.sandbox().limits().fuel;
                provider.release().calls().into_iter().map(|calls| status::calls(calls, fuel_limit)).collect()
            })
        }))
    }

    fn now(&self) -> Vec<Calls> {
        (self.0)()
    }
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.now()).finish()
    }
}

// === impl Resources ===

impl Resources {
    /// Lists the objects and watches them from now on.
    ///
    /// # Errors
    /// The cluster has no resource `Provider`, this account has no permission to list it, or no
    /// list arrives within [`FIRST_LIST`].
    pub(in crate::commands) async fn start(client: Client) -> anyhow::Result<Self> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &api_resource());
        api.list(&ListParams::default().limit(1)).await.map(drop).or_else(unreadable)?;
        let writer = Writer::new(api_resource());
        let reader = writer.as_reader();
        let (touch, touched) = watch::channel(0_u64);
        let changes = watcher(api, watcher::Config::default()).backoff(WatchBackoff::default()).reflect(writer);
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                match change {
                    // The objects of a list are in the store after the whole list has arrived.
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                    Ok(watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {
                        touch.send_modify(|count| *count += 1);
                    }
                    Err(error) => {
                        tracing::warn!(
                            "the watch of Providers failed; it starts again: {:#}",
                            anyhow::Error::from(error)
                        );
                    }
                }
            }
        });
        let listed = tokio::time::timeout(FIRST_LIST, reader.wait_until_ready()).await;
        let listed = listed.map_err(|_elapsed| {
            anyhow!(
                "the API server sent no list of Providers within {} s; the log has the reason if it refused the list",
                FIRST_LIST.as_secs()
            )
        });
        listed
            .or_exit(Reason::Unreachable)?
            .context("the watch of Providers ended; start the manager again, and report a bug of skysail")?;
        Ok(Self::of(client, reader, touched, watch))
    }

    fn of(client: Client, store: Store<DynamicObject>, touched: watch::Receiver<u64>, watch: JoinSet<()>) -> Self {
        Self { client, store, touched, seen: None, provider_states: watch::Sender::new(Vec::new()), _watch: watch }
    }

    /// The state of each provider and its changes.
    pub(super) fn provider_states(&self) -> watch::Receiver<Vec<ProviderState>> {
        self.provider_states.subscribe()
    }

    /// The writer of the status of the objects.
    pub(super) fn reporter(&self) -> Reporter {
        Reporter::new(self.store.clone(), self.provider_states.subscribe())
    }

    /// Returns a function that tells which object is not served and why, or that there is no
    /// object.
    pub(super) fn left_out(&self) -> impl Fn() -> Option<String> + Send + Sync + use<> {
        let provider_states = self.provider_states.subscribe();
        move || match provider_states.borrow().as_slice() {
            [] => Some(NO_PROVIDER.to_owned()),
            provider_states => left_out(provider_states, None),
        }
    }

    /// Which object (of all, or only this one) is not served, and why.
    pub(in crate::commands) fn left_out_of(&self, only: Option<&str>) -> Option<String> {
        left_out(&self.provider_states.borrow(), only)
    }

    /// Applies the objects when all their Secrets are known, or after [`FIRST_LOOKS`] without.
    pub(in crate::commands) async fn until_first_taken_up(&mut self, fleet: &mut Fleet) {
        let known = async {
            loop {
                self.look(fleet, true).await;
                if self.seen.as_ref().is_some_and(|seen| seen.secrets.unknown.is_empty()) {
                    return;
                }
                tokio::time::sleep(BETWEEN_FIRST_LOOKS).await;
            }
        };
        if tokio::time::timeout(FIRST_LOOKS, known).await.is_err() {
            tracing::warn!("some Secrets of Providers cannot be read; the manager starts without their Providers");
        }
    }

    /// Applies changes until the claims or the slots of the providers differ from `started`, with
    /// which the controllers run.
    ///
    /// # Errors
    /// The task of the watch has ended.
    pub(super) async fn until_ownership_changes(&mut self, fleet: &mut Fleet, started: &[Owner]) -> anyhow::Result<()> {
        let mut period = tokio::time::interval(SECRETS_PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while fleet.ownership() == started {
            let secrets_too = tokio::select! {
                changed = self.touched.changed() => {
                    changed.context("the watch of Providers ended; start the manager again, and report a bug of skysail")?;
                    tokio::time::sleep(SETTLE).await;
                    false
                }
                _ = period.tick() => true,
            };
            self.look(fleet, secrets_too).await;
        }
        Ok(())
    }

    /// Applies changes. If no spec has changed (each write of a status also triggers the watch),
    /// the Secrets are read only if `secrets_too` is set.
    async fn look(&mut self, fleet: &mut Fleet, secrets_too: bool) {
        self.touched.borrow_and_update();
        let objects = self.objects();
        let identities: Vec<Identity> = objects.iter().map(|object| identity(object)).collect();
        let known = self.seen.as_ref().filter(|seen| seen.objects == identities);
        if known.is_some() && !secrets_too {
            return;
        }
        let mut read = None;
        let wanted = match known {
            Some(seen) => seen.wanted.clone(),
            None => {
                let read = read.insert(read_all(&objects));
                read.iter().flatten().flat_map(ProviderObject::secrets).cloned().collect()
            }
        };
        let secrets = self.secrets(&wanted).await;
        let seen = Seen { objects: identities, wanted, secrets };
        if self.seen.as_ref() == Some(&seen) {
            return;
        }
        let read = read.unwrap_or_else(|| read_all(&objects));
        let checked = read.into_iter().map(|read| check(read?, &seen.secrets)).collect();
        let problems = self.take_up(fleet, &objects, checked).await;
        self.log(&problems);
        self.publish(fleet, &seen.objects, problems);
        self.seen = Some(seen);
    }

    /// The objects, oldest first: of two objects with the same claim, the older one gets it.
    fn objects(&self) -> Vec<Arc<DynamicObject>> {
        let mut objects = self.store.state();
        objects.sort_by_key(|object| (object.creation_timestamp(), object.name_any()));
        objects
    }

    /// Applies the valid objects to the fleet and returns the problems by name.
    async fn take_up(
        &self,
        fleet: &mut Fleet,
        objects: &[Arc<DynamicObject>],
        checked: Vec<Result<ProviderSpec, String>>,
    ) -> BTreeMap<String, Problem> {
        let before = self.seen.as_ref().map(|seen| &*seen.objects).unwrap_or_default();
        let is_other = |name: &str, uid: &str| before.iter().any(|(known, of, _)| known == name && of != uid);
        let (mut desired, mut refused, mut problems) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (index, (object, checked)) in objects.iter().zip(checked).enumerate() {
            let (name, uid, _) = identity(object);
            let settings = checked.map_err(|reason| problems.insert(name.clone(), Problem::Refused(reason))).ok();
            // A recreated object has no valid settings from before.
            if settings.is_none() && is_other(&name, &uid) {
                fleet.end(&name);
            }
            match claims_only(&name, &spec_of(object)) {
                Some(claims) if index < PROVIDERS_MAX => desired.push(Desired { settings, claims }),
                _ => refused.push(name),
            }
        }
        for (name, problem) in fleet.apply_each(desired, &refused).await {
            // A refused object may also have lost a claim.
            problems.entry(name).or_insert(problem);
        }
        for object in objects {
            if let Some(served) = fleet.served.get_mut(&object.name_any()) {
                served.remembered_schemes = written_in(object).provider_id_schemes;
            }
        }
        problems
    }

    /// Publishes the state of each object.
    fn publish(&self, fleet: &Fleet, objects: &[Identity], mut problems: BTreeMap<String, Problem>) {
        let provider_state = |identity: &Identity| {
            let (name, _, _) = identity;
            let served = fleet.served.get(name).filter(|served| served.has_settings());
            ProviderState::new(identity.clone(), problems.remove(name), served)
        };
        self.provider_states.send_replace(objects.iter().map(provider_state).collect());
    }

    /// Logs each problem once.
    fn log(&self, problems: &BTreeMap<String, Problem>) {
        let known = self.provider_states.borrow();
        for (name, problem) in problems {
            let logged = |provider_state: &ProviderState| {
                provider_state.name == *name && provider_state.problem.as_ref() == Some(problem)
            };
            match problem {
                _ if known.iter().any(logged) => {}
                Problem::Refused(reason) => {
                    tracing::error!(
                        provider.name = name,
                        "the Provider is refused, so its last valid settings stay in force: {reason}"
                    );
                }
                Problem::ClaimsDropped(reason) => {
                    tracing::error!(
                        provider.name = name,
                        "the Provider is applied without one of its claims: {reason}"
                    );
                }
            }
        }
    }

    /// The values of these Secrets. A Secret that cannot be read at the moment keeps its value.
    async fn secrets(&self, wanted: &BTreeSet<SecretKeyRef>) -> Known {
        let objects: BTreeSet<(&str, &str)> = wanted.iter().map(|place| (&*place.namespace, &*place.name)).collect();
        let get = async |(namespace, name): (&str, &str)| {
            let secrets: Api<KubeSecret> = Api::namespaced(self.client.clone(), namespace);
            let answer = secrets.get_opt(name).await;
            if let Err(error) = &answer {
                tracing::warn!("Secret {namespace}/{name} cannot be read now; it will be read again: {error}");
            }
            ((namespace.to_owned(), name.to_owned()), answer)
        };
        let answers: BTreeMap<_, _> =
            futures::stream::iter(objects).map(get).buffer_unordered(SECRETS_AT_ONCE).collect().await;
        let before = self.seen.as_ref().map(|seen| &seen.secrets.values);
        let mut known = Known::default();
        for place in wanted {
            let value = match answers.get(&(place.namespace.clone(), place.name.clone())) {
                Some(Ok(secret)) => {
                    text_in(secret.as_ref(), place).map_err(|why| known.useless.insert(place.clone(), why)).ok()
                }
                // The value from before is dropped, because the account lost its permission.
                Some(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                    let SecretKeyRef { namespace, name, .. } = place;
                    let why = format!(
                        "this account has no permission to get the Secret {namespace}/{name}; grant it, as deploy/docs/providers.md shows"
                    );
                    known.useless.insert(place.clone(), why);
                    None
                }
                Some(Err(_)) | None => {
                    let value = before.and_then(|before| before.get(place)).cloned();
                    if value.is_none() {
                        known.unknown.insert(place.clone());
                    }
                    value
                }
            };
            known.values.extend(value.map(|value| (place.clone(), value)));
        }
        known
    }
}

fn left_out(provider_states: &[ProviderState], only: Option<&str>) -> Option<String> {
    let reason = |provider_state: &ProviderState| match (&provider_state.slot, &provider_state.problem) {
        (None, Some(Problem::Refused(reason))) => Some(format!("{} is not served: {reason}", provider_state.name)),
        (_, _) => None,
    };
    provider_states.iter().filter(|provider_state| only.is_none_or(|only| only == provider_state.name)).find_map(reason)
}

fn identity(object: &DynamicObject) -> Identity {
    (object.name_any(), object.uid().unwrap_or_default(), object.metadata.generation.unwrap_or_default())
}

fn spec_of(object: &DynamicObject) -> Value {
    object.data.get("spec").cloned().unwrap_or_default()
}

fn read_all(objects: &[Arc<DynamicObject>]) -> Vec<Result<ProviderObject, String>> {
    // Objects beyond PROVIDERS_MAX are not parsed.
    let read = |(index, object): (usize, &Arc<DynamicObject>)| match index {
        0..PROVIDERS_MAX => ProviderObject::read(&object.name_any(), &spec_of(object)),
        _ => Err(TOO_MANY.to_owned()),
    };
    objects.iter().enumerate().map(read).collect()
}

fn check(object: ProviderObject, secrets: &Known) -> Result<ProviderSpec, String> {
    if let Some(SecretKeyRef { namespace, name, .. }) = object.secrets().intersection(&secrets.unknown).next() {
        return Err(format!(
            "Secret {namespace}/{name} cannot be read now; it will be read again, and the log has the reason"
        ));
    }
    match object.secrets().iter().find_map(|place| secrets.useless.get(place)) {
        Some(why) => Err(why.clone()),
        None => object.check(&secrets.values),
    }
}

/// The value of the key, or why there is none.
fn text_in(secret: Option<&KubeSecret>, place: &SecretKeyRef) -> Result<Secret, String> {
    let SecretKeyRef { namespace, name, key } = place;
    let Some(secret) = secret else {
        return Err(format!("Secret {namespace}/{name} does not exist; create it"));
    };
    let Some(bytes) = secret.data.as_ref().and_then(|data| data.get(key)) else {
        return Err(format!("Secret {namespace}/{name} has no key {key:?}; add the key"));
    };
    let text = String::from_utf8(bytes.0.clone()).ok();
    text.map(Secret::new)
        .ok_or_else(|| format!("Secret {namespace}/{name} has no UTF-8 text under the key {key:?}; replace the value"))
}

fn unreadable(error: kube::Error) -> anyhow::Result<()> {
    let refused = match &error {
        // An API server without the resource answers with plain text.
        kube::Error::Api(status) if status.code == 404 => anyhow!(
            "the cluster has no resource providers.skysail.dev; install the CRD with `skysail crd | kubectl apply -f -`, or name a file with --provider-file"
        ),
        kube::Error::Api(status) if status.is_forbidden() => anyhow!(
            "this account has no permission to list Providers ({status}); bind a ClusterRole like the one in deploy/manifests/rbac.yaml to the account"
        ),
        _ => return Err(error).context("cannot list Providers").or_exit(Reason::Unreachable),
    };
    Err(refused).or_exit(Reason::Usage)
}

#[cfg(test)]
mod tests;
