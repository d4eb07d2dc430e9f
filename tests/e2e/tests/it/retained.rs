//! Load balancers that outlive their Service with a real API server, by the commands of the
//! document: they stay across a restart of the manager, are adopted, and are deleted by their name.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use skysail_test_e2e::{
    manager::Manager,
    objects::{address_of, create_service, service_gone, services},
    wait::eventually,
    workspace::{component, run, skysail},
};
use tempfile::TempDir;

use crate::{
    documents::{first_commands, section},
    simulated::Site,
};

const NODE_PORT: u16 = 30_080;
const PATIENCE: u64 = 60;
/// After three scans an orphan is deleted.
const SCANS: usize = 4;

/// What the section of the page has: the commands without their comments, and the Service that
/// adopts.
fn documented() -> Result<([String; 3], String)> {
    let all = section("deploy/docs/services.md", "## Retained load balancers")?;
    let commands = first_commands(&all)?;
    let manifest = all.into_iter().find(|block| block.language == "yaml").context("it has no Service")?.text;
    Ok((commands, manifest))
}

struct World {
    site: Site,
    folder: TempDir,
}

impl World {
    async fn start() -> Result<Self> {
        let site = Site::start(&["a"]).await?;
        let folder = TempDir::new()?;
        let (name, token) = site.cloud.token();
        fs::write(folder.path().join(name), token)?;
        fs::copy(component("simcloud")?, folder.path().join("provider.wasm"))?;
        fs::write(folder.path().join("providers.yaml"), site.cloud.provider_file())?;
        Ok(Self { site, folder })
    }

    async fn manager(&self) -> Result<Manager> {
        let flags = ["--leader-elect=false", "--orphan-scan-period=2s", "--orphan-policy=delete"];
        let (file, wasm) = (self.site.cloud.provider_file(), component("simcloud")?);
        Manager::start_with(&flags, &self.site.server.kubeconfig(), &wasm, &file, &[self.site.cloud.token()]).await
    }

    /// The answer of a command of skysail, in JSON.
    fn ask(&self, command: &str) -> Result<Vec<Value>> {
        let mut words = command.split_whitespace();
        ensure!(words.next() == Some("skysail"), "this test does not run {command:?}");
        let kubeconfig = self.site.server.kubeconfig().display().to_string();
        let mut arguments: Vec<&str> = words.collect();
        arguments.extend(["--output=json", "--kubeconfig", &kubeconfig]);
        Ok(serde_json::from_str(&run(skysail()?, &arguments)?)?)
    }

    fn orphans(&self, more: &str) -> Result<Vec<Value>> {
        let file = self.folder.path().join("providers.yaml").display().to_string();
        self.ask(&format!("skysail orphans --cluster-name=e2e --provider-file {file} {more}"))
    }

    async fn until_gone(&self, name: &str, manager: &Manager) -> Result<()> {
        let gone = eventually("the Service is gone", PATIENCE, || service_gone(&self.site.client, name)).await;
        gone.map_err(|error| error.context(manager.log_tail()))
    }

    async fn address(&self, name: &str, manager: &Manager) -> Result<String> {
        let address = eventually("the Service gets an address", PATIENCE, || address_of(&self.site.client, name)).await;
        address.map_err(|error| error.context(manager.log_tail()))
    }

    async fn policy(&self, name: &str, policy: &str) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": { "skysail.dev/deletion-policy": policy } } });
        services(&self.site.client).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }
}

// Two threads: one serves the cloud, the other waits for the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_outlives_its_service_and_a_restart_and_is_adopted_and_deleted() -> Result<()> {
    let (world, ([retain, delete, list], manifest)) = (World::start().await?, documented()?);
    let client = &world.site.client;
    let first = world.manager().await?;
    create_service(client, "web", 8080, NODE_PORT).await?;
    let address = world.address("web", &first).await?;
    world.site.kubectl(&retain)?;
    world.site.kubectl(&format!("{delete} --wait=false"))?;
    world.until_gone("web", &first).await?;
    let events = "kubectl get events --field-selector reason=LoadBalancerRetained -o jsonpath={.items[*].message}";
    let event = || {
        let said = world.site.kubectl(events).and_then(|said| {
            ensure!(said.contains("skysail.dev/adopt-load-balancer: "), "{said:?}");
            Ok(())
        });
        std::future::ready(said)
    };
    eventually("the Event names the annotation", PATIENCE, event).await?;
    ensure!(first.metrics().await?.contains("skysail_retained_load_balancers{provider=\"sim\"} 1"));
    // Another process, whose scans delete orphans.
    ensure!(first.end().await?.success(), "the manager failed");
    let second = world.manager().await?;
    let scans = || {
        let scans = second.calls("load-balancer-inventory.list").len();
        std::future::ready(if scans > SCANS { Ok(()) } else { Err(anyhow::anyhow!("{scans} scans")) })
    };
    eventually("the manager looks for orphans", PATIENCE, scans).await?;
    let records = world.ask(&list)?;
    ensure!(records.len() == 1 && records[0]["addresses"] == json!([address]), "{records:?}");
    let uid = records[0]["uid"].as_str().context("it has no UID")?.to_owned();

    let file = world.folder.path().join("next.yaml");
    fs::write(&file, manifest.replace("UID", &uid))?;
    world.site.kubectl(&format!("kubectl apply --filename {}", file.display()))?;
    ensure!(world.address("next", &second).await? == address, "the Service has another load balancer");
    ensure!(world.orphans("")?.is_empty(), "what a Service has is no orphan");
    world.policy("next", "Retain").await?;
    world.site.kubectl("kubectl delete service next --wait=false")?;
    world.until_gone("next", &second).await?;

    let found = world.orphans("")?;
    let [balancer] = found.as_slice() else { anyhow::bail!("the command lists {found:?}") };
    ensure!(balancer["retained"] == json!(true), "{balancer}");
    let name = balancer["name"].as_str().context("it has no name")?;
    world.orphans(&format!("--delete {name}"))?;
    ensure!(world.ask(&list)?.is_empty(), "the record is left");
    ensure!(world.site.cloud.cloud.snapshot().has_no_load_balancers(), "something is left in the cloud");
    ensure!(second.end().await?.success(), "the manager failed");
    Ok(())
}
