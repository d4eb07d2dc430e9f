//! Orphans: load balancers, and shares of load balancers, that the cloud has for this cluster and
//! that no Service wants. A slow scan finds and reports them; they are deleted only if the operator
//! enables it.
//!
//! # Guarantees
//! - A scan begins only after the first lists of nodes and Services are complete. A scan whose
//!   calls failed changes nothing.
//! - What any Service may want is no orphan: a Service of type LoadBalancer, whatever its owner,
//!   ensured or not; a Service with our finalizer; a Service in the ledger. An entry that names its
//!   Service is that Service's. Any other entry is that of every Service with its name.
//! - An entry becomes an orphan after [`SCANS`] consecutive scans.
//! - A deletion that has begun is repeated until the provider answers that all is deleted, in
//!   [`REPEATED_SCANS`] scans also if the list lacks the entry by then: the load balancer may be
//!   gone, and its security group not.
//! - While the provider is paused, orphans are reported and not deleted.
//! - What a record says is retained, or adopted by a Service, is no orphan. While a record of the
//!   provider cannot be read, nothing is deleted.
//! - No share is deleted while any Service uses the load balancer, by an entry or by its name:
//!   several Services may share a load balancer, and users may choose its name. The Services that
//!   came or changed during the scan are asked for before each deletion.
//!
//! # Why deletion is not the default
//! The provider reports which load balancers belong to the cluster, and it identifies the cluster
//! by its name only. Two clusters with the same `--cluster-name` in one account would delete each
//! other's load balancers. A person can tell them apart.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1 as core;
use skysail_provider::{
    Call, Code, Error, EventKind, Interface, LoadBalancerInventory, OwnedLoadBalancer, Provider, Result, Service,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    error::chain,
    lane::Lane,
    metrics,
    names::{RETAINED_CONFIG_MAP, controllers, reasons},
    progress::{self, Work},
    report::{Actor, cluster},
    retained::{RetainedKey, RetainedLoadBalancer, RetainedRecords},
    service_spec::{convert, has_finalizer, is_load_balancer},
};

/// Two more scans outlast an eventually consistent list or a lagging cache.
const SCANS: u32 = 3;
/// Scans in which a deletion that has begun is repeated although the list lacks the entry.
const REPEATED_SCANS: u32 = 3;
/// Limits the damage of a mistake.
const DELETIONS_PER_SCAN_MAX: usize = 10;
/// Longest name in a text.
const NAME_SHOWN_MAX: usize = 128;

/// Scans until `stop`.
pub(crate) async fn run(context: &Context, lane: &Arc<Lane>, stop: &CancellationToken) {
    let mut unwanted = UnwantedScans::default();
    while timeout(context.settings.orphan_scan_period, stop.cancelled()).await.is_err() {
        let scan = scan(context, lane, &mut unwanted, stop);
        context.turn(lane, Work::Pass(controllers::SERVICE, "scan for orphaned load balancers"), scan).await;
    }
}

/// The Services that may want a load balancer, in the provider's form.
#[must_use]
pub fn may_want_load_balancers<'a>(objects: impl IntoIterator<Item = &'a core::Service>) -> Vec<Arc<Service>> {
    let wanting = objects.into_iter().filter(|object| is_load_balancer(object) || has_finalizer(object));
    wanting.map(|object| Arc::new(convert(object).service)).collect()
}

/// The beginning of the Event about an orphan.
#[must_use]
pub fn orphan_notice(provider: &str, name: &str) -> String {
    format!("The provider {provider} has a load balancer {}, ", shown(name))
}

/// An entry of the inventory that no Service wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The load balancer, or the share of it.
    pub share: OwnedLoadBalancer,
    /// Whether a Service uses the same load balancer.
    pub in_use: bool,
    /// Whether the inventory has the entry.
    pub is_listed: bool,
    /// The record, if it is no orphan but a retained load balancer.
    pub retained: Option<(RetainedKey, RetainedLoadBalancer)>,
}

/// What keeps a load balancer from being an orphan.
#[derive(Clone, Copy, Debug)]
pub struct Wanting<'a> {
    /// The Services that may want a load balancer.
    pub services: &'a [Arc<Service>],
    /// Name of the provider, and the records of load balancers that outlive their Service.
    pub records: (&'a str, &'a RetainedRecords),
    /// Whether to list the retained load balancers, too.
    pub lists_retained: bool,
}

