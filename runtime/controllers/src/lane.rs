//! A lane: one provider in the controllers, with its queues and the settings that an operator may
//! edit while it runs.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use skysail_provider::{Instances, Interface, Provider};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    emptied::DeletedWith,
    findings::Findings,
    ledger::Generation,
    metrics::ControllerMetrics,
    ownership::LaneId,
    provider_addresses::{ProviderAddresses, Readdressed},
    providers::ProviderEntry,
    queue::{QueueLabels, WorkQueue},
    settings::{ControllerSettings, EnabledControllers},
    switched_off::SwitchedOff,
    watch::ObjectKey,
};

/// After a start, younger providers wait this long for the schemes that the first release of an
/// older provider declares. A release is loaded within seconds; a provider whose component cannot
/// be fetched must not stop the others for longer.
const FIRST_RELEASE_PATIENCE: Duration = Duration::from_secs(30);

/// One provider, from the moment when an operator adds it until the operator removes it. Each
/// provider has its own queues, so no provider waits for another.
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    /// The name that the operator gave the provider.
    pub(crate) name: String,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) findings: Findings,
    pub(crate) switched_off: SwitchedOff,
    /// Counts the releases that became active.
    pub(crate) releases: watch::Receiver<u64>,
    /// Counts the rotations of the provider's credentials.
    pub(crate) rotations: watch::Receiver<u64>,
    /// Keys of Services to reconcile.
    pub(crate) services: Arc<WorkQueue<ObjectKey>>,
    /// Names of nodes to initialize or to label.
    pub(crate) nodes: Arc<WorkQueue<String>>,
    /// A single key, which stands for a pass over all routes.
    pub(crate) routes: Arc<WorkQueue<&'static str>>,
    /// Triggers a pass over the node addresses before its period ends.
    pub(crate) passes: Notify,
    /// Whether the latest of these passes was denied, or runs and may be denied in a moment.
    pub(crate) pass_denied: AtomicBool,
    /// Becomes true with the first node set; Services are reconciled only after it.
    pub(crate) published: watch::Sender<bool>,
    /// See [`FIRST_RELEASE_PATIENCE`].
    made: Instant,
    /// Ends the lane's tasks.
    pub(crate) stop: CancellationToken,
    /// The settings that an operator may edit.
    settings: RwLock<Arc<ProviderEntry>>,
    /// Counts the edits that require each load balancer to be ensured again.
    edits: AtomicU64,
    /// Where the lane's series are.
    metrics: ControllerMetrics,
}

/// What an edit of a provider changed.
pub(crate) struct LaneEdit {
    /// Whose allowed addresses changed.
    pub(crate) readdressed: Readdressed,
    /// Whether the provider's pause began or ended.
    pub(crate) pauses: bool,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.metrics.release(&self.name);
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for Lane {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Lane {
    /// A queue of a disabled controller has no metrics; as upstream, the queue for routes has
    /// metrics only behind its feature gate.
    pub(crate) fn new(
        id: LaneId,
        entry: &ProviderEntry,
        settings: &ControllerSettings,
        metrics: &ControllerMetrics,
        stop: CancellationToken,
    ) -> Self {
        let EnabledControllers { service, cloud_node, .. } = settings.controllers;
        let routes = settings.routes_enabled() && settings.watch_based_routes;
        metrics.keep(&entry.name);
        let queues = &metrics.queues;
        let labels = |name, served: bool| served.then(|| QueueLabels { name, provider: entry.name.clone() });
        Self {
            id,
            name: entry.name.clone(),
            provider: Arc::clone(&entry.provider),
            findings: entry.findings.clone(),
            switched_off: SwitchedOff::default(),
            releases: entry.generation.clone(),
            rotations: entry.rotations.clone(),
            services: queues.queue(labels("service", service)),
            nodes: queues.queue(labels("Nodes", cloud_node)),
            routes: queues.queue(labels("Routes", routes)),
            passes: Notify::new(),
            pass_denied: AtomicBool::new(false),
            published: watch::Sender::new(false),
            made: Instant::now(),
            stop,
            settings: RwLock::new(Arc::new(entry.clone())),
            edits: AtomicU64::new(0),
            metrics: metrics.clone(),
        }
    }

    /// Whether this entry describes the same provider, perhaps with other settings.
    pub(crate) fn is_of(&self, entry: &ProviderEntry) -> bool {
        self.name == entry.name && Arc::ptr_eq(&self.provider, &entry.provider)
    }

    /// When other providers stop waiting for the first release of this provider.
    pub(crate) fn first_release_deadline(&self) -> Instant {
        self.made + FIRST_RELEASE_PATIENCE
    }

    /// The current settings.
    pub(crate) fn settings(&self) -> Arc<ProviderEntry> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The addresses that the provider may give to load balancers and nodes.
    pub(crate) fn addresses(&self) -> ProviderAddresses {
        self.settings().addresses.clone()
    }

    /// Changes with every input of a load balancer that is not part of its Service: the provider,
    /// the release, and the addresses that an operator allows.
    pub(crate) fn generation(&self) -> Generation {
        // Both counters only grow, so each change produces a new sum.
        (self.id, self.release().wrapping_add(self.edits.load(Ordering::Relaxed)))
    }

    /// What the provider deletes load balancers with now.
    pub(crate) fn deletes_with(&self) -> DeletedWith {
        (self.generation(), *self.rotations.borrow())
    }

    /// Changes with the release and with its settings.
    pub(crate) fn release(&self) -> u64 {
        *self.releases.borrow()
    }

    /// How long the provider is not asked for this interface, because its settings switch the
    /// interface off; none if it may be asked for.
    pub(crate) fn off_for(&self, interface: Interface) -> Option<Duration> {
        self.switched_off.wait(interface, self.release())
    }

    /// The provider's look-up of machines, unless the provider has none or its settings switch it
    /// off.
    pub(crate) fn instances(&self) -> Option<&dyn Instances> {
        self.provider.instances().filter(|_| self.off_for(Interface::Instances).is_none())
    }

    /// Whether the operator has paused the provider.
    pub(crate) fn is_paused(&self) -> bool {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).paused
    }

    /// Applies an edit; returns what it changed.
    pub(crate) fn edit(&self, entry: &ProviderEntry) -> LaneEdit {
        let before = std::mem::replace(
            &mut *self.settings.write().unwrap_or_else(PoisonError::into_inner),
            Arc::new(entry.clone()),
        );
        let readdressed = before.addresses.changed_to(&entry.addresses);
        if readdressed.load_balancers {
            self.edits.fetch_add(1, Ordering::Relaxed);
        }
        LaneEdit { readdressed, pauses: before.paused != entry.paused }
    }
}
