//! The `Provider`s of the cluster while the manager runs: each is taken up when it changes, by
//! itself; a wrong one keeps its last good settings.
//!
//! # Flow
//! The API is watched → [`Resources::look`] reads every object and the Secrets it names → the fleet
//! takes up what is right → a [`Standing`] for each object says what became of it → [`report`]
//! writes that into its status and tells it in Events, in the process that leads.
//!
//! Must not write anything: what is written needs the lease.

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
use skysail_controllers::{Finding, WatchBackoff};
use skysail_host::{
    credentials::{Secret, SecretKeyRef, SecretValues},
    slot::{Slot, SlotStatus},
};
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};

use crate::{
    custom_resource::{Calls, ProviderStatus},
    exit::{MarkExt as _, Reason},
    provider_file::{API_VERSION, Claims, KIND, PROVIDERS_MAX, ProviderObject, ProviderSpec},
    providers::{Complaint, Fleet, Served},
};

pub(super) use report::{Reporter, until_something_changes};
use status::{Said, status_of};

/// How often the Secrets that the objects name are read for changes.
const SECRETS_PERIOD: Duration = Duration::from_secs(10);

/// So many Secrets are asked for at once.
const SECRETS_AT_ONCE: usize = 8;

/// At the start Secrets that the API cannot tell are waited for: without them a provider would be
/// left out, and another could take what is its own. Not for long: nothing is served meanwhile, and
/// a liveness probe has less patience than a cloud.
const FIRST_LOOKS: Duration = Duration::from_secs(15);
const BETWEEN_FIRST_LOOKS: Duration = Duration::from_secs(1);

/// What is said of the youngest where there are more than [`PROVIDERS_MAX`].
const TOO_MANY: &str = "the cluster has more than 32 Providers; delete one that is not needed";
const _: () = assert!(PROVIDERS_MAX == 32, "the text above names the number");

/// What is said where there is none, be it that the resource definition was deleted.
const NO_PROVIDER: &str = "the cluster has no Provider, so nothing is served; apply a Provider, and before it the resource definition (`skysail crd`) if that is missing";

/// After a change, how long others are waited for: `kubectl apply` writes one object after the
/// other, and a class that moves would belong to no provider for a moment.
const SETTLE: Duration = Duration::from_millis(200);

/// What became of one object.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    name: String,
    uid: String,
    /// Of the object that was read.
    generation: i64,
    /// What of it is not as it is wished; where it is all of it, the settings of before are in
    /// force, if there are any.
    complaint: Option<Complaint>,
    /// Of its slot; none where it has none.
    slot: Option<watch::Receiver<SlotStatus>>,
    /// True when its source has said something; what the slot says of the source is about the one
    /// before until then.
    heard: Option<watch::Receiver<bool>>,
    /// What keeps it from its objects, as the controllers report; none where it has no slot.
    findings: Option<watch::Receiver<BTreeMap<Finding, String>>>,
    figures: Figures,
}

/// Tells, whenever it is asked, what the calls of the release that serves were and cost.
#[derive(Clone)]
struct Figures(Arc<dyn Fn() -> Vec<Calls> + Send + Sync>);

/// Name, UID and generation.
type Identity = (String, String, i64);

/// What Secrets hold, those of which the API could not tell, and why others have no value.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    values: SecretValues,
    unknown: BTreeSet<SecretKeyRef>,
    useless: BTreeMap<SecretKeyRef, String>,
}

/// All that a look depends on: as long as it is the same, there is nothing to do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Oldest first.
    objects: Vec<Identity>,
    /// The Secrets that they name.
    wanted: BTreeSet<SecretKeyRef>,
    secrets: Known,
}

/// The `Provider`s of the cluster, and what of them was seen.
pub(in crate::commands) struct Resources {
    client: Client,
    store: Store<DynamicObject>,
    /// Counts what the watch brought.
    touched: watch::Receiver<u64>,
    seen: Option<Seen>,
    standings: watch::Sender<Vec<Standing>>,
    _watch: JoinSet<()>,
}

/// The type, as the API names it.
pub(in crate::commands) fn api_resource() -> ApiResource {
    let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, KIND), "providers")
}

// === impl Standing ===

