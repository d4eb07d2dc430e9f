//! State that all controllers share. Its only decision is which provider owns a Service.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Call, Code, EventKind, Fence, Interface, ObjectReference, Result};
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::{
    clients::Clients,
    cluster_ips::ClusterIps,
    emptied::Emptied,
    findings::Finding,
    held::DryRuns,
    held_deletions::HeldDeletions,
    lane::Lane,
    lanes::Lanes,
    last_outcomes::LastOutcomes,
    ledger::{Entry, Ledger},
    metrics,
    names::reasons,
    nodes::Nodes,
    ownership::{self, Owner},
    pauses::Pauses,
    progress::{self, Progress, Work},
    report::{Actor, Reporter, cluster},
    retained::Retained,
    service_locks::ServiceLocks,
    service_spec,
    settings::ControllerSettings,
    switched_off::ASK_AGAIN,
    watch::{Cache, ObjectKey},
};

/// Shared by all steps.
pub(crate) struct Context {
    pub(crate) clients: Clients,
    pub(crate) settings: ControllerSettings,
    /// The providers.
    pub(crate) lanes: Lanes,
    pub(crate) reporter: Reporter,
    pub(crate) services: Cache<core::Service>,
    /// The cluster IPs of all Services.
    pub(crate) cluster_ips: ClusterIps,
    pub(crate) nodes: Nodes,
    /// Becomes true when the first list of nodes is complete.
    pub(crate) nodes_synced: watch::Sender<bool>,
    pub(crate) ledger: Ledger,
    pub(crate) emptied: Emptied,
    /// The load balancers that outlive their Service.
    pub(crate) retained: Retained,
    /// For people; no decision reads them.
    pub(crate) last_outcomes: LastOutcomes,
    /// For people; no decision reads them.
    pub(crate) pauses: Pauses,
    /// For people; no decision reads them.
    pub(crate) held_deletions: HeldDeletions,
    pub(crate) service_locks: ServiceLocks,
    /// Open while this process holds the lease.
    pub(crate) fence: Fence,
    pub(crate) progress: Progress,
    /// The records of a dry run; none in a manager.
    pub(crate) dry_runs: Option<DryRuns>,
}

impl Context {
    pub(crate) fn new(clients: Clients, settings: ControllerSettings, reporter: Reporter, ledger: Ledger) -> Self {
        Self {
            clients,
            settings,
            lanes: Lanes::default(),
            reporter,
            services: Cache::new(),
            cluster_ips: ClusterIps::default(),
            nodes: Nodes::default(),
            nodes_synced: watch::Sender::new(false),
            ledger,
            emptied: Emptied::default(),
            retained: Retained::default(),
            last_outcomes: LastOutcomes::default(),
            pauses: Pauses::default(),
            held_deletions: HeldDeletions::default(),
            service_locks: ServiceLocks::default(),
            fence: Fence::default(),
            progress: Progress::default(),
            dry_runs: None,
        }
    }

    /// The metadata of a call to this provider, with the object that the call is about, if any.
    pub(crate) fn call(&self, lane: &Lane, object: Option<ObjectReference>) -> Call {
        progress::call(&lane.name);
        let dry_run = self.dry_runs.as_ref().map(|dry_runs| dry_runs.of_call(&lane.name, object.as_ref()));
        let events = Some(self.reporter.sink(&lane.name));
        let lets_deletions_through = object.as_ref().is_some_and(|object| self.lets_deletions_through(object));
        Call { object, events, fence: self.fence.clone(), dry_run, lets_deletions_through, ..Call::default() }
    }

    /// Whether a person has let the deletions of this Service through.
    fn lets_deletions_through(&self, ObjectReference { kind, namespace, name, uid }: &ObjectReference) -> bool {
        let key = || ObjectKey { namespace: namespace.clone(), name: name.clone() };
        let object = (*kind == "Service").then(|| self.services.get(&key())).flatten();
        object
            .is_some_and(|object| object.metadata.uid.as_deref() == Some(uid) && service_spec::allows_deletion(&object))
    }

    /// Reports how many deletions of the provider the operator's budget holds back.
    pub(crate) fn count_held_deletions(&self, lane: &Lane) {
        let (count, finding) = self.held_deletions.of(&lane.name);
        metrics::set_count(&self.reporter.metrics.held_deletions, &lane.name, count);
        lane.findings.set(Finding::DeletionsHeld, finding);
    }

