//! Clients for token reviews and access reviews.

use std::path::Path;

use kube::{Client, Config};
use skysail_controllers::Rate;
use skysail_serving::metrics::RestClientMetrics;

use crate::cluster::{Cluster, from_file};

/// Requests a second to the API server, and the burst, as upstream: reviews are cached, but each
/// token or path that nobody has asked about before costs one.
const QPS: f32 = 200.0;
const BURST: u16 = 400;

/// A client of the API server that reviews tokens and access: with the named kubeconfig, else the
/// service account of the pod, else `None`.
///
/// # Errors
/// The kubeconfig is invalid.
pub(super) async fn of_the_reviewer(
    flag: &str,
    kubeconfig: Option<&Path>,
    metrics: &RestClientMetrics,
) -> anyhow::Result<Option<Client>> {
    let config = match kubeconfig {
        Some(path) => Some(from_file(flag, path).await?),
        None => Config::incluster().ok(),
    };
    match config {
        Some(config) => {
            Cluster::at(config).limited(Rate::new(QPS, BURST)).counted(metrics).client("reviews").await.map(Some)
        }
        None => Ok(None),
    }
}
