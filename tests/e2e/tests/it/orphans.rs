//! `skysail orphans` with a real API server and the simulated cloud: it finds an orphaned load
//! balancer and deletes it by name.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    objects::{address_of, create_service, delete_service, services},
    wait::eventually,
    workspace::{component, run, skysail},
};

use crate::simulated::Simulated;

// Two threads: one serves the cloud, the other waits for the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphaned_load_balancer_is_listed_and_deleted_by_its_name() -> Result<()> {
    let cloud = Simulated::start(&["a"]).await?;
    let (server, wasm) = (ApiServer::start()?, component("simcloud")?);
    let manager = Manager::start(&server.kubeconfig(), &wasm, &cloud.provider_file(), &[cloud.token()]).await?;
    let client = server.client().await?;
    for (name, node_port) in [("left", 30_080), ("wanted", 30_081)] {
        create_service(&client, name, 8080, node_port).await?;
        let address = eventually("the Service gets an address", 60, || address_of(&client, name)).await;
        address.map_err(|error| error.context(manager.log_tail()))?;
    }
    // While no manager runs, the finalizer is removed and the Service is deleted.
    ensure!(manager.end().await?.success(), "the manager failed");
    let bare = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    services(&client).patch("left", &PatchParams::default(), &bare).await?;
    delete_service(&client, "left").await?;

    let folder = tempfile::tempdir()?;
    let (token_name, token) = cloud.token();
    fs::copy(&wasm, folder.path().join("provider.wasm"))?;
    fs::write(folder.path().join(token_name), token)?;
    fs::write(folder.path().join("providers.yaml"), cloud.provider_file())?;
    let ask = |more: &[&str]| orphans(folder.path(), &server.kubeconfig(), more);

    let found = ask(&[])?;
    let [orphan] = found.as_slice() else { anyhow::bail!("the orphans are {found:?}") };
    ensure!(orphan["service"] == "default/left" && orphan["provider"] == "sim", "{orphan}");
    let name = orphan["name"].as_str().context("it has no name")?;
    ensure!(ask(&["--delete", name, "another"]).is_err(), "a name that is not an orphan was accepted");
    ensure!(ask(&[])?.len() == 1, "a load balancer was deleted");
    ask(&["--delete", name])?;
    ensure!(ask(&[])?.is_empty(), "the orphan was not deleted");
    let left = cloud.cloud.snapshot().elastic_ips.len();
    ensure!(left == 1, "{left} addresses are left; the one of `wanted` has to be");
    Ok(())
}

fn orphans(folder: &Path, kubeconfig: &Path, more: &[&str]) -> Result<Vec<Value>> {
    let providers = folder.join("providers.yaml").display().to_string();
    let kubeconfig = kubeconfig.display().to_string();
    let mut arguments = vec!["orphans", "--cluster-name=e2e", "--output=json", "--provider-file"];
    arguments.extend([providers.as_str(), "--kubeconfig", &kubeconfig]);
    arguments.extend(more);
    Ok(serde_json::from_str(&run(skysail()?, &arguments)?)?)
}
