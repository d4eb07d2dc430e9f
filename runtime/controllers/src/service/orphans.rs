//! Orphans: load balancers that the cloud has for this cluster and that no Service wants. A slow
//! scan finds and reports them; they are deleted only if the operator enables it.
//!
//! # Guarantees
//! - A scan begins only after the first lists of nodes and Services are complete. A scan whose
//!   calls failed changes nothing.
//! - A load balancer that any Service may want is no orphan: a Service of type LoadBalancer,
//!   whatever its owner, ensured or not; a Service with our finalizer; a Service in the ledger.
//! - A load balancer becomes an orphan after [`SCANS`] consecutive scans.
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
use skysail_provider::{Call, EventKind, LoadBalancerInventory, OwnedLoadBalancer, Provider, Result, Service};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    error::chain,
    lane::Lane,
    metrics::ProviderLabels,
    names::{controllers, reasons},
    report::{Actor, cluster},
    service_spec::{convert, has_finalizer, is_load_balancer},
};

/// Two more scans outlast an eventually consistent list or a lagging cache.
const SCANS: u32 = 3;
/// Limits the damage of a mistake.
const DELETIONS_PER_SCAN_MAX: usize = 10;
/// Longest name in a text.
const NAME_SHOWN_MAX: usize = 128;

/// Scans until `stop`.
pub(crate) async fn run(context: &Context, lane: &Arc<Lane>, stop: &CancellationToken) {
    let mut sightings = Sightings::default();
    while timeout(context.settings.orphan_scan_period, stop.cancelled()).await.is_err() {
        scan(context, lane, &mut sightings).await;
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

/// The load balancers of this cluster that none of these Services may want; empty if the provider
/// has no inventory.
///
/// # Errors
/// Those of the provider's list or of a name; the result is then unknown.
pub async fn find_orphans(
    provider: &dyn Provider,
    call: &Call,
    cluster: &str,
    services: &[Arc<Service>],
) -> Result<Vec<OwnedLoadBalancer>> {
    let (Some(inventory), Some(load_balancers)) = (provider.load_balancer_inventory(), provider.load_balancers())
    else {
        return Ok(Vec::new());
    };
    let mut owned = inventory.list(call, cluster).await?;
    let same = |(namespace, name, uid): &(String, String, String), service: &Service| {
        (namespace, name, uid) == (&service.namespace, &service.name, &service.uid)
    };
    owned.retain(|one| !one.service.as_ref().is_some_and(|known| services.iter().any(|service| same(known, service))));
    // Usually `owned` is empty here, and no call for a name is needed.
    for service in services {
        if owned.is_empty() {
            break;
        }
        let name = load_balancers.name(call, cluster, service).await?;
        owned.retain(|one| one.name != name);
    }
    Ok(owned)
}

async fn scan(context: &Context, lane: &Arc<Lane>, sightings: &mut Sightings) {
    let actor = Actor { controller: controllers::SERVICE, provider: lane.name.clone() };
    let call = context.call(lane, None);
    // observe (pure)
    let services = candidates(context);
    // list, name (provider)
    let found = match find_orphans(&*lane.provider, &call, &context.settings.cluster_name, &services).await {
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
    for orphan in sightings.saw(found) {
        let text = describe(&orphan, &lane.name, &context.settings.cluster_name);
        tracing::warn!(provider.name = lane.name, reason = text, "found an orphaned load balancer");
        context.reporter.event(&actor, &cluster(), (EventKind::Warning, reasons::ORPHANED_LOAD_BALANCER), text);
    }
    // delete (provider)
    if context.settings.delete_orphans
        && let Some(inventory) = lane.provider.load_balancer_inventory()
    {
        delete(context, &actor, (inventory, &call), sightings).await;
    }
    let labels = ProviderLabels { provider: lane.name.clone() };
    let count = i64::try_from(sightings.orphans().count()).unwrap_or(i64::MAX);
    context.reporter.metrics.orphaned_load_balancers.get_or_create(&labels).set(count);
}

async fn delete(
    context: &Context,
    actor: &Actor,
    (inventory, call): (&dyn LoadBalancerInventory, &Call),
    sightings: &mut Sightings,
) {
    let names: Vec<String> = sightings.orphans().take(DELETIONS_PER_SCAN_MAX).cloned().collect();
    for name in names {
        let shown = shown(&name);
        match inventory.delete(call, &context.settings.cluster_name, &name).await {
            Ok(()) => {
                sightings.forget(&name);
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
            }
        }
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

fn describe(orphan: &OwnedLoadBalancer, provider: &str, cluster_name: &str) -> String {
    let name = shown(&orphan.name);
    let made_for = match &orphan.service {
        Some((namespace, name, uid)) => {
            format!("made for the Service {}/{} with the UID {}", shown(namespace), shown(name), shown(uid))
        }
        None => "for an unknown Service".to_owned(),
    };
    format!(
        "{}{made_for}, and no Service wants it. If no other cluster in the same account is named \
         {cluster_name:?} too, delete it: skysail orphans --cluster-name {} --delete {name}",
        orphan_notice(provider, &orphan.name),
        shown(cluster_name)
    )
}

/// Shortens text from a cloud or a guest, and quotes it if it is not a plain name.
fn shown(name: &str) -> String {
    let short: String = name.chars().take(NAME_SHOWN_MAX).collect();
    let plain = short.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/'));
    if plain && !short.is_empty() { short } else { format!("{short:?}") }
}

/// The number of consecutive scans in which no Service wanted a load balancer, by its name.
#[derive(Default)]
struct Sightings {
    scans: BTreeMap<String, u32>,
}

impl Sightings {
    /// Records a scan; returns the new orphans.
    fn saw(&mut self, found: Vec<OwnedLoadBalancer>) -> Vec<OwnedLoadBalancer> {
        let names: BTreeSet<&str> = found.iter().map(|one| one.name.as_str()).collect();
        self.scans.retain(|name, _| names.contains(name.as_str()));
        let mut new = Vec::new();
        for one in found {
            let scans = self.scans.entry(one.name.clone()).or_insert(0);
            *scans = scans.saturating_add(1);
            if *scans == SCANS {
                new.push(one);
            }
        }
        new
    }

    fn orphans(&self) -> impl Iterator<Item = &String> {
        self.scans.iter().filter(|(_, scans)| **scans >= SCANS).map(|(name, _)| name)
    }

    fn forget(&mut self, name: &str) {
        self.scans.remove(name);
    }
}
