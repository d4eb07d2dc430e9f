//! Carries out a plan: provider calls (provider) and guarded patches of the Service (client).
//!
//! Every patch carries the resource version from which the plan was made: if another client changed
//! the object, the API server rejects the patch and the next reconcile plans from the new object.
//! So another controller's finalizer is never lost.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, ListParams, Patch};
use serde_json::{Value, json};
use skysail_provider::{Call, Code, EventKind, LoadBalancerStatus, LoadBalancers, Service};
use tokio::time::Instant;

use super::{plan::Observed, status};
use crate::{
    context::Context,
    convert,
    error::{Error, api_status},
    lane::Lane,
    ledger::{Backends, Entry, Serving, State, Written, version},
    names::{self, reasons},
    nodes::SharedNodes,
    patch::{guarded, params},
    progress,
    report::{Actor, is_expected},
    service_spec::{self, has_finalizer},
    watch::ObjectKey,
};

/// Most node names in one Event text: as upstream.
const NAMES_SHOWN_MAX: usize = 20;

/// One Service that one provider reconciles.
pub(crate) struct Subject<'a> {
    pub(crate) context: &'a Context,
    pub(crate) lane: &'a Arc<Lane>,
    pub(crate) key: &'a ObjectKey,
    pub(crate) actor: &'a Actor,
    /// The state from which the plan was made.
    pub(crate) observed: &'a Observed,
}