/// The entries of this cluster that none of these Services may want; empty if the provider has no
/// inventory. `begun`: entries whose deletion has begun, which count as listed.
///
/// # Errors
/// Those of the provider's list or of a name; the result is then unknown. `Unsupported` if the
/// provider's settings switch the inventory off. `NotServing` after `stop`, which no further call
/// follows.
pub async fn find_orphans(
    provider: &dyn Provider,
    (call, stop): (&Call, &CancellationToken),
    cluster: &str,
    (wanting, begun): (Wanting<'_>, &[OwnedLoadBalancer]),
) -> Result<Vec<Orphan>> {
    let Wanting { services, records: (name, records), lists_retained } = wanting;
    let (Some(inventory), Some(load_balancers)) = (provider.load_balancer_inventory(), provider.load_balancers())
    else {
        return Ok(Vec::new());
    };
    let living: BTreeSet<(&str, &str, &str)> =
        services.iter().map(|service| (&*service.namespace, &*service.name, &*service.uid)).collect();
    let is_wanted = |share: &OwnedLoadBalancer| {
        let service = share.service.as_ref();
        service.is_some_and(|(namespace, name, uid)| living.contains(&(&**namespace, &**name, &**uid)))
            || records.of_share(name, share).is_some_and(|(_, record)| record.in_use || !lists_retained)
    };
    let reserved: BTreeSet<&str> = records.names(name).collect();
    let mut listed = inventory.list(call, cluster).await?;
    let unlisted: Vec<_> = begun.iter().filter(|share| !listed.contains(share)).cloned().collect();
    listed.extend(unlisted.iter().cloned());
    let (wanted, mut unwanted): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_wanted);
    let mut used: BTreeSet<String> = wanted.into_iter().map(|share| share.name).collect();
    for service in services {
        // Usually nothing is left here, and no call for a name is needed.
        unwanted.retain(|share| share.service.is_some() || !used.contains(&share.name));
        if unwanted.is_empty() {
            return Ok(Vec::new());
        }
        if stop.is_cancelled() {
            return Err(Error::new(Code::NotServing, "the scan for orphaned load balancers was stopped"));
        }
        progress::step();
        used.insert(load_balancers.name(call, cluster, service).await?);
    }
    unwanted.retain(|share| share.service.is_some() || !used.contains(&share.name));
    let orphan = |share: OwnedLoadBalancer| {
        let retained = records.of_share(name, &share).map(|(key, record)| (key.clone(), record.clone()));
        let in_use = used.contains(&share.name) || (retained.is_none() && reserved.contains(&*share.name));
        let is_listed = !unlisted.contains(&share);
        Orphan { share, in_use, is_listed, retained }
    };
    Ok(unwanted.into_iter().map(orphan).collect())
}

async fn scan(context: &Context, lane: &Arc<Lane>, unwanted: &mut UnwantedScans, stop: &CancellationToken) {
    let actor = Actor { controller: controllers::SERVICE, provider: lane.name.clone() };
    if lane.off_for(Interface::LoadBalancerInventory).is_some() {
        return;
    }
    let call = context.call(lane, None);
    // observe (pure)
    let services = candidates(context);
    // list, name (provider)
    let (cluster_name, begun) = (&*context.settings.cluster_name, unwanted.begun());
    let records = context.retained.records();
    let wanting = Wanting { services: &services, records: (&lane.name, &records), lists_retained: false };
    let found = find_orphans(&*lane.provider, (&call, stop), cluster_name, (wanting, &begun)).await;
    if stop.is_cancelled() {
        return;
    }
    let is_configured = context.is_configured(lane, controllers::SERVICE, (Interface::LoadBalancerInventory, &found));
    let found = match found {
        // Nothing is known any more about what earlier scans found.
        Err(_) if !is_configured => Vec::new(),
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(
                provider.name = lane.name,
                error = chain(&error),
                "the scan for orphaned load balancers failed; the next scan tries again"
            );
            return;
        }
    };
    // count (pure), report
    for orphan in unwanted.saw(found, lane.is_paused()) {
        let text = describe(&orphan, &lane.name, cluster_name);
        tracing::warn!(provider.name = lane.name, reason = text, "found an orphaned load balancer");
        context.reporter.event(&actor, &cluster(), (EventKind::Warning, reasons::ORPHANED_LOAD_BALANCER), text);
    }
    // delete (provider)
    if context.settings.delete_orphans
        && let Some(inventory) = lane.provider.load_balancer_inventory()
    {
        let asked = AskedServices::new(services);
        delete(context, (lane, &actor), (inventory, &call, stop), asked, unwanted).await;
    }
    metrics::set_count(&context.reporter.metrics.orphaned_load_balancers, &lane.name, unwanted.orphans().count());
}

