//! What the component says about machines, compared with what the vendor's Go provider says.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Result, ensure};
use skysail_provider::{Code, Detail, Error, Instance};

use super::{differences, without};
use crate::{
    cloud::JudgedMachines,
    proxy::Proxy,
    suite::same,
    vendor::{Description, Metadata, Vendor},
    world::{World, set},
};

/// The component describes each machine as the vendor's provider does, and needs no more requests.
///
/// Where the vendor's provider returns an error for everything, the component may still know
/// whether the machine runs.
///
/// # Errors
/// All differences without a reason, a line each.
pub async fn the_component_describes_machines_as_the_vendors_provider_does<C: JudgedMachines>() -> Result<()> {
    let mut found = String::new();
    for (variant, change) in C::variants() {
        if let Err(error) = compare::<C>(variant, change).await {
            write!(found, "\n{variant}: {error:#}")?;
        }
    }
    ensure!(found.is_empty(), "{found}");
    Ok(())
}

async fn compare<C: JudgedMachines>(variant: &str, change: fn(&mut C)) -> Result<()> {
    let mut cloud = C::start().await?;
    change(&mut cloud);
    let nodes = cloud.compared_nodes().await?;
    let world = World::<C>::before(cloud).await?;
    let proxy = Proxy::start(&world.cloud.services(), C::HTTPS).await?;
    // The vendor's provider gets the nodes one by one, as the node controllers ask.
    let vendor = Vendor::open(&world.cloud.vendor(proxy.origins())?, &set(Vec::new()))?;
    for one in differences::<C>(variant) {
        tracing::info!(variant, reason = one.reason, "differs on purpose");
    }
    let nodes = set(nodes);
    let states = world.machines(&nodes, Detail::State).await?;
    let metadata = world.machines(&nodes, Detail::Metadata).await?;
    let ours = states.into_iter().zip(metadata).map(|(state, metadata)| of_component(state, metadata));
    let theirs = vendor.describe(&nodes)?;
    let (mut of_component, mut of_vendor) = (Vec::new(), Vec::new());
    for ((node, ours), theirs) in nodes.as_slice().iter().zip(ours).zip(theirs) {
        of_component.push(format!("{}: {}", node.name, if theirs.is_unknown() { ours.without_state() } else { ours }));
        of_vendor.push(format!("{}: {theirs}", node.name));
    }
    let (requests, vendors_requests) = (world.proxy.take().len(), proxy.take().len());
    tracing::info!(variant, ours = requests, theirs = vendors_requests, "requests");
    same("what the component says", &without::<C>(variant, &of_component), &without::<C>(variant, &of_vendor))?;
    ensure!(
        requests <= vendors_requests,
        "the component needs {requests} requests, the vendor's provider {vendors_requests}"
    );
    Ok(())
}

/// What the component says, in the form of the vendor's provider.
fn of_component(state: Result<Instance, Error>, metadata: Result<Instance, Error>) -> Description {
    let state = match state {
        Ok(instance) if instance.shutdown => "shutdown",
        Ok(_) => "running",
        Err(error) if error.code == Code::NotFound => "gone",
        Err(error) => {
            tracing::info!(%error, "the component returns an error");
            "unknown"
        }
    };
    // The node controller does not ask for the metadata of a machine that is gone.
    let metadata = metadata.ok().filter(|_| state != "gone").map(|instance| {
        let Instance { provider_id, instance_type, zone, region, addresses, labels, .. } = instance;
        let addresses = addresses.iter().map(|one| format!("{} {}", one.kind.as_str(), one.address)).collect();
        let labels: BTreeMap<String, String> = labels;
        Metadata { provider_id, instance_type, zone, region, addresses, labels }
    });
    Description { state: state.to_owned(), metadata }
}
