//! Carries out a plan: provider calls (provider) and guarded patches of the Service (client). Each
//! outcome is recorded in the ledger as `outcome.rs` says.
//!
//! Every patch carries the resource version from which the plan was made: if another client changed
//! the object, the API server rejects the patch and the next reconcile plans from the new object.
//! So another controller's finalizer is never lost.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, ListParams, Patch};
use serde_json::{Value, json};
use skysail_provider::{Call, Code, EventKind, LoadBalancerStatus, LoadBalancers, ObjectReference, Service};
use tokio::time::Instant;

use super::{
    outcome::{self, PlanOutcome, is_answer},
    plan::{Observed, Plan, PlanAnswers},
    status,
};
use crate::{
    backoff::retry,
    context::Context,
    convert,
    error::{Error, api_status},
    lane::Lane,
    ledger::version,
    names::{self, reasons},
    nodes::SharedNodes,
    ownership::LaneId,
    patch::{guarded, params},
    progress,
    report::{Actor, is_expected},
    service_spec::{self, has_finalizer},
    watch::ObjectKey,
};

/// The maximum number of node names in one Event text: as upstream.
const NAMES_SHOWN_MAX: usize = 20;

/// One Service that one provider reconciles.
pub(crate) struct Subject<'a> {
    pub(crate) context: &'a Context,
    pub(crate) lane: &'a Arc<Lane>,
    pub(crate) key: &'a ObjectKey,
    pub(crate) actor: &'a Actor,
    /// The state from which the plan was made.
    pub(crate) observed: &'a Observed,
    pub(crate) plan: &'a Plan,
}

