//! `skysail status`: the state of each provider, from the objects of the cluster or from a manager,
//! as text, JSON or YAML.
//!
//! # Flow
//! 1. read (client): the Providers of the cluster, or `/providers` of a manager.
//! 2. choose: the providers that the command line names.
//! 3. print.

mod page;
mod read;

use anyhow::{Context as _, bail};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    args::{LoggingFormat, StatusArgs, StatusFormat},
    custom_resource::ProviderStatus,
    exit::{MarkExt as _, Reason},
    output, telemetry,
};

/// A list of `Provider`s, in the format of the API server and of a manager.
#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProviderList {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    items: Vec<ProviderObject>,
}

/// The fields of a `Provider` that the command prints.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProviderObject {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: Metadata,
    /// `None` if no manager has written a status yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<ProviderStatus>,
}

#[derive(Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Metadata {
    name: String,
    /// `None` for a provider of a provider file, which has no generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
}

/// Reads and prints the state of the providers.
///
/// # Errors
/// A flag is invalid, the cluster or the manager does not answer, or no provider has a given name.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(status(args))
}

async fn status(args: &StatusArgs) -> anyhow::Result<()> {
    // read (client)
    let list = match &args.manager.server {
        Some(server) => read::of_manager(server, &args.manager).await?,
        None => read::of_cluster(args.kubeconfig.as_deref(), &args.names).await?,
    };
    // choose
    let list = choose(list, &args.names)?;
    // print
    output::print(shown(&list, args.output, Timestamp::now())?.as_bytes())
}

/// The named providers (all if none is named), sorted by name.
fn choose(mut list: ProviderList, names: &[String]) -> anyhow::Result<ProviderList> {
    list.items.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    for name in names {
        if !list.items.iter().any(|provider| provider.metadata.name == *name) {
            let known: Vec<_> = list.items.iter().map(|provider| &*provider.metadata.name).collect();
            match known.as_slice() {
                [] => bail!("there is no provider {name:?}; there are no providers"),
                known => bail!("there is no provider {name:?}; the providers are {}", output::plain(&known.join(", "))),
            }
        }
    }
    list.items.retain(|provider| names.is_empty() || names.contains(&provider.metadata.name));
    Ok(list)
}

fn shown(list: &ProviderList, format: StatusFormat, now: Timestamp) -> anyhow::Result<String> {
    let wide = match format {
        StatusFormat::Json => return output::json(list),
        StatusFormat::Yaml => return output::yaml(list),
        StatusFormat::Text => false,
        StatusFormat::Wide => true,
    };
    if list.items.is_empty() {
        return Ok("No Providers in the cluster. If the manager has a provider file, ask the manager with --server.\n"
            .to_owned());
    }
    let pages: Vec<String> = list.items.iter().map(|provider| page::of(provider, wide, now)).collect();
    Ok(pages.join("\n"))
}

#[cfg(test)]
mod tests;
