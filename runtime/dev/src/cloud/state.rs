//! The cloud's state: records, their rules, and their listeners. No HTTP and no waiting: the caller
//! does what takes time (the release of a port).

mod balancing;
mod instances;
mod routes;
mod volumes;

use std::{
    collections::{BTreeMap, HashMap},
    net::Ipv4Addr,
};

use tokio::{
    sync::broadcast,
    time::{Duration, Instant},
};

pub(super) use self::{balancing::ServerEntry, instances::InstanceEntry};
use super::{
    Change, SimOptions,
    error::CloudError,
    knobs::Faults,
    model::{Cluster, ElasticIp, NewSshKey, Progress, Route, Snapshot, SshKey, Tags, Volume, Zone},
    requests::RequestLog,
};

/// The maximum number of records of one kind: more than the largest cluster of the tests, and a
/// bound for a client that loops.
pub(super) const RECORDS_MAX: usize = 10_000;
/// Tags of one record.
const TAGS_MAX: usize = 32;
/// Longest tag key, tag value and name, in bytes.
const TEXT_BYTES_MAX: usize = 255;
/// Longest SSH key: RSA of 16,384 bits needs a third of it.
const SSH_KEY_BYTES_MAX: usize = 8_192;
/// The maximum number of changes that a slow watcher may be behind before it loses changes.
const CHANGES_BEHIND_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct State {
    pub(super) zones: Vec<Zone>,
    pub(super) clusters: Vec<Cluster>,
    pub(super) instances: BTreeMap<String, InstanceEntry>,
    pub(super) routes: BTreeMap<String, Route>,
    pub(super) volumes: BTreeMap<String, Volume>,
    pub(super) elastic_ips: BTreeMap<String, Made<ElasticIp>>,
    pub(super) virtual_servers: BTreeMap<String, ServerEntry>,
    pub(super) ssh_keys: Vec<SshKey>,
    pub(super) faults: Faults,
    pub(super) requests: RequestLog,
    pub(super) changes: broadcast::Sender<Change>,
    /// Idempotency keys of records that exist: a hash of the request, and the record's ID.
    pub(super) idempotency: HashMap<String, (u64, String)>,
    pools: Pools,
    last_id: u64,
}

/// A record that may still be `pending`.
#[derive(Clone, Debug)]
pub(super) struct Made<T> {
    pub(super) record: T,
    ready_at: Instant,
}

/// The pools of addresses; see [`SimOptions`].
#[derive(Debug)]
struct Pools {
    elastic: Ipv4Addr,
    elastic_max: u32,
    machines: Ipv4Addr,
}

impl<T> Made<T> {
    pub(super) fn progress(&self) -> Progress {
        if Instant::now() < self.ready_at { Progress::Pending } else { Progress::Active }
    }
}

impl State {
    pub(super) fn new(options: &SimOptions) -> Self {
        let (changes, _) = broadcast::channel(CHANGES_BEHIND_MAX);
        Self {
            zones: options.zones.clone(),
            clusters: options.clusters.clone(),
            instances: BTreeMap::new(),
            routes: BTreeMap::new(),
            volumes: BTreeMap::new(),
            elastic_ips: BTreeMap::new(),
            virtual_servers: BTreeMap::new(),
            ssh_keys: Vec::new(),
            faults: Faults::new(options.knobs.clone()),
            requests: RequestLog::default(),
            changes,
            idempotency: HashMap::new(),
            pools: Pools {
                elastic: options.elastic_ips,
                elastic_max: options.elastic_ips_max,
                machines: options.machines,
            },
            last_id: 0,
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            instances: self.instances.values().map(|entry| entry.record.clone()).collect(),
            routes: self.routes.values().cloned().map(|route| self.with_blackhole(route)).collect(),
            volumes: self.volumes.values().cloned().collect(),
            elastic_ips: self.elastic_ips.values().map(Self::elastic_ip_of).collect(),
            virtual_servers: self.virtual_servers.values().map(ServerEntry::view).collect(),
            ssh_keys: self.ssh_keys.clone(),
        }
    }

    pub(super) fn add_ssh_key(&mut self, new: NewSshKey) -> Result<SshKey, CloudError> {
        let NewSshKey { user, key } = new;
        checked_text("the user of an SSH key", &user)?;
        if key.trim().is_empty() || key.len() > SSH_KEY_BYTES_MAX {
            return Err(CloudError::Invalid(format!("an SSH key has 1 to {SSH_KEY_BYTES_MAX} bytes")));
        }
        if let Some(there) = self.ssh_keys.iter().find(|there| there.user == user && there.key == key) {
            return Ok(there.clone());
        }
        room("SSH keys", self.ssh_keys.len())?;
        let added = SshKey { id: self.next_id("k"), user, key };
        self.tell("added", "ssh-key", (&added.id, &added.user), &Tags::new());
        self.ssh_keys.push(added.clone());
        Ok(added)
    }

    /// A zone by its name; the first one by default.
    fn zone_named(&self, name: Option<String>) -> Result<String, CloudError> {
        let first = self.zones.first().map(|zone| zone.name.clone()).unwrap_or_default();
        let zone = name.unwrap_or(first);
        if self.zones.iter().any(|known| known.name == zone) {
            return Ok(zone);
        }
        Err(CloudError::Invalid(format!("there is no zone {zone:?}")))
    }

    /// A new ID; IDs sort in the order of creation.
    fn next_id(&mut self, prefix: &str) -> String {
        self.last_id += 1;
        format!("{prefix}-{:06}", self.last_id)
    }

    fn ready_at(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.faults.knobs().provisioning_ms)
    }

    /// Notifies the watchers.
    fn tell(&self, verb: &'static str, kind: &'static str, (id, name): (&str, &str), tags: &Tags) {
        let change = Change { verb, kind, id: id.to_owned(), name: name.to_owned(), tags: tags.clone() };
        tracing::debug!(verb, kind, id, name, "simulated cloud changed");
        // An error means that there is no watcher.
        drop(self.changes.send(change));
    }

    /// Deletes the idempotency keys of a deleted record.
    fn forget(&mut self, id: &str) {
        self.idempotency.retain(|_, (_, made)| made != id);
    }
}

fn room(what: &str, count: usize) -> Result<(), CloudError> {
    if count < RECORDS_MAX {
        return Ok(());
    }
    Err(CloudError::Exhausted(format!("the quota of {RECORDS_MAX} {what} is used up")))
}

fn checked_text(what: &str, text: &str) -> Result<(), CloudError> {
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        return Err(CloudError::Invalid(format!("{what} must have 1 to {TEXT_BYTES_MAX} bytes, not {}", text.len())));
    }
    Ok(())
}

fn checked_tags(tags: &Tags) -> Result<(), CloudError> {
    if tags.len() > TAGS_MAX {
        return Err(CloudError::Invalid(format!("a record has at most {TAGS_MAX} tags, not {}", tags.len())));
    }
    for (key, value) in tags {
        checked_text("the key of a tag", key)?;
        if value.len() > TEXT_BYTES_MAX {
            return Err(CloudError::Invalid(format!("the value of tag {key:?} has more than {TEXT_BYTES_MAX} bytes")));
        }
    }
    Ok(())
}

fn not_found(kind: &'static str, id: &str) -> CloudError {
    CloudError::NotFound { kind, id: super::requests::cut(id) }
}
