//! The providers of a command that ends by itself, as `skysail orphans` and `skysail plan` do.

use std::{path::Path, time::Duration};

use anyhow::{anyhow, ensure};
use kube::Client;
use prometheus_client::registry::Registry;
use skysail_provider::Provider as _;

use crate::{
    commands::run::Resources,
    exit::{MarkExt as _, Reason},
    provider_file::{self, ProviderSpec},
    providers::{self, Fleet, Surroundings},
};

/// How long the command waits for the first releases. A component with an interpreter compiles for
/// a minute, and for several on a busy machine.
const DECIDED_WITHIN: Duration = Duration::from_mins(10);

/// The providers of the file, or only the one with this name; none without a file.
///
/// # Errors
/// The file is invalid, or has no provider with the name.
pub(super) fn specs(file: Option<&Path>, only: Option<&str>) -> anyhow::Result<Option<Vec<ProviderSpec>>> {
    let Some(file) = file else { return Ok(None) };
    let mut specs = provider_file::load(file)?.providers;
    if let Some(name) = only {
        specs.retain(|spec| spec.name == *name);
        ensure!(!specs.is_empty(), "{} has no provider {name:?}", file.display());
    }
    Ok(Some(specs))
}

/// Loads the components of these providers, or of the objects of kind Provider in the cluster, and
/// waits until each of them serves.
///
/// # Errors
/// The settings are invalid, or a provider does not serve: the result of the command would be
/// incomplete, and would look complete.
pub(super) async fn fleet(
    client: Client,
    specs: Option<Vec<ProviderSpec>>,
    only: Option<&str>,
) -> anyhow::Result<Fleet> {
    let surroundings = Surroundings { archive: None, kubernetes: Some(client.clone()) };
    let mut fleet = Fleet::new(providers::services(&mut Registry::default())?).within(surroundings);
    match specs {
        Some(specs) => fleet.apply(specs).await.or_exit(Reason::Usage)?,
        None => take_up_objects(&mut fleet, client, only).await?,
    }
    let late = fleet.decided(DECIDED_WITHIN).await;
    late.map_err(|names| {
        anyhow!(
            "the provider {}: no release serves after {} s, and none was refused; try again on a machine with more CPU, or look at its source",
            names.join(", "),
            DECIDED_WITHIN.as_secs()
        )
    })?;
    for (name, served) in &fleet.served {
        if served.slot.info().is_none() {
            let status = served.slot.status();
            let trouble = status.borrow().trouble().map_or_else(String::new, |trouble| format!(": {trouble}"));
            return Err(anyhow!("the provider {name} does not serve{trouble}")).or_exit(Reason::Refused);
        }
    }
    Ok(fleet)
}

/// Serves the objects of kind Provider. An invalid object is an error.
async fn take_up_objects(fleet: &mut Fleet, client: Client, only: Option<&str>) -> anyhow::Result<()> {
    let mut resources = Resources::start(client).await?;
    resources.until_first_taken_up(fleet).await;
    if let Some(reason) = resources.left_out_of(only) {
        return Err(anyhow!("the Provider {reason}")).or_exit(Reason::Usage);
    }
    fleet.served.retain(|name, _| only.is_none_or(|only| only == name));
    if fleet.served.is_empty() {
        let which = only.map_or_else(|| "Provider".to_owned(), |name| format!("Provider {name:?}"));
        return Err(anyhow!("the cluster has no {which}; give --provider-file if the manager has a provider file"))
            .or_exit(Reason::Usage);
    }
    Ok(())
}
