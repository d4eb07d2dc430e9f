//! What the steps of all controllers share. It holds and finds; it decides nothing but who owns a Service.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{Call, Fence, ObjectReference};
use tokio::sync::{Notify, watch};

use crate::{
    clients::Clients,
    cluster_ips::ClusterIps,
    nodes::Nodes,
    ownership::{self, Owner},
    providers::{ProviderEntry, Providers},
    queue::{QueueLabels, QueueMetrics, WorkQueue},
    report::Reporter,
    service::{
        ledger::{Entry, Ledger},
        turns::Turns,
        validate,
    },
    settings::{ControllerSettings, EnabledControllers},
    watch::{Cache, ObjectKey},
};

/// What is one provider's own: no provider waits in another's queue.
pub(crate) struct Lane {
    pub(crate) services: Arc<WorkQueue<ObjectKey>>,
    /// Names of nodes that want initialisation or labels.
    pub(crate) nodes: Arc<WorkQueue<String>>,
    /// One key, for a pass over all routes.
    pub(crate) routes: Arc<WorkQueue<&'static str>>,
    /// Asks for a pass over the addresses before its period ends.
    pub(crate) addresses: Notify,
    /// Becomes true with the first node set: Services wait for it.
    pub(crate) published: watch::Sender<bool>,
}

impl Lane {
    /// A queue that nobody serves has no metrics; as upstream, the one for routes has them behind its gate only.
    fn new(provider: &str, settings: &ControllerSettings, metrics: &QueueMetrics) -> Self {
        let EnabledControllers { service, cloud_node, .. } = settings.controllers;
        let routes = settings.routes_enabled() && settings.watch_based_routes;
        let labels = |name, served: bool| served.then(|| QueueLabels { name, provider: provider.to_owned() });
        Self {
            services: metrics.queue(labels("service", service)),
            nodes: metrics.queue(labels("Nodes", cloud_node)),
            routes: metrics.queue(labels("Routes", routes)),
            addresses: Notify::new(),
            published: watch::Sender::new(false),
        }
    }
}

/// Shared by all steps.
pub(crate) struct Context {
    pub(crate) clients: Clients,
    pub(crate) settings: ControllerSettings,
    pub(crate) providers: Providers,
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
    lanes: Vec<Lane>,
}

impl Context {
    pub(crate) fn new(
        clients: Clients,
        providers: Providers,
        settings: ControllerSettings,
        reporter: Reporter,
        ledger: Ledger,
    ) -> Self {
        ledger.unsettle_all();
        let lane = |entry: &ProviderEntry| Lane::new(&entry.name, &settings, &reporter.metrics.queues);
        let lanes = providers.entries().iter().map(lane).collect();
        Self {
            clients,
            settings,
            reporter,
            services: Cache::new(),
            cluster_ips: ClusterIps::default(),
            nodes: Nodes::new(providers.claims(&[])),
            nodes_synced: watch::Sender::new(false),
            ledger,
            turns: Turns::default(),
            fence: Fence::default(),
            lanes,
            providers,
        }
    }

    /// What goes with a call of the provider with this index, about this object or about none.
    pub(crate) fn call(&self, provider: usize, object: Option<ObjectReference>) -> Call {
        Call { object, events: Some(self.reporter.sink(&self.provider(provider).name)), fence: self.fence.clone() }
    }

    /// The provider with this index.
    #[expect(clippy::expect_used, reason = "an index comes from these very providers, and their number never changes")]
    pub(crate) fn provider(&self, index: usize) -> &ProviderEntry {
        self.providers.entries().get(index).expect("a provider's index must be one of the providers")
    }

    /// The lane of the provider with this index.
    #[expect(clippy::expect_used, reason = "there is one lane for each provider")]
    pub(crate) fn lane(&self, index: usize) -> &Lane {
        self.lanes.get(index).expect("a provider's index must have a lane")
    }

    pub(crate) fn service_queue(&self, provider: usize) -> &WorkQueue<ObjectKey> {
        &self.lane(provider).services
    }

    /// Who owns this Service; nobody where it is not of type LoadBalancer.
    pub(crate) fn service_owner(&self, object: &core::Service) -> Owner {
        if !validate::is_load_balancer(object) {
            return Owner::Nobody;
        }
        ownership::service_owner(&self.nodes.claims(), validate::class(object))
    }

    /// Why no load balancer and no node may have this address: it is the cluster's own for a Service. The ranges that cluster IPs come from are not to be
    /// seen in the API of every version; those that are given out are.
    pub(crate) fn refuse_cluster_ip(&self, address: IpAddr) -> Option<String> {
        let address = address.to_canonical();
        let key = self.cluster_ips.service(address)?;
        Some(format!(
            "{address} is refused: it is the cluster IP of the Service {key}. Correct what the cloud or the provider's cloud-config gives out"
        ))
    }

    /// What this provider holds for the Service.
    pub(crate) fn held(&self, key: &ObjectKey, provider: usize) -> Option<Entry> {
        self.ledger.get(key).filter(|entry| *entry.provider == *self.provider(provider).name)
    }

    /// In whose queue this Service belongs: who holds its load balancer; else who owns it; else, where only our finalizer tells that it once had
    /// one, the default provider or the first, which then asks all. Nobody where the holder is not there any more.
    pub(crate) fn route_service(&self, key: &ObjectKey) -> Option<usize> {
        let entry = self.ledger.get(key);
        let holder = entry.as_ref().and_then(|entry| self.providers.index_of(&entry.provider));
        if holder.is_some() {
            return holder;
        }
        let object = self.services.get(key)?;
        if validate::is_load_balancer(&object) {
            return self.service_owner(&object).provider();
        }
        // Where it is known who made the load balancer and that one is not there, the others' "there is none" is no reason to let the Service go.
        if entry.is_some() || !validate::has_finalizer(&object) || self.lanes.is_empty() {
            return None;
        }
        Some(self.providers.entries().iter().position(|entry| entry.default).unwrap_or(0))
    }
}
