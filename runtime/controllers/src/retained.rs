//! The records of load balancers that outlive their Service, in one ConfigMap of the manager's
//! namespace ([`RETAINED_CONFIG_MAP`]).
//!
//! A record exists from the moment at which a load balancer is retained until a Service with the
//! policy `Delete` has deleted it: while it is retained it keeps the load balancer from the
//! collection of orphans, and while another Service has adopted it, it says under which UID the
//! provider finds it.
//!
//! # Guarantees
//! - Only the manager's account and the operator write the ConfigMap. Annotations of Services ask;
//!   the record decides.
//! - A change names the record that it replaces. It reads the ConfigMap first, and the API server
//!   refuses the write if the ConfigMap has changed since: of two Services that adopt the same load
//!   balancer one gets it, whichever process writes.
//! - The cache has our own write when the write has returned, and never goes back to an older
//!   version.
//! - An entry that cannot be read protects the load balancer with its UID, and stops the deletion
//!   of orphans of its provider, because nobody knows the name of that load balancer.
//!
//! # Why a ConfigMap
//! A record must survive its Service, the Service's namespace and the provider's object, and no
//! user of the cluster may write it. The status of a `Provider` does not exist with a provider
//! file.

pub(crate) mod record;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{self, PoisonError, RwLock, RwLockReadGuard},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PostParams},
    core::Status,
};
use serde_json::json;
use skysail_provider::{Code, OwnedLoadBalancer};
use tokio::sync::{Mutex, Notify, watch};

pub use self::record::{RetainedKey, RetainedLoadBalancer};
use crate::{
    error::Error,
    names::RETAINED_CONFIG_MAP,
    patch::{guarded, params},
    progress,
    watch::ObjectKey,
};

/// The maximum number of bytes of all records: the API server takes an object of at most 1 MiB,
/// with its metadata. A record has about 300 bytes.
const DATA_BYTES_MAX: usize = 900 << 10;

/// What the ConfigMap says.
#[derive(Clone, Debug, Default)]
pub struct RetainedRecords {
    records: BTreeMap<RetainedKey, RetainedLoadBalancer>,
    /// The entries that cannot be read: the key, as far as it is one, and the entry's name.
    unreadable: BTreeMap<String, Option<RetainedKey>>,
}

impl RetainedRecords {
    /// Reads the ConfigMap; without one there are no records.
    #[must_use]
    pub fn of(object: Option<&ConfigMap>) -> Self {
        let mut read = Self::default();
        for (name, text) in object.and_then(|object| object.data.as_ref()).into_iter().flatten() {
            let key = RetainedKey::parse(name);
            match (key, RetainedLoadBalancer::parse(text)) {
                (Some(key), Ok(record)) => drop(read.records.insert(key, record)),
                (key, _) => drop(read.unreadable.insert(name.clone(), key)),
            }
        }
        read
    }

    /// All records, in the order of providers and UIDs.
    pub fn all(&self) -> impl Iterator<Item = (&RetainedKey, &RetainedLoadBalancer)> {
        self.records.iter()
    }

    /// The names of the entries that cannot be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.keys().map(String::as_str)
    }

    /// The record of the load balancer that has this name in the cloud, or that was made for this
    /// Service.
    #[must_use]
    pub fn of_share(&self, provider: &str, share: &OwnedLoadBalancer) -> Option<(&RetainedKey, &RetainedLoadBalancer)> {
        let is_it = |(key, record): &(&RetainedKey, &RetainedLoadBalancer)| {
            let uid = share.service.as_ref().map(|(_, _, uid)| uid);
            key.provider == provider && uid.map_or(record.name == share.name, |uid| *uid == key.uid)
        };
        self.records.iter().find(is_it)
    }

    /// Whether this provider has an entry that cannot be read, or whose provider cannot be read:
    /// nobody knows which load balancer it names.
    #[must_use]
    pub fn has_unreadable(&self, provider: &str) -> bool {
        self.unreadable.values().any(|key| key.as_ref().is_none_or(|key| key.provider == provider))
    }

    /// The names in the cloud of this provider's load balancers that have a record.
    pub(crate) fn names<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = &'a str> {
        self.records.iter().filter(move |(key, _)| key.provider == provider).map(|(_, record)| record.name.as_str())
    }

    fn get(&self, provider: &str, uid: &str) -> Option<&RetainedLoadBalancer> {
        self.records.get(&RetainedKey::new(provider, uid)?)
    }
}

/// The records, as the API server showed them last. Cloning is not possible: one process has one.
pub(crate) struct Retained {
    known: RwLock<Known>,
    synced: watch::Sender<bool>,
    /// Writes one after another: each would refuse the next one otherwise.
    writing: Mutex<()>,
    /// The UIDs whose record has changed and that [`Self::changed`] has not returned yet: those of
    /// the load balancers, and of the Services.
    unseen: sync::Mutex<BTreeSet<String>>,
    has_changed: Notify,
}

