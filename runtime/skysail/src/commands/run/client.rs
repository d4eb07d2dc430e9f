//! Clients of the API server that says who asks and whether they may.

use std::path::Path;

use kube::{Client, Config};
use skysail_serving::metrics::RestClientMetrics;

use crate::cluster::{Cluster, from_file};

/// A client of the API server that reviews users and rights: a kubeconfig that is named, else the
/// pod's own account, else none.
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
    // Requests are rare (answers are kept), and each waits for one: no rate is needed.
    config.map(|config| Cluster::at(config).counted(metrics).client("reviews")).transpose()
}
