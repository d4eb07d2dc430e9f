//! What the steps of all controllers share. It holds and finds; it decides nothing but who owns a
//! Service.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Call, Fence, ObjectReference};
use tokio::sync::watch;

use crate::{
    clients::Clients,
    cluster_ips::ClusterIps,
    lane::Lane,
    lanes::Lanes,
    ledger::{Entry, Ledger},
    nodes::Nodes,
    ownership::{self, Owner},
    progress::{self, Progress},
    report::Reporter,
    service_spec,
    settings::ControllerSettings,
    turns::Turns,
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
    /// Of all Services.
    pub(crate) cluster_ips: ClusterIps,
    pub(crate) nodes: Nodes,
    /// Becomes true when the first list of nodes is complete.
    pub(crate) nodes_synced: watch::Sender<bool>,
    pub(crate) ledger: Ledger,
    pub(crate) turns: Turns,
    /// Open while this process may write.
    pub(crate) fence: Fence,
    pub(crate) progress: Progress,
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
            turns: Turns::default(),
            fence: Fence::default(),
            progress: Progress::default(),
        }
    }

    /// What goes with a call of this provider, about this object or about none.
    pub(crate) fn call(&self, lane: &Lane, object: Option<ObjectReference>) -> Call {
        progress::step();
        Call { object, events: Some(self.reporter.sink(&lane.name)), fence: self.fence.clone() }
    }

    /// Runs a turn of a worker of this provider.
    pub(crate) async fn turn<F: Future>(&self, lane: &Lane, what: impl Into<String>, work: F) -> F::Output {
        self.progress.turn(&lane.name, what, work).await
    }

    /// Who owns this Service; nobody where it is not of type LoadBalancer.
    pub(crate) fn service_owner(&self, object: &core::Service) -> Owner {
        if !service_spec::is_load_balancer(object) {
            return Owner::Nobody;
        }
        ownership::service_owner(&self.nodes.claims(), service_spec::class(object))
    }

    /// Why no load balancer and no node may have this address: it is the cluster's own for a
    /// Service. The ranges that cluster IPs come from are not to be seen in the API of every
    /// version; those that are given out are.
    pub(crate) fn refuse_cluster_ip(&self, address: IpAddr) -> Option<String> {
        let address = address.to_canonical();
        let key = self.cluster_ips.service(address)?;
        Some(format!(
            "{address} is refused: it is the cluster IP of the Service {key}. Correct what the cloud or the provider's cloud-config gives out"
        ))
    }

    /// What this provider holds for the Service.
    pub(crate) fn held(&self, key: &ObjectKey, lane: &Lane) -> Option<Entry> {
        self.ledger.get(key).filter(|entry| *entry.provider == *lane.name)
    }

    /// In whose queue this Service belongs: who holds its load balancer; else who owns it; else,
    /// where only our finalizer tells that it once had one, the default provider or the oldest,
    /// which then asks all. Nobody where the holder is not there any more.
    pub(crate) fn route_service(&self, key: &ObjectKey) -> Option<Arc<Lane>> {
        let entry = self.ledger.get(key);
        let holder = entry.as_ref().and_then(|entry| self.lanes.named(&entry.provider));
        if holder.is_some() {
            return holder;
        }
        let object = self.services.get(key)?;
        if service_spec::is_load_balancer(&object) {
            return self.lanes.get(self.service_owner(&object).provider()?);
        }
        // Where it is known who made the load balancer and that one is not there, the others'
        // "there is none" is no reason to let the Service go.
        if entry.is_some() || !service_spec::has_finalizer(&object) {
            return None;
        }
        let lanes = self.lanes.all();
        lanes.iter().find(|lane| lane.settings().default).or(lanes.first()).cloned()
    }
}