#[derive(Default)]
struct Known {
    version: Option<u64>,
    records: RetainedRecords,
}

/// A change of one record. `before` is the record that the change replaces: none if there must be
/// none.
pub(crate) struct RecordChange {
    pub(crate) key: RetainedKey,
    pub(crate) before: Option<RetainedLoadBalancer>,
    pub(crate) after: Option<RetainedLoadBalancer>,
}

impl Default for Retained {
    fn default() -> Self {
        Self {
            known: RwLock::default(),
            synced: watch::Sender::new(false),
            writing: Mutex::default(),
            unseen: sync::Mutex::default(),
            has_changed: Notify::new(),
        }
    }
}

impl Retained {
    /// Becomes true when the ConfigMap has been read, or is known not to exist.
    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// The ConfigMap has been read, or does not exist.
    pub(crate) fn listed(&self) {
        self.synced.send_replace(true);
    }

    /// All records.
    pub(crate) fn records(&self) -> RetainedRecords {
        self.read().records.clone()
    }

    /// The record of this provider's load balancer for this UID.
    pub(crate) fn get(&self, provider: &str, uid: &str) -> Option<(RetainedKey, RetainedLoadBalancer)> {
        let record = self.read().records.get(provider, uid).cloned()?;
        Some((RetainedKey::new(provider, uid)?, record))
    }

    /// This provider's record that names the Service with this UID as the one that has, or had
    /// last, the load balancer; the one in use comes first.
    pub(crate) fn of_service(&self, provider: &str, uid: &str) -> Option<(RetainedKey, RetainedLoadBalancer)> {
        let known = self.read();
        let all = known.records.all();
        let of_it = all.filter(|(key, record)| key.provider == provider && record.service_uid == uid);
        of_it.max_by_key(|(_, record)| record.in_use).map(|(key, record)| (key.clone(), record.clone()))
    }

    /// The record of another provider with this UID, for a text.
    pub(crate) fn other_provider(&self, provider: &str, uid: &str, namespace: &str) -> Option<String> {
        let known = self.read();
        let mut all = known.records.all();
        let found = all.find(|(key, record)| {
            key.uid == uid && key.provider != provider && record.namespace == namespace && !record.in_use
        });
        found.map(|(key, _)| key.provider.clone())
    }

    /// The record that says that the Service with this name, and not the one with this UID, has the
    /// load balancer.
    pub(crate) fn used_by_another(
        &self,
        key: &ObjectKey,
        uid: Option<&str>,
    ) -> Option<(RetainedKey, RetainedLoadBalancer)> {
        let known = self.read();
        let mut all = known.records.all();
        let found = all.find(|(_, record)| {
            record.in_use && record.service_key() == *key && uid != Some(record.service_uid.as_str())
        });
        found.map(|(key, record)| (key.clone(), record.clone()))
    }

    /// The record of a load balancer that was made for another Service of this name.
    pub(crate) fn namesake(&self, provider: &str, key: &ObjectKey, uid: &str) -> Option<RetainedLoadBalancer> {
        let known = self.read();
        let mut all = known.records.all();
        let is_it = |of: &RetainedKey, record: &RetainedLoadBalancer| {
            of.provider == provider && of.uid != uid && record.namespace == key.namespace && record.made_for == key.name
        };
        all.find(|(of, record)| is_it(of, record)).map(|(_, record)| record.clone())
    }

    /// The Services that have adopted a load balancer of this provider, with their UIDs.
    pub(crate) fn users(&self, provider: &str) -> Vec<(ObjectKey, String)> {
        let known = self.read();
        let all = known.records.all().filter(|(key, record)| key.provider == provider && record.in_use);
        all.map(|(_, record)| (record.service_key(), record.service_uid.clone())).collect()
    }

    /// The provider whose load balancer the Service with this UID has adopted.
    pub(crate) fn used_at(&self, uid: &str) -> Option<String> {
        let known = self.read();
        let mut all = known.records.all().filter(|(_, record)| record.in_use && record.service_uid == uid);
        all.next().map(|(key, _)| key.provider.clone())
    }

    /// The retained load balancers of this provider: their number, and the first one.
    pub(crate) fn of_provider(&self, provider: &str) -> (usize, Option<(RetainedKey, RetainedLoadBalancer)>) {
        let known = self.read();
        let all = known.records.all().filter(|(key, record)| key.provider == provider && !record.in_use);
        let all: Vec<_> = all.collect();
        (all.len(), all.first().map(|(key, record)| ((*key).clone(), (*record).clone())))
    }

