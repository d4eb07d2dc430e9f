//! A component in a ConfigMap of a real API server, read through the API.

use std::path::Path;

use anyhow::{Result, ensure};
use skysail_test_e2e::{api_server::ApiServer, manager::Manager, wait::eventually, workspace::component};

use crate::simulated::Simulated;

/// Creates the ConfigMap as the documentation describes.
fn write(server: &ApiServer, file: &Path) -> Result<()> {
    let from = format!("--from-file=provider.wasm={}", file.display());
    let yaml = server.kubectl(&["create", "configmap", "provider", &from, "--dry-run=client", "-o", "yaml"])?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("provider.yaml");
    std::fs::write(&path, yaml)?;
    server.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    Ok(())
}

/// Waits until the manager has logged this text a number of times.
async fn says(manager: &Manager, text: &str, times: usize) -> Result<()> {
    eventually(text, 120, || {
        let count = manager.log().matches(text).count();
        std::future::ready(if count >= times { Ok(()) } else { Err(format!("{count} times")) })
    })
    .await
}

#[tokio::test]
async fn a_config_map_that_is_replaced_swaps_the_provider() -> Result<()> {
    let cloud = Simulated::start(&["a"]).await?;
    let server = ApiServer::start()?;
    let wasm = component("simcloud")?;
    let source = "{configMap: {namespace: default, name: provider}}";
    let provider_file = cloud.provider_file().replace("{file: provider.wasm}", source);
    ensure!(provider_file.contains(source), "{provider_file}");
    let flags = ["--leader-elect=false"];
    let mut manager = Manager::spawn(&flags, &server.kubeconfig(), &wasm, &provider_file, &[cloud.token()])?;
    says(&manager, "ConfigMapMissing", 1).await?;

    write(&server, &wasm)?;
    manager.wait_until_ready().await.map_err(|error| error.context(manager.log_tail()))?;
    let first = manager.release()?;
    manager.offer_another_release()?;
    write(&server, &manager.component())?;
    let swapped = eventually("the new release serves", 300, || {
        let release = manager.release().and_then(|release| {
            ensure!(release != first, "{release} still serves");
            Ok(())
        });
        std::future::ready(release)
    });
    swapped.await.map_err(|error| error.context(manager.log_tail()))?;
    server.kubectl(&["delete", "configmap", "provider"])?;
    says(&manager, "ConfigMapMissing", 2).await?;
    manager.still_runs()?;
    let status = manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}