impl Subject<'_> {
    /// Creates or changes the load balancer; the finalizer comes first, the status last.
    pub(crate) async fn ensure(
        &self,
        object: &core::Service,
        service: &Arc<Service>,
        (add_finalizer, repeated): (bool, bool),
    ) -> Result<(), Error> {
        // Checked before the first write: a provider without load balancers must not leave a
        // finalizer behind.
        let provider = self.load_balancers()?;
        // A drift repair that changed nothing emits no Event.
        let begun = (!repeated).then(|| {
            let (reporter, what) = (&self.context.reporter, reasons::ENSURING_LOAD_BALANCER);
            reporter.begins(self.actor, &reference(service), what, "Ensuring load balancer")
        });
        self.context.ledger.begin(self.key, &self.lane.name, Arc::clone(service));
        let guarded = if add_finalizer { Some(self.add_finalizer(object).await?) } else { None };
        let Observed { shared, generation, .. } = self.observed;
        if shared.nodes.is_empty() {
            let text = "There are no available nodes for LoadBalancer";
            self.event(service, EventKind::Warning, reasons::UNAVAILABLE_LOAD_BALANCER, text);
        }
        let cluster = &self.context.settings.cluster_name;
        let answer = provider.ensure(&self.call(service), cluster, service, &shared.nodes).await;
        let answer = match answer.and_then(status::judge).and_then(|status| self.addresses_judged(status)) {
            Err(error) if error.code == Code::ImplementedElsewhere => {
                self.now(State::Elsewhere { generation: *generation });
                return Ok(());
            }
            answer => answer.map_err(Error::provider("ensure load balancer"))?,
        };
        // Recorded before the status is written: a conflict there must not cause a second call of
        // the provider.
        self.now(State::Serving(Serving {
            nodes: Backends::Known(shared.membership),
            generation: *generation,
            status: answer.clone(),
            written: Written::No,
            overdue: false,
        }));
        if (!repeated || answer != service.status)
            && self.normal(service, reasons::ENSURED_LOAD_BALANCER, "Ensured load balancer")
            && let Some(begun) = begun
        {
            begun.ended();
        }
        self.patch_status(guarded.as_ref().unwrap_or(object), &answer).await
    }

    /// For calls with the provider's nodes: none before it is decided which nodes these are, or the
    /// load balancer would lose its backends.
    fn load_balancers(&self) -> Result<&dyn LoadBalancers, Error> {
        let provider = load_balancers(&*self.lane.provider)?;
        if !self.observed.shared.settled {
            let text = "the provider's nodes are not known for at most 30 s after the start, because an older provider has no release yet and may claim them; list the older provider's schemes in its spec.providerIdSchemes to avoid the wait";
            let waits = skysail_provider::Error::new(Code::NotServing, text);
            return Err(Error::provider("call the provider's load balancers")(waits));
        }
        Ok(provider)
    }

    /// Rejects a status with an address that this provider may not assign.
    fn addresses_judged(&self, status: LoadBalancerStatus) -> skysail_provider::Result<LoadBalancerStatus> {
        let rules = self.lane.addresses();
        let ips = status.ingress.iter().filter_map(|ingress| ingress.ip.as_deref()?.parse::<IpAddr>().ok());
        let refusal =
            ips.filter_map(|ip| rules.refuse_load_balancer(ip).or_else(|| self.context.refuse_cluster_ip(ip))).next();
        match refusal {
            Some(refusal) => {
                let text = format!("the load balancer's address {refusal}");
                Err(skysail_provider::Error::new(Code::Internal, text))
            }
            None => Ok(status),
        }
    }

    /// Updates the backends to the shared node set. If the load balancer does not exist, `ensure`
    /// follows.
    pub(crate) async fn update(&self, service: &Arc<Service>) -> Result<(), Error> {
        let (metrics, ledger) = (&self.context.reporter.metrics, &self.context.ledger);
        let Observed { shared, generation, .. } = self.observed;
        metrics.load_balancer_updates.inc();
        let begun = Instant::now();
        ledger.with(self.key, Entry::update_begins);
        let result = match self.load_balancers() {
            Ok(provider) => provider
                .update(&self.call(service), &self.context.settings.cluster_name, service, &shared.nodes)
                .await
                .map_err(Error::provider("update load balancer hosts")),
            Err(error) => Err(error),
        };
        metrics.update_host_latency.observe(begun.elapsed().as_secs_f64());
        metrics.node_sync_latency.observe(shared.published.elapsed().as_secs_f64());
        match result {
            Ok(()) => {
                ledger.with(self.key, |entry| entry.updated(shared.membership));
                if shared.nodes.is_empty() {
                    let text = "There are no available nodes for LoadBalancer";
                    self.event(service, EventKind::Warning, reasons::UNAVAILABLE_LOAD_BALANCER, text);
                } else {
                    self.normal(service, reasons::UPDATED_LOAD_BALANCER, "Updated load balancer with new hosts");
                }
                Ok(())
            }
            Err(error) if error.code() == Code::ImplementedElsewhere => {
                self.now(State::Elsewhere { generation: *generation });
                Ok(())
            }
            Err(error) if error.code() == Code::NotFound => {
                ledger.with(self.key, Entry::unsettle);
                Ok(())
            }
            Err(error) => {
                metrics.node_sync_errors.inc();
                if !is_expected(&error) {
                    ledger.with(self.key, Entry::update_failed);
                }
                Err(error)
            }
        }
    }

    /// Writes a missing finalizer or status.
    pub(crate) async fn repair(
        &self,
        object: &core::Service,
        add_finalizer: bool,
        status: Option<&LoadBalancerStatus>,
    ) -> Result<(), Error> {
        let now = Instant::now();
        if self.context.ledger.with(self.key, |entry| entry.repairs.begin(now)) == Some(true) {
            let ObjectKey { namespace, name } = self.key;
            let text = format!(
                "Another controller removes the finalizer {}, the status.loadBalancer or the annotations of Skysail each time that Skysail writes them. Skysail \
                 writes them again after growing pauses, at most 5 minutes. Find that controller and stop it: kubectl get service {name} --namespace {namespace} \
                 --output yaml --show-managed-fields",
                names::LOAD_BALANCER_FINALIZER
            );
            let kind = (EventKind::Warning, reasons::SERVICE_CONTESTED);
            self.context.reporter.event(self.actor, &convert::service_reference(object), kind, text);
        }
        let guarded = if add_finalizer { Some(self.add_finalizer(object).await?) } else { None };
        match status {
            Some(status) => self.patch_status(guarded.as_ref().unwrap_or(object), status).await,
            None => Ok(()),
        }
    }

    /// Deletes the load balancer of an existing object, then removes the finalizer, then the
    /// status.
    pub(crate) async fn cleanup(&self, object: &core::Service, service: &Arc<Service>) -> Result<(), Error> {
        // If the Service is wanted again before the deletion succeeds, the load balancer may have
        // changed.
        self.context.ledger.with(self.key, Entry::unsettle);
        let unconfirmed = self.is_unconfirmed();
        let found = unconfirmed && self.delete_held(self.lane, service).await?;
        let is_wanted = service_spec::is_load_balancer(object) && object.metadata.deletion_timestamp.is_none();
        let owner = self.context.service_owner(object).provider();
        if unconfirmed && !found && is_wanted && owner.is_some() {
            // The annotation named the wrong provider. The owner's load balancer stays.
            self.context.ledger.remove(self.key);
            return Ok(());
        }
        // The Service has a class that no provider here claims: other load balancers for it belong
        // to the controller of that class.
        let asks_others = !unconfirmed || !self.is_foreign(object);
        if !found && asks_others {
            for holder in self.holders(object)? {
                self.delete_held(&holder, service).await?;
            }
        }
        // Recorded before the object is written: a conflict there must not repeat the calls of the
        // providers.
        self.context.ledger.deleted(self.key, &self.lane.name, Arc::clone(service));
        self.release(object, service).await
    }

    /// Removes our finalizer and the status from an object whose load balancer is deleted.
    pub(crate) async fn release(&self, object: &core::Service, service: &Service) -> Result<(), Error> {
        let guarded = if has_finalizer(object) { self.remove_finalizer(object).await? } else { None };
        self.normal(service, reasons::DELETED_LOAD_BALANCER, "Deleted load balancer");
        // A class changes only together with the type, which empties the status.
        if !self.is_foreign(object) {
            self.patch_status(guarded.as_ref().unwrap_or(object), &LoadBalancerStatus::default()).await?;
        }
        // Last, because without the entry nothing would retry a failed write.
        self.context.ledger.remove(self.key);
        Ok(())
    }

    /// Whether the Service has a class that no provider here claims.
    fn is_foreign(&self, object: &core::Service) -> bool {
        let is_wanted = service_spec::is_load_balancer(object) && object.metadata.deletion_timestamp.is_none();
        is_wanted && self.context.service_owner(object).provider().is_none()
    }

    /// Asks the API for an object that the watch does not show. Our finalizer keeps the object, so
    /// a missing one was deleted by force, or a list omitted it by mistake.
    pub(crate) async fn is_still_there(&self, service: &Service) -> Result<bool, Error> {
        let client = self.context.clients.shared_informers.clone();
        let api: Api<core::Service> = Api::namespaced(client, &self.key.namespace);
        // A list, because the manager has that permission anyway.
        let named = ListParams::default().fields(&format!("metadata.name={}", self.key.name));
        let found = api.list(&named).await.map_err(Error::api("look for the Service that is gone"))?;
        Ok(found.items.iter().any(|object| object.metadata.uid.as_deref() == Some(service.uid.as_str())))
    }

    /// Deletes the load balancer of a deleted object.
    pub(crate) async fn delete_remembered(&self, service: &Arc<Service>) -> Result<(), Error> {
        self.context.ledger.with(self.key, Entry::unsettle);
        if self.is_unconfirmed() {
            self.delete_held(self.lane, service).await?;
            self.context.ledger.remove(self.key);
            return Ok(());
        }
        self.normal(service, reasons::DELETING_LOAD_BALANCER, "Deleting load balancer");
        let result = match load_balancers(&*self.lane.provider) {
            Ok(provider) => {
                let answer =
                    provider.ensure_deleted(&self.call(service), &self.context.settings.cluster_name, service).await;
                absent_is_ok(answer).map_err(Error::provider("delete load balancer"))
            }
            Err(error) => Err(error),
        };
        result?;
        self.context.ledger.remove(self.key);
        self.normal(service, reasons::DELETED_LOAD_BALANCER, "Deleted load balancer");
        Ok(())
    }

    /// Whether only the object's annotation names this provider, without confirmation.
    fn is_unconfirmed(&self) -> bool {
        self.context.held(self.key, self.lane).is_some_and(|entry| entry.state == State::Unconfirmed)
    }

    /// The providers to ask. If the type changed while this process was down, the class is lost
    /// with it. If the annotation is then missing or wrong too, the controller asks every provider
    /// with load balancers, and the finalizer stays until all have answered.
    fn holders(&self, object: &core::Service) -> Result<Vec<Arc<Lane>>, Error> {
        let held = self.context.held(self.key, self.lane).is_some();
        if !self.is_unconfirmed() && (held || service_spec::is_load_balancer(object)) {
            return Ok(vec![Arc::clone(self.lane)]);
        }
        let may_hold = |lane: &&Arc<Lane>| lane.provider.info().is_none() || lane.provider.load_balancers().is_some();
        let holders: Vec<Arc<Lane>> = self.context.lanes.all().iter().filter(may_hold).cloned().collect();
        if holders.is_empty() {
            let none = skysail_provider::Error::new(Code::Unsupported, "no provider has load balancers");
            return Err(Error::provider("find the provider of the load balancer")(none));
        }
        Ok(holders)
    }

    /// Deletes this provider's load balancer; returns whether `get` found one.
    async fn delete_held(&self, holder: &Arc<Lane>, service: &Arc<Service>) -> Result<bool, Error> {
        if self.is_unconfirmed() && holder.provider.info().is_some() && holder.provider.load_balancers().is_none() {
            // The named provider has no load balancers, so it cannot have made one.
            return Ok(false);
        }
        let provider = load_balancers(&*holder.provider)?;
        let cluster = &self.context.settings.cluster_name;
        let call = self.context.call(holder, Some(reference(service)));
        let present = match provider.get(&call, cluster, service).await {
            Ok(status) => status.is_some(),
            Err(error) if matches!(error.code, Code::ImplementedElsewhere | Code::NotFound) => false,
            Err(error) => return Err(Error::provider("check if load balancer exists before cleanup")(error)),
        };
        if present {
            if holder == self.lane {
                // Confirmed: if the rest fails, no other provider has to be asked.
                self.now(State::Unsettled { before: None });
            }
            self.normal(service, reasons::DELETING_LOAD_BALANCER, "Deleting load balancer");
        }
        // Also if `get` found nothing: a cloud may return stale data, and of a load balancer with
        // several parts the one that `get` checks may be deleted while others remain. Upstream
        // deletes only what `get` finds, and leaks the rest when it removes the finalizer.
        match absent_is_ok(provider.ensure_deleted(&call, cluster, service).await) {
            Err(error) if error.code == Code::ImplementedElsewhere => {}
            result => result.map_err(Error::provider("delete load balancer"))?,
        }
        Ok(present)
    }

    /// Also writes the provider's name, so that a restarted process knows which provider to ask.
    async fn add_finalizer(&self, object: &core::Service) -> Result<core::Service, Error> {
        let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        if !has_finalizer(object) {
            finalizers.push(names::LOAD_BALANCER_FINALIZER.to_owned());
        }
        let patch = json!({ "metadata": { "finalizers": finalizers, "annotations": self.holder_annotations(object) } });
        self.patch(object, patch).await.map_err(Error::api("add load balancer cleanup finalizer"))
    }

    /// Returns `None` if the object is deleted already.
    async fn remove_finalizer(&self, object: &core::Service) -> Result<Option<core::Service>, Error> {
        let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != names::LOAD_BALANCER_FINALIZER);
        let annotations =
            json!({ names::LOAD_BALANCER_PROVIDER_ANNOTATION: null, names::LOAD_BALANCER_MADE_FOR_ANNOTATION: null });
        let patch = json!({ "metadata": { "finalizers": finalizers, "annotations": annotations } });
        match self.patch(object, patch).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if api_status(&error) == Some(404) => Ok(None),
            Err(error) => Err(Error::api("remove load balancer cleanup finalizer")(error)),
        }
    }

    /// Writes the status if it differs. A deleted object needs none.
    async fn patch_status(&self, object: &core::Service, status: &LoadBalancerStatus) -> Result<(), Error> {
        if service_spec::status(object) == *status {
            self.status_written(version(object));
            return Ok(());
        }
        let ingress = match status.ingress.as_slice() {
            [] => Value::Null,
            _ => json!(status::to_core(status)),
        };
        let mut patch = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        if has_finalizer(object)
            && service_spec::named_holder(object).is_none()
            && let Some(root) = patch.as_object_mut()
        {
            // Another client removed the annotation that names the provider. It is restored
            // together with this write; it alone would not justify one.
            root.insert("metadata".to_owned(), json!({ "annotations": self.holder_annotations(object) }));
        }
        match self.patch(object, patch).await {
            Ok(object) => self.status_written(version(&object)),
            Err(error) if api_status(&error) == Some(404) => self.status_written(None),
            Err(error) => return Err(Error::api("update load balancer status")(error)),
        }
        Ok(())
    }

    /// A merge patch of `services/status`, which also takes metadata, guarded by the object's
    /// resource version.
    async fn patch(&self, object: &core::Service, patch: Value) -> Result<core::Service, kube::Error> {
        progress::step();
        let patch = guarded(&object.metadata, patch);
        let api: Api<core::Service> =
            Api::namespaced(self.context.clients.service_controller.clone(), &self.key.namespace);
        let written = api.patch_status(&self.key.name, &params(), &Patch::Merge(&patch)).await?;
        self.context.ledger.with(self.key, |entry| entry.wrote = version(&written));
        Ok(written)
    }

    fn status_written(&self, version: Option<u64>) {
        self.context.ledger.with(self.key, |entry| entry.status_written(version));
    }

    /// Records the state of the load balancer.
    fn now(&self, state: State) {
        self.context.ledger.with(self.key, |entry| entry.state = state);
    }

    fn holder_annotations(&self, object: &core::Service) -> Value {
        json!({
            names::LOAD_BALANCER_PROVIDER_ANNOTATION: self.lane.name,
            names::LOAD_BALANCER_MADE_FOR_ANNOTATION: service_spec::made_for(object),
        })
    }

    fn call(&self, service: &Service) -> Call {
        self.context.call(self.lane, Some(reference(service)))
    }

    /// Returns false if the queue of Events is full.
    fn normal(&self, service: &Service, reason: &'static str, message: &str) -> bool {
        self.event(service, EventKind::Normal, reason, message)
    }

    fn event(&self, service: &Service, kind: EventKind, reason: &'static str, message: &str) -> bool {
        self.context.reporter.event(self.actor, &reference(service), (kind, reason), message)
    }
}