impl Standing {
    /// Of a provider that has a slot, or of an object that has none.
    fn new((name, uid, generation): Identity, complaint: Option<Complaint>, served: Option<&Served>) -> Self {
        Self {
            name,
            uid,
            generation,
            complaint,
            slot: served.map(|served| served.slot.status()),
            heard: served.map(Served::heard),
            findings: served.map(|served| served.findings.subscribe()),
            figures: Figures::of(served.map(|served| &served.slot)),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What is to be said of it now, but for its calls; see [`status_of`].
    pub(super) fn status(&self, before: &ProviderStatus, now: Timestamp) -> ProviderStatus {
        let slot = self.slot.as_ref().map(|slot| slot.borrow().clone());
        let heard = self.heard.as_ref().is_none_or(|heard| *heard.borrow());
        status_of(self, slot.as_ref().map(|slot| Said { slot, heard }), before, now)
    }

    /// What the calls of the release that serves were and cost.
    pub(super) fn calls(&self) -> Vec<Calls> {
        self.figures.now()
    }

    /// What its slot and its source say now is no change any more.
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

    /// What keeps it from its objects, the most important finding first.
    fn findings(&self) -> BTreeMap<Finding, String> {
        self.findings.as_ref().map(|findings| findings.borrow().clone()).unwrap_or_default()
    }

    /// Of a provider of the provider file, which has neither UID nor generation; with what is wrong
    /// with the file as it is now.
    pub(super) fn of_file(served: &Served, complaint: Option<Complaint>) -> Self {
        Self::new((served.slot.name().to_owned(), String::new(), 0), complaint, Some(served))
    }
}

// === impl Figures ===

impl Figures {
    fn of(slot: Option<&Arc<Slot>>) -> Self {
        // A provider that is gone keeps no memory by it.
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
    /// Reads what is there and watches it from now on.
    ///
    /// # Errors
    /// The cluster does not know `Provider`s, or this account may not read them.
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
                    // Objects of a list are in the store when all of it has come.
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                    Ok(watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {
                        touch.send_modify(|count| *count += 1);
                    }
                    Err(error) => {
                        tracing::warn!(
                            "the watch of Providers broke, and begins again: {:#}",
                            anyhow::Error::from(error)
                        );
                    }
                }
            }
        });
        reader.wait_until_ready().await.context("the watch of Providers ended")?;
        Ok(Self::of(client, reader, touched, watch))
    }

    fn of(client: Client, store: Store<DynamicObject>, touched: watch::Receiver<u64>, watch: JoinSet<()>) -> Self {
        Self { client, store, touched, seen: None, standings: watch::Sender::new(Vec::new()), _watch: watch }
    }

    /// What becomes of them, now and from now on.
    pub(super) fn standings(&self) -> watch::Receiver<Vec<Standing>> {
        self.standings.subscribe()
    }

    /// Writes what becomes of them.
    pub(super) fn reporter(&self) -> Reporter {
        Reporter::new(self.store.clone(), self.standings.subscribe())
    }

    /// Tells, whenever it is asked, that there is no object, or of which object nothing is in
    /// force, and why.
    pub(super) fn left_out(&self) -> impl Fn() -> Option<String> + Send + Sync + use<> {
        let standings = self.standings.subscribe();
        move || match standings.borrow().as_slice() {
            [] => Some(NO_PROVIDER.to_owned()),
            standings => left_out(standings, None),
        }
    }

    /// Of which of all objects, or of this one, nothing is in force, and why.
    pub(in crate::commands) fn left_out_of(&self, only: Option<&str>) -> Option<String> {
        left_out(&self.standings.borrow(), only)
    }

    /// Takes up what is there, as soon as it is known whole, or after a time without.
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
            tracing::warn!("not all Secrets of Providers can be read: the manager starts without");
        }
    }

    /// Follows the objects until the providers claim something else than `started`, which the
    /// controllers run with.
    ///
    /// # Errors
    /// The task that watches has ended.
    pub(super) async fn until_ownership_changes(
        &mut self,
        fleet: &mut Fleet,
        started: &[Claims],
    ) -> anyhow::Result<()> {
        let mut period = tokio::time::interval(SECRETS_PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while fleet.ownership() == started {
            let secrets_too = tokio::select! {
                changed = self.touched.changed() => {
                    changed.context("the watch of Providers ended")?;
                    tokio::time::sleep(SETTLE).await;
                    false
                }
                _ = period.tick() => true,
            };
            self.look(fleet, secrets_too).await;
        }
        Ok(())
    }

    /// Takes up what changed. Where the objects are the same (each status that we write is a change
    /// to the watch), their Secrets are read only if that is asked for.
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
        let complaints = self.take_up(fleet, &seen.objects, checked).await;
        self.log(&complaints);
        self.publish(fleet, &seen.objects, complaints);
        self.seen = Some(seen);
    }

    /// Oldest first: of two that claim the same the older one has it.
    fn objects(&self) -> Vec<Arc<DynamicObject>> {
        let mut objects = self.store.state();
        objects.sort_by_key(|object| (object.creation_timestamp(), object.name_any()));
        objects
    }

    /// Brings the fleet to what is right; what is not as it is wished, by name.
    async fn take_up(
        &self,
        fleet: &mut Fleet,
        objects: &[Identity],
        checked: Vec<Result<ProviderSpec, String>>,
    ) -> BTreeMap<String, Complaint> {
        let before = self.seen.as_ref().map(|seen| &*seen.objects).unwrap_or_default();
        let is_same = |name: &str, uid: &str| before.iter().any(|(known, of, _)| (&**known, &**of) == (name, uid));
        let (mut wishes, mut complaints) = (Vec::new(), BTreeMap::new());
        for (index, ((name, uid, _), checked)) in objects.iter().zip(checked).enumerate() {
            match checked {
                Ok(spec) => wishes.push((name.clone(), Some(spec))),
                Err(reason) => {
                    complaints.insert(name.clone(), Complaint::Refused(reason));
                    // Another object of that name has no good settings of before, and one too many
                    // is not kept for its own.
                    if index < PROVIDERS_MAX && is_same(name, uid) {
                        wishes.push((name.clone(), None));
                    }
                }
            }
        }
        complaints.extend(fleet.apply_each(wishes).await);
        complaints
    }

    /// Tells what became of each.
    fn publish(&self, fleet: &Fleet, objects: &[Identity], mut complaints: BTreeMap<String, Complaint>) {
        let standing = |identity: &Identity| {
            let (name, _, _) = identity;
            Standing::new(identity.clone(), complaints.remove(name), fleet.served.get(name))
        };
        self.standings.send_replace(objects.iter().map(standing).collect());
    }

    /// Says each complaint once.
    fn log(&self, complaints: &BTreeMap<String, Complaint>) {
        let known = self.standings.borrow();
        for (name, complaint) in complaints {
            let told = |standing: &Standing| standing.name == *name && standing.complaint.as_ref() == Some(complaint);
            match complaint {
                _ if known.iter().any(told) => {}
                Complaint::Refused(reason) => {
                    tracing::error!(
                        provider.name = name,
                        "Provider refused, what was good before stays in force: {reason}"
                    );
                }
                Complaint::GaveUp(reason) => {
                    tracing::error!(provider.name = name, "Provider taken up without a claim: {reason}");
                }
            }
        }
    }

    /// What these Secrets hold now. What the API cannot tell at the moment is as it was.
    async fn secrets(&self, wanted: &BTreeSet<SecretKeyRef>) -> Known {
        let objects: BTreeSet<(&str, &str)> = wanted.iter().map(|place| (&*place.namespace, &*place.name)).collect();
        let get = async |(namespace, name): (&str, &str)| {
            let secrets: Api<KubeSecret> = Api::namespaced(self.client.clone(), namespace);
            let answer = secrets.get_opt(name).await;
            if let Err(error) = &answer {
                tracing::warn!("Secret {namespace}/{name} cannot be read now: {error}");
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
                // What was read before does not count: the account lost the right to use it.
                Some(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                    let SecretKeyRef { namespace, name, .. } = place;
                    let why = format!(
                        "Secret {namespace}/{name} may not be read by this account; let the account get it, as deploy/docs/providers.md shows"
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

fn left_out(standings: &[Standing], only: Option<&str>) -> Option<String> {
    let reason = |standing: &Standing| match (&standing.slot, &standing.complaint) {
        (None, Some(Complaint::Refused(reason))) => Some(format!("{} is left out: {reason}", standing.name)),
        (_, _) => None,
    };
    standings.iter().filter(|standing| only.is_none_or(|only| only == standing.name)).find_map(reason)
}

fn identity(object: &DynamicObject) -> Identity {
    (object.name_any(), object.uid().unwrap_or_default(), object.metadata.generation.unwrap_or_default())
}

fn read_all(objects: &[Arc<DynamicObject>]) -> Vec<Result<ProviderObject, String>> {
    let spec = |object: &DynamicObject| object.data.get("spec").cloned().unwrap_or_default();
    // Those beyond what is taken up cost nothing but a word.
    let read = |(index, object): (usize, &Arc<DynamicObject>)| match index {
        0..PROVIDERS_MAX => ProviderObject::read(&object.name_any(), &spec(object)),
        _ => Err(TOO_MANY.to_owned()),
    };
    objects.iter().enumerate().map(read).collect()
}

fn check(object: ProviderObject, secrets: &Known) -> Result<ProviderSpec, String> {
    if let Some(SecretKeyRef { namespace, name, .. }) = object.secrets().intersection(&secrets.unknown).next() {
        return Err(format!(
            "Secret {namespace}/{name} cannot be read now; it is asked for again, and the log says why"
        ));
    }
    match object.secrets().iter().find_map(|place| secrets.useless.get(place)) {
        Some(why) => Err(why.clone()),
        None => object.check(&secrets.values),
    }
}

/// The text of the key, or why there is none.
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
    let told = match &error {
        // A server that does not know the type answers with a plain page.
        kube::Error::Api(status) if status.code == 404 => anyhow!(
            "the cluster does not know the resource providers.skysail.dev: define it with `skysail crd | kubectl apply -f -`, or name a file with --provider-file"
        ),
        kube::Error::Api(status) if status.is_forbidden() => anyhow!(
            "this account may not list Providers ({status}): bind a role such as deploy/manifests/rbac.yaml to it"
        ),
        _ => return Err(error).context("cannot list Providers").or_exit(Reason::Unreachable),
    };
    Err(told).or_exit(Reason::Usage)
}

#[cfg(test)]
mod tests;
