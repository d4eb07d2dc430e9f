//! Load balancers that the cloud has for this cluster and that no Service wants: found by a slow
//! scan, told, and deleted only when asked.
//!
//! # Guarantees
//! - A scan begins only when the lists of nodes and Services are complete, and one whose list or
//!   names failed changes nothing.
//! - What any Service may want is no orphan: of type LoadBalancer, of any owner, ensured or not;
//!   held by our finalizer; still held by a provider.
//! - A load balancer is an orphan after [`SCANS`] scans in a row.
//!
//! # Why deletion is not the default
//! "This cluster's" is what the provider says, and it knows the cluster by its name alone: two
//! clusters of the same `--cluster-name` in one account are one cluster to it, and each would
//! delete the other's load balancers. A person can tell them apart.

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
    report::{Voice, cluster},
    service_spec::{convert, has_finalizer, is_load_balancer},
};

/// An eventually consistent list, or a cache that lags behind, is over after two more looks.
const SCANS: u32 = 3;
/// A mistake must not cost a whole cluster at once.
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

/// The Services that may want a load balancer, in the provider's words.
#[must_use]
pub fn may_want_load_balancers<'a>(objects: impl IntoIterator<Item = &'a core::Service>) -> Vec<Arc<Service>> {
    let wanting = objects.into_iter().filter(|object| is_load_balancer(object) || has_finalizer(object));
    wanting.map(|object| Arc::new(convert(object).service)).collect()
}

/// How the Event about an orphan begins.
#[must_use]
pub fn orphan_notice(provider: &str, name: &str) -> String {
    format!("The provider {provider} has a load balancer {}, ", shown(name))
}

/// The load balancers of this cluster that none of these Services may want; none where the provider
/// cannot say.
///
/// # Errors
/// Those of the provider's list or of a name: then nothing is known.
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
    // Usually nothing is left, and no name has to be asked for.
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
    let voice = Voice { controller: controllers::SERVICE, provider: lane.name.clone() };
    let call = context.call(lane, None);
    // observe (pure)
    let services = candidates(context);
    // list, name (provider)
    let found = match find_orphans(&*lane.provider, &call, &context.settings.cluster_name, &services).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(provider.name = lane.name, error = chain(&error), "orphans could not be looked for");
            return;
        }
    };
    // count (pure), report
    for orphan in sightings.saw(found) {
        let text = describe(&orphan, &lane.name, &context.settings.cluster_name);
        tracing::warn!(provider.name = lane.name, reason = text, "no Service wants a load balancer");
        context.reporter.event(&voice, &cluster(), (EventKind::Warning, reasons::ORPHANED_LOAD_BALANCER), text);
    }
    // delete (provider)
    if context.settings.delete_orphans
        && let Some(inventory) = lane.provider.load_balancer_inventory()
    {
        delete(context, &voice, (inventory, &call), sightings).await;
    }
    let labels = ProviderLabels { provider: lane.name.clone() };
    let count = i64::try_from(sightings.orphans().count()).unwrap_or(i64::MAX);
    context.reporter.metrics.orphaned_load_balancers.get_or_create(&labels).set(count);
}

async fn delete(
    context: &Context,
    voice: &Voice,
    (inventory, call): (&dyn LoadBalancerInventory, &Call),
    sightings: &mut Sightings,
) {
    let names: Vec<String> = sightings.orphans().take(DELETIONS_PER_SCAN_MAX).cloned().collect();
    for name in names {
        let shown = shown(&name);
        match inventory.delete(call, &context.settings.cluster_name, &name).await {
            Ok(()) => {
                sightings.forget(&name);
                let text = format!(
                    "Deleted the load balancer {shown} of the provider {}, which no Service wanted",
                    voice.provider
                );
                context.reporter.event(voice, &cluster(), (EventKind::Normal, reasons::DELETED_ORPHAN), text);
            }
            // The next scan tries again.
            Err(error) => {
                let text = format!("{shown}: {}", chain(&error));
                tracing::warn!(provider.name = voice.provider, reason = text, "an orphan could not be deleted");
            }
        }
    }
}

/// Every Service that may want a load balancer, of whichever provider, also those whose object is
/// gone and whose load balancer still has to go.
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
        None => "of a Service that the cloud does not remember".to_owned(),
    };
    format!(
        "{}{made_for}, and no Service wants it. If no other cluster in the same account is named \
         {cluster_name:?} too, delete it: skysail orphans --cluster-name {} --delete {name}",
        orphan_notice(provider, &orphan.name),
        shown(cluster_name)
    )
}

/// A cloud's or a guest's words: short, and quoted where they are more than a name.
fn shown(name: &str) -> String {
    let short: String = name.chars().take(NAME_SHOWN_MAX).collect();
    let plain = short.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/'));
    if plain && !short.is_empty() { short } else { format!("{short:?}") }
}

/// In how many scans in a row each load balancer was wanted by nobody, by its name.
#[derive(Default)]
struct Sightings {
    scans: BTreeMap<String, u32>,
}

impl Sightings {
    /// One more scan; returns those that became orphans by it.
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
