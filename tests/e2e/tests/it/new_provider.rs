//! `skysail new`: a provider of each language is built, passes its own tests and serves a Service,
//! by the two commands that are printed.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use skysail_test_e2e::{
    objects::{address_of, create_service},
    wait::eventually,
    workspace::{Process, command, printed_kubeconfig, run, skysail, target},
};
use tempfile::TempDir;

/// Makes a provider and builds it by the printed command; returns the component and the command
/// that serves it.
fn built(folder: &TempDir, language: &str) -> Result<(String, Command)> {
    let program = fs::canonicalize(skysail()?)?.display().to_string();
    let new = folder.path().join("my-cloud");
    let shown = new.display().to_string();
    let printed = run(&program, &["new", "my-cloud", "--language", language, "--folder", &shown])?;
    let line = |begin: &str| {
        let found = printed.lines().map(str::trim).find(|line| line.starts_with(begin));
        found.map(str::to_owned).with_context(|| format!("no command {begin}: {printed}"))
    };
    // Debian's Rust builds the standard library from source: the repository's guests have done so.
    let guests = fs::canonicalize(target())?.join("guests");
    run("sh", &["-c", &format!("export CARGO_TARGET_DIR={}; {}", guests.display(), line("cd ")?)])?;
    let mut serve = command("sh");
    let dev = line(&format!("{program} dev"))?;
    serve.args(["-c", &format!("exec {dev}")]).current_dir(&new).env("TMPDIR", folder.path());
    Ok((format!("{shown}/my-cloud.wasm"), serve))
}

fn works(language: &str) -> Result<()> {
    let folder = TempDir::new()?;
    let (component, _) = built(&folder, language)?;
    let call = |function: &str, arguments: serde_json::Value| {
        run(skysail()?, &["call", &component, function, "--json", &arguments.to_string()])
    };
    let described =
        call("instances.describe", json!({ "nodes": [{ "metadata": { "name": "a" } }], "detail": "metadata" }))?;
    ensure!(described.contains("my-cloud://a"), "{described}");
    let metadata = json!({ "namespace": "default", "name": "web", "uid": "0a1b" });
    let service = json!({ "metadata": metadata, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    let status = call("load-balancers.ensure", json!({ "service": service, "nodes": [] }))?;
    ensure!(status.contains("203.0.113."), "{status}");
    Ok(())
}

#[test]
fn a_new_provider_in_rust_passes_its_tests_and_answers() -> Result<()> {
    works("rust")
}

#[test]
fn a_new_provider_in_javascript_passes_its_tests_and_answers() -> Result<()> {
    works("javascript")
}

#[test]
fn a_new_provider_in_python_passes_its_tests_and_answers() -> Result<()> {
    let folder = TempDir::new()?;
    let (component, _) = built(&folder, "python")?;
    // One call: each compiles Python for 20 s of CPU.
    let nodes = json!({ "nodes": [{ "metadata": { "name": "a" } }], "detail": "metadata" });
    let described = run(skysail()?, &["call", &component, "instances.describe", "--json", &nodes.to_string()])?;
    ensure!(described.contains("my-cloud://a"), "{described}");
    Ok(())
}

#[tokio::test]
async fn a_new_provider_in_go_serves_a_service_by_the_two_printed_commands() -> Result<()> {
    let folder = TempDir::new()?;
    let (_, mut serve) = built(&folder, "go")?;
    let output = folder.path().join("output");
    let mut dev = Process(serve.stdin(Stdio::null()).stdout(File::create(&output)?).spawn()?);
    let kubeconfig = eventually("the kubeconfig is printed", 60, || async { printed_kubeconfig(&output) }).await?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    let client = Client::try_from(config)?;
    create_service(&client, "web", 80, 30080).await?;
    let address = eventually("the Service has an address", 60, || address_of(&client, "web")).await?;
    ensure!(address.starts_with("203.0.113."), "{address}");

    // A change that the provider's own tests refuse is no release; the next one is.
    let source = folder.path().join("my-cloud/provider.go");
    let change = |from: &str, to: &str| anyhow::Ok(fs::write(&source, fs::read_to_string(&source)?.replace(from, to))?);
    change("address(pool, service.UID)", "pool.Addr().Prev()")?;
    let refused = || async {
        let text = fs::read_to_string(&output)?;
        ensure!(text.contains("`make` failed (exit status: 2); the previous release still serves"), "{text}");
        Ok(())
    };
    eventually("the build fails", 120, refused).await?;
    ensure!(address_of(&client, "web").await? == address, "the address has changed");
    change("pool.Addr().Prev()", "pool.Addr().Next()")?;
    let moved = || async {
        let address = address_of(&client, "web").await?;
        ensure!(address == "203.0.113.1", "{address}: {}", fs::read_to_string(&output)?);
        Ok(())
    };
    eventually("the Service has the address of the next release", 120, moved).await?;

    let pool = "[LoadBalancer]\npool = 198.51.100.0/24\n";
    fs::write(folder.path().join("my-cloud/cloud.conf"), pool)?;
    let configured = || async {
        let address = address_of(&client, "web").await?;
        ensure!(address == "198.51.100.1", "{address}: {}", fs::read_to_string(&output)?);
        Ok(())
    };
    eventually("the Service has an address of the new pool", 120, configured).await?;
    ensure!(dev.0.try_wait()?.is_none(), "skysail dev has ended");
    Ok(())
}
