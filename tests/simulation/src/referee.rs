//! Checks invariants during a day, by the state of the API and not by the view of a process.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use skysail_controllers::{
    RetainedLoadBalancer, RetainedRecords,
    names::{ALLOW_DELETION_ANNOTATION, DELETION_POLICY_ANNOTATION, LOAD_BALANCER_FINALIZER, RETAINED_CONFIG_MAP},
};
use skysail_dev::api::ApiServer;
use skysail_election::Timing;
use skysail_provider::{ObjectReference, Service};
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::{
    Plan,
    budget::Budget,
    client::REFEREE,
    cloud::{EFFECT_MAX, Lie, RANGES},
    deletions::{DeletionLimit, Window},
    link::Link,
    plan::CLOCK_SKEW,
    provider::JUNK,
    replica::{CLOUD_LABEL, LEASE_PATH, provider_name},
    story::Story,
};

/// The longest time between two calls of [`Referee::settle`].
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The functions that change something for a Service.
const CHANGES: [&str; 3] = ["ensure", "update", "ensure-deleted"];

/// Checks every write and every call.
pub struct Referee {
    server: Arc<ApiServer>,
    story: Story,
    inner: Mutex<Inner>,
    /// How often in a row a machine has to be reported missing before its node may be deleted.
    confirmations: u32,
    /// The percentage of nodes whose deletion the breaker allows.
    percent_max: usize,
    /// The budget of deletions of each provider.
    deletions: Option<DeletionLimit>,
    /// The provider that retains the load balancers of Services without a policy.
    retaining: Option<String>,
}

struct Inner {
    budget: Budget,
    /// Calls under way, by what each is about: which call, and the link of the process that makes
    /// it.
    calls: BTreeMap<String, (String, Arc<Link>)>,
    /// Nodes whose machine existed, or was not reported missing often enough, when a process
    /// requested their deletion: name and UID, and the time when the request takes effect.
    suspects: BTreeMap<(String, String), Instant>,
    /// By process and UID of a node: how often in a row its machine was reported missing.
    missing: BTreeMap<(String, String), u32>,
    /// UIDs of nodes whose machine was falsely reported missing.
    lied_about: BTreeSet<String>,
    /// UIDs of nodes whose machine was reported missing together with all others.
    all_missing: BTreeSet<String>,
    /// By process and scheme of the provider ID: UIDs of nodes that the process deleted while all
    /// machines were reported missing.
    deleted_by_lie: BTreeMap<(String, String), DeletedByLie>,
    /// UIDs of all nodes that there were, by the scheme of their provider IDs.
    nodes_seen: BTreeMap<String, BTreeSet<String>>,
    /// The largest number of nodes at one time.
    nodes_most: usize,
    /// Whether some process has received an old list.
    past_was_shown: bool,
    /// UIDs of Services for which a process that had received an old list made a cloud resource
    /// that the current state forbids.
    made_in_the_past: BTreeSet<String>,
    /// UIDs of Services whose load balancer a provider falsely said to have deleted.
    left_behind: BTreeSet<String>,
    /// The lease's version, and when it was first seen.
    lease: Option<(String, Instant)>,
    /// By provider and UID of the Service for which a load balancer was made: the digest of the
    /// release that ensured the load balancer last.
    ensured: BTreeMap<(String, String), Arc<str>>,
    /// UIDs of nodes that people deleted.
    deleted_by_people: BTreeSet<String>,
    /// The initialised node that two providers claim, since it came.
    contested: Option<String>,
    /// By slot and UID of a Service: what the Service and the slot were when the slot's provider
    /// said that the load balancer is deleted, and how often it has said so.
    emptied: BTreeMap<(String, String), (State, u32)>,
    /// The providers and UIDs of Services for which `get` found no load balancer the last time.
    absent: BTreeSet<(String, String)>,
    /// By process and provider: when deletions left.
    deletions: BTreeMap<(String, String), Window>,
    /// UIDs of Services whose deletions people have let through the budget of deletions.
    let_through: BTreeSet<String>,
    /// UIDs of the paused Services, and the cloud whose provider is paused, since all processes
    /// have seen the pauses.
    paused: (BTreeSet<String>, Option<&'static str>),
}

/// The resource version of a Service, the Service as the process shows it to the provider, whose
/// watch may lag behind, and the generation of a slot.
type State = (String, String, u64);

/// Nodes that a process deleted because a provider reported all machines as missing.
struct DeletedByLie {
    uids: BTreeSet<String>,
    /// How many nodes of the scheme there had been at the first deletion.
    seen_before: usize,
}

impl Inner {
    fn see_nodes(&mut self, nodes: &[Value]) {
        self.nodes_most = self.nodes_most.max(nodes.len());
        for node in nodes {
            let uid = text(node, "/metadata/uid").to_owned();
            self.nodes_seen.entry(scheme(node).to_owned()).or_default().insert(uid);
        }
    }