/// The subject of Events if only the provider's form is available.
pub(crate) fn reference(service: &Service) -> skysail_provider::ObjectReference {
    skysail_provider::ObjectReference {
        kind: "Service",
        namespace: service.namespace.clone(),
        name: service.name.clone(),
        uid: service.uid.clone(),
    }
}

fn load_balancers(provider: &dyn skysail_provider::Provider) -> Result<&dyn LoadBalancers, Error> {
    let error = match (provider.info(), provider.load_balancers()) {
        (Some(_), Some(load_balancers)) => return Ok(load_balancers),
        (Some(info), None) => {
            let text = format!("{} {} does not implement the interface load-balancers", info.name, info.version);
            skysail_provider::Error::new(Code::Unsupported, text)
        }
        (None, _) => skysail_provider::Error::new(Code::NotServing, "no release of the provider serves"),
    };
    Err(Error::provider("call the provider's load balancers")(error))
}

fn absent_is_ok(answer: skysail_provider::Result<()>) -> skysail_provider::Result<()> {
    match answer {
        Err(error) if error.code == Code::NotFound => Ok(()),
        answer => answer,
    }
}

/// At most twenty names, then the number of further ones, then the total: as upstream.
pub(crate) fn nodes_text(shared: &SharedNodes) -> String {
    let names: Vec<&str> = shared.nodes.as_slice().iter().map(|node| node.name.as_str()).collect();
    let mut text = names.iter().take(NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    if let Some(more) = names.len().checked_sub(NAMES_SHOWN_MAX).filter(|more| *more > 0) {
        text += &format!(", <{more} more>");
    }
    format!("[{text}] ({} in all)", names.len())
}
