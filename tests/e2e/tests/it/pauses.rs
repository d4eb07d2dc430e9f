//! Pauses of a Service and of a provider with a real API server, by the commands of the document:
//! nothing changes in the cloud, a deletion waits, and one Service can be let through.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use skysail_test_e2e::{
    manager::Manager,
    objects::{address_of, create_service, delete_service, services, set_port},
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

/// The first two commands of the page, without their comments: one pauses a Service, one ends the
/// pause.
fn documented() -> Result<[String; 2]> {
    let page = fs::read_to_string(root().join(PAGE))?;
    let lines = blocks(&page).into_iter().find(Block::is_shell).map(|block| block.text).unwrap_or_default();
    let bare = |line: &str| line.split(" #").next().unwrap_or_default().trim().to_owned();
    let commands: Vec<String> = lines.lines().map(bare).collect();
    commands.try_into().map_err(|commands| anyhow::anyhow!("{PAGE} has the commands {commands:?}"))
}

struct World {
    site: Site,
    manager: Manager,
    folder: TempDir,
}

impl World {
    async fn start() -> Result<Self> {
        let site = Site::start(&["a"]).await?;
        let file = site.cloud.provider_file();
        let component = component("simcloud")?;
        let manager = Manager::start(&site.server.kubeconfig(), &component, &file, &[site.cloud.token()]).await?;
        let folder = TempDir::new()?;
        fs::write(folder.path().join("token"), site.server.token())?;
        Ok(Self { site, manager, folder })
    }

    /// Runs a command for kubectl.
    fn kubectl(&self, command: &str) -> Result<String> {
        let mut words = command.split_whitespace();
        ensure!(words.next() == Some("kubectl"), "this test does not run {command:?}");
        self.site.server.kubectl(&words.collect::<Vec<_>>())
    }

    /// Checks that the answer of the manager to this command has these texts.
    fn says(&self, command: &[&str], texts: &[&str]) -> Result<()> {
        let token = self.folder.path().join("token").display().to_string();
        let flags = ["--server", self.manager.address(), "--token-file", &token, "--insecure-skip-tls-verify"];
        let page = run(skysail()?, &[command, &flags].concat())?;
        let missing: Vec<_> = texts.iter().filter(|text| !page.contains(**text)).collect();
        ensure!(missing.is_empty(), "{missing:?} is not in\n{page}");
        Ok(())
    }

    async fn until_said(&self, what: &str, command: &[&str], texts: &[&str]) -> Result<()> {
        let said = eventually(what, PATIENCE, || std::future::ready(self.says(command, texts))).await;
        said.map_err(|error| error.context(self.manager.log_tail()))
    }

    fn ensures(&self) -> usize {
        self.manager.calls("load-balancers.ensure").len()
    }

    /// A user pauses a Service and then changes it.
    async fn pause_the_service(&self, pause: &str) -> Result<()> {
        let before = self.ensures();
        self.kubectl(pause)?;
        set_port(&self.site.client, "web", 9090, NODE_PORT).await?;
        let events =
            "kubectl get events --field-selector reason=Paused,involvedObject.name=web -o jsonpath={.items[*].message}";
        let event = || {
            let message = self.kubectl(events).and_then(|message| {
                let command = "kubectl annotate service web --namespace default skysail.dev/paused-";
                ensure!(message.contains(command), "{message:?}");
                Ok(())
            });
            std::future::ready(message)
        };
        eventually("the Event names the command that continues", PATIENCE, event).await?;
        let explained = [
            "Service default/web: paused",
            "  paused      The annotation skysail.dev/paused pauses",
            "Paused: the pause holds the step Ensure back: fields of the Service have changed since the last ensure: spec.ports",
        ];
        self.until_said("the manager explains the pause", &["explain", "service", "web"], &explained).await?;
        ensure!(self.ensures() == before, "the paused Service costs a call: {}", self.manager.log_tail());
        let metrics = self.manager.metrics().await?;
        ensure!(metrics.contains("skysail_paused_services{provider=\"sim\"} 1"), "{metrics}");
        self.says(&["status"], &["  paused      Services that their annotation", "pauses: 1, such as default/web"])
    }

    /// The operator pauses the provider, and the deletion of the Service waits also without its own
    /// annotation.
    async fn pause_the_provider(&self, resume: &str) -> Result<()> {
        let providers = self.manager.component().with_file_name("providers.yaml");
        fs::write(&providers, fs::read_to_string(&providers)?.replacen("spec:\n", "spec:\n  paused: true\n", 1))?;
        let paused = ["Provider sim: ready, and paused", "  paused      spec.paused is true"];
        self.until_said("the provider is paused", &["status"], &paused).await?;
        delete_service(&self.site.client, "web").await?;
        self.kubectl(resume)?;
        let waits =
            ["paused, and is being deleted", "The provider sim is paused (spec.paused)", "holds the step Cleanup back"];
        self.until_said("the deletion waits", &["explain", "service", "web"], &waits).await?;
        ensure!(!self.site.cloud.cloud.snapshot().has_no_load_balancers(), "the load balancer is deleted");
        ensure!(services(&self.site.client).get_opt("web").await?.is_some(), "the Service is gone");
        Ok(())
    }
}

#[tokio::test]
async fn a_pause_keeps_the_cloud_as_it_is_and_ends_with_the_documented_commands() -> Result<()> {
    let (world, [pause, resume]) = (World::start().await?, documented()?);
    let client = &world.site.client;
    create_service(client, "web", 8080, NODE_PORT).await?;
    let address = eventually("the Service gets an address", PATIENCE, || address_of(client, "web")).await;
    address.map_err(|error| error.context(world.manager.log_tail()))?;
    world.pause_the_service(&pause).await?;
    world.pause_the_provider(&resume).await?;
    world.kubectl("kubectl annotate service web skysail.dev/paused=false")?;
    let gone = || async {
        ensure!(services(client).get_opt("web").await?.is_none(), "the Service waits for its finalizer");
        Ok(())
    };
    let gone = eventually("the Service is let through", PATIENCE, gone).await;
    gone.map_err(|error| error.context(world.manager.log_tail()))?;
    ensure!(world.site.cloud.cloud.snapshot().has_no_load_balancers(), "something is left in the cloud");
    let status = world.manager.end().await.context("the manager does not end")?;
    if !status.success() {
        bail!("the manager ended with {status}");
    }
    Ok(())
}