    /// When this version of the lease was first seen.
    fn see(&mut self, lease: Option<&Value>) -> Option<Instant> {
        let version = text(lease?, "/metadata/resourceVersion");
        match &self.lease {
            Some((known, seen)) if known == version => Some(*seen),
            Some(_) | None => Some(self.lease.insert((version.to_owned(), Instant::now())).1),
        }
    }
}

/// A running call about one Service, which ends when this is dropped.
pub(crate) struct OngoingCall {
    referee: Arc<Referee>,
    /// The Service; and the load balancer, which may have been made for another Service.
    about: Vec<String>,
    call: String,
}

impl Drop for OngoingCall {
    fn drop(&mut self) {
        let mut inner = self.referee.lock();
        for about in &self.about {
            if inner.calls.get(about).is_some_and(|(call, _)| *call == self.call) {
                inner.calls.remove(about);
            }
        }
    }
}

impl Referee {
    pub(crate) fn new(server: Arc<ApiServer>, plan: &Plan, story: Story) -> Self {
        let inner = Inner {
            budget: Budget::begin(),
            calls: BTreeMap::new(),
            suspects: BTreeMap::new(),
            missing: BTreeMap::new(),
            lied_about: BTreeSet::new(),
            all_missing: BTreeSet::new(),
            deleted_by_lie: BTreeMap::new(),
            nodes_seen: BTreeMap::new(),
            nodes_most: 0,
            past_was_shown: false,
            made_in_the_past: BTreeSet::new(),
            left_behind: BTreeSet::new(),
            lease: None,
            ensured: BTreeMap::new(),
            deleted_by_people: BTreeSet::new(),
            contested: None,
            emptied: BTreeMap::new(),
            absent: BTreeSet::new(),
            deletions: BTreeMap::new(),
            let_through: BTreeSet::new(),
            paused: (BTreeSet::new(), None),
        };
        let settings = &plan.settings;
        Self {
            server,
            story,
            inner: Mutex::new(inner),
            confirmations: settings.node_deletion_confirmations,
            percent_max: settings.node_deletion_percent_max.into(),
            deletions: plan.deletions,
            retaining: plan.retaining.map(provider_name),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These Services, by their UIDs, and the provider of this cloud are paused, and all processes
    /// have seen it.
    pub(crate) fn pause(&self, services: BTreeSet<String>, cloud: Option<&'static str>) {
        self.lock().paused = (services, cloud);
    }

    /// Invariant: a paused provider is not asked to change anything that is of no Service.
    pub(crate) fn changes(&self, process: &str, cloud: &str, function: &str) {
        if self.lock().paused.1 == Some(cloud) {
            self.story.violate(format_args!("{process} calls {function} of {cloud}, which is paused"));
        }
    }

    /// Invariants: at most one call for a Service, and one that changes a load balancer, at a time,
    /// over all processes. A frozen process makes no call: its sent requests have arrived before
    /// another process leads. No call that changes something for a paused Service.
    pub(crate) fn call_begins(
        self: &Arc<Self>,
        (process, provider, link): (&str, &str, &Arc<Link>),
        function: &str,
        (service, object): (&Service, &ObjectReference),
    ) -> OngoingCall {
        let ObjectReference { namespace, name, uid, .. } = object;
        let call = format!("{function} by {process} at {provider}");
        self.story.tell("call", format_args!("{function} {namespace}/{name} by {process}"));
        self.spends(format!("calls for {namespace}/{name}"));
        if CHANGES.contains(&function) && self.lock().paused.0.contains(uid) {
            self.story.violate(format_args!("{call} for {namespace}/{name}, which is paused"));
        }
        let changed =
            CHANGES.contains(&function).then(|| format!("the load balancer of {} at {provider}", service.uid));
        let about: Vec<String> = changed.into_iter().chain([format!("the Service {uid}")]).collect();
        for about in &about {
            let other = self.lock().calls.insert(about.clone(), (call.clone(), Arc::clone(link)));
            if let Some((other, _)) = other.filter(|(_, link)| !link.is_frozen()) {
                self.story.violate(format_args!("two calls for {about} ({namespace}/{name}) at once: {other}, {call}"));
            }
        }
        OngoingCall { referee: Arc::clone(self), about, call }
    }

    /// The records of retained load balancers.
    pub(crate) fn records(&self) -> RetainedRecords {
        let object = self.object(&format!("/api/v1/namespaces/kube-system/configmaps/{RETAINED_CONFIG_MAP}"));
        RetainedRecords::of(object.and_then(|object| serde_json::from_value(object).ok()).as_ref())
    }

    /// The answer of this provider's `get`.
    pub(crate) fn got(&self, provider: &str, uid: &str, is_absent: bool) {
        let (key, mut inner) = ((provider.to_owned(), uid.to_owned()), self.lock());
        match is_absent {
            true => inner.absent.insert(key),
            false => inner.absent.remove(&key),
        };
    }

    /// Invariants: a load balancer that has a record is changed only for the Service that the
    /// record names, and while that Service has it. Nothing is deleted for a Service whose policy
    /// is not `Delete`, unless the provider has just said that there is no load balancer, the
    /// Service shows no address, and has not adopted anything. A policy becomes `Delete` at most,
    /// and so an older one, which a process may still see, deletes less.
    pub(crate) fn changes_for(
        &self,
        (process, provider): (&str, &str),
        function: &str,
        (service, object): (&Service, &ObjectReference),
    ) {
        if !CHANGES.contains(&function) {
            return;
        }
        let (ObjectReference { namespace, name, .. }, records) = (object, self.records());
        let record = records.all().find(|(key, _)| key.provider == provider && key.uid == service.uid);
        let is_others = |record: &RetainedLoadBalancer| !record.in_use || record.service_uid != object.uid;
        if let Some((key, record)) = record.filter(|(_, record)| is_others(record)) {
            self.story.violate(format_args!(
                "{process} calls {function} for {namespace}/{name} ({}), and the record of {key} says {record:?}",
                object.uid
            ));
        }
        let now = self.object(&format!("/api/v1/namespaces/{namespace}/services/{name}")).unwrap_or_default();
        let policy = now.pointer("/metadata/annotations").and_then(|all| all.get(DELETION_POLICY_ANNOTATION));
        let is_it = text(&now, "/metadata/uid") == object.uid;
        let is_absent = self.lock().absent.contains(&(provider.to_owned(), service.uid.clone()));
        let is_unknown = record.is_none() && now.pointer("/status/loadBalancer/ingress").is_none();
        let is_retained =
            policy.map_or_else(|| self.retaining.as_deref() == Some(provider), |policy| policy != "Delete");
        let keeps = is_retained && !(is_absent && is_unknown);
        if function == "ensure-deleted" && is_it && keeps {
            self.story.violate(format_args!(
                "{process} deletes the load balancer of {namespace}/{name}, whose policy is {policy:?}"
            ));
        }
    }

    /// People let the deletions of this Service through the budget of deletions.
    pub(crate) fn lets_through(&self, uid: &str) {
        self.lock().let_through.insert(uid.to_owned());
    }

    /// A deletion leaves a process, for this Service if it is for one. Invariant: no more than the
    /// operator's budget allows within its window, except for a Service that people let through.
    pub(crate) fn deletion_leaves(&self, (process, provider): (&str, &str), service: Option<&ObjectReference>) {
        let Some(DeletionLimit { deletions, window }) = self.deletions else { return };
        let mut inner = self.lock();
        let is_let_through = service.is_some_and(|service| inner.let_through.contains(&service.uid));
        let sent = inner.deletions.entry((process.to_owned(), provider.to_owned())).or_default();
        sent.add();
        let (count, _) = sent.seen(window);
        drop(inner);
        if count > deletions && !is_let_through {
            let (window, of) = (window.as_millis(), service.map(|service| &service.name));
            self.story.violate(format_args!(
                "{process} deletes something of {provider} for {of:?}: {count} deletions within {window} ms, and the budget allows {deletions}"
            ));
        }
    }

    /// Invariant: no load balancer that has a record is deleted as an orphan.
    pub(crate) fn deletes_orphan(&self, (process, provider): (&str, &str), name: &str) {
        let records = self.records();
        if let Some((_, record)) = records.all().find(|(key, record)| key.provider == provider && record.name == name) {
            self.story.violate(format_args!("{process} deletes {name} as an orphan, and there is {record:?}"));
        }
    }

    /// Invariant: no write without the lease, and none so late that it may take effect when a
    /// process with the fastest clock leads.
    pub(crate) fn writes(&self, process: &str, what: &str) {
        let lease = self.object(LEASE_PATH);
        let holder = lease.as_ref().and_then(|lease| lease.pointer("/spec/holderIdentity")?.as_str());
        if holder != Some(process) {
            self.story.violate(format_args!("{process} writes while {holder:?} leads: {what}"));
        }
        let renewed = self.lock().see(lease.as_ref());
        let skewed = 1_000 + u32::try_from(CLOCK_SKEW).unwrap_or_default();
        let next = Timing::default().lease_duration() * 1_000 / skewed;
        if renewed.is_some_and(|seen| seen.elapsed() + EFFECT_MAX > next) {
            self.story.violate(format_args!("{process} writes when its lease runs out: {what}"));
        }
    }

    /// Counts an operation of people or the begin of a fault.
    pub(crate) fn operation(&self) {
        self.lock().budget.operation();
    }

    /// Invariant: no more requests of this kind than its budget.
    pub(crate) fn spends(&self, what: String) {
        self.spends_for(what, 1);
    }

    /// The same where nothing says for which one of this many objects the request is.
    pub(crate) fn spends_for(&self, what: String, objects: u32) {
        let overspent = self.lock().budget.spend(what, objects);
        if let Some(overspent) = overspent {
            self.story.violate(overspent);
        }
    }

    /// A process got an answer about this node's machine.
    pub(crate) fn answered(&self, (process, uid): (&str, &str), is_missing: bool, (lie, counts): (Option<Lie>, bool)) {
        let mut inner = self.lock();
        if is_missing && lie.is_some() {
            inner.lied_about.insert(uid.to_owned());
        }
        match lie {
            Some(Lie::AllMissing) if is_missing => drop(inner.all_missing.insert(uid.to_owned())),
            // A true answer: the node of a missing machine may be deleted.
            None => drop(inner.all_missing.remove(uid)),
            Some(_) => {}
        }
        if counts {
            let key = (process.to_owned(), uid.to_owned());
            let count = inner.missing.entry(key).or_default();
            *count = if is_missing { *count + 1 } else { 0 };
        }
    }

    /// Whether the process has received enough answers in a row that this node's machine is
    /// missing.
    pub(crate) fn is_confirmed_missing(&self, process: &str, uid: &str) -> bool {
        let count = self.lock().missing.get(&(process.to_owned(), uid.to_owned())).copied();
        count.unwrap_or_default() >= self.confirmations
    }

    /// Whether a provider falsely reported this node's machine as missing.
    pub(crate) fn is_lied_about(&self, uid: &str) -> bool {
        self.lock().lied_about.contains(uid)
    }

    /// Invariants: while a provider reports all machines as missing, a process deletes no more of
    /// its nodes than the breaker allows. The breaker bounds how far the number of nodes falls, so
    /// a node that has come since allows one deletion more. No node of a paused provider is
    /// deleted.
    pub(crate) fn deletes(&self, process: &str, uid: &str, node: &Value) {
        if self.lock().paused.1.is_some_and(|paused| paused == scheme(node)) {
            let name = text(node, "/metadata/name");
            self.story.violate(format_args!("{process} deletes the node {name} of a provider that is paused"));
        }
        let announced = node.pointer("/metadata/annotations").and_then(|all| all.get(ALLOW_DELETION_ANNOTATION));
        if !self.lock().all_missing.contains(uid) || announced.is_some() || self.percent_max >= 100 {
            return;
        }
        let nodes = self.objects("/api/v1/nodes");
        let mut inner = self.lock();
        inner.see_nodes(&nodes);
        let most = (inner.nodes_most * self.percent_max / 100).max(1);
        let scheme = scheme(node);
        let seen = inner.nodes_seen.get(scheme).map_or(0, BTreeSet::len);
        let deleted = inner.deleted_by_lie.entry((process.to_owned(), scheme.to_owned()));
        let deleted = deleted.or_insert_with(|| DeletedByLie { uids: BTreeSet::new(), seen_before: seen });
        let most = most + seen.saturating_sub(deleted.seen_before);
        if deleted.uids.insert(uid.to_owned()) && deleted.uids.len() == most + 1 {
            drop(inner);
            self.story.violate(format_args!(
                "{process} deletes more than {most} nodes while all machines were reported missing"
            ));
        }
    }

    /// Two providers claim this node from now on.
    pub(crate) fn contest(&self, node: Option<String>) {
        self.lock().contested = node;
    }

    /// Invariant: a contested node leaves no load balancer, unless a process has received an old
    /// list, which may lack the node.
    pub(crate) fn backends_change(&self, balancer: &str, before: &BTreeSet<String>, after: &BTreeSet<String>) {
        let inner = self.lock();
        let leaves = |node: &&String| before.contains(*node) && !after.contains(*node);
        if let Some(node) = inner.contested.clone().as_ref().filter(leaves).filter(|_| !inner.past_was_shown) {
            drop(inner);
            self.story.violate(format_args!("the contested node {node} leaves {balancer}"));
        }
    }

    /// A process receives an old list.
    pub(crate) fn past_is_shown(&self) {
        self.lock().past_was_shown = true;
    }

    /// Invariant: no cloud resource for a Service without our finalizer. A process that received a
    /// stale list from the API server cannot know that the finalizer is gone: then the Service is
    /// recorded for [`Self::made_in_the_past`] and is no violation. `uid` is the one by which the
    /// provider finds the resource.
    pub(crate) fn made_for(&self, uid: &str, object_uid: &str) {
        let services = self.objects("/api/v1/services");
        let service = services.iter().find(|service| text(service, "/metadata/uid") == object_uid);
        let finalizers = service.and_then(|service| service.pointer("/metadata/finalizers")?.as_array());
        if finalizers.is_some_and(|all| all.iter().any(|one| one == LOAD_BALANCER_FINALIZER)) {
            return;
        }
        let mut inner = self.lock();
        if inner.past_was_shown {
            inner.made_in_the_past.insert(uid.to_owned());
        } else if let Some(service) = service {
            let name = text(service, "/metadata/name");
            self.story.violate(format_args!("something is made in the cloud for {name} before it has the finalizer"));
        }
    }

    /// Whether a process that had received an old list made a cloud resource for this Service. If
    /// the process died before it saw the current state, other processes can only find out that no
    /// Service needs the resource.
    pub(crate) fn made_in_the_past(&self, uid: &str) -> bool {
        self.lock().made_in_the_past.contains(uid)
    }

    /// A provider says falsely that it has deleted the load balancer of this Service, so that only
    /// the scan for orphans can find it.
    pub(crate) fn left_behind(&self, uid: &str) {
        self.lock().left_behind.insert(uid.to_owned());
    }

    /// See [`Self::left_behind`].
    pub(crate) fn is_left_behind(&self, uid: &str) -> bool {
        self.lock().left_behind.contains(uid)
    }

    /// Invariant: a provider that has deleted a load balancer is not asked again and again while
    /// the Service, the release and its settings are as they were, however often the write of the
    /// result fails. Once more is allowed: a process whose watch lags behind its own writes finds
    /// the finalizer again.
    pub(crate) fn deletion_begins(&self, (slot, generation): (&str, u64), (service, object): (&Service, &str)) {
        let state = self.version(object).map(|version| (version, format!("{service:?}"), generation));
        let emptied = self.lock().emptied.get(&(slot.to_owned(), service.uid.clone())).cloned();
        if emptied.is_some_and(|(then, times)| state == Some(then) && times > 1) {
            let Service { namespace, name, .. } = service;
            self.story.violate(format_args!(
                "{slot} deletes the load balancer of {namespace}/{name} again and again, and nothing has changed since"
            ));
        }
    }

    /// See [`Self::deletion_begins`].
    pub(crate) fn deletion_succeeds(&self, (slot, generation): (&str, u64), (service, object): (&Service, &str)) {
        let Some(version) = self.version(object) else { return };
        let (state, mut inner) = ((version, format!("{service:?}"), generation), self.lock());
        let (then, times) = inner.emptied.entry((slot.to_owned(), service.uid.clone())).or_default();
        *times = if *then == state { *times + 1 } else { 1 };
        *then = state;
    }

    /// Another call about the Service began or failed, so that its load balancer may have to be
    /// deleted again.
    pub(crate) fn may_delete_again(&self, uid: &str) {
        self.lock().emptied.retain(|(_, emptied), _| emptied != uid);
    }

    /// The claims of the providers change, so that load balancers may have to be deleted again.
    pub(crate) fn claims_change(&self) {
        self.lock().emptied.clear();
    }

    /// The version of the Service with this UID; none if it is deleted.
    fn version(&self, uid: &str) -> Option<String> {
        Some(text(&self.service(uid)?, "/metadata/resourceVersion").to_owned())
    }

    fn service(&self, uid: &str) -> Option<Value> {
        self.objects("/api/v1/services").into_iter().find(|service| text(service, "/metadata/uid") == uid)
    }

    /// The cluster IP of the Service with this UID; none if it is deleted.
    pub(crate) fn cluster_ip(&self, uid: &str) -> Option<String> {
        Some(text(&self.service(uid)?, "/spec/clusterIP").to_owned())
    }

    /// A release of this provider has ensured the load balancer that was made for this Service.
    pub(crate) fn ensured(&self, (provider, uid): (&str, &str), digest: &Arc<str>) {
        self.lock().ensured.insert((provider.to_owned(), uid.to_owned()), Arc::clone(digest));
    }

    /// Whether this release ensured the load balancer last.
    pub(crate) fn is_ensured_by(&self, (provider, uid): (&str, &str), digest: &str) -> bool {
        let key = (provider.to_owned(), uid.to_owned());
        self.lock().ensured.get(&key).is_some_and(|last| **last == *digest)
    }

    /// A process requests the deletion of a node whose machine exists, or was not reported missing
    /// often enough.
    pub(crate) fn suspect(&self, node: &str, uid: &str, carried_out: Duration) {
        self.lock().suspects.insert((node.to_owned(), uid.to_owned()), Instant::now() + carried_out);
    }

    /// A person deletes a node.
    pub(crate) fn deleted_by_people(&self, uid: &str) {
        self.lock().deleted_by_people.insert(uid.to_owned());
    }

    /// Invariant: no deletion of a node whose machine exists. Checks whether the suspected nodes
    /// are gone, because a precondition may have refused the request. Call it every
    /// [`LOOK_EVERY`].
    pub(crate) fn settle(&self) {
        let now = Instant::now();
        let lease = self.object(LEASE_PATH);
        let suspects = {
            let mut inner = self.lock();
            inner.see(lease.as_ref());
            let (settled, open) = std::mem::take(&mut inner.suspects).into_iter().partition(|(_, at)| *at < now);
            inner.suspects = open;
            let settled: BTreeMap<(String, String), Instant> = settled;
            settled
        };
        for (name, uid) in suspects.into_keys() {
            let object = self.object(&format!("/api/v1/nodes/{name}")).unwrap_or_default();
            if text(&object, "/metadata/uid") != uid && !self.lock().deleted_by_people.contains(&uid) {
                self.story.violate(format_args!(
                    "the node {name} ({uid}) was deleted, and its machine existed or was not reported missing often enough"
                ));
            }
        }
    }

    /// Invariant: no node has an invalid address, and no Service has an address that no cloud gave
    /// away. Call it regularly.
    pub(crate) fn look(&self) {
        let nodes = self.objects("/api/v1/nodes");
        self.lock().see_nodes(&nodes);
        for node in &nodes {
            let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
            if addresses.into_iter().flatten().any(|address| text(address, "/address") == JUNK) {
                self.story.violate(format_args!("the node {} has an invalid address", text(node, "/metadata/name")));
            }
        }
        for service in self.objects("/api/v1/services") {
            let ingress = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
            let is_given = |one: &Value| RANGES.iter().any(|range| text(one, "/ip").starts_with(range));
            if ingress.into_iter().flatten().any(|one| !is_given(one)) {
                let (name, shown) = (text(&service, "/metadata/name"), service.pointer("/status/loadBalancer"));
                self.story.violate(format_args!("the Service {name} shows {shown:?}"));
            }
        }
    }

    /// The current object at this path. The in-memory API answers without waiting.
    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).header(http::header::USER_AGENT, REFEREE);
        let request = request.body(String::new()).expect("the path is valid");
        let answer =
            self.server.service().oneshot(request).now_or_never().expect("the in-memory API answers without waiting");
        let answer = answer.ok().filter(|answer| answer.status().is_success())?;
        let body = answer.into_body().collect().now_or_never().expect("the body is complete").ok()?;
        serde_json::from_slice(&body.to_bytes()).ok()
    }

    /// The objects of the list at this path.
    pub(crate) fn objects(&self, path: &str) -> Vec<Value> {
        let list = self.object(path).unwrap_or_default();
        items(&list).cloned().collect()
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.get("items").and_then(Value::as_array).into_iter().flatten()
}

/// The string at this pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The scheme of a node's provider ID; before the node is initialised, that of the cloud of its
/// machine, whose provider owns it already.
fn scheme(node: &Value) -> &str {
    let of_machine = node.pointer("/metadata/labels").and_then(|labels| labels.get(CLOUD_LABEL)?.as_str());
    let scheme = text(node, "/spec/providerID").split_once("://").map(|(scheme, _)| scheme);
    scheme.or(of_machine).unwrap_or_default()
}
