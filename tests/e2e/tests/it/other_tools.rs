//! Tools of other projects with a real registry with TLS and a password: components that they push
//! are served, and they pull components that `skysail push` pushed.

use std::fs;

use anyhow::{Result, ensure};
use skysail_test_e2e::{
    api_server::ApiServer, manager::Manager, objects::create_service, registry::Registry, tools::Tool,
    wait::eventually, workspace::component,
};

use crate::simulated::Simulated;

#[tokio::test]
async fn a_component_that_wkg_pushed_is_pulled_and_served() -> Result<()> {
    is_pulled_and_served(Tool::Wkg).await
}

#[tokio::test]
async fn a_component_that_oras_pushed_is_pulled_and_served() -> Result<()> {
    is_pulled_and_served(Tool::Oras).await
}

#[tokio::test]
async fn wkg_pulls_a_component_that_skysail_pushed() -> Result<()> {
    pulls_from_skysail(Tool::Wkg).await
}

#[tokio::test]
async fn oras_pulls_a_component_that_skysail_pushed() -> Result<()> {
    pulls_from_skysail(Tool::Oras).await
}

async fn is_pulled_and_served(tool: Tool) -> Result<()> {
    let cloud = Simulated::start(&["a"]).await?;
    let server = ApiServer::start()?;
    let registry = Registry::secured().await?;
    let wasm = component("simcloud")?;
    tool.push(&registry, &wasm, "v1")?;

    let pulled = registry.path("by-tag.wasm");
    let reference = format!("{}/org/provider:v1", registry.host());
    let printed = registry.skysail(&["pull", &reference, "--file", &pulled.display().to_string()])?;
    ensure!(fs::read(&pulled)? == fs::read(&wasm)?, "{reference} is another component than {tool:?} pushed: {printed}");

    let provider_file = cloud.provider_file();
    ensure!(provider_file.contains("{file: provider.wasm}"), "another source than before: {provider_file}");
    let provider_file = provider_file.replace("{file: provider.wasm}", &registry.source("v1"));
    let [config, ca] = registry.files()?;
    let files = [cloud.token(), (config.0, &config.1), (ca.0, &ca.1)];
    let manager = Manager::start(&server.kubeconfig(), &wasm, &provider_file, &files).await?;
    let release = manager.release()?;
    ensure!(printed.contains(&release), "{release} serves, and pulled was {printed}");
    create_service(&server.client().await?, "web", 8080, 30_080).await?;
    eventually("the release creates a load balancer", 60, || {
        let calls = manager.calls("load-balancers.ensure");
        std::future::ready(if calls.contains(&release) { Ok(()) } else { Err(format!("calls by {calls:?}")) })
    })
    .await
    .map_err(|error| error.context(manager.log_tail()))?;
    let status = manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

async fn pulls_from_skysail(tool: Tool) -> Result<()> {
    let registry = Registry::secured().await?;
    let wasm = component("dummy")?;
    registry.push(&wasm, "v1")?;
    let pulled = tool.pull(&registry, "v1")?;
    ensure!(
        fs::read(&pulled)? == fs::read(&wasm)?,
        "{} is another component than the one that was pushed",
        pulled.display()
    );
    // wkg has the file's name as an argument; oras reads it from the artifact.
    ensure!(tool == Tool::Wkg || pulled.ends_with("dummy.wasm"), "the file is called {}", pulled.display());
    Ok(())
}
