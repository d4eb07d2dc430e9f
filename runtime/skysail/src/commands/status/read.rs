//! Reads the state of the providers for `skysail status`: from the objects of the cluster, or from
//! a manager's HTTPS port. The size of an answer is bounded, and each error has a remedy.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use http::Uri;
use kube::{Api, Client, api::DynamicObject};
use serde_json::json;

use super::ProviderList;
use crate::{
    args::ManagerArgs,
    cluster::{Cluster, list_all},
    commands::{manager_port, run::api_resource},
    exit::{MarkExt as _, Reason},
    output::plain,
    provider_file::{API_VERSION, KIND},
};

/// Largest answer of a manager, in bytes: 32 providers with the longest texts and all functions of
/// the contract are below 2 MiB.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The path on the manager's port.
const PATH: &str = "/providers";

/// The objects of the cluster; if some are named, the others without their status.
///
/// # Errors
/// The cluster does not answer, has no resource `Provider` or does not permit to list it, or the
/// status of a named object cannot be parsed.
pub(super) async fn of_cluster(kubeconfig: Option<&Path>, named: &[String]) -> anyhow::Result<ProviderList> {
    let cluster = Cluster::of(kubeconfig).await.or_exit(Reason::Usage)?;
    let client = cluster.client("status").await.or_exit(Reason::Usage)?;
    listed(client, named).await
}

async fn listed(client: Client, named: &[String]) -> anyhow::Result<ProviderList> {
    let api: Api<DynamicObject> = Api::all_with(client, &api_resource());
    let objects = list_all(&api).await.or_else(unreadable)?;
    let read = |mut object: DynamicObject| {
        let name = object.metadata.name.clone().unwrap_or_default();
        if !named.is_empty() && !named.contains(&name) {
            // This object is not printed, so its status is not parsed.
            object.data = json!({});
        }
        let provider = serde_json::to_value(object).and_then(serde_json::from_value);
        provider.with_context(|| format!("Provider {name:?} has a status that this version of skysail cannot read; use the version of the manager, or kubectl"))
    };
    let items = objects.into_iter().map(read).collect::<anyhow::Result<_>>()?;
    Ok(ProviderList { api_version: API_VERSION.to_owned(), kind: format!("{KIND}List"), items })
}

fn unreadable(error: kube::Error) -> anyhow::Result<Vec<DynamicObject>> {
    let refused = match &error {
        // An API server without the resource answers with plain text.
        kube::Error::Api(status) if status.code == 404 => anyhow!(
            "the cluster has no resource providers.skysail.dev; if the manager has a provider file, ask the manager with --server https://HOST:10258, else install the CRD with `skysail crd | kubectl apply -f -`"
        ),
        kube::Error::Api(status) if status.is_forbidden() => anyhow!(
            "this account has no permission to list Providers ({}); give the account the permission, for example with `kubectl create clusterrole provider-reader --verb=list --resource=providers.skysail.dev` and a binding",
            plain(&status.message)
        ),
        kube::Error::Api(status) if status.code == 401 => anyhow!(
            "401 Unauthorized: the API server rejected the credentials ({}); renew the credentials in the kubeconfig",
            plain(&status.message)
        ),
        _ => {
            return Err(error)
                .context("cannot list Providers; check the server and the credentials in the kubeconfig")
                .or_exit(Reason::Unreachable);
        }
    };
    Err(refused).or_exit(Reason::Usage)
}

/// The answer of a manager.
///
/// # Errors
/// A flag is invalid, the manager does not answer, or the account may not get the path.
pub(super) async fn of_manager(server: &Uri, args: &ManagerArgs) -> anyhow::Result<ProviderList> {
    let client = manager_port::client(server, args, "status").await.or_exit(Reason::Usage)?;
    asked(client, &manager_port::shown(server)).await
}

async fn asked(client: Client, server: &str) -> anyhow::Result<ProviderList> {
    let answer = manager_port::get(&client, server, PATH, ANSWER_BYTES_MAX).await.or_exit(Reason::Unreachable)?;
    manager_port::understood(answer, server, &manager_port::Path { path: PATH, rule: PATH })
}

#[cfg(test)]
mod tests;