    /// Waits for changed records, by the watch or by our own writes; returns the UIDs of their load
    /// balancers and of their Services.
    pub(crate) async fn changed(&self) -> BTreeSet<String> {
        loop {
            let changed = std::mem::take(&mut *self.unseen.lock().unwrap_or_else(PoisonError::into_inner));
            if !changed.is_empty() {
                return changed;
            }
            self.has_changed.notified().await;
        }
    }

    /// Takes what the API server shows, unless it is older than what is known.
    pub(crate) fn follow(&self, object: Option<&ConfigMap>) {
        let version = object.and_then(|object| object.metadata.resource_version.as_deref()?.parse().ok());
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if version.zip(known.version).is_some_and(|(new, known)| new < known) {
            return;
        }
        let records = RetainedRecords::of(object);
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner).extend(changed(&known.records, &records));
        *known = Known { version, records };
        self.has_changed.notify_one();
    }

    /// Changes one record.
    ///
    /// # Errors
    /// The API refused a request; 409 if the record is not the one that the change replaces any
    /// more, and the cache then has the present one. [`Code::Exhausted`] if there is no room.
    pub(crate) async fn change(&self, api: &Api<ConfigMap>, change: RecordChange) -> Result<(), Error> {
        let _turn = self.writing.lock().await;
        progress::step();
        let failed = Error::api("record the load balancer in the ConfigMap of retained load balancers");
        let present = api.get_opt(RETAINED_CONFIG_MAP).await.map_err(&failed)?;
        self.follow(present.as_ref());
        let RecordChange { key, before, after } = change;
        if RetainedRecords::of(present.as_ref()).records.get(&key) != before.as_ref() {
            let conflict = Status::failure("the record has changed; Skysail reads it again", "Conflict");
            return Err(failed(kube::Error::Api(conflict.with_code(409).boxed())));
        }
        if let Some(after) = &after {
            has_room(present.as_ref(), &key, after)?;
        }
        let text = after.as_ref().map(RetainedLoadBalancer::to_text);
        let data = json!({ "data": { key.to_string(): text } });
        progress::step();
        let written = match &present {
            Some(object) => {
                api.patch(RETAINED_CONFIG_MAP, &params(), &Patch::Merge(&guarded(&object.metadata, data))).await
            }
            None if text.is_none() => return Ok(()),
            None => {
                let manager = PostParams { field_manager: params().field_manager, ..PostParams::default() };
                api.create(&manager, &new_object(&key, text.unwrap_or_default())).await
            }
        };
        self.follow(Some(&written.map_err(&failed)?));
        Ok(())
    }

    /// Changes the cache alone, for a dry run.
    pub(crate) fn pretend(&self, RecordChange { key, after, .. }: RecordChange) {
        let records = &mut self.known.write().unwrap_or_else(PoisonError::into_inner).records.records;
        match after {
            Some(after) => records.insert(key, after),
            None => records.remove(&key),
        };
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_object(key: &RetainedKey, text: String) -> ConfigMap {
    let mut object = ConfigMap { data: Some([(key.to_string(), text)].into()), ..ConfigMap::default() };
    object.metadata.name = Some(RETAINED_CONFIG_MAP.to_owned());
    object
}

fn has_room(present: Option<&ConfigMap>, key: &RetainedKey, after: &RetainedLoadBalancer) -> Result<(), Error> {
    let entries = present.and_then(|object| object.data.as_ref()).into_iter().flatten();
    let others = entries.filter(|(name, _)| **name != key.to_string());
    let bytes = others.map(|(name, text)| name.len() + text.len()).sum::<usize>();
    if bytes + key.to_string().len() + after.to_text().len() <= DATA_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the ConfigMap {RETAINED_CONFIG_MAP} has no room for another retained load balancer; delete some of the retained ones: \
         skysail orphans lists them"
    );
    Err(Error::provider("retain the load balancer")(skysail_provider::Error::new(Code::Exhausted, text)))
}

/// The UIDs of load balancers and of Services whose record differs.
fn changed(before: &RetainedRecords, after: &RetainedRecords) -> BTreeSet<String> {
    let keys: BTreeSet<_> = before.records.keys().chain(after.records.keys()).collect();
    let differ = keys.into_iter().filter(|key| before.records.get(key) != after.records.get(key));
    let uids = |key: &RetainedKey| {
        let of_services = [before, after].map(|records| Some(records.records.get(key)?.service_uid.clone()));
        of_services.into_iter().flatten().chain([key.uid.clone()]).collect::<Vec<_>>()
    };
    differ.flat_map(uids).collect()
}

#[cfg(test)]
mod tests;
