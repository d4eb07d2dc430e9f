//! `skysail dev --cloud-only`: a real API server and a manager use the simulated cloud by the
//! commands that it prints.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    objects::{address_of, create_service, initialized, register_node},
    wait::eventually,
    workspace::{Process, component, run, skysail},
};
use tempfile::TempDir;

/// A name that no machine of the cloud has at the start.
const NODE: &str = "worker";

#[tokio::test]
async fn a_manager_of_a_real_cluster_uses_the_simulated_cloud_by_the_printed_commands() -> Result<()> {
    let (folder, server) = (TempDir::new()?, ApiServer::start()?);
    component("simcloud")?;
    let output = folder.path().join("output");
    let mut command = Command::new(skysail()?);
    command.args(["dev", "--cloud-only", "--nodes=1"]).env("TMPDIR", folder.path());
    let _cloud = Process(command.stdin(Stdio::null()).stdout(File::create(&output)?).spawn()?);
    let printed = || async {
        let text = fs::read_to_string(&output)?;
        ensure!(text.contains("kubectl apply"), "{text}");
        anyhow::Ok(text)
    };
    let printed = eventually("the commands are printed", 60, printed).await?;
    let commands = |program: &'static str| printed.lines().map(str::trim).filter(move |line| line.starts_with(program));

    let definition = folder.path().join("crd.yaml");
    fs::write(&definition, run(skysail()?, &["crd"])?)?;
    server.kubectl(&["apply", "--server-side", "-f", &definition.display().to_string()])?;
    server.wait_for_definition("providers.skysail.dev").await?;
    ensure!(commands("kubectl").count() == 3, "{printed}");
    for command in commands("kubectl") {
        server.kubectl(&command.split_whitespace().skip(1).collect::<Vec<_>>())?;
    }
    let machine = commands("curl").next().context("no curl")?.replace("NODE", NODE);
    run("sh", &["-c", &format!("{machine} --fail --silent --show-error --noproxy '*'")])?;

    let mut manager = Manager::spawn_with_resources(&["--leader-elect=false"], &server.kubeconfig())?;
    manager.wait_until_ready().await.map_err(|error| error.context(manager.log_tail()))?;
    let client = server.client().await?;
    for name in ["node-1", NODE] {
        register_node(&client, name).await?;
        eventually("the node is initialised", 60, || initialized(&client, name)).await?;
    }
    create_service(&client, "web", 8080, 0).await?;
    eventually("the Service gets an address", 60, || address_of(&client, "web")).await.map(drop)
}