    /// Runs `work` as one turn of this provider's worker, in a span: the root of a trace.
    pub(crate) async fn turn<F: Future>(&self, lane: &Lane, what: Work<'_>, work: F) -> F::Output {
        self.progress.turn(&lane.name, what.to_string(), work).instrument(what.span(&lane.name)).await
    }

    /// Whether the provider's settings configure the interface, by its answer to a whole list or
    /// look-up. Reports the first answer that says no.
    pub(crate) fn is_configured<T>(
        &self,
        lane: &Lane,
        controller: &'static str,
        (interface, answer): (Interface, &Result<T>),
    ) -> bool {
        let error = match answer {
            Ok(_) => {
                lane.switched_off.on(interface);
                return true;
            }
            Err(error) if error.code == Code::Unsupported => error,
            Err(_) => return true,
        };
        if lane.switched_off.off(interface, lane.release()) {
            let provider = &lane.name;
            let text = format!(
                "The settings of the provider {provider} do not configure {interface}, so Skysail does not use this interface: {error}. It asks again under new \
                 settings, after a new release, and every {} minutes",
                ASK_AGAIN.as_secs() / 60
            );
            tracing::info!(provider.name = provider, reason = text, "an interface is not configured");
            let actor = Actor { controller, provider: provider.clone() };
            self.reporter.event(&actor, &cluster(), (EventKind::Normal, reasons::INTERFACE_NOT_CONFIGURED), text);
        }
        false
    }

    /// The owner of this Service; [`Owner::Unowned`] if its type is not LoadBalancer.
    pub(crate) fn service_owner(&self, object: &core::Service) -> Owner {
        if !service_spec::is_load_balancer(object) {
            return Owner::Unowned;
        }
        ownership::service_owner(&self.nodes.claims(), service_spec::class(object))
    }

    /// Why a load balancer or a node may not have this address: it is the cluster IP of a Service.
    /// Not every Kubernetes version shows the Service CIDRs in its API, so the check covers the
    /// cluster IPs that are in use.
    pub(crate) fn refuse_cluster_ip(&self, address: IpAddr) -> Option<String> {
        let address = address.to_canonical();
        let key = self.cluster_ips.service(address)?;
        Some(format!(
            "{address} is refused: it is the cluster IP of the Service {key}. Correct the address ranges in the cloud or in the provider's cloud-config"
        ))
    }

    /// The ledger entry of this Service, if this provider made its load balancer.
    pub(crate) fn held(&self, key: &ObjectKey, lane: &Lane) -> Option<Entry> {
        self.ledger.get(key).filter(|entry| *entry.provider == *lane.name)
    }

    /// The lane whose queue gets this Service; for a Service that is gone without having given back
    /// what it had adopted, that of the load balancer.
    pub(crate) fn route_service(&self, key: &ObjectKey) -> Option<Arc<Lane>> {
        self.service_lane(key).or_else(|| {
            let object = self.services.get(key);
            let uid = object.as_ref().and_then(|object| object.metadata.uid.as_deref());
            let (left, _) = self.retained.used_by_another(key, uid)?;
            self.lanes.named(&left.provider).or_else(|| self.lanes.all().first().cloned())
        })
    }

    /// The lane of a Service: the provider that made its load balancer; otherwise the owner. A
    /// Service that only has our finalizer goes to the default provider or, without one, to the
    /// oldest, which then asks all providers. None if the provider that made the load balancer is
    /// removed.
    fn service_lane(&self, key: &ObjectKey) -> Option<Arc<Lane>> {
        let entry = self.ledger.get(key);
        let holder = entry.as_ref().and_then(|entry| self.lanes.named(&entry.provider));
        if holder.is_some() {
            return holder;
        }
        let object = self.services.get(key)?;
        if service_spec::is_load_balancer(&object) {
            return self.lanes.get(self.service_owner(&object).provider()?);
        }
        // The ledger names a provider that is removed. The answer "no such load balancer" from
        // another provider is no reason to remove the finalizer.
        if entry.is_some() || !service_spec::has_finalizer(&object) {
            return None;
        }
        let lanes = self.lanes.all();
        lanes.iter().find(|lane| lane.settings().default).or(lanes.first()).cloned()
    }
}