impl Subject<'_> {
    /// Carries out the plan. Returns what the next plan of this turn has to know; none if the turn
    /// ends.
    pub(crate) async fn apply(&self) -> Result<Option<PlanAnswers>, Error> {
        let answers = self.observed.answers;
        let done = match (self.plan, self.observed.object.as_deref()) {
            (Plan::LookUp(service), _) => {
                let exists = Some(self.is_still_there(service).await?);
                return Ok(Some(PlanAnswers { exists, ..answers }));
            }
            (Plan::Confirm(service), _) => {
                let found = self.has_load_balancer(self.lane, service).await?;
                if found {
                    self.record(PlanOutcome::Found);
                }
                return Ok(Some(PlanAnswers { found: Some(found), ..answers }));
            }
            (Plan::DeleteRemembered(service), _) => self.delete_remembered(service).await,
            (Plan::RetainRemembered(service), _) => self.retain_at(self.lane.id, service).await,
            (Plan::GiveBack(key, record), _) => self.give_back(key, record).await,
            (Plan::NoHolder, _) => {
                let text = "no provider exports load-balancers, so the load balancer of this Service cannot be deleted; add its provider again";
                Err(unknown_holder(Code::Unsupported, text))
            }
            (Plan::Cleanup { service, holders, retained, .. }, _) => self.cleanup(service, holders, retained).await,
            (Plan::Release { service, empties_status }, Some(object)) => {
                self.release(object, service, *empties_status).await
            }
            (Plan::Ensure { service, claims, add_finalizer, repeated }, Some(object)) => {
                // Checked before the first write: a provider without load balancers must not leave
                // a finalizer behind.
                let provider = self.load_balancers()?;
                self.refuse_namesake(service).await?;
                if *claims {
                    self.adopt(object, service).await?;
                }
                self.ensure(provider, object, service, (*add_finalizer, *repeated)).await
            }
            (Plan::Update(service), _) => self.update(service).await,
            (Plan::Repair { add_finalizer, status }, Some(object)) => {
                self.repair(object, *add_finalizer, status.as_ref()).await
            }
            (Plan::Refuse(problems), _) => {
                let invalid = skysail_provider::Error::new(Code::Invalid, problems.join("; "));
                Err(Error::provider("read the Service")(invalid))
            }
            (Plan::Nothing | Plan::Wait(_) | Plan::Forget | Plan::Paused { .. }, _) | (_, None) => Ok(()),
        };
        self.record(match &done {
            Ok(()) => PlanOutcome::Done,
            Err(error) => PlanOutcome::Failed { code: error.code(), expected: is_expected(error) },
        });
        match done {
            Err(error) if !is_answer(self.plan, error.code()) => Err(error),
            // The finalizer is removed in the same turn.
            _ => Ok(matches!(self.plan, Plan::Cleanup { .. }).then_some(answers)),
        }
    }

    /// Records the outcome in the ledger.
    pub(crate) fn record(&self, outcome: PlanOutcome) {
        let Self { context, lane, key, observed, plan, .. } = self;
        if matches!((plan, &outcome), (Plan::Ensure { .. } | Plan::Update(_), PlanOutcome::Begun)) {
            context.emptied.remove(key);
        }
        context.ledger.change(key, &lane.name, |entry| outcome::after(plan, outcome, entry, observed));
    }

    /// Creates or changes the load balancer; the finalizer comes first, the status last.
    async fn ensure(
        &self,
        provider: &dyn LoadBalancers,
        object: &core::Service,
        service: &Arc<Service>,
        (add_finalizer, repeated): (bool, bool),
    ) -> Result<(), Error> {
        // A drift repair that changed nothing emits no Event.
        let begun = (!repeated).then(|| {
            let (reporter, what) = (&self.context.reporter, reasons::ENSURING_LOAD_BALANCER);
            reporter.begins(self.actor, &self.reference(service), what, "Ensuring load balancer")
        });
        let guarded = if add_finalizer { Some(self.add_finalizer(object).await?) } else { None };
        self.take_back(service).await?;
        // After the finalizer: if the API server refuses the patch, the object is older than the
        // one of the API, which may name another provider. An entry would hide that name.
        self.record(PlanOutcome::Begun);
        let nodes = &self.observed.shared.nodes;
        if nodes.is_empty() {
            let text = "There are no available nodes for LoadBalancer";
            self.event(service, EventKind::Warning, reasons::UNAVAILABLE_LOAD_BALANCER, text);
        }
        let cluster = &self.context.settings.cluster_name;
        let answer = provider.ensure(&self.call(service), cluster, service, nodes).await;
        let answer = answer.and_then(status::judge).and_then(|status| self.addresses_judged(status));
        let answer = answer.map_err(Error::provider("ensure load balancer"))?;
        // Recorded before the status is written: a conflict there must not cause a second call of
        // the provider.
        self.record(PlanOutcome::Ensured(answer.clone()));
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
            let text = "the older provider has no release, so its provider-ID schemes are unknown and the node set is not decided; the manager waits at most 30 s after \
                        its start; to avoid the wait, set spec.providerIdSchemes of the older provider";
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

    /// Updates the backends to the shared node set.
    async fn update(&self, service: &Arc<Service>) -> Result<(), Error> {
        let metrics = &self.context.reporter.metrics;
        let shared = &self.observed.shared;
        metrics.load_balancer_updates.inc();
        let begun = Instant::now();
        self.record(PlanOutcome::Begun);
        let result = match self.load_balancers() {
            Ok(provider) => provider
                .update(&self.call(service), &self.context.settings.cluster_name, service, &shared.nodes)
                .await
                .map_err(Error::provider("update load balancer hosts")),
            Err(error) => Err(error),
        };
        metrics.update_host_latency.observe(begun.elapsed().as_secs_f64());
        metrics.node_sync_latency.observe(shared.published.elapsed().as_secs_f64());
        match &result {
            Ok(()) if shared.nodes.is_empty() => {
                let text = "There are no available nodes for LoadBalancer";
                self.event(service, EventKind::Warning, reasons::UNAVAILABLE_LOAD_BALANCER, text);
            }
            Ok(()) => {
                self.normal(service, reasons::UPDATED_LOAD_BALANCER, "Updated load balancer with new hosts");
            }
            Err(error) if is_answer(self.plan, error.code()) => {}
            Err(_) => {
                metrics.node_sync_errors.inc();
            }
        }
        result
    }

    /// Writes a missing finalizer or status.
    async fn repair(
        &self,
        object: &core::Service,
        add_finalizer: bool,
        status: Option<&LoadBalancerStatus>,
    ) -> Result<(), Error> {
        let now = Instant::now();
        self.context.ledger.with(self.key, |entry| entry.repairs.begin(now));
        let guarded = if add_finalizer { Some(self.add_finalizer(object).await?) } else { None };
        if let Some(status) = status {
            self.patch_status(guarded.as_ref().unwrap_or(object), status).await?;
        }
        if self.context.ledger.with(self.key, |entry| entry.repairs.written()) == Some(true) {
            let text = format!(
                "Another controller removes the finalizer {}, the status.loadBalancer or the annotations of Skysail each time that Skysail writes them. Skysail \
                 writes them again",
                names::LOAD_BALANCER_FINALIZER
            );
            self.report_conflict(object, &text);
        }
        Ok(())
    }

    /// Reports that another controller undoes our writes.
    fn report_conflict(&self, object: &core::Service, undone: &str) {
        let ObjectKey { namespace, name } = self.key;
        let text = format!(
            "{undone} after growing pauses, at most 5 minutes. Find that controller and stop it: kubectl get service {name} --namespace {namespace} --output yaml \
             --show-managed-fields"
        );
        let kind = (EventKind::Warning, reasons::SERVICE_WRITE_CONFLICT);
        self.context.reporter.event(self.actor, &convert::service_reference(object), kind, text);
    }

    /// Deletes the load balancer of an existing object at each of these providers; those of
    /// `retained` keep it.
    async fn cleanup(&self, service: &Arc<Service>, holders: &[LaneId], retained: &[LaneId]) -> Result<(), Error> {
        self.record(PlanOutcome::Begun);
        let mut failures = Vec::new();
        for holder in holders {
            // A failure may take long, and the user may want the load balancer again meanwhile.
            if !failures.is_empty() && self.is_outdated() {
                break;
            }
            let done = match retained.contains(holder) {
                true => self.retain_at(*holder, service).await,
                false => self.delete_at(*holder, service).await,
            };
            match done {
                Err(error) if error.code() == Code::NotLeading => return Err(error),
                // The others are called all the same: this provider may serve again in hours only.
                Err(error) => failures.push(error),
                Ok(()) => {}
            }
        }
        // The one that is to be tried again first.
        match failures.into_iter().min_by_key(|error| retry(error, 0).after) {
            Some(error) => Err(error),
            None => {
                self.context.emptied.remove(self.key);
                Ok(())
            }
        }
    }

    /// Whether the object has changed since it was read for the plan.
    fn is_outdated(&self) -> bool {
        let version =
            |object: Option<&core::Service>| object.and_then(|object| object.metadata.resource_version.clone());
        version(self.context.services.get(self.key).as_deref()) != version(self.observed.object.as_deref())
    }

    /// A provider that may hold the load balancer.
    pub(super) fn holder(&self, holder: LaneId) -> Result<Arc<Lane>, Error> {
        self.context.lanes.get(holder).ok_or_else(|| {
            let text = "a provider that may have the load balancer was removed meanwhile; add the provider again";
            unknown_holder(Code::NotServing, text)
        })
    }

    /// Deletes the load balancer at one provider that may hold it.
    async fn delete_at(&self, holder: LaneId, service: &Arc<Service>) -> Result<(), Error> {
        let holder = self.holder(holder)?;
        let deleted = self.delete_held(&holder, &self.service_at(&holder, service)).await;
        // The report names the provider that plans.
        deleted.map_err(|error| if holder == *self.lane { error } else { error.at(&holder.name) })
    }

    /// Removes our finalizer and the status from an object whose load balancer is deleted.
    async fn release(&self, object: &core::Service, service: &Service, empties_status: bool) -> Result<(), Error> {
        let guarded = if has_finalizer(object) { self.remove_finalizer(object).await? } else { None };
        let stays = guarded.is_some() && object.metadata.deletion_timestamp.is_none();
        if stays && self.context.ledger.release(self.key, Instant::now()) {
            let text = format!(
                "Another controller adds the finalizer {} each time that Skysail removes it, although the Service has no load balancer. Skysail asks the cloud and \
                 removes the finalizer again",
                names::LOAD_BALANCER_FINALIZER
            );
            self.report_conflict(object, &text);
        }
        // The Event about a load balancer that stays is older.
        if !self.observed.records.is_kept {
            self.normal(service, reasons::DELETED_LOAD_BALANCER, "Deleted load balancer");
        }
        match empties_status {
            true => self.patch_status(guarded.as_ref().unwrap_or(object), &LoadBalancerStatus::default()).await,
            false => Ok(()),
        }
    }

    /// Whether the API has the object, which the watch does not show.
    async fn is_still_there(&self, service: &Service) -> Result<bool, Error> {
        let client = self.context.clients.shared_informers.clone();
        let api: Api<core::Service> = Api::namespaced(client, &self.key.namespace);
        // A list, because the manager has that permission anyway.
        let named = ListParams::default().fields(&format!("metadata.name={}", self.key.name));
        let found = api.list(&named).await.map_err(Error::api("look for the Service that is gone"))?;
        Ok(found.items.iter().any(|object| object.metadata.uid.as_deref() == Some(self.observed.object_uid(service))))
    }

    /// Deletes the load balancer of a deleted object.
    async fn delete_remembered(&self, service: &Arc<Service>) -> Result<(), Error> {
        self.record(PlanOutcome::Begun);
        if self.namesake(self.lane, service).await?.is_some() {
            return Ok(());
        }
        self.normal(service, reasons::DELETING_LOAD_BALANCER, "Deleting load balancer");
        self.ensure_deleted(self.lane, service).await?;
        self.normal(service, reasons::DELETED_LOAD_BALANCER, "Deleted load balancer");
        Ok(())
    }

    /// Deletes this provider's load balancer, if it has one.
    async fn delete_held(&self, holder: &Arc<Lane>, service: &Arc<Service>) -> Result<(), Error> {
        if self.namesake(holder, service).await?.is_some() {
            return Ok(());
        }
        let present = match self.observed.answers.found {
            Some(found) if holder == self.lane => found,
            _ => self.has_load_balancer(holder, service).await?,
        };
        if present {
            self.normal(service, reasons::DELETING_LOAD_BALANCER, "Deleting load balancer");
        }
        // Also if `get` found nothing: a cloud may return stale data, and of a load balancer with
        // several parts the one that `get` checks may be deleted while others remain. Upstream
        // deletes only what `get` finds, and leaks the rest when it removes the finalizer.
        self.delete_parts(holder, service).await
    }

    /// Deletes what this provider has for an existing object, and remembers it.
    pub(super) async fn delete_parts(&self, holder: &Arc<Lane>, service: &Arc<Service>) -> Result<(), Error> {
        let by = holder.deletes_with();
        match self.ensure_deleted(holder, service).await {
            Err(error) if error.code() == Code::ImplementedElsewhere => {}
            deleted => deleted?,
        }
        if let Some(object) = &self.observed.object {
            self.context.emptied.add(self.key, object, by);
        }
        Ok(())
    }

    async fn has_load_balancer(&self, holder: &Arc<Lane>, service: &Arc<Service>) -> Result<bool, Error> {
        let provider = load_balancers(&*holder.provider)?;
        let call = self.context.call(holder, Some(self.reference(service)));
        match provider.get(&call, &self.context.settings.cluster_name, service).await {
            Ok(status) => Ok(status.is_some()),
            Err(error) if matches!(error.code, Code::ImplementedElsewhere | Code::NotFound) => Ok(false),
            Err(error) => Err(Error::provider("check if load balancer exists before cleanup")(error)),
        }
    }

    async fn ensure_deleted(&self, holder: &Arc<Lane>, service: &Arc<Service>) -> Result<(), Error> {
        let provider = load_balancers(&*holder.provider)?;
        let call = self.context.call(holder, Some(self.reference(service)));
        match provider.ensure_deleted(&call, &self.context.settings.cluster_name, service).await {
            Err(error) if error.code == Code::NotFound => {}
            result => result.map_err(Error::provider("delete load balancer"))?,
        }
        self.forget_deleted(holder, service).await
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

    fn holder_annotations(&self, object: &core::Service) -> Value {
        let class = match (self.plan, &self.observed.entry) {
            // An object whose type has changed has lost the class.
            (Plan::Repair { .. }, Some(entry)) => entry.service.load_balancer_class.as_deref(),
            _ => service_spec::class(object),
        };
        json!({
            names::LOAD_BALANCER_PROVIDER_ANNOTATION: self.lane.name,
            names::LOAD_BALANCER_MADE_FOR_ANNOTATION: service_spec::made_for(object, class),
        })
    }

    fn call(&self, service: &Service) -> Call {
        self.context.call(self.lane, Some(self.reference(service)))
    }

    /// Returns false if the queue of Events is full.
    fn normal(&self, service: &Service, reason: &'static str, message: &str) -> bool {
        self.event(service, EventKind::Normal, reason, message)
    }

    pub(super) fn event(&self, service: &Service, kind: EventKind, reason: &'static str, message: &str) -> bool {
        self.context.reporter.event(self.actor, &self.reference(service), (kind, reason), message)
    }

    /// The object as the subject of Events and calls.
    pub(super) fn reference(&self, service: &Service) -> ObjectReference {
        let ObjectKey { namespace, name } = self.key.clone();
        ObjectReference { kind: "Service", namespace, name, uid: self.observed.object_uid(service).to_owned() }
    }
}

fn unknown_holder(code: Code, text: &str) -> Error {
    Error::provider("find the provider of the load balancer")(skysail_provider::Error::new(code, text))
}

pub(super) fn load_balancers(provider: &dyn skysail_provider::Provider) -> Result<&dyn LoadBalancers, Error> {
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

/// At most twenty names, then the number of further ones, then the total: as upstream.
pub(crate) fn nodes_text(shared: &SharedNodes) -> String {
    let names: Vec<&str> = shared.nodes.as_slice().iter().map(|node| node.name.as_str()).collect();
    let mut text = names.iter().take(NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    if let Some(more) = names.len().checked_sub(NAMES_SHOWN_MAX).filter(|more| *more > 0) {
        text += &format!(", <{more} more>");
    }
    format!("[{text}] ({} in all)", names.len())
}