async fn delete(
    context: &Context,
    (lane, actor): (&Lane, &Actor),
    (inventory, call, stop): (&dyn LoadBalancerInventory, &Call, &CancellationToken),
    mut asked: AskedServices,
    unwanted: &mut UnwantedScans,
) {
    let unused = unwanted.orphans().filter(|(_, in_use)| !in_use).map(|(share, _)| share);
    let shares: Vec<OwnedLoadBalancer> = unused.take(DELETIONS_PER_SCAN_MAX).cloned().collect();
    let cluster_name = &*context.settings.cluster_name;
    let mut held = Vec::new();
    for share in shares {
        let records = context.retained.records();
        if lane.is_paused() {
            return;
        }
        if records.has_unreadable(&lane.name) {
            let entries = records.unreadable().collect::<Vec<_>>().join(", ");
            tracing::warn!(
                provider.name = lane.name,
                "no orphaned load balancer is deleted, because entries of the ConfigMap {RETAINED_CONFIG_MAP} cannot be read: {entries}; correct or remove them"
            );
            return;
        }
        if records.of_share(&lane.name, &share).is_some() {
            // Retained since the list.
            unwanted.forget(&share);
            continue;
        }
        let shown = shown(&share.name);
        let deleted = async {
            let services = candidates(context);
            if asked.want_meanwhile(&*lane.provider, (call, cluster_name), services, &share).await?
                || stop.is_cancelled()
            {
                return Ok(false);
            }
            progress::step();
            unwanted.begin(&share);
            inventory.delete(call, cluster_name, &share).await.map(|()| true)
        };
        match deleted.await {
            Ok(false) if stop.is_cancelled() => return,
            // The next scan finds whose it is.
            Ok(false) => unwanted.forget(&share),
            Ok(true) => {
                unwanted.forget(&share);
                let text = format!("Deleted the orphaned load balancer {shown} of the provider {}", actor.provider);
                context.reporter.event(actor, &cluster(), (EventKind::Normal, reasons::DELETED_ORPHAN), text);
            }
            // The next scan tries again.
            Err(error) => {
                let text = format!("{shown}: {}", chain(&error));
                tracing::warn!(
                    provider.name = actor.provider,
                    reason = text,
                    "deleting an orphaned load balancer failed; the next scan tries again"
                );
                held.extend(error.holds_deletion.then_some((shown, error.message)));
            }
        }
    }
    report_held(context, (lane, actor), &held);
}

/// Counts the orphans whose deletion the operator's budget holds back, and why, after a scan, and
/// emits an Event about each new one.
fn report_held(context: &Context, (lane, actor): (&Lane, &Actor), held: &[(String, String)]) {
    let names = held.iter().map(|(name, _)| name.clone()).collect();
    let new = context.held_deletions.orphans(&lane.name, names);
    context.count_held_deletions(lane);
    for (name, reason) in held.iter().filter(|(name, _)| new.contains(name)) {
        let text = format!(
            "The deletion of the orphaned load balancer {name} is held back: {reason}; raise spec.deletionBudget of the Provider {} to delete the load balancer earlier",
            lane.name
        );
        context.reporter.event(actor, &cluster(), (EventKind::Warning, reasons::DELETION_HELD), text);
    }
}

/// The Services for whose names a search has asked, by UID.
#[derive(Debug)]
pub struct AskedServices(BTreeMap<String, Arc<Service>>);

impl AskedServices {
    /// Those of a search.
    #[must_use]
    pub fn new(services: Vec<Arc<Service>>) -> Self {
        Self(services.into_iter().map(|service| (service.uid.clone(), service)).collect())
    }

    /// Whether one of the present `services` that came, or changed, since the search has the
    /// share's load balancer. To be asked immediately before a deletion, because a search lasts
    /// minutes.
    ///
    /// # Errors
    /// Those of a name: the share may be wanted.
    pub async fn want_meanwhile(
        &mut self,
        provider: &dyn Provider,
        (call, cluster): (&Call, &str),
        services: Vec<Arc<Service>>,
        share: &OwnedLoadBalancer,
    ) -> Result<bool> {
        // Another release may have no load balancers.
        let Some(load_balancers) = provider.load_balancers() else { return Ok(true) };
        for service in services {
            if self.0.get(&service.uid) == Some(&service) {
                continue;
            }
            progress::step();
            let is_named = share.service.as_ref().is_some_and(|(_, _, uid)| *uid == service.uid);
            if is_named || load_balancers.name(call, cluster, &service).await? == share.name {
                return Ok(true);
            }
            self.0.insert(service.uid.clone(), service);
        }
        Ok(false)
    }
}

