//! Retains, claims and gives back load balancers: reads of the provider, which change nothing in
//! the cloud (provider), and the records (client).

use std::sync::Arc;

use k8s_openapi::{api::core::v1 as core, jiff::Timestamp};
use kube::Api;
use skysail_provider::{Code, EventKind, LoadBalancerStatus, Service};

use super::{
    apply::{Subject, load_balancers},
    retention,
};
use crate::{
    context::Context,
    error::Error,
    lane::Lane,
    names::reasons,
    ownership::LaneId,
    retained::{
        RecordChange, RetainedKey, RetainedLoadBalancer,
        record::{ADDRESS_CHARS_MAX, ADDRESSES_MAX, NAME_BYTES_MAX},
    },
    service_spec::shown,
    watch::ObjectKey,
};

impl Subject<'_> {
    /// Records that the load balancer of one provider stays in the cloud without the Service. What
    /// is recorded already stays recorded.
    pub(super) async fn retain_at(&self, holder: LaneId, service: &Arc<Service>) -> Result<(), Error> {
        let holder = self.holder(holder)?;
        let retained = self.retain(&holder, &self.service_at(&holder, service)).await;
        retained.map_err(|error| if holder == *self.lane { error } else { error.at(&holder.name) })
    }

    async fn retain(&self, holder: &Arc<Lane>, service: &Arc<Service>) -> Result<(), Error> {
        let Some(key) = RetainedKey::new(&holder.name, &service.uid) else {
            let text = format!("the UID {:?} of the Service is not one of the API server", service.uid);
            return Err(Error::provider("retain the load balancer")(skysail_provider::Error::new(Code::Invalid, text)));
        };
        if self.namesake(holder, service).await?.is_some() {
            return Ok(());
        }
        let provider = load_balancers(&*holder.provider)?;
        let call = self.context.call(holder, Some(self.reference(service)));
        let cluster = &self.context.settings.cluster_name;
        let status = match provider.get(&call, cluster, service).await {
            Ok(status) => status,
            Err(error) if error.code == Code::NotFound => None,
            Err(error) if error.code == Code::ImplementedElsewhere => return Ok(()),
            Err(error) => return Err(Error::provider("check if there is a load balancer to retain")(error)),
        };
        let before = self.context.retained.get(&key.provider, &key.uid).map(|(_, before)| before);
        match &status {
            None if before.is_none() && !retention::was_shown(self.observed) => {
                return self.delete_parts(holder, service).await;
            }
            // A cloud may return stale data, so a load balancer that this provider must have made,
            // or that has a record, is recorded in any case.
            None if before.is_none() && (holder != self.lane || !self.observed.must_hold()) => return Ok(()),
            _ => {}
        }
        let name = provider.name(&call, cluster, service).await.map_err(Error::provider("name the load balancer"))?;
        if name.len() > NAME_BYTES_MAX {
            let text = format!("the provider's name of the load balancer has more than {NAME_BYTES_MAX} bytes");
            return Err(Error::provider("name the load balancer")(skysail_provider::Error::new(Code::Internal, text)));
        }
        let record = RetainedLoadBalancer {
            namespace: service.namespace.clone(),
            made_for: service.name.clone(),
            service: self.key.name.clone(),
            service_uid: self.observed.object_uid(service).to_owned(),
            in_use: false,
            name,
            addresses: addresses(status.as_ref()),
            since: now(),
        };
        let is_retained = |before: &RetainedLoadBalancer| !before.in_use || before.service_uid != record.service_uid;
        if before.as_ref().is_some_and(is_retained) {
            return Ok(());
        }
        change(self.context, RecordChange { key: key.clone(), before, after: Some(record.clone()) }).await?;
        let (kind, text) = retention::retained_text(self.observed, &holder.name, (&key, &record));
        self.event(service, kind, reasons::LOAD_BALANCER_RETAINED, &text);
        Ok(())
    }

    /// Takes a retained load balancer of another Service for this object. Before the finalizer: a
    /// Service with the finalizer may have a load balancer of its own. If the Service goes without
    /// having got the finalizer, the record says that it has gone
    /// ([`super::plan::Plan::GiveBack`]).
    pub(super) async fn adopt(&self, object: &core::Service, service: &Service) -> Result<(), Error> {
        // The record of the plan: if another Service has taken it since, the change is refused.
        let records = &self.observed.records;
        let Some((key, record)) = records.named.as_ref().filter(|(key, _)| key.uid == service.uid) else {
            return Ok(());
        };
        if records.own.is_some() {
            return Ok(());
        }
        let adopted = RetainedLoadBalancer {
            service: self.key.name.clone(),
            service_uid: object.metadata.uid.clone().unwrap_or_default(),
            in_use: true,
            since: now(),
            ..record.clone()
        };
        let before = Some(record.clone());
        change(self.context, RecordChange { key: key.clone(), before, after: Some(adopted) }).await?;
        self.report_taken(service, record);
        Ok(())
    }

    /// Takes back a retained load balancer that this Service had last. After the finalizer, whose
    /// guarded write proves that the object still exists: an old object must not end the protection
    /// of the load balancer.
    pub(super) async fn take_back(&self, service: &Service) -> Result<(), Error> {
        let own = self.observed.records.own.as_ref();
        let Some((key, record)) = own.filter(|(key, record)| key.uid == service.uid && !record.in_use) else {
            return Ok(());
        };
        // The one that was made for this Service needs no record.
        let is_made_for_it = key.uid == record.service_uid;
        let used = RetainedLoadBalancer { in_use: true, since: now(), ..record.clone() };
        let (before, after) = (Some(record.clone()), (!is_made_for_it).then_some(used));
        change(self.context, RecordChange { key: key.clone(), before, after }).await?;
        self.report_taken(service, record);
        Ok(())
    }

    fn report_taken(&self, service: &Service, record: &RetainedLoadBalancer) {
        let text = format!(
            "This Service takes the retained load balancer {} of the provider {}, which the Service {} had last",
            shown(&record.name),
            self.lane.name,
            shown(&record.service)
        );
        self.event(service, EventKind::Normal, reasons::LOAD_BALANCER_ADOPTED, &text);
    }

    /// Removes the record of a load balancer that this Service has adopted, after the provider has
    /// deleted it. Before the finalizer goes: the next process would not know the UID otherwise.
    pub(super) async fn forget_deleted(&self, holder: &Lane, service: &Service) -> Result<(), Error> {
        let Some((key, record)) = self.context.retained.get(&holder.name, &service.uid) else { return Ok(()) };
        if record.service_uid != self.observed.object_uid(service) {
            return Ok(());
        }
        change(self.context, RecordChange { key, before: Some(record), after: None }).await
    }

    /// Records that nobody has the load balancer any more whose Service went without a deletion.
    pub(super) async fn give_back(&self, key: &RetainedKey, record: &RetainedLoadBalancer) -> Result<(), Error> {
        let after = RetainedLoadBalancer { in_use: false, since: now(), ..record.clone() };
        change(self.context, RecordChange { key: key.clone(), before: Some(record.clone()), after: Some(after) }).await
    }

    /// The Service as this provider knows it: another provider may have another UID for it.
    pub(super) fn service_at(&self, holder: &Lane, service: &Arc<Service>) -> Arc<Service> {
        if holder == &**self.lane {
            return Arc::clone(service);
        }
        let object_uid = self.observed.object_uid(service);
        let recorded = self.context.retained.of_service(&holder.name, object_uid);
        let own = || (object_uid.to_owned(), self.key.name.clone());
        let (uid, name) = recorded.map_or_else(own, |(key, record)| (key.uid, record.made_for));
        Arc::new(Service { uid, name, ..Service::clone(service) })
    }

    /// The record of another Service's load balancer that this provider would find for this
    /// Service, because it finds them by the names of Services.
    pub(super) async fn namesake(
        &self,
        holder: &Arc<Lane>,
        service: &Arc<Service>,
    ) -> Result<Option<RetainedLoadBalancer>, Error> {
        let key = ObjectKey { namespace: service.namespace.clone(), name: service.name.clone() };
        let Some(record) = self.context.retained.namesake(&holder.name, &key, &service.uid) else { return Ok(None) };
        let call = self.context.call(holder, Some(self.reference(service)));
        let name = load_balancers(&*holder.provider)?.name(&call, &self.context.settings.cluster_name, service).await;
        let name = name.map_err(Error::provider("name the load balancer"))?;
        Ok(Some(record).filter(|record| record.name == name))
    }

    /// Refuses a load balancer that has a record of another Service.
    pub(super) async fn refuse_namesake(&self, service: &Arc<Service>) -> Result<(), Error> {
        match self.namesake(self.lane, service).await? {
            None => Ok(()),
            Some(record) => {
                let text = retention::namesake(self.key, &record);
                Err(Error::provider("ensure load balancer")(skysail_provider::Error::new(Code::Invalid, text)))
            }
        }
    }
}

/// Changes a record. A dry run changes nothing in the API.
async fn change(context: &Context, change: RecordChange) -> Result<(), Error> {
    if context.dry_runs.is_some() {
        context.retained.pretend(change);
        return Ok(());
    }
    let api = Api::namespaced(context.clients.service_controller.clone(), &context.settings.namespace);
    context.retained.change(&api, change).await
}

fn addresses(status: Option<&LoadBalancerStatus>) -> Vec<String> {
    let ingress = status.into_iter().flat_map(|status| &status.ingress);
    let all = ingress.filter_map(|ingress| ingress.ip.as_ref().or(ingress.hostname.as_ref()));
    let short = all.map(|address| address.chars().take(ADDRESS_CHARS_MAX).collect());
    short.take(ADDRESSES_MAX).collect()
}

/// The time in a record, in whole seconds; for people.
fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
