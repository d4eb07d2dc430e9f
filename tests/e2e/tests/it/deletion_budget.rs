//! The budget of deletions with a real API server: what is beyond it stays in the cloud, and the
//! documented command lets one Service through.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use skysail_test_e2e::{
    manager::Manager,
    objects::{address_of, create_service, delete_service, services},
    wait::eventually,
    workspace::{component, root, run, skysail},
};
use tempfile::TempDir;

use crate::{
    documents::{Block, blocks},
    simulated::Site,
};

const PAGE: &str = "deploy/docs/services.md";
const NODE_PORT: u16 = 30_080;
const PATIENCE: u64 = 60;
/// The provider deletes a virtual server and its address.
const OF_ONE_SERVICE: u32 = 2;

/// The command of the section.
fn documented() -> Result<String> {
    let page = fs::read_to_string(root().join(PAGE))?;
    let (_, section) = page.split_once("## A budget of deletions").context("the page has no such section")?;
    let command = blocks(section).into_iter().find(Block::is_shell).context("the section has no command")?.text;
    Ok(command.trim().to_owned())
}

struct World {
    site: Site,
    manager: Manager,
    folder: TempDir,
}

impl World {
    async fn start() -> Result<Self> {
        let site = Site::start(&["a"]).await?;
        let budget = format!("spec:\n  deletionBudget: {{deletions: {OF_ONE_SERVICE}, window: 24h}}\n");
        let file = site.cloud.provider_file().replacen("spec:\n", &budget, 1);
        let (config, wasm) = (site.server.kubeconfig(), component("simcloud")?);
        let manager = Manager::start(&config, &wasm, &file, &[site.cloud.token()]).await?;
        let folder = TempDir::new()?;
        fs::write(folder.path().join("token"), site.server.token())?;
        Ok(Self { site, manager, folder })
    }

    fn kubectl(&self, command: &str) -> Result<String> {
        let mut words = command.split_whitespace();
        ensure!(words.next() == Some("kubectl"), "this test does not run {command:?}");
        self.site.server.kubectl(&words.collect::<Vec<_>>())
    }

    async fn until_said(&self, what: &str, command: &[&str], texts: &[&str]) -> Result<()> {
        let token = self.folder.path().join("token").display().to_string();
        let flags = ["--server", self.manager.address(), "--token-file", &token, "--insecure-skip-tls-verify"];
        let says = || {
            let said = skysail().and_then(|skysail| run(skysail, &[command, &flags].concat())).and_then(|page| {
                let missing: Vec<_> = texts.iter().filter(|text| !page.contains(**text)).collect();
                ensure!(missing.is_empty(), "{missing:?} is not in\n{page}");
                Ok(())
            });
            std::future::ready(said)
        };
        eventually(what, PATIENCE, says).await.map_err(|error| error.context(self.manager.log_tail()))
    }

    async fn until_gone(&self, name: &str) -> Result<()> {
        let gone = || async {
            let left = services(&self.site.client).get_opt(name).await?;
            ensure!(left.is_none(), "the Service waits for its finalizer");
            Ok(())
        };
        let gone = eventually("the Service is gone", PATIENCE, gone).await;
        gone.map_err(|error| error.context(self.manager.log_tail()))
    }

    fn balancers(&self) -> usize {
        self.site.cloud.cloud.snapshot().virtual_servers.len()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_beyond_the_budget_wait_until_a_person_lets_them_through() -> Result<()> {
    let (world, command) = (World::start().await?, documented()?);
    let client = &world.site.client;
    for (name, port) in [("first", 8080), ("web", 8081)] {
        create_service(client, name, port, NODE_PORT + port - 8080).await?;
        let address = eventually("the Service gets an address", PATIENCE, || address_of(client, name)).await;
        address.map_err(|error| error.context(world.manager.log_tail()))?;
    }
    delete_service(client, "first").await?;
    world.until_gone("first").await?;
    delete_service(client, "web").await?;
    let allowed = "spec.deletionBudget of the Provider sim allows 2 requests that delete something in 24h";
    let degraded = ["degraded", "DeletionsHeld", "deletions of these Services wait: 1, such as default/web"];
    world.until_said("the deletion waits", &["status"], &degraded).await?;
    world.until_said("the manager explains it", &["explain", "service", "web"], &[allowed]).await?;
    let events = "kubectl get events --field-selector reason=DeletionHeld,involvedObject.name=web -o jsonpath={.items[*].message}";
    let event = || {
        let said = world.kubectl(events).and_then(|said| {
            let way_out = "kubectl annotate service web --namespace default skysail.dev/allow-deletion=true";
            ensure!(said.contains(allowed) && said.contains(way_out), "{said:?}");
            Ok(())
        });
        std::future::ready(said)
    };
    eventually("the Event names the command", PATIENCE, event).await?;
    let metrics = world.manager.metrics().await?;
    ensure!(metrics.contains("skysail_held_deletions{provider=\"sim\"} 1"), "{metrics}");
    ensure!(world.balancers() == 1, "the cloud has {} load balancers", world.balancers());

    world.kubectl(&command)?;
    world.until_gone("web").await?;
    ensure!(world.site.cloud.cloud.snapshot().has_no_load_balancers(), "something is left in the cloud");
    let metrics = world.manager.metrics().await?;
    ensure!(metrics.contains("skysail_held_deletions{provider=\"sim\"} 0"), "{metrics}");
    ensure!(world.manager.end().await?.success(), "the manager failed");
    Ok(())
}