/// Every Service that may want a load balancer, whatever its provider, including deleted Services
/// whose load balancer still has to be deleted.
fn candidates(context: &Context) -> Vec<Arc<Service>> {
    let lanes = context.lanes.all();
    let held = lanes.iter().flat_map(|lane| context.ledger.services_of(&lane.name));
    let held = held.map(|(_, service)| (service.uid.clone(), service));
    let objects = context.services.all();
    let present = may_want_load_balancers(objects.iter().map(|object| &**object));
    let present = present.into_iter().map(|service| (service.uid.clone(), service));
    held.chain(present).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn describe(Orphan { share, in_use, .. }: &Orphan, provider: &str, cluster_name: &str) -> String {
    let name = shown(&share.name);
    let made_for = match &share.service {
        Some((namespace, name, uid)) => {
            format!("made for the Service {}/{} with the UID {}", shown(namespace), shown(name), shown(uid))
        }
        None => "for an unknown Service".to_owned(),
    };
    let shared = if *in_use {
        ". Another Service uses the same load balancer, so Skysail does not delete this Service's share by itself"
    } else {
        ""
    };
    format!(
        "{}{made_for}, and no Service wants it{shared}. If no other cluster in the same account is named \
         {cluster_name:?} too, delete it: skysail orphans --cluster-name {} --delete {name}",
        orphan_notice(provider, &share.name),
        shown(cluster_name)
    )
}

/// Shortens text from a cloud or a guest, and quotes it if it is not a plain name.
pub(super) fn shown(name: &str) -> String {
    let short: String = name.chars().take(NAME_SHOWN_MAX).collect();
    let plain = short.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/'));
    if plain && !short.is_empty() { short } else { format!("{short:?}") }
}

/// The entries that no Service wanted in the last scan.
#[derive(Default)]
struct UnwantedScans {
    entries: BTreeMap<OwnedLoadBalancer, Unwanted>,
}

#[derive(Default)]
struct Unwanted {
    /// Consecutive scans in which no Service wanted the entry.
    scans: u32,
    /// Whether a Service used the same load balancer.
    in_use: bool,
    /// If the deletion has begun: the consecutive scans in which the list lacked the entry.
    deleting: Option<u32>,
}

impl UnwantedScans {
    /// Records a scan; returns the new orphans. While the provider is paused, a deletion that has
    /// begun is not repeated, and its scans do not count.
    fn saw(&mut self, found: Vec<Orphan>, is_paused: bool) -> Vec<Orphan> {
        let mut before = std::mem::take(&mut self.entries);
        let mut new = Vec::new();
        for orphan in found {
            let Unwanted { scans, deleting, .. } = before.remove(&orphan.share).unwrap_or_default();
            let repeated = u32::from(!is_paused);
            let deleting = deleting.map(|scans| if orphan.is_listed { 0 } else { scans.saturating_add(repeated) });
            let scans = scans.saturating_add(1);
            self.entries.insert(orphan.share.clone(), Unwanted { scans, in_use: orphan.in_use, deleting });
            if scans == SCANS {
                new.push(orphan);
            }
        }
        new
    }

    fn orphans(&self) -> impl Iterator<Item = (&OwnedLoadBalancer, bool)> {
        let orphans = self.entries.iter().filter(|(_, entry)| entry.scans >= SCANS);
        orphans.map(|(share, entry)| (share, entry.in_use))
    }

    /// Records that the provider is asked to delete the entry.
    fn begin(&mut self, share: &OwnedLoadBalancer) {
        if let Some(entry) = self.entries.get_mut(share) {
            entry.deleting.get_or_insert(0);
        }
    }

    /// The entries whose deletion has begun and not succeeded, and that the list had lately.
    fn begun(&self) -> Vec<OwnedLoadBalancer> {
        let begun = self.entries.iter().filter(|(_, entry)| entry.deleting.is_some_and(|scans| scans < REPEATED_SCANS));
        begun.map(|(share, _)| share.clone()).collect()
    }

    fn forget(&mut self, share: &OwnedLoadBalancer) {
        self.entries.remove(share);
    }
}
