//! Clients of the API server that says who asks and whether they may.

use std::path::Path;

use anyhow::Context as _;
use kube::{Client, Config, client::ClientBuilder};
use skysail_serving::metrics::RestClientMetrics;

use crate::cluster::from_file;

/// A client of the API server that reviews users and rights: a kubeconfig that is named, else the pod's own account, else none.
///
/// # Errors
/// The kubeconfig is wrong.
pub(super) async fn of_the_reviewer(
    flag: &str,
    kubeconfig: Option<&Path>,
    metrics: &RestClientMetrics,
) -> anyhow::Result<Option<Client>> {
    let config = match kubeconfig {
        Some(path) => Some(from_file(flag, path).await?),
        None => Config::incluster().ok(),
    };
    config.map(|config| counted(config, metrics)).transpose()
}

fn counted(config: Config, metrics: &RestClientMetrics) -> anyhow::Result<Client> {
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let builder = ClientBuilder::try_from(config).context("cannot make a client of the cluster")?;
    Ok(builder.with_layer(&metrics.layer(host)).build())
}
